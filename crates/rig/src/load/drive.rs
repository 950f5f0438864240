//! One sender: takes what is due, sends it, waits for the answer, notes it. The same loop for blocking
//! threads, for asynchronous calls, and for tests on a paused clock.

use std::future::Future;
use std::time::{Duration, Instant};

use super::outcome::{Answer, Outcome, micros};
use super::schedule::{Next, Schedule};
use super::source::{Outgoing, Source};
use crate::random::Random;

/// Pause after a request without an answer, so that a closed loop does not spin while nothing listens.
const AFTER_ERROR: Duration = Duration::from_millis(10);

/// Time since the start of the load.
pub(crate) trait Clock {
    /// Now; zero before the start.
    fn now(&self) -> Duration;
    /// Returns at `time` or, if that is over, at once.
    fn sleep_until(&self, time: Duration) -> impl Future<Output = ()>;
}

/// Sends a request and waits for its answer.
pub(crate) trait Exchange {
    /// The answer, or why there is none.
    fn exchange(&mut self, request: Outgoing<'_>) -> impl Future<Output = Result<Answer, String>>;
}

/// The clock of a thread of its own: sleeping blocks it, and its futures are ready when they are first
/// polled.
pub(crate) struct ThreadClock(pub(crate) Instant);

impl Clock for ThreadClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    async fn sleep_until(&self, time: Duration) {
        std::thread::sleep((self.0 + time).saturating_duration_since(Instant::now()));
    }
}

/// Sends until the schedule is done. `sender` is the number of this sender, which seeds its think times.
pub(crate) async fn drive(
    schedule: &Schedule,
    clock: &impl Clock,
    mut source: Source,
    exchange: &mut impl Exchange,
    sender: u32,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut random = Random::new(u64::from(sender));
    let mut first = true;
    clock.sleep_until(Duration::ZERO).await;
    loop {
        let due = match schedule.next(clock.now(), first, random.unit()) {
            Next::At(due) => due,
            Next::Skip => {
                outcome.unsent_requests += 1;
                continue;
            }
            Next::Done => return outcome,
        };
        first = false;
        // Made before it is due: making it is not part of its latency unless the sender is late already.
        let request = match source.next() {
            Ok(request) => request,
            Err(error) => {
                outcome.errors += 1;
                outcome.first_error = Some(error);
                return outcome;
            }
        };
        let sent = request.sent.clone();
        clock.sleep_until(due).await;
        let begun = clock.now();
        outcome.lateness.record(micros(begun.saturating_sub(due)));
        match exchange.exchange(request).await {
            Ok(answer) => {
                let now = clock.now();
                outcome.answered(&sent, answer, now.saturating_sub(due), now - begun);
            }
            Err(error) => {
                outcome.failed(&sent, error);
                clock.sleep_until(clock.now() + AFTER_ERROR).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::plan::{Bodies, Encoding, Plan};
    use crate::load::schedule::Pace;
    use sluice_loadgen::{Signal, Spec};
    use std::cell::RefCell;
    use tokio::time::{Instant, sleep, sleep_until};

    /// tokio's clock, paused.
    struct TokioClock(Instant);

    impl Clock for TokioClock {
        fn now(&self) -> Duration {
            self.0.elapsed()
        }

        async fn sleep_until(&self, time: Duration) {
            if self.0 + time > Instant::now() {
                sleep_until(self.0 + time).await;
            }
        }
    }

    /// A gateway that answers after a time that depends on when it is asked, and notes when that was.
    struct Scripted<'a, F> {
        start: Instant,
        takes: F,
        asked: &'a RefCell<Vec<Duration>>,
    }

    impl<F: Fn(Duration) -> Duration> Exchange for Scripted<'_, F> {
        async fn exchange(&mut self, _: Outgoing<'_>) -> Result<Answer, String> {
            let now = self.start.elapsed();
            self.asked.borrow_mut().push(now);
            sleep((self.takes)(now)).await;
            Ok(Answer {
                status: 200,
                accepted: true,
                ..Answer::default()
            })
        }
    }

    async fn run(pace: Pace, takes: impl Fn(Duration) -> Duration) -> (Outcome, Vec<Duration>) {
        let plan = Plan {
            spec: Spec::gateway(Signal::Logs).items(10),
            encoding: Encoding::Identity,
            bodies: Bodies::Fresh,
            ..Plan::default()
        };
        let source = Source::new(&plan, 0).unwrap();
        let schedule = Schedule::new(pace, 10, Duration::from_secs(10));
        let (start, asked) = (Instant::now(), RefCell::default());
        let mut exchange = Scripted {
            start,
            takes,
            asked: &asked,
        };
        let outcome = drive(&schedule, &TokioClock(start), source, &mut exchange, 0).await;
        (outcome, asked.into_inner())
    }

    /// Scenario: 100 requests/s for 10 s on a paused clock; answers take 1 ms.
    /// Guarantees: exactly 1000 requests, each sent at its multiple of 10 ms, none late.
    #[tokio::test(start_paused = true)]
    async fn an_open_loop_keeps_its_rate() {
        let (outcome, asked) = run(
            Pace::Open {
                items_per_second: 1000,
            },
            |_| Duration::from_millis(1),
        )
        .await;
        let wanted: Vec<_> = (0..1000)
            .map(|number| Duration::from_millis(number * 10))
            .collect();
        assert_eq!(asked, wanted);
        assert_eq!(outcome.accepted_items, 10_000);
        assert_eq!(outcome.lateness.quantile(1.0), 0);
        assert_eq!(outcome.latency.quantile(1.0), 1000);
    }

    /// Scenario: the same, but for one second the gateway does not answer.
    /// Guarantees: no coordinated omission. The hundred requests that were due meanwhile are sent all the
    /// same and carry their waiting time: a tenth of the load sees hundreds of milliseconds, not one request
    /// in a thousand. From when they were sent, which is told beside it, it is that one.
    #[tokio::test(start_paused = true)]
    async fn a_stall_counts_for_everything_that_was_due() {
        let stalls = |now: Duration| match now.as_secs() {
            5 if now.subsec_millis() == 0 => Duration::from_secs(1),
            _ => Duration::from_millis(1),
        };
        let (outcome, asked) = run(
            Pace::Open {
                items_per_second: 1000,
            },
            stalls,
        )
        .await;
        assert_eq!(asked.len(), 1000);
        assert_eq!(outcome.latency.count(), 1000);
        assert!((990..=1010).contains(&outcome.latency.quantile(0.5)));
        let p95 = outcome.latency.quantile(0.95);
        assert!((400_000..=600_000).contains(&p95), "{p95}");
        assert!(outcome.lateness.quantile(1.0) >= 980_000);
        // By itself only the one request that met the stall was slow.
        assert_eq!(outcome.from_sent.count(), 1000);
        assert!((990..=1010).contains(&outcome.from_sent.quantile(0.99)));
        assert_eq!(outcome.from_sent.quantile(1.0), 1_000_000);
    }

    /// Scenario: one virtual user thinks for 100 ms between answers that take 100 ms, for 10 s.
    /// Guarantees: 50 requests, 200 ms apart; latency counts from the end of the thinking.
    #[tokio::test(start_paused = true)]
    async fn a_closed_loop_waits_and_thinks() {
        let think = Duration::from_millis(100);
        let (outcome, asked) = run(
            Pace::Closed {
                think: (think, think),
            },
            |_| think,
        )
        .await;
        let wanted: Vec<_> = (0..50)
            .map(|number| Duration::from_millis(number * 200))
            .collect();
        assert_eq!(asked, wanted);
        assert_eq!(outcome.latency.quantile(1.0), 100_000);
    }
}
