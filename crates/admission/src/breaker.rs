//! A circuit breaker for one endpoint: stops asking what keeps failing, and asks again with one request at a time.
//!
//! It counts outcomes. That a request was let through says nothing about the endpoint, and neither does one that was
//! given up before it was answered. One breaker is for one endpoint (or method): give each its own, or a sick one
//! closes the way to the healthy ones and a healthy one hides the sick.

use std::time::Duration;

use crate::sync::{AtomicU64, Ordering};
use crate::tracker::duration_nanos;

/// When a [`Breaker`] opens and closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Failures in a row, with no success in between, that open it (3).
    pub failures: u16,
    /// It does not open sooner than this after it closed or was made (1 s): a burst of requests that were under way
    /// together is one failure, not many.
    pub min_closed: Duration,
    /// How long it stays open (30 s).
    pub open_for: Duration,
    /// Probes in a row that must succeed to close it (5).
    pub successes: u16,
    /// A probe without an outcome is given up after this, and another one may go (30 s).
    pub probe_timeout: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            failures: 3,
            min_closed: Duration::from_secs(1),
            open_for: Duration::from_secs(30),
            successes: 5,
            probe_timeout: Duration::from_secs(30),
        }
    }
}

/// What a [`Breaker`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum BreakerState {
    /// Lets everything through.
    Closed,
    /// Lets nothing through.
    Open,
    /// Lets the next request through, as a probe.
    HalfOpen,
    /// Waits for a probe's outcome, and lets nothing else through.
    Probing,
}

/// How a request ended, as far as its endpoint is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The endpoint did its work, whatever it thought of the request.
    Success,
    /// The endpoint failed.
    Failure,
    /// The request was given up: nothing is known.
    Abandoned,
}

/// Leave to send one request; give it back with the outcome ([`Breaker::settle`]).
#[derive(Debug, Clone, Copy)]
#[must_use = "a probe that is never settled keeps others waiting until its timeout"]
pub struct Pass {
    generation: u16,
}

/// The way is closed for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    /// Nothing will get through before this.
    pub retry_after: Duration,
}

impl std::fmt::Display for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the endpoint failed repeatedly and is not asked for now; try again in {} s",
            self.retry_after.as_secs_f64().ceil()
        )
    }
}

impl std::error::Error for Open {}

/// A state change, told once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerChange {
    /// The state until now.
    pub from: BreakerState,
    /// The state from now on.
    pub to: BreakerState,
}

/// A breaker. All of its state is one word, so every step is one compare-and-swap. Time is in nanoseconds, as that of
/// [`Tracker`](crate::Tracker).
#[derive(Debug)]
pub struct Breaker {
    state: AtomicU64,
}

/// State (2 bits), count of failures or successes (10), generation (12), time in units of 2^20 ns (40 bits: 36 years).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Word {
    state: BreakerState,
    count: u64,
    /// Changes whenever outcomes of requests let through before stop counting.
    generation: u16,
    /// When `state` was entered.
    since: u64,
}

const COUNT_MAX: u64 = (1 << 10) - 1;
const GENERATION_MASK: u16 = (1 << 12) - 1;
const TIME_UNIT_BITS: u32 = 20;
const TIME_MASK: u64 = (1 << 40) - 1;

impl Word {
    fn unpack(word: u64) -> Self {
        Self {
            state: match word & 3 {
                0 => BreakerState::Closed,
                1 => BreakerState::Open,
                2 => BreakerState::HalfOpen,
                _ => BreakerState::Probing,
            },
            count: word >> 2 & COUNT_MAX,
            generation: (word >> 12) as u16 & GENERATION_MASK,
            since: word >> 24,
        }
    }

    fn pack(self) -> u64 {
        self.state as u64 | self.count << 2 | u64::from(self.generation) << 12 | self.since << 24
    }

    /// A new state; what was let through in the old one no longer counts.
    fn enter(self, state: BreakerState, count: u64, now: u64) -> Self {
        Self {
            state,
            count,
            generation: (self.generation + 1) & GENERATION_MASK,
            since: now,
        }
    }
}

