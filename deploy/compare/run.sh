#!/bin/bash
# shellcheck source-path=SCRIPTDIR
#
# The seed's three steps (15k points/s with 1 CPU and 512 MB, 50k with 2 and 1 GB, 100k with 4 and 2 GB) for every gateway, one
# after the other: CPU and memory, what was delivered of what was sent, and how the cost grows from step to step, as
# Markdown on standard output.
#
#   deploy/compare/run.sh [OPTION ...] [GATEWAY ...]
#
#   GATEWAY        sluice-minimal, sluice-balanced, collector-minimal, collector-balanced, vmagent [all of them]
#   --processes    plain processes instead of containers; limits by cgroup where this user may make one, else by core
#   --fewer-cpus   run a step that asks for more CPUs than there are with those there are, and mark it so
#   --dashboards   Prometheus and Grafana beside the containers, to look at; they take CPU from what is measured
#   --report       only print the tables of what $OUT has
#
# Every setting is in .env beside this file, with what it means: LOAD_LEVELS, TARGET_DPS, PROXY_CPU, PROXY_MEM, WARMUP,
# DURATION, REPEATS, SERIES, BACKEND and the images; the shell's variables win. And:
#
#   OUT            directory of results.jsonl, samples and logs [target/compare/seed]
#   --processes:   SLUICE [target/release/sluice], RIG [target/release/sluice-rig], COLLECTOR [target/peers/otelcol],
#                  VMAGENT and VICTORIAMETRICS [from PATH]
#
# A full run is 3 steps x 5 gateways x 3 repeats x 3 minutes. Needs bash 5, curl, jq, awk; Docker with Compose, or Linux.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
all_gateways=(sluice-minimal sluice-balanced collector-minimal collector-balanced vmagent)

fail() {
    echo "run.sh: $*" >&2
    exit 1
}

read_settings() { # FILE: what the shell has not set
    local name value
    while IFS='=' read -r name value; do
        case $name in '' | '#'*) continue ;; esac
        if [ ! -v "$name" ]; then export "$name=$value"; fi
    done <"$1"
}
read_settings "$here/.env"

engine=docker fewer_cpus=false dashboards=false report_only=false
gateways=()
for argument in "$@"; do
    case $argument in
    --processes) engine=processes ;;
    --fewer-cpus) fewer_cpus=true ;;
    --dashboards) dashboards=true ;;
    --report) report_only=true ;;
    -h | --help) sed -n '4,/^set /{/^set /d; s/^# \{0,1\}//; p}' "$0"; exit 0 ;;
    -*) fail "no option $argument; --help says which there are" ;;
    *)
        printf '%s\n' "${all_gateways[@]}" | grep -qx -- "$argument" || fail "no gateway $argument: there are ${all_gateways[*]}"
        gateways+=("$argument")
        ;;
    esac
done
if [ ${#gateways[@]} = 0 ]; then gateways=("${all_gateways[@]}"); fi
# shellcheck disable=SC2153 # from .env
case $BACKEND in sink | victoriametrics) ;; *) fail "BACKEND is sink or victoriametrics, not $BACKEND" ;; esac
if [ "$dashboards$engine" = trueprocesses ]; then fail "--dashboards needs the containers"; fi

out=${OUT:-target/compare/seed}
mkdir -p "$out"
out=$(cd "$out" && pwd)
results=$out/results.jsonl

for tool in curl jq awk flock; do command -v "$tool" >/dev/null || fail "$tool is missing"; done
exec 9>"$out/lock"
flock --nonblock 9 || fail "another run is using $out"

report() { jq --slurp --raw-output --from-file "$here/run/report.jq" "$results"; }
if $report_only; then
    [ -s "$results" ] || fail "$results has no results yet"
    report
    exit
fi

# shellcheck source=run/docker.sh
# shellcheck source=run/processes.sh
source "$here/run/$engine.sh"
# shellcheck source=run/measure.sh
source "$here/run/measure.sh"
sampler=
finish() {
    if [ -n "$sampler" ]; then kill "$sampler" 2>/dev/null || true; fi
    engine_finish
}
trap finish EXIT
trap 'exit 130' INT TERM
engine_prepare

# step NAME: its rate, CPUs and memory.
step() {
    case $1 in
    15k) echo 15000 1 512M ;;
    50k) echo 50000 2 1G ;;
    100k) echo 100000 4 2G ;;
    200k) echo 200000 8 4G ;;
    *:*:*) tr ':' ' ' <<<"$1" ;;
    *) fail "LOAD_LEVELS has 15k, 50k, 100k, 200k or RATE:CPUS:MEMORY, not $1" ;;
    esac
}
steps=()
if [ -n "${TARGET_DPS:-}" ]; then
    steps=("$TARGET_DPS ${PROXY_CPU:-1} ${PROXY_MEM:-512M}")
else
    for level in $LOAD_LEVELS; do
        found=$(step "$level")
        steps+=("$found")
    done
fi

: >"$results"
jq --null-input --compact-output --arg engine "$engine" --arg limits "$(engine_limits)" --arg backend "$BACKEND" \
    --arg series "$SERIES" --arg points "$POINTS" --arg connections "$CONNECTIONS" --arg warmup "$WARMUP" --arg duration "$DURATION" \
    --arg repeats "$REPEATS" --arg date "$(date -u +%F)" --arg kernel "$(uname -sr)" --arg cpus "$(engine_cpus)" \
    --arg load "$(cut -d' ' -f1-3 /proc/loadavg 2>/dev/null || echo unknown)" \
    --arg cpu "$(sed -n 's/^model name.*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)" \
    '{machine: $ARGS.named}' >>"$results"

for wanted in "${steps[@]}"; do
    read -r rate cpus memory <<<"$wanted"
    granted=$cpus
    if awk -v asked="$cpus" -v there="$(engine_cpus)" 'BEGIN { exit !(asked > there) }'; then
        granted=$(engine_cpus)
        if ! $fewer_cpus; then
            for gateway in "${gateways[@]}"; do
                not_run "$gateway" "$rate" "$cpus" "$memory" "not run as stated: $cpus CPUs asked, $granted here"
            done
            continue
        fi
    fi
    for repeat in $(seq "$REPEATS"); do
        # Another one begins each time, so that a machine that drifts favours none.
        for offset in "${!gateways[@]}"; do
            gateway=${gateways[$(((offset + repeat - 1) % ${#gateways[@]}))]}
            echo "$(date +%T) $gateway, $rate points/s, $granted CPUs, $memory, $repeat of $REPEATS" >&2
            measure "$gateway" "$rate" "$cpus" "$granted" "$memory" "$repeat"
        done
    done
done
report
