# One measurement, whatever engine runs it. Sourced by run.sh, after the engine, which has:
#
#   engine_prepare, engine_finish, engine_limits, engine_cpus
#   destination_start BACKEND, destination_get PATH     an empty sink or VictoriaMetrics; its HTTP control
#   gateway_start GATEWAY CPUS MEMORY BACKEND           until it answers
#   gateway_counters                                    when it was read, CPU nanoseconds so far, bytes of memory now
#   gateway_problem                                     why it is no longer there, if so
#   generate GATEWAY [OPTION ...]                       sluice-rig load, with its report on standard output
#   everything_stop
# shellcheck shell=bash disable=SC2153,SC2154 # variables of run.sh

# Of every measured interval this much is left out of the CPU and memory figures at both ends, where the load starts and stops.
edge_seconds=1.5
# What a destination may take to have everything, after the load has ended; and how long nothing comes until nothing more is
# expected. Longer than the Collector waits before it tries again (5 s, spread to 7.5 s).
drain_seconds=240
quiet_seconds=15
# Id lanes of the warm-up; those of the measured load begin at 0.
warmup_lane=500

not_run() { # GATEWAY RATE CPUS MEMORY REASON
    jq --null-input --compact-output --arg gateway "$1" --argjson rate "$2" --argjson cpus "$3" --arg memory "$4" \
        --arg problem "$5" '$ARGS.named' >>"$results"
    echo "    $5" >&2
}

# sample FILE: a line of counters a second, until it is killed.
sample() {
    local next=$EPOCHREALTIME
    while :; do
        gateway_counters || true
        # From where the second began, not from where the counters arrived: samples do not drift.
        next=$(awk -v last="$next" -v now="$EPOCHREALTIME" 'BEGIN { while (last <= now) last++; printf "%.6f", last }')
        sleep "$(awk -v next_one="$next" -v now="$EPOCHREALTIME" 'BEGIN { wait = next_one - now; print (wait > 0 ? wait : 0) }')"
    done >"$1"
}

sample_end() {
    kill "$sampler" 2>/dev/null || true
    wait "$sampler" 2>/dev/null || true
    sampler=
}

# usage FILE ENDED: what the samples say of the measured interval, without its edges, as JSON. The average is that of the whole
# interval, from its first counter to its last; the maximum is the busiest second.
usage() {
    awk -v ended="$2" -v duration="$DURATION" -v edge="$edge_seconds" '
        BEGIN { from = ended - duration + edge; to = ended - edge }
        $1 < from || $1 > to { next }
        n++ { used = ($2 - cpu) / 1e7 / ($1 - at); if (used > cpu_max) cpu_max = used } # percent of one core
        n == 1 { first_at = $1; first_cpu = $2 }
        { at = $1; cpu = $2; memory += $3; if ($3 > memory_max) memory_max = $3 }
        END {
            if (n < 3) exit 1
            printf "{\"cpu_avg\":%.2f,\"cpu_max\":%.2f,\"memory_avg\":%.2f,\"memory_max\":%.2f,\"samples\":%d}\n",
                (cpu - first_cpu) / 1e7 / (at - first_at), cpu_max, memory / n / 1048576, memory_max / 1048576, n
        }' "$1"
}

# arrived BACKEND: how many requests or points have come so far; only used to see whether more come.
arrived() {
    if [ "$1" = sink ]; then destination_get /stats | jq .requests; else rows; fi
}

# rows: points that VictoriaMetrics has taken from gateways.
rows() {
    destination_get /metrics |
        awk '/^vm_rows_inserted_total\{type="(opentelemetry|promremotewrite)"/ { rows += $2 } END { printf "%.0f\n", rows }'
}

# account BACKEND WARM REPORT: sent and delivered since the destination was started.
account() {
    if [ "$1" = sink ]; then
        destination_get /account | jq --compact-output '.metrics | del(.lost_runs)'
    else
        jq --null-input --compact-output --slurpfile warm "$2" --slurpfile load "$3" --argjson rows "$(rows)" '
            ($warm[0].accepted_items + $load[0].accepted_items) as $sent |
            {by_id: false, sent: $sent, delivered: ([$rows, $sent] | min), lost: ([$sent - $rows, 0] | max),
             duplicated: ([$rows - $sent, 0] | max)}'
    fi
}

