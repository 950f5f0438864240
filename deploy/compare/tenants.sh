#!/bin/bash
# Ten shares of a destination that takes so many points a second: nine tenants that send what is theirs, first among themselves and then beside
# a tenth that sends ten times its share. What do the nine see of it? Phases in turn, with the flood and without.
#
# The gateway and the nine are on the machine's last core, the flood's generator and the sink on its first: what the nine see is the gateway, and
# not the flood's generator before them on a core.
#
# Usage: deploy/compare/tenants.sh [SECONDS of a phase] [REPEATS]        [20] [3]
# Environment: SLUICE [target/release/sluice], RIG [target/release/sluice-rig], OUT [target/tenants], BASE_PORT [26900].
set -euo pipefail

seconds=${1:-20}
repeats=${2:-3}
sluice=${SLUICE:-target/release/sluice}
rig=${RIG:-target/release/sluice-rig}
out=${OUT:-target/tenants}
base=${BASE_PORT:-26900}
here=$(cd "$(dirname "$0")" && pwd)

# A request of 100 points is 22 KB: the destination reads 4.4 MB/s, which is 20,000 points a second.
share=2000
bandwidth=4400KB/s
starting=3

mkdir -p "$out"
export GATEWAY_HTTP=$base SINK_HTTP=$((base + 1))
control=127.0.0.1:$((base + 3))

children=()
trap 'kill -9 "${children[@]}" 2>/dev/null || true; wait 2>/dev/null || true' EXIT

near=(taskset --cpu-list "$(($(nproc) - 1))")
far=(taskset --cpu-list 0)

load() { # CORE NAME FIRST-LANE RATE CONNECTIONS SECONDS
    local -n core=$1
    shift
    "${core[@]}" "$rig" load --target "127.0.0.1:$base" --points 100 --connections "$4" --rate "$3" --duration "${5}s" --lane "$2" \
        --header "X-Scope-OrgID=$1" --account "$control" >"$out/$1.json" 2>"$out/$1.log" &
    children+=("$!")
    loads+=("$!")
}

phase() { # NAME
    local loads=() tenant
    "${far[@]}" "$rig" sink --http "127.0.0.1:$SINK_HTTP" --grpc "127.0.0.1:$((base + 2))" --control "$control" --faults "bandwidth $bandwidth" \
        >"$out/sink.log" 2>&1 &
    local sink=$!
    "${near[@]}" "$sluice" --config "$here/tenants.yaml" >"$out/gateway.log" 2>&1 &
    local gateway=$!
    children+=("$sink" "$gateway")
    for _ in $(seq 100); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$base") 2>/dev/null; then break; fi
        sleep 0.1
    done
    if [ "$1" = flood ]; then
        load far flood 100 $((10 * share)) 32 $((seconds + starting))
        # It makes its bodies first, which takes the cores from whoever else begins then.
        sleep "$starting"
    fi
    for tenant in 1 2 3 4 5 6 7 8 9; do load near "tenant-$tenant" $((tenant * 8)) "$share" 1 "$seconds"; done
    wait "${loads[@]}"
    jq -s -c --arg phase "$1" '{phase: $phase, requests: (map(.requests) | add), ok: (map(.statuses["200"] // 0) | add),
        p50: (map(.latency_us.p50) | sort | .[4]), p99: (map(.latency_us.p99) | sort | .[4])}' "$out"/tenant-*.json | tee -a "$out/phases.json" >&2
    if [ "$1" = flood ]; then
        jq -c '{flood: .requests, statuses, hinted: .hinted_requests}' "$out/flood.json" | tee -a "$out/floods.json" >&2
    fi
    kill "$gateway" 2>/dev/null || true
    kill -9 "$sink" 2>/dev/null || true
    wait "$gateway" "$sink" 2>/dev/null || true
}

rm -f "$out/phases.json" "$out/floods.json"
for _ in $(seq "$repeats"); do
    phase alone
    phase flood
done
jq -s -r 'def median: sort | .[length / 2 | floor];
    group_by(.phase) | .[] | "\(.[0].phase): \(map(.ok) | add) of \(map(.requests) | add) requests of the nine taken, median of their p50 \(map(.p50) | median) us, of their p99 \(map(.p99) | median) us (\(map(.p99) | tostring))"' \
    "$out/phases.json"
