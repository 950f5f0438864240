#!/bin/bash
# A backlog of gigabytes: the destination is not there until the queue on disk has the size asked for; then SIGKILL, the files are dropped
# from the page cache, a new start, and the destination comes back.
#
# It prints what memory the backlog took, how long the start took, and how fast the backlog went out, beside what the disk reads
# and what the destination takes when it is sent to directly, and fails where memory grew by 50 MiB, the start took a second, the drain had less
# than 80% of the slower of the two, or anything is missing. The rig's sink counts bytes and is never the slower one; the Collector reads what it
# gets, as destinations do.
#
# Usage: deploy/compare/backlog.sh [GIGABYTES] [frames]        [8]; frames: stored frames go out as they are
# Environment: SLUICE [target/release/sluice], RIG [target/release/sluice-rig], COLLECTOR (to drain into instead of the rig's sink),
# OUT [target/backlog], BASE_PORT [26800]
set -euo pipefail

gigabytes=${1:-8}
passthrough=never
if [ "${2:-}" = frames ]; then passthrough=always; fi
sluice=${SLUICE:-target/release/sluice}
rig=${RIG:-target/release/sluice-rig}
out=${OUT:-target/backlog}
base=${BASE_PORT:-26800}
collector=${COLLECTOR:-}

rm -rf "$out"
mkdir -p "$out/spool"
out=$(cd "$out" && pwd)
cat >"$out/config.yaml" <<YAML
receivers:
  otlp: {protocols: {http: {endpoint: 127.0.0.1:$base}}}
exporters:
  otlp_http:
    endpoint: http://127.0.0.1:$((base + 1))
    compression: zstd
    passthrough: $passthrough
    retry_on_failure: {max_interval: 1s}
    sending_queue: {storage: file_storage}
extensions:
  file_storage: {directory: $out/spool}
service:
  extensions: [file_storage]
  telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: $((base + 4))}}}}]}}
  pipelines:
    traces: {receivers: [otlp], exporters: [otlp_http]}
YAML

cat >"$out/collector.yaml" <<YAML
receivers:
  otlp: {protocols: {http: {endpoint: 127.0.0.1:$((base + 1))}}}
exporters:
  debug: {sampling_initial: 1, sampling_thereafter: 1000000}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    traces: {receivers: [otlp], exporters: [debug]}
YAML

children=()
trap 'kill "${children[@]}" 2>/dev/null || true; rm -rf "$out/spool"' EXIT
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
now_ms() { date +%s%3N; }
start() {
    "$sluice" --config "$out/config.yaml" >>"$out/gateway.log" 2>&1 &
    gateway=$!
    children+=("$gateway")
    until listens "$base"; do
        kill -0 "$gateway" || exit 1
        sleep 0.01
    done
}
destination=
destination_comes() {
    if [ -n "$collector" ]; then
        "$collector" --config "$out/collector.yaml" >>"$out/sink.log" 2>&1 &
    else
        "$rig" sink --http "127.0.0.1:$((base + 1))" --grpc "127.0.0.1:$((base + 2))" --control "127.0.0.1:$((base + 3))" --check bytes \
            >>"$out/sink.log" 2>&1 &
    fi
    destination=$!
    children+=("$destination")
    until listens $((base + 1)); do
        kill -0 "$destination" || exit 1
        sleep 0.1
    done
}
destination_goes() {
    kill "$destination"
    wait "$destination" 2>/dev/null || true
}
memory() { awk -v name="$1:" '$1 == name {print int($2 / 1024)}' "/proc/$gateway/status"; }
stored() { du -sm "$out/spool" | cut -f1; }
total() { curl -sS "http://127.0.0.1:$((base + 4))/ledger" | jq "[.exporters[].total$1] | add"; }

"$rig" disk --directory "$out" --duration 1s >"$out/disk.json"
destination_comes
"$rig" load --target "127.0.0.1:$((base + 1))" --signal traces --encoding zstd --points 8192 --repeat 4 --duration 4s \
    >"$out/direct.json"
destination_goes
start
"$rig" load --target "127.0.0.1:$base" --signal traces --duration 2s >"$out/load.json"
before=$(memory VmHWM)
lane=100
while [ "$(stored)" -lt $((gigabytes * 1000)) ]; do
    "$rig" load --target "127.0.0.1:$base" --signal traces --duration 5s --lane "$lane" >>"$out/load.json"
    lane=$((lane + 100))
done
after=$(memory VmHWM)
accepted=$(total .accepted)
queued=$(total .queued)
kill -9 "$gateway"
wait "$gateway" 2>/dev/null || true
mib=$(stored)
sync
for file in "$out"/spool/*/*; do dd if="$file" iflag=nocache count=0 status=none; done
began=$(now_ms)
start
ready=$(($(now_ms) - began))
restarted=$(memory VmRSS)
recovered=$(total .recovered)
destination_comes
began=$(now_ms)
while [ "$(total .queued)" -gt 0 ]; do sleep 0.2; done
took=$(($(now_ms) - began))
echo "backlog: $mib MiB on disk, $queued spans of $accepted accepted, $(jq -s 'map(.refused_items) | add' "$out/load.json") refused"
peak=$(memory VmHWM)
echo "peak RSS: $before MiB after 2 s of load, $after MiB with the backlog, $restarted MiB after the start, $peak MiB after the drain"
echo "start: $ready ms until it listens, $recovered spans recovered"
echo "drain: $((mib * 1000 / took)) MiB/s as stored, $((recovered / took)) thousand spans/s, $((took / 1000)) s; delivered $(total .delivered), dropped $(total '.dropped | add')"
delivered=$(total .delivered)
disk=$(jq '.read_mib_per_second | floor' "$out/disk.json")
direct=$(jq '.accepted_items / .seconds / 1000 | floor' "$out/direct.json")
echo "the disk reads $disk MiB/s; the destination takes" \
    "$(jq '.body_bytes / .seconds / 1048576 | floor' "$out/direct.json") MiB/s, $direct thousand spans/s when it is sent to directly"
failed=0
holds() { # WHAT CONDITION
    if (($2)); then echo "$1: holds"; else echo "$1: does not hold" && failed=1; fi
}
holds "memory grows by less than 50 MiB" "after - before < 50 && peak - before < 50"
holds "ready within a second" "ready < 1000"
holds "drains at 80% of what the disk reads, or the destination takes" \
    "mib * 1000 / took * 10 >= disk * 8 || recovered / took * 10 >= direct * 8"
# What was delivered before is in the account of the process that was killed.
holds "all arrived" "recovered >= queued && delivered == recovered"
exit "$failed"
