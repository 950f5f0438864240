//! The values of a column, each once.

use ahash::RandomState;

/// Slots of an empty table; a power of two.
const SLOTS: usize = 256;

/// Places of values, by value. Places are given in the order in which values first come, whatever the hash says: files are
/// the same on every run.
#[derive(Debug)]
pub(crate) struct Dictionary {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    /// Half of a hash and a place plus one; 0 is a free slot. Never more than half full.
    slots: Vec<(u32, u32)>,
    hasher: RandomState,
}

impl Dictionary {
    /// An empty one. `hasher` is seeded at random, so that nobody can choose values that fall into one slot.
    pub fn new(hasher: RandomState) -> Self {
        Self {
            bytes: Vec::new(),
            ends: Vec::new(),
            slots: Vec::new(),
            hasher,
        }
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of memory it holds.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + 4 * self.ends.capacity() + 8 * self.slots.len()
    }

    /// Bytes of its values.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub fn value(&self, place: u32) -> &[u8] {
        let place = place as usize;
        let start = match place {
            0 => 0,
            _ => self.ends[place - 1] as usize,
        };
        &self.bytes[start..self.ends[place] as usize]
    }

    pub fn values(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len() as u32).map(|place| self.value(place))
    }

    /// The place of a value, which is given one if it has none.
    #[inline]
    pub fn place(&mut self, value: &[u8]) -> u32 {
        if self.ends.len() * 2 >= self.slots.len() {
            self.grow();
        }
        let hash = self.hasher.hash_one(value) as u32;
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            match self.slots[slot] {
                (_, 0) => break,
                (of, place) if of == hash && self.value(place - 1) == value => return place - 1,
                _ => slot = (slot + 1) & mask,
            }
        }
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len() as u32);
        self.slots[slot] = (hash, self.ends.len() as u32);
        self.ends.len() as u32 - 1
    }

    #[cold]
    fn grow(&mut self) {
        let mut slots = vec![(0, 0); (self.slots.len() * 2).max(SLOTS)];
        let mask = slots.len() - 1;
        for (hash, place) in self.slots.drain(..).filter(|(_, place)| *place > 0) {
            let mut slot = hash as usize & mask;
            while slots[slot].1 > 0 {
                slot = (slot + 1) & mask;
            }
            slots[slot] = (hash, place);
        }
        self.slots = slots;
    }

    /// Forgets all values, and the memory of a table that had many.
    pub fn clear(&mut self) {
        *self = Self::new(self.hasher.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a hundred thousand values, each twice, the empty one among them.
    /// Guarantees: places count up in the order of first appearance, and each value keeps its own.
    #[test]
    fn each_value_has_one_place() {
        let mut dictionary = Dictionary::new(RandomState::with_seeds(1, 2, 3, 4));
        let text = |n: u32| match n {
            0 => String::new(),
            n => format!("{n:x}"),
        };
        for _ in 0..2 {
            for n in 0..100_000 {
                assert_eq!(dictionary.place(text(n).as_bytes()), n);
            }
        }
        assert_eq!(dictionary.len(), 100_000);
        assert_eq!(dictionary.value(77), text(77).as_bytes());
    }
}
