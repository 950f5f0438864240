//! The time, as a seam.

use std::time::{Instant, SystemTime};

/// Tells the time. Intervals, ages and deadlines are measured with [`now`](Clock::now), which never goes back;
/// [`wall`](Clock::wall) is for stamps that people or other machines read, because an operator or NTP may set it to
/// anything at any moment.
pub trait Clock: std::fmt::Debug + Send + Sync {
    /// The monotonic time.
    fn now(&self) -> Instant;
    /// The time of day.
    fn wall(&self) -> SystemTime;
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }
}

#[cfg(any(test, feature = "testing"))]
pub(crate) mod manual {
    use std::sync::Arc;
    use std::time::Duration;

    use parking_lot::Mutex;

    use super::{Clock, Instant, SystemTime};

    /// A clock that stands still until a test moves it. Cloning shares it.
    #[derive(Debug, Clone)]
    pub struct ManualClock(Arc<Mutex<(Instant, SystemTime)>>);

    impl ManualClock {
        /// A clock whose time of day is `wall`.
        pub fn at(wall: SystemTime) -> Self {
            Self(Arc::new(Mutex::new((Instant::now(), wall))))
        }

        /// Lets time pass.
        pub fn advance(&self, time: Duration) {
            let (now, wall) = &mut *self.0.lock();
            *now += time;
            *wall += time;
        }

        /// Sets the time of day, as an operator or NTP does; the monotonic time does not notice.
        pub fn set_wall(&self, wall: SystemTime) {
            self.0.lock().1 = wall;
        }
    }

    impl Clock for ManualClock {
        fn now(&self) -> Instant {
            self.0.lock().0
        }

        fn wall(&self) -> SystemTime {
            self.0.lock().1
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::manual::ManualClock;
    use super::*;

    /// Scenario: a manual clock is moved on, then its time of day is set back by a day.
    /// Guarantees: time passes on both; only the time of day goes back.
    #[test]
    fn the_monotonic_time_does_not_follow_the_time_of_day() {
        let day = Duration::from_secs(86_400);
        let clock = ManualClock::at(UNIX_EPOCH + 2 * day);
        let started = clock.now();
        clock.clone().advance(day);
        assert_eq!((clock.now() - started, clock.wall()), (day, UNIX_EPOCH + 3 * day));
        clock.set_wall(UNIX_EPOCH);
        assert_eq!((clock.now() - started, clock.wall()), (day, UNIX_EPOCH));
    }
}
