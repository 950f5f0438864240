//! From a receiver into the journals of every pipeline of its signal.

mod offer;

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use sluice_admission::Permit;
use sluice_journal::{Appended, Confirm, Confirmed, Durability, EASED_BYTES, Full, Journal, NotPersisted};
use sluice_payload::{Encoding, Payload, Signal};
use sluice_telemetry::DropReason;
use tokio::time::Instant;

use crate::Exporter;
pub use offer::{Formats, NotTaken, Offer, Taken};

/// For each [`EASED_BYTES`] that a pipeline has in front of an exporter, a receiver gives the runtime's other tasks a turn
/// before it answers, and so many at most.
const MOST_TURNS: u64 = 4;

/// A turn of all tasks that takes this long, for each [`EASED_BYTES`] of backlog, says that the cores are the bottleneck: an
/// export needs half a dozen turns. On an idle core a turn takes some microseconds.
const LONG_TURN: Duration = Duration::from_millis(2);

/// A receiver holds an answer back at most so long. 256 clients with 110 KB each, on half a core, wait for a quarter of it.
const LONGEST_HOLD: Duration = Duration::from_secs(1);

/// When a receiver answers "accepted".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckLevel {
    /// Once the payload is in the journal; in one on disk, once it is written.
    Accepted,
    /// Once the payload is in the journal on disk, synced as its settings say.
    Persisted,
    /// Once every exporter of the pipeline confirmed it.
    Delivered,
}

/// One pipeline as a receiver sees it.
#[derive(Clone)]
pub struct Route {
    /// Its journal.
    pub journal: Journal,
    /// When its payloads are acknowledged.
    pub ack: AckLevel,
    /// The exporters that can send compressed frames on as they came.
    pub passing_through: Vec<Arc<dyn Exporter>>,
    /// How long a payload waits for room in the journal at least (`block_on_overflow`), whatever its own patience.
    pub block_for: Duration,
    /// Every exporter reads remote write as it came: it is not turned into OTLP for them.
    pub straight: bool,
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Route({:?}, {:?})", self.journal, self.ack)
    }
}

/// The way in for one receiver: its pipelines by signal.
#[derive(Debug, Clone, Default)]
pub struct Intake {
    routes: [Arc<[Route]>; Signal::ALL.len()],
}

impl Intake {
    /// `routes` are the pipelines the receiver feeds.
    pub fn new(routes: impl IntoIterator<Item = (Signal, Route)>) -> Self {
        let mut by_signal: [Vec<Route>; Signal::ALL.len()] = Default::default();
        for (signal, route) in routes {
            by_signal[signal as usize].push(route);
        }
        Self {
            routes: by_signal.map(Into::into),
        }
    }

    /// Whether any pipeline takes this signal.
    pub fn takes(&self, signal: Signal) -> bool {
        !self.routes[signal as usize].is_empty()
    }

    /// What this signal's pipelines want a request of remote write as; neither where there is none.
    pub fn formats(&self, signal: Signal) -> Formats {
        let routes = &self.routes[signal as usize];
        Formats {
            otlp: routes.iter().any(|route| !route.straight),
            as_it_came: routes.iter().any(|route| route.straight),
        }
    }

    /// Whether a compressed frame of `encoding` may be of use, to an exporter or to a journal.
    pub fn keeps_frames(&self, signal: Signal, encoding: Encoding) -> bool {
        self.routes[signal as usize].iter().any(|route| {
            let mut exporters = route.passing_through.iter();
            route.journal.stores_frames(encoding)
                || exporters.any(|exporter| exporter.passes_through() == Some(encoding))
        })
    }

    /// Puts a payload of OTLP into every pipeline of its signal, all or none, and waits as long as their
    /// ack level says. `patience` is how long the request may wait for room in all of them together.
    ///
    /// # Errors
    /// [`NotTaken`]; nothing was taken, but for [`NotTaken::NotDelivered`].
    pub async fn take(&self, payload: Payload, patience: Duration) -> Result<Taken, NotTaken> {
        self.take_in_turn(payload, patience, ()).await
    }

