#!/bin/bash
# Interoperation with the field's own tools. A gateway stands between real clients and a real Collector:
#
#   telemetrygen -> GATEWAY -> Collector (file exporter)
#   telemetrygen -> Collector -> GATEWAY -> Collector (file exporter)
#
# for three signals and both transports. Every item must arrive once, with its attributes: the destination's
# files are compared with what telemetrygen writes when it sends to the destination directly.
#
# Usage: deploy/compare/interop.sh [sluice|collector]      collector checks the script itself [sluice]
# Environment: PEERS [target/peers], SLUICE [target/release/sluice], OUT [target/interop]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
who=${1:-sluice}
peers=${PEERS:-target/peers}
sluice=${SLUICE:-target/release/sluice}
out=${OUT:-target/interop}
mkdir -p "$out"
out=$(cd "$out" && pwd)

# Ports: the Collector in front, the gateway, the destination.
front_grpc=15317 front_http=15318
export GATEWAY_GRPC=14317 GATEWAY_HTTP=14318 SINK_GRPC=24317 SINK_HTTP=24318
items=300
failures=0

children=()
stop() {
    local child
    for child in "${children[@]}"; do
        kill "$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    done
    children=()
}
trap stop EXIT

await_port() { # PORT PID LOG
    for _ in $(seq 100); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return; fi
        kill -0 "$2" 2>/dev/null || break
        sleep 0.1
    done
    echo "nothing listens on port $1" >&2
    tail -n 5 "$3" >&2
    return 1
}

start() { # LOG PORT COMMAND...
    local log=$out/$1.log port=$2
    shift 2
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
        echo "port $port is taken" >&2
        return 1
    fi
    "$@" >"$log" 2>&1 &
    children+=("$!")
    await_port "$port" "$!" "$log"
}

# telemetry SIGNAL TRANSPORT GRPC_PORT HTTP_PORT: sends items with fixed attributes of each type.
telemetry() {
    local signal=$1 transport=$2 endpoint=127.0.0.1:$3
    local options=(--otlp-insecure --rate 0 --workers 1 --service interop
        --otlp-attributes 'team="shop"' --otlp-attributes 'replicas=3' --otlp-attributes 'canary=true'
        --telemetry-attributes 'http.route="/api/{id}"' --telemetry-attributes 'http.response.status_code=200'
        --telemetry-attributes 'cached=false')
    if [ "$transport" = http ]; then
        endpoint=127.0.0.1:$4
        options+=(--otlp-http)
    fi
    case $signal in
    metrics) options+=(--metrics "$items" --metric-type Sum) ;;
    logs) options+=(--logs "$items" --severity-text Warn --severity-number 13 --trace-id 0af7651916cd43dd8448eb211c80319c) ;;
    traces) options+=(--traces "$((items / 3))" --child-spans 2 --status-code Error --span-links 1) ;;
    esac
    "$peers/telemetrygen" "$signal" --otlp-endpoint "$endpoint" "${options[@]}" >"$out/telemetrygen.log" 2>&1 ||
        { tail -n 3 "$out/telemetrygen.log" >&2; return 1; }
}

# items_of SIGNAL FILE: one line for each item with its resource and scope, without what differs from run to
# run (times, random ids, telemetrygen's order of attributes); sorted, so that batching does not matter.
items_of() {
    local filter
    case $1 in
    metrics)
        filter='.resourceMetrics[]? | .resource as $r | .scopeMetrics[] | .scope as $s | .metrics[] |
            del(.sum.dataPoints) as $m | .sum.dataPoints[] | del(.startTimeUnixNano, .timeUnixNano, .exemplars) |
            [$r, $s, $m, .]'
        ;;
    logs)
        filter='.resourceLogs[]? | .resource as $r | .scopeLogs[] | .scope as $s | .logRecords[] |
            del(.timeUnixNano, .observedTimeUnixNano) | [$r, $s, .]'
        ;;
    traces)
        filter='.resourceSpans[]? | .resource as $r | .scopeSpans[] | .scope as $s | .spans[] |
            .parentSpanId = ((.parentSpanId // "") | length) | .links = [(.links // [])[] | .traceId = "" | .spanId = ""] |
            del(.traceId, .spanId, .startTimeUnixNano, .endTimeUnixNano) | [$r, $s, .]'
        ;;
    esac
    local order='walk(if type == "object" and has("attributes") then .attributes |= sort_by(.key) else . end)'
    jq --compact-output --sort-keys "$filter | $order" "$2" | sort
}

# receive NAME SIGNAL TRANSPORT PATH: sends through direct, gateway or chain and leaves the items in NAME.items.
receive() {
    local name=$1 signal=$2 transport=$3 path=$4
    export INTEROP_FILE=$out/$name.json
    rm -f "$INTEROP_FILE"
    start "$name-destination" "$SINK_HTTP" "$peers/otelcol" --config "$here/interop-destination.yaml"
    local grpc=$SINK_GRPC http=$SINK_HTTP
    if [ "$path" != direct ]; then
        local config=$here/$who-$transport-zstd.yaml
        if [ "$who" = sluice ]; then
            start "$name-gateway" "$GATEWAY_HTTP" "$sluice" --config "$config"
        else
            start "$name-gateway" "$GATEWAY_HTTP" "$peers/otelcol" --config "$config"
        fi
        grpc=$GATEWAY_GRPC http=$GATEWAY_HTTP
    fi
    if [ "$path" = chain ]; then
        # The Collector as client: the same configuration, one step further up.
        GATEWAY_GRPC=$front_grpc GATEWAY_HTTP=$front_http SINK_GRPC=$grpc SINK_HTTP=$http \
            start "$name-front" "$front_http" "$peers/otelcol" --config "$here/collector-$transport-zstd.yaml"
        grpc=$front_grpc http=$front_http
    fi
    telemetry "$signal" "$transport" "$grpc" "$http"
    local got=0
    for _ in $(seq 50); do
        if [ -s "$INTEROP_FILE" ]; then
            items_of "$signal" "$INTEROP_FILE" >"$out/$name.items" 2>/dev/null || true
            got=$(wc -l <"$out/$name.items")
        fi
        if [ "$got" -ge "$items" ]; then break; fi
        sleep 0.2
    done
    # Duplicates would come late.
    sleep 1
    stop
    items_of "$signal" "$INTEROP_FILE" >"$out/$name.items" 2>/dev/null || true
}

for signal in metrics logs traces; do
    receive "$signal-direct" "$signal" http direct
    for transport in http grpc; do
        for path in gateway chain; do
            name=$signal-$transport-$path
            receive "$name" "$signal" "$transport" "$path"
            got=$(wc -l <"$out/$name.items")
            if [ "$got" = "$items" ] && cmp -s "$out/$signal-direct.items" "$out/$name.items"; then
                echo "ok    $name: $got items, once each, equal to what was sent directly"
            else
                echo "FAIL  $name: $got of $items items; diff $out/$signal-direct.items $out/$name.items"
                failures=$((failures + 1))
            fi
        done
    done
done
echo "$who: $failures failures"
[ "$failures" = 0 ]
