//! Several endpoints of which each has its own keys, as one exporter: what belongs together arrives at one place.
//!
//! A batch is cut by the owners of its keys before it is sent, and each piece is a request of its own, with retries of its
//! own. A piece whose endpoint is gone, or out, before it was delivered is cut anew among the others ([`Sent::Moved`]): that is how
//! a vanished endpoint's backlog is handed over. Only what was under way and had no answer can arrive twice: with any exporter what ran
//! into its time-out, here also what is cut off from an endpoint that hangs ([`LAST_WORD`]).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_payload::{Encoding, Signal};
use sluice_telemetry::{Gauge, Registry};
use sluice_wire::{MAX_REPEATED_BYTES, RoutingKey, Share, share_out};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::balanced::endpoint_gauges;
use crate::ring::{Failed, Failure, Refuses, Ring, owner};
use crate::{Batch, Export, Exporter, Part, Turn, Verdict, kind};

/// What is under way to an endpoint that has left because it does not answer may still be answered in this time. Then others have it:
/// requests to an endpoint that hangs must not keep their places among those under way until their time is up. One that has left
/// and speaks keeps what is under way to it: it may well have taken it.
const LAST_WORD: Duration = Duration::from_millis(500);

/// What came of sending a batch to its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// As with any exporter.
    Answered(Verdict),
    /// The endpoint takes nothing, and another one may take the batch, or this one later: it is tried again, and never given up for it.
    Refused {
        /// What the endpoint said.
        reason: String,
    },
    /// What is in the batch belongs to others now: it is routed anew, at once.
    Moved,
}

/// Whose fault it is that a payload was refused for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The payload's.
    Payload,
    /// The endpoint's, and there is no other: it refuses everything.
    Endpoint,
    /// The endpoint's; the payload belongs to others now.
    Moved,
}

/// A future of [`Sent`].
pub type Sending<'a> = Pin<Box<dyn Future<Output = Sent> + Send + 'a>>;

/// The one of an exporter's endpoints that a batch belongs to, or what sends the batches of its tenant.
pub trait Owner: std::fmt::Debug + Send + Sync {
    /// What is known without asking the endpoint; `None`: the batch is to be sent.
    fn unasked(&self) -> Option<Sent>;

    /// Ends when the batch belongs to others.
    fn moved<'a>(&'a self) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

    /// Whether another endpoint works: then a failure says nothing about how much all of them take.
    fn others_work(&self) -> bool;

    /// When this endpoint last took a batch, or a part of it: that others are served says nothing about one that it does not take.
    /// `of_all`: when any batch of the exporter was taken, which is the answer where there is one destination.
    fn delivered(&self, of_all: Option<Instant>) -> Option<Instant>;

    /// The endpoint refused a payload for good; `new`: not one that it was told of before.
    fn payload_refused(&self, new: bool) -> Blame;

    /// As [`Exporter::prepare`].
    fn prepare<'a>(&'a self, _: &'a Batch, _: Turn) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async {})
    }

    /// Sends `batch` once, as [`Exporter::export_in_turn`] does.
    fn send<'a>(&'a self, batch: &'a Batch, turn: Turn) -> Sending<'a>;
}

/// A piece of a batch, and what sends it.
#[derive(Debug, Clone)]
pub struct RoutedPart {
    /// To where it belongs.
    pub to: Arc<dyn Owner>,
    /// The parts of the batch it is made of: which one each is, or is cut from.
    pub parts: Vec<(usize, Part)>,
}

/// Sends what belongs together to one of several endpoints.
pub struct Routed {
    key: Option<RoutingKey>,
    /// As those of the endpoints, and never sent to: what is asked of any of them.
    like: Arc<dyn Exporter>,
    endpoints: Arc<Endpoints>,
}

struct Endpoints {
    ring: Mutex<Ring<Arc<dyn Exporter>>>,
    /// A key may have another owner.
    changed: Notify,
    known: Gauge,
    out: Gauge,
}

