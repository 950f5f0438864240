//! Batches in their encoded form, from before their first attempt until they end.

use bytes::Bytes;
use sluice_client::EgressPermit;
use sluice_payload::WireFormat;
use sluice_pipeline::{Batch, Turn, Verdict};
use tokio::time::Instant;

use super::Inner;
use super::lane::Lane;
use super::tenant::Tenant;
use crate::cumulative::{Change, MAX_CHANGES_BYTES};
use crate::dropped::Reason;
use crate::lane_set::LaneSet;
use crate::transcode::Outcome;

/// Batches from this size on are encoded off the reactor, where there is another core to do it: some 2 ms of work.
const OFF_REACTOR_FROM_BYTES: usize = 1 << 20;

/// Bodies are expected to take this part of the OTLP they are made from: what series have in common is written once, so it
/// is the ids and values that count, as in OTLP that is compressed.
const EXPECTED_PART: usize = 2;

/// What is left to send of a batch.
#[derive(Debug)]
pub(super) struct Pending {
    /// The bytes of the batch: holding them keeps their addresses from being used again, which is how the batch is known from its pieces.
    parts: Vec<Bytes>,
    pub lanes: Vec<Lane>,
    /// Data points that no series was sent for.
    pub rejected: u64,
    /// Lanes in which some of it had been delivered before, which is not in them now.
    pub delivered: LaneSet,
    added: Option<Added>,
}

/// What a batch has made of the totals of deltas, until the batch is done. It is kept though it should take more than was expected and there be no
/// room: without it points of the batch are lost when it is encoded once more.
#[derive(Debug)]
struct Added {
    changes: Vec<Change>,
    _room: EgressPermit,
}

impl Pending {
    pub fn is_of(&self, batch: &Batch) -> bool {
        let same = |(a, b): (&Bytes, &Bytes)| a.as_ptr() == b.as_ptr() && a.len() == b.len();
        self.parts.len() == batch.parts.len()
            && self
                .parts
                .iter()
                .zip(batch.parts.iter().map(|part| &part.body))
                .all(same)
    }
}

impl Inner {
    /// What is left of the batch, encoded now if it was not before. Where memory is short, that waits until it is the oldest of its delivery.
    pub async fn pending(&self, batch: &Batch, turn: Turn, of: Option<&Tenant>) -> Result<Pending, Verdict> {
        let known = self.kept.lock().remove(&turn);
        match known {
            Some(pending) if pending.is_of(batch) => return Ok(pending),
            Some(other) => self.encode_again(other, turn, true).await,
            None => {}
        }
        let begun = Instant::now();
        let bytes = self.expected_bytes(batch);
        let room = loop {
            let changed = self.order.changed();
            if self.order.is_first(turn) {
                self.order.set_waited(turn, begun.elapsed());
                break self.egress.reserve(bytes).await;
            }
            if self.order.may_encode(turn)
                && let Some(room) = self.egress.try_reserve(bytes)
            {
                self.order.set_waited(turn, begun.elapsed());
                break room;
            }
            if self.order.is_left_before(turn) {
                return Err(left());
            }
            changed.await;
        };
        self.encode(batch, turn, of, room).await
    }

    /// Encodes the batch that will be sent next, so that the destination need not wait for that; where memory is short, it is
    /// encoded in its turn.
    pub async fn encode_ahead(&self, batch: &Batch, turn: Turn, of: Option<&Tenant>) {
        self.order.enter(turn);
        if !self.order.may_encode(turn) {
            return;
        }
        let Some(room) = self.egress.try_reserve(self.expected_bytes(batch)) else {
            return;
        };
        if let Ok(pending) = self.encode(batch, turn, of, room).await {
            self.keep(pending, turn);
        }
    }

