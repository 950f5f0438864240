//! Prometheus remote write: requests of gauges and counters, and finding their ids again.

mod bodies;
mod ids;

pub(crate) use bodies::write;
pub use ids::{Found, Invalid, Written, for_each_sample};

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemoteWrite {
    /// 1.0: `prometheus.WriteRequest`, every label spelt out in every series.
    V1,
    /// 2.0: `io.prometheus.write.v2.Request`, labels by reference into a table of symbols.
    V2,
}

impl RemoteWrite {
    /// Where requests usually go.
    pub const PATH: &'static str = "/api/v1/write";

    /// Every version.
    pub const ALL: [RemoteWrite; 2] = [RemoteWrite::V1, RemoteWrite::V2];

    /// Name of the message, as in the `proto` parameter of a content type.
    pub fn message(self) -> &'static str {
        match self {
            RemoteWrite::V1 => "prometheus.WriteRequest",
            RemoteWrite::V2 => "io.prometheus.write.v2.Request",
        }
    }
}

/// Label that carries an id: a name that needs no escaping.
const ID_LABEL: &str = "sluice_id";