impl Endpoints {
    fn count(&self, ring: &Ring<Arc<dyn Exporter>>) {
        let (known, out) = ring.count();
        self.known.set(known as i64);
        self.out.set(out as i64);
    }

    async fn moved(&self, owner: &dyn Owner) {
        loop {
            let changed = self.changed.notified();
            if owner.unasked() == Some(Sent::Moved) {
                return;
            }
            changed.await;
        }
    }
}

impl Routed {
    /// Without endpoints so far. Without a key, spans go by their trace and everything else by its service. `like` differs from the exporters of the endpoints in nothing but where it sends.
    pub fn new(
        key: Option<RoutingKey>,
        like: Arc<dyn Exporter>,
        exporter: &str,
        registry: &Registry,
    ) -> Self {
        let (known, out) = endpoint_gauges(exporter, registry);
        let endpoints = Arc::new(Endpoints {
            ring: Mutex::new(Ring::new()),
            changed: Notify::new(),
            known,
            out,
        });
        Self { key, like, endpoints }
    }

    /// From now on these are the endpoints, by names that other gateways know them by as well. `connect` makes the exporter of a
    /// new one; one that cannot be made is logged and left out. Requests under way to one that is gone end as they end.
    pub fn set_endpoints<E: std::fmt::Display>(
        &self,
        names: &[String],
        mut connect: impl FnMut(&str) -> Result<Arc<dyn Exporter>, E>,
    ) {
        let mut ring = self.endpoints.ring.lock();
        let before = ring.names();
        let gone = ring.replace(names, |name| match connect(name) {
            Ok(exporter) => Some(exporter),
            Err(error) => {
                tracing::error!(endpoint = name, %error, "cannot send to this endpoint; the others have its keys");
                None
            }
        });
        self.endpoints.count(&ring);
        self.endpoints.changed.notify_waiters();
        let now = ring.names();
        let new: Vec<_> = now.iter().filter(|name| !before.contains(name)).collect();
        let changed = !gone.is_empty() || !new.is_empty();
        if changed && !before.is_empty() {
            tracing::info!(
                ?new,
                ?gone,
                endpoints = now.len(),
                "the endpoints have changed; their keys move"
            );
        }
    }

    /// Cuts `batch` by the owners of its keys.
    fn cut(&self, batch: &Batch) -> Vec<RoutedPart> {
        let candidates = self.endpoints.ring.lock().candidates(Instant::now());
        if candidates.is_empty() {
            let to: Arc<dyn Owner> = Arc::new(Nowhere(self.endpoints.clone()));
            let parts = batch.parts.iter().cloned().enumerate().collect();
            return vec![RoutedPart { to, parts }];
        }
        let key = self.key.unwrap_or(match batch.signal {
            Signal::Traces => RoutingKey::TraceId,
            _ => RoutingKey::Service,
        });
        let mut pieces: Vec<Vec<(usize, Part)>> = vec![Vec::new(); candidates.len()];
        // In all parts together no more than in one: what comes after goes whole, by its first key.
        let mut repeated = 0;
        for (index, part) in batch.parts.iter().enumerate() {
            let owner = |key| owner(&candidates, key);
            let shares = share_out(kind(batch.signal), &part.body, key, owner);
            // Only a body that was let in with shallow validation can be broken or miscounted: it goes in one piece.
            let sound =
                |shares: &Vec<Share>| shares.iter().map(|share| share.items).sum::<u64>() == part.items;
            let shares = shares.ok().filter(sound).unwrap_or_default();
            let bytes: usize = shares.iter().map(|share| share.body.len()).sum();
            repeated += bytes.saturating_sub(part.body.len());
            match &shares[..] {
                [all] => pieces[all.to].push((index, part.clone())),
                [first, ..] if repeated > MAX_REPEATED_BYTES => {
                    pieces[first.to].push((index, part.clone()));
                }
                [_, ..] => shares.iter().for_each(|share| {
                    let piece = Part {
                        body: share.body.clone(),
                        items: share.items,
                        wire_format: part.wire_format,
                        frame: None,
                    };
                    pieces[share.to].push((index, piece));
                }),
                [] => pieces[owner(0)].push((index, part.clone())),
            }
        }
        let pieces = candidates.into_iter().zip(pieces);
        pieces
            .filter(|(_, parts)| !parts.is_empty())
            .map(|(candidate, parts)| {
                // Of the batches cut meanwhile, the first has it.
                let trial = (candidate.trial)
                    .then(|| {
                        self.endpoints
                            .ring
                            .lock()
                            .begin_trial(candidate.id, Instant::now())
                    })
                    .flatten();
                let to = Arc::new(Endpoint {
                    endpoints: self.endpoints.clone(),
                    id: candidate.id,
                    trial,
                    exporter: candidate.sender,
                });
                RoutedPart { to, parts }
            })
            .collect()
    }
}

