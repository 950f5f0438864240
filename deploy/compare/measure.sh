#!/bin/bash
# Measures gateways at equal work, one after the other, and prints one table.
#
#   fixed      a fixed rate on two cores: CPU seconds per million items, peak RSS, every item accounted for
#   saturated  the gateway alone on core 0, generator and sink on core 1: items per second, refusals
#
# Usage: deploy/compare/measure.sh [GATEWAY ...]
#   A gateway is WHO-PROTOCOL-COMPRESSION: who is collector, floor, nginx or sluice; the protocol (http or grpc)
#   is used in and out; compression (none or zstd) is that of the output. floor speaks http only, and nginx
#   is a reverse proxy without batching (nginx-http-none).
#   Default: collector-http-none collector-http-zstd floor-http-none floor-http-zstd, and sluice if it is built.
# Environment:
#   PEERS      directory of otelcol [target/peers], see build-peers.sh
#   SLUICE     the sluice binary [target/release/sluice];  SLUICE_ARGS  more arguments for it
#   EXAMPLES   directory of load, sink and floor [target/release/examples]
#   MODES      [fixed saturated]       SIGNAL  metrics, logs or traces [metrics]
#   ENCODING   of the requests: identity, gzip or zstd [identity]
#   RATE       items/s at the fixed rate [100000 for metrics, 50000 otherwise]
#   DURATION   seconds of each measurement [12]
#   OUT        directory for results.jsonl and the gateways' logs [target/compare]
#   GATEWAY_HTTP, GATEWAY_GRPC, SINK_HTTP, SINK_GRPC   ports [14318, 14317, 24318, 24317]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
peers=${PEERS:-target/peers}
sluice=${SLUICE:-target/release/sluice}
examples=${EXAMPLES:-target/release/examples}
signal=${SIGNAL:-metrics}
encoding=${ENCODING:-identity}
duration=${DURATION:-12}
out=${OUT:-target/compare}
if [ "$signal" = metrics ]; then rate=${RATE:-100000}; else rate=${RATE:-50000}; fi
export GATEWAY_HTTP=${GATEWAY_HTTP:-14318} GATEWAY_GRPC=${GATEWAY_GRPC:-14317}
export SINK_HTTP=${SINK_HTTP:-24318} SINK_GRPC=${SINK_GRPC:-24317}
ticks=$(getconf CLK_TCK)
mkdir -p "$out"
exec 9>"$out/lock"
flock --nonblock 9 || { echo "another measurement is running in $out" >&2; exit 1; }

if [ $# -gt 0 ]; then
    gateways=("$@")
else
    gateways=(collector-http-none collector-http-zstd floor-http-none floor-http-zstd)
    if [ -x "$sluice" ]; then gateways+=(sluice-http-none sluice-http-zstd); fi
fi

children=()
# Only what was started here is stopped, by its process id.
stop() {
    for child in "${children[@]}"; do
        kill "$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    done
    children=()
}
trap stop EXIT

# field NAME: the number of that name in the flat JSON on stdin, or 0.
field() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p" | grep . || echo 0; }

# cpu_ticks PID: user and system time of the process so far.
cpu_ticks() { sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 }'; }

# machine_ticks: busy time of the whole machine so far.
machine_ticks() { awk '/^cpu / { print $2 + $3 + $4 + $7 + $8 }' /proc/stat; }

stats() {
    exec 3<>"/dev/tcp/127.0.0.1/$SINK_HTTP"
    printf 'GET /stats HTTP/1.1\r\nConnection: close\r\n\r\n' >&3
    tail -n 1 <&3
    exec 3>&-
}

await_port() { # PORT PID
    for _ in $(seq 100); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return; fi
        kill -0 "$2" 2>/dev/null || break
        sleep 0.1
    done
    echo "nothing listens on port $1" >&2
    return 1
}

start_gateway() { # NAME CORES THREADS: sets $gateway
    local name=$1 cores=$2 threads=$3 log=$out/$1.log command
    case $name in
    floor-http-*)
        command=("$examples/floor" --listen "127.0.0.1:$GATEWAY_HTTP" --to "127.0.0.1:$SINK_HTTP"
            --compression "${name##*-}" --threads "$threads")
        ;;
    nginx-http-none)
        local dir
        dir=$(cd "$out" && pwd)
        sed "s|@OUT@|$dir|; s|@SINK@|$SINK_HTTP|; s|@GATEWAY@|$GATEWAY_HTTP|" "$here/$name.conf" >"$dir/nginx.conf"
        command=(nginx -c "$dir/nginx.conf")
        ;;
    collector-*) command=("$peers/otelcol" --config "$here/$name.yaml") ;;
    # shellcheck disable=SC2206 # several arguments in one variable
    sluice-*) command=("$sluice" --config "$here/$name.yaml" ${SLUICE_ARGS:-}) ;;
    *)
        echo "unknown gateway $name" >&2
        return 1
        ;;
    esac
    taskset -c "$cores" "${command[@]}" >"$log" 2>&1 &
    gateway=$!
    children+=("$gateway")
    await_port "$in_port" "$gateway" || { tail -n 5 "$log" >&2; return 1; }
}

