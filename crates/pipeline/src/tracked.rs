//! Batches that know which payloads they are made of, and what was tried to deliver them. Sans-IO.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use sluice_admission::Permit;
use sluice_payload::{Payload, Signal, WireFormat};
use sluice_wire::{Limit, REMOTE_WRITE_1, REMOTE_WRITE_2, halve_remote_write};
use tokio::time::Instant;

use crate::routed::Sending;
use crate::{Batch, Blame, Exporter, Owner, Part, RoutedPart, Sent, Turn, kind};

/// A batch that knows which payloads its parts come from.
#[derive(Debug, Clone)]
pub(crate) struct Tracked {
    pub batch: Batch,
    /// One a part.
    pub sources: Vec<Source>,
    /// Whose it is, when the exporter routes, or has a sender for each tenant.
    pub to: Option<Arc<dyn Owner>>,
    /// Where it is in the order of the delivery.
    pub turn: Turn,
    pub tries: Tries,
}

/// What sends the batches of a tenant: see [`Exporter::for_tenant`]. They are never another's.
struct OfTenant(Arc<dyn Exporter>);

impl std::fmt::Debug for OfTenant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OfTenant")
    }
}

impl Owner for OfTenant {
    fn unasked(&self) -> Option<Sent> {
        None
    }

    fn moved<'a>(&'a self) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(std::future::pending())
    }

    fn others_work(&self) -> bool {
        false
    }

    fn delivered(&self, of_all: Option<Instant>) -> Option<Instant> {
        of_all
    }

    fn payload_refused(&self, _: bool) -> Blame {
        Blame::Payload
    }

    fn prepare<'a>(&'a self, batch: &'a Batch, turn: Turn) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.0.prepare(batch, turn)
    }

    fn send<'a>(&'a self, batch: &'a Batch, turn: Turn) -> Sending<'a> {
        Box::pin(async move { Sent::Answered(self.0.export_in_turn(batch, turn).await) })
    }
}

/// What was tried so far to deliver a batch. Its pieces inherit it, wherever they are sent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tries {
    /// When it was first to be sent.
    pub begun: Option<Instant>,
    /// Waits before another attempt.
    pub retries: u32,
    /// Times it was the probe of a held destination, and refused for what is in it.
    pub refused_probes: u32,
    /// When it failed last.
    failed: Option<Instant>,
    /// Failures since the one before which others were delivered.
    passed_by: u32,
}

/// A batch that fails so often while others are delivered is no part of an outage: with the longest delay of the defaults that is ten minutes.
const PASSED_BY_OFTEN: u32 = 20;

impl Tries {
    /// It failed once more; the last batch that was not was `delivered` then. True once, when others have passed it by often.
    pub fn fails(&mut self, now: Instant, delivered: Option<Instant>) -> bool {
        let before = self.failed.replace(now);
        let is_passed_by = before.is_some_and(|before| delivered > Some(before));
        self.passed_by = self.passed_by.saturating_add(u32::from(is_passed_by));
        is_passed_by && self.passed_by == PASSED_BY_OFTEN
    }
}

/// Where a part comes from. Holding the payload keeps its bytes charged until the part is settled.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub seq: u64,
    pub payload: Arc<Payload>,
    /// The part is a copy: what it is charged. One that was read back from disk is in what the plan of the memory leaves for that.
    copy: Option<Arc<Permit>>,
}

impl Source {
    pub fn new(seq: u64, payload: Arc<Payload>) -> Self {
        let copy = None;
        Self { seq, payload, copy }
    }

    /// The source of `piece`, which was cut from `whole`, a part of this source: bytes of its own are charged.
    pub fn of_piece(&self, whole: &Bytes, piece: &Bytes) -> Self {
        let (all, some) = (whole.as_ptr_range(), piece.as_ptr_range());
        let is_slice = all.start <= some.start && some.end <= all.end;
        let charge = |permit: &Permit| Arc::new(permit.for_copy(piece.len() as u64));
        Self {
            seq: self.seq,
            payload: self.payload.clone(),
            copy: match is_slice {
                true => self.copy.clone(),
                false => self.payload.permit.as_ref().map(charge),
            },
        }
    }
}

impl Tracked {
    pub fn new(signal: Signal) -> Self {
        Self {
            batch: Batch {
                signal,
                parts: Vec::new(),
            },
            sources: Vec::new(),
            to: None,
            turn: Turn::default(),
            tries: Tries::default(),
        }
    }

