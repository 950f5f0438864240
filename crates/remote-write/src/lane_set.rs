//! Some of the lanes.

/// Lanes, by their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LaneSet(Vec<u8>);

impl LaneSet {
    pub fn insert(&mut self, lane: usize) {
        let at = lane / 8;
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] |= 1 << (lane % 8);
    }

    #[inline]
    pub fn contains(&self, lane: usize) -> bool {
        self.0
            .get(lane / 8)
            .is_some_and(|bits| bits & 1 << (lane % 8) != 0)
    }

    pub fn add(&mut self, others: &Self) {
        if self.0.len() < others.0.len() {
            self.0.resize(others.0.len(), 0);
        }
        self.0
            .iter_mut()
            .zip(&others.0)
            .for_each(|(bits, others)| *bits |= others);
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|bits| *bits == 0)
    }

    /// One bit for each lane, from the lowest of the first byte on; lanes behind the last byte are not in the set.
    pub fn as_bits(&self) -> &[u8] {
        &self.0
    }

    pub fn of_bits(bits: &[u8]) -> Self {
        Self(bits.to_vec())
    }
}