measure() { # NAME MODE
    local name=$1 mode=$2 all_cores=0,1 load_cores=0,1 gateway_cores=0,1 threads=2
    local protocol=${name#*-}
    protocol=${protocol%%-*}
    local in_port=$GATEWAY_HTTP
    if [ "$protocol" = grpc ]; then in_port=$GATEWAY_GRPC; fi
    local load=("$examples/load" --target "127.0.0.1:$in_port" --protocol "$protocol" --signal "$signal"
        --encoding "$encoding")
    local sink=("$examples/sink" --http "127.0.0.1:$SINK_HTTP" --grpc "127.0.0.1:$SINK_GRPC")
    if [ "$mode" = fixed ]; then
        load+=(--rate "$rate" --unique)
        sink+=(--verify)
    else
        sink+=(--keep)
        gateway_cores=0 load_cores=1 threads=1
    fi

    local port
    for port in "$SINK_HTTP" "$in_port"; do
        if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "port $port is taken" >&2
            return
        fi
    done
    taskset -c "$load_cores" "${sink[@]}" >"$out/sink.json" 2>"$out/sink.log" &
    local sink_pid=$!
    children+=("$sink_pid")
    await_port "$SINK_HTTP" "$sink_pid"
    start_gateway "$name" "$gateway_cores" "$threads" || { stop; return; }

    # Warm-up: connections, code, allocator arenas.
    taskset -c "$load_cores" "${load[@]}" --rate "$rate" --seconds 2 --lane 500 >"$out/warm.json" 2>>"$out/load.log"
    sleep 1
    local stats_before stats_after
    stats_before=$(stats)
    local cpu_before machine_before sink_before cpu_after machine_after sink_after
    cpu_before=$(cpu_ticks "$gateway") machine_before=$(machine_ticks) sink_before=$(cpu_ticks "$sink_pid")
    local load_cpu result
    TIMEFORMAT='%U %S'
    load_cpu=$({ time taskset -c "$load_cores" "${load[@]}" --seconds "$duration" >"$out/load.json" 2>>"$out/load.log"; } 2>&1)
    result=$(cat "$out/load.json")
    local load_end
    load_end=$(stats | field now_millis)
    # Equal work includes the delivery of what is still queued: wait until nothing comes for a second.
    local waited last=0 now
    for waited in $(seq 240); do
        now=$(stats | field requests)
        if [ "$now" = "$last" ] && [ "$waited" -gt 4 ]; then break; fi
        last=$now
        sleep 1
    done
    stats_after=$(stats)
    # By how much a number of the sink has grown: growth NAME
    growth() { echo $(($(field "$1" <<<"$stats_after") - $(field "$1" <<<"$stats_before"))); }
    local accepted delivered duplicated=0 unmarked=0 drained
    accepted=$(field accepted_items <<<"$result")
    if [ "$mode" = fixed ]; then
        delivered=$(growth "${signal}_unique")
        duplicated=$(growth "${signal}_duplicated")
        unmarked=$(growth "${signal}_unmarked")
    elif [ "${name##*-}" = none ]; then
        # Uncompressed bodies are not looked at, but bodies laid end to end keep their size.
        delivered=$(awk -v got="$(growth plain_bytes)" -v bytes="$(field accepted_bytes <<<"$result")" \
            -v items="$accepted" 'BEGIN { if (bytes + 0 == 0) bytes = 1; printf "%.0f", got / bytes * items }')
    else
        delivered=$(growth kept_items)
    fi
    drained=$(($(field last_millis <<<"$stats_after") - load_end))
    if [ "$drained" -lt 0 ]; then drained=0; fi
    cpu_after=$(cpu_ticks "$gateway") machine_after=$(machine_ticks) sink_after=$(cpu_ticks "$sink_pid")
    local peak
    peak=$(awk '/^VmHWM/ { print $2 / 1024 }' "/proc/$gateway/status")
    stop

    awk -v name="$name" -v mode="$mode" -v signal="$signal" -v encoding="$encoding" \
        -v cpu="$((cpu_after - cpu_before))" -v sink="$((sink_after - sink_before))" \
        -v machine="$((machine_after - machine_before))" -v ticks="$ticks" -v load_cpu="$load_cpu" \
        -v accepted="$accepted" -v delivered="$delivered" -v duplicated="$duplicated" -v unmarked="$unmarked" \
        -v speed="$(field items_per_second <<<"$result")" -v refused="$(field refused_percent <<<"$result")" \
        -v seconds="$(field seconds <<<"$result")" -v drained="$drained" \
        -v p50="$(field p50_us <<<"$result")" -v p99="$(field p99_us <<<"$result")" -v peak="$peak" \
        -v json="$out/results.jsonl" '
    BEGIN {
        split(load_cpu, used, " ")
        others = (machine - cpu - sink) / ticks - used[1] - used[2]
        per_million = (delivered > 0) ? cpu / ticks / delivered * 1e6 : 0
        per_cpu = (per_million > 0) ? 1e6 / per_million : 0
        delivered_speed = delivered / (seconds + drained / 1000)
        arrived = (accepted > 0) ? sprintf("%.2f%%", 100 * delivered / accepted) : "nothing"
        if (mode == "fixed" && delivered == accepted && duplicated + unmarked == 0) arrived = "all, once"
        printf "| %-20s | %-9s | %7.3f | %9d | %9d | %11d | %8.2f | %9s | %8.1f | %6d | %6d | %6.1f |\n", name, mode,
            per_million, per_cpu, speed, delivered_speed, refused, arrived, peak, p50, p99, others
        printf "{\"gateway\":\"%s\",\"mode\":\"%s\",\"signal\":\"%s\",\"encoding\":\"%s\",\"cpu_s_per_million\":%.4f," \
            "\"accepted_per_second\":%d,\"delivered_per_second\":%d,\"refused_percent\":%.2f,\"peak_rss_mib\":%.1f," \
            "\"accepted\":%d,\"delivered\":%d,\"duplicated\":%d,\"unmarked\":%d,\"drain_ms\":%d,\"p50_us\":%d," \
            "\"p99_us\":%d,\"others_cpu_s\":%.2f}\n", name, mode, signal, encoding, per_million, speed, delivered_speed,
            refused, peak, accepted, delivered, duplicated, unmarked, drained, p50, p99, others >> json
    }'
}

echo "$signal, requests $encoding; $duration s each, fixed rate $rate items/s; machine load before: $(cut -d' ' -f1-3 /proc/loadavg)"
echo "| gateway              | mode      | CPU-s/M | per CPU-s | items/s   | delivered/s | refused% | delivered | peak MiB | p50 µs | p99 µs | others |"
echo "|----------------------|-----------|---------|-----------|-----------|-------------|----------|-----------|----------|--------|--------|--------|"
for mode in ${MODES:-fixed saturated}; do
    for name in "${gateways[@]}"; do measure "$name" "$mode"; done
done
cat <<'END'
CPU-s/M: the gateway's CPU seconds per million delivered items, drain included; per CPU-s: its inverse, which holds
when others disturb. items/s: accepted during the load; delivered/s: over load and drain. others: CPU seconds used
meanwhile by processes outside the measurement.
END
