//! When to try again. Sans-IO: the jitter's draw is a parameter.

use std::time::Duration;

/// Exponential backoff with the Collector's keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetrySettings {
    /// False gives a batch up at its first retryable failure.
    pub enabled: bool,
    /// The first delay.
    pub initial_interval: Duration,
    /// Each delay is spread by this fraction to both sides.
    pub randomization_factor: f64,
    /// Each delay is this much longer than the last.
    pub multiplier: f64,
    /// No delay is longer, unless the destination asks for it.
    pub max_interval: Duration,
    /// Give a batch up after this long; `None` retries for ever, which is the default: an outage
    /// must not turn into loss.
    pub max_elapsed_time: Option<Duration>,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            enabled: true,
            initial_interval: Duration::from_secs(1),
            randomization_factor: 0.5,
            multiplier: 1.5,
            max_interval: Duration::from_secs(30),
            max_elapsed_time: None,
        }
    }
}

impl RetrySettings {
    /// The delay before retry number `attempt` (from 0); `unit` is a random number in [0, 1).
    pub fn delay(&self, attempt: u32, unit: f64) -> Duration {
        let base =
            self.initial_interval.as_secs_f64() * self.multiplier.max(1.0).powi(attempt.min(64) as i32);
        let capped = base.min(self.max_interval.as_secs_f64());
        let spread = self.randomization_factor.clamp(0.0, 1.0);
        Duration::from_secs_f64(capped * (1.0 - spread + 2.0 * spread * unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: many attempts, extreme draws.
    /// Guarantees: delays grow, stay within the jitter around the cap, and never overflow.
    #[test]
    fn delays_grow_to_the_cap() {
        let retry = RetrySettings::default();
        assert_eq!(retry.delay(0, 0.5), Duration::from_secs(1));
        assert_eq!(retry.delay(1, 0.5), Duration::from_millis(1500));
        assert_eq!(retry.delay(0, 0.0), Duration::from_millis(500));
        for attempt in [10, 1000, u32::MAX] {
            assert_eq!(retry.delay(attempt, 0.5), Duration::from_secs(30));
            assert!(retry.delay(attempt, 0.999) < Duration::from_secs(45));
        }
    }
}
