//! One value per name, for at most so many names: looked up without a lock, never removed.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// A table of named values that only grows, up to a capacity. Looking up takes no lock and allocates nothing.
#[derive(Debug)]
pub(crate) struct Registry<T> {
    /// A power of two, and a quarter more than the capacity at least: probing ends at an empty slot.
    slots: Box<[OnceLock<Arc<Named<T>>>]>,
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

    /// The value of `name`, made by `make` when it is new; `None` when it is new and there is no room.
    #[inline]
    pub(crate) fn get_or_insert(&self, name: &str, make: impl FnOnce() -> T) -> Option<&Arc<Named<T>>> {
        let mask = self.slots.len() - 1;
        let mut at = hash(name, self.seed) as usize & mask;
        loop {
            match self.slots[at].get() {
                Some(named) if *named.name == *name => return Some(named),
                Some(_) => at = (at + 1) & mask,
                None => return self.insert(at, name, make),
            }
        }
    }

    #[cold]
    fn insert(&self, mut at: usize, name: &str, make: impl FnOnce() -> T) -> Option<&Arc<Named<T>>> {
        let room = |used: usize| (used < self.capacity).then_some(used + 1);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room)
            .ok()?;
        let mut new = Some(Arc::new(Named {
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
                return Some(named);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Every value there is, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Named<T>>> {
        self.slots.iter().filter_map(OnceLock::get)
    }

    /// Bytes a table for `capacity` names takes before it has any.
    #[cfg(test)]
    pub(crate) fn memory_bytes(capacity: usize) -> usize {
        Self::new(capacity).slots.len() * size_of::<OnceLock<Arc<Named<T>>>>()
    }
}

/// Folds sixteen bytes at a time; the secret `seed` goes into every step.
#[inline]
fn hash(name: &str, seed: u64) -> u64 {
    let word = |bytes: &[u8]| {
        let mut eight = [0; 8];
        eight[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(eight)
    };
    let fold = |state: u64, low: u64, high: u64| {
        let product = u128::from(low ^ state) * u128::from(high ^ seed);
        product as u64 ^ (product >> 64) as u64
    };
    let bytes = name.as_bytes();
    let mut state = seed ^ (bytes.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let (blocks, rest) = bytes.as_chunks::<16>();
    for block in blocks {
        state = fold(state, word(&block[..8]), word(&block[8..]));
    }
    let (low, high) = rest.split_at(rest.len().min(8));
    fold(state, word(low), word(high) ^ 0xD6E8_FEB8_6659_FD93)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a thousand names for a table of a hundred, twice.
    /// Guarantees: the first hundred have a value each, the same every time; the rest have none.
    #[test]
    fn a_full_table_takes_no_more() {
        let registry = Registry::new(100);
        for round in 0..2 {
            for n in 0..1_000_usize {
                let name = format!("/a/method/number/{n}");
                let value = registry.get_or_insert(&name, || n).map(|named| named.value);
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
                        registry.get_or_insert(&format!("name {n}"), || thread);
                    }
                });
            }
        });
        assert_eq!(registry.iter().count(), 64);
        assert_eq!(registry.used.load(Ordering::Relaxed), 64);
    }
}
