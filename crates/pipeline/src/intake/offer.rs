//! What a receiver offers, and what comes of it.

use std::sync::Arc;
use std::time::Duration;

use sluice_journal::{Full, NotPersisted};
use sluice_payload::Payload;
use sluice_telemetry::DropReason;

/// Why a payload was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotTaken {
    /// Try again later: a queue is full, a disk takes nothing, or the gateway is stopping.
    Refused {
        /// What is short.
        message: String,
        /// How long what waits in the queue takes to leave, where that is it.
        drains_in: Option<Duration>,
    },
    /// No pipeline takes this signal.
    NoPipeline,
    /// Taken, and then given up by an exporter that could not deliver it in time: try again.
    NotDelivered(DropReason, u64),
}

impl From<Full> for NotTaken {
    fn from(full: Full) -> Self {
        let drains_in = match full {
            Full::Now { drains_in, .. } => Some(drains_in),
            Full::Disk { .. } | Full::Closed => None,
        };
        Self::Refused {
            message: full.to_string(),
            drains_in,
        }
    }
}

impl From<NotPersisted> for NotTaken {
    fn from(error: NotPersisted) -> Self {
        Self::Refused {
            message: error.to_string(),
            drains_in: None,
        }
    }
}

/// One request, in as many formats as [`Intake::formats`](super::Intake::formats) asks for; each holds the same items.
#[derive(Debug, Default)]
pub struct Offer {
    /// As OTLP.
    pub otlp: Option<Payload>,
    /// As it came, where that is remote write: for the pipelines that take it straight.
    pub as_it_came: Option<Payload>,
}

impl Offer {
    /// The one that pipelines take: straight ones read both.
    pub(super) fn shared(self) -> [Option<Arc<Payload>>; 2] {
        let [otlp, as_it_came] = [self.otlp, self.as_it_came].map(|payload| payload.map(Arc::new));
        let straight = as_it_came.or_else(|| otlp.clone());
        [otlp, straight]
    }
}

/// What the pipelines of a signal want a request of remote write as.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Formats {
    /// Some as OTLP.
    pub otlp: bool,
    /// Some as it came.
    pub as_it_came: bool,
}

/// What was taken, and what of it the destinations rejected for good (ack level `delivered` only).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Taken {
    /// Items no destination will ever have.
    pub rejected: u64,
}
