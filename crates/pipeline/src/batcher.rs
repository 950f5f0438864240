//! Gathering payload slices into batches. Sans-IO: payloads and the time go in, batches come out.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sluice_admission::Permit;
use sluice_journal::Entry;
use sluice_payload::{Payload, Signal, WireFormat};
use sluice_wire::{Kind, Limit, REMOTE_WRITE_1, REMOTE_WRITE_2, halve_remote_write};
use tokio::time::Instant;

use crate::{Batch, Exporter, Owner, Part, RoutedPart};

/// What `min_size` and `max_size` count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sizer {
    /// Data points, log records, spans.
    Items,
    /// Bytes of the request body, not compressed.
    Bytes,
    /// Received requests.
    Requests,
}

/// When a batch is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSettings {
    /// Send when the batch holds this much.
    pub min_size: u64,
    /// Never send more than this; a larger payload is split. `None` is unlimited.
    pub max_size: Option<u64>,
    /// What the sizes count.
    pub sizer: Sizer,
    /// Send what there is when the oldest of it waited this long. Zero sends every payload by itself.
    pub flush_timeout: Duration,
}

impl Default for BatchSettings {
    /// The Collector's `batch` processor: 8192 items or 200 ms.
    fn default() -> Self {
        Self {
            min_size: 8192,
            max_size: None,
            sizer: Sizer::Items,
            flush_timeout: Duration::from_millis(200),
        }
    }
}

/// A batch that knows which payloads its parts come from.
#[derive(Debug, Clone)]
pub(crate) struct Tracked {
    pub batch: Batch,
    /// One a part.
    pub sources: Vec<Source>,
    /// Whose it is, when the exporter routes.
    pub to: Option<Arc<dyn Owner>>,
    pub tries: Tries,
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
    fn new(seq: u64, payload: Arc<Payload>) -> Self {
        let copy = None;
        Self { seq, payload, copy }
    }

    /// The source of `piece`, which was cut from `whole`, a part of this source: bytes of its own are charged.
    fn of_piece(&self, whole: &Bytes, piece: &Bytes) -> Self {
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
    fn new(signal: Signal) -> Self {
        Self {
            batch: Batch {
                signal,
                parts: Vec::new(),
            },
            sources: Vec::new(),
            to: None,
            tries: Tries::default(),
        }
    }

    /// The batches to send: itself, or its pieces where `exporter` routes, each with where it belongs.
    pub fn routed(mut self, exporter: &dyn Exporter) -> Vec<Tracked> {
        let Some(pieces) = exporter.route(&self.batch) else {
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
                tries: self.tries,
            }
        };
        pieces.into_iter().map(tracked).collect()
    }

