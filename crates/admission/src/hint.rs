//! When to come back: a refusal's delay, from the backlog and the rate at which it drains.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::{DrainRate, Jitter, Usage};

/// A hint is never shorter: `Retry-After` counts in whole seconds.
pub const MIN_RETRY_HINT: Duration = Duration::from_secs(1);

/// A hint is never longer: SDK exporters give up after about a minute in all.
pub const MAX_RETRY_HINT: Duration = Duration::from_secs(30);

/// Computes retry delays: backlog / drain rate, with jitter so that clients do not return as one.
#[derive(Debug)]
pub struct RetryHint {
    sample: Mutex<Sample>,
    jitter: Jitter,
}

#[derive(Debug)]
struct Sample {
    drained: u64,
    rate: DrainRate,
}

impl RetryHint {
    /// Starts measuring at `now`; `seed` drives the jitter.
    pub fn new(now: Instant, seed: u64) -> Self {
        Self {
            sample: Mutex::new(Sample {
                drained: 0,
                rate: DrainRate::new(now),
            }),
            jitter: Jitter::new(seed),
        }
    }

    /// The delay to tell a client that asked for `asked` bytes of a budget and was refused at `now`.
    pub fn delay(&self, now: Instant, usage: Usage, asked: u64) -> Duration {
        let backlog = usage.waiting_bytes.saturating_add(asked);
        let drains_in = {
            let mut sample = self.sample.lock();
            let more = usage.drained.saturating_sub(sample.drained);
            sample.drained = usage.drained.max(sample.drained);
            sample.rate.drained(more, now);
            sample.rate.time_for(backlog, now)
        };
        self.spread(drains_in)
    }

    /// The delay to tell a client that is refused because of a backlog that drains within `drains_in`.
    pub fn spread(&self, drains_in: Duration) -> Duration {
        let jittered = drains_in.as_secs_f64() * (0.75 + 0.5 * self.jitter.draw());
        Duration::from_secs_f64(jittered.clamp(MIN_RETRY_HINT.as_secs_f64(), MAX_RETRY_HINT.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Budget;

    const SECOND: Duration = Duration::from_secs(1);
    const MB: u64 = 1_000_000;

    fn usage(waiting_bytes: u64, drained: u64) -> Usage {
        Usage {
            waiting_bytes,
            drained,
            ..Budget::new(100).usage()
        }
    }

    /// Scenario: 10 MB wait, 1 MB/s drains.
    /// Guarantees: the hint is about backlog / rate (within the jitter), never outside its bounds.
    #[test]
    fn hint_follows_backlog_over_rate() {
        let start = Instant::now();
        let hint = RetryHint::new(start, 7);
        let delay = hint.delay(start + SECOND, usage(10 * MB, MB), 0);
        assert!((7.5..=12.5).contains(&delay.as_secs_f64()), "{delay:?}");
        let huge = hint.delay(start + SECOND, usage(u64::MAX / 2, MB), u64::MAX);
        assert_eq!(huge, MAX_RETRY_HINT);
        let tiny = hint.delay(start + SECOND, usage(0, MB), 1);
        assert_eq!(tiny, MIN_RETRY_HINT);
        assert_eq!(hint.spread(Duration::MAX), MAX_RETRY_HINT);
        assert_eq!(hint.spread(Duration::ZERO), MIN_RETRY_HINT);
    }

    /// Scenario: the same refusal, many times.
    /// Guarantees: delays differ, so refused clients do not come back together.
    #[test]
    fn hints_are_spread() {
        let start = Instant::now();
        let hint = RetryHint::new(start, 7);
        let at = start + SECOND;
        let delays: std::collections::BTreeSet<_> =
            (0..100).map(|_| hint.delay(at, usage(5 * MB, MB), 0)).collect();
        assert!(delays.len() > 90);
    }

    /// Scenario: in front of a dead destination, a hundred bodies of 1 MB a second are received, refused and let go of. Beside it, as many
    /// are worked on, and one has a copy made and gives back what it did not need.
    /// Guarantees: what was refused is no drain: the hint grows. What was worked on is, once and without its copies and surplus: the hint is the backlog over
    /// that rate.
    #[test]
    fn what_was_refused_has_not_drained() {
        let start = Instant::now();
        let (refused, worked) = (Budget::new(200 * MB), Budget::new(200 * MB));
        let hints = [(); 2].map(|()| RetryHint::new(start, 7));
        let mut last = Duration::ZERO;
        for second in 1..=20 {
            let now = start + second * SECOND;
            for _ in 0..100 {
                drop(refused.try_reserve(MB).unwrap());
                let mut permit = worked.try_reserve(MB).unwrap();
                permit.shrink_to(MB / 2);
                let copy = permit.for_copy(10 * MB);
                permit.counts_as_drained();
                drop((permit, copy));
            }
            last = hints[0].delay(now, refused.usage(), 20 * MB);
            let beside = hints[1].delay(now, worked.usage(), 500 * MB);
            assert!((7.5..=12.5).contains(&beside.as_secs_f64()), "{beside:?}");
        }
        assert!(last >= 3 * SECOND, "{last:?}");
        assert_eq!((refused.usage().drained, worked.usage().drained), (0, 1_000 * MB));
        assert_eq!(refused.usage().released, 2_000 * MB);
    }
}
