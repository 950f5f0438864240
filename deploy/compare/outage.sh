#!/bin/bash
# Outages, with exporters as they are without any setting, on queues in memory and on disk:
#
#   dead    the destination resets every request for the whole time, then comes back
#   two     one of two destinations is not there for the whole time; the other one must not notice
#   denied  the destination answers 401 for a third of the time
#
# Six gateways run side by side. Every item is told apart by its id: none that was accepted may be lost, none may come
# twice, and the healthy destination must have 99% of what was accepted when the load ends. Only the absent one of two may lack
# something, where its queue in memory was full: exactly what the ledger says that it was cut loose from.
#
# Usage: deploy/compare/outage.sh [SECONDS] [POINTS_PER_SECOND]        [1800] [2000], of each gateway
# Environment: SLUICE [target/release/sluice], RIG [target/release/sluice-rig], OUT [target/outage], BASE_PORT [26000]
set -euo pipefail

seconds=${1:-1800}
rate=${2:-2000}
sluice=${SLUICE:-target/release/sluice}
rig=${RIG:-target/release/sluice-rig}
out=${OUT:-target/outage}
base=${BASE_PORT:-26000}

# After the load, a backlog may take this long: the longest pause between attempts, and as much again.
drain_seconds=120
# Items in a request: small ones, so that the rate is smooth.
points=200

rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)

configuration() { # QUEUE CASE PORT DIRECTORY
    local queue="" storage="" second="" exporters="otlp_http"
    if [ "$1" = disk ]; then
        queue="sending_queue: {storage: file_storage}"
        storage="file_storage: {directory: $4/spool}"
    fi
    if [ "$2" = two ]; then
        second="otlp_http/absent: {endpoint: 'http://127.0.0.1:$(($3 + 5))', $queue}"
        exporters="otlp_http, otlp_http/absent"
    fi
    cat <<YAML
receivers:
  otlp: {protocols: {http: {endpoint: 127.0.0.1:$3}}}
exporters:
  otlp_http: {endpoint: 'http://127.0.0.1:$(($3 + 2))', $queue}
  $second
extensions: {$storage}
service:
  extensions: [${storage%%:*}]
  telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: $(($3 + 1))}}}}]}}
  pipelines:
    metrics: {receivers: [otlp], exporters: [$exporters]}
YAML
}

await_port() { # PORT LOG
    for _ in $(seq 200); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return; fi
        sleep 0.1
    done
    echo "nothing listens on port $1" >&2
    tail -n 5 "$2" >&2
    return 1
}

sink() { # DIRECTORY NAME FIRST_PORT FAULTS
    "$rig" sink --http "127.0.0.1:$3" --grpc "127.0.0.1:$(($3 + 1))" --control "127.0.0.1:$(($3 + 2))" \
        --faults "$4" >"$1/$2.log" 2>&1 &
    children+=("$!")
    await_port "$(($3 + 2))" "$1/$2.log"
}

account() { curl -sS "http://127.0.0.1:$1/account" | jq .metrics; }

field() { jq "$2" <<<"$1"; }

# One gateway from start to end, in a shell of its own; its row goes to DIRECTORY/row.
run() { # QUEUE CASE PORT DIRECTORY
    local queue=$1 case=$2 port=$3 directory=$4 faults="" gateway load at_end accepted now waited=0 cut absent="" verdict=ok
    ledger() { curl -sS "http://127.0.0.1:$((port + 1))/ledger" | jq "[.exporters[].total$1] | add"; }
    children=()
    trap 'kill "${children[@]}" 2>/dev/null || true' EXIT
    mkdir -p "$directory"
    configuration "$queue" "$case" "$port" "$directory" >"$directory/config.yaml"
    case $case in
    dead) faults="until ${seconds}s: reset" ;;
    denied) faults="until $((seconds / 3))s: status 401" ;;
    esac
    sink "$directory" sink "$((port + 2))" "$faults"
    "$sluice" --config "$directory/config.yaml" >"$directory/gateway.log" 2>&1 &
    gateway=$!
    children+=("$gateway")
    await_port "$port" "$directory/gateway.log"
    "$rig" load --target "127.0.0.1:$port" --rate "$rate" --points "$points" --connections 4 --duration "${seconds}s" \
        --account "127.0.0.1:$((port + 4))" >"$directory/load.json" 2>"$directory/load.log"
    load=$(tail -n 1 "$directory/load.json")
    # What came last waits for its batch.
    sleep 1
    at_end=$(field "$(account $((port + 4)))" .delivered)
    if [ "$case" = two ]; then sink "$directory" absent "$((port + 5))" ""; fi
    accepted=$(field "$load" .accepted_items)
    while :; do
        now=$(account $((port + 4)))
        if [ "$(field "$now" .lost)" = 0 ] && [ "$(ledger .queued)" = 0 ]; then
            break
        fi
        if [ "$waited" -ge "$drain_seconds" ]; then break; fi
        sleep 1
        waited=$((waited + 1))
    done
    cut=$(ledger .dropped.queue_full)
    # The second sink was told nothing: to it, all that arrives is unknown.
    if [ "$case" = two ]; then absent=$(account $((port + 7))); fi
    if [ "$(field "$now" '.lost + .duplicated + .unknown + .unmarked')" != 0 ]; then verdict=WRONG; fi
    if [ "$(field "$load" .rejected_items)" != 0 ] || [ "$(field "$load" .unanswered_items)" != 0 ]; then verdict=WRONG; fi
    if [ "$(field "$load" '(.requests - .hinted_requests) * '"$points"' == .accepted_items')" != true ]; then verdict=WRONG; fi
    if [ "$case" = two ]; then
        if [ "$((at_end * 100))" -lt "$((accepted * 99))" ]; then verdict=WRONG; fi
        if [ "$(field "$absent" .duplicated)" != 0 ] || [ "$(field "$absent" .unknown)" != $((accepted - cut)) ]; then verdict=WRONG; fi
    fi
    if [ "$cut" != 0 ] && [ "$case-$queue" != two-memory ]; then verdict=WRONG; fi
    printf '| %s, %s | %s | %s | %s | %s | %s | %s | %s | %s |\n' "$case" "$queue" "$accepted" "$(field "$load" .refused_items)" \
        "$at_end" "$(field "$now" .lost)" "$(field "$now" .duplicated)" \
        "$(if [ -n "$absent" ]; then field "$absent" '"\(.unknown), \(.duplicated) twice"' | tr -d '"\n'; echo ", $cut cut loose"; else echo -; fi)" \
        "$(awk '/VmHWM/ {printf "%d MiB", $2 / 1024}' "/proc/$gateway/status")" "$waited s, $verdict" >"$directory/row"
}

shells=()
port=$base
for queue in memory disk; do
    for case in dead two denied; do
        (run "$queue" "$case" "$port" "$out/$case-$queue") &
        shells+=("$!")
        port=$((port + 10))
    done
done
failed=0
for shell in "${shells[@]}"; do
    wait "$shell" || failed=1
done
{
    echo "$seconds s, $rate points/s to each gateway"
    echo
    echo '| outage | accepted | refused, all with a hint | delivered a second after the load | lost | twice | the absent one, once back | peak RSS | drained after |'
    echo '|---|---|---|---|---|---|---|---|---|'
    cat "$out"/*/row
} | tee "$out/report.md"
if grep -q WRONG "$out/report.md"; then failed=1; fi
exit "$failed"
