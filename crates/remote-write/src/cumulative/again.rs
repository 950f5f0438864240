//! Points that come again, and what they were given the first time.

use std::collections::HashMap;

use super::total::{Change, Key, Total};

/// What is remembered takes at most twice this: the points of several requests. The oldest are forgotten beyond it, and for no other reason: a
/// batch of one pipeline may come again after any number of batches of another. They count as out of order when they come again, and their deltas
/// are in the totals all the same.
const BYTES: usize = 16 << 20;

/// The totals that points had, by series and time.
#[derive(Debug, Default)]
pub(super) struct Again {
    newer: Totals,
    older: Totals,
    newer_bytes: usize,
}

type Totals = HashMap<(Key, i64), Total>;

impl Again {
    /// The point that made this change may come again.
    pub fn expect(&mut self, change: Change) {
        // That a series has ended changes nothing when it is said once more.
        let Change::Added(key, total) = change else { return };
        if self.newer_bytes > BYTES {
            self.older = std::mem::take(&mut self.newer);
            self.newer_bytes = 0;
        }
        self.newer_bytes += total.bytes();
        if let Some(replaced) = self.newer.insert((key, total.last_ms), total) {
            self.newer_bytes -= replaced.bytes();
        }
    }

    /// What the point with this time was given, if it came before.
    #[inline]
    pub fn take(&mut self, key: Key, at_ms: i64) -> Option<Total> {
        if self.newer.is_empty() && self.older.is_empty() {
            return None;
        }
        let at = (key, at_ms);
        let older = self.older.remove(&at);
        let Some(newer) = self.newer.remove(&at) else {
            return older;
        };
        self.newer_bytes -= newer.bytes();
        Some(newer)
    }
}
