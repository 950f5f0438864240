#!/bin/bash
# Log records at a fixed rate into files: sluice into Parquet tables, and the Collector into lines of OTLP JSON, the nearest thing
# that it has. Each gateway in turn, alone on one core, as often as is said.
#
# CPU is what the gateway's process used from its start to its end, which comes when all records are in files, per million of them.
# Records are counted in what was written: sluice's by its own metric, the Collector's in its lines.
#
# Usage: deploy/compare/files.sh [SECONDS] [RECORDS_PER_SECOND] [REPEATS]        [10] [50000] [3]
# Environment: SLUICE [target/release/sluice], RIG [target/release/sluice-rig], COLLECTOR [target/peers/otelcol],
# OUT [target/files], BASE_PORT [26700], CORE [0]
set -euo pipefail

seconds=${1:-10}
rate=${2:-50000}
repeats=${3:-3}
sluice=${SLUICE:-target/release/sluice}
rig=${RIG:-target/release/sluice-rig}
collector=${COLLECTOR:-target/peers/otelcol}
out=${OUT:-target/files}
base=${BASE_PORT:-26700}
core=${CORE:-0}

rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)
cat >"$out/sluice.yaml" <<YAML
receivers:
  otlp: {protocols: {http: {endpoint: 127.0.0.1:$base}}}
exporters:
  parquet: {path: $out/tables, max_age: 5s}
service:
  telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: $((base + 1))}}}}]}, logs: {level: warn}}
  pipelines:
    logs: {receivers: [otlp], exporters: [parquet]}
YAML
cat >"$out/collector.yaml" <<YAML
receivers:
  otlp: {protocols: {http: {endpoint: 127.0.0.1:$base}}}
processors:
  batch: {timeout: 200ms, send_batch_size: 1024}
exporters:
  file: {path: $out/lines.json}
service:
  telemetry: {metrics: {level: none}, logs: {level: warn}}
  pipelines:
    logs: {receivers: [otlp], processors: [batch], exporters: [file]}
YAML

children=()
trap 'kill "${children[@]}" 2>/dev/null || true' EXIT

in_files() {
    case $1 in
    sluice) curl -sS "http://127.0.0.1:$((base + 1))/metrics" | awk '/^sluice_parquet_rows_total/ {print $NF}' ;;
    collector) grep -o '"timeUnixNano"' "$out/lines.json" | wc -l ;;
    esac
}

# The seconds of a process and those it waited for, user and system.
cpu() {
    awk '{sub(/.*\) /, ""); print ($12 + $13) / ticks}' ticks="$(getconf CLK_TCK)" "/proc/$1/stat"
}

measure() {
    local name=$1 gateway accepted written used size waited=0
    shift
    rm -rf "$out/tables" "$out/lines.json"
    taskset -c "$core" "$@" >>"$out/$name.log" 2>&1 &
    gateway=$!
    children+=("$gateway")
    until curl -sS -o "$out/answer" "http://127.0.0.1:$base/" 2>"$out/curl.log"; do sleep 0.1; done
    "$rig" load --target "127.0.0.1:$base" --signal logs --rate "$rate" --duration "${seconds}s" >"$out/load.json" 2>>"$out/load.log"
    accepted=$(tail -n 1 "$out/load.json" | jq .accepted_items)
    # Five seconds until the last file is old enough, and then some.
    while written=$(in_files "$name") && [ "${written:-0}" -lt "$accepted" ] && [ "$waited" -lt 60 ]; do
        sleep 1
        waited=$((waited + 1))
    done
    used=$(cpu "$gateway")
    case $name in
    sluice) size=$(du -sb "$out/tables/logs" | cut -f 1) ;;
    collector) size=$(du -sb "$out/lines.json" | cut -f 1) ;;
    esac
    kill "$gateway"
    wait "$gateway" || true
    awk -v name="$name" -v accepted="$accepted" -v written="$written" -v used="$used" -v size="$size" 'BEGIN {
        printf "| %s | %d | %d | %.2f | %.1f |\n", name, accepted, written, used / accepted * 1e6, size / accepted
    }' | tee -a "$out/report.md"
    [ "$written" = "$accepted" ]
}

echo '| gateway | records accepted | in files | CPU-s per million | bytes a record |' | tee "$out/report.md"
echo '|---|---|---|---|---|' | tee -a "$out/report.md"
for _ in $(seq "$repeats"); do
    measure sluice "$sluice" --config "$out/sluice.yaml"
    measure collector "$collector" --config "$out/collector.yaml"
done
