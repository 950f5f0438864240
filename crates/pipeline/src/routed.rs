//! Several endpoints of which each has its own keys, as one exporter: what belongs together arrives at one place.
//!
//! A batch is cut by the owners of its keys before it is sent, and each piece is a request of its own, with retries of its
//! own. A piece whose endpoint is gone, or out, before it was delivered is cut anew among the others ([`Verdict::Moved`]): that is how
//! a vanished endpoint's backlog is handed over. Only what was under way to it and had no answer can arrive twice.

use std::sync::Arc;

use parking_lot::Mutex;
use sluice_payload::{Encoding, Signal};
use sluice_wire::{RoutingKey, Share, share_out};
use tokio::time::Instant;

use crate::ring::{Failed, Ring, owner};
use crate::{Batch, Export, Exporter, Part, Verdict, kind};

/// A piece of a batch, and what sends it.
#[derive(Clone)]
pub struct RoutedPart {
    /// To where it belongs.
    pub to: Arc<dyn Exporter>,
    /// The parts of the batch it is made of: which one each is, or is cut from.
    pub parts: Vec<(usize, Part)>,
}

/// Sends what belongs together to one of several endpoints.
pub struct Routed {
    key: Option<RoutingKey>,
    /// As those of the endpoints, and never sent to: what is asked of any of them.
    like: Arc<dyn Exporter>,
    ring: SharedRing,
}

type SharedRing = Arc<Mutex<Ring<Arc<dyn Exporter>>>>;

impl Routed {
    /// Without endpoints so far. Without a key, spans go by their trace and everything else by its service. `like` differs from the exporters of the endpoints in nothing but where it sends.
    pub fn new(key: Option<RoutingKey>, like: Arc<dyn Exporter>) -> Self {
        let ring = Arc::new(Mutex::new(Ring::new()));
        Self { key, like, ring }
    }

    /// From now on these are the endpoints, by names that other gateways know them by as well. `connect` makes the exporter of a
    /// new one; one that cannot be made is logged and left out. Requests under way to one that is gone end as they end.
    pub fn set_endpoints<E: std::fmt::Display>(
        &self,
        names: &[String],
        mut connect: impl FnMut(&str) -> Result<Arc<dyn Exporter>, E>,
    ) {
        let mut ring = self.ring.lock();
        let before = ring.names();
        let gone = ring.replace(names, |name| match connect(name) {
            Ok(exporter) => Some(exporter),
            Err(error) => {
                tracing::error!(endpoint = name, %error, "cannot send to this endpoint; the others have its keys");
                None
            }
        });
        let now = ring.names();
        let new: Vec<_> = now.iter().filter(|name| !before.contains(name)).collect();
        if !before.is_empty() && !(gone.is_empty() && new.is_empty()) {
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
        let candidates = self.ring.lock().candidates(Instant::now());
        if candidates.is_empty() {
            let to = Arc::new(Nowhere(self.ring.clone()));
            let parts = batch.parts.iter().cloned().enumerate().collect();
            return vec![RoutedPart { to, parts }];
        }
        let key = self.key.unwrap_or(match batch.signal {
            Signal::Traces => RoutingKey::TraceId,
            _ => RoutingKey::Service,
        });
        let mut pieces: Vec<Vec<(usize, Part)>> = vec![Vec::new(); candidates.len()];
        for (index, part) in batch.parts.iter().enumerate() {
            let owner = |key| owner(&candidates, key);
            let shares = share_out(kind(batch.signal), &part.body, key, owner);
            // Only a body that was let in with shallow validation can be broken or miscounted: it goes in one piece.
            let sound =
                |shares: &Vec<Share>| shares.iter().map(|share| share.items).sum::<u64>() == part.items;
            match shares.ok().filter(sound).as_deref() {
                Some([all]) => pieces[all.to].push((index, part.clone())),
                Some(shares) => shares.iter().for_each(|share| {
                    let piece = Part {
                        body: share.body.clone(),
                        items: share.items,
                        frame: None,
                    };
                    pieces[share.to].push((index, piece));
                }),
                None => pieces[owner(0)].push((index, part.clone())),
            }
        }
        let pieces = candidates.into_iter().zip(pieces);
        pieces
            .filter(|(_, parts)| !parts.is_empty())
            .map(|(candidate, parts)| {
                let to = Arc::new(Endpoint {
                    ring: self.ring.clone(),
                    id: candidate.id,
                    trial: candidate.trial,
                    exporter: candidate.sender,
                });
                RoutedPart { to, parts }
            })
            .collect()
    }
}

impl Exporter for Routed {
    /// Nothing is sent before it is routed.
    fn export<'a>(&'a self, _: &'a Batch) -> Export<'a> {
        Box::pin(async { Verdict::Moved })
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

    fn shutdown<'a>(&'a self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        let all = self.ring.lock().senders();
        Box::pin(async move {
            for exporter in all {
                exporter.shutdown().await;
            }
        })
    }
}

/// Where there is no endpoint yet.
struct Nowhere(SharedRing);

impl Exporter for Nowhere {
    fn export<'a>(&'a self, _: &'a Batch) -> Export<'a> {
        let verdict = match self.0.lock().names().is_empty() {
            true => Verdict::Retry {
                after: None,
                reason: "no endpoint is known yet: its name has no addresses".to_owned(),
            },
            false => Verdict::Moved,
        };
        Box::pin(async { verdict })
    }

    fn max_request_bytes(&self) -> usize {
        usize::MAX
    }
}

/// One endpoint, as the owner of one piece.
struct Endpoint {
    ring: SharedRing,
    id: u64,
    /// The endpoint is out, and this piece is to show whether it is well again.
    trial: bool,
    exporter: Arc<dyn Exporter>,
}

impl Endpoint {
    async fn send(&self, batch: &Batch) -> Verdict {
        if !self.trial && !self.ring.lock().is_in(self.id) {
            return Verdict::Moved;
        }
        let verdict = self.exporter.export(batch).await;
        let refuses = match &verdict {
            Verdict::Retry { .. } => false,
            Verdict::EndpointFault { .. } => true,
            _ => {
                let mut ring = self.ring.lock();
                if ring.works(self.id) {
                    let endpoint = ring.name(self.id);
                    tracing::info!(endpoint, "the endpoint works again, and has its keys back");
                }
                return verdict;
            }
        };
        let mut ring = self.ring.lock();
        let was_in = ring.is_in(self.id);
        let failed = ring.failed(self.id, refuses, Instant::now());
        let (Verdict::Retry { reason, .. } | Verdict::EndpointFault { reason }) = &verdict else {
            return verdict;
        };
        match failed {
            Failed::AllRefuse => verdict,
            Failed::Stays if !refuses => verdict,
            // Another one may still take it.
            Failed::Stays => Verdict::Retry {
                after: None,
                reason: reason.clone(),
            },
            Failed::Left => {
                if was_in {
                    let endpoint = ring.name(self.id);
                    tracing::warn!(
                        endpoint,
                        reason,
                        "the endpoint takes nothing; the others have its keys until it does"
                    );
                }
                Verdict::Moved
            }
        }
    }
}

impl Exporter for Endpoint {
    fn export<'a>(&'a self, batch: &'a Batch) -> Export<'a> {
        Box::pin(self.send(batch))
    }

    fn max_request_bytes(&self) -> usize {
        self.exporter.max_request_bytes()
    }
}

#[cfg(test)]
mod tests;
