//! Collector-shaped YAML with file, line and column kept through merge, `--set` and `${env:X}`.
//!
//! This crate knows no component. It promises three things:
//!
//! - **One tree.** [`Loader`] reads every `--config` source in order, merges them deeply (maps merge,
//!   everything else is replaced), applies `--set`, expands `${...}` as the OpenTelemetry Collector does,
//!   and gives a [`Document`]: a tree of [`Node`]s, each of which still knows the place it came from.
//! - **All problems.** [`decode`] turns a node into any serde type and reports *every* unknown key and wrong
//!   value it finds in a [`Report`], each with file, line, column, key path, the nearest known key and what to do.
//! - **No secret in print.** [`to_yaml`] writes a tree back as YAML with chosen values redacted, and
//!   [`Secret`] never shows its content through `Debug` or `Display`.
//!
//! A reader starts with `load.rs`, follows the data through `parse.rs`, `merge.rs` and `expand.rs`, and ends in `de.rs`.

mod coerce;
mod de;
mod decode;
mod error;
mod expand;
mod load;
mod merge;
mod node;
mod parse;
mod print;
mod suggest;
mod types;

pub use coerce::{parse_byte_size, parse_duration};
pub use decode::decode;
pub use error::{Problem, Problems, Report};
pub use load::{Document, Environment, Loader, ProcessEnvironment};
pub use node::{Entry, Mapping, Node, Source, Span, Value};
pub use parse::{MAX_ALIAS_NODES, MAX_DEPTH, parse_yaml};
pub use print::{REDACTED, to_yaml};
pub use suggest::nearest;
pub use types::{ByteSize, Percent, Secret, Spanned};
