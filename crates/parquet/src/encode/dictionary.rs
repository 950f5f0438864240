//! Values, each once and with a place: texts as a dictionary page has them, and integers.

use ahash::RandomState;

use super::plain::append;

/// Slots of an empty table; a power of two.
const SLOTS: usize = 64;

/// Bytes of the length before each text.
const HEAD: usize = 4;

/// Places of texts. Places are given in the order in which texts first come, whatever the hash says: files are the same on
/// every run.
#[derive(Debug)]
pub(crate) struct Dictionary {
    /// Each text with its length before it: a dictionary page.
    bytes: Vec<u8>,
    /// Where each text begins and ends.
    spans: Vec<(u32, u32)>,
    /// Half of a hash and a place plus one; 0 is a free slot. Never more than half full.
    slots: Vec<(u32, u32)>,
    /// Texts that have a slot: those that can be found.
    listed: usize,
    /// Drawn at random, so that nobody can choose texts that fall into one slot.
    seeds: [u64; 2],
}

/// Where a text belongs that is not there yet.
pub(crate) struct Vacancy {
    slot: usize,
    hash: u32,
}

impl Default for Dictionary {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            spans: Vec::new(),
            slots: Vec::new(),
            listed: 0,
            seeds: seeds(),
        }
    }
}

impl Dictionary {
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Texts that can be found.
    #[cfg(test)]
    pub fn listed(&self) -> usize {
        self.listed
    }

    /// Bytes of memory it holds.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + 8 * self.spans.capacity() + 8 * self.slots.len()
    }

    /// Its texts, each with its length before it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The text at a place.
    #[inline]
    pub fn value(&self, place: u32) -> &[u8] {
        let (start, end) = self.spans[place as usize];
        &self.bytes[start as usize..end as usize]
    }

    /// The place of a text, or where it belongs.
    #[inline]
    pub fn find(&mut self, text: &[u8]) -> Result<u32, Vacancy> {
        if self.listed * 2 >= self.slots.len() {
            self.grow();
        }
        let hash = hash(self.seeds, text);
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            match self.slots[slot] {
                (_, 0) => return Err(Vacancy { slot, hash }),
                (of, place) if of == hash && same(self.value(place - 1), text) => return Ok(place - 1),
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    /// Gives a text the next place; nothing was added since `vacancy` was found.
    #[inline]
    pub fn insert(&mut self, vacancy: Vacancy, text: &[u8]) -> u32 {
        let place = self.append(text);
        self.slots[vacancy.slot] = (vacancy.hash, place + 1);
        self.listed += 1;
        place
    }

    /// Gives a text the next place, under which nobody will find it.
    #[inline]
    pub fn append(&mut self, text: &[u8]) -> u32 {
        self.bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        let start = self.bytes.len();
        append(&mut self.bytes, text);
        self.spans.push((start as u32, self.bytes.len() as u32));
        self.spans.len() as u32 - 1
    }

    #[cold]
    fn grow(&mut self) {
        let mut slots = vec![(0, 0); (self.slots.len() * 4).max(SLOTS)];
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

    /// Forgets all texts, and the memory of a table that had many; its page.
    pub fn take(&mut self) -> Vec<u8> {
        self.spans = Vec::new();
        self.slots = Vec::new();
        self.listed = 0;
        std::mem::take(&mut self.bytes)
    }
}

fn seeds() -> [u64; 2] {
    let random = RandomState::new();
    [random.hash_one(0u8), random.hash_one(1u8)]
}

/// Both halves of a product: every bit of either factor is in it.
#[inline]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

/// Made for texts of a few bytes, which are read in two loads: a general hash takes longer than all else that is done with them.
#[inline]
fn hash([one, other]: [u64; 2], text: &[u8]) -> u32 {
    let mut state = other ^ text.len() as u64;
    let (first, last) = match (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        (Some(first), Some(last)) => {
            // Whole words; what is left of the middle is in the last one.
            let middle = text.get(8..text.len() - 1).unwrap_or_default();
            for chunk in middle.chunks_exact(8) {
                let word = chunk.try_into().map_or(0, u64::from_le_bytes);
                state = fold(state ^ word, one);
            }
            (u64::from_le_bytes(*first), u64::from_le_bytes(*last))
        }
        _ => match (text.first_chunk::<4>(), text.last_chunk::<4>()) {
            (Some(first), Some(last)) => (
                u32::from_le_bytes(*first).into(),
                u32::from_le_bytes(*last).into(),
            ),
            _ => (text.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)), 0),
        },
    };
    let folded = fold(first ^ one, last ^ state);
    (folded >> 32) as u32 ^ folded as u32
}

/// The texts that lie one after the other, each with its length before it.
pub(crate) fn texts(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk::<HEAD>()?;
        let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        bytes = rest;
        Some(text)
    })
}

