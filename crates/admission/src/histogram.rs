//! Latency percentiles that forget: a log-bucket histogram whose counters scale themselves.
//!
//! Each octave has [`STEPS`] buckets of equal width, so that a bucket's middle is within 1.8% of every value
//! in it. Four neighbouring buckets share a word, and seven words and one for their sum make an octave, which is
//! one cache line:
//!
//! ```text
//! 63      52 51      39 38      26 25      13 12       0
//! +---------+----------+----------+----------+----------+
//! |   tag   |  count 3 |  count 2 |  count 1 |  count 0 |   x 7: the buckets
//! +---------+----------+----------+----------+----------+
//! |   tag   |                   count                   |   x 1: their sum, so that a reader can skip them
//! +---------+-------------------------------------------+
//! ```
//!
//! Time is cut into epochs of one half-life. A count `c` in a word with tag `t` weighs `c * 2^t`; a sample that
//! arrives in epoch `e` weighs `2^e`, so it adds `2^(e-t)` to its count. That is exponential decay looked at
//! forwards: old samples keep their weight and new ones weigh ever more, and a quantile sees only the ratio.
//! Nothing has to be done as time passes, and a reader sees each sample as soon as it is recorded.
//!
//! A word is rescaled when it needs it, in the same compare-and-swap that adds the sample: so every word is right
//! by itself, there is no moment at which half of a histogram is decayed and the other half is not, nobody waits
//! for anybody, and no sample is lost to an overflow. When a bucket's count would overflow, its word's counts are
//! halved and the tag grows. A tag ahead of the epoch means that a sample is worth less than one count: then one
//! sample in `2^(t-e)` is taken, by chance. Only buckets with thousands of samples in a half-life come to that,
//! and there the error is far below what the buckets' width allows. Sums never come to it.

use crate::sync::{AtomicU64, Ordering};

/// Buckets an octave: the widest is 1/28 = 3.6% of its lower bound, so its middle is within 1.8% of its ends.
const STEPS: u64 = 28;
/// Buckets in a word.
const LANES: usize = 4;
/// Words of buckets in an octave.
const WORDS: usize = STEPS as usize / LANES;
const LANE_BITS: u32 = 13;
const LANE_MAX: u64 = (1 << LANE_BITS) - 1;
const TAG_SHIFT: u32 = LANES as u32 * LANE_BITS;
const TAG_BITS: u32 = 64 - TAG_SHIFT;
const TAGS: u64 = 1 << TAG_BITS;
const TAG_MASK: u64 = TAGS - 1;
const COUNTS: u64 = (1 << TAG_SHIFT) - 1;
/// The lowest bit of every lane.
const ONES: u64 = 1 | 1 << LANE_BITS | 1 << (2 * LANE_BITS) | 1 << (3 * LANE_BITS);
/// Every lane with its highest bit clear: what is left of counts shifted down by one.
const HALVES: u64 = ONES * (LANE_MAX >> 1);
/// Lanes 0 and 2.
const EVEN: u64 = LANE_MAX | LANE_MAX << (2 * LANE_BITS);
/// The lower two lanes, with what they overflow by.
const PAIR: u64 = (1 << (2 * LANE_BITS)) - 1;

/// The first sample in a word counts as 2^8, so that it loses nothing in the next eight halvings.
const FRESH_SHIFT: u64 = 8;
/// A sample that would count more than 2^12 rescales its bucket's word first: a count holds two such.
const MAX_SHIFT: u64 = 12;
/// The same of a sum, which has room for 2^32 of them.
const MAX_SUM_SHIFT: u64 = 20;
/// A tag is at most this far ahead of the epoch: one sample in 4096 is taken then, which is above ten million
/// samples a second in one word at the default half-life. Beyond, counts stay where they are.
const MAX_AHEAD: u64 = 12;
/// A word whose tag is this many epochs old counts for nothing: its fullest count weighs a 2^15th of a sample
/// then. The tag of a sample in an empty word is eight epochs older than the sample: it is forgotten after 20.
pub(crate) const FORGOTTEN_AFTER: u64 = 28;
/// Readers weigh a sample of the present epoch as 2^20.
const UNIT_BITS: u64 = FORGOTTEN_AFTER - FRESH_SHIFT;

