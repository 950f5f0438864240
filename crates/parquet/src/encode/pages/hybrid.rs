//! Small numbers as Parquet's hybrid of run lengths and bit packing: levels, and places in a dictionary.

use super::put_varint;

/// A run is written as such from so many values on. They come in groups of eight.
const RUN: usize = 8;

/// And from so many bits on: below, the head of the run costs more than packing. Not more: runs are whole bytes, so that zstd sees
/// them come again, and what is packed is not.
const RUN_BITS: usize = 16;

/// Four numbers of so many bits are 64.
const NARROW: u32 = 16;

/// Bits that numbers up to `most` need.
pub(crate) fn width(most: u32) -> u32 {
    32 - most.leading_zeros()
}

/// Values from which on a run is written as one.
fn least_run(width: u32) -> usize {
    RUN.max(RUN_BITS.div_ceil(width.max(1) as usize))
}

/// Begins the places in a dictionary of `values` that a page has; the bits of each.
fn begin_places(out: &mut Vec<u8>, values: usize) -> u32 {
    let width = width((values.max(1) - 1) as u32);
    out.push(width as u8);
    width
}

/// Appends places in a dictionary of `values`, as a page has them.
pub(crate) fn put_places(out: &mut Vec<u8>, places: &[u32], values: usize) {
    let width = begin_places(out, values);
    put(out, places, width);
}

/// Appends places of which each comes so many times, as a page has them; what is to be packed waits in `room`, which is empty.
pub(crate) fn put_runs_of_places(
    out: &mut Vec<u8>,
    runs: impl Iterator<Item = (u32, usize)>,
    values: usize,
    room: &mut Vec<u32>,
) {
    let width = begin_places(out, values);
    let least = least_run(width);
    let mut put = |value: u32, count: usize| {
        if count == 0 {
            return;
        }
        // Whole groups: what is packed begins and ends with one.
        let fill = room.len().next_multiple_of(RUN) - room.len();
        if width > 0 && count < fill + least {
            room.resize(room.len() + count, value);
            return;
        }
        room.resize(room.len() + fill, value);
        pack(out, room, width);
        room.clear();
        put_run(out, value, count - fill, width);
    };
    let mut last = (0, 0);
    for (value, count) in runs {
        if value == last.0 {
            last.1 += count;
        } else {
            put(last.0, last.1);
            last = (value, count);
        }
    }
    put(last.0, last.1);
    pack(out, room, width);
}

/// Appends `values`, each of which has at most `width` bits.
pub(crate) fn put<T: Copy + PartialEq + Into<u32>>(out: &mut Vec<u8>, values: &[T], width: u32) {
    let least = least_run(width);
    let (mut at, mut packed) = (0, 0);
    while at < values.len() {
        let first = values[at];
        let group = &values[at..values.len().min(at + RUN)];
        if group.iter().all(|value| *value == first) {
            let run = run(&values[at..], first);
            if run >= least || run == values.len() {
                pack(out, &values[packed..at], width);
                put_run(out, first.into(), run, width);
                at += run;
                packed = at;
                continue;
            }
            // Whole groups: what is packed begins and ends with one.
            at += (run / RUN * RUN).max(RUN);
        } else {
            at += RUN;
        }
    }
    pack(out, &values[packed..], width);
}

/// How many values are the same as the first one, from there on.
fn run<T: Copy + PartialEq>(values: &[T], first: T) -> usize {
    // Without a way out within a group it is compared as one.
    let same = |group: &&[T; RUN]| group.iter().fold(true, |all, value| all & (*value == first));
    let groups = values.as_chunks().0.iter().take_while(same).count();
    let rest = &values[groups * RUN..];
    groups * RUN + rest.iter().take_while(|value| **value == first).count()
}

/// Appends `count` times `value`.
pub(crate) fn put_run(out: &mut Vec<u8>, value: u32, count: usize, width: u32) {
    put_varint(out, (count as u64) << 1);
    out.extend_from_slice(&value.to_le_bytes()[..width.div_ceil(8) as usize]);
}

/// Appends the first `count` bits of `bitmap` as numbers of one bit.
pub(crate) fn put_bitmap(out: &mut Vec<u8>, bitmap: &[u8], count: usize) {
    let groups = count.div_ceil(8);
    put_varint(out, (groups as u64) << 1 | 1);
    out.extend_from_slice(&bitmap[..groups]);
}

