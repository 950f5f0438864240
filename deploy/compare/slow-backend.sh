#!/bin/bash
# A hundred clients, a slow destination that takes one request at a time, a queue on disk: sluice and the Collector with the same
# file (slow-backend.yaml), each in a control group of 1000 MiB where one can be made.
#
#   H        3.6 MB and 467 spans a request, a pause of 1.7 s between two; the destination reads 20 MB/s and thinks for 100 ms
#   H-gzip, H-json, H-json-gzip      the same, sent otherwise
#   H-quick, H-quick-percent         a destination that keeps up; the memory limit as 80% in the place of 1000 MiB
#   H-quick-memory, H-quick-memory-percent      the same two with the queue in memory, as the published configuration has it in its first tests
#   H-3s, H-stall, H-503             a destination that takes 3 s; that stalls for half of the time; that answers 503 for a third
#   L        8 KB and 7 spans a request, a pause of 110 ms; the destination takes 9 ms for each; L-unbatched: one by one
#   L-1s, L-2000         the same in batches of 5000 or a second, and of 2000 or 100 ms, each with room for 1000 in the queue
#   K        H, with SIGKILL at half-time and a new start
#   D        H, on a volume of 100 MB
#
# After the load the destination is quick, and every span is looked for by its id.
#
# The last column says what of these a gateway missed: all at the first attempt, none lost, none twice, 50 requests/s of 3.6 MB and p95 within
# 1 s, 794 of 8 KB and 169 ms, 200 MiB. Of K: none lost. Of D: none lost, and each refusal with a hint. Fails where the one that is called sluice missed
# something.
#
# Usage: deploy/compare/slow-backend.sh [SECONDS] [CASE ...]        [60] [all]
# Environment: GATEWAYS [sluice=target/release/sluice collector=target/peers/otelcol], RIG, OUT [target/slow-backend],
# BASE_PORT [26700], DRAIN_SECONDS [240]. D needs root, to mount the volume.
set -euo pipefail

