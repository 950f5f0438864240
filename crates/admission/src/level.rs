//! How bad it is: five levels, from plain numbers and thresholds.

use std::time::Duration;

use crate::Stats;

/// How much is wrong. Ordered: a later one is worse.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// Nothing is.
    #[default]
    Normal,
    /// Worth a look.
    Warning,
    /// Requests that can wait should.
    Moderate,
    /// Most requests should come back later.
    Critical,
    /// All but a trickle are refused.
    Emergency,
}

impl Level {
    /// Every level, in order.
    pub const ALL: [Self; 5] = [
        Self::Normal,
        Self::Warning,
        Self::Moderate,
        Self::Critical,
        Self::Emergency,
    ];

    /// The level's name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Warning => "warning",
            Self::Moderate => "moderate",
            Self::Critical => "critical",
            Self::Emergency => "emergency",
        }
    }

    /// The level with this number; numbers beyond the last are the worst level.
    pub(crate) fn from_number(number: u64) -> Self {
        *Self::ALL.get(number as usize).unwrap_or(&Self::Emergency)
    }
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which signal set a level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Cause {
    /// How long requests take.
    #[default]
    Latency,
    /// The share of the byte budget that is used.
    Budget,
    /// The share of the queue's bytes that is used.
    QueueBytes,
    /// How long the oldest payload has been queued.
    QueueAge,
    /// The share of the disk that is used.
    Disk,
    /// How long the destination takes.
    ExportLatency,
}

impl Cause {
    const ALL: [Self; 6] = [
        Self::Latency,
        Self::Budget,
        Self::QueueBytes,
        Self::QueueAge,
        Self::Disk,
        Self::ExportLatency,
    ];

    /// The cause's name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Budget => "budget",
            Self::QueueBytes => "queue_bytes",
            Self::QueueAge => "queue_age",
            Self::Disk => "disk",
            Self::ExportLatency => "export_latency",
        }
    }

    pub(crate) fn from_number(number: u64) -> Self {
        *Self::ALL.get(number as usize).unwrap_or(&Self::Latency)
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// When the latency of a method is too high. The defaults, and the rules in [`LatencyThresholds::level`], are
/// Floodgate's. Everything is compared with "greater than", in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatencyThresholds {
    /// Emergency above this 99th percentile (10 s).
    pub p99_emergency: u64,
    /// Critical above this 95th percentile, if the average is above `ema_critical` too (2 s).
    pub p95_critical: u64,
    /// See `p95_critical` (500 ms).
    pub ema_critical: u64,
    /// Moderate above this 95th percentile (1 s).
    pub p95_moderate: u64,
    /// Warning above this average (300 ms).
    pub ema_warning: u64,
    /// Warning above this slope, in nanoseconds a sample (10 ms). Where there are no percentiles, half of it is
    /// critical, three tenths are moderate and a tenth is a warning.
    pub slope_warning: i64,
    /// Percentiles count from this weight of samples on (10).
    pub min_weight: f64,
}

const MILLISECOND: u64 = 1_000_000;

impl LatencyThresholds {
    /// No latency is too high: for whoever wants to know it and goes by other signals.
    pub const NEVER: Self = Self {
        p99_emergency: u64::MAX,
        p95_critical: u64::MAX,
        ema_critical: u64::MAX,
        p95_moderate: u64::MAX,
        ema_warning: u64::MAX,
        // Three times as much still fits.
        slope_warning: i64::MAX / 4,
        min_weight: 10.0,
    };
}

impl Default for LatencyThresholds {
    fn default() -> Self {
        Self {
            p99_emergency: 10_000 * MILLISECOND,
            p95_critical: 2_000 * MILLISECOND,
            ema_critical: 500 * MILLISECOND,
            p95_moderate: 1_000 * MILLISECOND,
            ema_warning: 300 * MILLISECOND,
            slope_warning: 10 * MILLISECOND as i64,
            min_weight: 10.0,
        }
    }
}

impl LatencyThresholds {
    /// The level of these figures. Without percentiles, or with too few samples behind them, only the slope tells:
    /// what is slow but steady is judged once there are percentiles.
    #[inline]
    pub fn level(&self, stats: &Stats) -> Level {
        if stats.weight < self.min_weight {
            return if stats.slope > self.slope_warning / 2 {
                Level::Critical
            } else if stats.slope > self.slope_warning * 3 / 10 {
                Level::Moderate
            } else if stats.slope > self.slope_warning / 10 {
                Level::Warning
            } else {
                Level::Normal
            };
        }
        if stats.p99 > self.p99_emergency {
            Level::Emergency
        } else if stats.p95 > self.p95_critical && stats.ema > self.ema_critical {
            Level::Critical
        } else if stats.p95 > self.p95_moderate {
            Level::Moderate
        } else if stats.ema > self.ema_warning || stats.slope > self.slope_warning {
            Level::Warning
        } else {
            Level::Normal
        }
    }
}

/// From which value on a signal means which level ("at least").
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steps {
    /// Warning from here on.
    pub warning: f64,
    /// Moderate from here on.
    pub moderate: f64,
    /// Critical from here on.
    pub critical: f64,
    /// Emergency from here on.
    pub emergency: f64,
}

impl Steps {
    /// The four steps, in their order.
    pub const fn new(warning: f64, moderate: f64, critical: f64, emergency: f64) -> Self {
        Self {
            warning,
            moderate,
            critical,
            emergency,
        }
    }

    /// The level of `value`. What is not a number is normal.
    #[inline]
    pub fn level(&self, value: f64) -> Level {
        if value >= self.emergency {
            Level::Emergency
        } else if value >= self.critical {
            Level::Critical
        } else if value >= self.moderate {
            Level::Moderate
        } else if value >= self.warning {
            Level::Warning
        } else {
            Level::Normal
        }
    }
}

