//! Adding exponential histograms up.
//!
//! Two histograms are brought to one scale, the coarser of the two or one at which the sum has few enough buckets; the finer one's
//! buckets are merged by pairs, which is exact. Where they count different values as zero, the larger threshold holds, and buckets below it are
//! counted as zero in both.

use crate::transcode::{Buckets, Exponential, FINEST};

/// Buckets of one sign that a total has at most: what SDKs keep by default.
const MAX_BUCKETS: usize = 160;

/// Buckets of a scale of 0 that doubles fall into: their exponents, those of the smallest ones included.
const EXPONENTS: std::ops::Range<i64> = -1075..1025;

impl Exponential {
    /// Buckets of both signs.
    pub fn buckets(&self) -> usize {
        self.positive.counts.len() + self.negative.counts.len()
    }

    /// As it goes into a total: at a scale that native histograms have and with few enough buckets, without empty ones at the ends. `None`
    /// when it is not valid: its count is not that of its buckets, or there is something in a bucket that no double falls into.
    pub fn for_total(&self) -> Option<Self> {
        let values = [&self.positive, &self.negative]
            .into_iter()
            .flat_map(|buckets| &buckets.counts)
            .try_fold(self.zero_count, |sum, count| sum.checked_add(*count))?;
        // Native histograms count in signed numbers where they say how buckets differ.
        if values != self.count || i64::try_from(self.count).is_err() || self.zero_threshold == f64::INFINITY
        {
            return None;
        }
        let mut histogram = Self {
            zero_threshold: self.zero_threshold.max(0.0),
            positive: self.positive.trimmed(),
            negative: self.negative.trimmed(),
            ..*self
        };
        histogram.make_coarser(histogram.scale.saturating_sub(FINEST).max(0) as u32);
        let scale = histogram.scale;
        let possible = match u32::try_from(scale) {
            Ok(finer) => EXPONENTS.start << finer..EXPONENTS.end << finer,
            Err(_) => EXPONENTS.start >> scale.unsigned_abs()..(EXPONENTS.end >> scale.unsigned_abs()) + 1,
        };
        let is_possible = |buckets: &Buckets| {
            buckets.range().is_empty()
                || possible.contains(&buckets.range().start) && buckets.range().end <= possible.end
        };
        if !is_possible(&histogram.positive) || !is_possible(&histogram.negative) {
            return None;
        }
        histogram.make_fit(&Self::default());
        Some(histogram)
    }

    /// The two together, which are both as [`for_total`](Self::for_total) makes them; `None` when they are too many to be counted,
    /// or their sum is no finite number.
    pub fn plus(&self, other: &Self) -> Option<Self> {
        let count = self.count.checked_add(other.count)?;
        i64::try_from(count).ok()?;
        let sum = Some(self.sum + other.sum).filter(|sum| sum.is_finite())?;
        let (mut one, mut two) = (self.clone(), other.clone());
        let scale = one.scale.min(two.scale);
        one.make_coarser((one.scale - scale) as u32);
        two.make_coarser((two.scale - scale) as u32);
        if one.zero_threshold != two.zero_threshold {
            let threshold = one.zero_threshold.max(two.zero_threshold);
            let threshold = one.widen_zero(threshold);
            let threshold = two.widen_zero(threshold);
            one.widen_zero(threshold);
        }
        let levels = one.make_fit(&two);
        two.make_coarser(levels);
        one.positive.add(&two.positive);
        one.negative.add(&two.negative);
        one.count = count;
        one.zero_count += two.zero_count;
        one.sum = sum;
        one.positive.counts.shrink_to_fit();
        one.negative.counts.shrink_to_fit();
        Some(one)
    }

    /// Merges `2^levels` buckets into one.
    fn make_coarser(&mut self, levels: u32) {
        if levels > 0 {
            self.positive.make_coarser(levels);
            self.negative.make_coarser(levels);
            self.scale = self
                .scale
                .saturating_sub(i32::try_from(levels).unwrap_or(i32::MAX));
        }
    }

