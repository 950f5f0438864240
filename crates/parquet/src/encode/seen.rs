//! Which places of a dictionary a page has: bounds look at each of its values once.

/// Places that are looked at together.
const WORD: usize = 8;

/// Kept, so that it is allocated once.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// A byte for each place. A bit would do, but then each place had to wait for the one before it to be written.
    bytes: Vec<u8>,
}

impl Seen {
    /// Bytes of memory it holds.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Those of `places` that there are, each once and in order; all of them are below `end`.
    pub fn distinct(&mut self, places: &[u32], end: usize) -> impl Iterator<Item = u32> {
        self.bytes.clear();
        self.bytes.resize(end.next_multiple_of(WORD), 0);
        for place in places {
            self.bytes[*place as usize] = 1;
        }
        let words = self.bytes.chunks_exact(WORD).enumerate();
        words.flat_map(|(index, word)| {
            let mut ones = word.try_into().map_or(0, u64::from_le_bytes);
            std::iter::from_fn(move || {
                let bit = (ones != 0).then(|| ones.trailing_zeros())?;
                ones &= ones - 1;
                Some((index * WORD) as u32 + bit / 8)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: places in no order, some of them twice; then others in the same room.
    /// Guarantees: each comes once and in order, and nothing is left of the first page.
    #[test]
    fn places_come_once() {
        let mut seen = Seen::default();
        assert!(seen.distinct(&[9, 0, 70, 9, 7, 8, 0], 71).eq([0, 7, 8, 9, 70]));
        assert!(seen.distinct(&[3, 3], 4).eq([3]));
        assert_eq!(seen.distinct(&[], 0).next(), None);
    }
}