seconds=${1:-60}
shift || true
cases=("$@")
if [ ${#cases[@]} -eq 0 ]; then
    cases=(H H-gzip H-json H-json-gzip H-quick H-quick-percent H-quick-memory H-quick-memory-percent H-3s H-stall H-503 L L-unbatched L-1s L-2000 K D)
fi
read -ra gateways <<<"${GATEWAYS:-sluice=target/release/sluice collector=target/peers/otelcol}"
rig=${RIG:-target/release/sluice-rig}
out=${OUT:-target/slow-backend}
base=${BASE_PORT:-26700}
here=$(cd "$(dirname "$0")" && pwd)

memory_mib=1000
volume_mib=100
failed=0
drain_seconds=${DRAIN_SECONDS:-240}

mkdir -p "$out"
out=$(cd "$out" && pwd)
export GATEWAY_HTTP=$base SINK_HTTP=$((base + 1))
control=127.0.0.1:$((base + 3))

# Kept small by the kernel: version 2, or 1. Empty: none can be made.
group=""
for root in /sys/fs/cgroup /sys/fs/cgroup/memory; do
    if [ -e "$root/cgroup.procs" ] && mkdir -p "$root/sluice-slow-backend" 2>/dev/null; then
        for limit in memory.max memory.limit_in_bytes; do
            if echo $((memory_mib << 20)) 2>/dev/null >"$root/sluice-slow-backend/$limit"; then group=$root/sluice-slow-backend; fi
        done
        if [ -n "$group" ]; then break; fi
        rmdir "$root/sluice-slow-backend" 2>/dev/null || true
    fi
done

children=() volume=""
clean() {
    kill -9 "${children[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    children=()
    if [ -n "$volume" ]; then umount --lazy "$volume" || true; fi
    volume=""
}
trap 'clean; if [ -n "$group" ]; then sleep 0.2; rmdir "$group" 2>/dev/null || true; fi' EXIT

start() { # EXECUTABLE
    # The shell moves itself, and becomes the gateway.
    # shellcheck disable=SC2016
    sh -c 'if [ -n "$0" ]; then echo 0 >"$0/cgroup.procs"; fi; exec "$@"' "$group" "$1" --config "$config" \
        >>"$directory/gateway.log" 2>&1 &
    gateway=$!
    children+=("$gateway")
    for _ in $(seq 300); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$base") 2>/dev/null; then return; fi
        sleep 0.1
    done
    echo "it does not listen: $(tail -n 2 "$directory/gateway.log")" >&2
    return 1
}

peak() { awk '/VmHWM/ {print int($2 / 1024)}' "/proc/$gateway/status" 2>/dev/null || echo 0; }

run() { # NAME EXECUTABLE CASE
    local load now rss=0 waited=0 faults="delay 100ms; bandwidth 20MB/s" points=467 attributes=229 think=1700ms sender=() config=$here/slow-backend.yaml
    directory=$out/$3-$1
    rm -rf "$directory"
    mkdir -p "$directory/spool"
    export SPOOL=$directory/spool BATCH_TIMEOUT=1s BATCH_SIZE=5000 QUEUE_SIZE=5000 LIMIT_MIB=1000 LIMIT_PERCENTAGE=0
    case $3 in
    *-gzip) sender+=(--encoding gzip) ;;&
    *-memory*)
        config=$directory/gateway.yaml
        sed '/^ *storage: file_storage$/d' "$here/slow-backend.yaml" >"$config"
        ;;&
    # JSON is twice as long.
    *-json*) attributes=119 sender+=(--protocol json) ;;
    H-quick | H-quick-memory) faults="" ;;
    H-quick-percent | H-quick-memory-percent) faults="" LIMIT_MIB=0 LIMIT_PERCENTAGE=80 ;;
    H-3s) faults="delay 3s" ;;
    H-stall) faults="$faults; after $((seconds / 4))s, until $((seconds * 3 / 4))s: stall 30s" ;;
    H-503) faults="$faults; after $((seconds / 4))s, until $((seconds * 7 / 12))s: status 503, retry-after 2s" ;;
    L*)
        faults="delay 9ms"
        points=7 attributes=30 think=110ms
        BATCH_TIMEOUT=100ms
        case $3 in
        L-unbatched) BATCH_TIMEOUT=0s ;;
        L-1s) BATCH_TIMEOUT=1s QUEUE_SIZE=1000 ;;
        L-2000) BATCH_SIZE=2000 QUEUE_SIZE=1000 ;;
        esac
        ;;
    D)
        volume=$directory/spool
        mount -t tmpfs -o "size=${volume_mib}m" slow-backend "$volume" || { volume=""; return 0; }
        faults="stall 30s"
        ;;
    esac
    "$rig" sink --http "127.0.0.1:$SINK_HTTP" --grpc "127.0.0.1:$((base + 2))" --control "$control" --faults "$faults" \
        >"$directory/sink.log" 2>&1 &
    children+=("$!")
    start "$2"
    "$rig" load --target "127.0.0.1:$base" --signal traces --vus 100 --connections 100 --duration "${seconds}s" --account "$control" \
        --points "$points" --attributes "$attributes" --think "$think" "${sender[@]}" >"$directory/load.json" 2>"$directory/load.log" &
    local loading=$!
    children+=("$loading")
    # The load prepares its bodies first: faults and the kill count from when they come.
    until [ "$(curl -sS "http://$control/stats" | jq .requests)" -gt 0 ] || ! kill -0 "$loading" 2>/dev/null; do sleep 0.1; done
    curl -sS -X PUT --data "$faults" "http://$control/faults" >/dev/null
    if [ "$3" = K ]; then
        sleep $((seconds / 2))
        rss=$(peak)
        kill -9 "$gateway"
        wait "$gateway" 2>/dev/null || true
        start "$2"
    fi
    wait "$loading" || true
    curl -sS -X PUT --data '' "http://$control/faults" >/dev/null
    while :; do
        now=$(curl -sS "http://$control/account" | jq .traces)
        if [ "$(jq .lost <<<"$now")" = 0 ] || [ "$waited" -ge "$drain_seconds" ]; then break; fi
        sleep 1
        waited=$((waited + 1))
    done
    if ! kill -0 "$gateway" 2>/dev/null; then echo "$1 is gone: $(tail -n 1 "$directory/gateway.log")" >&2; fi
    rss=$(($(peak) > rss ? $(peak) : rss))
    load=$(tail -n 1 "$directory/load.json")
    missed=$(jq -r --arg case "$3" --argjson rss "$rss" --argjson now "$now" '
        (.statuses["200"] // 0) as $ok | ($case | startswith("L")) as $small
        | (if $now.lost > 0 then ["lost"] else [] end)
        + (if $case == "K" then []
           elif $case == "D" then (if .requests - $ok > .hinted_requests then ["hints"] else [] end)
           else (if $ok < .requests then ["first attempt"] else [] end)
              + (if $now.duplicated > 0 then ["twice"] else [] end)
              + (if $ok / .seconds < (if $small then 794 else 50 end) then ["rate"] else [] end)
              + (if .latency_us.p95 > (if $small then 169000 else 1000000 end) then ["p95"] else [] end)
              + (if $rss > 200 then ["RSS"] else [] end) end)
        | if . == [] then "nothing" else join(", ") end' <<<"$load")
    if [ "$1" = sluice ] && [ "$missed" != nothing ]; then failed=1; fi
    jq -r --arg missed "$missed" --arg case "$3" --arg name "$1" --arg rss "$rss" --arg waited "$waited" --argjson now "$now" \
        '(.statuses["200"] // 0) as $ok | "| \($case) | \($name) | \($ok * 10000 / .requests | floor / 100)% | \($ok / .seconds * 10 | floor / 10) | " +
        "\(.latency_us.mean / 1000 | floor) / \(.latency_us.p95 / 1000 | floor) / \((.latency_us.p99) / 1000 | floor) / \(.latency_us.max / 1000 | floor) | " +
        "\($rss) | \($now.lost) | \($now.duplicated) | \($waited) | \(.statuses | tojson), \(.hinted_requests) with a hint, \(.unanswered_items) spans unanswered | \($missed) |"' \
        <<<"$load" | tee -a "$out/report.md"
    clean
    rm -rf "$directory/spool"
}

{
    echo "$seconds s, 100 clients; the control group: ${group:-none}"
    echo
    echo '| case | gateway | accepted at the first attempt | requests/s | latency mean / p95 / p99 / max, ms | peak RSS, MiB | lost | twice | drained after, s | answers | missed |'
    echo '|---|---|---|---|---|---|---|---|---|---|---|'
} | tee "$out/report.md"
for case in "${cases[@]}"; do
    for one in "${gateways[@]}"; do
        run "${one%%=*}" "${one#*=}" "$case" || { clean; if [ "${one%%=*}" = sluice ]; then failed=1; fi; }
    done
done
exit "$failed"