/// The most octaves a histogram can have (a factor of 4e9); more would leave half of them unused in practice.
const MAX_OCTAVES: u32 = 32;

/// Percentiles of what was recorded, in nanoseconds, and the weight behind them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Quantiles {
    /// Samples, each halved for every half-life since.
    pub weight: f64,
    pub p50: u64,
    pub p95: u64,
    pub p99: u64,
}

/// A histogram of nanoseconds. Every operation is lock-free and allocates nothing.
#[derive(Debug)]
pub(crate) struct Histogram {
    octaves: Box<[Octave]>,
    /// Which of `octaves` hold samples, so that a reader looks at no others.
    occupied: AtomicU64,
    first_octave: u32,
}

#[derive(Debug)]
#[repr(align(64))]
struct Octave {
    sum: AtomicU64,
    counts: [AtomicU64; WORDS],
}

impl Octave {
    fn new() -> Self {
        Self {
            sum: AtomicU64::new(0),
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Histogram {
    /// Buckets for `min_nanos..=max_nanos`, in whole octaves; what lies outside counts as the nearest bucket.
    pub(crate) fn new(min_nanos: u64, max_nanos: u64) -> Self {
        let (first_octave, octaves) = octaves(min_nanos, max_nanos);
        Self {
            octaves: (0..octaves).map(|_| Octave::new()).collect(),
            occupied: AtomicU64::new(0),
            first_octave,
        }
    }

    /// A histogram that records nothing and takes no memory beyond its own size.
    pub(crate) fn none() -> Self {
        Self {
            octaves: Box::default(),
            occupied: AtomicU64::new(0),
            first_octave: 0,
        }
    }

    /// Bytes on the heap of a histogram for this range.
    pub(crate) const fn heap_bytes(min_nanos: u64, max_nanos: u64) -> usize {
        octaves(min_nanos, max_nanos).1 as usize * size_of::<Octave>()
    }

    pub(crate) fn is_none(&self) -> bool {
        self.octaves.is_empty()
    }

    /// Counts `nanos` in `epoch`. `seed` should differ from one sample to the next.
    #[inline]
    pub(crate) fn record(&self, epoch: u64, nanos: u64, seed: u64) {
        let (octave_index, step) = self.bucket(nanos);
        let Some(octave) = self.octaves.get(octave_index) else {
            return;
        };
        let lane = (step % LANES) as u32;
        update(&octave.counts[step / LANES % WORDS], |word| {
            add(word, lane, epoch, seed)
        });
        let before = update(&octave.sum, |sum| add_to_sum(sum, epoch));
        if before & COUNTS == 0 {
            // Release, after the sum: whoever clears this bit later sees the sum and sets it again (`sweep`).
            self.occupied.fetch_or(1 << octave_index, Ordering::Release);
        }
    }

    /// Percentiles as of `epoch`: the value at index floor(n * q) of the sorted samples, within half a bucket.
    #[inline]
    pub(crate) fn quantiles(&self, epoch: u64) -> Quantiles {
        let occupied = self.occupied.load(Ordering::Relaxed);
        let (first, end) = (occupied.trailing_zeros(), u64::BITS - occupied.leading_zeros());
        let Some(octaves) = self.octaves.get(first as usize..end as usize) else {
            return Quantiles::default();
        };
        let mut weights = [0; MAX_OCTAVES as usize];
        let mut total = 0;
        for (octave, weight) in octaves.iter().zip(&mut weights) {
            // Acquire pairs with the Release in `record`: what is in the sum is in the buckets too.
            *weight = sum_weight(octave.sum.load(Ordering::Acquire), epoch);
            total += *weight;
        }
        if total == 0 {
            return Quantiles::default();
        }
        // From the top, where the 95th and 99th percentiles are, down the octaves, and down the words of those that hold one.
        let targets = [total.div_ceil(100), total.div_ceil(20), total.div_ceil(2)];
        let mut values = [0; 3];
        let mut number = octaves.len() - 1;
        let (mut above, mut words_left, mut above_word) = (0, WORDS, 0);
        for (value, target) in values.iter_mut().zip(targets) {
            while above + weights[number] < target && number > 0 {
                above += weights[number];
                number -= 1;
                (words_left, above_word) = (WORDS, above);
            }
            let octave = &octaves[number];
            let step = loop {
                let Some(index) = words_left.checked_sub(1) else {
                    // Buckets by chance weigh a little less than their sum.
                    break lowest(octave, epoch);
                };
                let word = octave.counts[index].load(Ordering::Relaxed);
                let reached = above_word + weight(word, epoch);
                if reached >= target {
                    break index * LANES + lane_reaching(word, epoch, target - above_word);
                }
                (words_left, above_word) = (index, reached);
            };
            *value = self.middle(first as usize + number, step);
        }
        Quantiles {
            weight: total as f64 / (1_u64 << UNIT_BITS) as f64,
            p50: values[2],
            p95: values[1],
            p99: values[0],
        }
    }

    /// Empties the words that count for nothing in `epoch`, so that a tag, which wraps after 4096 epochs, is never
    /// taken for a younger one. To be called in each epoch with samples, and for everything after a long silence.
    #[cold]
    pub(crate) fn sweep(&self, epoch: u64, everything: bool) {
        let mut left = self.occupied.load(Ordering::Relaxed);
        while left != 0 {
            let bit = left & left.wrapping_neg();
            left ^= bit;
            let Some(octave) = self.octaves.get(bit.trailing_zeros() as usize) else {
                continue;
            };
            let mut empty = true;
            for word in &octave.counts {
                empty &= clear(word, |word| everything || !is_alive(word, epoch));
            }
            let is_old = |sum| everything || sum_weight(sum, epoch) == 0;
            if !empty || !clear(&octave.sum, is_old) {
                continue;
            }
            // Acquire pairs with the Release in `record`: a sample that came since the sum was cleared is seen
            // below, or its recorder sets the bit after it was cleared here.
            self.occupied.fetch_and(!bit, Ordering::AcqRel);
            if octave.sum.load(Ordering::Relaxed) & COUNTS != 0 {
                self.occupied.fetch_or(bit, Ordering::Release);
            }
        }
    }

    #[inline]
    fn bucket(&self, nanos: u64) -> (usize, usize) {
        let floor = 1 << self.first_octave;
        let ceiling = u64::MAX >> (64 - self.first_octave - self.octaves.len() as u32);
        let value = nanos.clamp(floor, ceiling);
        let exponent = 63 - value.leading_zeros();
        let fraction = (value << (63 - exponent) << 1) >> 32;
        let step = (fraction * STEPS) >> 32;
        ((exponent - self.first_octave) as usize, step as usize)
    }

    /// The middle of a bucket, in nanoseconds.
    #[inline]
    fn middle(&self, octave: usize, step: usize) -> u64 {
        ((2 * STEPS + 1 + 2 * step as u64) << (self.first_octave as usize + octave)) / (2 * STEPS)
    }
}

/// The lowest bucket of an octave that holds anything.
#[cold]
fn lowest(octave: &Octave, epoch: u64) -> usize {
    let mut words = octave.counts.iter().map(|word| word.load(Ordering::Relaxed));
    match words.position(|word| weight(word, epoch) > 0) {
        Some(index) => {
            let word = octave.counts[index].load(Ordering::Relaxed);
            index * LANES + ((word & COUNTS).trailing_zeros() / LANE_BITS) as usize % LANES
        }
        None => STEPS as usize / 2,
    }
}

/// The highest lane that weighs, with those above it, at least `needed`. There are no branches to predict.
#[inline]
fn lane_reaching(word: u64, epoch: u64, needed: u64) -> usize {
    let scale = scale(word, epoch);
    let count = |lane: u32| word >> (lane * LANE_BITS) & LANE_MAX;
    let reaches = |counts: u64| usize::from((counts << scale) >> FRESH_SHIFT >= needed);
    let top = count(3);
    let top_two = top + count(2);
    let top_three = top_two + count(1);
    reaches(top) + reaches(top_two) + reaches(top_three)
}

/// The first octave and the number of octaves that cover a range.
const fn octaves(min_nanos: u64, max_nanos: u64) -> (u32, u32) {
    let first = if min_nanos == 0 { 0 } else { min_nanos.ilog2() };
    let last = if max_nanos < 2 { 0 } else { (max_nanos - 1).ilog2() };
    let wanted = if last < first { 1 } else { last - first + 1 };
    (first, if wanted > MAX_OCTAVES { MAX_OCTAVES } else { wanted })
}

/// Replaces a word by what `change` makes of it, unless that is no change; returns the word before.
#[inline]
fn update(word: &AtomicU64, change: impl Fn(u64) -> u64) -> u64 {
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        let next = change(seen);
        if next == seen {
            return seen;
        }
        match word.compare_exchange_weak(seen, next, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return seen,
            Err(now) => seen = now,
        }
    }
}

/// Empties a word if it is `old`; says whether it is empty now.
fn clear(word: &AtomicU64, old: impl Fn(u64) -> bool) -> bool {
    let seen = word.load(Ordering::Relaxed);
    seen == 0
        || (old(seen)
            && word
                .compare_exchange(seen, 0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok())
}

/// How far a word's tag is ahead of the epoch at which its counts stop counting, modulo 2^12.
#[inline]
fn scale(word: u64, epoch: u64) -> u64 {
    (word >> TAG_SHIFT)
        .wrapping_sub(epoch)
        .wrapping_add(FORGOTTEN_AFTER)
        & TAG_MASK
}

#[inline]
fn is_alive(word: u64, epoch: u64) -> bool {
    scale(word, epoch) <= FORGOTTEN_AFTER + MAX_AHEAD
}

/// What a word's counts weigh in `epoch`.
#[inline]
fn weight(word: u64, epoch: u64) -> u64 {
    let pairs = (word & EVEN) + (word >> LANE_BITS & EVEN);
    let sum = (pairs + (pairs >> (2 * LANE_BITS))) & PAIR;
    if is_alive(word, epoch) {
        (sum << scale(word, epoch)) >> FRESH_SHIFT
    } else {
        0
    }
}

/// What an octave's sum weighs in `epoch`.
#[inline]
fn sum_weight(sum: u64, epoch: u64) -> u64 {
    let shift = epoch.wrapping_sub(sum >> TAG_SHIFT).wrapping_sub(FRESH_SHIFT) & TAG_MASK;
    // Shifting the tag out scales by 2^12; together with the tag's age, a sample comes out as 2^20.
    if shift < 64 { (sum << TAG_BITS) >> shift } else { 0 }
}

/// An octave's sum with one more sample of `epoch`.
#[inline]
fn add_to_sum(sum: u64, epoch: u64) -> u64 {
    let age = epoch.wrapping_sub(sum >> TAG_SHIFT) & TAG_MASK;
    let count = sum & COUNTS;
    if (FRESH_SHIFT..=MAX_SUM_SHIFT).contains(&age) && count != 0 && count + (1 << age) <= COUNTS {
        sum + (1 << age)
    } else {
        add_to_sum_rescaled(count, age, epoch)
    }
}

#[cold]
fn add_to_sum_rescaled(count: u64, age: u64, epoch: u64) -> u64 {
    // A sample of a thread that is late by an epoch: no need to be exact.
    let age = if age > TAG_MASK - MAX_AHEAD { 0 } else { age };
    let tag = epoch.wrapping_sub(FRESH_SHIFT) & TAG_MASK;
    let kept = match age.checked_sub(FRESH_SHIFT) {
        Some(shift) => count.checked_shr(shift as u32).unwrap_or(0),
        None => count << (FRESH_SHIFT - age),
    };
    tag << TAG_SHIFT | (kept + (1 << FRESH_SHIFT)).min(COUNTS)
}

/// `word` with one more sample of `epoch` in `lane`; as it is if the sample is not taken.
#[inline]
fn add(word: u64, lane: u32, epoch: u64, seed: u64) -> u64 {
    let shift = lane * LANE_BITS;
    let age = epoch.wrapping_sub(word >> TAG_SHIFT) & TAG_MASK;
    // The tag of an empty word says nothing.
    let units = if word == 0 {
        0
    } else if age <= MAX_SHIFT {
        1 << age
    } else if age >= TAGS - MAX_AHEAD {
        // The tag is ahead of the epoch: one in so many is taken.
        if scramble(seed) & ((1 << (TAGS - age)) - 1) != 0 {
            return word;
        }
        1
    } else {
        0
    };
    if units == 0 || (word >> shift & LANE_MAX) + units > LANE_MAX {
        return add_rescaled(word, lane, epoch, scramble(seed));
    }
    word + (units << shift)
}

/// Spreads the bits of `seed` over all 64.
fn scramble(seed: u64) -> u64 {
    let mixed = (seed ^ (seed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    mixed ^ (mixed >> 32)
}

#[cold]
fn add_rescaled(word: u64, lane: u32, epoch: u64, noise: u64) -> u64 {
    let (mut tag, mut counts) = (word >> TAG_SHIFT, word & COUNTS);
    if counts == 0 || !is_alive(word, epoch) {
        (tag, counts) = (epoch.wrapping_sub(FRESH_SHIFT) & TAG_MASK, 0);
    }
    let age = epoch.wrapping_sub(tag) & TAG_MASK;
    if (MAX_SHIFT + 1..=TAG_MASK - MAX_AHEAD).contains(&age) {
        let shift = age - FRESH_SHIFT;
        let kept = LANE_MAX.checked_shr(shift as u32).unwrap_or(0);
        counts = counts.checked_shr(shift as u32).unwrap_or(0) & (ONES * kept);
        tag = epoch.wrapping_sub(FRESH_SHIFT) & TAG_MASK;
    }
    loop {
        // Negative when the tag is ahead of the epoch.
        let age = ((epoch.wrapping_sub(tag) << TAG_SHIFT) as i64) >> TAG_SHIFT;
        let units = if age >= 0 {
            1 << age
        } else if noise & ((1 << -age) - 1) == 0 {
            1
        } else {
            return word;
        };
        if (counts >> (lane * LANE_BITS) & LANE_MAX) + units <= LANE_MAX {
            return tag << TAG_SHIFT | (counts + (units << (lane * LANE_BITS)));
        }
        if -age >= MAX_AHEAD as i64 {
            return word;
        }
        // Odd counts are rounded up or down by chance, or the rare values beside a frequent one would fade.
        let rounding = counts & noise.rotate_right(20) & ONES;
        counts = (counts >> 1 & HALVES) + rounding;
        tag = (tag + 1) & TAG_MASK;
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Scenario: an octave holds only forgotten samples; one thread sweeps while another records into it.
    /// Guarantees: the new sample is seen, whatever the order: the octave is never left marked as empty.
    #[test]
    fn loom_a_sweep_loses_no_sample() {
        loom::model(|| {
            let histogram = Arc::new(Histogram::new(1 << 10, 1 << 11));
            histogram.record(10, 1_500, 0);
            let recorder = {
                let histogram = histogram.clone();
                thread::spawn(move || histogram.record(100, 1_500, 0))
            };
            histogram.sweep(100, false);
            recorder.join().unwrap();
            assert_eq!(histogram.quantiles(100).weight, 1.0);
        });
    }

    /// Scenario: two threads record into one bucket, one of them in the next epoch, while a third reads.
    /// Guarantees: the reader sees a value of theirs or nothing; in the end both samples count.
    #[test]
    fn loom_concurrent_samples_all_count() {
        loom::model(|| {
            let histogram = Arc::new(Histogram::new(1 << 10, 1 << 11));
            let threads = [10, 11].map(|epoch| {
                let histogram = histogram.clone();
                thread::spawn(move || histogram.record(epoch, 1_500, 0))
            });
            let seen = histogram.quantiles(11).p99;
            assert!(seen == 0 || seen.abs_diff(1_500) < 30, "{seen}");
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(histogram.quantiles(11).weight, 1.5);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: u64 = 1 << 10;
    const MAX: u64 = 1 << 37;

    /// Random numbers that are the same in every run.
    struct Random(u64);

    impl Random {
        fn bits(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        }

        fn uniform(&mut self) -> f64 {
            ((self.bits() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
        }

        /// Nanoseconds, log-normal around `median` with `sigma` in natural logarithms.
        fn log_normal(&mut self, median: f64, sigma: f64) -> u64 {
            let normal = (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos();
            (median * (sigma * normal).exp()) as u64
        }
    }

    fn off_by(got: u64, exact: u64) -> f64 {
        (got as f64 - exact as f64).abs() / exact as f64
    }

    #[track_caller]
    fn within(limit: f64, histogram: &Histogram, epoch: u64, samples: &mut [u64]) {
        samples.sort_unstable();
        let got = histogram.quantiles(epoch);
        for (name, value, share) in [("p50", got.p50, 50), ("p95", got.p95, 95), ("p99", got.p99, 99)] {
            let exact = samples[samples.len() * share / 100];
            assert!(
                off_by(value, exact) <= limit,
                "{name}: {value}, exactly {exact}, off by {}",
                off_by(value, exact)
            );
        }
    }

    /// Scenario: 1 to 10,000 samples of narrow, wide, bimodal and constant distributions in one epoch.
    /// Guarantees: p50, p95 and p99 are within 2% of the sorted samples at index floor(n * q).
    #[test]
    fn percentiles_agree_with_an_exact_sort() {
        let mut random = Random(7);
        for count in [1, 2, 10, 99, 100, 101, 1_000, 10_000] {
            for shape in 0..5 {
                let histogram = Histogram::new(MIN, MAX);
                let mut samples: Vec<u64> = (0..count)
                    .map(|n| match shape {
                        0 => random.log_normal(5e6, 0.1),
                        1 => random.log_normal(5e6, 1.0),
                        2 => random.log_normal(1e7, 2.0).clamp(MIN, MAX - 1),
                        3 if n % 20 == 0 => random.log_normal(3e9, 0.5).min(MAX - 1),
                        3 => 120_000,
                        _ => 100_000_000,
                    })
                    .collect();
                for sample in &samples {
                    histogram.record(40, *sample, random.bits());
                }
                within(0.02, &histogram, 40, &mut samples);
            }
        }
    }

    /// Scenario: two million samples in one epoch, half of them in one bucket, so that counts are halved many
    /// times and most samples of that bucket are taken by chance.
    /// Guarantees: percentiles stay within 2%, and the weight within 2% of the number of samples.
    #[test]
    fn full_buckets_scale_without_bias() {
        let mut random = Random(11);
        let histogram = Histogram::new(MIN, MAX);
        let mut samples: Vec<u64> = (0..2_000_000)
            .map(|n| {
                if n % 2 == 0 {
                    250_000
                } else {
                    random.log_normal(4e6, 0.7)
                }
            })
            .collect();
        for sample in &samples {
            histogram.record(40, *sample, random.bits());
        }
        // The median lies between the two halves: any value between them is right.
        samples.retain(|sample| *sample != 250_000);
        samples.sort_unstable();
        let got = histogram.quantiles(40);
        assert!(off_by(got.p95, samples[900_000]) < 0.02, "{got:?}");
        assert!(off_by(got.p99, samples[980_000]) < 0.02, "{got:?}");
        assert!((got.weight / 2e6 - 1.0).abs() < 0.02, "{got:?}");
    }

    /// Scenario: every epoch the same number of samples, slow ones until an epoch, fast ones after it.
    /// Guarantees: old samples weigh half for every epoch since: with n fast epochs behind it the slow part is
    /// 2^-n of all, so p95 is slow four epochs after the change and fast five epochs after it.
    #[test]
    fn old_samples_lose_half_of_their_weight_each_epoch() {
        let histogram = Histogram::new(MIN, MAX);
        let mut random = Random(3);
        for epoch in 0..60 {
            let latency = if epoch < 50 { 1_000_000_000 } else { 1_000_000 };
            for _ in 0..1_000 {
                histogram.record(epoch, latency, random.bits());
            }
            let p95 = histogram.quantiles(epoch).p95;
            // After epoch 50 + n, the share of the slow is 2^-(n+1).
            assert_eq!(p95 > 500_000_000, epoch < 54, "epoch {epoch}: {p95}");
        }
        let weight = histogram.quantiles(59).weight;
        assert!((weight / 2_000.0 - 1.0).abs() < 0.02, "{weight}");
    }

    /// Scenario: a sample, and nothing for 21 epochs; a sample, a sweep, and 4096 epochs.
    /// Guarantees: the forgotten count for nothing, also when tags have come round once.
    #[test]
    fn the_forgotten_do_not_come_back() {
        let histogram = Histogram::new(MIN, MAX);
        histogram.record(100, 5_000_000, 0);
        assert!(histogram.quantiles(120).weight > 0.0);
        assert_eq!(histogram.quantiles(121), Quantiles::default());
        histogram.sweep(121, false);
        assert_eq!(histogram.quantiles(100 + 4096), Quantiles::default());
        histogram.record(181, 7_000_000, 0);
        assert!(off_by(histogram.quantiles(181).p50, 7_000_000) < 0.02);
    }

    /// Scenario: latencies below and above the range, at its ends, and zero.
    /// Guarantees: they count as the nearest bucket; nothing panics.
    #[test]
    fn latencies_out_of_range_count_at_its_ends() {
        for (latency, near) in [(0, MIN), (MIN, MIN), (MAX - 1, MAX), (u64::MAX, MAX)] {
            let histogram = Histogram::new(MIN, MAX);
            histogram.record(1, latency, 0);
            assert!(off_by(histogram.quantiles(1).p99, near) < 0.02, "{latency}");
        }
    }

    /// Scenario: every value where a bucket begins or ends, over the whole range.
    /// Guarantees: a bucket's middle is within 1.8% of each value in it.
    #[test]
    fn a_buckets_middle_is_near_all_of_it() {
        let histogram = Histogram::new(MIN, MAX);
        let mut worst: f64 = 0.0;
        for exponent in 10..37_u64 {
            for step in 0..=STEPS {
                let edge = ((STEPS + step) << exponent) / STEPS;
                for value in [edge - 1, edge, edge + 1] {
                    let value = value.clamp(MIN, MAX - 1);
                    let (octave, step) = histogram.bucket(value);
                    worst = worst.max(off_by(histogram.middle(octave, step), value));
                }
            }
        }
        assert!(worst < 0.0185, "{worst}");
    }

    /// Scenario: samples of random age and place into one word, against counts kept in floating point.
    /// Guarantees: each lane's weight is within 5% of the exact one: lanes do not spill into each other.
    #[test]
    fn a_word_agrees_with_exact_arithmetic() {
        let mut random = Random(5);
        for _ in 0..50 {
            let (mut word, mut exact, mut epoch) = (0, [0.0_f64; LANES], 1_u64);
            for _ in 0..random.bits() % 60_000 {
                if random.bits().is_multiple_of(4_000) {
                    epoch += random.bits() % 4;
                }
                let lane = (random.bits() % 7).min(3);
                word = add(word, lane as u32, epoch, random.bits());
                exact[lane as usize] += (epoch as f64).exp2();
            }
            for (lane, exact) in exact.iter().enumerate() {
                let count = (word >> (lane as u32 * LANE_BITS) & LANE_MAX) as f64;
                let tag = epoch as f64
                    - (epoch.wrapping_sub(word >> TAG_SHIFT) << TAG_SHIFT) as i64 as f64
                        / (1_u64 << TAG_SHIFT) as f64;
                let got = count * tag.exp2();
                let total = exact.max(1.0);
                assert!(
                    (got - exact).abs() / total < 0.05 || count < 400.0,
                    "{got} {exact}"
                );
            }
        }
    }
}
