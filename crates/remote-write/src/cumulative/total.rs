//! The total of a series, and what points make of it.

use std::sync::Arc;

use crate::transcode::Exponential;

/// What one place is counted as when totals take their places: a total of a number with its key, and the table's own bytes.
const PLACE_BYTES: usize = 64;

/// Which series: two hashes of its labels that know nothing of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key(pub u64, pub u64);

/// What has come of a series since its start.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Total {
    pub amount: Amount,
    pub start_ms: i64,
    /// The time of the last point in it.
    pub last_ms: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Amount {
    Float(f64),
    Histogram(Arc<Exponential>),
}

impl Total {
    /// Places it takes.
    pub fn places(&self) -> usize {
        match &self.amount {
            Amount::Float(_) => 1,
            Amount::Histogram(histogram) => 2 + (8 * histogram.buckets()).div_ceil(PLACE_BYTES),
        }
    }

    /// Memory that keeping it and its key takes.
    pub fn bytes(&self) -> usize {
        size_of::<Change>() + PLACE_BYTES * (self.places() - 1)
    }
}

/// What a point has made of its series.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    /// This is the total now; its last point is this one.
    Added(Key, Total),
    /// The series has ended at this time.
    Ended(Key, i64),
}

impl Change {
    /// Memory that keeping it takes.
    pub fn bytes(&self) -> usize {
        match self {
            Change::Added(_, total) => total.bytes(),
            Change::Ended(..) => size_of::<Self>(),
        }
    }
}
