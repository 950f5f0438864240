//! Keys of attributes, each known by a number while requests are read.
//!
//! A process has some dozens of them and sends them in the same order all the time: the key after this one is most likely the one that
//! came after it last.

use std::sync::atomic::{AtomicU64, Ordering};

use super::attributes::Repairs;
use super::dictionary::Dictionary;
use super::text::mended;

/// Beyond so many bytes of keys all are forgotten at the next resource: somebody makes keys up.
const MOST_BYTES: usize = 1 << 20;

/// What is kept by the number of a key is kept for so many keys, those that came first: columns and files are many, and of those
/// who make keys up each key comes once.
pub(crate) const REMEMBERED: usize = 4096;

/// The number of `service.name`.
pub(crate) const SERVICE_NAME: u32 = 0;

static GENERATIONS: AtomicU64 = AtomicU64::new(1);

#[derive(Debug)]
pub(crate) struct Keys {
    texts: Dictionary,
    /// Of each key.
    known: Vec<Known>,
    list: u64,
    generation: u64,
}

/// What is known of a key, in one place.
#[derive(Debug)]
struct Known {
    /// The last list it was in.
    seen: u64,
    /// The key that came after it.
    next: u32,
    text: Ends,
}

/// Both ends of a text, as much of it as a key mostly has.
#[derive(Debug)]
struct Ends {
    length: usize,
    first: [u8; 16],
    last: [u8; 16],
}

impl Ends {
    fn of(text: &[u8]) -> Self {
        let (mut first, mut last) = ([0; 16], [0; 16]);
        let part = match text.len() {
            length @ 0..4 => length,
            4..8 => 4,
            8..16 => 8,
            _ => 16,
        };
        first[..part].copy_from_slice(&text[..part]);
        last[..part].copy_from_slice(&text[text.len() - part..]);
        let length = text.len();
        Self { length, first, last }
    }

    /// Whether a text may be this one, and must be if it has no more than 32 bytes.
    #[inline(always)]
    fn are_of(&self, text: &[u8]) -> bool {
        fn chunks<const N: usize>(ends: &Ends, text: &[u8]) -> bool {
            ends.first.first_chunk::<N>() == text.first_chunk()
                && ends.last.first_chunk::<N>() == text.last_chunk()
        }
        self.length == text.len()
            && match text.len() {
                16.. => chunks::<16>(self, text),
                8.. => chunks::<8>(self, text),
                4.. => chunks::<4>(self, text),
                _ => self.first.starts_with(text),
            }
    }
}

impl Default for Keys {
    fn default() -> Self {
        let mut keys = Self {
            texts: Dictionary::default(),
            known: Vec::new(),
            list: 0,
            generation: 0,
        };
        keys.forget();
        keys
    }
}

impl Keys {
    /// The text of a key.
    #[inline]
    pub fn text(&self, key: u32) -> &[u8] {
        self.texts.value(key)
    }

    /// Another one where the same number is another key: what was kept by number is void.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// A resource begins: numbers of keys that were given before are not used any more.
    pub fn begin_resource(&mut self) {
        if self.texts.bytes().len() > MOST_BYTES {
            self.forget();
        }
    }

    /// A list begins, in which each key is to come once.
    #[inline]
    pub fn begin_list(&mut self) {
        self.list += 1;
    }

    fn forget(&mut self) {
        self.texts.take();
        self.known.clear();
        self.generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        self.find(b"service.name");
    }

    /// The number of the next key of the list and of the one that came after it the last time, `None` if the list has it already.
    /// `guess` is what it most likely is: the number that came after the last one, or the list's first one the last time.
    #[inline]
    pub fn next(&mut self, text: &[u8], guess: u32, repairs: &mut Repairs) -> Option<(u32, u32)> {
        let key = match self.known.get(guess as usize) {
            Some(known) if known.text.are_of(text) && (text.len() <= 32 || self.text(guess) == text) => guess,
            _ => self.find_mended(text, repairs),
        };
        let known = &mut self.known[key as usize];
        let list = std::mem::replace(&mut known.seen, self.list);
        if list == self.list {
            repairs.duplicate_keys += 1;
            return None;
        }
        Some((key, known.next))
    }

    /// What came after a key, for the next one to be told.
    #[inline]
    pub fn set_after(&mut self, key: u32, after: u32) {
        self.known[key as usize].next = after;
    }

    #[inline(never)]
    fn find_mended(&mut self, text: &[u8], repairs: &mut Repairs) -> u32 {
        match text.is_ascii() {
            true => self.find(text),
            false => match mended(text) {
                None => self.find(text),
                Some(mended) => {
                    repairs.invalid_texts += 1;
                    self.find(mended.as_bytes())
                }
            },
        }
    }

    fn find(&mut self, text: &[u8]) -> u32 {
        match self.texts.find(text) {
            Ok(key) => key,
            Err(vacancy) => {
                self.known.push(Known {
                    seen: 0,
                    next: 0,
                    text: Ends::of(text),
                });
                self.texts.insert(vacancy, text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: keys of every length up to 40 that differ in one byte, or in none, each guessed to be the one before.
    /// Guarantees: they are told apart, and a key has one number.
    #[test]
    fn a_wrong_guess_is_no_key() {
        let (mut keys, mut repairs) = (Keys::default(), Repairs::default());
        let mut next = |text: &[u8], guess| {
            keys.begin_list();
            keys.next(text, guess, &mut repairs).unwrap().0
        };
        for length in 0..40usize {
            let text = vec![b'x'; length];
            let key = next(&text, SERVICE_NAME);
            assert_eq!(next(&text, key), key);
            for at in 0..length {
                let mut other = text.clone();
                other[at] = b'y';
                let other = next(&other, key);
                assert_ne!(other, key, "{length} {at}");
                assert_eq!(next(&text, other), key, "{length} {at}");
            }
        }
        assert_eq!(repairs, Repairs::default());
    }
}