fn units(duration: Duration) -> u64 {
    (duration_nanos(duration) >> TIME_UNIT_BITS).max(1)
}

fn unit_time(now: u64) -> u64 {
    now >> TIME_UNIT_BITS & TIME_MASK
}

impl Breaker {
    /// A closed breaker.
    pub fn new(now: u64) -> Self {
        let word = Word {
            state: BreakerState::Closed,
            count: 0,
            generation: 0,
            since: unit_time(now),
        };
        Self {
            state: AtomicU64::new(word.pack()),
        }
    }

    /// What it does now.
    pub fn state(&self) -> BreakerState {
        Word::unpack(self.state.load(Ordering::Relaxed)).state
    }

    /// Leave to send a request at `now`.
    ///
    /// # Errors
    /// [`Open`] while the endpoint is left alone, or while a probe is under way.
    #[inline]
    pub fn admit(&self, settings: &BreakerSettings, now: u64) -> Result<Pass, Open> {
        let word = Word::unpack(self.state.load(Ordering::Acquire));
        if word.state == BreakerState::Closed {
            return Ok(Pass {
                generation: word.generation,
            });
        }
        self.admit_probe(settings, unit_time(now))
    }

    #[cold]
    fn admit_probe(&self, settings: &BreakerSettings, now: u64) -> Result<Pass, Open> {
        let mut seen = self.state.load(Ordering::Acquire);
        loop {
            let word = Word::unpack(seen);
            let (wait, successes) = match word.state {
                BreakerState::Closed => {
                    return Ok(Pass {
                        generation: word.generation,
                    });
                }
                BreakerState::Open => (units(settings.open_for), 0),
                BreakerState::HalfOpen => (0, word.count),
                // A probe that got lost is one that failed to answer: the successes before it are void.
                BreakerState::Probing => (units(settings.probe_timeout), 0),
            };
            let waited = now.saturating_sub(word.since);
            if waited < wait {
                return Err(Open {
                    retry_after: Duration::from_nanos((wait - waited) << TIME_UNIT_BITS),
                });
            }
            let next = word.enter(BreakerState::Probing, successes, now);
            match self
                .state
                .compare_exchange_weak(seen, next.pack(), Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => {
                    return Ok(Pass {
                        generation: next.generation,
                    });
                }
                Err(other) => seen = other,
            }
        }
    }

    /// Takes in how the request of `pass` ended at `now`; returns the change, if this made one. Outcomes of requests
    /// that were let through before the last change of state count for nothing.
    #[inline]
    pub fn settle(
        &self,
        settings: &BreakerSettings,
        pass: Pass,
        outcome: Outcome,
        now: u64,
    ) -> Option<BreakerChange> {
        let mut seen = self.state.load(Ordering::Acquire);
        loop {
            let word = Word::unpack(seen);
            if word.generation != pass.generation {
                return None;
            }
            let next = after(word, settings, outcome, unit_time(now));
            if next == word {
                return None;
            }
            match self
                .state
                .compare_exchange_weak(seen, next.pack(), Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => {
                    return (next.state != word.state).then_some(BreakerChange {
                        from: word.state,
                        to: next.state,
                    });
                }
                Err(other) => seen = other,
            }
        }
    }
}