    async fn encode(
        &self,
        batch: &Batch,
        turn: Turn,
        of: Option<&Tenant>,
        mut room: EgressPermit,
    ) -> Result<Pending, Verdict> {
        let parts: Vec<Bytes> = batch.parts.iter().map(|part| part.body.clone()).collect();
        let formats: Vec<WireFormat> = batch.parts.iter().map(|part| part.wire_format).collect();
        let mut encoder = self.encoder.clone().lock_owned().await;
        encoder.set_format(self.format());
        encoder.set_tenant(of.and_then(Tenant::name));
        let off_reactor =
            encoder.waits_for_a_file() || self.has_several_cores && batch.bytes() >= OFF_REACTOR_FROM_BYTES;
        let positions = self.positions.clone();
        let tenant = of.cloned();
        let work = move || {
            let bodies = parts.iter().map(|part| &part[..]);
            let bodies: Vec<_> = formats.into_iter().zip(bodies).collect();
            let delivered = positions.map_or_else(Vec::new, |positions| {
                let tenant = tenant.as_ref().map_or(&[][..], Tenant::value);
                let key = |(format, body): &(_, &[u8])| positions.key(tenant, *format, body);
                positions.encoded(turn, bodies.iter().map(key))
            });
            let encoded = encoder.encode_but(&bodies, &delivered);
            let mut before = LaneSet::default();
            delivered.iter().for_each(|lanes| before.add(lanes));
            (
                parts,
                encoded,
                before,
                encoder.take_changes(),
                encoder.take_faults(),
            )
        };
        let (parts, (mut lanes, outcome), delivered, changes, faults) = if off_reactor {
            tokio::task::spawn_blocking(work)
                .await
                .map_err(|error| Verdict::Retry {
                    after: None,
                    reason: format!("encoding failed: {error}"),
                })?
        } else {
            work()
        };
        for body in lanes.iter_mut().flatten() {
            body.bytes = room.keep(std::mem::take(&mut body.bytes).into());
        }
        let changed_bytes: usize = changes.iter().map(Change::bytes).sum();
        let added = (changed_bytes > 0).then(|| Added {
            changes,
            _room: room.part(changed_bytes),
        });
        self.tell(&outcome);
        for fault in faults {
            self.metrics.totals_lost[fault as usize].add(1);
        }
        self.order
            .encoded(turn, lanes.iter().map(|bodies| !bodies.is_empty()).collect());
        Ok(Pending {
            added,
            parts,
            lanes: (0..)
                .zip(lanes)
                .map(|(number, bodies)| Lane::new(number, of.cloned(), bodies))
                .collect(),
            rejected: outcome.dropped.total(),
            delivered,
        })
    }

    /// Keeps what is left of a batch for its next attempt.
    pub fn keep(&self, pending: Pending, turn: Turn) {
        self.kept.lock().insert(turn, pending);
    }

    /// Forgets the bodies of a batch that is not done: what is left of it is encoded once more, and its deltas are in the totals already.
    pub async fn encode_again(&self, pending: Pending, turn: Turn, in_pieces: bool) {
        self.order.comes_again(turn, in_pieces);
        if let Some(added) = pending.added {
            self.encoder.lock().await.comes_again(added.changes);
        }
    }

    /// What the bodies of a batch are expected to take, and what it makes of totals.
    fn expected_bytes(&self, batch: &Batch) -> usize {
        let bytes = batch.bytes();
        let changed = if self.adds_up {
            bytes.min(MAX_CHANGES_BYTES)
        } else {
            0
        };
        bytes / EXPECTED_PART + changed
    }

    /// Counts what came of a batch, and says the first time that something is dropped or collides.
    fn tell(&self, outcome: &Outcome) {
        for (reason, counter) in Reason::ALL.into_iter().zip(&self.metrics.dropped) {
            let points = outcome.dropped.get(reason);
            if points > 0 {
                if counter.get() == 0 && reason != Reason::Relabel {
                    tracing::warn!(
                        exporter = self.id,
                        reason = reason.as_str(),
                        points,
                        "{}; all of them are counted in sluice_remote_write_dropped_points_total",
                        reason.advice()
                    );
                }
                counter.add(points);
            }
        }
        for (counter, count, what) in [
            (
                &self.metrics.label_collisions,
                outcome.label_collisions,
                "attributes become a label that the series has already: values of one point are joined with ';', any other is left out",
            ),
            (
                &self.metrics.name_collisions,
                outcome.name_collisions,
                "metrics become the same name, and their series may be mixed up",
            ),
            (
                &self.metrics.dropped_exemplars,
                outcome.dropped_exemplars,
                "exemplars have no place in what is sent: those of gauges, those without a value, and, in 2.0, those without a sample",
            ),
        ] {
            if count > 0 {
                if counter.get() == 0 {
                    tracing::warn!(exporter = self.id, count, "{what}");
                }
                counter.add(count);
            }
        }
    }
}

/// What is said of a batch behind one that stays for the next process.
pub(super) fn left() -> Verdict {
    Verdict::Retry {
        after: None,
        reason: "what comes before it is left for the next process".to_owned(),
    }
}
