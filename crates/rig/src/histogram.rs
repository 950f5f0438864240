//! A latency histogram with log buckets: constant size, any range, quantiles within 0.8%.
//!
//! Values below 128 have a bucket each. Above, every power of two is divided into 64 buckets, so that a
//! bucket is at most 1/64 of its values wide; a quantile is reported as the middle of its bucket.

use serde::{Deserialize, Serialize};

/// Buckets for each power of two, as a power of two.
const SUB_BITS: u32 = 6;
const SUB: usize = 1 << SUB_BITS;
/// Values up to here are exact.
const EXACT: u64 = 2 << SUB_BITS;
/// Powers of two above [`EXACT`], up to the largest u64.
const POWERS: usize = 64 - (SUB_BITS as usize + 1);
const BUCKETS: usize = EXACT as usize + POWERS * SUB;

/// Counts of values; here microseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum: u128,
    max: u64,
}

/// What people want to know of a histogram, in its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Half of the values are not above it.
    pub p50: u64,
    /// 90% of the values are not above it.
    pub p90: u64,
    /// 95% of the values are not above it.
    #[serde(default)]
    pub p95: u64,
    /// 99% of the values are not above it.
    pub p99: u64,
    /// 99.9% of the values are not above it.
    pub p999: u64,
    /// The largest value, exactly.
    pub max: u64,
    /// The mean, exactly.
    pub mean: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            counts: vec![0; BUCKETS],
            total: 0,
            sum: 0,
            max: 0,
        }
    }
}

fn bucket(value: u64) -> usize {
    if value < EXACT {
        return value as usize;
    }
    let power = value.ilog2() - SUB_BITS;
    // The highest bit is always set; the next SUB_BITS choose the bucket.
    let sub = (value >> power) as usize - SUB;
    EXACT as usize + (power as usize - 1) * SUB + sub
}

/// The middle of a bucket.
fn middle(bucket: usize) -> u64 {
    let Some(above) = bucket.checked_sub(EXACT as usize) else {
        return bucket as u64;
    };
    let power = above / SUB + 1;
    let low = ((above % SUB + SUB) as u64) << power;
    low + (1 << (power - 1))
}

impl Histogram {
    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        if let Some(count) = self.counts.get_mut(bucket(value)) {
            *count += 1;
        }
        self.total += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// Adds all values of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The smallest value that at least this share (0 to 1) of all values does not exceed; 0 if there is
    /// none.
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = ((self.total as f64 * share).ceil() as u64).clamp(1, self.total.max(1));
        if rank >= self.total {
            return self.max;
        }
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return middle(at).min(self.max);
            }
        }
        0
    }

    /// The middle of each bucket that has values, and how many, from the least on.
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(at, count)| (middle(at), *count)).collect()
    }

    /// The usual quantiles.
    pub fn quantiles(&self) -> Quantiles {
        Quantiles {
            p50: self.quantile(0.5),
            p90: self.quantile(0.9),
            p95: self.quantile(0.95),
            p99: self.quantile(0.99),
            p999: self.quantile(0.999),
            max: self.max,
            mean: self.sum as f64 / self.total.max(1) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: 200,000 values over nine orders of magnitude, beside their exact sort.
    /// Guarantees: every quantile is within 0.8% of the exact one; maximum and count are exact.
    #[test]
    fn quantiles_are_within_a_bucket() {
        let (mut histogram, mut exact) = (Histogram::default(), Vec::new());
        let mut state = 1_u64;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let value = (state >> 20) >> (state % 40);
            histogram.record(value);
            exact.push(value);
        }
        exact.sort_unstable();
        for share in [0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999] {
            let wanted = exact[((exact.len() as f64 * share).ceil() as usize).max(1) - 1] as f64;
            let got = histogram.quantile(share) as f64;
            assert!(
                (got - wanted).abs() <= wanted * 0.008,
                "{share}: {got} instead of {wanted}"
            );
        }
        assert_eq!(histogram.quantile(1.0), *exact.last().unwrap());
        assert_eq!(histogram.count(), 200_000);
    }

    /// Scenario: buckets around every power of two, and the smallest and largest values.
    /// Guarantees: buckets follow each other without gap or overlap, and each value's bucket has it within
    /// 1/64.
    #[test]
    fn buckets_cover_everything() {
        let mut last = 0;
        for power in 0..64 {
            for value in [(1_u64 << power).saturating_sub(1), 1 << power, (1 << power) + 1] {
                let at = bucket(value);
                assert!(at < BUCKETS);
                assert!(at >= last, "{value} is in bucket {at}, below {last}");
                assert!(at <= last + SUB + 1);
                last = at;
                assert!(
                    middle(at).abs_diff(value) <= value / 64,
                    "{value}: {}",
                    middle(at)
                );
            }
            last = bucket(1 << power);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(Histogram::default().quantiles(), Quantiles::default());
    }

    /// Scenario: two histograms are merged.
    /// Guarantees: the result is that of one histogram of all values.
    #[test]
    fn merging_adds() {
        let (mut low, mut high, mut both) =
            (Histogram::default(), Histogram::default(), Histogram::default());
        for value in 0..1000 {
            low.record(value);
            both.record(value);
            high.record(value * 1000);
            both.record(value * 1000);
        }
        assert_eq!(low.buckets()[..3], [(0, 1), (1, 1), (2, 1)]);
        low.merge(&high);
        assert_eq!(low.buckets().iter().map(|(_, count)| count).sum::<u64>(), 2000);
        assert_eq!(low.quantiles(), both.quantiles());
        assert_eq!(low.count(), 2000);
    }
}
