//! Holds a level steady: it rises at once and falls only when things have been better for a while.

use std::time::Duration;

use crate::level::{Cause, Level};
use crate::sync::{AtomicU64, Ordering};
use crate::tracker::duration_nanos;

/// A level that changed, told once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LevelChange {
    /// The level until now.
    pub from: Level,
    /// The level from now on.
    pub to: Level,
    /// The signal that set it; when it fell, the worst of those left.
    pub cause: Cause,
}

/// A level with its cause, changed by observations and read in a nanosecond.
///
/// An observation that is worse counts at once. One that is better counts when nothing worse was seen for the hold
/// time, and then the level falls to the worst that was seen since. Any thread may observe; each change is returned
/// to exactly one of them.
#[derive(Debug)]
pub struct LevelGauge {
    /// See [`Held`]. One word, so that no observer acts on half of another's change.
    state: AtomicU64,
}

/// The gauge's state, as it is packed into a word: level (4 bits), cause (4), pending level (4), pending cause (4),
/// time in units of 2^16 ns (48 bits: 584 years).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    level: Level,
    cause: Cause,
    /// The worst observation, below `level`, since `seen`.
    pending: (Level, Cause),
    /// When `level` was last confirmed.
    seen: u64,
}

const TIME_UNIT_BITS: u32 = 16;

impl Held {
    fn unpack(word: u64) -> Self {
        Self {
            level: Level::from_number(word & 15),
            cause: Cause::from_number(word >> 4 & 15),
            pending: (
                Level::from_number(word >> 8 & 15),
                Cause::from_number(word >> 12 & 15),
            ),
            seen: word >> 16,
        }
    }

    fn pack(self) -> u64 {
        self.level as u64
            | (self.cause as u64) << 4
            | (self.pending.0 as u64) << 8
            | (self.pending.1 as u64) << 12
            | self.seen << 16
    }

    fn observe(mut self, level: Level, cause: Cause, now: u64, hold: u64) -> Self {
        if level >= self.level {
            // Rewriting the time at every request would move the line between cores for nothing.
            if level > self.level || now.saturating_sub(self.seen) > hold / 16 {
                (self.level, self.cause, self.seen) = (level, cause, self.seen.max(now));
                self.pending = (Level::Normal, cause);
            }
            return self;
        }
        if level > self.pending.0 {
            self.pending = (level, cause);
        }
        if now.saturating_sub(self.seen) >= hold {
            (self.level, self.cause) = self.pending;
            self.seen = now;
            self.pending = (Level::Normal, self.cause);
        }
        self
    }
}

impl LevelGauge {
    /// A gauge at normal.
    pub fn new() -> Self {
        Self {
            state: AtomicU64::new(0),
        }
    }

    /// The level held.
    #[inline]
    pub fn level(&self) -> Level {
        Level::from_number(self.state.load(Ordering::Relaxed) & 15)
    }

    /// The level held and the signal that set it.
    pub fn level_and_cause(&self) -> (Level, Cause) {
        let held = Held::unpack(self.state.load(Ordering::Relaxed));
        (held.level, held.cause)
    }

    /// Takes in that the level is `level` by `cause` at `now` (nanoseconds); returns the change, if this made one.
    pub fn observe(&self, level: Level, cause: Cause, now: u64, hold: Duration) -> Option<LevelChange> {
        let (now, hold) = (now >> TIME_UNIT_BITS, duration_nanos(hold) >> TIME_UNIT_BITS);
        let mut word = self.state.load(Ordering::Relaxed);
        loop {
            let before = Held::unpack(word);
            let after = before.observe(level, cause, now, hold);
            if after == before {
                return None;
            }
            match self
                .state
                .compare_exchange_weak(word, after.pack(), Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => {
                    return (after.level != before.level).then_some(LevelChange {
                        from: before.level,
                        to: after.level,
                        cause: after.cause,
                    });
                }
                Err(seen) => word = seen,
            }
        }
    }
}

impl Default for LevelGauge {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Scenario: two threads observe a rise at once, to different levels.
    /// Guarantees: the worse one is held, and the changes told are a chain from normal to it.
    #[test]
    fn loom_each_change_is_told_once() {
        loom::model(|| {
            let gauge = Arc::new(LevelGauge::new());
            let observe = |gauge: &LevelGauge, level| {
                gauge.observe(level, Cause::Disk, 1_000_000_000, Duration::from_secs(1))
            };
            let other = {
                let gauge = gauge.clone();
                thread::spawn(move || observe(&gauge, Level::Critical))
            };
            let mine = observe(&gauge, Level::Warning);
            let others = other.join().unwrap().unwrap();
            assert_eq!(gauge.level(), Level::Critical);
            match mine {
                Some(mine) => assert_eq!(
                    (mine.from, mine.to, others.from),
                    (Level::Normal, Level::Warning, mine.to)
                ),
                None => assert_eq!(others.from, Level::Normal),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Duration = Duration::from_secs(1);
    const MILLISECOND: u64 = 1_000_000;

    /// Scenario: a signal that swings across a threshold every 100 ms for a minute, then stays below it.
    /// Guarantees: two changes, up and down; the fall comes one hold time after the last high value.
    #[test]
    fn a_swinging_signal_does_not_flap() {
        let gauge = LevelGauge::new();
        let mut changes = Vec::new();
        for n in 0..700_u64 {
            let level = if n < 600 && n % 2 == 0 {
                Level::Critical
            } else {
                Level::Warning
            };
            if let Some(change) = gauge.observe(level, Cause::Disk, n * 100 * MILLISECOND, HOLD) {
                changes.push((n, change.from, change.to));
            }
        }
        assert_eq!(changes[0], (0, Level::Normal, Level::Critical));
        assert_eq!((changes[1].1, changes[1].2), (Level::Critical, Level::Warning));
        assert!((607..=609).contains(&changes[1].0), "{changes:?}");
        assert_eq!(changes.len(), 2);
    }

    /// Scenario: emergency; then normal, moderate, normal within the hold time.
    /// Guarantees: it falls to moderate, the worst seen meanwhile, with its cause; then to normal.
    #[test]
    fn it_falls_to_the_worst_seen_meanwhile() {
        let gauge = LevelGauge::new();
        let at = |level, cause, ms: u64| gauge.observe(level, cause, ms * MILLISECOND, HOLD);
        assert_eq!(
            at(Level::Emergency, Cause::Latency, 0).unwrap().to,
            Level::Emergency
        );
        assert_eq!(at(Level::Normal, Cause::Latency, 300), None);
        assert_eq!(at(Level::Moderate, Cause::QueueAge, 600), None);
        let fall = at(Level::Normal, Cause::Latency, 1_001).unwrap();
        assert_eq!((fall.to, fall.cause), (Level::Moderate, Cause::QueueAge));
        assert_eq!(at(Level::Normal, Cause::Latency, 1_900), None);
        assert_eq!(
            at(Level::Normal, Cause::Latency, 2_100).unwrap().to,
            Level::Normal
        );
    }

    /// Scenario: every state that can be packed, with the largest time.
    /// Guarantees: it comes out as it went in.
    #[test]
    fn packing_keeps_everything() {
        for level in Level::ALL {
            for number in 0..5 {
                let held = Held {
                    level,
                    cause: Cause::from_number(number),
                    pending: (Level::from_number(number), Cause::from_number(4 - number)),
                    seen: u64::MAX >> 16,
                };
                assert_eq!(Held::unpack(held.pack()), held);
            }
        }
    }
}
