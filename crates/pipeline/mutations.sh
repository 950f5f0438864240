#!/usr/bin/env bash
# Plants bugs into delivery, one at a time, and checks that its simulation finds each.
# Needs a working tree without changes in crates/pipeline/src, and puts it back. SLUICE_SEEDS (2000) runs are tried for each.
set -euo pipefail
cd "$(dirname "$0")/../.."
crate=pipeline tests=delivery::simulation
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
  'payloads.iter().try_for_each(|one| letters.keep(one, &refusal))' \
  'payloads.iter().skip(1).try_for_each(|one| letters.keep(one, &refusal))'
plant "a piece settles the whole payload" delivery/settle.rs \
  'delivered: part.items - here,' \
  'delivered: source.payload.items - here,'
plant "a batch that waits for another attempt counts as a request" delivery.rs \
  'self.note_failure(&mut tracked, &reason, ends);
                    place.pause();' \
  'self.note_failure(&mut tracked, &reason, ends);'
plant "who asks first has each probe" gate.rs \
  'if held.probing || held.line.first() != Some(&mine) {' \
  'if held.probing {'
exit "$missed"