impl Exporter for Routed {
    /// Nothing is sent before it is routed: see [`Owner::send`].
    fn export<'a>(&'a self, _: &'a Batch) -> Export<'a> {
        Box::pin(async {
            Verdict::Retry {
                after: None,
                reason: "it has not been routed".to_owned(),
            }
        })
    }

    fn route(&self, batch: &Batch) -> Option<Vec<RoutedPart>> {
        Some(self.cut(batch))
    }

    fn max_request_bytes(&self) -> usize {
        self.like.max_request_bytes()
    }

    fn passes_through(&self) -> Option<Encoding> {
        self.like.passes_through()
    }

    fn shutdown<'a>(&'a self) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        let all = self.endpoints.ring.lock().senders();
        Box::pin(async move {
            for exporter in all {
                exporter.shutdown().await;
            }
        })
    }
}

/// Where there is no endpoint yet.
struct Nowhere(Arc<Endpoints>);

impl std::fmt::Debug for Nowhere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Nowhere")
    }
}

impl Owner for Nowhere {
    fn unasked(&self) -> Option<Sent> {
        Some(match self.0.ring.lock().count() {
            (0, _) => Sent::Answered(Verdict::Retry {
                after: None,
                reason: "no endpoint is known yet: its name has no addresses".to_owned(),
            }),
            _ => Sent::Moved,
        })
    }

    fn moved<'a>(&'a self) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(self.0.moved(self))
    }

    fn others_work(&self) -> bool {
        false
    }

    fn delivered(&self, _: Option<Instant>) -> Option<Instant> {
        None
    }

    fn payload_refused(&self, _: bool) -> Blame {
        Blame::Payload
    }

    fn send<'a>(&'a self, _: &'a Batch, _: Turn) -> Sending<'a> {
        Box::pin(async { Sent::Moved })
    }
}

/// One endpoint, as the owner of one piece.
struct Endpoint {
    endpoints: Arc<Endpoints>,
    id: u64,
    /// The endpoint is out, and this piece is to show whether it is well again.
    trial: Option<u64>,
    exporter: Arc<dyn Exporter>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint({}, trial: {:?})", self.id, self.trial)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Some(trial) = self.trial {
            let mut ring = self.endpoints.ring.lock();
            ring.end_trial(self.id, trial, Instant::now());
        }
    }
}

impl Owner for Endpoint {
    fn unasked(&self) -> Option<Sent> {
        let has = self.endpoints.ring.lock().has(self.id, self.trial);
        (!has).then_some(Sent::Moved)
    }

