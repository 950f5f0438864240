# The engine of run.sh that runs plain processes. Sourced; measure.sh says what it must have.
#
# The limits of a step are a cgroup's, as in a container, where this user may make one (root, or a delegated tree); else the
# gateway gets as many cores as the step has CPUs, and its memory is measured but not limited: the tables say so.
# shellcheck shell=bash disable=SC2154 # variables of run.sh

sluice=${SLUICE:-target/release/sluice}
rig=${RIG:-target/release/sluice-rig}
collector=${COLLECTOR:-target/peers/otelcol}
vmagent=${VMAGENT:-vmagent}
victoriametrics=${VICTORIAMETRICS:-victoria-metrics}
group=sluice-compare-$$
gateway_pid='' destination_pid='' destination_url='' limits=''

engine_prepare() {
    [ -d /proc/self ] || fail "--processes needs Linux"
    [ -x "$rig" ] || fail "no $rig: cargo build --release -p sluice-rig, or say where with RIG"
    ticks=$(getconf CLK_TCK)
    if [ -w /sys/fs/cgroup/cgroup.subtree_control ]; then
        echo +cpu +memory 2>/dev/null >/sys/fs/cgroup/cgroup.subtree_control || true
        if mkdir "/sys/fs/cgroup/$group" 2>/dev/null; then
            if [ -e "/sys/fs/cgroup/$group/cpu.max" ] && [ -e "/sys/fs/cgroup/$group/memory.max" ]; then
                limits=v2
            else
                rmdir "/sys/fs/cgroup/$group"
            fi
        fi
    elif mkdir "/sys/fs/cgroup/cpu/$group" 2>/dev/null; then
        limits=v1
        local controller
        for controller in cpuacct memory; do
            mkdir --parents "/sys/fs/cgroup/$controller/$group" 2>/dev/null || limits=
        done
        if [ -z "$limits" ]; then groups_remove; fi
    fi
}

groups_remove() {
    local controller
    for controller in . cpu cpuacct memory; do
        rmdir "/sys/fs/cgroup/$controller/$group" 2>/dev/null || true
    done
}

engine_finish() {
    everything_stop /dev/null
    groups_remove
}

engine_limits() {
    case $limits in
    '') echo "Processes with so many cores (taskset), memory not limited; memory is resident memory" ;;
    *) echo "Processes with the CPU quota and memory limit of a cgroup ($limits); memory is resident memory" ;;
    esac
}
engine_cpus() { nproc; }

# limited CPUS MEMORY COMMAND...: becomes the command, within the limits.
limited() {
    local cpus=$1 bytes quota
    bytes=$(numfmt --from=iec "$2")
    quota=$(awk -v cpus="$cpus" 'BEGIN { printf "%d", cpus * 100000 }')
    shift 2
    case $limits in
    v2)
        echo "$quota 100000" >"/sys/fs/cgroup/$group/cpu.max"
        echo "$bytes" >"/sys/fs/cgroup/$group/memory.max"
        echo "$BASHPID" >"/sys/fs/cgroup/$group/cgroup.procs"
        ;;
    v1)
        echo 100000 >"/sys/fs/cgroup/cpu/$group/cpu.cfs_period_us"
        echo "$quota" >"/sys/fs/cgroup/cpu/$group/cpu.cfs_quota_us"
        echo "$bytes" >"/sys/fs/cgroup/memory/$group/memory.limit_in_bytes"
        local controller
        for controller in cpu cpuacct memory; do
            echo "$BASHPID" >"/sys/fs/cgroup/$controller/$group/cgroup.procs"
        done
        ;;
    *) set -- taskset -c "0-$(awk -v cpus="$cpus" 'BEGIN { n = int(cpus); print (n < cpus ? n : n - 1) }')" "$@" ;;
    esac
    exec "$@"
}

await() { # URL PID LOG
    for _ in $(seq 300); do
        if [ "$(curl --silent --output /dev/null --write-out '%{http_code}' --max-time 2 "$1" || true)" != 000 ]; then return; fi
        kill -0 "$2" 2>/dev/null || break
        sleep 0.1
    done
    tail -n 5 "$3" >&2
    echo "nothing answers at $1" >&2
    return 1
}

vacant() { # PORT
    if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then
        echo "port $1 is taken" >&2
        return 1
    fi
}

