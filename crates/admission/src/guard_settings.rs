//! What a guard is made of, and presets of it.

use std::time::Duration;

use crate::guard::Method;
use crate::{Actions, BreakerSettings, LatencyThresholds, SignalThresholds, Steps, TrackerSettings};

/// Settings of a [`Guard`](crate::Guard). [`GuardSettings::default`] is the balanced preset.
#[derive(Debug, Clone, PartialEq)]
pub struct GuardSettings {
    /// Methods tracked each by itself; what comes beyond shares one tracker, and has no breaker.
    pub max_methods: usize,
    /// What each method's tracker remembers.
    pub tracker: TrackerSettings,
    /// When a method's latency is too high.
    pub latency: LatencyThresholds,
    /// When a signal of the process is too high.
    pub signals: SignalThresholds,
    /// How long things must have been better before a level falls.
    pub hold: Duration,
    /// What each level means.
    pub actions: Actions,
    /// Whether that is done. If not, every request comes in, and [`Hooks`](crate::Hooks) are told what would be refused.
    pub enforce: bool,
    /// One request of a method passes in each such interval, whatever the level.
    pub trickle: Duration,
    /// What a refused client is told to wait at each level, before jitter of a quarter either way.
    pub retry_after: [Duration; 5],
    /// When a method is left alone because it fails. `None`: never.
    pub breaker: Option<BreakerSettings>,
    /// Methods with one of these prefixes are always admitted and never tracked.
    pub skip: Vec<String>,
}

impl Default for GuardSettings {
    fn default() -> Self {
        Self {
            max_methods: 512,
            tracker: TrackerSettings {
                alpha: 0.1,
                half_life: Duration::from_secs(8),
                percentiles: Some((Duration::from_nanos(4_096), Duration::from_secs(60))),
            },
            latency: LatencyThresholds::default(),
            signals: SignalThresholds::default(),
            hold: Duration::from_secs(1),
            actions: Actions::default(),
            enforce: true,
            trickle: Duration::from_millis(100),
            retry_after: [1, 1, 2, 5, 10].map(Duration::from_secs),
            breaker: Some(BreakerSettings::default()),
            skip: [
                "/grpc.health.",
                "/grpc.reflection.",
                "/health",
                "/ready",
                "/live",
                "/metrics",
            ]
            .map(String::from)
            .to_vec(),
        }
    }
}

impl GuardSettings {
    /// For thousands of requests a second and method, where long queues are ordinary: a longer memory, so that percentiles rest on more
    /// samples and levels do not follow every burst; budget and queues may be fuller, and what they hold older, before
    /// that is a level. 1.9 KiB a method, 1,024 methods.
    pub fn high_throughput() -> Self {
        let balanced = Self::default();
        Self {
            max_methods: 1_024,
            tracker: TrackerSettings {
                alpha: 0.02,
                half_life: Duration::from_secs(30),
                ..balanced.tracker
            },
            signals: SignalThresholds {
                budget: Steps::new(0.80, 0.92, 0.97, f64::INFINITY),
                queue_bytes: Steps::new(0.75, 0.90, 0.95, 0.99),
                queue_age_seconds: Steps::new(120.0, 600.0, 1_800.0, 7_200.0),
                export_latency_seconds: Steps::new(10.0, 20.0, 30.0, f64::INFINITY),
                ..balanced.signals
            },
            hold: Duration::from_secs(5),
            ..balanced
        }
    }

    /// For services that answer in microseconds, and data that is worth little when it is late: a short memory, levels that follow
    /// within a second or two, a range that begins at half a microsecond, and a level for what has waited for seconds. 1.9 KiB a
    /// method, 512 methods. The thresholds of latency stay those of the balanced preset: set them to what is slow for
    /// the service.
    pub fn low_latency() -> Self {
        let balanced = Self::default();
        Self {
            tracker: TrackerSettings {
                alpha: 0.25,
                half_life: Duration::from_secs(2),
                percentiles: Some((Duration::from_nanos(512), Duration::from_secs(8))),
            },
            signals: SignalThresholds {
                queue_age_seconds: Steps::new(2.0, 10.0, 60.0, 600.0),
                export_latency_seconds: Steps::new(1.0, 2.0, 5.0, f64::INFINITY),
                ..balanced.signals
            },
            hold: Duration::from_millis(250),
            trickle: Duration::from_millis(20),
            ..balanced
        }
    }

    /// For small containers: percentiles between 1 ms and 16 s only, which the thresholds lie in, and levels that rise earlier, since one
    /// request more is a larger part of a small budget. 1.3 KiB a method, 64 methods.
    pub fn small_memory() -> Self {
        let balanced = Self::default();
        Self {
            max_methods: 64,
            tracker: TrackerSettings {
                percentiles: Some((Duration::from_nanos(1 << 20), Duration::from_nanos(1 << 34))),
                ..balanced.tracker
            },
            signals: SignalThresholds {
                budget: Steps::new(0.60, 0.75, 0.90, f64::INFINITY),
                queue_bytes: Steps::new(0.50, 0.70, 0.85, 0.95),
                ..balanced.signals
            },
            ..balanced
        }
    }

    /// Bytes a tracked method takes, its heap included and its name not.
    pub fn method_memory_bytes(&self) -> usize {
        size_of::<Method>() + self.tracker.memory_bytes() - size_of::<crate::Tracker>()
    }
}
