//! OTLP as Parquet: tables that any engine can query, from wire bytes.
//!
//! What the crate promises:
//!
//! - Nothing builds a protobuf object, and no input makes it panic or write a file that readers refuse: what has to be
//!   repaired for that is counted.
//! - Every attribute can be had back exactly: value, type, and place (docs/parquet-schema.md says how).

mod encode;

pub use encode::{ColumnType, EncodeError, Encoder, FileSettings, Level, Promotion, Repairs, Table};
