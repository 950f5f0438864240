//! OTLP wire views: validate, count, split, edit and concatenate export requests over borrowed bytes.
//! Of requests of remote write only what a queue needs: [`halve_remote_write`].
//!
//! What the crate promises:
//!
//! - Nothing here builds a protobuf object, and no input makes it panic.
//! - [`validate`] at [`Depth::Deep`] accepts exactly what prost decodes into the `opentelemetry-proto` types, less
//!   ids of a wrong length (which prost does not look at and every receiver downstream refuses). [`count`] and
//!   [`validate`] agree with prost on the number of items.
//! - [`split`], [`share_out`], [`Edits`] and [`Chain`] keep what they do not understand: unknown fields survive.
//!
//! Where protobuf allows several encodings of one thing, this crate reads what prost reads:
//!
//! - a singular message that occurs twice is merged; a singular scalar that occurs twice: the last one counts;
//! - an arm of a oneof that follows another arm replaces it; the same message arm twice is merged;
//! - fields come in any order; repeated scalars come packed or not;
//! - unknown fields and balanced unknown groups are skipped, so the deprecated field 1000
//!   (`InstrumentationLibrary*`) holds no items;
//! - varints have up to ten bytes, and are truncated to the width of their field; a key fits 32 bits;
//! - messages and groups nest up to 100 levels.

mod chain;
mod count;
mod cursor;
mod edit;
mod error;
mod grammar;
mod kind;
mod locate;
mod log;
mod message;
mod metric;
mod pair;
mod prefetch;
mod remote_write;
mod request;
mod shapes;
mod share;
mod span;
mod split;
mod validate;
mod value;

pub mod schema;

pub use chain::Chain;
pub use count::count;
pub use cursor::{Field, Fields};
pub use edit::Edits;
pub use error::{Fault, WireError};
pub use kind::Kind;
pub use log::{LogRecord, LogRecords};
pub use metric::{Metric, MetricData, MetricHead, MetricKind, Metrics, Number, Point, Points};
pub use prefetch::prefetch;
pub use remote_write::{REMOTE_WRITE_1, REMOTE_WRITE_2, RemoteWriteFields, halve_remote_write};
pub use request::{Request, Resource, ResourceItems, Resources, Scope, ScopeItems, Scopes, range_of};
pub use share::{MAX_REPEATED_BYTES, RoutingKey, Share, share_out, stable_hash};
pub use span::{Span, Spans};
pub use split::{Limit, Piece, split};
pub use validate::{Depth, Scan, validate};
pub use value::{Array, Attributes, KeyValue, Map, Value};
