#!/usr/bin/env bash
# Plants bugs into the journal, one at a time, and checks that its tests find each: whether the simulation is worth its name.
# Needs a working tree without changes in crates/journal/src, and puts it back. SLUICE_SEEDS (2000) lives are tried for each.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! git diff --quiet HEAD -- crates/journal/src; then
  echo "crates/journal/src has changes: commit them first" >&2
  exit 2
fi
log=$(mktemp)
trap 'rm -f "$log"; git checkout --quiet HEAD -- crates/journal/src' EXIT
export SLUICE_SEEDS="${SLUICE_SEEDS:-2000}"
missed=0

# plant WHAT FILE FROM TO: literal text that is there exactly once.
plant() {
  FROM="$3" TO="$4" python3 - "crates/journal/src/$2" <<'PYTHON'
import os, sys
path, old, new = sys.argv[1], os.environ["FROM"], os.environ["TO"]
text = open(path).read()
assert text.count(old) == 1, f"{path}: {old!r} is there {text.count(old)} times"
open(path, "w").write(text.replace(old, new))
PYTHON
  # The build must work, or the bug is not what fails.
  cargo test --quiet --package sluice-journal --lib --locked --no-run
  if cargo test --quiet --package sluice-journal --lib --locked disk:: >"$log" 2>&1; then
    echo "MISSED: $1"
    missed=1
  else
    echo "found: $1 ($(grep -oE '[0-9]+ (seeds fail|fail,)' "$log" | tr '\n' ' '))"
  fi
  git checkout --quiet HEAD -- crates/journal/src
}

plant "clients are answered before the sync" disk/writer.rs \
  'if self.sync == SyncPolicy::Group
            && let' \
  'if self.sync == SyncPolicy::Group
            && shared.pipeline.is_empty()
            && let'
plant "a position passes what is under way" disk/spill.rs \
  'let floor = lag.in_flight.first().copied().unwrap_or(next);' \
  'let floor = next;'
plant "a damaged record is believed about its length" disk/scan.rs \
  'return Some(self.skip_damage(start, behind_header, false));' \
  'return Some(self.skip_damage(start, next, false));'
plant "numbers of a failed write are used again in another segment" disk/log.rs \
  'self.next_seq = self.next_seq.max(self.behind_highest);' \
  'let _ = self.behind_highest;'
plant "bodies are not checked" disk/scan.rs \
  'if crc32c::crc32c(self.body()) != header.body_crc {' \
  'if header.kind == Kind::Footer && crc32c::crc32c(self.body()) != header.body_crc {'
plant "settled ranges are forgotten" disk/position.rs \
  'let ranges = &position.settled[..position.settled.len().min(room)];' \
  'let ranges = &position.settled[..0 * room];'
exit "$missed"
