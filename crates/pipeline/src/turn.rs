//! The order of batches, for exporters that keep it and run ahead in it. Sans-IO: time is a parameter.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

/// The place of a batch among those that a delivery has read. Pieces that it is cut into have its place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Turn {
    /// Whose it is: nothing is said about the order between two deliveries.
    pub delivery: u64,
    /// Batches with lower numbers come before it.
    pub number: u64,
}

impl Turn {
    /// The first of a delivery that nobody else has.
    pub fn first() -> Self {
        static DELIVERIES: AtomicU64 = AtomicU64::new(1);
        Self {
            delivery: DELIVERIES.fetch_add(1, Ordering::Relaxed),
            number: 0,
        }
    }

    /// The one that follows it.
    #[must_use]
    pub fn next(self) -> Self {
        Self {
            number: self.number + 1,
            ..self
        }
    }
}

/// How a batch ends that was in an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All of it is settled: delivered, or given up.
    Settled,
    /// It stays in the queue for the next process, and so does what comes after it where it has something.
    Left,
}

/// The turns of one delivery that are under way.
#[derive(Debug)]
pub(crate) struct Turns {
    under_way: BTreeSet<Turn>,
    /// Since when the first of them is the first.
    since: Instant,
}

impl Turns {
    pub fn new(now: Instant) -> Self {
        Self {
            under_way: BTreeSet::new(),
            since: now,
        }
    }

    pub fn begin(&mut self, turn: Turn, now: Instant) {
        if self.under_way.is_empty() {
            self.since = now;
        }
        self.under_way.insert(turn);
    }

    pub fn end(&mut self, turn: Turn, now: Instant) {
        let was_first = self.first_since(turn).is_some();
        self.under_way.remove(&turn);
        if was_first {
            self.since = now;
        }
    }

    /// Since when nothing that is under way comes before it; `None` while something does.
    pub fn first_since(&self, turn: Turn) -> Option<Instant> {
        (self.under_way.first() == Some(&turn)).then_some(self.since)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Scenario: three batches are under way; the second ends, then the first.
    /// Guarantees: one of them is the first at a time, from the moment on when the one before it ended.
    #[test]
    fn one_is_the_first() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut turns = Turns::new(begun);
        let one = Turn::first();
        let (two, three) = (one.next(), one.next().next());
        for (turn, second) in [(one, 1), (two, 2), (three, 3)] {
            turns.begin(turn, at(second));
        }
        assert_eq!(turns.first_since(one), Some(at(1)));
        assert_eq!(turns.first_since(three), None);
        turns.end(two, at(4));
        assert_eq!(turns.first_since(one), Some(at(1)));
        turns.end(one, at(5));
        assert_eq!(turns.first_since(three), Some(at(5)));
        turns.end(three, at(6));
        turns.begin(three.next(), at(7));
        assert_eq!(turns.first_since(three.next()), Some(at(7)));
        assert!(Turn::first().delivery > one.delivery);
    }
}
