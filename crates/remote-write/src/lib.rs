//! Prometheus remote write: OTLP metrics to series and back, wire to wire.
//!
//! What the crate promises:
//!
//! - [`Encoder`] builds no protobuf object, and no input makes it panic. What it writes has sorted, unique, non-empty
//!   labels, in legacy characters where the strategy escapes.
//! - The mapping is that of Prometheus 3's own OTLP endpoint; where it is not, `tests/golden/divergences.txt` says so.
//! - Every data point is written or counted by the reason it was not.
//! - All samples of a series go through one lane, in the order they came in.

mod body;
mod check;
mod cumulative;
mod decode;
mod dropped;
mod encoder;
mod exporter;
mod hash;
mod labels;
mod lane_set;
mod mapping;
mod names;
mod point_labels;
mod protobuf;
mod receiver;
mod relabelled;
mod rewrite;
mod snappy;
mod text;
mod through;
mod to_otlp;
mod transcode;
mod v1;
mod v2;

pub use body::{Body, Format, Lanes, Written};
pub use check::{check, written_out};
pub use cumulative::TotalsFile;
pub use decode::{Invalid, Taken, Version};
pub use dropped::{Dropped, Reason};
pub use encoder::{Encoder, EncoderSettings};
pub use exporter::{ExporterError, LanesFile, RemoteWriteExporter, RemoteWriteExporterOptions, TenantHeader};
pub use mapping::{Mapping, Promote};
pub use names::Strategy;
pub use receiver::{PATH, ReceiverSettings, RemoteWriteService};
pub use to_otlp::to_otlp;
pub use transcode::Outcome;
