//! How the end of a batch gets into the account.

use std::collections::VecDeque;
use std::sync::Arc;

use sluice_journal::{Entry, Refusal, Settled};
use sluice_payload::{Payload, TenantId};
use sluice_telemetry::DropReason;
use tokio::time::Instant;

use super::Delivery;
use crate::Refused;
use crate::tracked::Tracked;

impl Delivery {
    /// The destination refuses `tracked` for good, and it is not worth, or not possible, to look for what is good in it. `None`: it is left.
    pub(super) async fn refused(&self, tracked: &Tracked, reason: &str) -> Option<()> {
        let is_kept = self.keep(tracked, reason).await?;
        let (exporter, signal) = (&self.settings.exporter, self.signal);
        let (items, bytes) = (tracked.batch.items(), tracked.batch.bytes());
        if is_kept {
            tracing::error!(exporter, %signal, items, bytes, reason, "the destination refuses this payload for good; it is kept as a dead letter");
            self.settle_dropped(tracked, DropReason::DeadLetter);
        } else {
            tracing::error!(exporter, %signal, items, bytes, reason, "dropped a payload that the destination refuses for good");
            self.settle_dropped(tracked, DropReason::PayloadFault);
        }
        Some(())
    }

    /// Keeps a batch as dead letters, one a part. Settling comes after it, so that a crash between the two repeats and never loses.
    async fn keep(&self, tracked: &Tracked, reason: &str) -> Option<bool> {
        let signal = self.signal;
        let payloads: VecDeque<_> = (tracked.sources.iter().zip(&tracked.batch.parts))
            .map(|(source, part)| Payload {
                signal,
                body: part.body.clone(),
                frame: part.frame.clone(),
                items: part.items,
                wire_format: part.wire_format,
                tenant: source.payload.tenant,
                received_at: source.payload.received_at,
                permit: None,
            })
            .collect();
        self.keep_payloads(payloads, reason).await
    }

    /// Whether these are dead letters now. What the disk does not take, because it is full say, is tried as long as a batch is; `None`: the
    /// process ends before, and the next one is refused them again.
    async fn keep_payloads(&self, mut payloads: VecDeque<Payload>, reason: &str) -> Option<bool> {
        let Some(letters) = self.settings.dead_letters.clone() else {
            return Some(false);
        };
        let refusal = Arc::new(Refusal {
            exporter: self.settings.exporter.clone(),
            reason: reason.to_owned(),
        });
        let (exporter, signal) = (&self.settings.exporter, self.signal);
        let begun = Instant::now();
        let mut retries = 0;
        loop {
            let (letters, refusal) = (letters.clone(), refusal.clone());
            let keeping = tokio::task::spawn_blocking(move || {
                while let Some(next) = payloads.front() {
                    if let Err(error) = letters.keep(next, &refusal) {
                        return (payloads, Some(error));
                    }
                    payloads.pop_front();
                }
                (payloads, None)
            });
            let error = match keeping.await {
                Ok((_, None)) => return Some(true),
                Ok((left, Some(error))) => {
                    payloads = left;
                    error
                }
                Err(panicked) => {
                    tracing::error!(exporter, %signal, %panicked, "keeping a dead letter panicked; please report the panic message above");
                    return Some(false);
                }
            };
            let retry = &self.settings.retry;
            let delay = retry.delay(retries, self.jitter.draw());
            let is_over = |max| begun.elapsed() + delay > max;
            if !retry.enabled || retry.max_elapsed_time.is_some_and(is_over) {
                tracing::error!(
                    exporter, %signal, %error,
                    "what the destination refuses could not be kept as a dead letter until retry_on_failure.max_elapsed_time had passed"
                );
                return Some(false);
            }
            if retries == 0 {
                tracing::error!(
                    exporter, %signal, %error,
                    "what the destination refuses cannot be kept as a dead letter; it is tried until it can: free some space"
                );
            }
            retries = retries.saturating_add(1);
            self.unless_left(tokio::time::sleep(delay)).await?;
        }
    }

