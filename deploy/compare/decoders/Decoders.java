import com.github.luben.zstd.Zstd;
import com.github.luben.zstd.ZstdInputStream;
import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.zip.GZIPInputStream;

/** Java's decoders; see run.sh. */
public final class Decoders {
    private interface Decode {
        byte[] of(byte[] data) throws Exception;
    }

    private static void tell(String name, String file, Decode decode) throws Exception {
        byte[] expected = Files.readAllBytes(Path.of("..", "expected"));
        byte[] data = Files.readAllBytes(Path.of("..", file));
        String what;
        try {
            byte[] got = decode.of(data);
            what = Arrays.equals(got, expected) ? "all" : got.length == 0 ? "taken" : "FIRST ONLY";
        } catch (Exception error) {
            what = "refused";
        }
        System.out.println("Java, " + name + ": " + file.substring(0, file.indexOf('.')) + ": " + what);
    }

    private static byte[] read(InputStream stream) throws Exception {
        return stream.readAllBytes();
    }

    public static void main(String[] args) throws Exception {
        for (String body : new String[] {"two", "probe"}) {
            tell("zstd-jni ZstdInputStream", body + ".zst", data -> read(new ZstdInputStream(new ByteArrayInputStream(data))));
            tell("zstd-jni Zstd.decompress", body + ".zst", data -> {
                byte[] room = new byte[1 << 20];
                long size = Zstd.decompress(room, data);
                if (Zstd.isError(size)) {
                    throw new IllegalStateException(Zstd.getErrorName(size));
                }
                return Arrays.copyOf(room, (int) size);
            });
            tell("java.util.zip.GZIPInputStream", body + ".gz", data -> read(new GZIPInputStream(new ByteArrayInputStream(data))));
        }
    }
}
