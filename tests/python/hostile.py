"""Has every engine read every column of every file, and counts the rows.

    hostile.py DIRECTORY ROWS
"""

import glob
import json
import sys

import datafusion
import duckdb
import polars
import pyarrow.parquet

directory, rows = sys.argv[1], int(sys.argv[2])
files = sorted(glob.glob(f"{directory}/**/*.parquet", recursive=True))
MAPS = [("attributes", "attr_types"), ("resource_attributes", "resource_attr_types")]


def read_datafusion(file):
    context = datafusion.SessionContext()
    context.register_parquet("t", file)
    return context.sql("SELECT * FROM t").to_arrow_table().num_rows


def read_pyarrow(file):
    table = pyarrow.parquet.ParquetFile(file).read()
    table.validate(full=True)
    for name, types in MAPS:
        for pairs, letters in zip(table[name].to_pylist(), table[types].to_pylist()):
            keys = [key for key, _ in pairs]
            assert len(letters) == len(pairs) == len(set(keys)), (file, keys)
            for (_, text), letter in zip(pairs, letters):
                if letter in "am":
                    json.loads(text)
    return table.num_rows


ENGINES = {
    "DuckDB": lambda file: len(duckdb.sql(f"SELECT * FROM read_parquet('{file}')").fetchall()),
    "pyarrow": read_pyarrow,
    "Polars": lambda file: polars.read_parquet(file, hive_partitioning=False).height,
    "DataFusion": read_datafusion,
}
for engine, read in ENGINES.items():
    found = sum(read(file) for file in files)
    assert found == rows, (engine, found, rows)
    print(f"{engine}: {found} rows in {len(files)} files")
