//! Which message a body is.

/// What the bytes of a payload are, before compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WireFormat {
    /// OTLP: an `Export*ServiceRequest`.
    #[default]
    Otlp,
    /// Remote write 1.0: a `prometheus.WriteRequest`. Metrics only.
    RemoteWrite1,
    /// Remote write 2.0: an `io.prometheus.write.v2.Request`. Metrics only.
    RemoteWrite2,
}
