//! From a receiver to a destination: intake into the journals, batching, the in-flight window,
//! settle and retry policy.
//!
//! Promise: every item a receiver was told is accepted ends in exactly one of delivered or
//! dropped{reason} at every exporter of its pipelines, or is still queued; one dead exporter never
//! holds up another; an endpoint fault never drains a backlog.
//!
//! Read [`Intake::take`], then [`deliver`]. What decides ([`Batch`]ing, gate, window, retry) is
//! sans-IO: time is a parameter.

mod balanced;
mod batcher;
mod delivery;
mod exporter;
mod gate;
mod intake;
mod refusals;
mod retry;
mod ring;
mod routed;
mod tracked;
mod turn;
mod window;

pub use balanced::{Balance, Balanced};
pub use batcher::{BatchSettings, Sizer, contiguous, kind};
pub use delivery::{DeliverySettings, LEAVING_GRACE, deliver};
pub use exporter::{Batch, Export, Exporter, Part, Refused, Verdict};
pub use gate::{FIRST_PROBE, MAX_PROBE_INTERVAL};
pub use intake::{AckLevel, Formats, Intake, NotTaken, Offer, Route, Taken};
pub use refusals::{MAX_PAYLOAD_FAULTS_IN_A_ROW, MAX_PAYLOAD_FAULTS_LATELY};
pub use retry::RetrySettings;
pub use routed::{Blame, Owner, Routed, RoutedPart, Sent};
pub use turn::{Ending, Turn};
