//! A telemetry gateway: OTLP in, batched OTLP out, nothing lost silently.

pub mod settings;
