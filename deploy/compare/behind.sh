#!/bin/bash
# config/behind-prometheus.yaml and config/behind-vmagent.yaml as they are, with the real senders set up as they say, by hand:
#
#   Prometheus scrapes itself -> SLUICE -> another Prometheus, which must have the same as the first
#   vmagent scrapes SLUICE    -> SLUICE -> VictoriaMetrics, which must have the same as one that vmagent sends to itself
#
# SLUICE is killed and started again on the way.
#
# Usage: deploy/compare/behind.sh
# Environment: PEERS [target/peers], where build-peers.sh puts prometheus, victoria-metrics and vmagent; SLUICE [target/release/sluice],
#              OUT [target/behind]. Ports 9201, 8888 and 13133 must be free, and 24090 to 24095.
set -euo pipefail

peers=${PEERS:-target/peers}
sluice=${SLUICE:-target/release/sluice}
out=${OUT:-target/behind}
here=$(cd "$(dirname "$0")" && pwd)
for peer in prometheus victoria-metrics vmagent; do
    if [ ! -x "$peers/$peer" ]; then
        echo "$peers/$peer is not there: build it with deploy/compare/build-peers.sh, or set PEERS" >&2
        exit 1
    fi
done
rm -rf "$out"
mkdir -p "$out"

children=()
stop() {
    kill "${children[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    children=()
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

# What the comment of a configuration says, from a line on.
said() { # FILE FIRST-WORD
    sed -n '/^[^#]/q; s/^#   //p' "$1" | sed -n "/^ *$2/,\$p"
}

prometheus() { # NAME PORT
    "$peers/prometheus" --config.file="$out/$1.yaml" --storage.tsdb.path="$out/$1" --web.listen-address="127.0.0.1:$2" \
        --web.enable-remote-write-receiver --enable-feature=exemplar-storage >>"$out/$1.log" 2>&1 &
    children+=("$!")
    await "http://127.0.0.1:$2/-/ready"
}

victoria() { # NAME PORT
    "$peers/victoria-metrics" -storageDataPath="$out/$1" -httpListenAddr="127.0.0.1:$2" -retentionPeriod=1d >>"$out/$1.log" 2>&1 &
    children+=("$!")
    await "http://127.0.0.1:$2/health"
}

start_sluice() { # CONFIG
    "$sluice" --config "$1" >>"$out/sluice.log" 2>&1 &
    running=$!
    children+=("$running")
    await http://127.0.0.1:13133/ready
}

# Some seconds, a kill, some more, and whether the destination has the same.
through_a_kill() { # CONFIG JOB WHERE-IT-IS-KEPT DESTINATION
    sleep 3
    since=$(date +%s)
    sleep 5
    kill -9 "$running"
    sleep 1
    start_sluice "$1"
    sleep 5
    until=$(date +%s)
    # For what is under way, and what vmagent and Prometheus try again.
    sleep 10
    python3 "$here/remote-write.py" equal "$since" "$until" "$2" "$3" "$4"
}

status=0
config=$here/../../config/behind-prometheus.yaml
{
    printf 'global: {scrape_interval: 1s}\n'
    printf 'scrape_configs:\n  - job_name: self\n    scrape_native_histograms: true\n    static_configs: [{targets: ["127.0.0.1:24090"]}]\n'
    said "$config" remote_write
} >"$out/sender.yaml"
echo 'global: {}' >"$out/receiver.yaml"
export REMOTE_WRITE_URL=http://127.0.0.1:24091/api/v1/write SPOOL=$out/spool-prometheus
prometheus receiver 24091
start_sluice "$config"
prometheus sender 24090
through_a_kill "$config" self http://127.0.0.1:24090 http://127.0.0.1:24091 || status=1
stop

config=$here/../../config/behind-vmagent.yaml
printf 'global: {scrape_interval: 1s}\nscrape_configs:\n  - job_name: agent\n    static_configs: [{targets: ["127.0.0.1:24094"]}]\n' >"$out/scrape.yml"
export REMOTE_WRITE_URL=http://127.0.0.1:24093/api/v1/write SPOOL=$out/spool-vmagent
victoria direct 24092
victoria behind 24093
start_sluice "$config"
read -ra flags < <(said "$config" vmagent)
"$peers/vmagent" "${flags[@]:1}" -promscrape.config="$out/scrape.yml" -httpListenAddr=127.0.0.1:24094 -remoteWrite.tmpDataPath="$out/vmagent" \
    -remoteWrite.url=http://127.0.0.1:24092/api/v1/write >>"$out/vmagent.log" 2>&1 &
children+=("$!")
await http://127.0.0.1:24094/health
through_a_kill "$config" agent http://127.0.0.1:24092 http://127.0.0.1:24093 || status=1
exit "$status"
