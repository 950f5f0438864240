#!/usr/bin/env bash
# One static executable: target/static/<arch>/sluice, or the one of another package of this workspace (sluice-rig).
#
#   deploy/build-static.sh amd64|arm64 [gnu|musl [PACKAGE]]
#
# gnu (the default, and the faster) links glibc statically. It needs a C compiler for the architecture:
# for the machine's own the usual one with its static libc, for the other one a cross compiler
# (Debian: gcc-aarch64-linux-gnu or gcc-x86-64-linux-gnu). musl needs zig and cargo-zigbuild instead
# (pip install ziglang cargo-zigbuild), and cross-compiles with them from anywhere.
#
# PGO_PROFILE=FILE: a profile to be guided by (deploy/pgo.sh makes one).
#
# The flags are here and not in the configuration of cargo, because only what ships needs them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
    echo "usage: deploy/build-static.sh amd64|arm64 [gnu|musl [PACKAGE]]" >&2
    exit 2
}

if [ $# -lt 1 ] || [ $# -gt 3 ]; then usage; fi
arch=$1
libc=${2:-gnu}
package=${3:-sluice}
case $arch in
    amd64) machine=x86_64 ;;
    arm64)
        machine=aarch64
        # Kernels for arm64 have pages of 4, 16 or 64 KiB; an allocator built for 64 runs on all of them.
        export JEMALLOC_SYS_WITH_LG_PAGE=16
        ;;
    *) usage ;;
esac
case $libc in gnu | musl) ;; *) usage ;; esac

triple=$machine-unknown-linux-$libc
out=${CARGO_TARGET_DIR:-target}
mkdir -p "$out/static/$arch"
build=(--locked --profile dist --package "$package" --bin "$package" --target "$triple")

flags=()
if [ -n "${PGO_PROFILE:-}" ]; then
    flags+=("-Cprofile-use=$(realpath --canonicalize-existing "$PGO_PROFILE")")
fi

if ! rustc --print target-libdir --target "$triple" | xargs test -d; then
    rustup target add "$triple"
fi

if [ "$libc" = gnu ]; then
    variable=${triple//-/_}
    if [ "$(rustc -vV | sed -n 's/^host: //p')" = "$triple" ]; then
        compiler=cc
    else
        compiler=$machine-linux-gnu-gcc
    fi
    compiler_variable=CC_$variable
    compiler=${!compiler_variable:-$compiler}
    if ! command -v "$compiler" >/dev/null; then
        echo "no $compiler: install gcc-${machine//_/-}-linux-gnu, or build with musl and zig" >&2
        exit 1
    fi

    # A static glibc reads /etc/nsswitch.conf and would load the machine's plugins for what it names
    # (mdns, resolve, ...), made for another glibc. Files and DNS are linked in: ask for these, always.
    object=$(cd "$out/static" && pwd)/nss-$arch.o
    "$compiler" -O2 -c -x c -o "$object" - <<'C'
extern int __nss_configure_lookup(const char *database, const char *services);
__attribute__((constructor)) static void use_what_is_linked_in(void) {
    __nss_configure_lookup("hosts", "files dns");
}
C
    linker=CARGO_TARGET_${variable^^}_LINKER
    export "$compiler_variable=$compiler" "$linker=$compiler"
    flags+=(-Ctarget-feature=+crt-static "-Clink-arg=$object")
    builder=build
else
    builder=zigbuild
fi
# With --target, the flags do not reach build scripts and procedural macros.
if [ ${#flags[@]} -gt 0 ]; then
    CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f'; printf %s "${flags[*]}")
    export CARGO_ENCODED_RUSTFLAGS
fi
cargo "$builder" "${build[@]}"

binary=$out/static/$arch/$package
cp "$out/$triple/dist/$package" "$binary"
# No interpreter and no library asked for: nothing but a kernel is needed to run it.
if readelf --program-headers "$binary" | grep -q INTERP || readelf --dynamic "$binary" | grep -q NEEDED; then
    echo "$binary is not static" >&2
    exit 1
fi
echo "$binary: static, $(stat -c %s "$binary") bytes"
