#!/bin/bash
# Remote write against real servers, by hand:
#
#   client (OTLP/JSON) -> SLUICE -> remote write 2.0, 16 lanes -> Prometheus, 100 ms away over 16 connections, which is killed and started again on the way
#                             \-> remote write 1.0 under zstd, 16 lanes -> VictoriaMetrics, stopped and started again on the way
#   Prometheus, as above, scrapes -> remote write -> SLUICE (receiver) -> remote write 1.0 -> a second Prometheus
#   vmagent scrapes -> remote write under zstd -> SLUICE -> the second Prometheus
#                \-> remote write, to compare with -> a third Prometheus
#
# All samples that the client sent are queried back from the first two, and each must be there with its time and value, and none but those; native histograms with
# their buckets and exemplars with their ids too, where the server keeps such (Prometheus). One that came out of order would be missing. What the first Prometheus has of its own
# scrapes, and of what comes live with native histograms and exemplars, must be the same in the second, and so must what the third has of vmagent's. SLUICE itself is
# stopped, and then killed, and started again on the way as well: its queues are on disk and it acknowledges what is synced. Until it is killed nothing may come out of order;
# after that the requests that were under way come again.
#
# Usage: deploy/compare/remote-write.sh
# Environment: PEERS [target/peers], where build-peers.sh puts prometheus, victoria-metrics and vmagent;
#              WITHOUT: those of the last two that are left out, as "victoria-metrics vmagent";
#              SLUICE [target/release/sluice], OUT [target/remote-write]
set -euo pipefail

peers=${PEERS:-target/peers}
sluice=${SLUICE:-target/release/sluice}
out=${OUT:-target/remote-write}
here=$(dirname "$0")
lanes=16
has() { # PEER
    [[ " ${WITHOUT:-} " != *" $1 "* ]]
}
for peer in prometheus victoria-metrics vmagent; do
    if [ ! -x "$peers/$peer" ] && { [ "$peer" = prometheus ] || has "$peer"; }; then
        echo "$peers/$peer is not there: build it with deploy/compare/build-peers.sh, or set PEERS; WITHOUT=\"victoria-metrics vmagent\" leaves these two out" >&2
        exit 1
    fi
done
rm -rf "$out"
mkdir -p "$out"

children=()
stop() {
    local child
    for child in "${children[@]}"; do
        kill "$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    done
}
trap stop EXIT

await() { # URL
    for _ in $(seq 100); do
        if curl --silent --fail --output /dev/null "$1"; then return; fi
        sleep 0.1
    done
    echo "$1 does not answer" >&2
    return 1
}

prometheus() { # NAME PORT CONFIG
    "$peers/prometheus" --config.file="$3" --storage.tsdb.path="$out/$1" --web.listen-address="127.0.0.1:$2" \
        --web.enable-remote-write-receiver --enable-feature=exemplar-storage >>"$out/$1.log" 2>&1 &
    children+=("$!")
    started=$!
    await "http://127.0.0.1:$2/-/ready"
}

echo 'global: {}' >"$out/first.yaml"
echo 'global: {}' >"$out/second.yaml"
victoria() {
    "$peers/victoria-metrics" -storageDataPath="$out/victoria" -httpListenAddr=127.0.0.1:24093 \
        -retentionPeriod=1d >>"$out/victoria.log" 2>&1 &
    children+=("$!")
    started=$!
    await http://127.0.0.1:24093/health
}

start_sluice() {
    "$sluice" --config "$out/sluice.yaml" >>"$out/sluice.log" 2>&1 &
    children+=("$!")
    started=$!
    await http://127.0.0.1:24888/metrics
}

out_exporters=prometheusremotewrite/first
if has victoria-metrics; then out_exporters=$out_exporters,prometheusremotewrite/victoria; fi
cat >"$out/sluice.yaml" <<YAML
receivers:
  otlp: {protocols: {http: {endpoint: "127.0.0.1:24319"}}}
  prometheusremotewrite: {endpoint: "127.0.0.1:24092"}
exporters:
  prometheusremotewrite/first:
    endpoint: http://127.0.0.1:24096/api/v1/write
    protobuf_message: io.prometheus.write.v2.Request
    remote_write_queue: {num_consumers: $lanes}
    sending_queue: {storage: file_storage}
  prometheusremotewrite/second:
    endpoint: http://127.0.0.1:24091/api/v1/write
    remote_write_queue: {num_consumers: $lanes}
    sending_queue: {storage: file_storage}
  prometheusremotewrite/victoria:
    endpoint: http://127.0.0.1:24093/api/v1/write
    compression: zstd
    remote_write_queue: {num_consumers: $lanes}
    sending_queue: {storage: file_storage}
