"""Python's decoders; see run.sh."""
import gzip
import io
import zlib

import pyzstd
import zstandard

EXPECTED = open("expected", "rb").read()


def tell(name, body, decode):
    data = open(body, "rb").read()
    try:
        got = decode(data)
        what = "all" if got == EXPECTED else "FIRST ONLY" if got else "taken"
    except Exception as error:  # pylint: disable=broad-except
        what = "refused (%s)" % type(error).__name__
    print("Python, %s: %s: %s" % (name, body.split(".")[0], what))


for body in ("two.zst", "probe.zst"):
    one_shot = zstandard.ZstdDecompressor()
    tell("zstandard decompress", body, lambda data: one_shot.decompress(data, max_output_size=1 << 20))
    tell("zstandard stream_reader", body, lambda data: one_shot.stream_reader(io.BytesIO(data)).read())
    tell(
        "zstandard stream_reader(read_across_frames=False)",
        body,
        lambda data: one_shot.stream_reader(io.BytesIO(data), read_across_frames=False).read(),
    )
    tell("pyzstd decompress", body, pyzstd.decompress)
for body in ("two.gz", "probe.gz"):
    tell("gzip.decompress", body, gzip.decompress)
    tell("zlib.decompress", body, lambda data: zlib.decompress(data, 31))
    tell("zlib.decompressobj", body, lambda data: zlib.decompressobj(31).decompress(data))
