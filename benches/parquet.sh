#!/bin/sh
# The table of docs/performance.md#parquet: both page encoders on the 40-column set in both shapes and six sizes, and on sparse
# sets; then pyarrow, which writes the same flat tables from its own memory.
#
#   benches/parquet.sh [PYTHON]
#
# PYTHON: an interpreter that has pyarrow (by default python3; without pyarrow its lines are left out). Takes some five minutes on
# an otherwise idle machine. SLUICE_PARQUET_ROWS=10000 for a quick look.
set -eu
cd "$(dirname "$0")/.."
python=${1:-python3}
: "${SLUICE_PARQUET_ROWS:=10000,25000,50000,100000,200000,400000}"
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
export SLUICE_PARQUET_ROWS
SLUICE_PARQUET_TABLE=$directory cargo bench -q -p sluice-benches --bench parquet -- none 2>&1 | grep '^|'
if "$python" -c 'import pyarrow' 2>/dev/null; then
    "$python" benches/parquet.py "$directory"
else
    echo "pyarrow: $python does not have it" >&2
fi
