//! From a receiver into the journals of every pipeline of its signal.

use std::sync::Arc;
use std::time::Duration;

use sluice_journal::{Confirm, Confirmed, Cost, Full, Journal};
use sluice_payload::{Encoding, Payload, Signal};
use sluice_telemetry::DropReason;
use tokio::time::Instant;

use crate::Exporter;

/// When a receiver answers "accepted".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckLevel {
    /// Once the payload is in the journal.
    Accepted,
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
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Route({:?}, {:?})", self.journal, self.ack)
    }
}

/// Why a payload was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotTaken {
    /// Try again later: a queue is full, or the gateway is stopping.
    Refused(String),
    /// No pipeline takes this signal.
    NoPipeline,
    /// Taken, and then given up by an exporter that could not deliver it in time: try again.
    NotDelivered(DropReason, u64),
}

/// What was taken, and what of it the destinations rejected for good (ack level `delivered` only).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Taken {
    /// Items no destination will ever have.
    pub rejected: u64,
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

    /// Whether a compressed frame of `encoding` may be of use to an exporter.
    pub fn keeps_frames(&self, signal: Signal, encoding: Encoding) -> bool {
        let mut exporters = self.routes[signal as usize]
            .iter()
            .flat_map(|route| &route.passing_through);
        exporters.any(|exporter| exporter.passes_through() == Some(encoding))
    }

    /// Puts a payload into every pipeline of its signal, all or none, and waits as long as their
    /// ack level says. `patience` is how long the request may wait for room in all of them together.
    ///
    /// # Errors
    /// [`NotTaken`]; nothing was taken, but for [`NotTaken::NotDelivered`].
    pub async fn take(&self, payload: Payload, patience: Duration) -> Result<Taken, NotTaken> {
        let routes = &*self.routes[payload.signal as usize];
        if routes.is_empty() {
            return Err(NotTaken::NoPipeline);
        }
        if payload.items == 0 {
            // Nothing to deliver, nothing to account for (C9: no empty envelopes).
            return Ok(Taken::default());
        }
        let cost = Cost {
            requests: 1,
            items: payload.items,
            bytes: payload.retained_bytes(),
        };
        let mut spaces = Vec::with_capacity(routes.len());
        let asked = Instant::now();
        for route in routes {
            let space = match route.journal.try_reserve(cost) {
                Ok(space) => space,
                // Space already reserved in other journals is kept meanwhile: the wait is bounded.
                Err(full @ Full::Now { .. }) => {
                    let deadline = asked + patience.max(route.block_for);
                    match tokio::time::timeout_at(deadline, route.journal.reserve(cost)).await {
                        Ok(Ok(space)) => space,
                        Ok(Err(full)) => return Err(NotTaken::Refused(full.to_string())),
                        Err(_) => return Err(NotTaken::Refused(full.to_string())),
                    }
                }
                Err(closed) => return Err(NotTaken::Refused(closed.to_string())),
            };
            spaces.push(space);
        }
        let waiting: u32 = routes
            .iter()
            .filter(|route| route.ack == AckLevel::Delivered)
            .map(|route| route.journal.cursor_count() as u32)
            .sum();
        let (confirm, delivered) = match waiting {
            0 => (None, None),
            cursors => {
                let (confirm, delivered) = Confirm::new(cursors);
                (Some(confirm), Some(delivered))
            }
        };
        let payload = Arc::new(payload);
        for (route, space) in routes.iter().zip(spaces) {
            let confirm = confirm
                .as_ref()
                .filter(|_| route.ack == AckLevel::Delivered)
                .cloned();
            route.journal.append(space, payload.clone(), confirm);
        }
        drop((confirm, payload));
        let Some(delivered) = delivered else {
            return Ok(Taken::default());
        };
        match delivered.await {
            Ok(Confirmed { dropped: None }) => Ok(Taken::default()),
            Ok(Confirmed {
                dropped: Some((DropReason::PayloadFault | DropReason::PartialSuccess, rejected)),
            }) => Ok(Taken { rejected }),
            Ok(Confirmed {
                dropped: Some((reason, items)),
            }) => Err(NotTaken::NotDelivered(reason, items)),
            Err(_) => Err(NotTaken::Refused(
                "the gateway stopped before delivery was confirmed; retry".into(),
            )),
        }
    }
}
