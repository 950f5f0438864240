//! How long one method takes, lately: average, trend and percentiles, for the cost of three atomic updates a sample at most.
//!
//! Time is a parameter, in nanoseconds of any monotonic clock that starts at or after zero ([`Origin`] makes them
//! from [`Instant`]s). What a reader gets is computed from the samples recorded until then; nothing is cached.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::histogram::{FORGOTTEN_AFTER, Histogram, Quantiles};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Averages kept for slope and drift. Floodgate keeps 20; more would cost every reader.
const WINDOW: u64 = 16;
/// Slope and drift of fewer averages than this are noise, and reported as zero.
const MIN_TREND: u64 = 4;
/// The average and the number of samples share a word, so that one compare-and-swap updates both.
const SEQUENCE_BITS: u32 = 24;
const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;
/// The number of samples goes on from here when it overflows: it stays above [`WINDOW`], and a multiple of it.
const SEQUENCE_RESTART: u64 = 1 << (SEQUENCE_BITS - 1);
/// The longest latency told apart, in nanoseconds (18 minutes).
const MAX_LATENCY: u64 = (1 << (64 - SEQUENCE_BITS)) - 1;
/// The window holds averages in units of 64 ns: 32 bits hold 4.5 minutes.
const WINDOW_UNIT_BITS: u32 = 6;
/// Weights of the average are in 1024ths.
const ALPHA_BITS: u32 = 10;
/// Ticks in a half-life, as a power of two: 256.
const TICKS_BITS: u32 = 8;
const ALPHA_ONE: u64 = 1 << ALPHA_BITS;

/// Nanoseconds since it was made: the clock that [`Tracker`] and its kin take as a parameter.
#[derive(Debug, Clone, Copy)]
pub struct Origin(Instant);

impl Origin {
    /// Nanoseconds are counted from `at`.
    pub fn new(at: Instant) -> Self {
        Self(at)
    }

    /// The origin of this process: the first call of this function. For clocks that must agree.
    pub fn process() -> Self {
        static ORIGIN: OnceLock<Origin> = OnceLock::new();
        *ORIGIN.get_or_init(|| Self(Instant::now()))
    }

    /// `at` in nanoseconds; zero for what lies before the origin.
    #[inline]
    pub fn nanos(&self, at: Instant) -> u64 {
        duration_nanos(at.saturating_duration_since(self.0))
    }

    /// The present in nanoseconds.
    #[inline]
    pub fn now(&self) -> u64 {
        self.nanos(Instant::now())
    }
}

/// A duration in nanoseconds; 584 years and more are `u64::MAX`.
#[inline]
pub(crate) fn duration_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What a [`Tracker`] remembers, and how long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrackerSettings {
    /// Weight of a new sample in the average, 0.001 to 1.
    pub alpha: f32,
    /// The time in which a sample loses half of its weight in the percentiles; rounded up to a power of two of
    /// nanoseconds (8 s become 8.6 s), and at least 1 ms.
    pub half_life: Duration,
    /// The range in which percentiles are within 2%, rounded outwards to powers of two of nanoseconds, at most
    /// 36 octaves. What lies outside is counted at its ends. `None` keeps no percentiles.
    pub percentiles: Option<(Duration, Duration)>,
}

impl TrackerSettings {
    /// Bytes a [`Tracker`] with these settings takes, its heap included.
    pub fn memory_bytes(&self) -> usize {
        let histogram = match self.percentiles {
            Some((min, max)) => Histogram::heap_bytes(duration_nanos(min), duration_nanos(max)),
            None => 0,
        };
        size_of::<Tracker>() + histogram
    }
}

/// What a [`Tracker`] knows at one moment. Zero where nothing is known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stats {
    /// Samples recorded, each halved for every half-life since. Zero without percentiles.
    pub weight: f64,
    /// The moving average, in nanoseconds.
    pub ema: u64,
    /// What the average changes from one sample to the next, over the last 16, in nanoseconds a sample.
    pub slope: i64,
    /// The average over the younger half of the last 16 less that over the older half, in nanoseconds.
    pub drift: i64,
    /// The average over the older half of the last 16, in nanoseconds: what `drift` is relative to.
    pub before: u64,
    /// The median, in nanoseconds.
    pub p50: u64,
    /// The 95th percentile, in nanoseconds.
    pub p95: u64,
    /// The 99th percentile, in nanoseconds.
    pub p99: u64,
}