    /// Makes it so coarse that it has few enough buckets with those of `other`, which has its scale; by how many levels.
    fn make_fit(&mut self, other: &Self) -> u32 {
        let both = |one: &Buckets, two: &Buckets| {
            let (one, two) = (one.range(), two.range());
            match (one.is_empty(), two.is_empty()) {
                (_, true) => one,
                (true, false) => two,
                _ => one.start.min(two.start)..one.end.max(two.end),
            }
        };
        let ranges = [
            both(&self.positive, &other.positive),
            both(&self.negative, &other.negative),
        ];
        let fits = |levels: &u32| {
            ranges.iter().all(|range| {
                range.is_empty() || ((range.end - 1) >> levels) - (range.start >> levels) < MAX_BUCKETS as i64
            })
        };
        // Of 32 bits nothing is left.
        let levels = (0..33).find(fits).unwrap_or(33);
        self.make_coarser(levels);
        levels
    }

    /// Counts as zero what is in buckets that begin below `threshold`; returns the threshold, which is the end of the last of them where that is more.
    fn widen_zero(&mut self, mut threshold: f64) -> f64 {
        let bound = |index: i64| (index as f64 * (-f64::from(self.scale)).exp2()).exp2();
        for buckets in [&mut self.positive, &mut self.negative] {
            let mut below = 0;
            for (index, count) in (i64::from(buckets.offset)..).zip(&buckets.counts) {
                if bound(index) >= threshold {
                    break;
                }
                below += 1;
                if *count > 0 {
                    self.zero_count += count;
                    threshold = threshold.max(bound(index + 1));
                }
            }
            buckets.counts.drain(..below);
            buckets.offset = buckets.offset.saturating_add(below as i32);
        }
        self.zero_threshold = threshold;
        threshold
    }
}

impl Buckets {
    /// The indexes it has.
    fn range(&self) -> std::ops::Range<i64> {
        let start = i64::from(self.offset);
        start..start + self.counts.len() as i64
    }

    /// Without empty ones at the ends.
    fn trimmed(&self) -> Self {
        let is_counted = |count: &u64| *count > 0;
        let Some(first) = self.counts.iter().position(is_counted) else {
            return Self::default();
        };
        let end = self
            .counts
            .iter()
            .rposition(is_counted)
            .map_or(first, |last| last + 1);
        let Some(offset) = i64::from(self.offset)
            .checked_add(first as i64)
            .and_then(|offset| i32::try_from(offset).ok())
        else {
            // Beyond what can be said; kept as it is, it is not possible.
            return self.clone();
        };
        Self {
            offset,
            counts: self.counts[first..end].to_vec(),
        }
    }

    fn make_coarser(&mut self, levels: u32) {
        let levels = levels.min(63);
        let (from, to) = (self.range(), self.range().start >> levels);
        let mut merged: Vec<u64> = Vec::new();
        for (index, count) in from.zip(&self.counts) {
            let at = ((index >> levels) - to) as usize;
            if merged.len() <= at {
                merged.push(0);
            }
            merged[at] += count;
        }
        self.counts = merged;
        self.offset = to as i32;
    }

    /// Adds those of the same scale.
    fn add(&mut self, other: &Self) {
        if other.counts.is_empty() {
            return;
        }
        if self.counts.is_empty() {
            return self.clone_from(other);
        }
        let (here, there) = (self.range(), other.range());
        let start = here.start.min(there.start);
        let end = here.end.max(there.end);
        let before = (here.start - start) as usize;
        drop(self.counts.splice(..0, std::iter::repeat_n(0, before)));
        self.counts.resize((end - start) as usize, 0);
        self.offset = start as i32;
        for (index, count) in there.zip(&other.counts) {
            self.counts[(index - start) as usize] += count;
        }
    }
}

#[cfg(test)]
mod tests;
