//! The kinds of telemetry.

/// What a payload carries. Profiles are forwarded opaquely: never merged, never split, because
/// their dictionary belongs to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Signal {
    /// Data points.
    Metrics,
    /// Log records.
    Logs,
    /// Spans.
    Traces,
    /// Profiles.
    Profiles,
}

impl Signal {
    /// All of them, in a fixed order.
    pub const ALL: [Signal; 4] = [Signal::Metrics, Signal::Logs, Signal::Traces, Signal::Profiles];

    /// The name used in configuration, metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Signal::Metrics => "metrics",
            Signal::Logs => "logs",
            Signal::Traces => "traces",
            Signal::Profiles => "profiles",
        }
    }

    /// Whether two requests laid end to end are one valid request.
    pub fn concatenates(self) -> bool {
        self != Signal::Profiles
    }
}

impl std::fmt::Display for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
