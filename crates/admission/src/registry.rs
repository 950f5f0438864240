//! One value per name, for at most so many names: looked up without a lock, never removed.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A table of named values that only grows, up to a capacity. Looking up takes no lock and allocates nothing.
#[derive(Debug)]
pub(crate) struct Registry<T> {
    /// A power of two, and a quarter more than the capacity at least: probing ends at an empty slot.
    slots: Box<[OnceLock<Box<Named<T>>>]>,
    capacity: usize,
    used: AtomicUsize,
    /// Names may come from clients: without a secret they could be chosen to collide.
    seed: u64,
}

/// A value and its name.
#[derive(Debug)]
pub(crate) struct Named<T> {
    pub name: Box<str>,
    pub value: T,
}

impl<T> Registry<T> {
    /// Room for `capacity` names.
    pub(crate) fn new(capacity: usize) -> Self {
        let slots = (capacity + capacity / 4 + 1).next_power_of_two();
        Self {
            slots: (0..slots).map(|_| OnceLock::new()).collect(),
            capacity,
            used: AtomicUsize::new(0),
            seed: RandomState::new().hash_one(capacity) | 1,
        }
    }

    /// Where `name` is.
    ///
    /// # Errors
    /// Where to [insert](Self::insert) it, for it is new.
    #[inline]
    pub(crate) fn find(&self, name: &str) -> Result<usize, usize> {
        let mask = self.slots.len() - 1;
        let mut at = hash(name, self.seed) as usize & mask;
        loop {
            match self.slots[at & mask].get() {
                Some(named) if *named.name == *name => return Ok(at),
                Some(_) => at = (at + 1) & mask,
                None => return Err(at),
            }
        }
    }

    /// What was found at `place`.
    #[inline]
    pub(crate) fn at(&self, place: usize) -> Option<&Named<T>> {
        self.slots.get(place)?.get().map(|named| &**named)
    }

    /// Keeps `name` with the value that `make` makes, from where it was [looked for](Self::find); `None` when there is no room. It is where
    /// another thread was first with it.
    #[cold]
    pub(crate) fn insert(&self, mut at: usize, name: &str, make: impl FnOnce() -> T) -> Option<usize> {
        let room = |used: usize| (used < self.capacity).then_some(used + 1);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room)
            .ok()?;
        let mut new = Some(Box::new(Named {
            name: name.into(),
            value: make(),
        }));
        loop {
            let named = self.slots[at].get_or_init(|| new.take().expect("a slot is filled at most once"));
            if *named.name == *name {
                if new.is_some() {
                    // Another thread was first with the same name.
                    self.used.fetch_sub(1, Ordering::Relaxed);
                }
                return Some(at);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Every value there is, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Named<T>> {
        self.slots
            .iter()
            .filter_map(|slot| slot.get().map(|named| &**named))
    }

    /// Bytes a table for `capacity` names takes before it has any.
    #[cfg(test)]
    pub(crate) fn memory_bytes(capacity: usize) -> usize {
        Self::new(capacity).slots.len() * size_of::<OnceLock<Box<Named<T>>>>()
    }
}

/// Folds sixteen bytes at a time; the secret `seed` goes into every step. What is left over is folded with bytes before it, so that each
/// load has a length that the compiler knows.
#[inline]
fn hash(name: &str, seed: u64) -> u64 {
    let fold = |state: u64, low: u64, high: u64| {
        let product = u128::from(low ^ state) * u128::from(high ^ seed);
        product as u64 ^ (product >> 64) as u64
    };
    let bytes = name.as_bytes();
    let mut state = seed ^ (bytes.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let (mut rest, last) = (bytes, bytes.last_chunk::<16>());
    while let Some((block, behind)) = rest.split_first_chunk::<16>() {
        let (low, high) = halves(block);
        state = fold(state, low, high);
        rest = behind;
    }
    let (low, high) = match (last, rest.first_chunk(), rest.last_chunk()) {
        (Some(last), ..) => halves(last),
        (None, Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
        // Seven bytes at most.
        (None, ..) => (rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)), 0),
    };
    fold(state, low, high ^ 0xD6E8_FEB8_6659_FD93)
}

#[inline]
fn halves(block: &[u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(*block);
    (both as u64, (both >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn find_or_insert<T: Copy>(registry: &Registry<T>, name: &str, value: T) -> Option<T> {
        let place = match registry.find(name) {
            Ok(place) => Some(place),
            Err(at) => registry.insert(at, name, || value),
        };
        let named = registry.at(place?).unwrap();
        assert_eq!(&*named.name, name);
        Some(named.value)
    }

    /// Scenario: a thousand names for a table of a hundred, twice.
    /// Guarantees: the first hundred have a value each, the same every time; the rest have none.
    #[test]
    fn a_full_table_takes_no_more() {
        let registry = Registry::new(100);
        for round in 0..2 {
            for n in 0..1_000_usize {
                let name = format!("/a/method/number/{n}");
                let value = find_or_insert(&registry, &name, n);
                assert_eq!(value, (n < 100).then_some(n), "round {round}");
            }
        }
        assert_eq!(registry.iter().count(), 100);
    }

    /// Scenario: eight threads ask for the same 64 names at once.
    /// Guarantees: each name has one value, and the count of names is right.
    #[test]
    fn threads_agree_on_one_value() {
        let registry = Registry::new(64);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let registry = &registry;
                scope.spawn(move || {
                    for n in 0..64 {
                        find_or_insert(registry, &format!("name {n}"), thread);
                    }
                });
            }
        });
        assert_eq!(registry.iter().count(), 64);
        assert_eq!(registry.used.load(Ordering::Relaxed), 64);
    }

    /// Scenario: names of every length up to 64 bytes; of each, those that differ from it in one byte; and all of zeros.
    /// Guarantees: each byte and the length count: no two have the same hash. Another seed has other hashes.
    #[test]
    fn every_byte_counts() {
        let mut seen = HashSet::new();
        for len in 0..=64 {
            assert!(seen.insert(hash(&"\0".repeat(len), 7)), "{len} zeros");
            for at in 0..len {
                let mut name = vec![b'a'; len];
                name[at] = b'b';
                let name = String::from_utf8(name).unwrap();
                assert!(seen.insert(hash(&name, 7)), "byte {at} of {len}");
                assert_ne!(hash(&name, 7), hash(&name, 9));
            }
        }
    }
}
