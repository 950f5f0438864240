//! Batches that fail again and again while others are delivered.

use std::time::Duration;

use tokio::time::Instant;

use super::Delivery;
use crate::tracked::Tracked;

/// What becomes of a batch that others pass by, and what to do; `ends`: how long it is tried.
fn passed_by_means(ends: Option<Duration>, is_durable: bool) -> String {
    let (kept, written_out) = match is_durable {
        true => (
            " and its segment of the journal",
            "; sluice journal export writes out what waits",
        ),
        false => ("", ""),
    };
    let (until, mend) = match ends {
        Some(time) => (
            format!("until {time:?} after its first attempt it is tried, and then given up; so long"),
            "",
        ),
        None => (
            "it is tried for ever, and".to_owned(),
            ", or set retry_on_failure.max_elapsed_time",
        ),
    };
    format!(
        "{until} it keeps its place among the batches under way{kept}: mend what refuses it{mend}{written_out}"
    )
}

impl Delivery {
    /// A batch was not taken, once more; it is tried until `ends`, or for ever. Says so, once, where others have passed it by often.
    pub(super) fn note_failure(&self, tracked: &mut Tracked, reason: &str, ends: Option<Duration>) {
        // Of several endpoints with keys of their own, what the others take says nothing about a batch of this one.
        let of_all = *self.delivered.lock();
        let delivered = match &tracked.to {
            Some(owner) => owner.delivered(of_all),
            None => of_all,
        };
        if !tracked.tries.fails(Instant::now(), delivered) {
            return;
        }
        self.metrics.passed_by.add(1);
        tracing::error!(
            exporter = self.settings.exporter, signal = %self.signal, items = tracked.batch.items(),
            first_number = tracked.sources.first().map(|source| source.seq), reason,
            "a batch fails again and again while others are delivered; {}",
            passed_by_means(ends, self.cursor.is_durable())
        );
    }
}
