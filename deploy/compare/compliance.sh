#!/bin/bash
# The receiver statements of prometheus/compliance against sluice, by hand: https://github.com/prometheus/compliance/tree/main/remotewrite
#
# Twice: to a pipeline that makes OTLP of what comes, and straight through to an exporter of remote write, whose destination is a receiver
# that takes all.
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
  prometheusremotewrite/otlp: {endpoint: "127.0.0.1:27090"}
  prometheusremotewrite/straight: {endpoint: "127.0.0.1:27091"}
  prometheusremotewrite/sink: {endpoint: "127.0.0.1:27092"}
exporters:
  file: {path: $out/taken.json}
  prometheusremotewrite: {endpoint: "http://127.0.0.1:27092/api/v1/write"}
  nop:
service:
  telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: 27888}}}}]}}
  pipelines:
    metrics/otlp: {receivers: [prometheusremotewrite/otlp], exporters: [file]}
    metrics/straight: {receivers: [prometheusremotewrite/straight], exporters: [prometheusremotewrite]}
    metrics/sink: {receivers: [prometheusremotewrite/sink], exporters: [nop]}
YAML

"$sluice" --config "$out/sluice.yaml" >"$out/sluice.log" 2>&1 &
child=$!
trap 'kill "$child" 2>/dev/null; wait "$child" 2>/dev/null || true' EXIT
for _ in $(seq 100); do
    if curl --silent --fail --output /dev/null http://127.0.0.1:27888/metrics; then break; fi
    sleep 0.1
done

run() { # NAME PORT
    cat >"$out/$1.yml" <<YAML
remote_write:
  - name: sluice
    url: http://127.0.0.1:$2/api/v1/write
YAML
    PROMETHEUS_RW2_COMPLIANCE_CONFIG_FILE="$out/$1.yml" go test -C "$SUITE" -count=1 -json . >"$out/$1.json" || status=$?
    echo "== $1"
    table "$out/$1.json"
}

table() { # RESULTS
    python3 - "$1" <<'PY'
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
}

status=0
run otlp 27090
run straight 27091
exit "$status"
