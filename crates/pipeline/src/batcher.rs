//! Gathering payload slices into batches. Sans-IO: payloads and the time go in, batches come out.

use std::time::Duration;

use bytes::Bytes;
use sluice_journal::Entry;
use sluice_payload::{Signal, TenantId, WireFormat};
use sluice_wire::{Kind, Limit};
use tokio::time::Instant;

use crate::tracked::{Source, Tracked, cut};
use crate::{Batch, Part};

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

/// The wire kind of a signal.
pub fn kind(signal: Signal) -> Kind {
    match signal {
        Signal::Metrics => Kind::Metrics,
        Signal::Logs => Kind::Logs,
        Signal::Traces => Kind::Traces,
        Signal::Profiles => Kind::Profiles,
    }
}

/// Batches that are gathered at once, of a tenant each; beyond it the oldest goes before its time. They are looked through for each payload, and more tenants than
/// this within a `flush_timeout` have requests of their own at any rate.
const MAX_OPEN: usize = 256;

/// Gathers one cursor's payloads.
#[derive(Debug)]
pub(crate) struct Batcher {
    settings: BatchSettings,
    max_bytes: usize,
    signal: Signal,
    /// Whether a batch is of one tenant; otherwise one at most is open.
    by_tenant: bool,
    /// The oldest first.
    open: Vec<Open>,
}

/// A batch being gathered; never empty between two payloads.
#[derive(Debug)]
struct Open {
    tenant: Option<TenantId>,
    tracked: Tracked,
    size: u64,
    bytes: usize,
    since: Instant,
}

impl Batcher {
    /// `max_bytes` caps every batch, whatever the settings count.
    pub fn new(signal: Signal, settings: BatchSettings, max_bytes: usize) -> Self {
        Self {
            settings,
            max_bytes,
            signal,
            by_tenant: false,
            open: Vec::new(),
        }
    }

    /// Whether a batch is of one tenant.
    pub fn by_tenant(mut self, by_tenant: bool) -> Self {
        self.by_tenant = by_tenant;
        self
    }

    /// When the oldest batch being gathered has to go, if there is one.
    pub fn deadline(&self) -> Option<Instant> {
        self.open
            .first()
            .map(|open| open.since + self.settings.flush_timeout)
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
        let signal = self.signal;
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
        let tenant = self.by_tenant.then_some(source.payload.tenant);
        let mut at = self.open.iter().position(|open| open.tenant == tenant);
        let (max_size, max_bytes) = (self.settings.max_size.unwrap_or(u64::MAX), self.max_bytes);
        let is_over = |open: &Open| open.size + size > max_size || open.bytes + part.body.len() > max_bytes;
        if let Some(full) = at.take_if(|at| is_over(&self.open[*at])) {
            ready.push(self.open.remove(full).tracked);
        }
        let at = at.unwrap_or_else(|| {
            if self.open.len() >= MAX_OPEN {
                ready.push(self.open.remove(0).tracked);
            }
            self.open.push(Open {
                tenant,
                tracked: Tracked::new(self.signal),
                size: 0,
                bytes: 0,
                since: now,
            });
            self.open.len() - 1
        });
        let open = &mut self.open[at];
        open.size += size;
        open.bytes += part.body.len();
        open.tracked.batch.parts.push(part);
        open.tracked.sources.push(source);
        let alone = !self.signal.concatenates() || self.settings.flush_timeout.is_zero();
        if alone || open.size >= self.settings.min_size || open.bytes >= max_bytes {
            ready.push(self.open.remove(at).tracked);
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
        ready.extend(self.open.drain(..).map(|open| open.tracked));
    }

    /// Pushes what has waited for its time to `ready`.
    pub fn flush_due(&mut self, now: Instant, ready: &mut Vec<Tracked>) {
        let timeout = self.settings.flush_timeout;
        let due = self
            .open
            .iter()
            .take_while(|open| open.since + timeout <= now)
            .count();
        ready.extend(self.open.drain(..due).map(|open| open.tracked));
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
mod tests;
