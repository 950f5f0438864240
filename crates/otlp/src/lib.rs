//! OTLP receivers (gRPC, HTTP, JSON) and exporters (gRPC, HTTP, file, debug).

mod fields;

pub mod exporter;
pub mod json;
pub mod receiver;
