//! Thresholds as they are written: shares, times, and the four steps of a signal.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use sluice_admission::{LatencyThresholds, Steps};
use sluice_config::parse_duration;

use super::super::scope::Scope;

/// Where a step that is switched off stands.
pub(super) const NEVER: &str = "never";

/// Of the 95th percentile that is critical, the average that has to be exceeded too: what Floodgate has, 500 ms of 2 s.
const CRITICAL_AVERAGE_PART: f64 = 0.25;

/// A share of a whole: `85%`, or `never`.
#[derive(Clone, Copy)]
pub(super) struct Share(pub f64);

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

/// A time in seconds: `30s`, or `never`.
#[derive(Clone, Copy)]
pub(super) struct Age(pub f64);

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

/// The steps of one signal, as far as they are written.
#[derive(Deserialize)]
#[serde(default)]
pub(super) struct RawSteps<T> {
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

impl<T: Copy> RawSteps<T> {
    /// The steps, those that are absent from `default`; they must not fall.
    pub(super) fn over(
        &self,
        default: Steps,
        number: fn(T) -> f64,
        key: &str,
        scope: &mut Scope<'_>,
    ) -> Steps {
        let or = |given: Option<T>, default| given.map_or(default, number);
        let steps = Steps {
            warning: or(self.warning, default.warning),
            moderate: or(self.moderate, default.moderate),
            critical: or(self.critical, default.critical),
            emergency: or(self.emergency, default.emergency),
        };
        // A step that is switched off is skipped: the one above it counts from where it begins.
        let switched_on: Vec<_> = [
            ("warning", steps.warning, self.warning.is_some()),
            ("moderate", steps.moderate, self.moderate.is_some()),
            ("critical", steps.critical, self.critical.is_some()),
            ("emergency", steps.emergency, self.emergency.is_some()),
        ]
        .into_iter()
        .filter(|(_, step, _)| step.is_finite())
        .collect();
        let falls = |pair: &&[(&str, f64, bool)]| pair[0].1 > pair[1].1;
        if let Some([(lower, _, is_given), (higher, ..)]) = switched_on.windows(2).find(falls) {
            let at = if *is_given { lower } else { higher };
            scope.error(
                &[key, at],
                format!(
                    "{lower} begins above {higher}; levels rise from warning to emergency, and those that are not set \
                     have the preset's steps (docs/configuration.md)"
                ),
            );
        }
        steps
    }
}

/// From which latency on requests mean which level, as far as it is written.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct RawLatency {
    warning: Option<Age>,
    moderate: Option<Age>,
    critical: Option<Age>,
    emergency: Option<Age>,
    critical_average: Option<Age>,
    slope: Option<Age>,
}

impl RawLatency {
    /// The thresholds; what is absent is never exceeded.
    pub(super) fn thresholds(&self, scope: &mut Scope<'_>) -> LatencyThresholds {
        const KEY: &str = "latency";
        let steps = RawSteps {
            warning: self.warning,
            moderate: self.moderate,
            critical: self.critical,
            emergency: self.emergency,
        };
        let never = f64::INFINITY;
        let steps = steps.over(Steps::new(never, never, never, never), |Age(age)| age, KEY, scope);
        let average = match self.critical_average {
            Some(Age(average)) => average,
            None => steps.critical * CRITICAL_AVERAGE_PART,
        };
        if average > steps.critical {
            scope.error(
                &[KEY, "critical_average"],
                "is above critical: the average would have to exceed what one request in twenty does",
            );
        }
        let never = LatencyThresholds::NEVER;
        LatencyThresholds {
            p99_emergency: nanos(steps.emergency),
            p95_critical: nanos(steps.critical),
            ema_critical: nanos(average),
            p95_moderate: nanos(steps.moderate),
            ema_warning: nanos(steps.warning),
            slope_warning: match self.slope {
                Some(Age(slope)) => i64::try_from(nanos(slope))
                    .unwrap_or(i64::MAX)
                    .min(never.slope_warning),
                None => never.slope_warning,
            },
            min_weight: never.min_weight,
        }
    }
}

/// A time that may be switched off, in nanoseconds.
fn nanos(seconds: f64) -> u64 {
    // Beyond the range it is the end of the range, which is "never".
    (seconds * 1e9).round() as u64
}

/// A time between two others, as the level's own times are.
pub(super) fn between(
    given: Option<Duration>,
    default: Duration,
    (least, most): (Duration, Duration),
    key: &str,
    scope: &mut Scope<'_>,
) -> Duration {
    let time = given.unwrap_or(default);
    if !(least..=most).contains(&time) {
        scope.error(
            &[key],
            format!("expected a duration from {least:?} to {most:?}; found {time:?}"),
        );
    }
    time
}
