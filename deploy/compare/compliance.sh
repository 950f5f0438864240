#!/bin/bash
# The receiver statements of prometheus/compliance against sluice, by hand: https://github.com/prometheus/compliance/tree/main/remotewrite
#
# The suite comes from the Go module proxy. Its tests say which statement is a MUST and which a SHOULD; what failed is listed with it.
#
# Usage: deploy/compare/compliance.sh
# Environment: SLUICE [target/release/sluice], OUT [target/compliance], SUITE: a directory that holds a copy of the suite's receiver tests
set -euo pipefail

module=github.com/prometheus/compliance/remotewrite/receiver
version=v0.0.0-20260806071727-67b8327a2e93

sluice=${SLUICE:-target/release/sluice}
out=${OUT:-target/compliance}
rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)
if [ -z "${SUITE:-}" ]; then
    # Not from the module cache itself, where the compiler may not write.
    SUITE=$(go mod download -json "$module@$version" | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p')
    cp -r "$SUITE" "$out/suite"
    chmod -R u+w "$out/suite"
    SUITE=$out/suite
fi

cat >"$out/sluice.yaml" <<YAML
receivers:
  prometheusremotewrite: {endpoint: "127.0.0.1:35090"}
exporters:
  file: {path: $out/taken.json}
service:
  telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: 35888}}}}]}}
  pipelines:
    metrics: {receivers: [prometheusremotewrite], exporters: [file]}
YAML
cat >"$out/config.yml" <<'YAML'
remote_write:
  - name: sluice
    url: http://127.0.0.1:35090/api/v1/write
YAML

"$sluice" --config "$out/sluice.yaml" >"$out/sluice.log" 2>&1 &
child=$!
trap 'kill "$child" 2>/dev/null; wait "$child" 2>/dev/null || true' EXIT
for _ in $(seq 100); do
    if curl --silent --fail --output /dev/null http://127.0.0.1:35888/metrics; then break; fi
    sleep 0.1
done

status=0
PROMETHEUS_RW2_COMPLIANCE_CONFIG_FILE="$out/config.yml" go test -C "$SUITE" -count=1 -json . >"$out/results.json" || status=$?
python3 - "$out/results.json" <<'PY'
import json
import sys

level, result, said = {}, {}, {}
for line in open(sys.argv[1]):
    event = json.loads(line)
    test = event.get("Test")
    if event["Action"] == "attr" and event.get("Key") == "rfcLevel":
        level[test] = event["Value"]
    elif event["Action"] in ("pass", "fail", "skip") and test:
        result[test] = event["Action"]
    elif event["Action"] == "output" and test:
        said.setdefault(test, []).append(event["Output"])
count = {}
for test, of in level.items():
    count[of, result.get(test)] = count.get((of, result.get(test)), 0) + 1
for (of, came), tests in sorted(count.items()):
    print(f"{of} {came}: {tests}")
for test, came in sorted(result.items()):
    if came != "pass" and not any(other.startswith(test + "/") for other in result):
        print(f"{came} {level.get(test, '?')} {test}\n{''.join(said.get(test, [])[:30])}")
PY
exit "$status"
