#!/bin/sh
# Builds what sluice is compared and tested with: otelcol (with its own builder) and telemetrygen.
# Usage: deploy/compare/build-peers.sh [DIR]     (default: target/peers; needs Go and its module proxy)
set -eu

VERSION=v0.161.0
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-target/peers}
mkdir -p "$out"
out=$(cd "$out" && pwd)

# One compiler at a time, at low priority: these builds are long and usually share the machine.
export GOFLAGS="${GOFLAGS:-} -p=1" GOBIN="$out"
if [ ! -x "$out/otelcol" ]; then
    nice -n 15 go install "go.opentelemetry.io/collector/cmd/builder@$VERSION"
    mkdir -p "$out/build"
    sed "s/@VERSION@/$VERSION/" "$here/builder.yaml" >"$out/build/builder.yaml"
    (cd "$out/build" && nice -n 15 "$out/builder" --config builder.yaml)
    mv "$out/build/otelcol-src/otelcol" "$out/otelcol"
fi
if [ ! -x "$out/telemetrygen" ]; then
    nice -n 15 go install \
        "github.com/open-telemetry/opentelemetry-collector-contrib/cmd/telemetrygen@$VERSION"
fi
ls -l "$out/otelcol" "$out/telemetrygen"
