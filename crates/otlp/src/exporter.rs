//! What sends OTLP: over HTTP, over gRPC, into files, and onto the terminal.
//!
//! An exporter sends one batch and classifies the answer; what follows (retry, halve, bisect,
//! hold) is `sluice-pipeline`'s. `exporter/classify.rs` has the tables.

mod addresses;
mod classify;
mod debug;
mod fallback;
mod file;
mod grpc;
mod http;
mod options;
mod pass_through;
mod protobuf;
mod stamp;
mod status;

pub use addresses::{ConnectTo, EndpointName, follow_addresses};
pub use debug::{DebugExporter, DebugExporterOptions, Verbosity};
pub use file::{FileExporter, FileExporterOptions, FileFormat, Rotation};
pub use grpc::GrpcExporter;
pub use http::HttpExporter;
pub use options::{
    BodyEncoding, ExporterError, GRPC_REQUEST_BYTES, GrpcExporterOptions, HTTP_REQUEST_BYTES,
    HttpExporterOptions, MAX_REQUEST_BYTES,
};
pub use pass_through::PassThroughMode;
