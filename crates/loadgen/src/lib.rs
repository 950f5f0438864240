//! Realistic OTLP and remote write payloads with unique item ids; the sink that checks them.
//!
//! What this crate promises:
//!
//! - [`Generator`] makes encoded `Export{Metrics,Logs,Trace}ServiceRequest` bodies, the same ones for the
//!   same [`Spec`]. Every item (data point, log record, span) carries its own id, and the ids of one
//!   generator are consecutive.
//! - [`for_each_id`] and [`ids`] find those ids again in any decoded body, however items were merged or
//!   split on the way. The walk is this crate's own and shares no code with `sluice-wire`, so that it can
//!   be its oracle.
//! - [`Generator::remote_write`] makes the same points as Prometheus remote write, 1.0 or 2.0, and
//!   [`for_each_sample`] finds their ids.
//! - [`Tally`] and [`Tallies`] account for ids in bitmaps: sent, delivered, duplicated, lost, unknown.
//! - [`Generator::outlines`] say how to recognise a whole resource by its length and its first and last id.
//!
//! ```
//! use sluice_loadgen::{Generator, Signal, Spec, Tally, ids};
//!
//! let mut generator = Generator::new(Spec::gateway(Signal::Metrics));
//! let request = generator.next_request();
//! let mut tally = Tally::new();
//! tally.sent(request.first_id, u64::from(request.items));
//! for id in ids(Signal::Metrics, &request.body)? {
//!     tally.delivered(id);
//! }
//! assert!(tally.report().is_exact());
//! # Ok::<(), sluice_loadgen::Malformed>(())
//! ```

mod generator;
mod ids;
mod logs;
mod metrics;
mod outline;
mod proto;
mod random;
mod remote_write;
mod resource;
mod signal;
mod spec;
mod tally;
mod traces;
mod walk;

pub use generator::{Generator, Request};
pub use ids::{for_each_id, ids};
pub use outline::Outline;
pub use remote_write::{Found, Invalid, RemoteWrite, Written, for_each_sample};
pub use signal::Signal;
pub use spec::{FIRST_ID, LANES, Shape, Spec};
pub use tally::{Report, Tallies, Tally};
pub use walk::Malformed;
