//! What the points of a request have made of their series.

use std::collections::HashMap;

use super::total::{Change, Key};

/// From so much on only the last total of each series is kept, and written: a point of 60 bytes may leave a total of 2.7 KB. It is what some
/// 250,000 numbers take. What is left out is in the totals; when it comes again it is dropped as out of order.
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// The changes of a request, in their order.
#[derive(Debug, Default)]
pub(super) struct Changes {
    all: Vec<Change>,
    bytes: usize,
    /// Bytes that were left when the last total of each series was.
    least_bytes: usize,
}

impl Changes {
    #[inline]
    pub fn add(&mut self, change: Change) {
        self.bytes += change.bytes();
        self.all.push(change);
        // Many series may need more: it has to double, or every change would look at all.
        if self.bytes > MAX_BYTES.max(2 * self.least_bytes) {
            self.keep_last();
        }
    }

    pub fn all(&self) -> &[Change] {
        &self.all
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All of them; none are left.
    pub fn take(&mut self) -> Vec<Change> {
        std::mem::take(self).all
    }

    #[cold]
    fn keep_last(&mut self) {
        // By time: a point that came again may follow later ones of its series.
        let at = |change: &Change| match change {
            Change::Added(key, total) => ((*key, false), total.last_ms),
            Change::Ended(key, at_ms) => ((*key, true), *at_ms),
        };
        let mut last: HashMap<(Key, bool), i64> = HashMap::new();
        for (key, at_ms) in self.all.iter().map(at) {
            let last = last.entry(key).or_insert(at_ms);
            *last = at_ms.max(*last);
        }
        self.all.retain(|change| {
            let (key, at_ms) = at(change);
            last.get(&key) == Some(&at_ms)
        });
        self.bytes = self.all.iter().map(Change::bytes).sum();
        self.least_bytes = self.bytes;
    }
}
