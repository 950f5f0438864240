//! What prost makes of the bytes.

use opentelemetry_proto::tonic::collector::{
    logs::v1::ExportLogsServiceRequest, metrics::v1::ExportMetricsServiceRequest,
    profiles::v1development::ExportProfilesServiceRequest, trace::v1::ExportTraceServiceRequest,
};
use prost::Message;
use sluice_wire::Kind;

/// The kind a byte of the input chooses.
pub fn kind(choice: u8) -> Kind {
    Kind::ALL[usize::from(choice) % Kind::ALL.len()]
}

/// The message in words, which unlike its encoding tells no NaN from another: JSON has only one.
pub fn meaning(kind: Kind, wire: &[u8]) -> Option<String> {
    Some(match kind {
        Kind::Metrics => format!("{:?}", ExportMetricsServiceRequest::decode(wire).ok()?),
        Kind::Logs => format!("{:?}", ExportLogsServiceRequest::decode(wire).ok()?),
        Kind::Traces => format!("{:?}", ExportTraceServiceRequest::decode(wire).ok()?),
        Kind::Profiles => format!("{:?}", ExportProfilesServiceRequest::decode(wire).ok()?),
    })
}
