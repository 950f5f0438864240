"""The row groups that DuckDB scans for predicates on a set of benches/examples/parquet_set.rs, each with what five rows have; fails where it
skips less than 90%.

    row_groups.py DIRECTORY
"""

import re
import sys

import duckdb

ROWS = 5

connection = duckdb.connect()
# Times are written as the files have them.
connection.execute("SET TimeZone = 'UTC'")
source = f"read_parquet('{sys.argv[1]}/*.parquet')"
count = connection.execute(f"SELECT count(*) FROM {source}").fetchone()[0]
columns = f"SELECT trace_id, service_name, CAST(timestamp AS VARCHAR) FROM {source}"
rows = [connection.execute(f"{columns} LIMIT 1 OFFSET {n * count // (ROWS + 1)}").fetchone() for n in range(1, ROWS + 1)]


def scanned(predicate):
    """How many row groups of how many are scanned."""
    # With max(body) a column has to be read, too.
    query = f"EXPLAIN ANALYZE SELECT count(*), max(body) FROM {source} WHERE {predicate}"
    plan = connection.execute(query).fetchone()[1]
    found = re.search(r"Row Groups Scanned: ([\d,]+) / ([\d,]+)", plan)
    if not found:
        sys.exit(f"DuckDB {duckdb.__version__} does not say how many row groups it scans; 2.0 does\n{plan}")
    return [int(number.replace(",", "")) for number in found.groups()]


few = True
for what, predicates in {
    "trace_id": [f"trace_id = '{trace}'" for trace, _, _ in rows],
    "service_name": [f"service_name = '{service}'" for _, service, _ in rows],
    "ten minutes": [f"timestamp BETWEEN '{time}' AND TIMESTAMPTZ '{time}' + INTERVAL 10 MINUTE" for _, _, time in rows],
}.items():
    of, groups = map(sum, zip(*map(scanned, predicates)))
    print(f"{what}: {of} of {groups} row groups scanned by {len(predicates)} queries, {1 - of / groups:.1%} skipped")
    few &= of * 10 <= groups
sys.exit(0 if few else "less than 90% skipped")
