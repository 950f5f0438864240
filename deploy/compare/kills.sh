#!/bin/bash
# SIGKILL after SIGKILL while a load goes on: the gateway acknowledges when data is in a queue on disk, and each time is killed
# at a random moment soon after its start, while it recovers and sends what it recovered.
#
# Every item is told apart by its id: none that was acknowledged may be lost, and no more may come twice than was under way at the
# kills: what the exporter is allowed to have under way, once a kill, and no more than what the destination took in the last moments of each process.
# Fewer kills than KILLS fail the run: it says too little.
#
# Usage: deploy/compare/kills.sh [SECONDS] [MOST_MILLISECONDS] [POINTS_PER_SECOND]        [60] [150] [50000]
# Environment: KILLS [500], SLUICE [target/release/sluice], RIG [target/release/sluice-rig], OUT [target/kills], BASE_PORT [26600]
set -euo pipefail

seconds=${1:-60}
most=${2:-150}
rate=${3:-50000}
least=${KILLS:-500}
sluice=${SLUICE:-target/release/sluice}
rig=${RIG:-target/release/sluice-rig}
out=${OUT:-target/kills}
base=${BASE_PORT:-26600}

# How long before a kill the destination may have had what the queue does not know of yet: a position is written 10 ms after a request is
# answered at the latest, behind a sync that has begun by then.
tail_millis=50

# Items that the exporter may have under way.
consumers=4
batch=2000

rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)
cat >"$out/config.yaml" <<YAML
receivers:
  otlp: {protocols: {http: {endpoint: 127.0.0.1:$base}}}
exporters:
  otlp_http:
    endpoint: http://127.0.0.1:$((base + 1))
    # The sink counts what is not compressed as it comes.
    compression: none
    sending_queue:
      storage: file_storage
      num_consumers: $consumers
      batch: {flush_timeout: 50ms, min_size: $batch, max_size: $batch}
extensions:
  file_storage: {directory: $out/spool}
service:
  extensions: [file_storage]
  telemetry: {metrics: {level: none}, logs: {level: warn}}
  pipelines:
    metrics: {receivers: [otlp], exporters: [otlp_http]}
YAML

children=()
trap 'kill "${children[@]}" 2>/dev/null || true' EXIT
taken() { curl -sS "http://127.0.0.1:$((base + 3))/stats" | jq .items; }
millis() { sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"; }
account() { curl -sS "http://127.0.0.1:$((base + 3))/account" | jq .metrics; }

"$rig" sink --http "127.0.0.1:$((base + 1))" --grpc "127.0.0.1:$((base + 2))" --control "127.0.0.1:$((base + 3))" \
    >"$out/sink.log" 2>&1 &
children+=("$!")
until curl -sS "http://127.0.0.1:$((base + 3))/stats" >"$out/stats.json" 2>&1; do sleep 0.1; done
"$rig" load --target "127.0.0.1:$base" --rate "$rate" --duration "${seconds}s" --account "127.0.0.1:$((base + 3))" \
    >"$out/load.json" 2>"$out/load.log" &
load=$!
children+=("$load")
kills=0
ends=0
under_way=0
while kill -0 "$load" 2>/dev/null; do
    "$sluice" --config "$out/config.yaml" >>"$out/gateway.log" 2>&1 &
    gateway=$!
    lives=$((RANDOM % most))
    if [ "$lives" -gt "$tail_millis" ]; then
        millis $((lives - tail_millis))
        lives=$tail_millis
    fi
    before=$(taken)
    millis "$lives"
    kill -9 "$gateway" 2>/dev/null || true
    # 137: by SIGKILL. One that has ended by itself can be sent a signal all the same, as long as it was not waited for.
    status=0
    wait "$gateway" 2>/dev/null || status=$?
    kills=$((kills + 1))
    ends=$((ends + (status != 137)))
    # What is in the sink's sockets is taken too.
    millis 20
    under_way=$((under_way + $(taken) - before))
done
wait "$load"
"$sluice" --config "$out/config.yaml" >>"$out/gateway.log" 2>&1 &
children+=("$!")
for _ in $(seq 120); do
    now=$(account)
    if [ "$(jq .lost <<<"$now")" = 0 ]; then break; fi
    sleep 1
done
# What comes twice may come last.
sleep 2
now=$(account)
allowed=$((kills * consumers * batch))
jq -r --arg kills "$kills" --arg allowed "$allowed" --arg bound "$under_way" '"\($kills) kills: \(.sent) points acknowledged, \(.lost) lost, " +
    "\(.duplicated) delivered twice (at most \($allowed), and of the \($bound) that arrived around the kills), \(.unsure_delivered) delivered and not acknowledged, \(.unknown) unknown"' \
    <<<"$now" | tee "$out/report.md"
if [ "$ends" != 0 ]; then
    echo "$ends times the gateway had ended by itself: see gateway.log" | tee -a "$out/report.md"
    exit 1
fi
if [ "$kills" -lt "$least" ]; then
    echo "$kills kills are fewer than $least: give it more SECONDS" | tee -a "$out/report.md"
    exit 1
fi
jq -e --argjson allowed "$allowed" --argjson bound "$under_way" '.lost == 0 and .unknown == 0 and .unmarked == 0 and .sent > 0 and
    .duplicated <= $allowed and .duplicated <= $bound' <<<"$now" >/dev/null || {
    echo "this does not hold: see $out/report.md" >&2
    exit 1
}