extensions:
  file_storage: {directory: $out/queue, create_directory: true}
service:
  extensions: [file_storage]
  telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: 24888}}}}]}}
  pipelines:
    metrics/out: {receivers: [otlp], exporters: [$out_exporters]}
    metrics/through: {receivers: [prometheusremotewrite], exporters: [prometheusremotewrite/second]}
YAML
cat >>"$out/first.yaml" <<'YAML'
scrape_configs:
  - job_name: self
    scrape_interval: 1s
    static_configs: [{targets: ["127.0.0.1:24888"]}]
remote_write:
  - url: http://127.0.0.1:24092/api/v1/write
    queue_config: {batch_send_deadline: 200ms}
    send_exemplars: true
    send_native_histograms: true
YAML

prometheus second 24091 "$out/second.yaml"
prometheus first 24090 "$out/first.yaml"
first=$started
if has victoria-metrics; then
    victoria
    victoria=$started
fi
python3 "$here/remote-write.py" relay 24096 24090 "$out/connections" &
children+=("$!")
start_sluice
running=$started
agent=()
if has vmagent; then
    agent=(http://127.0.0.1:24095)
    prometheus third 24095 "$out/second.yaml"
    sed -n '/^scrape_configs/,/static_configs/{s/self/agent/; p}' "$out/first.yaml" >"$out/vmagent.yaml"
    "$peers/vmagent" -promscrape.config="$out/vmagent.yaml" -httpListenAddr=127.0.0.1:24094 \
        -remoteWrite.tmpDataPath="$out/vmagent" -remoteWrite.flushInterval=200ms -remoteWrite.queues=1 \
        -remoteWrite.url=http://127.0.0.1:24095/api/v1/write -remoteWrite.url=http://127.0.0.1:24092/api/v1/write \
        -remoteWrite.forcePromProto=true,false -remoteWrite.forceVMProto=false,true >>"$out/vmagent.log" 2>&1 &
    children+=("$!")
    await http://127.0.0.1:24094/health
fi

(
    sleep 2
    kill -9 "$first"
    sleep 1
    prometheus first 24090 "$out/first.yaml"
    echo "$started" >"$out/pids"
    # Its first scrapes and what it reads of its log before it sends.
    sleep 3
    date +%s >"$out/since"
    if has victoria-metrics; then
        # Not killed: what it has taken within the last seconds is in its memory only.
        kill "$victoria"
        sleep 2
        victoria
        echo "$started" >>"$out/pids"
    fi
    # In order: nothing comes again.
    kill "$running"
    until tail -n 1 "$out/sluice.log" | grep -q stopped; do sleep 0.1; done
    start_sluice
    echo "$started" >>"$out/pids"
    sleep 2
    curl --silent http://127.0.0.1:24090/metrics | grep -E '^prometheus_tsdb_(out_of_order|too_old)_samples_total' >"$out/before-the-kill"
    # And not in order.
    kill -9 "$started"
    sleep 0.5
    start_sluice
    echo "$started" >>"$out/pids"
) &
restart=$!
python3 "$here/remote-write.py" send http://127.0.0.1:24319/v1/metrics
wait "$restart"
mapfile -t pids <"$out/pids"
children+=("${pids[@]}")
status=0
if [ ! -s "$out/before-the-kill" ] || grep -v ' 0$' "$out/before-the-kill"; then
    echo "the first Prometheus was sent samples out of order before sluice was killed"
    status=1
fi
python3 "$here/remote-write.py" check http://127.0.0.1:24090 || status=1
if has victoria-metrics; then
    python3 "$here/remote-write.py" check-victoria http://127.0.0.1:24093 || status=1
fi
python3 "$here/remote-write.py" same "$(cat "$out/since")" http://127.0.0.1:24319/v1/metrics http://127.0.0.1:24090 http://127.0.0.1:24091 "${agent[@]}" || status=1
connections=$(cat "$out/connections")
echo "$connections connections to the first Prometheus at most at a time"
[ "$connections" -ge "$lanes" ] || status=1
curl --silent http://127.0.0.1:24888/metrics |
    grep -E '^sluice_(exporter|remote_write).*(sent|failed|dropped|refused|unwritten|samples).* [1-9]' || true
exit "$status"
