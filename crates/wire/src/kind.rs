//! Which request the bytes are.

use crate::grammar::MessageId;

/// Which `Export*ServiceRequest` a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// `ExportMetricsServiceRequest`; an item is a data point of any of the five metric kinds.
    Metrics,
    /// `ExportLogsServiceRequest`; an item is a log record.
    Logs,
    /// `ExportTraceServiceRequest`; an item is a span.
    Traces,
    /// `ExportProfilesServiceRequest` (`v1development`); an item is a profile.
    Profiles,
}

impl Kind {
    /// All kinds, in declaration order.
    pub const ALL: [Self; 4] = [Self::Metrics, Self::Logs, Self::Traces, Self::Profiles];

    /// The message a body of this kind is.
    pub(crate) const fn root(self) -> MessageId {
        match self {
            Self::Metrics => MessageId::MetricsRequest,
            Self::Logs => MessageId::LogsRequest,
            Self::Traces => MessageId::TracesRequest,
            Self::Profiles => MessageId::ProfilesRequest,
        }
    }
}
