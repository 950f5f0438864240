//! Snappy blocks of which the repeats are known beforehand.
//!
//! A compressor finds repeats by hashing every few bytes. Whoever writes one series after another knows where most of
//! the bytes stood before, and can say so: nothing is materialised, hashed or searched. The format is
//! google/snappy's `format_description.txt`; every decoder reads it.

use crate::body::Format;
use crate::protobuf::{put_varint, varint_len};
use crate::v1::Writer;

/// The preamble holds the length, which is known at the end only; room for the longest varint of 32 bits.
const PREAMBLE_BYTES: usize = 5;

/// The furthest back that a copy of three bytes reaches.
pub(crate) const MAX_OFFSET: u64 = 65_535;

/// Shorter repeats cost as much as they save.
const MIN_COPY: usize = 4;

/// Longest copy in one element.
const MAX_COPY: usize = 64;

/// A block being written.
///
/// The fields are in this order in memory. Beside the length of `out`, `plain` would be read, added to and written together with it, in one register; and a processor waits
/// for the length that has just been written by itself before it can read both at once: a tenth of all that a series takes.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Block {
    /// Bytes so far, as they will be after decompression.
    plain: u64,
    out: Vec<u8>,
    /// A copy that may still grow: how far back, and how long. There is no literal then.
    copy: (u64, usize),
    /// Where in `out` the bytes begin that are put as they are and may still become more, after a place for their tag; 0: there are none.
    literal: usize,
}

impl Default for Block {
    fn default() -> Self {
        Self {
            out: vec![0; PREAMBLE_BYTES],
            plain: 0,
            literal: 0,
            copy: (0, 0),
        }
    }
}

impl Block {
    /// Bytes so far, as they will be after decompression: where the next one goes.
    #[inline]
    pub fn position(&self) -> u64 {
        self.plain
    }

