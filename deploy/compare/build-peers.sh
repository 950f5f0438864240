#!/bin/sh
# Builds or fetches what sluice is compared and tested with, from the Go module proxy and PyPI.
#
# Usage: deploy/compare/build-peers.sh [DIR [NAME ...]]     (default: target/peers otelcol telemetrygen)
#   NAME: otelcol, telemetrygen, vmagent, victoria-metrics, prometheus, metrics-governor, rotel, or "all"
#
# What is in DIR already is left as it is. At the end it says what became of each; it fails if one could not be had.
set -u

OTELCOL=v0.161.0
VMAGENT=v1.149.0
# 3.14.0, by the numbers of its Go module.
PROMETHEUS=v0.314.0
METRICS_GOVERNOR=v1.2.0
# The newest on PyPI, a pre-release: pip takes it only by its version.
ROTEL=0.0.1a15

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-target/peers}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- otelcol telemetrygen
[ "$*" != all ] || set -- otelcol telemetrygen vmagent victoria-metrics prometheus metrics-governor rotel
mkdir -p "$out/build" && out=$(cd "$out" && pwd) || exit 1

# One compiler at a time, at low priority: these builds are long and usually share the machine.
export GOFLAGS="${GOFLAGS:-} -p=1" GOBIN="$out"

# With the Collector's own builder: only what the comparison uses.
build_otelcol() {
    nice -n 15 go install "go.opentelemetry.io/collector/cmd/builder@$OTELCOL" &&
        sed "s/@VERSION@/$OTELCOL/" "$here/builder.yaml" >"$out/build/builder.yaml" &&
        (cd "$out/build" && nice -n 15 "$out/builder" --config builder.yaml) &&
        mv "$out/build/otelcol-src/otelcol" "$out/otelcol"
}

build_telemetrygen() {
    nice -n 15 go install \
        "github.com/open-telemetry/opentelemetry-collector-contrib/cmd/telemetrygen@$OTELCOL"
}

# Builds DIR/NAME from PACKAGE of MODULE@VERSION. Not `go install`, which takes no module with replacements, and asks for
# the list of all versions as well, which not every module proxy gives.
build_module() { # NAME MODULE VERSION PACKAGE
    go mod download -json "$2@$3" >"$out/build/$1.json" || {
        cat "$out/build/$1.json" >&2
        return 1
    }
    source=$(sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p' "$out/build/$1.json")
    # The name of vmagent's version; others have no such variable, and the linker ignores it.
    nice -n 15 go build -C "$source" -o "$out/$1" -ldflags "-X $2/lib/buildinfo.Version=$1-$3" "$4"
}

# With cgo, where a C compiler is there, its zstd is the C library, which is faster; CGO_ENABLED=0 builds it with Go's.
build_vmagent() {
    build_module vmagent github.com/VictoriaMetrics/VictoriaMetrics "$VMAGENT" ./app/vmagent
}

# The single-node database of the same module.
build_victoria_metrics() {
    build_module victoria-metrics github.com/VictoriaMetrics/VictoriaMetrics "$VMAGENT" ./app/victoria-metrics
}

# Without service discovery, which is most of it; without its pages, which the module does not hold.
build_prometheus() {
    GOWORK=off GOFLAGS="$GOFLAGS -tags=remove_all_sd" \
        build_module prometheus github.com/prometheus/prometheus "$PROMETHEUS" ./cmd/prometheus
}

build_metrics_governor() {
    build_module metrics-governor github.com/szibis/metrics-governor "$METRICS_GOVERNOR" ./cmd/metrics-governor
}

# The package for Python brings the gateway as an executable. That needs the libpython of the Python that it was built
# for, which is why it is tried here.
build_rotel() {
    rm -rf "$out/build/rotel" &&
        python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$out/build/rotel" "rotel==$ROTEL" &&
        python3 -m zipfile -e "$out"/build/rotel/rotel-*.whl "$out/build/rotel" &&
        chmod +x "$out/build/rotel/rotel/rotel-agent" &&
        "$out/build/rotel/rotel/rotel-agent" --version &&
        mv "$out/build/rotel/rotel/rotel-agent" "$out/rotel"
}

build() { # NAME
    case $1 in
    otelcol) build_otelcol ;;
    telemetrygen) build_telemetrygen ;;
    vmagent) build_vmagent ;;
    victoria-metrics) build_victoria_metrics ;;
    prometheus) build_prometheus ;;
    metrics-governor) build_metrics_governor ;;
    rotel) build_rotel ;;
    *)
        echo "$0: nothing is known of $1; see the top of this script" >&2
        return 1
        ;;
    esac
}

summary=
failed=0
for name in "$@"; do
    if [ -x "$out/$name" ]; then
        became="was there"
    elif build "$name" && [ -x "$out/$name" ]; then
        became="built"
    else
        became="NOT BUILT: its error is above"
        failed=1
    fi
    summary="$summary$(printf '%-18s%s' "$name" "$became")
"
done
printf '\n%s: %s\n%s' "$0" "$out" "$summary"
exit $failed
