//! How fast something drains, and so how long a backlog takes.

use std::time::{Duration, Instant};

/// What drained is looked at in pieces of at least this.
const SAMPLE: Duration = Duration::from_millis(500);

/// What was this long ago counts for a third of what is now: some answers of a destination that takes seconds for each.
const MEMORY: Duration = Duration::from_secs(5);

/// An average over longer says nothing about now: twice the longest hint, so that who comes back after one is told by what happened since.
const LONGEST_SAMPLE: Duration = Duration::from_secs(60);

/// While nothing is known, and nothing has drained for less, a backlog is said to take so long.
const UNKNOWN: Duration = Duration::from_secs(2);

/// Where nothing has drained at all, a backlog is said to take this part of the time that has been so. All of it told SDKs, whose request had waited for 5 s when it was
/// refused, to come back 5 s later, when they had given it up: most try for 10 s in all.
const PART_OF_NOTHING: u32 = 5;

/// Longer than any of this is of use to anybody: a day.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The rate at which something drains, as a moving average. Sans-IO: it is told what drained, and when.
#[derive(Debug, Clone)]
pub struct DrainRate {
    at: Instant,
    /// Drained since `at`.
    bytes: u64,
    /// Bytes a second, times `weight`.
    weighted: f64,
    /// 0: nothing is known. 1: for long.
    weight: f64,
    /// For how long this has been looked at.
    seen: Duration,
}

impl DrainRate {
    /// Nothing is known at `now`.
    pub fn new(now: Instant) -> Self {
        Self {
            at: now,
            bytes: 0,
            weighted: 0.0,
            weight: 0.0,
            seen: Duration::ZERO,
        }
    }

    /// So many bytes have drained since it was told last, as of `now`.
    pub fn drained(&mut self, bytes: u64, now: Instant) {
        self.bytes += bytes;
        let passed = now.saturating_duration_since(self.at);
        if passed < SAMPLE {
            return;
        }
        if passed > LONGEST_SAMPLE {
            *self = Self::new(now);
            return;
        }
        let kept = (-passed.as_secs_f64() / MEMORY.as_secs_f64()).exp();
        let rate = self.bytes as f64 / passed.as_secs_f64();
        self.weighted = self.weighted * kept + rate * (1.0 - kept);
        self.weight = self.weight * kept + (1.0 - kept);
        self.seen += passed;
        (self.at, self.bytes) = (now, 0);
    }

    /// How long `backlog` bytes take to drain, as far as is known at `now`. Where nothing has drained at all, a part of the time that has been
    /// so: the longer that is, the less often it is worth a look.
    pub fn time_for(&mut self, backlog: u64, now: Instant) -> Duration {
        self.drained(0, now);
        if self.weighted <= 0.0 {
            return (self.seen / PART_OF_NOTHING).max(UNKNOWN);
        }
        let seconds = backlog as f64 * self.weight / self.weighted;
        Duration::from_secs_f64(seconds.min(LONGEST.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MIB: u64 = 1 << 20;

    /// A rate that has seen 1 MiB/s for ten seconds.
    fn steady(start: Instant) -> (DrainRate, Instant) {
        let mut rate = DrainRate::new(start);
        (1..=100).for_each(|tenth| rate.drained(MIB / 10, start + tenth * SECOND / 10));
        (rate, start + 10 * SECOND)
    }

    fn about(time: Duration, seconds: f64) -> bool {
        (time.as_secs_f64() / seconds - 1.0).abs() < 0.05
    }

    /// Scenario: 1 MiB a second drains, in small pieces, and then in lumps every three seconds.
    /// Guarantees: a backlog takes what it takes at that rate; with lumps, half of it to twice at any moment.
    #[test]
    fn a_backlog_takes_as_long_as_it_drains() {
        let (mut rate, mut now) = steady(Instant::now());
        assert!(about(rate.time_for(7 * MIB, now), 7.0), "{rate:?}");
        for second in 1..=60 {
            now += SECOND;
            rate.drained(if second % 3 == 0 { 3 * MIB } else { 0 }, now);
            let time = rate.time_for(10 * MIB, now).as_secs_f64();
            assert!((5.0..=20.0).contains(&time), "{second}: {time}");
        }
    }

    /// Scenario: then the destination dies. Another was dead from the beginning.
    /// Guarantees: the time grows, by a power of the time that passes, and as a fifth of the time that passes; it never goes back to what it is
    /// while nothing is known.
    #[test]
    fn what_stands_takes_longer_and_longer() {
        let start = Instant::now();
        let (mut rate, now) = steady(start);
        let mut last = rate.time_for(MIB, now);
        for second in (5..=30).step_by(5) {
            let time = rate.time_for(MIB, now + second * SECOND);
            assert!(time > 2 * last, "{second}: {last:?}, then {time:?}");
            last = time;
        }
        let mut dead = DrainRate::new(start);
        assert_eq!(dead.time_for(MIB, start), UNKNOWN);
        for second in 1..=40 {
            let time = dead.time_for(MIB, start + second * SECOND);
            assert_eq!(time, (second * SECOND / 5).max(UNKNOWN));
        }
    }

    /// Scenario: nothing is asked for an hour, in which little drained.
    /// Guarantees: that hour's average is no rate: nothing is known, until something is seen again.
    #[test]
    fn a_long_silence_says_nothing() {
        let (mut rate, mut now) = steady(Instant::now());
        now += 3_600 * SECOND;
        rate.drained(MIB, now);
        assert_eq!(rate.time_for(100 * MIB, now), UNKNOWN);
        rate.drained(5 * MIB, now + SECOND);
        assert!(about(rate.time_for(100 * MIB, now + SECOND), 20.0));
    }
}