    /// Appends bytes.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.literal == 0 {
            self.flush_copy();
            self.out.push(0);
            self.literal = self.out.len();
        }
        self.out.extend_from_slice(bytes);
        self.plain += bytes.len() as u64;
    }

    /// Appends bytes that stand at `position` already.
    #[inline]
    pub fn put_again(&mut self, bytes: &[u8], position: u64) {
        if !self.again(bytes.len(), position) {
            self.put(bytes);
        }
    }

    /// Appends `len` bytes that stand at `position` already; false where they are too few or too far back to say so.
    #[inline]
    pub fn again(&mut self, len: usize, position: u64) -> bool {
        let back = self.plain - position;
        if back != self.copy.0 || back == 0 {
            if len < MIN_COPY || back > MAX_OFFSET || back == 0 {
                return false;
            }
            self.flush_copy();
            self.flush_literal();
            self.copy.0 = back;
        }
        self.copy.1 += len;
        self.plain += len as u64;
        true
    }

    /// The same; the `same` bytes before these are also what stands before `position`: a copy of no more than those becomes one of them, and goes on.
    #[inline]
    pub fn again_after(&mut self, same: usize, len: usize, position: u64) -> bool {
        let back = self.plain - position;
        if (1..=same).contains(&self.copy.1) && (1..=MAX_OFFSET).contains(&back) {
            self.copy.0 = back;
        }
        self.again(len, position)
    }

    /// Writes the tag before a literal; a long one needs more room than was left for it.
    #[inline]
    fn flush_literal(&mut self) {
        let start = std::mem::take(&mut self.literal);
        if start == 0 {
            return;
        }
        let last = self.out.len() - start - 1;
        if last < 60 {
            self.out[start - 1] = (last as u8) << 2;
        } else {
            self.flush_long_literal(start, last);
        }
    }

    #[cold]
    fn flush_long_literal(&mut self, start: usize, last: usize) {
        let (tag, len_bytes) = match last {
            0..0x100 => (60, 1),
            0x100..0x1_0000 => (61, 2),
            _ => (63, 4),
        };
        self.out[start - 1] = tag << 2;
        let len = (last as u32).to_le_bytes();
        self.out.splice(start..start, len.into_iter().take(len_bytes));
    }

    #[inline]
    fn flush_copy(&mut self) {
        if self.copy.1 > 0 {
            self.write_copy();
        }
    }

    fn write_copy(&mut self) {
        let (back, mut left) = std::mem::take(&mut self.copy);
        let [low, high] = (back as u16).to_le_bytes();
        let element = |len: usize| [2 | ((len - 1) as u8) << 2, low, high];
        // What is left after a full element is never too short for one of its own. A series has a dozen.
        let full = (left - MIN_COPY) / MAX_COPY;
        left -= full * MAX_COPY;
        if full > 0 {
            let [a, b, c] = element(MAX_COPY);
            let end = self.out.len() + 3 * full;
            // Four at a time, and what is too many is taken back: lengths that are known beforehand need no loop over bytes.
            for _ in 0..full.div_ceil(4) {
                self.out.extend_from_slice(&[a, b, c, a, b, c, a, b, c, a, b, c]);
            }
            self.out.truncate(end);
        }
        if left > MAX_COPY {
            self.out.extend_from_slice(&element(MAX_COPY - MIN_COPY));
            left -= MAX_COPY - MIN_COPY;
        }
        if left < 12 && back < 2048 {
            self.out
                .extend_from_slice(&[1 | ((left - MIN_COPY) as u8) << 2 | high << 5, low]);
        } else {
            self.out.extend_from_slice(&element(left));
        }
    }

    /// Ends the block and begins a new one.
    pub fn finish(&mut self) -> bytes::Bytes {
        self.flush_copy();
        self.flush_literal();
        let next = Vec::with_capacity(self.out.len() + self.out.len() / 8);
        let mut block = std::mem::replace(&mut self.out, next);
        self.out.resize(PREAMBLE_BYTES, 0);
        let mut preamble = Vec::with_capacity(PREAMBLE_BYTES);
        put_varint(&mut preamble, std::mem::take(&mut self.plain));
        let start = PREAMBLE_BYTES - preamble.len();
        block[start..PREAMBLE_BYTES].copy_from_slice(&preamble);
        bytes::Bytes::from(block).slice(start..)
    }

    /// Ends the block, with `first` before all of it, and begins a new one. In `first` repeats are searched for.
    ///
    /// Copies reach back from where they stand, so that the elements of two blocks laid end to end are those of one.
    pub fn finish_after(&mut self, first: &[u8], encoder: &mut snap::raw::Encoder) -> bytes::Bytes {
        self.flush_copy();
        self.flush_literal();
        let elements = &self.out[PREAMBLE_BYTES..];
        let mut block = vec![0; PREAMBLE_BYTES + snap::raw::max_compress_len(first.len())];
        let len = encoder
            .compress(first, &mut block[PREAMBLE_BYTES..])
            .expect("the buffer is as long as max_compress_len says");
        block.truncate(PREAMBLE_BYTES + len);
        let own = varint_len(first.len() as u64);
        let mut preamble = Vec::with_capacity(PREAMBLE_BYTES);
        put_varint(
            &mut preamble,
            std::mem::take(&mut self.plain) + first.len() as u64,
        );
        let start = PREAMBLE_BYTES + own - preamble.len();
        block[start..PREAMBLE_BYTES + own].copy_from_slice(&preamble);
        block.extend_from_slice(elements);
        block.drain(..start);
        self.out.truncate(PREAMBLE_BYTES);
        block.into()
    }
}

impl Writer for Block {
    const FORMAT: Format = Format::V1;

    #[inline]
    fn position(&self) -> u64 {
        self.position()
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.put(bytes);
    }

    #[inline]
    fn again(&mut self, len: usize, position: u64) -> bool {
        self.again(len, position)
    }

    #[inline]
    fn again_after(&mut self, same: usize, len: usize, position: u64) -> bool {
        self.again_after(same, len, position)
    }