    /// As [`take`](Self::take); drops `turn` when the payload is in the journals or has to wait for room in one, whatever is waited
    /// for then.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub async fn take_in_turn<T>(
        &self,
        payload: Payload,
        patience: Duration,
        turn: T,
    ) -> Result<Taken, NotTaken> {
        let signal = payload.signal;
        let offer = Offer {
            otlp: Some(payload),
            as_it_came: None,
        };
        self.take_offer(signal, offer, patience, turn).await
    }

    /// The same of a request of this signal in several formats.
    ///
    /// # Errors
    /// [`NotTaken`], of which [`NotTaken::NoPipeline`] also where a format that a pipeline needs is missing.
    pub async fn take_offer<T>(
        &self,
        signal: Signal,
        offer: Offer,
        patience: Duration,
        turn: T,
    ) -> Result<Taken, NotTaken> {
        let payloads = offer.shared();
        let routes = &*self.routes[signal as usize];
        let of = |route: &Route| payloads[usize::from(route.straight)].as_ref();
        let given = || routes.iter().filter_map(move |route| Some((route, of(route)?)));
        if routes.is_empty() || given().count() < routes.len() {
            return Err(NotTaken::NoPipeline);
        }
        // Nothing to deliver, nothing to account for (C9: no empty envelopes): nobody would settle a payload of no items. One format may
        // have items where the other has none.
        let wanted = || given().filter(|(_, payload)| payload.items > 0);
        if wanted().next().is_none() {
            return Ok(Taken::default());
        }
        let mut turn = Some(turn);
        let mut spaces = Vec::with_capacity(routes.len());
        let asked = Instant::now();
        for (route, payload) in wanted() {
            let cost = route.journal.cost(payload);
            let space = match route.journal.try_reserve(cost) {
                Ok(space) => space,
                // Space already reserved in other journals is kept meanwhile: the wait is bounded.
                Err(Full::Now { .. }) => {
                    turn = None;
                    let deadline = asked + patience.max(route.block_for);
                    match tokio::time::timeout_at(deadline, route.journal.reserve(cost)).await {
                        Ok(Ok(space)) => space,
                        Ok(Err(full)) => return Err(full.into()),
                        // The hint is about the queue as it is now: it may have drained meanwhile, or stood.
                        Err(_) => route.journal.try_reserve(cost)?,
                    }
                }
                Err(refused) => return Err(refused.into()),
            };
            spaces.push(Some(space));
        }
        let waiting: u32 = wanted()
            .filter(|(route, _)| route.ack == AckLevel::Delivered)
            .map(|(route, _)| route.journal.cursor_count() as u32)
            .sum();
        let (confirm, delivered) = match waiting {
            0 => (None, None),
            cursors => {
                let (confirm, delivered) = Confirm::new(cursors);
                (Some(confirm), Some(delivered))
            }
        };
        // Journals on disk may refuse yet; those in memory take what was reserved, and so come last. With two on disk, one may
        // take what the other refuses: the client sends it again, and it is in the first one twice.
        for durable in [true, false] {
            let mut on_disk = Vec::new();
            for ((route, payload), space) in wanted().zip(&mut spaces) {
                if route.journal.is_durable() != durable {
                    continue;
                }
                let Some(space) = space.take() else { continue };
                let confirm = confirm.as_ref().filter(|_| route.ack == AckLevel::Delivered);
                let durability = match route.ack {
                    AckLevel::Accepted => Durability::Written,
                    AckLevel::Persisted | AckLevel::Delivered => Durability::Synced,
                };
                let appended = route
                    .journal
                    .append(space, payload.clone(), confirm.cloned(), durability);
                if durable {
                    on_disk.push(appended);
                }
            }
            all_persisted(on_disk).await?;
        }
        let mut permits = payloads
            .iter()
            .flatten()
            .filter_map(|payload| payload.permit.as_ref());
        permits.clone().for_each(Permit::counts_as_drained);
        let is_light = permits.next().is_some_and(Permit::is_of_a_light_tenant);
        drop((confirm, payloads, turn));
        if !is_light {
            give_way(routes).await;
        }
        let Some(delivered) = delivered else {
            return Ok(Taken::default());
        };
        match delivered.await {
            Ok(Confirmed { dropped: None }) => Ok(Taken::default()),
            Ok(Confirmed {
                dropped:
                    Some((
                        DropReason::PayloadFault | DropReason::DeadLetter | DropReason::PartialSuccess,
                        rejected,
                    )),
            }) => Ok(Taken { rejected }),
            Ok(Confirmed {
                dropped: Some((reason, items)),
            }) => Err(NotTaken::NotDelivered(reason, items)),
            Err(_) => Err(NotTaken::Refused {
                message: "the gateway stopped before delivery was confirmed; retry".into(),
                drains_in: None,
            }),
        }
    }
}

/// Waits for all of them side by side: the exporters of one journal wait for no other journal's disk.
async fn all_persisted(mut waiting: Vec<Appended>) -> Result<(), NotPersisted> {
    std::future::poll_fn(|cx| {
        let mut result = Ok(());
        waiting.retain_mut(|appended| match appended.poll_persisted(cx) {
            Poll::Pending => true,
            Poll::Ready(Ok(())) => false,
            Poll::Ready(refused) => {
                result = refused;
                false
            }
        });
        match (&result, waiting.is_empty()) {
            (Ok(()), false) => Poll::Pending,
            _ => Poll::Ready(result),
        }
    })
    .await
}

/// Receiving and sending share cores. A receiver that is never idle would take every turn it can get, and the queue
/// would grow to its limit in front of a destination that is waiting for more; and what leaves a long queue is in no cache
/// any more.
///
/// So a receiver with a backlog in front of it gives others turns. When turns take long, it holds its answer back, and with it
/// its client, until what waits is little. Where the destination is the bottleneck, and not the cores, turns are short,
/// and the queue is what it is for. Tenants and signals that hold little of what waits are not held back for those that hold much.
async fn give_way(routes: &[Route]) {
    let Some(route) = routes.iter().max_by_key(|route| route.journal.backlog_bytes()) else {
        return;
    };
    let excess = route.journal.backlog_bytes() / EASED_BYTES;
    if excess == 0 {
        return;
    }
    let began = std::time::Instant::now();
    let turns = excess.min(MOST_TURNS) as u32;
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
    let turn = began.elapsed() / turns;
    if turn * (excess as u32) >= LONG_TURN {
        route.journal.eased(LONGEST_HOLD).await;
    }
}

#[cfg(test)]
mod tests;