/// What the process as a whole feels, as plain numbers. Zero is "nothing" and always normal.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Signals {
    /// Used share of the byte budget, 0 to 1.
    pub budget: f64,
    /// Used share of the queue's bytes, 0 to 1.
    pub queue_bytes: f64,
    /// Age of the oldest queued payload, or backlog / drain rate.
    pub queue_age: Duration,
    /// Used share of the disk that queues are on, 0 to 1.
    pub disk: f64,
    /// How long a destination that everybody waits for takes.
    pub export_latency: Duration,
}

/// When a signal is too high.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SignalThresholds {
    /// Shares of the byte budget. It refuses by itself when it is full, so its worst level is critical.
    pub budget: Steps,
    /// Shares of the queue's bytes.
    pub queue_bytes: Steps,
    /// Seconds in the queue.
    pub queue_age_seconds: Steps,
    /// Shares of the disk.
    pub disk: Steps,
    /// Seconds that exports take. The worst level is that of a destination near every exporter's time-out; what it has
    /// not taken is in the other signals.
    pub export_latency_seconds: Steps,
}

impl Default for SignalThresholds {
    fn default() -> Self {
        Self {
            budget: Steps::new(0.70, 0.85, 0.95, f64::INFINITY),
            queue_bytes: Steps::new(0.60, 0.80, 0.90, 0.97),
            // Clients retry for a minute or so; what is older than ten is late for any alert.
            queue_age_seconds: Steps::new(30.0, 120.0, 600.0, 3_600.0),
            disk: Steps::new(0.75, 0.85, 0.92, 0.97),
            export_latency_seconds: Steps::new(5.0, 10.0, 20.0, f64::INFINITY),
        }
    }
}

impl SignalThresholds {
    /// The worst level of these signals, and which of them it is. Values are multiplied by `factor` before.
    pub(crate) fn worst(&self, signals: &Signals, factor: f64) -> (Level, Cause) {
        [
            (self.budget.level(signals.budget * factor), Cause::Budget),
            (
                self.queue_bytes.level(signals.queue_bytes * factor),
                Cause::QueueBytes,
            ),
            (
                self.queue_age_seconds
                    .level(signals.queue_age.as_secs_f64() * factor),
                Cause::QueueAge,
            ),
            (self.disk.level(signals.disk * factor), Cause::Disk),
            (
                self.export_latency_seconds
                    .level(signals.export_latency.as_secs_f64() * factor),
                Cause::ExportLatency,
            ),
        ]
        .into_iter()
        .fold((Level::Normal, Cause::Budget), |worst, one| {
            if one.0 > worst.0 { one } else { worst }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(weight: f64, ema_ms: u64, slope_ms: i64, p95_ms: u64, p99_ms: u64) -> Stats {
        Stats {
            weight,
            ema: ema_ms * MILLISECOND,
            slope: slope_ms * MILLISECOND as i64,
            p95: p95_ms * MILLISECOND,
            p99: p99_ms * MILLISECOND,
            ..Stats::default()
        }
    }

    /// Scenario: figures at and just above each of Floodgate's thresholds, with percentiles and without.
    /// Guarantees: the level is Floodgate's; a threshold itself is not above it.
    #[test]
    fn latency_levels_are_floodgates() {
        let thresholds = LatencyThresholds::default();
        for (expected, figures) in [
            (Level::Normal, stats(10.0, 300, 10, 1_000, 10_000)),
            (Level::Warning, stats(10.0, 301, 0, 1_000, 10_000)),
            (Level::Warning, stats(10.0, 0, 11, 1_000, 10_000)),
            (Level::Moderate, stats(10.0, 500, 0, 2_001, 10_000)),
            (Level::Critical, stats(10.0, 501, 0, 2_001, 10_000)),
            (Level::Emergency, stats(10.0, 0, 0, 0, 10_001)),
            // Too few samples for percentiles.
            (Level::Normal, stats(9.9, 9_000, 1, 20_000, 20_000)),
            (Level::Warning, stats(9.9, 0, 2, 0, 0)),
            (Level::Moderate, stats(0.0, 0, 4, 0, 0)),
            (Level::Critical, stats(0.0, 0, 6, 0, 0)),
        ] {
            assert_eq!(thresholds.level(&figures), expected, "{figures:?}");
        }
    }

    /// Scenario: each signal alone, two at once, none, and one that is not a number.
    /// Guarantees: the worst counts, and is named.
    #[test]
    fn the_worst_signal_counts() {
        let thresholds = SignalThresholds::default();
        let quiet = Signals::default();
        assert_eq!(thresholds.worst(&quiet, 1.0).0, Level::Normal);
        for (signals, expected) in [
            (Signals { budget: 1.0, ..quiet }, (Level::Critical, Cause::Budget)),
            (
                Signals {
                    queue_bytes: 0.8,
                    ..quiet
                },
                (Level::Moderate, Cause::QueueBytes),
            ),
            (
                Signals {
                    queue_age: Duration::from_secs(601),
                    ..quiet
                },
                (Level::Critical, Cause::QueueAge),
            ),
            (
                Signals {
                    disk: 0.99,
                    budget: 0.9,
                    ..quiet
                },
                (Level::Emergency, Cause::Disk),
            ),
            (
                Signals {
                    disk: f64::NAN,
                    ..quiet
                },
                (Level::Normal, Cause::Budget),
            ),
        ] {
            assert_eq!(thresholds.worst(&signals, 1.0), expected, "{signals:?}");
        }
    }
}