/// Whether two texts are the same. They are short, mostly: a call of `memcmp` takes longer than comparing them.
#[inline]
pub(crate) fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    match (one.first_chunk::<8>(), one.last_chunk::<8>()) {
        (Some(first), Some(last)) => {
            other.first_chunk() == Some(first)
                && other.last_chunk() == Some(last)
                && (one.len() <= 16 || same_long(one, other))
        }
        _ => match (one.first_chunk::<4>(), one.last_chunk::<4>()) {
            (Some(first), Some(last)) => {
                other.first_chunk() == Some(first) && other.last_chunk() == Some(last)
            }
            _ => one.iter().eq(other),
        },
    }
}

/// The same of texts of more than sixteen bytes.
#[inline]
fn same_long(one: &[u8], other: &[u8]) -> bool {
    match (one.first_chunk::<16>(), one.last_chunk::<16>()) {
        (Some(first), Some(last)) => {
            other.first_chunk() == Some(first)
                && other.last_chunk() == Some(last)
                && (one.len() <= 32 || one == other)
        }
        _ => one == other,
    }
}

/// Places of integers, as [`Dictionary`] has those of texts.
#[derive(Debug)]
pub(crate) struct Integers {
    values: Vec<i64>,
    /// A place plus one; 0 is a free slot. Never more than half full.
    slots: Vec<u32>,
    seeds: [u64; 2],
}

impl Default for Integers {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            slots: Vec::new(),
            seeds: seeds(),
        }
    }
}

impl Integers {
    pub fn values(&self) -> &[i64] {
        &self.values
    }

    /// Bytes of memory it holds.
    pub fn memory_bytes(&self) -> usize {
        8 * self.values.capacity() + 4 * self.slots.len()
    }

    #[inline]
    fn slot(&self, value: i64) -> usize {
        fold(value as u64 ^ self.seeds[0], self.seeds[1]) as usize & (self.slots.len() - 1)
    }

    /// The place of a number, which is given one if it has none.
    #[inline]
    pub fn place(&mut self, value: i64) -> u32 {
        if self.values.len() * 2 >= self.slots.len() {
            self.grow();
        }
        let mask = self.slots.len() - 1;
        let mut slot = self.slot(value);
        loop {
            match self.slots[slot] {
                0 => break,
                place if self.values[place as usize - 1] == value => return place - 1,
                _ => slot = (slot + 1) & mask,
            }
        }
        self.values.push(value);
        self.slots[slot] = self.values.len() as u32;
        self.values.len() as u32 - 1
    }

    #[cold]
    fn grow(&mut self) {
        self.slots = vec![0; (self.slots.len() * 4).max(SLOTS)];
        let mask = self.slots.len() - 1;
        for (index, value) in self.values.iter().enumerate() {
            let mut slot = self.slot(*value);
            while self.slots[slot] > 0 {
                slot = (slot + 1) & mask;
            }
            self.slots[slot] = index as u32 + 1;
        }
    }

    /// Forgets all numbers, and the memory of a table that had many.
    pub fn clear(&mut self) {
        self.values = Vec::new();
        self.slots = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(dictionary: &mut Dictionary, text: &[u8]) -> u32 {
        match dictionary.find(text) {
            Ok(place) => place,
            Err(vacancy) => dictionary.insert(vacancy, text),
        }
    }

    /// Scenario: a hundred thousand texts and numbers, each twice, the empty one and zero among them.
    /// Guarantees: places count up in the order of first appearance, and each value keeps its own.
    #[test]
    fn each_value_has_one_place() {
        let (mut dictionary, mut integers) = (Dictionary::default(), Integers::default());
        let text = |n: u32| match n {
            0 => String::new(),
            n => format!("{n:x}"),
        };
        for _ in 0..2 {
            for n in 0..100_000 {
                assert_eq!(place(&mut dictionary, text(n).as_bytes()), n);
                assert_eq!(integers.place((i64::from(n) << 40).wrapping_neg()), n);
            }
        }
        assert_eq!(dictionary.len(), 100_000);
        assert_eq!(dictionary.value(77), text(77).as_bytes());
        assert!(texts(dictionary.bytes()).eq((0..100_000).map(|place| dictionary.value(place))));
        assert_eq!(integers.values()[1], -(1 << 40));
    }

    /// Scenario: texts of every length up to 40 that differ in one byte, or in none.
    /// Guarantees: they are told apart.
    #[test]
    fn one_byte_makes_a_difference() {
        for length in 0..40usize {
            let text = vec![b'x'; length];
            assert!(same(&text, &text.clone()));
            assert!(!same(&text, &vec![b'x'; length + 1]));
            for at in 0..length {
                let mut other = text.clone();
                other[at] = b'y';
                assert!(!same(&text, &other), "{length} {at}");
            }
        }
    }
}
