# The engine of run.sh that runs containers, with the services of compose.yaml. Sourced; measure.sh says what it must have.
# shellcheck shell=bash disable=SC2154 # variables of run.sh

compose() {
    if docker compose version >/dev/null 2>&1; then
        docker compose --project-directory "$here" --file "$here/compose.yaml" "$@"
    else
        docker-compose --project-directory "$here" --file "$here/compose.yaml" "$@"
    fi
}

# The engine's own counters, which `docker stats` shows after a pause of two seconds.
engine_api() { # PATH
    case $engine_host in
    unix://*) curl --silent --fail --unix-socket "${engine_host#unix://}" "http://engine$1" ;;
    tcp://*) curl --silent --fail "http://${engine_host#tcp://}$1" ;;
    *) fail "no way to ask the engine at $engine_host for its counters; use a context with unix:// or tcp://" ;;
    esac
}

engine_prepare() {
    command -v docker >/dev/null || fail "docker is missing; --processes does without"
    engine_host=$(docker context inspect --format '{{.Endpoints.docker.Host}}')
    engine_api /version >/dev/null || fail "no Docker engine answers at $engine_host"
    everything_stop /dev/null
    if $dashboards; then compose --profile dashboards up --detach victoriametrics prometheus grafana >&2; fi
}

engine_finish() {
    everything_stop /dev/null
    if $dashboards; then
        echo "Grafana goes on at http://localhost:$GRAFANA_HTTP; docker compose --profile dashboards down ends it" >&2
    else
        compose down >/dev/null 2>&1 || true
    fi
}

engine_limits() { echo "Containers with a CPU quota and a memory limit, no swap; memory as docker stats has it"; }
engine_cpus() { docker info --format '{{.NCPU}}'; }

destination_start() { # BACKEND
    destination_url=http://127.0.0.1:$SINK_CONTROL
    local service=sink ready=/stats
    if [ "$1" = victoriametrics ]; then
        destination_url=http://127.0.0.1:$VICTORIAMETRICS_HTTP service=victoriametrics ready=/health
    fi
    compose --profile "$service" up --detach --no-build --no-deps --force-recreate "$service" &&
        await "$destination_url$ready" "$service"
}

destination_get() { curl --silent --show-error --fail --max-time 300 "$destination_url$1"; }

await() { # URL SERVICE
    local code
    for _ in $(seq 300); do
        # Any answer will do: a gateway has none but 404 for /.
        code=$(curl --silent --output /dev/null --write-out '%{http_code}' --max-time 2 "$1" || true)
        if [ "$code" != 000 ]; then return; fi
        sleep 0.1
    done
    compose logs --no-color --tail 5 "$2" >&2
    echo "$2 does not answer at $1" >&2
    return 1
}

gateway_start() { # GATEWAY CPUS MEMORY BACKEND
    local service=$1 destination=http://sink:24318/v1/metrics
    if [ "$4" = victoriametrics ]; then destination=http://victoriametrics:8428/opentelemetry/v1/metrics; fi
    PROXY_CPU=$2 PROXY_MEM=$3 DESTINATION=$destination \
        compose --profile "$service" up --detach --no-build --no-deps --force-recreate "$service" &&
        container=$(compose --profile "$service" ps --quiet "$service") &&
        await "http://127.0.0.1:$GATEWAY_HTTP/" "$service"
}

# Memory as `docker stats` has it: without the page cache that could be given back.
gateway_counters() {
    engine_api "/containers/$container/stats?stream=false&one-shot=true" | jq --raw-output '
        (.memory_stats.stats // {}) as $memory |
        (.read | capture("(?<date>.*)(?<fraction>\\.[0-9]+)Z") | "\(.date + "Z" | fromdate)\(.fraction)") as $at |
        "\($at) \(.cpu_stats.cpu_usage.total_usage) \(
            .memory_stats.usage - ($memory.total_inactive_file // $memory.inactive_file // 0))"'
}

gateway_problem() {
    docker inspect --format '{{if .State.OOMKilled}}killed: out of memory{{else if not .State.Running}}ended with status {{.State.ExitCode}}{{end}}' \
        "$container"
}

generate() { # GATEWAY BACKEND [OPTION ...]
    local options=(--target gateway:4318)
    if [ "$2" = sink ]; then options+=(--account sink:24319); fi
    shift 2
    compose --profile load run --rm --no-deps -T load load "${options[@]}" "$@"
}

everything_stop() { # LOG
    local name services=("${all_gateways[@]}" sink)
    if ! $dashboards; then services+=(victoriametrics); fi
    local profiles=()
    for name in "${services[@]}"; do profiles+=(--profile "$name"); done
    compose "${profiles[@]}" logs --no-color >>"$1" 2>&1 || true
    compose "${profiles[@]}" rm --stop --force "${services[@]}" >/dev/null 2>&1 || true
    # A load that was interrupted: Compose does not count a container of `run` among those of a service.
    docker ps --all --quiet --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" \
        --filter label=com.docker.compose.service=load | xargs --no-run-if-empty docker rm --force >/dev/null 2>&1 || true
}
