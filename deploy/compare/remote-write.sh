#!/bin/bash
# Remote write against real servers, by hand:
#
#   client (OTLP/JSON) -> SLUICE -> remote write, 16 lanes -> Prometheus, which is killed and started again on the way
#   Prometheus, as above, scrapes -> remote write -> SLUICE (receiver) -> remote write -> a second Prometheus
#
# All samples that the client sent are queried back from the first, and each must be there with its value, and none but those; it must
# not have met a sample out of order. What it has scraped must be the same in both.
#
# Usage: deploy/compare/remote-write.sh
# Environment: PEERS [target/peers], where build-peers.sh puts prometheus; SLUICE [target/release/sluice], OUT [target/remote-write]
set -euo pipefail

peers=${PEERS:-target/peers}
sluice=${SLUICE:-target/release/sluice}
out=${OUT:-target/remote-write}
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
cat >"$out/sluice.yaml" <<'YAML'
receivers:
  otlp: {protocols: {http: {endpoint: "127.0.0.1:34318"}}}
  prometheusremotewrite: {endpoint: "127.0.0.1:34092"}
exporters:
  prometheusremotewrite/first:
    endpoint: http://127.0.0.1:34090/api/v1/write
    remote_write_queue: {num_consumers: 16}
  prometheusremotewrite/second:
    endpoint: http://127.0.0.1:34091/api/v1/write
    remote_write_queue: {num_consumers: 16}
service:
  telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: 34888}}}}]}}
  pipelines:
    metrics/out: {receivers: [otlp], exporters: [prometheusremotewrite/first]}
    metrics/through: {receivers: [prometheusremotewrite], exporters: [prometheusremotewrite/second]}
YAML
cat >>"$out/first.yaml" <<'YAML'
scrape_configs:
  - job_name: self
    scrape_interval: 1s
    static_configs: [{targets: ["127.0.0.1:34888"]}]
remote_write:
  - url: http://127.0.0.1:34092/api/v1/write
    queue_config: {batch_send_deadline: 200ms}
YAML

prometheus second 34091 "$out/second.yaml"
prometheus first 34090 "$out/first.yaml"
first=$started
"$sluice" --config "$out/sluice.yaml" >"$out/sluice.log" 2>&1 &
children+=("$!")
await http://127.0.0.1:34888/metrics

(
    sleep 3
    kill -9 "$first"
    sleep 2
    prometheus first 34090 "$out/first.yaml"
    echo "$started" >"$out/first.pid"
) &
restart=$!
python3 "$(dirname "$0")/remote-write.py" send http://127.0.0.1:34318/v1/metrics
wait "$restart"
children+=("$(cat "$out/first.pid")")
status=0
python3 "$(dirname "$0")/remote-write.py" check http://127.0.0.1:34090 || status=1
python3 "$(dirname "$0")/remote-write.py" same http://127.0.0.1:34090 http://127.0.0.1:34091 || status=1
curl --silent http://127.0.0.1:34888/metrics | grep -E '^sluice_(exporter|remote_write).*(sent|failed|dropped|refused|samples).* [1-9]' || true
exit "$status"