    /// The batches to send: itself, or its pieces where `exporter` routes, each with where it belongs.
    pub fn routed(mut self, exporter: &dyn Exporter) -> Vec<Tracked> {
        let Some(pieces) = exporter.route(&self.batch) else {
            let tenant = self.sources.first().map(|source| source.payload.tenant);
            if let Some(sender) = tenant.and_then(|tenant| exporter.for_tenant(tenant)) {
                self.to = Some(Arc::new(OfTenant(sender)));
            }
            return vec![self];
        };
        let signal = self.batch.signal;
        if let [piece] = &pieces[..] {
            // The parts as they were.
            self.to = Some(piece.to.clone());
            return vec![self];
        }
        let tracked = |piece: RoutedPart| {
            let source = |index: usize, part: &Part| {
                self.sources[index].of_piece(&self.batch.parts[index].body, &part.body)
            };
            let (sources, parts) = (piece.parts.into_iter())
                .map(|(index, part)| (source(index, &part), part))
                .unzip();
            Tracked {
                batch: Batch { signal, parts },
                sources,
                to: Some(piece.to),
                turn: self.turn,
                tries: self.tries,
            }
        };
        pieces.into_iter().map(tracked).collect()
    }

    /// Two batches of about half the size each, or `None` when one item cannot be halved.
    pub fn halve(mut self) -> Result<(Tracked, Tracked), Box<Tracked>> {
        let signal = self.batch.signal;
        if self.batch.parts.len() > 1 {
            let middle = self.batch.parts.len() / 2;
            let tail = Tracked {
                batch: Batch {
                    signal,
                    parts: self.batch.parts.split_off(middle),
                },
                sources: self.sources.split_off(middle),
                to: self.to.clone(),
                turn: self.turn,
                tries: self.tries,
            };
            return Ok((self, tail));
        }
        let items = self.batch.items();
        let Some(pieces) = (items > 1)
            .then(|| halved(signal, &self.batch.parts[0], items))
            .flatten()
        else {
            return Err(Box::new(self));
        };
        let half = Tracked {
            to: self.to.clone(),
            turn: self.turn,
            tries: self.tries,
            ..Tracked::new(signal)
        };
        let mut halves = (half.clone(), half);
        for (index, part) in pieces.into_iter().enumerate() {
            let half = if index == 0 { &mut halves.0 } else { &mut halves.1 };
            half.sources
                .push(self.sources[0].of_piece(&self.batch.parts[0].body, &part.body));
            half.batch.parts.push(part);
        }
        Ok(halves)
    }
}

/// A part of so many items in two pieces; `None` when it stays one.
fn halved(signal: Signal, part: &Part, items: u64) -> Option<Vec<Part>> {
    let fields = match part.wire_format {
        WireFormat::Otlp => return cut(signal, part, Limit::Items(items.div_ceil(2))),
        WireFormat::RemoteWrite1 => REMOTE_WRITE_1,
        WireFormat::RemoteWrite2 => REMOTE_WRITE_2,
    };
    let piece = |(body, items)| Part {
        body,
        wire_format: part.wire_format,
        items,
        frame: None,
    };
    Some(halve_remote_write(fields, &part.body)?.map(piece).into())
}

/// Splits a part; `None` when it stays one piece.
pub(crate) fn cut(signal: Signal, part: &Part, limit: Limit) -> Option<Vec<Part>> {
    match sluice_wire::split(kind(signal), &part.body, limit) {
        Ok(pieces) if pieces.len() > 1 => Some(
            pieces
                .into_iter()
                .map(|piece| Part {
                    items: piece.items,
                    body: piece.chain.to_bytes(),
                    wire_format: WireFormat::Otlp,
                    frame: None,
                })
                .collect(),
        ),
        Ok(_) => None,
        Err(error) => {
            // Only a body that was let in with shallow validation can get here: send it whole.
            tracing::warn!(%error, "a payload could not be split; it is sent whole");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Scenario: a batch fails every 30 s while nothing is delivered, then while others are.
    /// Guarantees: an outage is nothing to tell; that others pass it by is told once, when it has happened often.
    #[test]
    fn who_is_passed_by_often_is_told_of_once() {
        let mut tries = Tries::default();
        let begun = Instant::now();
        let at = |failure: u32| begun + Duration::from_secs(30) * failure;
        let delivered = Some(begun);
        assert!((1..50).all(|failure| !tries.fails(at(failure), delivered)));
        let told: Vec<u32> = (50..200)
            .filter(|failure| tries.fails(at(*failure), Some(at(*failure) - Duration::from_secs(1))))
            .collect();
        assert_eq!(told, [50 + PASSED_BY_OFTEN - 1]);
    }
}
