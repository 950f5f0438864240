//! A clock for asynchronous senders that wakes to the microsecond: tokio's own timer counts in milliseconds,
//! which would be the largest part of a gateway's latency.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::drive::Clock;

/// A kernel timer of one sender.
pub(crate) struct ExactClock {
    start: Instant,
    timer: AsyncFd<OwnedFd>,
}

impl ExactClock {
    /// Counts from `start`; needs a runtime with I/O.
    #[allow(
        deprecated,
        reason = "what replaced it is unsafe for types that may close or change their descriptor; an OwnedFd does neither"
    )]
    pub(crate) fn new(start: Instant) -> std::io::Result<ExactClock> {
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        Ok(ExactClock {
            start,
            timer: AsyncFd::try_with_interest(timer, Interest::READABLE)?,
        })
    }

    async fn sleep(&self, time: Duration) -> std::io::Result<()> {
        let setting = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: Timespec {
                tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: time.subsec_nanos().into(),
            },
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &setting)?;
        loop {
            let mut ready = self.timer.readable().await?;
            // Reading takes the expiry away; a readiness without one is an old one.
            let expired = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut [0; 8])?));
            if let Ok(outcome) = expired {
                return outcome.map(drop);
            }
        }
    }
}

impl Clock for ExactClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    async fn sleep_until(&self, time: Duration) {
        let left = (self.start + time).saturating_duration_since(Instant::now());
        if !left.is_zero() && self.sleep(left).await.is_err() {
            // A timer that cannot be set is no reason not to wait.
            tokio::time::sleep(left).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a sender sleeps until several times in turn, one of them over already.
    /// Guarantees: it never wakes early, and what is over does not wait.
    #[tokio::test]
    async fn it_never_wakes_early() {
        let clock = ExactClock::new(Instant::now()).unwrap();
        for micros in [300, 900, 2_500, 2_600] {
            let until = Duration::from_micros(micros);
            clock.sleep_until(until).await;
            assert!(clock.now() >= until);
        }
        let before = Instant::now();
        clock.sleep_until(Duration::ZERO).await;
        assert!(before.elapsed() < Duration::from_secs(1));
    }
}
