//! Integers as the differences between them: Parquet's DELTA_BINARY_PACKED.

use super::put_varint;

/// Values of a block, and of its four parts, which have a width each; as most writers have them.
const BLOCK: usize = 128;
const PARTS: usize = 4;
const PART: usize = BLOCK / PARTS;

/// Appends `values`. Differences wrap around, as they do when they are added up again.
pub(crate) fn put<T: Copy + Into<i64>>(out: &mut Vec<u8>, values: &[T]) {
    put_varint(out, BLOCK as u64);
    put_varint(out, PARTS as u64);
    put_varint(out, values.len() as u64);
    put_zigzag(out, values.first().map_or(0, |first| (*first).into()));
    let mut deltas = [0u64; BLOCK];
    let mut at = 1;
    while at < values.len() {
        let count = BLOCK.min(values.len() - at);
        let before = &values[at - 1..at + count];
        let mut least = i64::MAX;
        for (delta, pair) in deltas.iter_mut().zip(before.windows(2)) {
            let (from, to): (i64, i64) = (pair[0].into(), pair[1].into());
            let difference = to.wrapping_sub(from);
            least = least.min(difference);
            *delta = difference as u64;
        }
        for delta in &mut deltas[..count] {
            *delta = delta.wrapping_sub(least as u64);
        }
        deltas[count..].fill(0);
        put_zigzag(out, least);
        let widths = out.len();
        out.resize(widths + PARTS, 0);
        for (index, part) in deltas.chunks_exact(PART).enumerate().take(count.div_ceil(PART)) {
            let width = 64 - part.iter().fold(0, |all, delta| all | delta).leading_zeros();
            out[widths + index] = width as u8;
            pack(out, part, width);
        }
        at += count;
    }
}

fn put_zigzag(out: &mut Vec<u8>, value: i64) {
    put_varint(out, (value << 1 ^ value >> 63) as u64);
}

fn pack(out: &mut Vec<u8>, values: &[u64], width: u32) {
    // Times go up by the same, often.
    if width == 0 {
        return;
    }
    let (mut bits, mut held) = (0u128, 0);
    for value in values {
        bits |= u128::from(*value) << held;
        held += width;
        if held >= 64 {
            out.extend_from_slice(&(bits as u64).to_le_bytes());
            bits >>= 64;
            held -= 64;
        }
    }
    // 32 values of any width fill whole bytes.
    out.extend_from_slice(&bits.to_le_bytes()[..held as usize / 8]);
}
