#!/bin/sh
# What readers skip: 10M log records from 2,000 services, and the row groups that DuckDB scans of them (EXPLAIN ANALYZE) for a trace,
# for a service, and for ten minutes. Fails where it skips less than 90%.
#
#   benches/row_groups.sh [PYTHON]
#
# PYTHON: an interpreter that has duckdb (by default python3). Needs 150 MB in the directory for temporary files.
# SLUICE_ROWS=1000000 for a quick look, which has too few row groups to pass; SLUICE_SERVICES: how many there are;
# SLUICE_SORT_BY="service_name timestamp": with rows sorted.
set -eu
cd "$(dirname "$0")/.."
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cargo run -q --release -p sluice-benches --example parquet_set -- "$directory" "${SLUICE_ROWS:-10000000}" "${SLUICE_SERVICES:-2000}" ${SLUICE_SORT_BY:-}
du -sk "$directory"
"${1:-python3}" benches/row_groups.py "$directory"