# nanos COUNTERS COUNTERS: CPU time between the two.
nanos() { awk '{ cpu[NR] = $2 } END { printf "%.0f", cpu[2] - cpu[1] }' <<<"$1"$'\n'"$2"; }

measure() { # GATEWAY RATE CPUS GRANTED MEMORY REPEAT
    local gateway=$1 rate=$2 cpus=$3 granted=$4 memory=$5 repeat=$6
    local name=$gateway-$rate-$repeat backend=$BACKEND
    local samples=$out/$name.samples log=$out/$name.log warm=$out/$name.warm.json load=$out/$name.json
    if [ "$gateway" = vmagent ]; then backend=victoriametrics; fi
    local options=(--rate "$rate" --points "$POINTS" --series "$SERIES" --connections "$CONNECTIONS")
    if [ "$backend" = victoriametrics ]; then
        # To a database every id is a series of its own: it gets the same points over and over, as many as there are to be
        # series, and counts them.
        options+=(--repeat $(((SERIES + CONNECTIONS * POINTS - 1) / (CONNECTIONS * POINTS))))
    fi
    if [ "$gateway" = vmagent ]; then options+=(--path /opentelemetry/v1/metrics); fi

    local problem=
    attempt() { # WHAT COMMAND...: the first thing that fails is what the table says
        if [ -n "$problem" ]; then return; fi
        local what=$1
        shift
        if ! "$@" 2>>"$log"; then
            # Usage and progress may follow what is to be read.
            problem="$what: $({ grep -i error "$log" || grep -v '^ *$' "$log" || echo "it said nothing"; } | tail -n 1)"
        fi
    }
    : >"$log"
    attempt "the destination did not start" destination_start "$backend"
    attempt "the gateway did not start" gateway_start "$gateway" "$granted" "$memory" "$backend"
    attempt "the load failed" generate "$gateway" "$backend" "${options[@]}" --duration "${WARMUP}s" --lane "$warmup_lane" >"$warm"

    local before after ended state usage_json
    if [ -z "$problem" ]; then
        before=$(gateway_counters) || problem="the gateway has no counters"
    fi
    if [ -z "$problem" ]; then
        sample "$samples" &
        sampler=$!
        attempt "the load failed" generate "$gateway" "$backend" "${options[@]}" --duration "${DURATION}s" >"$load"
        ended=$EPOCHREALTIME
        sample_end
    fi
    if [ -z "$problem" ]; then
        # The drain of the queue is part of the work.
        local last=-1 now quiet=0
        for _ in $(seq "$drain_seconds"); do
            state=$(account "$backend" "$warm" "$load") || { problem="the destination does not give its account"; break; }
            if [ "$(jq .lost <<<"$state")" = 0 ]; then break; fi
            now=$(arrived "$backend")
            if [ "$now" = "$last" ]; then quiet=$((quiet + 1)); else quiet=0; fi
            if [ "$quiet" = "$quiet_seconds" ]; then break; fi
            last=$now
            sleep 1
        done
    fi
    if [ -z "$problem" ]; then
        problem=$(gateway_problem)
    fi
    if [ -z "$problem" ]; then
        after=$(gateway_counters) || problem="the gateway has no counters"
    fi
    if [ -z "$problem" ]; then
        usage_json=$(usage "$samples" "$ended") || problem="too few samples: DURATION is too short"
    fi
    if [ -z "$problem" ]; then
        # Once more, a second later: duplicates come last.
        sleep 1
        state=$(account "$backend" "$warm" "$load") || problem="the destination does not give its account"
    fi
    everything_stop "$log"
    if [ -n "$problem" ]; then
        not_run "$gateway" "$rate" "$cpus" "$memory" "$problem"
        return
    fi
    jq --null-input --compact-output --arg gateway "$gateway" --argjson rate "$rate" --argjson cpus "$cpus" \
        --argjson granted "$granted" --arg memory "$memory" --argjson repeat "$repeat" --argjson usage "$usage_json" \
        --argjson account "$state" --argjson cpu_nanos "$(nanos "$before" "$after")" --slurpfile load "$load" \
        '$ARGS.named | .load = .load[0]' >>"$results"
    tail -n 1 "$results" | jq --raw-output \
        '"    CPU \(.usage.cpu_avg)%, memory \(.usage.memory_avg) MiB, delivered \(.account.delivered) of \(.account.sent)"' >&2
}
