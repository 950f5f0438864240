//! Texts one after the other, as pages without a dictionary have them: their lengths first, and then nothing but texts. Lengths
//! between texts would hide from the compressor what texts have in common.

use super::text::mended;

/// No more room than this is kept for texts that are forgotten, twice what usually waits: a text may have megabytes, and columns are many.
const KEPT_BYTES: usize = 8 << 10;

#[derive(Debug, Default)]
pub(crate) struct Plain {
    bytes: Vec<u8>,
    lengths: Vec<u32>,
}

impl Plain {
    #[inline]
    pub fn push(&mut self, text: &[u8]) {
        append(&mut self.bytes, text);
        self.lengths.push(text.len() as u32);
    }

    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// All texts as one.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of each text.
    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    pub fn texts(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let mut rest = self.bytes();
        self.lengths.iter().map(move |length| {
            let (text, after) = rest.split_at(*length as usize);
            rest = after;
            text
        })
    }

    /// Bytes of memory it holds, and what it was taken from keeps for the next page.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.lengths)
    }

    /// Bytes of the room there is.
    pub fn room_bytes(&self) -> usize {
        self.bytes.capacity() + size_of::<u32>() * self.lengths.capacity()
    }

    /// What there is; room for as much is left.
    pub fn take(&mut self) -> Self {
        let room = Self {
            bytes: Vec::with_capacity(self.bytes.len()),
            lengths: Vec::with_capacity(self.lengths.len()),
        };
        std::mem::replace(self, room)
    }

    /// Whether all texts are the same.
    pub fn is_one_text(&self) -> bool {
        let Some(first) = self.lengths.first() else {
            return false;
        };
        self.lengths
            .iter()
            .fold(true, |all, length| all & (length == first))
            && self.bytes[*first as usize..] == self.bytes[..self.bytes.len() - *first as usize]
    }

    /// Forgets them, and keeps the room unless it is large.
    pub fn clear(&mut self) {
        match self.bytes.capacity() > KEPT_BYTES {
            true => self.bytes = Vec::new(),
            false => self.bytes.clear(),
        }
        self.lengths.clear();
    }

    /// Mends what is not UTF-8, and counts it.
    pub fn mend(&mut self, repaired: &mut u64) {
        if !self.bytes.is_ascii() && self.texts().any(|text| std::str::from_utf8(text).is_err()) {
            *self = self.mended(repaired);
        }
    }

    #[cold]
    fn mended(&self, repaired: &mut u64) -> Self {
        let mut good = Self::default();
        for text in self.texts() {
            match mended(text) {
                None => good.push(text),
                Some(mended) => {
                    *repaired += 1;
                    good.push(mended.as_bytes());
                }
            }
        }
        good
    }
}

/// Appends a text. Most are short, and copied in two pieces of a fixed length, the second of which overlaps the first: a call of
/// `memcpy` takes longer.
#[inline(always)]
pub(crate) fn append(out: &mut Vec<u8>, text: &[u8]) {
    match text.len() {
        16..=32 => append_pieces::<16>(out, text),
        8..16 => append_pieces::<8>(out, text),
        33..=64 => append_pieces::<32>(out, text),
        4..8 => append_pieces::<4>(out, text),
        0..4 => text.iter().for_each(|byte| out.push(*byte)),
        _ => out.extend_from_slice(text),
    }
}

/// The same of a text of `N` to `2 * N` bytes.
#[inline(always)]
fn append_pieces<const N: usize>(out: &mut Vec<u8>, text: &[u8]) {
    let (Some(first), Some(last)) = (text.first_chunk::<N>(), text.last_chunk::<N>()) else {
        return;
    };
    let end = out.len() + text.len();
    out.reserve(2 * N);
    out.extend_from_slice(first);
    out.truncate(end - N);
    out.extend_from_slice(last);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: texts of every length up to 100, one after the other.
    /// Guarantees: they are there, byte for byte.
    #[test]
    fn texts_of_every_length_are_copied() {
        let all: Vec<u8> = (0..100).collect();
        let (mut plain, mut expected) = (Plain::default(), Vec::new());
        for length in 0..=100 {
            plain.push(&all[..length]);
            expected.extend_from_slice(&all[..length]);
        }
        assert_eq!(plain.bytes(), expected);
        assert!(
            plain
                .texts()
                .enumerate()
                .all(|(length, text)| text == &all[..length])
        );
    }

    /// Scenario: texts that are all the same, of which one differs in length or in a byte, and none.
    /// Guarantees: they are told apart.
    #[test]
    fn one_text_is_known_as_such() {
        let of = |texts: &[&str]| {
            let mut plain = Plain::default();
            texts.iter().for_each(|text| plain.push(text.as_bytes()));
            plain.is_one_text()
        };
        assert!(of(&["abc", "abc", "abc"]) && of(&["abc"]) && of(&["", ""]));
        assert!(!of(&["abc", "abd", "abc"]) && !of(&["aa", "a", "aaa"]) && !of(&["", "a"]) && !of(&[]));
    }
}
