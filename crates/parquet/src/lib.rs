//! OTLP as Parquet: tables that any engine can query, from wire bytes.
//!
//! What the crate promises:
//!
//! - Nothing builds a protobuf object, and no input makes it panic or write a file that readers refuse: what has to be
//!   repaired for that is counted.
//! - Every row of an acknowledged payload is in exactly one file, over crashes and lost answers, where the queue is on disk.
//! - Every attribute can be had back exactly: value, type, and place (docs/parquet-schema.md says how).

mod encode;
mod exporter;

pub use encode::{
    ColumnType, EncodeError, Encoder, FileSettings, Level, PageEncoder, Promotion, Repairs, Table,
};
#[cfg(feature = "object-stores")]
pub use exporter::{AzureIdentity, AzureSettings, GcsSettings, S3Settings};
pub use exporter::{
    Delivery, Feed, InvalidTarget, LayoutSettings, ParquetExporter, ParquetExporterOptions, PartitionBy,
    SpoolError, Target,
};
