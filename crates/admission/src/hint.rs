//! When to come back: a refusal's delay, from the backlog and the rate at which it drains.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::{Jitter, Usage};

/// A hint is never shorter: `Retry-After` counts in whole seconds.
pub const MIN_RETRY_HINT: Duration = Duration::from_secs(1);

/// A hint is never longer: SDK exporters give up after about a minute in all.
pub const MAX_RETRY_HINT: Duration = Duration::from_secs(30);

/// How long one drain-rate sample is collected before it replaces the last one.
const SAMPLE: Duration = Duration::from_millis(500);

/// Computes retry delays: backlog / drain rate, with jitter so that clients do not return as one.
#[derive(Debug)]
pub struct RetryHint {
    sample: Mutex<Sample>,
    jitter: Jitter,
}

#[derive(Debug)]
struct Sample {
    at: Instant,
    released: u64,
    bytes_per_sec: f64,
}

impl RetryHint {
    /// Starts measuring at `now`; `seed` drives the jitter.
    pub fn new(now: Instant, seed: u64) -> Self {
        Self {
            sample: Mutex::new(Sample {
                at: now,
                released: 0,
                bytes_per_sec: 0.0,
            }),
            jitter: Jitter::new(seed),
        }
    }

    /// The delay to tell a client that asked for `asked` bytes and was refused at `now`.
    pub fn delay(&self, now: Instant, usage: Usage, asked: u64) -> Duration {
        let rate = {
            let mut sample = self.sample.lock();
            let elapsed = now.saturating_duration_since(sample.at);
            if elapsed >= SAMPLE {
                let drained = usage.released.saturating_sub(sample.released) as f64;
                *sample = Sample {
                    at: now,
                    released: usage.released,
                    bytes_per_sec: drained / elapsed.as_secs_f64(),
                };
            }
            sample.bytes_per_sec
        };
        let backlog = (usage.waiting_bytes + asked) as f64;
        // Nothing drains yet: a short hint would only bring the same refusal again.
        let seconds = if rate > 0.0 {
            backlog / rate
        } else {
            2.0 * MIN_RETRY_HINT.as_secs_f64()
        };
        let jittered = seconds * (0.75 + 0.5 * self.jitter.draw());
        Duration::from_secs_f64(jittered.clamp(MIN_RETRY_HINT.as_secs_f64(), MAX_RETRY_HINT.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(waiting_bytes: u64, released: u64) -> Usage {
        Usage {
            capacity: 100,
            used: 100,
            waiting_bytes,
            waiting: 1,
            gave_way: 0,
            released,
        }
    }

    /// Scenario: 10 MB wait, 1 MB/s drains.
    /// Guarantees: the hint is about backlog / rate (within the jitter), never outside its bounds.
    #[test]
    fn hint_follows_backlog_over_rate() {
        let start = Instant::now();
        let hint = RetryHint::new(start, 7);
        let delay = hint.delay(start + Duration::from_secs(1), usage(10_000_000, 1_000_000), 0);
        assert!((7.5..=12.5).contains(&delay.as_secs_f64()), "{delay:?}");
        let huge = hint.delay(start + Duration::from_secs(1), usage(u64::MAX / 2, 1_000_000), 0);
        assert_eq!(huge, MAX_RETRY_HINT);
        let tiny = hint.delay(start + Duration::from_secs(1), usage(0, 1_000_000), 1);
        assert_eq!(tiny, MIN_RETRY_HINT);
    }

    /// Scenario: the same refusal, many times.
    /// Guarantees: delays differ, so refused clients do not come back together.
    #[test]
    fn hints_are_spread() {
        let start = Instant::now();
        let hint = RetryHint::new(start, 7);
        let at = start + Duration::from_secs(1);
        let delays: std::collections::BTreeSet<_> = (0..100)
            .map(|_| hint.delay(at, usage(5_000_000, 1_000_000), 0))
            .collect();
        assert!(delays.len() > 90);
    }
}
