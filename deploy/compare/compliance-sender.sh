#!/bin/bash
# The sender statements of prometheus/compliance against sluice, by hand: https://github.com/prometheus/compliance/tree/main/remotewrite
#
# Its suite needs a sender that scrapes. So Prometheus scrapes and sends to sluice, and sluice sends straight through to the suite (compliance-sender/main_test.go). First
# Prometheus alone, to tell what is its own, then sluice: what fails with sluice and not without is listed.
#
# The suite comes from the Go module proxy, at the newest commit that it has. There most of its tests wait to be moved to another framework and are skipped; they are run
# all the same. Their names say which statement is meant, their attribute rfcLevel whether it is a MUST. Half an hour.
#
# Usage: deploy/compare/compliance-sender.sh [-run PATTERN ...]      what follows is for "go test"
# Environment: SLUICE [target/release/sluice], PROMETHEUS [target/peers/prometheus], OUT [target/compliance-sender], SUITE: a directory that holds a copy of the suite
set -euo pipefail

module=github.com/prometheus/compliance/remotewrite@v0.0.0-20260223092825-818283e1171e
sluice=$(realpath "${SLUICE:-target/release/sluice}")
PROMETHEUS=$(realpath "${PROMETHEUS:-target/peers/prometheus}")
export PROMETHEUS
out=${OUT:-target/compliance-sender}
here=$(cd "$(dirname "$0")" && pwd)

rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)
if [ -z "${SUITE:-}" ]; then
    SUITE=$(go mod download -json "$module" | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p')
fi
# Not in the module cache itself, where the compiler may not write.
cp -r "$SUITE" "$out/suite"
chmod -R u+w "$out/suite"
cd "$out/suite"
# The runner of its own, which fetches Prometheus; what skips its tests; and the loop over them that does nothing any more.
rm sender/test_test.go
cp "$here/compliance-sender/main_test.go" sender/main_test.go
sed -i '/t.Skip("TODO: Revise/d' sender/*_test.go
sed -i '/^func runTestCases/,/^}/d' sender/helpers.go
# Some of those tests lost the line that starts the sender; what stands in its place fails.
sed -i 's/t.Fatal("was creating target here; to remove")/runWhereTheSuiteDoesNot(t, receiver, scrapeTarget)/' sender/*_test.go

suite() { # NAME EXECUTABLE [ARGUMENT ...]: the tests that passed and failed, as PASS name or FAIL name
    local name=$1 executable=$2
    shift 2
    SLUICE=$executable go test -v -parallel 10 -timeout 20m ./sender "$@" >"$out/$name.log" 2>&1 || true
    sed -n 's/^ *--- \(PASS\|FAIL\): \([^ ]*\) .*/\1 \2/p' "$out/$name.log" | sort >"$out/$name.txt"
    if [ ! -s "$out/$name.txt" ]; then
        cat "$out/$name.log" >&2
        exit 1
    fi
    echo "$name: $(grep -c ^PASS "$out/$name.txt" || true) pass, $(grep -c ^FAIL "$out/$name.txt" || true) fail"
}

suite prometheus "" "$@"
suite sluice "$sluice" "$@"
# A test fails with those in it; the innermost one is named.
comm -13 <(grep ^FAIL "$out/prometheus.txt") <(grep ^FAIL "$out/sluice.txt") >"$out/ours.txt" || true
failed=0
while read -r _ test; do
    if grep -q "^FAIL $test/" "$out/ours.txt"; then continue; fi
    level=$(sed -n "s|^=== ATTR *$test rfcLevel ||p" "$out/sluice.log" | head -n 1)
    echo "fails with sluice and not with Prometheus alone: ${level:-?} $test"
    [ "$level" != MUST ] || failed=1
done <"$out/ours.txt"
exit "$failed"
