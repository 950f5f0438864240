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

/// By series, time, and whether it is an end, which has no total.
type Totals = HashMap<(Key, i64, bool), Option<Total>>;

impl Again {
    /// The point that made this change may come again.
    pub fn expect(&mut self, change: Change) {
        if self.newer_bytes > BYTES {
            self.older = std::mem::take(&mut self.newer);
            self.newer_bytes = 0;
        }
        let (at, total) = match change {
            Change::Added(key, total) => ((key, total.last_ms, false), Some(total)),
            Change::Ended(key, at_ms) => ((key, at_ms, true), None),
        };
        self.newer_bytes += bytes(total.as_ref());
        if let Some(replaced) = self.newer.insert(at, total) {
            self.newer_bytes -= bytes(replaced.as_ref());
        }
    }

    /// What the point with this time was given, if it came before.
    #[inline]
    pub fn take(&mut self, key: Key, at_ms: i64) -> Option<Total> {
        self.take_at((key, at_ms, false)).flatten()
    }

    /// Whether an end with this time came before.
    pub fn take_end(&mut self, key: Key, at_ms: i64) -> bool {
        self.take_at((key, at_ms, true)).is_some()
    }

    #[inline]
    fn take_at(&mut self, at: (Key, i64, bool)) -> Option<Option<Total>> {
        if self.newer.is_empty() && self.older.is_empty() {
            return None;
        }
        let older = self.older.remove(&at);
        let Some(newer) = self.newer.remove(&at) else {
            return older;
        };
        self.newer_bytes -= bytes(newer.as_ref());
        Some(newer)
    }
}

/// Memory that remembering it takes.
fn bytes(total: Option<&Total>) -> usize {
    total.map_or(size_of::<Change>(), Total::bytes)
}
