"""Writes the flat tables of benches/parquet.sh once more with pyarrow, from memory: zstd 1, one thread, the best of three."""

import pathlib
import sys
import time

import pyarrow
import pyarrow.parquet

pyarrow.set_cpu_count(1)
pyarrow.set_io_thread_count(1)

files = sorted(pathlib.Path(sys.argv[1]).glob("*.parquet"), key=lambda path: [int(n) for n in path.stem.split("-")])
for path in files:
    shape, rows = path.stem.split("-")
    table = pyarrow.parquet.read_table(path, use_threads=False).combine_chunks()
    best = None
    for _ in range(3):
        out = pyarrow.BufferOutputStream()
        began = time.process_time()
        pyarrow.parquet.write_table(table, out, compression="zstd", compression_level=1, version="1.0")
        took = time.process_time() - began
        best = took if best is None else min(best, took)
    size = out.getvalue().size
    print(
        f"| {rows} | {shape} a resource, flat, pyarrow {pyarrow.__version__} writing only | | "
        f"{size / int(rows):.1f} | {int(rows) / best:.0f} | |"
    )
