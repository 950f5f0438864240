//! Places of a segment that cannot be read, each counted once, however many readers come by.

use std::collections::BTreeSet;

/// Places of one segment that are told apart. Of more only those behind all others count: each reader goes on in order.
const MOST_PLACES: usize = 4096;

/// Places of one segment, by their offsets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Unreadable {
    at: BTreeSet<u64>,
    count: u64,
}

impl Unreadable {
    /// The place at this offset cannot be read; true when that is news.
    pub fn add(&mut self, offset: u64) -> bool {
        let is_full = self.at.len() >= MOST_PLACES;
        let is_behind = self.at.last().is_none_or(|last| offset > *last);
        if is_full && !is_behind || !self.at.insert(offset) {
            return false;
        }
        if is_full {
            self.at.pop_first();
        }
        self.count += 1;
        true
    }

    /// All of these.
    pub fn extend(&mut self, offsets: impl IntoIterator<Item = u64>) {
        for offset in offsets {
            self.add(offset);
        }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: two readers find the same places, one of them begins in the middle; then more places than are told apart, found by both.
    /// Guarantees: each place counts once, and memory does not grow with them.
    #[test]
    fn a_place_counts_once() {
        let mut places = Unreadable::default();
        places.extend([300, 400]);
        places.extend([100, 200, 300, 400]);
        assert_eq!(places.count(), 4);
        let many = 3 * MOST_PLACES as u64;
        places.extend(1000..1000 + many);
        places.extend((1000..1000 + many).chain([100, 200]));
        assert_eq!(places.count(), 4 + many);
        assert_eq!(places.at.len(), MOST_PLACES);
    }
}
