//! The attribute as SDKs write it, checked in a few loads: key, then one scalar value.

/// A window large enough for every attribute this module takes: one length byte, up to 127 bytes, and the loads that
/// reach beyond them.
const WINDOW: usize = 144;

/// The high bit of every byte of a word.
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Bytes looked at in one go when text is checked.
const BLOCK: usize = 32;

/// The high bits of a block, then none: the part of it that starts `BLOCK - n` bytes in covers `n` bytes.
static COVER: [u8; 2 * BLOCK] = {
    let mut cover = [0; 2 * BLOCK];
    let mut at = 0;
    while at < BLOCK {
        cover[at] = 0x80;
        at += 1;
    }
    cover
};

/// Checks the delimited `KeyValue` whose length byte is at `pos` and gives the position behind it.
///
/// `None` says nothing about the bytes but that they have another form than the usual one: an ASCII key and an ASCII
/// string, a bool, an integer of up to eight bytes, or a double, in at most 127 bytes, not at the very end of the body.
#[inline]
pub(crate) fn usual(body: &[u8], pos: usize, end: usize) -> Option<usize> {
    let window = body.get(pos..)?.first_chunk::<WINDOW>()?;
    // Length, the key of `key` and its length, both lengths of one byte.
    if u32_at(window, 0) & 0x0080_ff80 != 0x0000_0a00 {
        return None;
    }
    let total = 1 + usize::from(window[0] & 0x7f);
    // Where the field `value` starts.
    let value = 3 + usize::from(window[2] & 0x7f);
    let [tag, value_len, arm, inner_len] = u32_at(window, value).to_le_bytes();
    let value_len = usize::from(value_len);
    if tag != 0x12 || value + 2 + value_len != total || pos + total > end {
        return None;
    }
    // string_value: two of three attributes, and worth a branch of their own.
    let text_end = if arm == 0x0a {
        if usize::from(inner_len) + 2 != value_len {
            return None;
        }
        total
    } else {
        if !scalar(window, value, value_len, arm) {
            return None;
        }
        value
    };
    ascii(window, text_end).then_some(pos + total)
}

/// Whether the field `value` at `value`, `value_len` bytes with `arm` as its first, holds just a bool, an integer or a double.
#[inline(never)]
fn scalar(window: &[u8; WINDOW], value: usize, value_len: usize, arm: u8) -> bool {
    match arm {
        // double_value
        0x21 => value_len == 9,
        // int_value, bool_value
        0x18 | 0x10 if (2..=9).contains(&value_len) => {
            // The varint fills the value: every byte but its last one has the high bit set.
            let more = (value_len - 2) * 8;
            let word = u64_at(window, value + 3);
            let below = (1u64 << more) - 1;
            word & HIGH & (below << 8 | 0xff) == HIGH & below
        }
        _ => false,
    }
}

/// Whether the first `end` bytes are ASCII.
///
/// Up to two blocks are checked without a branch: the first one and the one that ends at `end`, which are the same bytes
/// when `end` lies in the first.
#[inline(always)]
fn ascii(window: &[u8; WINDOW], end: usize) -> bool {
    let covered = end.min(BLOCK);
    let (first, last, cover) = (
        block(window, 0),
        block(window, end - covered),
        block(&COVER, BLOCK - covered),
    );
    let mut bits = 0;
    for word in 0..BLOCK / 8 {
        bits |= (first[word] | last[word]) & cover[word];
    }
    let mut at = BLOCK;
    while at + BLOCK < end {
        for word in block(window, at) {
            bits |= word & HIGH;
        }
        at += BLOCK;
    }
    bits == 0
}

#[inline(always)]
fn block(bytes: &[u8], at: usize) -> [u64; BLOCK / 8] {
    let mut words = [HIGH; BLOCK / 8];
    if let Some(found) = bytes.get(at..at + BLOCK) {
        for (word, found) in words.iter_mut().zip(found.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*found);
        }
    }
    words
}

#[inline(always)]
fn u64_at(window: &[u8; WINDOW], at: usize) -> u64 {
    window
        .get(at..at + 8)
        .and_then(|bytes| bytes.first_chunk())
        .map_or(HIGH, |bytes| u64::from_le_bytes(*bytes))
}

#[inline(always)]
fn u32_at(window: &[u8; WINDOW], at: usize) -> u32 {
    window
        .get(at..at + 4)
        .and_then(|bytes| bytes.first_chunk())
        .map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
