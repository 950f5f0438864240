//! `service.admission`: when the gateway is under pressure, and what it does then. Our own key.

mod print;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU8;
use std::time::Duration;

use serde::Deserialize;
use sluice_admission::{GuardSettings, LatencyThresholds, SignalThresholds, TrackerSettings};
use sluice_config::{Node, Report};

use super::scope::Scope;
pub(super) use print::fill_in;
use steps::{Age, RawLatency, RawSteps, Share, between};

/// More would leave others less than a four-hundredth of the budget.
const MOST_WEIGHT: NonZeroU8 = NonZeroU8::new(100).expect("it is not zero");

/// A level that holds on for longer says how things were, not how they are.
const HOLD: (Duration, Duration) = (Duration::ZERO, Duration::from_secs(600));

/// What passes whatever the level: no more than a thousand requests a second, and enough that a recovery is seen within seconds.
const TRICKLE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(10));

/// How long latencies are remembered: for some samples at least, and not for longer than anybody waits for a level to fall.
const HALF_LIFE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(600));

/// What admission levels are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AdmissionMode {
    /// There are none.
    Off,
    /// They are logged and counted, and no request is turned away by them.
    #[default]
    Observe,
    /// Requests are turned away by them.
    Enforce,
}

impl AdmissionMode {
    /// The word for it in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Observe => "observe",
            Self::Enforce => "enforce",
        }
    }
}

/// Settings of admission under one name; each can be set by itself beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdmissionPreset {
    /// [`GuardSettings::default`].
    #[default]
    Balanced,
    /// [`GuardSettings::high_throughput`].
    HighThroughput,
    /// [`GuardSettings::low_latency`].
    LowLatency,
    /// [`GuardSettings::small_memory`].
    SmallMemory,
}

impl AdmissionPreset {
    /// The word for it in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Balanced => "balanced",
            Self::HighThroughput => "high_throughput",
            Self::LowLatency => "low_latency",
            Self::SmallMemory => "small_memory",
        }
    }

    /// What it stands for in a gateway, where no latency sets a level unless it is asked for: how long requests take is their
    /// destinations' doing (`ack: delivered`), and those have a signal of their own.
    fn guard(self) -> GuardSettings {
        let guard = match self {
            Self::Balanced => GuardSettings::default(),
            Self::HighThroughput => GuardSettings::high_throughput(),
            Self::LowLatency => GuardSettings::low_latency(),
            Self::SmallMemory => GuardSettings::small_memory(),
        };
        GuardSettings {
            latency: LatencyThresholds::NEVER,
            enforce: false,
            ..guard
        }
    }
}

/// `service.admission`.
#[derive(Clone, Debug, PartialEq)]
pub struct Admission {
    /// What levels are for.
    pub mode: AdmissionMode,
    /// What holds where nothing else is set.
    pub preset: AdmissionPreset,
    /// From where on what means which level, how long that is remembered, and whether it is acted upon.
    pub guard: GuardSettings,
    /// Tenants that are shed last.
    pub high: Vec<String>,
    /// Tenants that are shed first.
    pub low: Vec<String>,
    /// How much of the memory budget tenants may hold beside one another; 1 for all others.
    pub weights: BTreeMap<String, NonZeroU8>,
}

impl Default for Admission {
    fn default() -> Self {
        let preset = AdmissionPreset::default();
        Self {
            mode: AdmissionMode::default(),
            preset,
            guard: preset.guard(),
            high: Vec::new(),
            low: Vec::new(),
            weights: BTreeMap::new(),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawAdmission {
    mode: AdmissionMode,
    preset: AdmissionPreset,
    budget: RawSteps<Share>,
    queue_bytes: RawSteps<Share>,
    queue_age: RawSteps<Age>,
    disk: RawSteps<Share>,
    export_latency: RawSteps<Age>,
    latency: RawLatency,
    half_life: Option<Duration>,
    hold: Option<Duration>,
    trickle: Option<Duration>,
    priority: Priorities,
    weights: BTreeMap<String, u8>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Priorities {
    high: Vec<String>,
    low: Vec<String>,
}

/// Reads `service.admission`; `has_shares` is whether tenants have shares of the memory budget.
pub(super) fn admission(node: &Node, has_shares: bool, report: &mut Report) -> Admission {
    let mut scope = Scope {
        node,
        path: "service.admission",
        report,
    };
    let Some(raw) = scope.decode::<RawAdmission>() else {
        return Admission::default();
    };
    let preset = raw.preset.guard();
    let defaults = preset.signals;
    let share = |Share(share)| share;
    let age = |Age(age)| age;
    let signals = SignalThresholds {
        budget: raw.budget.over(defaults.budget, share, "budget", &mut scope),
        queue_bytes: (raw.queue_bytes).over(defaults.queue_bytes, share, "queue_bytes", &mut scope),
        queue_age_seconds: (raw.queue_age).over(defaults.queue_age_seconds, age, "queue_age", &mut scope),
        disk: raw.disk.over(defaults.disk, share, "disk", &mut scope),
        export_latency_seconds: raw.export_latency.over(
            defaults.export_latency_seconds,
            age,
            "export_latency",
            &mut scope,
        ),
    };
    let half_life = preset.tracker.half_life;
    let guard = GuardSettings {
        signals,
        latency: raw.latency.thresholds(&mut scope),
        tracker: TrackerSettings {
            half_life: between(raw.half_life, half_life, HALF_LIFE, "half_life", &mut scope),
            ..preset.tracker
        },
        hold: between(raw.hold, preset.hold, HOLD, "hold", &mut scope),
        trickle: between(raw.trickle, preset.trickle, TRICKLE, "trickle", &mut scope),
        enforce: raw.mode == AdmissionMode::Enforce,
        ..preset
    };
    let Priorities { high, low } = raw.priority;
    let first: BTreeSet<&String> = high.iter().collect();
    if let Some(both) = low.iter().find(|name| first.contains(name)) {
        scope.error(
            &["priority", "low"],
            format!("{both} is in high too; a tenant has one priority"),
        );
    }
    if raw.mode != AdmissionMode::Enforce && !(high.is_empty() && low.is_empty()) {
        scope.warn(
            &["priority"],
            "has no effect: nothing is shed unless mode is enforce",
        );
    }
    if !has_shares && !raw.weights.is_empty() {
        scope.warn(
            &["weights"],
            "has no effect: no receiver knows tenants; set its tenant (docs/configuration.md)",
        );
    }
    let mut weights = BTreeMap::new();
    for (tenant, weight) in raw.weights {
        match NonZeroU8::new(weight).filter(|weight| *weight <= MOST_WEIGHT) {
            Some(weight) => drop(weights.insert(tenant, weight)),
            None => scope.error(
                &["weights", &tenant],
                format!("expected a whole number from 1 to {MOST_WEIGHT}; found {weight}"),
            ),
        }
    }
    Admission {
        mode: raw.mode,
        preset: raw.preset,
        guard,
        high,
        low,
        weights,
    }
}
