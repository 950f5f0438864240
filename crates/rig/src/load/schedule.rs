//! When each request is due. Pure arithmetic: time is what the caller says it is.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// How long after the end of the load a late request of an open loop may still be sent. What is later is not
/// sent: a gateway that has stalled would otherwise keep the run from ending.
const OVERRUN: Duration = Duration::from_secs(10);

/// Who decides when a request is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Open loop: the schedule, whatever the answers do. Exactly this many items a second.
    Open {
        /// Items per second.
        items_per_second: u64,
    },
    /// Closed loop: every virtual user sends, waits for its answer, thinks, and sends again.
    Closed {
        /// Shortest and longest time to think; drawn evenly in between.
        think: (Duration, Duration),
    },
}

/// What a sender has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Send at this time after the start.
    At(Duration),
    /// Too late for this one: leave it out and ask again.
    Skip,
    /// Nothing more to send.
    Done,
}

/// The schedule that all senders of a load share.
#[derive(Debug)]
pub(crate) struct Schedule {
    pace: Pace,
    items_per_request: u64,
    duration: Duration,
    taken: AtomicU64,
}

impl Schedule {
    pub(crate) fn new(pace: Pace, items_per_request: u32, duration: Duration) -> Schedule {
        Schedule {
            pace,
            items_per_request: u64::from(items_per_request),
            duration,
            taken: AtomicU64::new(0),
        }
    }

    /// When request `number` of an open loop is due, counted from the start: exact to the nanosecond however
    /// long the load lasts, since no interval is ever added up.
    fn due(&self, number: u64, items_per_second: u64) -> Duration {
        let nanos = u128::from(number) * u128::from(self.items_per_request) * NANOS_PER_SECOND
            / u128::from(items_per_second.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Takes the next request. `think` is a number from 0 to 1 that places the pause of a closed loop in its
    /// range;
    /// `first` says that the sender has not sent before, and so has nothing to think about.
    pub(crate) fn next(&self, now: Duration, first: bool, think: f64) -> Next {
        let due = match self.pace {
            Pace::Open { items_per_second } => {
                let due = self.due(self.taken.fetch_add(1, Relaxed), items_per_second);
                if due < self.duration && now > self.duration + OVERRUN {
                    return Next::Skip;
                }
                due
            }
            Pace::Closed { .. } if first => now,
            Pace::Closed { think: (low, high) } => now + low + high.saturating_sub(low).mul_f64(think),
        };
        if due < self.duration {
            Next::At(due)
        } else {
            Next::Done
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: 99,991 items/s in requests of 467, which no nanosecond divides, taken in one go for ten
    /// hours.
    /// Guarantees: every due time is exact to the nanosecond and the number of requests is that of the rate.
    #[test]
    fn the_rate_is_exact() {
        let pace = Pace::Open {
            items_per_second: 99_991,
        };
        let duration = Duration::from_secs(36_000);
        let schedule = Schedule::new(pace, 467, duration);
        let mut requests = 0_u128;
        while let Next::At(due) = schedule.next(Duration::ZERO, false, 0.0) {
            assert_eq!(due.as_nanos(), requests * 467 * 1_000_000_000 / 99_991);
            requests += 1;
        }
        assert_eq!(requests, (36_000_u128 * 99_991).div_ceil(467));
    }

    /// Scenario: a sender comes back 5 s late, and then 11 s after the end of the load.
    /// Guarantees: what was due in the meantime keeps its time; what is beyond the overrun is left out, one
    /// by one.
    #[test]
    fn late_requests_keep_their_due_times() {
        let pace = Pace::Open { items_per_second: 10 };
        let schedule = Schedule::new(pace, 10, Duration::from_secs(8));
        assert_eq!(schedule.next(Duration::ZERO, true, 0.0), Next::At(Duration::ZERO));
        let late = Duration::from_secs(5);
        assert_eq!(schedule.next(late, false, 0.0), Next::At(Duration::from_secs(1)));
        let too_late = Duration::from_secs(19);
        for _ in 2..8 {
            assert_eq!(schedule.next(too_late, false, 0.0), Next::Skip);
        }
        assert_eq!(schedule.next(too_late, false, 0.0), Next::Done);
    }

    /// Scenario: virtual users that think for 100 to 300 ms.
    /// Guarantees: the first request is due at once, later ones after the drawn pause; none at or after the
    /// end.
    #[test]
    fn virtual_users_think() {
        let think = (Duration::from_millis(100), Duration::from_millis(300));
        let schedule = Schedule::new(Pace::Closed { think }, 10, Duration::from_secs(1));
        let now = Duration::from_millis(500);
        assert_eq!(schedule.next(now, true, 0.7), Next::At(now));
        assert_eq!(
            schedule.next(now, false, 0.5),
            Next::At(Duration::from_millis(700))
        );
        assert_eq!(schedule.next(Duration::from_millis(900), false, 0.0), Next::Done);
    }
}