/// The state after an outcome that counts.
fn after(word: Word, settings: &BreakerSettings, outcome: Outcome, now: u64) -> Word {
    let limit = |count: u16| u64::from(count).clamp(1, COUNT_MAX);
    match (word.state, outcome) {
        (BreakerState::Closed, Outcome::Success) => Word { count: 0, ..word },
        (BreakerState::Closed, Outcome::Failure) => {
            let count = (word.count + 1).min(COUNT_MAX);
            let settled = now.saturating_sub(word.since) >= units(settings.min_closed);
            if count >= limit(settings.failures) && settled {
                word.enter(BreakerState::Open, 0, now)
            } else {
                Word { count, ..word }
            }
        }
        (BreakerState::Probing, Outcome::Success) => {
            if word.count + 1 >= limit(settings.successes) {
                word.enter(BreakerState::Closed, 0, now)
            } else {
                word.enter(BreakerState::HalfOpen, word.count + 1, now)
            }
        }
        (BreakerState::Probing, Outcome::Failure) => word.enter(BreakerState::Open, 0, now),
        (BreakerState::Probing, Outcome::Abandoned) => word.enter(BreakerState::HalfOpen, word.count, now),
        // Nothing is under way in the other states: their passes belong to generations that are over.
        (BreakerState::Closed, Outcome::Abandoned) | (BreakerState::Open | BreakerState::HalfOpen, _) => word,
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn settings() -> BreakerSettings {
        BreakerSettings {
            failures: 2,
            ..BreakerSettings::default()
        }
    }

    fn fail(breaker: &Breaker, pass: Pass) -> usize {
        let change = breaker.settle(&settings(), pass, Outcome::Failure, 10 * SECOND);
        usize::from(change.is_some())
    }

    /// Scenario: two requests under way fail at once, in two threads; then two threads ask an hour later.
    /// Guarantees: it opens, and one of them is told so; one of those who ask later is let through as the probe.
    #[test]
    fn loom_one_change_and_one_probe() {
        loom::model(|| {
            let breaker = Arc::new(Breaker::new(0));
            let passes = [(); 2].map(|()| breaker.admit(&settings(), SECOND).unwrap());
            let other = {
                let breaker = breaker.clone();
                thread::spawn(move || {
                    let told = fail(&breaker, passes[1]);
                    (told, breaker.admit(&settings(), 3_600 * SECOND))
                })
            };
            let told = fail(&breaker, passes[0]);
            let mine = breaker.admit(&settings(), 3_600 * SECOND);
            let (told_other, others) = other.join().unwrap();
            assert_eq!(told + told_other, 1);
            // Who asks before the other's failure is in may still find it closed, and is no probe.
            let probes = [mine, others]
                .into_iter()
                .flatten()
                .filter(|pass| pass.generation >= 2)
                .count();
            assert!(probes <= 1);
            assert!(matches!(
                breaker.state(),
                BreakerState::Open | BreakerState::Probing
            ));
        });
    }

    /// Scenario: the probe's success and the time-out that gives its place to another come at once.
    /// Guarantees: either the success counted, or the other probe is the only one that counts.
    #[test]
    fn loom_a_late_probe_does_not_count_twice() {
        loom::model(|| {
            let breaker = Arc::new(Breaker::new(0));
            for _ in 0..2 {
                let pass = breaker.admit(&settings(), 2 * SECOND).unwrap();
                fail(&breaker, pass);
            }
            let probe = breaker.admit(&settings(), 50 * SECOND).unwrap();
            let other = {
                let breaker = breaker.clone();
                thread::spawn(move || breaker.admit(&settings(), 90 * SECOND))
            };
            let change = breaker.settle(&settings(), probe, Outcome::Success, 90 * SECOND);
            let replaced = other.join().unwrap();
            assert!(replaced.is_ok());
            assert_eq!(breaker.state(), BreakerState::Probing);
            let count = Word::unpack(breaker.state.load(Ordering::Acquire)).count;
            assert_eq!(count, u64::from(change.is_some()));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const SETTINGS: BreakerSettings = BreakerSettings {
        failures: 3,
        min_closed: Duration::from_secs(1),
        open_for: Duration::from_secs(30),
        successes: 2,
        probe_timeout: Duration::from_secs(10),
    };

    fn request(breaker: &Breaker, outcome: Outcome, now: u64) -> Option<BreakerChange> {
        let pass = breaker.admit(&SETTINGS, now).unwrap();
        breaker.settle(&SETTINGS, pass, outcome, now)
    }

    fn opened(now: u64) -> Breaker {
        let breaker = Breaker::new(0);
        for _ in 0..3 {
            request(&breaker, Outcome::Failure, now);
        }
        assert_eq!(breaker.state(), BreakerState::Open);
        breaker
    }

    /// Scenario: two failures and a success, again and again; then three failures; then time; then two probes.
    /// Guarantees: it opens at three in a row, tells so once, refuses for 30 s saying how long, and closes after two
    /// probes that succeed.
    #[test]
    fn opens_and_closes() {
        let breaker = Breaker::new(0);
        for _ in 0..100 {
            for outcome in [Outcome::Failure, Outcome::Failure, Outcome::Success] {
                assert_eq!(request(&breaker, outcome, 10 * SECOND), None);
            }
        }
        assert_eq!(request(&breaker, Outcome::Failure, 10 * SECOND), None);
        assert_eq!(request(&breaker, Outcome::Failure, 10 * SECOND), None);
        let change = request(&breaker, Outcome::Failure, 10 * SECOND).unwrap();
        assert_eq!(
            (change.from, change.to),
            (BreakerState::Closed, BreakerState::Open)
        );
        let open = breaker.admit(&SETTINGS, 20 * SECOND).unwrap_err();
        assert!((19..=20).contains(&open.retry_after.as_secs()), "{open}");
        let change = request(&breaker, Outcome::Success, 41 * SECOND).unwrap();
        assert_eq!(change.to, BreakerState::HalfOpen);
        let change = request(&breaker, Outcome::Success, 41 * SECOND).unwrap();
        assert_eq!(change.to, BreakerState::Closed);
    }

    /// Scenario: half-open, a hundred requests arrive while the first is under way; it fails, is given up, or is lost.
    /// Guarantees: one probe at a time; a failure opens again, one given up lets the next go, one lost is replaced
    /// after its timeout and its late success counts for nothing.
    #[test]
    fn one_probe_at_a_time() {
        let breaker = opened(10 * SECOND);
        let now = 41 * SECOND;
        let probe = breaker.admit(&SETTINGS, now).unwrap();
        assert!((0..100).all(|_| breaker.admit(&SETTINGS, now).is_err()));
        breaker.settle(&SETTINGS, probe, Outcome::Abandoned, now);
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        let lost = breaker.admit(&SETTINGS, now).unwrap();
        assert!(breaker.admit(&SETTINGS, now + 9 * SECOND).is_err());
        let next = breaker.admit(&SETTINGS, now + 11 * SECOND).unwrap();
        assert_eq!(
            breaker.settle(&SETTINGS, lost, Outcome::Success, now + 11 * SECOND),
            None
        );
        assert_eq!(breaker.state(), BreakerState::Probing);
        breaker.settle(&SETTINGS, next, Outcome::Failure, now + 12 * SECOND);
        assert_eq!(breaker.state(), BreakerState::Open);
    }

    /// Scenario: a thousand requests are admitted and none has ended; requests admitted before it opened end after.
    /// Guarantees: admissions are no outcomes: they neither open it nor wipe out failures; late outcomes are ignored.
    #[test]
    fn outcomes_count_and_admissions_do_not() {
        let breaker = Breaker::new(0);
        let now = 10 * SECOND;
        let under_way: Vec<Pass> = (0..1_000)
            .map(|_| breaker.admit(&SETTINGS, now).unwrap())
            .collect();
        request(&breaker, Outcome::Failure, now);
        request(&breaker, Outcome::Failure, now);
        let _ = breaker.admit(&SETTINGS, now).unwrap();
        request(&breaker, Outcome::Failure, now);
        assert_eq!(breaker.state(), BreakerState::Open);
        for pass in under_way {
            assert_eq!(breaker.settle(&SETTINGS, pass, Outcome::Success, now), None);
        }
        assert_eq!(breaker.state(), BreakerState::Open);
    }

    /// Scenario: a hundred failures within the first second.
    /// Guarantees: it stays closed until it has been closed for a second, then the next failure opens it.
    #[test]
    fn does_not_open_right_after_it_closed() {
        let breaker = Breaker::new(0);
        for _ in 0..100 {
            assert_eq!(request(&breaker, Outcome::Failure, SECOND / 2), None);
        }
        assert!(request(&breaker, Outcome::Failure, 2 * SECOND).is_some());
    }
}
