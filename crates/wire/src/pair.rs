//! The attribute as SDKs write it, checked in a few loads: key, then one scalar value.

/// A window large enough for every attribute this module takes: one length byte, up to 127 bytes, and the loads that
/// reach beyond them.
const WINDOW: usize = 144;

/// The high bit of every byte of a word.
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Checks the delimited `KeyValue` whose length byte is at `pos` and gives the position behind it.
///
/// `None` says nothing about the bytes but that they have another form than the usual one: an ASCII key and an ASCII
/// string, a bool, an integer of up to eight bytes, or a double, in at most 127 bytes, not at the very end of the body.
#[inline]
pub(crate) fn usual(body: &[u8], pos: usize, end: usize) -> Option<usize> {
    let window = body.get(pos..)?.first_chunk::<WINDOW>()?;
    let len = usize::from(window[0]);
    let key_len = usize::from(window[2]);
    if window[0] >= 0x80 || window[1] != 0x0a || window[2] >= 0x80 {
        return None;
    }
    // Where the field `value` starts: length byte, key of `key`, its length, its bytes.
    let value = 3 + key_len;
    let [tag, value_len, arm, inner_len] = u32_at(window, value).to_le_bytes();
    let value_len = usize::from(value_len);
    if tag != 0x12 || value + 2 + value_len != 1 + len || pos + 1 + len > end {
        return None;
    }
    let ok = match arm {
        // string_value
        0x0a => usize::from(inner_len) + 2 == value_len && ascii(window, 1 + len),
        // int_value, bool_value
        0x18 | 0x10 => {
            if !(2..=9).contains(&value_len) {
                return None;
            }
            // The varint fills the value: every byte but its last one has the high bit set.
            let more = (value_len - 2) * 8;
            let word = u64_at(window, value + 3);
            let below = (1u64 << more) - 1;
            word & HIGH & (below << 8 | 0xff) == HIGH & below && ascii(window, value)
        }
        // double_value
        0x21 => value_len == 9 && ascii(window, value),
        _ => false,
    };
    ok.then_some(pos + 1 + len)
}

/// Whether the bytes before `end` are ASCII; those before 3 are known to be.
#[inline(always)]
fn ascii(window: &[u8; WINDOW], end: usize) -> bool {
    if end < 8 {
        return u64_at(window, 0) & HIGH & ((1 << (8 * end)) - 1) == 0;
    }
    let mut bits = u64_at(window, end - 8);
    let mut at = 3;
    while at + 8 < end {
        bits |= u64_at(window, at);
        at += 8;
    }
    bits & HIGH == 0
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
