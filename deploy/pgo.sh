#!/usr/bin/env bash
# A profile of sluice under load, for a build that is guided by it: target/pgo/sluice.profdata.
#
#   deploy/pgo.sh
#   PGO_PROFILE=target/pgo/sluice.profdata deploy/build-static.sh amd64
#
# Builds sluice with counters in it, drives it with the rig through the scenarios below, and merges what it counted. The
# profile knows functions by their shape, so that one taken on amd64 serves arm64 as well; it is of this commit, and code that
# changed since is built without it. Needs llvm-profdata of the LLVM that rustc has (Debian: llvm-22; or rustup's llvm-tools).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Every way in and out that a profile should know; metrics in both, as they are most of what comes.
scenarios=metrics-zstd,metrics-none,metrics-zstd-in,metrics-gzip-in,metrics-grpc,traces-zstd,logs-zstd,metrics-remote-write,metrics-zstd-disk

out=${CARGO_TARGET_DIR:-target}
mkdir -p "$out/pgo"
out=$(cd "$out" && pwd)
llvm=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
profdata=
for candidate in "$(rustc --print target-libdir)/../bin/llvm-profdata" "llvm-profdata-$llvm"; do
    if command -v "$candidate" >/dev/null; then profdata=$candidate; fi
done
if [ -z "$profdata" ]; then
    echo "no llvm-profdata of LLVM $llvm: apt-get install llvm-$llvm, or rustup component add llvm-tools" >&2
    exit 1
fi

host=$(rustc -vV | sed -n 's/^host: //p')
rm -rf "$out/pgo/raw"
cargo build --locked --release --package sluice-rig
# With --target, the flags do not reach build scripts and procedural macros.
RUSTFLAGS="-Cprofile-generate=$out/pgo/raw" \
    cargo build --locked --profile dist --package sluice --target "$host" --target-dir "$out/pgo/build"
"$out/release/sluice-rig" compare --fail-on never --peer "sluice=$out/pgo/build/$host/dist/sluice" --scenario "$scenarios" \
    --mode fixed,saturated --repeats 1 --warm-up 1s --duration 3s --out "$out/pgo/report"
"$profdata" merge --output "$out/pgo/sluice.profdata" "$out/pgo/raw"
echo "$out/pgo/sluice.profdata"
