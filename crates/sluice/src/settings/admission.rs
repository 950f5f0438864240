//! `service.admission`: when the gateway is under pressure, and what it does then. Our own key.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU8;

use serde::{Deserialize, Deserializer, de};
use sluice_admission::{SignalThresholds, Steps};
use sluice_config::{Node, Report, parse_duration};

use super::scope::Scope;

/// More would leave others less than a four-hundredth of the budget.
const MOST_WEIGHT: NonZeroU8 = NonZeroU8::new(100).expect("it is not zero");

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

/// `service.admission`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Admission {
    /// What levels are for.
    pub mode: AdmissionMode,
    /// From where on which signal means which level.
    pub signals: SignalThresholds,
    /// Tenants that are shed last.
    pub high: Vec<String>,
    /// Tenants that are shed first.
    pub low: Vec<String>,
    /// How much of the memory budget tenants may hold beside one another; 1 for all others.
    pub weights: BTreeMap<String, NonZeroU8>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawAdmission {
    mode: AdmissionMode,
    budget: RawSteps<Share>,
    queue_bytes: RawSteps<Share>,
    queue_age: RawSteps<Age>,
    disk: RawSteps<Share>,
    export_latency: RawSteps<Age>,
    priority: Priorities,
    weights: BTreeMap<String, u8>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Priorities {
    high: Vec<String>,
    low: Vec<String>,
}

#[derive(Deserialize)]
#[serde(default)]
struct RawSteps<T> {
    warning: Option<T>,
    moderate: Option<T>,
    critical: Option<T>,
    emergency: Option<T>,
}

impl<T> Default for RawSteps<T> {
    fn default() -> Self {
        Self {
            warning: None,
            moderate: None,
            critical: None,
            emergency: None,
        }
    }
}

/// Where a step that is switched off stands.
const NEVER: &str = "never";

/// A share of a whole: `85%`, or `never`.
#[derive(Clone, Copy)]
struct Share(f64);

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let percent = text
            .trim()
            .strip_suffix('%')
            .map(|number| number.trim().parse::<f64>());
        match percent {
            _ if text.trim() == NEVER => Ok(Self(f64::INFINITY)),
            Some(Ok(percent)) if percent > 0.0 && percent <= 100.0 => Ok(Self(percent / 100.0)),
            _ => Err(de::Error::custom(format!(
                "expected a percentage above 0% and up to 100%, or {NEVER}; found {text:?}"
            ))),
        }
    }
}

/// A time: `30s`, or `never`.
#[derive(Clone, Copy)]
struct Age(f64);

impl<'de> Deserialize<'de> for Age {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.trim() == NEVER {
            return Ok(Self(f64::INFINITY));
        }
        let duration = parse_duration(text.trim()).map_err(de::Error::custom)?;
        match duration.is_zero() {
            true => Err(de::Error::custom(format!(
                "expected a duration above 0, or {NEVER}; found {text:?}"
            ))),
            false => Ok(Self(duration.as_secs_f64())),
        }
    }
}

impl<T: Copy> RawSteps<T> {
    /// The steps, those that are absent from `default`; they must not fall.
    fn over(&self, default: Steps, number: fn(T) -> f64, key: &str, scope: &mut Scope<'_>) -> Steps {
        let or = |given: Option<T>, default| given.map_or(default, number);
        let steps = Steps {
            warning: or(self.warning, default.warning),
            moderate: or(self.moderate, default.moderate),
            critical: or(self.critical, default.critical),
            emergency: or(self.emergency, default.emergency),
        };
        let rising = [
            ("warning", "moderate", steps.warning, steps.moderate),
            ("moderate", "critical", steps.moderate, steps.critical),
            ("critical", "emergency", steps.critical, steps.emergency),
        ];
        if let Some((lower, higher, ..)) = rising.iter().find(|(_, _, low, high)| low > high) {
            scope.error(
                &[key],
                format!(
                    "{lower} begins above {higher}; levels rise from warning to emergency, and those that are not set \
                     have defaults (docs/configuration.md)"
                ),
            );
        }
        steps
    }
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
    let defaults = SignalThresholds::default();
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
            "has no effect: no receiver knows tenants before it reads; set its tenant.from_header or tenant.from_auth",
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
        signals,
        high,
        low,
        weights,
    }
}
