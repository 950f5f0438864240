//! A hash of labels that does not depend on their order.
//!
//! The hash of a series is the sum of the hashes of its labels, so that those of a whole block are added up once. It
//! decides which lane a series goes through: two series of one hash share a lane. It is a half of the key of a total, too, which is in a file:
//! whoever changes it changes the version of that (`cumulative/file.rs`).

const A: u64 = 0x9e37_79b9_7f4a_7c15;
const B: u64 = 0xd6e8_feb8_6659_fd93;

/// Both halves of the product, mixed: every bit of the result depends on every bit of the input.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

/// The hash of some bytes, from `seed` on.
#[inline]
pub(crate) fn hash(bytes: &[u8], seed: u64) -> u64 {
    let mut state = seed ^ fold(bytes.len() as u64 ^ A, B);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        state = fold(state ^ u64::from_le_bytes(*word), A);
    }
    let tail = match bytes.last_chunk() {
        // The bytes of the last word before them are shifted out: what is put together in memory is waited for when it is read at once.
        Some(last) if !rest.is_empty() => u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
        _ => rest
            .iter()
            .rev()
            .fold(0, |tail, byte| tail << 8 | u64::from(*byte)),
    };
    fold(state ^ tail, B)
}

/// A number to find a place by: twice as fast as [`hash`], and not to be added to others.
#[inline]
pub(crate) fn place(bytes: &[u8]) -> u64 {
    let mix = |state: u64, pair: &[u8; 16]| {
        let ([a, b], _) = pair.as_chunks::<8>() else {
            return state;
        };
        fold(state ^ u64::from_le_bytes(*a), u64::from_le_bytes(*b) ^ A)
    };
    let (pairs, rest) = bytes.as_chunks::<16>();
    let state = pairs.iter().fold(bytes.len() as u64 ^ B, mix);
    match bytes.last_chunk::<16>() {
        // Some of it has been mixed in already, which does no harm.
        Some(last) => mix(state, last),
        None => {
            let mut padded = [0; 16];
            padded[..rest.len()].copy_from_slice(rest);
            mix(state, &padded)
        }
    }
}

/// The hash of many bytes, from `seed` on: four streams of [`place`] beside each other, as fast as they are read from memory.
pub(crate) fn long(bytes: &[u8], seed: u64) -> u64 {
    let mut streams = [seed, seed ^ A, seed ^ B, seed ^ A.wrapping_add(B)];
    let (blocks, rest) = bytes.as_chunks::<64>();
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (stream, pair) in streams.iter_mut().zip(words.chunks_exact(2)) {
            *stream = fold(
                *stream ^ u64::from_le_bytes(pair[0]),
                u64::from_le_bytes(pair[1]) ^ A,
            );
        }
    }
    let streams = streams
        .into_iter()
        .fold(seed, |state, stream| fold(state ^ stream, B));
    hash(rest, streams ^ bytes.len() as u64)
}

/// The hash of a label whose name has the hash `name`.
#[inline]
pub(crate) fn label(name: u64, value: &[u8]) -> u64 {
    hash(value, name)
}

/// Which of `lanes` a series with this hash goes through.
#[inline]
pub(crate) fn lane(hash: u64, lanes: usize) -> usize {
    // A sum of good hashes is a good hash in its upper half too.
    ((u128::from(hash) * lanes as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: texts of all lengths up to 40.
    /// Guarantees: the hash is that of the words, the last one filled up with zeros: it is in files.
    #[test]
    fn the_last_word_is_filled_up_with_zeros() {
        let text: Vec<u8> = (1..=40).map(|n| n * 6).collect();
        for len in 0..=text.len() {
            let mut filled = text[..len].to_vec();
            filled.resize(len / 8 * 8 + 8, 0);
            let words = filled.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
            let words: Vec<u64> = words.collect();
            let (last, before) = words.split_last().unwrap();
            let begun = 7 ^ fold(len as u64 ^ A, B);
            let state = before.iter().fold(begun, |state, word| fold(state ^ word, A));
            assert_eq!(hash(&text[..len], 7), fold(state ^ last, B), "{len}");
        }
    }
}
