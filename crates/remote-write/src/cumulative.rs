//! Delta to cumulative, between the mapping and the bodies: each series keeps its total.
//!
//! Everything that a point of delta temporality becomes is a series of floats that add up: a sum, or the buckets, the count and
//! the sum of a histogram. So it is done series by series, whatever the metric was.

use std::collections::HashMap;

use crate::hash;
use crate::labels::SeriesLabels;
use crate::transcode::{About, STALE_NAN, Sample, Sink, Value};

/// A series that has had no point for so long gives up its place to one that needs it: the Collector's `max_stale`.
const STALE_AFTER_MS: i64 = 300_000;

/// The totals of the series that have come as deltas.
#[derive(Debug)]
pub(crate) struct Cumulative {
    totals: HashMap<Key, Total>,
    max_series: usize,
    /// What keeps senders from making series that have the same key.
    seed: u64,
    /// Whether places were looked for in this request already.
    swept: bool,
    /// Series of the point being written that were kept, and those that were not, by why.
    kept: u64,
    refused: [u64; 2],
    dropped_points: [u64; 2],
}

/// Which series: two hashes of its labels that know nothing of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key(u64, u64);

#[derive(Debug)]
struct Total {
    value: f64,
    start_ms: i64,
    last_ms: i64,
}

/// Indexes of what is counted.
const OUT_OF_ORDER: usize = 0;
const NO_ROOM: usize = 1;

impl Cumulative {
    /// Keeps at most `max_series` totals; without any, no point of delta temporality gets here.
    pub fn new(max_series: usize) -> Self {
        let random = std::hash::RandomState::new();
        Self {
            totals: HashMap::new(),
            max_series,
            seed: std::hash::BuildHasher::hash_one(&random, max_series),
            swept: false,
            kept: 0,
            refused: [0; 2],
            dropped_points: [0; 2],
        }
    }

    /// Ends a request: data points of it that are not after the last one of their series, and those there was no room for.
    pub fn take_dropped_points(&mut self) -> [u64; 2] {
        self.swept = false;
        std::mem::take(&mut self.dropped_points)
    }

    /// `sink`, with the totals before it.
    pub fn before<'s, S>(&'s mut self, sink: &'s mut S) -> Before<'s, S> {
        Before { totals: self, sink }
    }

    fn key(&self, labels: &SeriesLabels<'_>) -> Key {
        let mut second = self.seed;
        labels.each(|name, value| {
            second = hash::hash(value.as_bytes(), hash::hash(name.as_bytes(), second));
        });
        Key(labels.hash(), second)
    }

    /// The total with `delta` in it, and since when; or what it is counted as.
    fn add(&mut self, key: Key, delta: f64, sample: &Sample<'_>) -> Result<(f64, i64), usize> {
        if let Some(total) = self.totals.get_mut(&key) {
            if sample.timestamp_ms <= total.last_ms {
                return Err(OUT_OF_ORDER);
            }
            total.value += delta;
            total.last_ms = sample.timestamp_ms;
            return Ok((total.value, total.start_ms));
        }
        if self.totals.len() >= self.max_series && !std::mem::replace(&mut self.swept, true) {
            let stale_before = sample.timestamp_ms.saturating_sub(STALE_AFTER_MS);
            self.totals.retain(|_, total| total.last_ms >= stale_before);
        }
        if self.totals.len() >= self.max_series {
            return Err(NO_ROOM);
        }
        let total = Total {
            value: delta,
            start_ms: sample.start_ms,
            last_ms: sample.timestamp_ms,
        };
        self.totals.insert(key, total);
        Ok((delta, sample.start_ms))
    }
}

/// A sink with totals before it.
pub(crate) struct Before<'s, S> {
    totals: &'s mut Cumulative,
    sink: &'s mut S,
}

impl<S: Sink> Sink for Before<'_, S> {
    #[inline]
    fn sample(&mut self, labels: &SeriesLabels<'_>, sample: &Sample<'_>, about: &About<'_>) {
        let Value::Float(delta) = sample.value else {
            return self.sink.sample(labels, sample, about);
        };
        if !sample.is_delta {
            return self.sink.sample(labels, sample, about);
        }
        let key = self.totals.key(labels);
        if delta.to_bits() == STALE_NAN {
            self.totals.totals.remove(&key);
            self.totals.kept += 1;
            return self.sink.sample(labels, sample, about);
        }
        match self.totals.add(key, delta, sample) {
            Ok((value, start_ms)) => {
                self.totals.kept += 1;
                let sample = Sample {
                    value: Value::Float(value),
                    start_ms,
                    ..*sample
                };
                self.sink.sample(labels, &sample, about);
            }
            Err(why) => self.totals.refused[why] += 1,
        }
    }

    fn metric(&mut self, about: &About<'_>) {
        self.sink.metric(about);
    }

    fn point(&mut self) {
        let totals = &mut *self.totals;
        let refused = std::mem::take(&mut totals.refused);
        if std::mem::take(&mut totals.kept) == 0
            && let Some(why) = refused.iter().position(|series| *series > 0)
        {
            // Nothing of it is written: the sink is not told that there was a point.
            totals.dropped_points[why] += 1;
            return;
        }
        self.sink.point();
    }
}