/// Appends values bit by bit, in groups of eight; what is missing in the last one is zero.
fn pack<T: Copy + Into<u32>>(out: &mut Vec<u8>, values: &[T], width: u32) {
    if values.is_empty() {
        return;
    }
    let groups = values.len().div_ceil(RUN);
    put_varint(out, (groups as u64) << 1 | 1);
    let start = out.len();
    let end = start + groups * width as usize;
    if width > NARROW {
        pack_wide(out, values, width);
        out.resize(end, 0);
        return;
    }
    // Each group is written as 16 bytes, and the next one over what of them is not its own.
    out.resize(end + size_of::<u128>(), 0);
    let half = |values: &[T]| {
        let bits = |bits, value: &T| bits << width | u64::from((*value).into());
        values.iter().rev().fold(0u64, bits)
    };
    for (index, group) in values.chunks(RUN).enumerate() {
        let (low, high) = group.split_at(group.len().min(RUN / 2));
        let bits = u128::from(half(low)) | u128::from(half(high)) << (width * RUN as u32 / 2);
        let at = start + index * width as usize;
        out[at..at + size_of::<u128>()].copy_from_slice(&bits.to_le_bytes());
    }
    out.truncate(end);
}

fn pack_wide<T: Copy + Into<u32>>(out: &mut Vec<u8>, values: &[T], width: u32) {
    let (mut bits, mut held) = (0u64, 0u32);
    for value in values {
        bits |= u64::from((*value).into()) << held;
        held += width;
        if held >= 32 {
            out.extend_from_slice(&(bits as u32).to_le_bytes());
            bits >>= 32;
            held -= 32;
        }
    }
    out.extend_from_slice(&bits.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads what `put` wrote, by the words of the specification.
    fn read(mut bytes: &[u8], width: u32, count: usize) -> Vec<u32> {
        let mut values = Vec::new();
        while values.len() < count {
            let (mut head, mut shift) = (0u64, 0);
            loop {
                let byte = bytes[0];
                bytes = &bytes[1..];
                head |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    break;
                }
            }
            let of = |bytes: &[u8], bit: usize| u32::from(bytes[bit / 8] >> (bit % 8) & 1);
            if head & 1 == 0 {
                let size = width.div_ceil(8) as usize;
                let value = (0..8 * size).fold(0, |value, bit| value | of(bytes, bit) << bit);
                values.extend(std::iter::repeat_n(value, (head >> 1) as usize));
                bytes = &bytes[size..];
            } else {
                let groups = (head >> 1) as usize;
                for index in 0..groups * 8 {
                    let start = index * width as usize;
                    values.push(
                        (0..width as usize).fold(0, |value, bit| value | of(bytes, start + bit) << bit),
                    );
                }
                bytes = &bytes[groups * width as usize..];
            }
        }
        assert!(bytes.is_empty());
        assert!(values[count..].iter().all(|padding| *padding == 0) && values.len() < count + 8);
        values.truncate(count);
        values
    }

    /// Scenario: numbers of every width, in runs of every length up to 40 and without runs.
    /// Guarantees: they are read back, and nothing is left over.
    #[test]
    fn what_is_packed_is_read_back() {
        for bits in 1..=32 {
            let most = u32::MAX >> (32 - bits);
            for run in 0..40usize {
                let mut values = Vec::new();
                let mut next = 1u32;
                for length in (0..run).chain([3, 1, run, 9, 100, 2]) {
                    next = next.wrapping_mul(2_654_435_761) | 1;
                    values.extend(std::iter::repeat_n(next & most, length));
                    values.extend((0..length as u32).map(|value| value & most));
                }
                let mut out = Vec::new();
                put(&mut out, &values, width(most));
                assert_eq!(
                    read(&out, bits, values.len()),
                    values,
                    "{bits} bits, runs to {run}"
                );
            }
        }
    }

    /// Scenario: runs of every length up to 40, some of them of the same number as the one before, and without any.
    /// Guarantees: they are read back, as if they had been written out.
    #[test]
    fn runs_are_read_back() {
        for bits in 1..=32 {
            let most = u32::MAX >> (32 - bits);
            for length in 0..40usize {
                let runs: Vec<(u32, usize)> = (0..200u32)
                    .map(|n| {
                        (
                            (n.wrapping_mul(2_654_435_761) / 3) & most,
                            [length, 1, n as usize % 9, 100][n as usize % 4],
                        )
                    })
                    .flat_map(|run| [run, (run.0, run.1 / 2)])
                    .collect();
                let values: Vec<u32> = runs
                    .iter()
                    .flat_map(|(value, count)| std::iter::repeat_n(*value, *count))
                    .collect();
                let mut out = Vec::new();
                put_runs_of_places(&mut out, runs.into_iter(), most as usize + 1, &mut Vec::new());
                let width = u32::from(out[0]);
                assert_eq!(
                    read(&out[1..], width, values.len()),
                    values,
                    "{bits} bits, runs of {length}"
                );
            }
        }
    }

    /// Scenario: the same number thousands of times.
    /// Guarantees: it takes a few bytes.
    #[test]
    fn runs_are_short() {
        let mut out = Vec::new();
        put(&mut out, &[7u32; 8192], 3);
        assert_eq!(out, [0x80, 0x80, 0x01, 7]);
    }
}