impl Stats {
    /// The drift as a share of what was before: 0.5 is 50% more. Zero when nothing was.
    pub fn relative_drift(&self) -> f64 {
        if self.before == 0 {
            return 0.0;
        }
        self.drift as f64 / self.before as f64
    }
}

/// Tracks the latency of one method. Recording takes no lock, allocates nothing and never waits; two samples
/// recorded at the same instant both count.
#[derive(Debug)]
#[repr(align(64))]
pub struct Tracker {
    /// The average in nanoseconds (40 bits), the number of samples (24 bits).
    head: AtomicU64,
    /// When the last sample came, or up to a tick earlier.
    last: AtomicU64,
    /// Epochs added to those of the clock by [`Tracker::restart`].
    skipped_epochs: AtomicU64,
    alpha: u32,
    epoch_shift: u32,
    /// A sample that comes later than this after the last weighs more than `alpha` in the average.
    patience: u64,
    histogram: Histogram,
    /// The last averages, at the number of their sample modulo [`WINDOW`].
    window: [AtomicU32; WINDOW as usize],
}

impl Tracker {
    /// A tracker that has seen nothing.
    pub fn new(settings: &TrackerSettings) -> Self {
        let alpha = (f64::from(settings.alpha) * ALPHA_ONE as f64).round() as u64;
        let alpha = alpha.clamp(1, ALPHA_ONE) as u32;
        let half_life = duration_nanos(settings.half_life).clamp(1_000_000, 1 << 50);
        let epoch_shift = half_life.next_power_of_two().ilog2();
        let kept = ALPHA_ONE - u64::from(alpha);
        Self {
            head: AtomicU64::new(0),
            last: AtomicU64::new(0),
            skipped_epochs: AtomicU64::new(0),
            alpha,
            epoch_shift,
            patience: ((u128::from(alpha) << epoch_shift) / u128::from(kept.max(1))) as u64,
            histogram: match settings.percentiles {
                Some((min, max)) => Histogram::new(duration_nanos(min), duration_nanos(max)),
                None => Histogram::none(),
            },
            window: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    /// Records that a request which ended at `now` took `latency` nanoseconds.
    #[inline]
    pub fn record(&self, now: u64, latency: u64) {
        let latency = latency.min(MAX_LATENCY);
        let last = self.last.load(Ordering::Relaxed);
        // Threads read their clocks and record in any order; time here does not go back.
        let now = now.max(last);
        if now - last >= self.tick() {
            self.advance(last, now);
        }
        let alpha = if now - last > self.patience {
            self.impatient_alpha(now - last)
        } else {
            self.alpha
        };
        let head = self.average(latency, alpha);
        if !self.histogram.is_none() {
            self.histogram.record(self.epoch(now), latency, head ^ now);
        }
    }

    /// Everything, as of `now`. After a silence of 28 half-lives all is forgotten.
    #[inline]
    pub fn stats(&self, now: u64) -> Stats {
        // A reader whose clock reads earlier than the last sample's must not see that epoch as the future.
        let now = now.max(self.last.load(Ordering::Relaxed));
        let mut stats = self.trend(now);
        if !self.histogram.is_none() && !self.is_silent(now) {
            let Quantiles {
                weight,
                p50,
                p95,
                p99,
            } = self.histogram.quantiles(self.epoch(now));
            (stats.weight, stats.p50, stats.p95, stats.p99) = (weight, p50, p95, p99);
        }
        stats
    }

    /// [`Tracker::stats`] without weight and percentiles, at a third of the cost.
    #[inline]
    pub fn trend(&self, now: u64) -> Stats {
        let head = self.head.load(Ordering::Relaxed);
        let (ema, sequence) = (head >> SEQUENCE_BITS, head & SEQUENCE_MASK);
        if sequence == 0 || self.is_silent(now) {
            return Stats::default();
        }
        let (slope, drift, before) = match sequence {
            ..MIN_TREND => (0, 0, 0),
            MIN_TREND..WINDOW => self.slope_and_drift(ema, sequence, sequence),
            // A constant length: no division, no loop.
            _ => self.slope_and_drift(ema, sequence, WINDOW),
        };
        Stats {
            ema,
            slope,
            drift,
            before,
            ..Stats::default()
        }
    }

    /// Forgets every sample: what comes next is judged by itself. Samples that are recorded at the same moment may
    /// fall on either side.
    pub fn restart(&self) {
        self.head.store(0, Ordering::Relaxed);
        if self.histogram.is_none() {
            return;
        }
        let skip = FORGOTTEN_AFTER + 16;
        self.skipped_epochs.fetch_add(skip, Ordering::Relaxed);
        self.histogram
            .sweep(self.epoch(self.last.load(Ordering::Relaxed)), true);
    }

    #[inline]
    fn epoch(&self, now: u64) -> u64 {
        (now >> self.epoch_shift) + self.skipped_epochs.load(Ordering::Relaxed)
    }

    #[inline]
    fn is_silent(&self, now: u64) -> bool {
        now.saturating_sub(self.last.load(Ordering::Relaxed)) >> self.epoch_shift > FORGOTTEN_AFTER
    }

    /// How far `last` may be behind: short beside the half-life and `patience`, and rarely passed by a sample.
    #[inline]
    fn tick(&self) -> u64 {
        1 << (self.epoch_shift - TICKS_BITS)
    }

    #[cold]
    fn advance(&self, last: u64, now: u64) {
        let entered = self
            .last
            .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        let epochs = (now >> self.epoch_shift) - (last >> self.epoch_shift);
        if entered && epochs > 0 {
            self.histogram.sweep(self.epoch(now), epochs > FORGOTTEN_AFTER);
        }
    }

    /// After a pause of `gap`, the average keeps half_life / (half_life + gap) of the past: few samples over a long
    /// time move it as many in a short one would, so that a trickle of requests shows a recovery.
    #[cold]
    fn impatient_alpha(&self, gap: u64) -> u32 {
        let half_life = 1_u128 << self.epoch_shift;
        let gap = u128::from(gap);
        ((gap << ALPHA_BITS) / (half_life + gap)).max(u128::from(self.alpha)) as u32
    }

    /// Moves the average towards `latency`; returns the new head.
    #[inline]
    fn average(&self, latency: u64, alpha: u32) -> u64 {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let (ema, sequence) = (head >> SEQUENCE_BITS, head & SEQUENCE_MASK);
            let next = if sequence == 0 {
                latency
            } else {
                let step = (latency as i64 - ema as i64) * i64::from(alpha);
                ema.wrapping_add_signed((step + (1 << (ALPHA_BITS - 1))) >> ALPHA_BITS)
            };
            let number = if sequence == SEQUENCE_MASK {
                SEQUENCE_RESTART
            } else {
                sequence + 1
            };
            let changed = next << SEQUENCE_BITS | number;
            match self
                .head
                .compare_exchange_weak(head, changed, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => {
                    let unit = u32::try_from(next >> WINDOW_UNIT_BITS).unwrap_or(u32::MAX);
                    self.window[(number % WINDOW) as usize].store(unit, Ordering::Relaxed);
                    return changed;
                }
                Err(seen) => head = seen,
            }
        }
    }

    /// Slope, drift and what the drift is relative to, over the `known` last averages.
    #[inline(always)]
    fn slope_and_drift(&self, ema: u64, sequence: u64, known: u64) -> (i64, i64, u64) {
        let nth_last = |n: u64| {
            let at = (sequence.wrapping_sub(n) % WINDOW) as usize;
            u64::from(self.window[at].load(Ordering::Relaxed))
        };
        let oldest = nth_last(known - 1) << WINDOW_UNIT_BITS;
        let slope = (ema as i64 - oldest as i64) / (known as i64 - 1);
        let half = known / 2;
        let younger: u64 = (0..half).map(nth_last).sum();
        let older: u64 = (known - half..known).map(nth_last).sum();
        let before = (older << WINDOW_UNIT_BITS) / half;
        let after = (younger << WINDOW_UNIT_BITS) / half;
        (slope, after as i64 - before as i64, before)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Scenario: two threads record, a third reads.
    /// Guarantees: the average is always one that some order of whole samples gives; both are counted.
    #[test]
    fn loom_the_average_is_of_whole_samples() {
        loom::model(|| {
            let tracker = Arc::new(Tracker::new(&TrackerSettings {
                alpha: 0.5,
                half_life: Duration::from_secs(8),
                percentiles: None,
            }));
            let threads = [1_000, 3_000].map(|latency| {
                let tracker = tracker.clone();
                thread::spawn(move || tracker.record(1, latency))
            });
            let seen = tracker.trend(1).ema;
            assert!([0, 1_000, 2_000, 3_000].contains(&seen), "{seen}");
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(tracker.trend(1).ema, 2_000);
            assert_eq!(tracker.head.load(Ordering::Relaxed) & SEQUENCE_MASK, 2);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;
    const SECOND: u64 = 1_000 * MILLISECOND;

    fn settings() -> TrackerSettings {
        TrackerSettings {
            alpha: 0.1,
            half_life: Duration::from_secs(8),
            percentiles: Some((Duration::from_micros(1), Duration::from_secs(120))),
        }
    }

    fn near(value: u64, expected: u64) -> bool {
        value.abs_diff(expected) <= expected / 50
    }

    /// Scenario: Floodgate's stale cache: 10 samples of 1 ms, a look at the figures, then 190 samples of 20 s.
    /// Guarantees: every look shows all samples recorded before it. (There, P99 stayed at 1 ms.)
    #[test]
    fn percentiles_are_never_stale() {
        let tracker = Tracker::new(&settings());
        let mut now = SECOND;
        for _ in 0..10 {
            tracker.record(now, MILLISECOND);
        }
        assert!(near(tracker.stats(now).p99, MILLISECOND));
        for slow in 1..=190_u64 {
            now += MILLISECOND;
            tracker.record(now, 20 * SECOND);
            let stats = tracker.stats(now);
            assert!(near(stats.p99, 20 * SECOND), "after {slow}: {stats:?}");
            assert_eq!(
                near(stats.p50, 20 * SECOND),
                slow >= 10,
                "after {slow}: {stats:?}"
            );
        }
    }

    /// Scenario: a constant latency; one that grows by 1 ms a sample.
    /// Guarantees: the average is the constant, exactly; slope and drift are those of a straight line.
    #[test]
    fn average_slope_and_drift() {
        let tracker = Tracker::new(&settings());
        for n in 0..100 {
            tracker.record(SECOND + n * MILLISECOND, 100 * MILLISECOND);
        }
        let stats = tracker.trend(2 * SECOND);
        assert_eq!((stats.ema, stats.slope, stats.drift), (100 * MILLISECOND, 0, 0));
        for n in 0..200 {
            tracker.record(2 * SECOND + n * MILLISECOND, (100 + n) * MILLISECOND);
        }
        let stats = tracker.trend(3 * SECOND);
        assert!((stats.slope - 1_000_000).abs() < 10_000, "{stats:?}");
        // The halves of 16 averages are 8 samples apart.
        assert!((stats.drift - 8_000_000).abs() < 80_000, "{stats:?}");
        assert!((0.02..0.05).contains(&stats.relative_drift()), "{stats:?}");
    }

    /// Scenario: three samples; samples of 25 minutes; a half-life of zero; an alpha of 0 and of 1.
    /// Guarantees: no trend of too few samples; the longest latency is a ceiling; settings out of range are put in.
    #[test]
    fn bounds() {
        let tracker = Tracker::new(&settings());
        for latency in [1, 2, 3] {
            tracker.record(SECOND, latency * MILLISECOND);
        }
        assert_eq!(tracker.trend(SECOND).slope, 0);
        let tracker = Tracker::new(&TrackerSettings {
            alpha: 1.0,
            half_life: Duration::ZERO,
            ..settings()
        });
        tracker.record(SECOND, 1);
        tracker.record(SECOND, 1_500 * SECOND);
        assert_eq!(tracker.trend(SECOND).ema, MAX_LATENCY);
        let tracker = Tracker::new(&TrackerSettings {
            alpha: 0.0,
            ..settings()
        });
        tracker.record(SECOND, 0);
        tracker.record(SECOND, 1_024 * MILLISECOND);
        assert_eq!(tracker.trend(SECOND).ema, MILLISECOND);
    }

    /// Scenario: a busy method becomes fast, and only one request a second passes to show it.
    /// Guarantees: the average follows time, not the number of samples: it is below a tenth after 30 s, where
    /// 30 samples at the fixed weight of 0.02 would have left more than half.
    #[test]
    fn a_trickle_moves_the_average() {
        let tracker = Tracker::new(&TrackerSettings {
            alpha: 0.02,
            ..settings()
        });
        let mut now = SECOND;
        for _ in 0..10_000 {
            now += MILLISECOND / 10;
            tracker.record(now, 10 * SECOND);
        }
        for _ in 0..30 {
            now += SECOND;
            tracker.record(now, MILLISECOND);
        }
        assert!(tracker.trend(now).ema < SECOND, "{:?}", tracker.trend(now));
    }

    /// Scenario: samples, then 28 half-lives of silence; samples, then a restart.
    /// Guarantees: both leave nothing of them, and the tracker goes on with what comes next.
    #[test]
    fn silence_and_restart_forget() {
        let tracker = Tracker::new(&settings());
        for _ in 0..100 {
            tracker.record(SECOND, 5 * SECOND);
        }
        assert!(tracker.stats(60 * SECOND).p99 > 0);
        let later = 300 * SECOND;
        assert_eq!(tracker.stats(later), Stats::default());
        for _ in 0..100 {
            tracker.record(later, 5 * SECOND);
        }
        tracker.restart();
        assert_eq!(tracker.stats(later), Stats::default());
        tracker.record(later, MILLISECOND);
        let stats = tracker.stats(later);
        assert_eq!(stats.ema, MILLISECOND);
        assert!(
            near(stats.p99, MILLISECOND) && (stats.weight - 1.0).abs() < 1e-9,
            "{stats:?}"
        );
    }

    /// Scenario: a sample in each of 10,000 epochs, each time from another octave: tags come round twice.
    /// Guarantees: the median is among the last few samples, always.
    #[test]
    fn tags_come_round() {
        let tracker = Tracker::new(&TrackerSettings {
            half_life: Duration::from_millis(1),
            ..settings()
        });
        for epoch in 1..10_000_u64 {
            let latency = |epoch: u64| 1 << (10 + epoch % 25);
            let now = epoch << 20;
            tracker.record(now, latency(epoch));
            let median = tracker.stats(now).p50;
            let mut last_three = (epoch.saturating_sub(2)..=epoch).map(latency);
            assert!(
                last_three.any(|latency| near(median, latency)),
                "epoch {epoch}: {median}"
            );
        }
    }

    /// Scenario: more samples than the sequence can count.
    /// Guarantees: the trend goes on as if nothing had happened.
    #[test]
    fn the_sequence_comes_round() {
        let tracker = Tracker::new(&TrackerSettings {
            percentiles: None,
            ..settings()
        });
        tracker.record(SECOND, MILLISECOND);
        tracker.head.store(
            MILLISECOND << SEQUENCE_BITS | (SEQUENCE_MASK - 5),
            Ordering::Relaxed,
        );
        for n in 0..100 {
            tracker.record(SECOND, MILLISECOND);
            let stats = tracker.trend(SECOND);
            assert_eq!(stats.ema, MILLISECOND, "{n}");
            assert!(n < 32 || stats.slope.abs() < 64, "{n}: {stats:?}");
        }
    }

    /// Scenario: four threads record a million samples each; nothing else happens.
    /// Guarantees: the weight is that of all of them, within the 2% that full buckets allow.
    #[test]
    fn concurrent_samples_all_count() {
        let tracker = Tracker::new(&settings());
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let tracker = &tracker;
                scope.spawn(move || {
                    for n in 0..250_000_u64 {
                        tracker.record(SECOND, (1 + (n * 7 + thread) % 997) * 10_000);
                    }
                });
            }
        });
        let stats = tracker.stats(SECOND);
        assert!((stats.weight / 1e6 - 1.0).abs() < 0.02, "{stats:?}");
        assert!(near(stats.p99, 9_880_000), "{stats:?}");
    }
}