    /// Two batches of about half the size each, or `None` when one item cannot be halved.
    pub fn halve(mut self) -> Result<(Tracked, Tracked), Tracked> {
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
                tries: self.tries,
            };
            return Ok((self, tail));
        }
        let items = self.batch.items();
        let Some(pieces) = (items > 1)
            .then(|| halved(signal, &self.batch.parts[0], items))
            .flatten()
        else {
            return Err(self);
        };
        let half = Tracked {
            to: self.to.clone(),
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
fn cut(signal: Signal, part: &Part, limit: Limit) -> Option<Vec<Part>> {
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

/// The wire kind of a signal.
pub fn kind(signal: Signal) -> Kind {
    match signal {
        Signal::Metrics => Kind::Metrics,
        Signal::Logs => Kind::Logs,
        Signal::Traces => Kind::Traces,
        Signal::Profiles => Kind::Profiles,
    }
}

/// Gathers one cursor's payloads.
#[derive(Debug)]
pub(crate) struct Batcher {
    settings: BatchSettings,
    max_bytes: usize,
    current: Tracked,
    size: u64,
    bytes: usize,
    opened: Option<Instant>,
}

impl Batcher {
    /// `max_bytes` caps every batch, whatever the settings count.
    pub fn new(signal: Signal, settings: BatchSettings, max_bytes: usize) -> Self {
        Self {
            settings,
            max_bytes,
            current: Tracked::new(signal),
            size: 0,
            bytes: 0,
            opened: None,
        }
    }

    /// When the batch being gathered has to go, if there is one.
    pub fn deadline(&self) -> Option<Instant> {
        self.opened.map(|opened| opened + self.settings.flush_timeout)
    }

    /// Takes a payload; batches that are full by it are pushed to `ready`.
    pub fn push(&mut self, entry: Entry, now: Instant, ready: &mut Vec<Tracked>) {
        let payload = entry.payload;
        let whole = Part {
            body: payload.body.clone(),
            items: payload.items,
            wire_format: payload.wire_format,
            frame: payload.frame.clone(),
        };
        let source = Source::new(entry.seq, payload);
        let signal = self.current.batch.signal;
        match self.limit(&whole).and_then(|limit| cut(signal, &whole, limit)) {
            Some(parts) => parts.into_iter().for_each(|part| {
                let source = source.of_piece(&whole.body, &part.body);
                self.add(part, source, now, ready);
            }),
            None => self.add(whole, source, now, ready),
        }
    }

    /// The limit a part breaks all by itself, if any. A request of remote write breaks none: it is sent in several requests
    /// anyway, of which the exporter knows the right size.
    fn limit(&self, part: &Part) -> Option<Limit> {
        if part.wire_format != WireFormat::Otlp {
            return None;
        }
        let max = self.settings.max_size.unwrap_or(u64::MAX);
        match self.settings.sizer {
            Sizer::Items if part.items > max => Some(Limit::Items(max)),
            Sizer::Bytes if part.body.len() as u64 > max => Some(Limit::Bytes(max as usize)),
            _ => (part.body.len() > self.max_bytes).then_some(Limit::Bytes(self.max_bytes)),
        }
    }

    fn add(&mut self, part: Part, source: Source, now: Instant, ready: &mut Vec<Tracked>) {
        let size = self.size_of(&part);
        let over = |total: u64, max: Option<u64>| max.is_some_and(|max| total > max);
        if over(self.size + size, self.settings.max_size) || self.bytes + part.body.len() > self.max_bytes {
            self.flush(ready);
        }
        self.size += size;
        self.bytes += part.body.len();
        self.opened.get_or_insert(now);
        self.current.batch.parts.push(part);
        self.current.sources.push(source);
        let alone = !self.current.batch.signal.concatenates() || self.settings.flush_timeout.is_zero();
        if alone || self.size >= self.settings.min_size || self.bytes >= self.max_bytes {
            self.flush(ready);
        }
    }

    fn size_of(&self, part: &Part) -> u64 {
        match self.settings.sizer {
            Sizer::Items => part.items,
            Sizer::Bytes => part.body.len() as u64,
            Sizer::Requests => 1,
        }
    }

    /// Pushes what there is to `ready`.
    pub fn flush(&mut self, ready: &mut Vec<Tracked>) {
        if self.current.sources.is_empty() {
            return;
        }
        let next = Tracked::new(self.current.batch.signal);
        ready.push(std::mem::replace(&mut self.current, next));
        self.size = 0;
        self.bytes = 0;
        self.opened = None;
    }
}

/// A body as one `Bytes`, for those who need it in one piece.
pub fn contiguous(batch: &Batch) -> Bytes {
    match batch.parts.as_slice() {
        [one] => one.body.clone(),
        parts => parts
            .iter()
            .fold(Vec::with_capacity(batch.bytes()), |mut all, part| {
                all.extend_from_slice(&part.body);
                all
            })
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use sluice_admission::Budget;
    use sluice_payload::TenantId;

    use super::*;

    /// A logs request with `n` empty log records in one resource and scope.
    pub(crate) fn logs(n: usize) -> Bytes {
        let records: Vec<u8> = std::iter::repeat_n([0x12, 0x00], n).flatten().collect();
        let wrap = |inner: Vec<u8>, tag: u8| {
            let mut out = vec![tag];
            let mut len = inner.len();
            while len >= 0x80 {
                out.push(len as u8 | 0x80);
                len >>= 7;
            }
            out.push(len as u8);
            out.extend(inner);
            out
        };
        wrap(wrap(records, 0x12), 0x0a).into()
    }

    fn entry(seq: u64, items: usize) -> Entry {
        let payload = Payload {
            signal: Signal::Logs,
            body: logs(items),
            wire_format: WireFormat::Otlp,
            frame: None,
            items: items as u64,
            tenant: TenantId::DEFAULT,
            received_at: std::time::Instant::now(),
            permit: None,
        };
        Entry {
            seq,
            payload: Arc::new(payload),
            full: false,
        }
    }

    fn items(batches: &[Tracked]) -> Vec<Vec<(u64, u64)>> {
        batches
            .iter()
            .map(|b| {
                b.sources
                    .iter()
                    .zip(&b.batch.parts)
                    .map(|(s, p)| (s.seq, p.items))
                    .collect()
            })
            .collect()
    }

    /// Scenario: payloads of 3 items, `min_size` 5, `max_size` 7; one of 20.
    /// Guarantees: a batch goes when full, never above the maximum, a large payload is cut, order
    /// and every item are kept, and the deadline starts with the oldest payload.
    #[test]
    fn batches_by_items() {
        let settings = BatchSettings {
            min_size: 5,
            max_size: Some(7),
            ..Default::default()
        };
        let mut batcher = Batcher::new(Signal::Logs, settings, usize::MAX);
        let start = Instant::now();
        let mut ready = Vec::new();
        assert_eq!(batcher.deadline(), None);
        batcher.push(entry(0, 3), start, &mut ready);
        assert_eq!(batcher.deadline(), Some(start + settings.flush_timeout));
        batcher.push(entry(1, 3), start, &mut ready);
        batcher.push(entry(2, 3), start, &mut ready);
        batcher.push(entry(3, 20), start, &mut ready);
        batcher.flush(&mut ready);
        let got = items(&ready);
        assert_eq!(got[0], [(0, 3), (1, 3)]);
        assert!(
            got.iter()
                .all(|batch| batch.iter().map(|(_, n)| n).sum::<u64>() <= 7),
            "{got:?}"
        );
        assert_eq!(got.iter().flatten().map(|(_, n)| n).sum::<u64>(), 29);
        assert!(got.iter().flatten().map(|(seq, _)| seq).is_sorted());
        for tracked in &ready {
            assert_eq!(
                sluice_wire::count(Kind::Logs, &contiguous(&tracked.batch)).unwrap(),
                tracked.batch.items()
            );
        }
    }

    /// Scenario: a payload that is cut because it is too large, the pieces halved down to single items, and settled one by one.
    /// Guarantees: what is copied for it is charged beside the payload as long as it is there, and given back.
    #[test]
    fn copies_are_charged() {
        const PAYLOAD_BYTES: u64 = 400;
        let budget = Budget::new(10_000);
        let settings = BatchSettings {
            max_size: Some(7),
            ..Default::default()
        };
        let mut whole = entry(0, 40);
        Arc::get_mut(&mut whole.payload).unwrap().permit = budget.try_reserve(PAYLOAD_BYTES);
        let body = whole.payload.body.clone();
        let mut batcher = Batcher::new(Signal::Logs, settings, usize::MAX);
        let mut ready = Vec::new();
        batcher.push(whole, Instant::now(), &mut ready);
        batcher.flush(&mut ready);
        let copied = |ready: &[Tracked]| -> u64 {
            let parts = ready.iter().flat_map(|tracked| &tracked.batch.parts);
            let copies = parts.filter(|part| !body.as_ptr_range().contains(&part.body.as_ptr()));
            copies.map(|part| part.body.len() as u64).sum()
        };
        assert!(
            copied(&ready) > 40,
            "one item after the other is no slice of the payload"
        );
        while let Some(tracked) = ready.pop() {
            if let Ok((head, tail)) = tracked.halve() {
                ready.extend([head, tail]);
            }
            let left = if ready.is_empty() { 0 } else { PAYLOAD_BYTES };
            assert_eq!(budget.usage().used, left + copied(&ready));
        }
    }

    /// Scenario: a payload of two resources that is cut between them.
    /// Guarantees: its pieces are slices of it, and cost nothing beside it.
    #[test]
    fn slices_are_not_charged() {
        let budget = Budget::new(10_000);
        let settings = BatchSettings {
            max_size: Some(7),
            ..Default::default()
        };
        let mut whole = entry(0, 7);
        let payload = Arc::get_mut(&mut whole.payload).unwrap();
        payload.body = [logs(7), logs(7)].concat().into();
        payload.items = 14;
        payload.permit = budget.try_reserve(100);
        let body = payload.body.as_ptr_range();
        let mut ready = Vec::new();
        let mut batcher = Batcher::new(Signal::Logs, settings, usize::MAX);
        batcher.push(whole, Instant::now(), &mut ready);
        batcher.flush(&mut ready);
        let parts = ready.iter().flat_map(|tracked| &tracked.batch.parts);
        let slices = parts.filter(|part| body.contains(&part.body.as_ptr()));
        assert_eq!((slices.count(), budget.usage().used), (2, 100));
    }

    /// Scenario: the destination takes 30 bytes at most; the settings count items.
    /// Guarantees: no batch is larger in bytes.
    #[test]
    fn bytes_are_capped_whatever_the_sizer() {
        let mut batcher = Batcher::new(Signal::Logs, BatchSettings::default(), 30);
        let mut ready = Vec::new();
        for seq in 0..5 {
            batcher.push(entry(seq, 6 + 20 * seq as usize), Instant::now(), &mut ready);
        }
        batcher.flush(&mut ready);
        assert!(ready.iter().all(|b| b.batch.bytes() <= 30));
        assert_eq!(ready.iter().map(|b| b.batch.items()).sum::<u64>(), 5 * 6 + 200);
    }

    /// Scenario: profiles, whose requests cannot be laid end to end.
    /// Guarantees: one payload a batch.
    #[test]
    fn profiles_are_never_merged() {
        let mut batcher = Batcher::new(Signal::Profiles, BatchSettings::default(), usize::MAX);
        let mut ready = Vec::new();
        batcher.push(entry(0, 1), Instant::now(), &mut ready);
        batcher.push(entry(1, 1), Instant::now(), &mut ready);
        assert_eq!(items(&ready), [[(0, 1)], [(1, 1)]]);
    }

    /// Scenario: a request of remote write with nine series, of both versions, where a batch may have three items, or ten bytes alone; it is
    /// halved again and again.
    /// Guarantees: it is one batch, since its exporter knows how much to send at once; halves are of the same format and end at one series.
    #[test]
    fn remote_write_is_halved_and_not_cut() {
        let of_1 = b"\x0a\x02\x12\x00".repeat(9);
        let of_2 = [&b"\x22\x00"[..], &b"\x2a\x02\x12\x00".repeat(9)].concat();
        for (wire_format, body, max_size) in [
            (WireFormat::RemoteWrite1, of_1.clone(), Some(3)),
            (WireFormat::RemoteWrite1, of_1, None),
            (WireFormat::RemoteWrite2, of_2, Some(3)),
        ] {
            let settings = BatchSettings {
                max_size,
                ..Default::default()
            };
            let mut batcher = Batcher::new(Signal::Metrics, settings, 10);
            let mut ready = Vec::new();
            let payload = Payload {
                signal: Signal::Metrics,
                wire_format,
                body: body.into(),
                items: 9,
                ..Arc::into_inner(entry(0, 0).payload).unwrap()
            };
            let entry = Entry {
                seq: 0,
                payload: Arc::new(payload),
                full: false,
            };
            batcher.push(entry, Instant::now(), &mut ready);
            batcher.flush(&mut ready);
            assert_eq!(items(&ready), [[(0, 9)]]);
            let mut singles = 0;
            while let Some(tracked) = ready.pop() {
                assert_eq!(tracked.batch.parts[0].wire_format, wire_format);
                match tracked.halve() {
                    Ok((head, tail)) => ready.extend([head, tail]),
                    Err(single) => {
                        assert_eq!(single.batch.items(), 1);
                        singles += 1;
                    }
                }
            }
            assert_eq!(singles, 9);
        }
    }

    /// Scenario: halving again and again.
    /// Guarantees: first between payloads, then between items, down to one item, losing none.
    #[test]
    fn halving_ends_at_one_item() {
        let mut batcher = Batcher::new(Signal::Logs, BatchSettings::default(), usize::MAX);
        let mut ready = Vec::new();
        batcher.push(entry(0, 3), Instant::now(), &mut ready);
        batcher.push(entry(1, 5), Instant::now(), &mut ready);
        batcher.flush(&mut ready);
        let mut singles = 0;
        while let Some(tracked) = ready.pop() {
            match tracked.halve() {
                Ok((head, tail)) => {
                    assert!(head.batch.items() > 0 && tail.batch.items() > 0);
                    ready.extend([head, tail]);
                }
                Err(single) => {
                    assert_eq!(single.batch.items(), 1);
                    singles += 1;
                }
            }
        }
        assert_eq!(singles, 8);
    }
}
