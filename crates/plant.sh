# For mutations.sh of a crate: plants bugs into `crates/$crate/src`, one at a time, and checks that its `$tests` find each. Where `$others` names
# directories, bugs may be planted there as well.
sources=("crates/$crate/src" ${others:-})
if ! git diff --quiet HEAD -- "${sources[@]}"; then
  echo "${sources[*]} have changes: commit them first" >&2
  exit 2
fi
log=$(mktemp)
trap 'rm -f "$log"; git checkout --quiet HEAD -- "${sources[@]}"' EXIT
export SLUICE_SEEDS="${SLUICE_SEEDS:-2000}"
missed=0

# plant WHAT FILE FROM TO: literal text that is there exactly once. FILE: in the crate's sources, or its path from the top.
plant() {
  local file="crates/$crate/src/$2"
  [ -e "$file" ] || file=$2
  FROM="$3" TO="$4" python3 - "$file" <<'PYTHON'
import os, sys
path, old, new = sys.argv[1], os.environ["FROM"], os.environ["TO"]
text = open(path).read()
assert text.count(old) == 1, f"{path}: {old!r} is there {text.count(old)} times"
open(path, "w").write(text.replace(old, new))
PYTHON
  # The build must work, or the bug is not what fails.
  cargo test --quiet --package "sluice-$crate" --lib --locked --no-run
  if cargo test --quiet --package "sluice-$crate" --lib --locked "$tests" >"$log" 2>&1; then
    echo "MISSED: $1"
    missed=1
  else
    echo "found: $1 ($(grep -oE '[0-9]+ (seeds fail|fail,)' "$log" | tr '\n' ' '))"
  fi
  git checkout --quiet HEAD -- "${sources[@]}"
}
