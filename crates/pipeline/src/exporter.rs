//! What an exporter is: something that sends one batch and says what came of it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sluice_payload::{Encoding, Frame, Signal, TenantId, WireFormat};

use crate::{Ending, RoutedPart, Turn};

/// A run of payload slices that becomes one export request. Laid end to end, the bodies of the
/// parts are one valid `Export*ServiceRequest`, for exporters that [take](Exporter::takes) nothing else.
#[derive(Debug, Clone)]
pub struct Batch {
    /// What it carries.
    pub signal: Signal,
    /// The slices, in order; never empty.
    pub parts: Vec<Part>,
}

/// One payload, or one piece of a split payload, in a batch.
#[derive(Debug, Clone)]
pub struct Part {
    /// A whole request, not compressed.
    pub body: Bytes,
    /// Which message `body` is.
    pub wire_format: WireFormat,
    /// Items in `body`.
    pub items: u64,
    /// The compressed frame that says the same as `body`, if there is one.
    pub frame: Option<Frame>,
}

impl Batch {
    /// Items in all parts.
    pub fn items(&self) -> u64 {
        self.parts.iter().map(|p| p.items).sum()
    }

    /// Length of the request body, not compressed.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|p| p.body.len()).sum()
    }
}

/// What a destination refuses of a batch that it took otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// A whole request, not compressed.
    pub body: Bytes,
    /// Which message `body` is.
    pub wire_format: WireFormat,
    /// Items in `body`.
    pub items: u64,
    /// What the destination said.
    pub reason: String,
}

/// What came of one export attempt. The exporter classifies; the pipeline decides what follows
/// (see `settle`), so that every exporter retries, halves, holds and drops by the same rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The destination took it. `rejected` of its items were refused for good (`partial_success`).
    Delivered {
        /// Items the destination rejected; never more than the batch holds.
        rejected: u64,
        /// What the destination said about it; a warning when `rejected` is 0.
        message: Option<String>,
    },
    /// The destination took it but for pieces that are known, which it refuses for good.
    InPart {
        /// Those pieces: they are kept as dead letters, where there is a place for them.
        refused: Vec<Refused>,
        /// Items of the batch that were not delivered, those of the pieces included; never more than the batch holds.
        rejected: u64,
    },
    /// It may work later: overload, time-out, connection lost, connection refused.
    Retry {
        /// When the destination asked us to come back (`Retry-After`, `RetryInfo`).
        after: Option<Duration>,
        /// What happened, for the log.
        reason: String,
    },
    /// The request is too large for the destination (413, RESOURCE_EXHAUSTED "larger than max"): halve it.
    TooLarge {
        /// What the destination said.
        reason: String,
    },
    /// Something in this request is bad (400, 422, INVALID_ARGUMENT): find it by bisection.
    PayloadFault {
        /// What the destination said.
        reason: String,
    },
    /// The destination will refuse everything until somebody mends it (401, 403, 404,
    /// UNAUTHENTICATED, PERMISSION_DENIED, UNIMPLEMENTED): hold the backlog, raise an alarm, probe.
    EndpointFault {
        /// What the destination said.
        reason: String,
    },
    /// The destination takes nothing for now, and does not say for how long (RESOURCE_EXHAUSTED without RetryInfo): a quota, or a
    /// limiter. Held and probed like an endpoint fault; one of several endpoints by key keeps its keys for as long as one that does not answer.
    Exhausted {
        /// What the destination said.
        reason: String,
    },
}

/// A future of a [`Verdict`].
pub type Export<'a> = Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>;

/// Sends batches to one destination. Called concurrently; holds its own connections and time-outs.
pub trait Exporter: Send + Sync + 'static {
    /// Sends `batch` once. Never retries by itself, never panics, and returns within its time-out.
    fn export<'a>(&'a self, batch: &'a Batch) -> Export<'a>;

    /// Whether it reads bodies of this format; every exporter reads OTLP.
    fn takes(&self, format: WireFormat) -> bool {
        format == WireFormat::Otlp
    }

    /// Makes ready what it can of the batch that will be exported next, while those before it are under way. Called once for each batch, in
    /// their order.
    fn prepare<'a>(&'a self, _: &'a Batch, _: Turn) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async {})
    }

    /// How many more batches it is given while one is not done, whatever the settings say. More than none is for an exporter that keeps
    /// the order by itself, as [`Turn`]s have it: it holds back what must not pass what comes before, within [`export_in_turn`](Self::export_in_turn), which
    /// then takes longer than its time-out. The first of those under way waits for no other.
    fn runs_ahead(&self) -> usize {
        0
    }

    /// Sends `batch`, or a piece of it, which has this turn.
    fn export_in_turn<'a>(&'a self, batch: &'a Batch, _: Turn) -> Export<'a> {
        self.export(batch)
    }

    /// For how long the last attempt of this turn had nothing under way, because it waited for others before it.
    fn waited(&self, _: Turn) -> Duration {
        Duration::ZERO
    }

    /// Nothing more will come of this turn: it holds back no other, unless it is left.
    fn ends(&self, _: Turn, _: Ending) {}

    /// Cuts `batch` by where each part of it belongs, when the exporter has several places: the pieces are what is sent, each to its
    /// own, and hold exactly the items of the batch. `None`: all of it goes to this exporter.
    fn route(&self, _: &Batch) -> Option<Vec<RoutedPart>> {
        None
    }

    /// What sends the data of a tenant, when the exporter tells the destination whose data is: a batch is then of one tenant, and that is what it is
    /// [prepared](Self::prepare) and [exported](Self::export) with. `None`, for every tenant: batches may be of several, and this exporter sends them.
    fn for_tenant(&self, _: TenantId) -> Option<Arc<dyn Exporter>> {
        None
    }

    /// The largest request body, in bytes before compression, that the destination is expected to
    /// take; batches are cut below it.
    fn max_request_bytes(&self) -> usize;

    /// The compressed frames it can send on as they came: receivers then keep those ([`Part::frame`]).
    fn passes_through(&self) -> Option<Encoding> {
        None
    }

    /// Flushes and closes what can be closed, at shutdown after the last export.
    fn shutdown<'a>(&'a self) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async {})
    }
}
