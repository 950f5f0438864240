//! Points that come again, and what they were given the first time.

use std::collections::HashMap;

use super::total::{Change, Key, Total};

/// After so many requests with deltas of which none had come before, none will any more: what comes again comes first.
const REQUESTS: u32 = 16;

/// What is remembered takes at most twice this: the points of several requests. The oldest are forgotten beyond it; they count as out of order
/// when they come again, and their deltas are in the totals all the same.
const BYTES: usize = 16 << 20;

/// The totals that points had, by series and time.
#[derive(Debug, Default)]
pub(super) struct Again {
    newer: Totals,
    older: Totals,
    newer_bytes: usize,
    /// Requests with deltas since one of which something had come before.
    requests: u32,
    has_come: bool,
}

type Totals = HashMap<(Key, i64), Total>;

impl Again {
    /// The point that made this change may come again.
    pub fn expect(&mut self, change: Change) {
        self.requests = 0;
        // That a series has ended changes nothing when it is said once more.
        let bytes = change.bytes();
        let Change::Added(key, total) = change else { return };
        if self.newer_bytes > BYTES {
            self.older = std::mem::take(&mut self.newer);
            self.newer_bytes = 0;
        }
        self.newer_bytes += bytes;
        self.newer.insert((key, total.last_ms), total);
    }

    /// What the point with this time was given, if it came before.
    #[inline]
    pub fn take(&mut self, key: Key, at_ms: i64) -> Option<Total> {
        if self.newer.is_empty() && self.older.is_empty() {
            return None;
        }
        let at = (key, at_ms);
        let total = self.newer.remove(&at).or_else(|| self.older.remove(&at))?;
        self.has_come = true;
        Some(total)
    }

    /// Ends a request that had deltas.
    pub fn end_request(&mut self) {
        self.requests += 1;
        if std::mem::take(&mut self.has_come) {
            self.requests = 0;
        } else if self.requests >= REQUESTS {
            *self = Self::default();
        }
    }
}
