#!/bin/sh
# Which decoders read all frames (zstd) or members (gzip) of a body, and whether the probe of `passthrough: probe` tells them
# apart: it is an empty frame, then a broken one, which only a decoder that reads on can refuse.
#
#   deploy/compare/decoders/run.sh [DIR]     (default: target/decoders)
#
# Needs the zstd program, Python with venv, Go, a JDK with Maven, and Node; each is left out, and said so, where it is missing. A line for
# each decoder: "all" if it gave back both frames, "FIRST ONLY" if it gave back one without an error; and what it made of the probe.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-target/decoders}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cp "$here"/decoders.py "$here"/decoders.js "$here"/main.go "$out"
mkdir -p "$out/java/src/main/java"
cp "$here/Decoders.java" "$out/java/src/main/java"
cp "$here/pom.xml" "$out/java"
cd "$out"

have() { command -v "$1" >/dev/null || { echo "$1: not here"; return 1; }; }

awk 'BEGIN { for (i = 0; i < 1000; i++) printf "first frame " }' >first
awk 'BEGIN { for (i = 0; i < 1000; i++) printf "second frame " }' >second
: >empty
cat first second >expected
# What sluice sends: crates/otlp/src/exporter/pass_through.rs.
{ zstd -qc first; zstd -qc second; } >two.zst
{ zstd -qc empty; printf '\050\265\057\375\040\001\007\000\000'; } >probe.zst
{ gzip -c first; gzip -c second; } >two.gz
{ gzip -c empty; printf '\037\213\010\000\000\000\000\000\000\377\001\001\000\376\377?\336\255\276\357\011\000\000\000'; } >probe.gz

for body in two probe; do
    if zstd -dqc $body.zst >got 2>/dev/null; then
        if cmp -s got expected; then what=all; elif [ -s got ]; then what='FIRST ONLY'; else what='taken'; fi
    else
        what=refused
    fi
    echo "C, zstd program: $body: $what"
done
if have python3; then
    [ -d venv ] || { python3 -m venv venv && venv/bin/pip -q install zstandard pyzstd; }
    venv/bin/python decoders.py
fi
if have go; then
    [ -f go.mod ] || { go mod init decoders && go get github.com/klauspost/compress@latest; } >/dev/null 2>&1
    go run .
fi
if have mvn; then
    (cd java && mvn -q compile exec:java -Dexec.mainClass=Decoders -Dexec.workingdir=.. 2>&1 | grep -v WARN)
fi
if have node; then
    node decoders.js
fi
