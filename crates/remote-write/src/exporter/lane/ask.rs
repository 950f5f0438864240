//! What a lane asks: one request, and whether a body that was refused was written all the same.

use tokio::time::Instant;

use super::{Heard, Lane, LaneEnd};
use crate::body::Body;
use crate::exporter::Inner;
use crate::exporter::classify::{Settled, came, settled};
use crate::exporter::repeats::{Found, Repeats};
use crate::rewrite::name_of_first;

impl Lane {
    /// Sends a body when it has its turn, and says what came of it, and whether that is a no to everything. What was taken is counted. While there is such a no nothing is
    /// sent, unless it is `about_a_no`.
    pub(super) async fn ask(
        &mut self,
        body: &Body,
        about_a_no: bool,
        inner: &Inner,
        heard: &Heard,
    ) -> Result<(Settled, bool), LaneEnd> {
        let shard = inner.shard_of(self.number);
        let (shard, said) = (&inner.shards[shard], &heard[shard]);
        let Body { format, written, .. } = *body;
        let proven = shard.formats.is_proven(format);
        let turn = shard.turns.take(body.bytes.len()).await;
        if let Some(end) = said.no().filter(|_| !about_a_no) {
            return Err(end.clone());
        }
        let answer = inner.post(shard, self.tenant.as_ref(), body).await;
        let came = came(&answer);
        let settled = settled(answer, format, written, proven);
        // Before the turn ends: whoever has the next one is to know.
        let is_no = match &settled {
            Settled::Hold { reason } => {
                self.noes += 1;
                said.says_no(reason)
            }
            Settled::Taken | Settled::InPart { .. } => {
                said.takes();
                shard.untried.took();
                *shard.took_at.lock() = Some(Instant::now());
                false
            }
            // It has read them and judges their samples: it works.
            Settled::TooOld { .. } => {
                said.takes();
                shard.untried.took();
                shard.formats.prove(format);
                false
            }
            Settled::TooLarge { reason } | Settled::Refused { reason } => {
                !about_a_no && shard.untried.refused() && said.says_no(reason)
            }
            _ => false,
        };
        turn.end(came, is_no);
        let taken = match &settled {
            Settled::Taken => written,
            Settled::InPart { written, .. } => *written,
            _ => return Ok((settled, is_no)),
        };
        self.took(inner);
        shard.formats.prove(format);
        inner.metrics.samples.add(taken.points());
        Ok((settled, is_no))
    }

    /// Of a body that was refused: finds out whether the destination has it all the same, but for what is bad (`repeats.rs` has how). The body comes back where it is to be
    /// cut as it is.
    pub(super) async fn ask_about_repeats(
        &mut self,
        body: Body,
        reason: &str,
        inner: &Inner,
        heard: &Heard,
    ) -> Result<Option<Body>, LaneEnd> {
        let repeats = match self.asks_left {
            0 => None,
            _ => Repeats::of(&body),
        };
        let Some(mut repeats) = repeats else {
            return Ok(Some(body));
        };
        let mut end = None;
        while let Some(sample) = repeats.next() {
            match self.ask(&sample, true, inner, heard).await {
                Ok((Settled::Taken | Settled::InPart { .. }, _)) => repeats.answered(true),
                Ok((Settled::Refused { .. } | Settled::TooOld { .. }, _)) => repeats.answered(false),
                Ok((Settled::Hold { reason }, _)) => end = Some(LaneEnd::Hold { reason }),
                Ok((Settled::Retry { after, reason }, _)) => end = Some(LaneEnd::Retry { after, reason }),
                // Of a body of one sample that is new: the body has its turn again.
                Ok(_) => break,
                Err(other) => end = Some(other),
            }
            if end.is_some() {
                break;
            }
        }
        let left = match repeats.found() {
            Found::Nothing(body) if end.is_none() => {
                self.asks_left -= 1;
                return Ok(Some(body));
            }
            Found::Nothing(body) => Some(body),
            Found::NotWritten { rest, refused } => {
                self.asks_left = 0;
                if let Some(refused) = refused {
                    self.refuse(refused, reason.to_owned(), inner);
                }
                rest
            }
            Found::Written { newest, older } => {
                self.older.extend(older);
                newest
            }
        };
        self.work.infer_nothing();
        if let Some(left) = left {
            self.work.put_back(left);
        }
        end.map_or(Ok(None), Err)
    }

    /// The batch is done in this lane: what is older than what the destination took was not refused with its series.
    pub(super) fn leave_older(&mut self, inner: &Inner) {
        let older = std::mem::take(&mut self.older);
        let samples: u64 = older.iter().map(|body| body.written.points()).sum();
        if samples == 0 {
            return;
        }
        inner.metrics.older_samples.add(samples);
        tracing::warn!(
            exporter = inner.id,
            samples,
            first = name_of_first(&older[0]),
            "the destination refused a request and has most of it all the same, for it takes the newest samples of its series again and none \
             before them: it wrote the request but for what is bad, or its answer was lost; where that is not so these samples come too late for it"
        );
    }
}
