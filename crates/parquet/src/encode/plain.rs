//! Texts one after the other, as pages without a dictionary have them: their lengths first, and then nothing but texts. Lengths
//! between texts would hide from the compressor what texts have in common.

use super::text::mended;

#[derive(Debug, Default)]
pub(crate) struct Plain {
    bytes: Vec<u8>,
    lengths: Vec<u32>,
}

impl Plain {
    #[inline]
    pub fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
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

    /// What there is; room for as much is left.
    pub fn take(&mut self) -> Self {
        let room = Self {
            bytes: Vec::with_capacity(self.bytes.len()),
            lengths: Vec::with_capacity(self.lengths.len()),
        };
        std::mem::replace(self, room)
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
