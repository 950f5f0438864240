#!/usr/bin/env bash
# Plants bugs into the journal, one at a time, and checks that its tests find each: whether the simulation is worth its name.
# Needs a working tree without changes in crates/journal/src, and puts it back. SLUICE_SEEDS (2000) lives are tried for each.
set -euo pipefail
cd "$(dirname "$0")/../.."
crate=journal tests=disk::
source crates/plant.sh

plant "clients are answered before the sync" disk/writer.rs \
  'if self.sync == SyncPolicy::Group
            && let' \
  'if self.sync == SyncPolicy::Group
            && shared.pipeline.is_empty()
            && let'
plant "a position passes what is under way" disk/spill/done.rs \
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
plant "a segment that is settled in part counts as settled whole" disk/recovery/place.rs \
  '_ => Settled::Part,' \
  '_ => Settled::All,'
exit "$missed"