    fn finish(&mut self) -> bytes::Bytes {
        self.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inflated(block: &[u8]) -> Vec<u8> {
        snap::raw::Decoder::new().decompress_vec(block).unwrap()
    }

    /// Scenario: literals and repeats of every length up to 300, at every distance up to some thousands, mixed by a fixed
    /// sequence of numbers.
    /// Guarantees: a decoder that is not ours reads back what was put.
    #[test]
    fn what_is_put_is_read_back() {
        let mut state = 7u64;
        let mut draw = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut block = Block::default();
        for _ in 0..3 {
            let mut plain: Vec<u8> = Vec::new();
            for _ in 0..6000 {
                let most = if draw(10) == 0 { 300 } else { 20 };
                let len = draw(most) as usize;
                let at = draw(plain.len() as u64 + 1) as usize;
                assert_eq!(block.position(), plain.len() as u64);
                if draw(3) > 0 && at + len <= plain.len() {
                    let again = plain[at..at + len].to_vec();
                    block.put_again(&again, at as u64);
                    plain.extend(again);
                } else {
                    let new: Vec<u8> = (0..len).map(|_| draw(256) as u8).collect();
                    block.put(&new);
                    plain.extend(new);
                }
            }
            assert!(plain.len() > 70_000, "{}", plain.len());
            assert_eq!(inflated(&block.finish()), plain);
        }
        assert_eq!(inflated(&block.finish()), b"");
    }

    /// Scenario: blocks with something before them, from nothing to more than a preamble's worth.
    /// Guarantees: a decoder reads both, one after the other; the next block begins anew.
    #[test]
    fn what_comes_first_is_read_first() {
        let mut block = Block::default();
        let mut encoder = snap::raw::Encoder::new();
        for len in [0, 1, 100, 127, 128, 20_000, 300_000] {
            let first: Vec<u8> = (0..len).map(|n| (n / 7) as u8).collect();
            let text = b"one after the other";
            block.put(text);
            block.put_again(text, 0);
            let read = inflated(&block.finish_after(&first, &mut encoder));
            assert!(read == [&first[..], text, text].concat(), "{len}");
        }
    }

    /// Scenario: repeats that go on where the last one ended, of all lengths up to 300.
    /// Guarantees: they become one copy: three bytes for each 64, and no element shorter than four.
    #[test]
    fn neighbouring_repeats_are_one() {
        for len in 4..300usize {
            let text: Vec<u8> = (0..300).map(|n| n as u8).collect();
            let mut block = Block::default();
            block.put(&text);
            let (head, rest) = text[..len].split_at(4);
            block.put_again(head, 0);
            block.put_again(rest, 4);
            let packed = block.finish();
            assert_eq!(inflated(&packed), [&text[..], &text[..len]].concat());
            assert!(packed.len() <= 305 + 3 * len.div_ceil(MAX_COPY) + 3, "{len}");
        }
    }

    /// Scenario: a text, twice; something else; how the text begins; and what comes next in it, said to be as in the second place, after as many bytes
    /// as were repeated, after fewer, and without a repeat before it.
    /// Guarantees: it is one copy of the second place, where that is said of all of the repeat before it; else nothing is changed, and the text is too short.
    #[test]
    fn a_repeat_goes_on_where_the_same_stands() {
        let text = b"abcdefghijklmnopqrst";
        let begun = |repeated: bool| {
            let mut block = Block::default();
            block.put(text);
            block.put(b"12");
            block.put_again(text, 0);
            block.put(b"345");
            if repeated {
                block.put_again(&text[..7], 0);
            } else {
                block.put(&text[..7]);
            }
            block
        };
        let want = [&text[..], b"12", text, b"345", &text[..10]].concat();
        let mut block = begun(true);
        assert!(block.again_after(7, 3, 22 + 7));
        let packed = block.finish();
        assert!(inflated(&packed) == want);
        // Length, two texts as they are, two copies.
        assert_eq!(packed.len(), 1 + (1 + 22) + 3 + (1 + 3) + 2);
        for (same, repeated) in [(6, true), (0, true), (7, false)] {
            let mut block = begun(repeated);
            assert!(!block.again_after(same, 3, 22 + 7));
            block.put(&text[7..10]);
            assert!(inflated(&block.finish()) == want);
        }
    }
}
