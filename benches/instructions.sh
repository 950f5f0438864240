#!/usr/bin/env bash
# Counts the instructions of every hot path under callgrind and holds them against benches/instructions.txt.
#
#   benches/instructions.sh             fails when a path needs more instructions per item than the table allows
#   benches/instructions.sh --update    writes the table anew; say in the commit why it changed
#
# Unlike times, the counts are the same on a busy machine. Needs valgrind. The workloads are in benches/workloads; the
# profile of each is left in target/instructions for callgrind_annotate.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# How much more a path may take, in percent of the table. Our code is compiled by a pinned compiler and counts alike
# on every run, but for tokio's select!, which polls its arms in random order (0.12 % at most in "batch"); a new version of a
# dependency or of glibc may take a little more.
rust_percent=2
# Nearly all of these is C: zstd as the machine's C compiler makes it, and glibc's memcpy.
c_percent=5
c_paths='^(zstd|concatenate)/'

table=benches/instructions.txt
target=${CARGO_TARGET_DIR:-target}
profiles=$target/instructions
program=$target/release/sluice-instructions
update=${1:-}
case $update in
'' | --update) ;;
*)
    sed -n '2,8s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
if ! command -v valgrind >/dev/null; then
    echo "$0: valgrind is missing (Debian: apt-get install valgrind)" >&2
    exit 1
fi

# With -p sluice, the features are those of the release build, and so are nearly all artefacts.
cargo build --locked --release -p sluice -p sluice-workloads
rm -rf "$profiles"
mkdir -p "$profiles"

# jemalloc as it ships, less what it does by the clock or at random: giving pages back, tidying thread caches every
# 10 ms, threads of its own, and beginning large allocations at a random offset, on which memcpy's work depends.
allocator=abort_conf:true,narenas:1,background_thread:false,dirty_decay_ms:-1,muzzy_decay_ms:-1
allocator+=,experimental_tcache_gc:false,tcache_gc_incr_bytes:1073741824,cache_oblivious:false
# glibc picks its memcpy by CPU, and one of them goes by the byte: every CPU gets the one that all of them have.
libc=glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-AVX_Fast_Unaligned_Load,-ERMS

# count NAME: prints the name and its instructions per item.
count() {
    local profile=$profiles/${1//\//-}.out items
    if ! items=$(env -i _RJEM_MALLOC_CONF="$allocator" GLIBC_TUNABLES="$libc" \
        "$valgrind" --tool=callgrind --callgrind-out-file="$profile" --collect-atstart=no \
        --toggle-collect='*counted_by_callgrind*' "$program" "$1" 2>"$profile.log"); then
        echo "$1 could not be counted:" >&2
        cat "$profile.log" >&2
        return 1
    fi
    awk -v name="$1" -v items="$items" '
        $1 == "totals:" && $2 > 0 { printf "%s %.2f\n", name, $2 / items; counted = 1 }
        END { if (!counted) { print name ": callgrind has counted nothing" > "/dev/stderr"; exit 1 } }' "$profile"
}
export -f count
valgrind=$(command -v valgrind)
export profiles program valgrind allocator libc
counts=$profiles/counts
"$program" --list | xargs -P "$(nproc)" -I '{}' bash -euo pipefail -c 'count {}' | sort >"$counts"

if [ "$update" = --update ]; then
    {
        echo "# Instructions per item, x86-64; benches/instructions.sh compares and --update writes this."
        cat "$counts"
    } >"$table"
    cat "$table"
    exit
fi

# Valgrind shows every CPU with AVX2 to the program as the same one; what is detected elsewhere takes other paths.
if [ "$(uname -m)" != x86_64 ] || ! grep -qw avx2 /proc/cpuinfo; then
    cat "$counts"
    echo "not compared: $table is of x86-64 with AVX2"
    exit
fi
awk -v rust="$rust_percent" -v c="$c_percent" -v c_paths="$c_paths" -v profiles="$profiles" '
    /^#/ { next }
    FNR == NR { before[$1] = $2; next }
    {
        was = before[$1]; delete before[$1]
        allowed = $1 ~ c_paths ? c : rust
        if (was == "") { verdict = "not in the table"; failed++ }
        else {
            change = 100 * ($2 - was) / was
            verdict = sprintf("%+.2f %%", change)
            if (change > allowed) {
                verdict = verdict ", more than the " allowed " % allowed"
                failed++
                file = $1; gsub("/", "-", file)
                look = look "\n  callgrind_annotate " profiles "/" file ".out"
            }
            else if (change < -allowed) { verdict = verdict ", better: keep it with --update" }
        }
        printf "%-28s %12.2f  was %12s  %s\n", $1, $2, was, verdict
        if (verdict !~ /%$/ && verdict !~ /better/) names = names " " $1
    }
    END {
        for (name in before) { printf "%-28s is in the table and no workload\n", name; failed++; names = names " " name }
        if (failed) {
            printf "\n%d paths differ from the table:%s\n", failed, names
            if (look) printf "where the instructions go:%s\n", look
            print "If that is meant: benches/instructions.sh --update, and the reason in the commit."
            exit 1
        }
    }' "$table" "$counts"
