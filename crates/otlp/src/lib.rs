//! OTLP receivers (gRPC, HTTP, JSON) and exporters (gRPC, HTTP, file, debug).

pub mod json;
pub mod receiver;