    fn moved<'a>(&'a self) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(self.endpoints.moved(self))
    }

    fn others_work(&self) -> bool {
        self.endpoints.ring.lock().others_work(self.id)
    }

    fn delivered(&self, _: Option<Instant>) -> Option<Instant> {
        self.endpoints.ring.lock().took_at(self.id)
    }

    fn payload_refused(&self, new: bool) -> Blame {
        let mut ring = self.endpoints.ring.lock();
        if !ring.payload_refused(self.id, new) {
            return Blame::Payload;
        }
        let failure = Failure {
            trial: self.trial,
            begun: Instant::now(),
            refuses: Some(Refuses::UntilMended),
            after: None,
        };
        match self.fails(&mut ring, failure, "payload after payload is refused") {
            Failed::Left => Blame::Moved,
            Failed::AllRefuse | Failed::Stays => Blame::Endpoint,
        }
    }

    fn send<'a>(&'a self, batch: &'a Batch, _: Turn) -> Sending<'a> {
        Box::pin(async move {
            let begun = Instant::now();
            tokio::select! {
                biased;
                verdict = self.exporter.export(batch) => self.settle(verdict, batch.parts.len(), begun),
                () = self.hangs() => Sent::Moved,
            }
        })
    }
}

impl Endpoint {
    /// Ends when the endpoint has been out and silent for [`LAST_WORD`]. Of one that is gone from the list what is under way ends as it
    /// ends.
    async fn hangs(&self) {
        loop {
            let changed = self.endpoints.changed.notified();
            let is_silent = || self.endpoints.ring.lock().is_silent(self.id, self.trial);
            if is_silent() {
                tokio::time::sleep(LAST_WORD).await;
                if is_silent() {
                    return;
                }
                continue;
            }
            changed.await;
        }
    }

    /// What an answer says about the endpoint, and what follows for the piece of so many payloads, which was sent at `begun`.
    fn settle(&self, verdict: Verdict, payloads: usize, begun: Instant) -> Sent {
        let mut ring = self.endpoints.ring.lock();
        let now = Instant::now();
        let (refuses, after, reason) = match &verdict {
            Verdict::Retry { after, reason } => (None, *after, reason),
            Verdict::EndpointFault { reason } => (Some(Refuses::UntilMended), None, reason),
            Verdict::Exhausted { reason } => (Some(Refuses::ForNow), None, reason),
            Verdict::PayloadFault { .. } if ring.answered(self.id, now) => return Sent::Answered(verdict),
            // Another one may take it: no trial is lost by a bad payload, and no payload by a bad endpoint.
            Verdict::PayloadFault { reason } => {
                let refuses = ring.refuses(self.id).then_some(Refuses::UntilMended);
                (refuses, None, reason)
            }
            Verdict::Delivered { .. } | Verdict::InPart { .. } | Verdict::TooLarge { .. } => {
                if !matches!(verdict, Verdict::TooLarge { .. }) {
                    ring.took(self.id, payloads, now);
                }
                if ring.works(self.id, now) {
                    self.endpoints.count(&ring);
                    let endpoint = ring.name(self.id);
                    tracing::info!(endpoint, "the endpoint works again, and has its keys back");
                }
                return Sent::Answered(verdict);
            }
        };
        let failure = Failure {
            trial: self.trial,
            begun,
            refuses,
            after,
        };
        match self.fails(&mut ring, failure, reason) {
            Failed::Stays if refuses.is_some() => Sent::Refused {
                reason: reason.clone(),
            },
            Failed::Stays | Failed::AllRefuse => Sent::Answered(verdict),
            Failed::Left => Sent::Moved,
        }
    }

    fn fails(&self, ring: &mut Ring<Arc<dyn Exporter>>, failure: Failure, reason: &str) -> Failed {
        let was_in = ring.is_in(self.id);
        let failed = ring.failed(self.id, failure, Instant::now());
        self.endpoints.count(ring);
        self.endpoints.changed.notify_waiters();
        if was_in && failed == Failed::Left {
            let endpoint = ring.name(self.id);
            tracing::warn!(
                endpoint,
                reason,
                "the endpoint takes nothing; the others have its keys until it does"
            );
        }
        failed
    }
}

#[cfg(test)]
mod tests;