destination_start() { # BACKEND
    local ready=/stats command=("$rig" sink
        --http "127.0.0.1:$SINK_HTTP" --grpc "127.0.0.1:$SINK_GRPC" --control "127.0.0.1:$SINK_CONTROL")
    destination_url=http://127.0.0.1:$SINK_CONTROL
    if [ "$1" = victoriametrics ]; then
        command -v "$victoriametrics" >/dev/null || { echo "no $victoriametrics in PATH" >&2; return 1; }
        rm -rf "$out/storage"
        destination_url=http://127.0.0.1:$VICTORIAMETRICS_HTTP ready=/health
        command=("$victoriametrics" "-storageDataPath=$out/storage" "-httpListenAddr=127.0.0.1:$VICTORIAMETRICS_HTTP"
            -retentionPeriod=1d)
    fi
    vacant "${destination_url##*:}" || return 1
    "${command[@]}" >"$out/destination.log" 2>&1 9>&- &
    destination_pid=$!
    await "$destination_url$ready" "$destination_pid" "$out/destination.log"
}

destination_get() { curl --silent --show-error --fail --max-time 300 "$destination_url$1"; }

gateway_start() { # GATEWAY CPUS MEMORY BACKEND
    local command shape=$here/shapes/${1#*-}.yaml destination=http://127.0.0.1:$SINK_HTTP/v1/metrics
    if [ "$4" = victoriametrics ]; then destination=http://127.0.0.1:$VICTORIAMETRICS_HTTP/opentelemetry/v1/metrics; fi
    case $1 in
    sluice-*) command=("$sluice" --config "$shape") ;;
    collector-*) command=("$collector" --config "$shape") ;;
    vmagent)
        command=("$vmagent" "-httpListenAddr=127.0.0.1:$GATEWAY_HTTP"
            "-remoteWrite.url=http://127.0.0.1:$VICTORIAMETRICS_HTTP/api/v1/write"
            -remoteWrite.queues=4 -remoteWrite.maxDiskUsagePerURL=0 "-remoteWrite.tmpDataPath=$out/vmagent")
        ;;
    esac
    command -v "${command[0]}" >/dev/null || { echo "no ${command[0]}" >&2; return 1; }
    vacant "$GATEWAY_HTTP" || return 1
    DESTINATION=$destination limited "$2" "$3" "${command[@]}" >"$out/gateway.log" 2>&1 9>&- &
    gateway_pid=$!
    await "http://127.0.0.1:$GATEWAY_HTTP/" "$gateway_pid" "$out/gateway.log"
}

# The cgroup counts nanoseconds or microseconds; without one there are the clock ticks of the process, 10 ms each.
gateway_counters() {
    local cpu memory at=$EPOCHREALTIME
    case $limits in
    v2) cpu=$(awk '/^usage_usec/ { print $2 "000" }' "/sys/fs/cgroup/$group/cpu.stat") ;;
    v1) cpu=$(<"/sys/fs/cgroup/cpuacct/$group/cpuacct.usage") ;;
    *) cpu=$(sed 's/.*) //' "/proc/$gateway_pid/stat" | awk -v ticks="$ticks" '{ printf "%.0f", ($12 + $13) / ticks * 1e9 }') ;;
    esac
    memory=$(awk '/^VmRSS/ { printf "%.0f", $2 * 1024 }' "/proc/$gateway_pid/status")
    echo "$at $cpu $memory"
}

gateway_problem() {
    if ! kill -0 "$gateway_pid" 2>/dev/null; then echo "the gateway ended: $(tail -n 1 "$out/gateway.log")"; fi
}

generate() { # GATEWAY BACKEND [OPTION ...]
    local options=(--target "127.0.0.1:$GATEWAY_HTTP")
    if [ "$2" = sink ]; then options+=(--account "127.0.0.1:$SINK_CONTROL"); fi
    shift 2
    "$rig" load "${options[@]}" "$@"
}

everything_stop() { # LOG
    local pid
    for pid in $gateway_pid $destination_pid; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    if [ -n "$gateway_pid" ]; then cat "$out/gateway.log" >>"$1"; fi
    if [ -n "$destination_pid" ]; then cat "$out/destination.log" >>"$1"; fi
    gateway_pid='' destination_pid=''
    rm -rf "$out/storage" "$out/vmagent"
}
