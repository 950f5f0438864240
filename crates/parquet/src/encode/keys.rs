//! Keys of attributes, each known by a number while requests are read.
//!
//! A process has some dozens of them and sends them in the same order all the time: the key after this one is most likely the one that
//! came after it last.

use std::sync::atomic::{AtomicU64, Ordering};

use super::attributes::Repairs;
use super::dictionary::{Dictionary, same};
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
    /// Of each key: the one that came after it.
    next: Vec<u32>,
    /// Of each key: the last list it was in.
    seen: Vec<u64>,
    list: u64,
    generation: u64,
}

impl Default for Keys {
    fn default() -> Self {
        let mut keys = Self {
            texts: Dictionary::default(),
            next: Vec::new(),
            seen: Vec::new(),
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
        self.next.clear();
        self.seen.clear();
        self.generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        self.find(b"service.name");
    }

    /// The number of the next key of the list, `None` if the list has it already. `guess` is what it most likely is: the number
    /// that [`Keys::after`] the last one had, or the list's first one the last time.
    #[inline]
    pub fn next(&mut self, text: &[u8], guess: u32, repairs: &mut Repairs) -> Option<u32> {
        let guessed = (guess as usize) < self.texts.len() && same(self.texts.value(guess), text);
        let key = match guessed {
            true => guess,
            false if text.is_ascii() => self.find(text),
            false => match mended(text) {
                None => self.find(text),
                Some(mended) => {
                    repairs.invalid_texts += 1;
                    self.find(mended.as_bytes())
                }
            },
        };
        let list = std::mem::replace(&mut self.seen[key as usize], self.list);
        if list == self.list {
            repairs.duplicate_keys += 1;
            return None;
        }
        Some(key)
    }

    /// What came after this key the last time, for the next one to be told.
    #[inline]
    pub fn after(&mut self, key: u32) -> &mut u32 {
        &mut self.next[key as usize]
    }

    #[inline(never)]
    fn find(&mut self, text: &[u8]) -> u32 {
        match self.texts.find(text) {
            Ok(key) => key,
            Err(vacancy) => {
                self.next.push(0);
                self.seen.push(0);
                self.texts.insert(vacancy, text)
            }
        }
    }
}