    /// Gives up a payload that the exporter does not read. Receivers put none into its queue; but a queue on disk may have some that
    /// were there before the exporter, and where its position in it is lost, it begins with those.
    pub(super) fn give_up(&self, entry: &Entry) {
        let items = entry.payload.items;
        tracing::error!(
            exporter = self.settings.exporter, signal = %self.signal, items,
            "dropped a payload of remote write that was meant for the exporters this pipeline had before"
        );
        self.cursor.settle(&[Settled {
            seq: entry.seq,
            delivered: 0,
            dropped: Some((DropReason::PayloadFault, items)),
        }]);
    }

    pub(super) fn settle_dropped(&self, tracked: &Tracked, reason: DropReason) {
        let settled: Vec<_> = tracked
            .sources
            .iter()
            .zip(&tracked.batch.parts)
            .map(|(source, part)| Settled {
                seq: source.seq,
                delivered: 0,
                dropped: Some((reason, part.items)),
            })
            .collect();
        self.cursor.settle(&settled);
    }

    /// Keeps the pieces that the destination refuses as dead letters, and settles the rest as [delivered](Self::settle_delivered).
    /// Whose they are nobody knows where the batch is of several tenants: then they are kept as nobody's.
    pub(super) async fn settle_in_part(
        &self,
        tracked: &Tracked,
        refused: Vec<Refused>,
        rejected: u64,
    ) -> Option<()> {
        let Some(first) = tracked.sources.first() else {
            return Some(());
        };
        let tenant = first.payload.tenant;
        let is_one = tracked
            .sources
            .iter()
            .all(|source| source.payload.tenant == tenant);
        let mut dead = 0;
        for one in refused {
            let letter = Payload {
                signal: self.signal,
                body: one.body,
                frame: None,
                items: one.items,
                wire_format: one.wire_format,
                tenant: if is_one { tenant } else { TenantId::DEFAULT },
                received_at: first.payload.received_at,
                permit: None,
            };
            if self.keep_payloads(VecDeque::from([letter]), &one.reason).await? {
                dead += one.items;
            } else {
                tracing::error!(
                    exporter = self.settings.exporter, signal = %self.signal, items = one.items, reason = one.reason,
                    "dropped what the destination refuses for good"
                );
            }
        }
        self.settle_parts(tracked, rejected, dead);
        Some(())
    }

    /// The destination says how many items it rejected, not which: they are taken from the first
    /// payloads. The sum is exact; the share of each payload is not known to anybody. Only where it is all of them is
    /// there something to keep.
    pub(super) async fn settle_delivered(
        &self,
        tracked: &Tracked,
        rejected: u64,
        message: Option<String>,
    ) -> Option<()> {
        let all = tracked.batch.items();
        let rejected = rejected.min(all);
        let message = message.unwrap_or_default();
        if rejected == all && all > 0 && self.settings.dead_letters.is_some() {
            let reason = format!("partial success: all {all} items rejected: {message}");
            return self.refused(tracked, &reason).await;
        }
        if rejected > 0 || !message.is_empty() {
            tracing::warn!(
                exporter = self.settings.exporter, signal = %self.signal, rejected, message, "partial success"
            );
        }
        self.settle_parts(tracked, rejected, 0);
        Some(())
    }

    /// Settles a batch less so many rejected items, of which so many are dead letters.
    fn settle_parts(&self, tracked: &Tracked, rejected: u64, dead: u64) {
        let mut rejected = rejected.min(tracked.batch.items());
        let mut dead = dead.min(rejected);
        let mut settled = Vec::with_capacity(tracked.sources.len());
        for (source, part) in tracked.sources.iter().zip(&tracked.batch.parts) {
            let here = rejected.min(part.items);
            let letters = dead.min(here);
            rejected -= here;
            dead -= letters;
            let mut delivered = part.items - here;
            for (reason, items) in [
                (DropReason::DeadLetter, letters),
                (DropReason::PartialSuccess, here - letters),
            ] {
                if items > 0 {
                    settled.push(Settled {
                        seq: source.seq,
                        delivered: std::mem::take(&mut delivered),
                        dropped: Some((reason, items)),
                    });
                }
            }
            if here == 0 {
                settled.push(Settled {
                    seq: source.seq,
                    delivered,
                    dropped: None,
                });
            }
        }
        self.cursor.settle(&settled);
    }
}
