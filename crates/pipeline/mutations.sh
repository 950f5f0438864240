#!/usr/bin/env bash
# Plants bugs into delivery, and into the journal where only delivery shows them, one at a time, and checks that its tests find each.
# Needs a working tree without changes in both crates' src, and puts it back. SLUICE_SEEDS (2000) runs are tried for each.
set -euo pipefail
cd "$(dirname "$0")/../.."
crate=pipeline tests=delivery::simulation
others=crates/journal/src
source crates/plant.sh

plant "what is left at the end of a process is settled" delivery.rs \
  'let sent = self.attempt(&tracked).await?;' \
  'let Some(sent) = self.attempt(&tracked).await else {
                self.settle_dropped(&tracked, DropReason::Shutdown);
                return None;
            };'
plant "a batch is given up after ten tries" delivery.rs \
  'if !refused && self.gives_up(begun, tracked.turn, delay) {' \
  'if !refused && (retries > 10 || self.gives_up(begun, tracked.turn, delay)) {'
plant "a batch with a bad payload is taken for delivered" delivery.rs \
  'Ok((head, tail)) => work.extend([tail, head]),' \
  'Ok((head, tail)) => {
                self.settle_delivered(&tail, 0, None).await;
                work.push(head);
            }'
plant "a dead letter is settled and not kept" delivery/settle.rs \
  'while let Some(next) = payloads.front() {' \
  'payloads.pop_front();
                while let Some(next) = payloads.front() {'
plant "a piece settles the whole payload" delivery/settle.rs \
  'let mut delivered = part.items - here;' \
  'let mut delivered = source.payload.items - here;'
plant "a batch that waits for another attempt counts as a request" delivery.rs \
  'self.note_failure(&mut tracked, &reason, ends);
                    place.pause();' \
  'self.note_failure(&mut tracked, &reason, ends);'
plant "who asks first has each probe" gate.rs \
  'if held.probing.is_some() || held.line.first() != Some(&mine) {' \
  'if held.probing.is_some() {'

# What comes twice after a crash, and in no account.
plant "settled ranges are forgotten" crates/journal/src/disk/position.rs \
  'let ranges = &position.settled[..position.settled.len().min(room)];' \
  'let ranges = &position.settled[..0 * room];'
plant "a position is written when the next one has moved" crates/journal/src/disk/spill/pass.rs \
  'lag.moved = true;
        let done' \
  'lag.moved |= seq % 2 == 0;
        let done'

tests=delivery::tests::turns
plant "who waited for the window does not ask the gate again" delivery/place.rs \
  'if !place.begin().await {' \
  'let _ = place.begin().await;
            if true {'
tests=window
plant "first attempts go before who waits to be tried again" window.rs \
  'false => self.first == 0 && self.again > 0,' \
  'false => self.first == 0 || self.has_room(),'
plant "of those who wait to be tried again who asks first is first" window.rs \
  'self.has_room() && self.line.front() == Some(&number);' \
  'self.has_room();'
plant "who leaves keeps its turn" window.rs \
  'self.line.retain(|one| *one != number);' \
  'let _ = number;'
exit "$missed"
