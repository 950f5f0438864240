//! The three signals and where OTLP receives them.

use std::fmt;
use std::str::FromStr;

/// A kind of telemetry that loadgen can make and check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Signal {
    /// Data points in `ExportMetricsServiceRequest`.
    Metrics,
    /// Log records in `ExportLogsServiceRequest`.
    Logs,
    /// Spans in `ExportTraceServiceRequest`.
    Traces,
}

impl Signal {
    /// Every signal, in the order of [`Signal::index`].
    pub const ALL: [Signal; 3] = [Signal::Metrics, Signal::Logs, Signal::Traces];

    /// Position in [`Signal::ALL`].
    pub fn index(self) -> usize {
        match self {
            Signal::Metrics => 0,
            Signal::Logs => 1,
            Signal::Traces => 2,
        }
    }

    /// Lower-case name: `metrics`, `logs` or `traces`.
    pub fn name(self) -> &'static str {
        match self {
            Signal::Metrics => "metrics",
            Signal::Logs => "logs",
            Signal::Traces => "traces",
        }
    }

    /// Default OTLP/HTTP path, such as `/v1/metrics`.
    pub fn http_path(self) -> &'static str {
        match self {
            Signal::Metrics => "/v1/metrics",
            Signal::Logs => "/v1/logs",
            Signal::Traces => "/v1/traces",
        }
    }

    /// Path of the gRPC `Export` call.
    pub fn grpc_path(self) -> &'static str {
        match self {
            Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            Signal::Logs => "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
            Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        }
    }

    /// The signal that an HTTP or gRPC path belongs to, if it is one of the two above.
    pub fn of_path(path: &str) -> Option<Signal> {
        Signal::ALL
            .into_iter()
            .find(|signal| path == signal.http_path() || path == signal.grpc_path())
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Signal {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Signal::ALL
            .into_iter()
            .find(|signal| signal.name() == name)
            .ok_or_else(|| format!("unknown signal {name:?}: use metrics, logs or traces"))
    }
}
