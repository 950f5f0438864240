//! Attributes as nearly all of them are written, read without looking for what else there could be.

use super::attributes::kind;

/// An `AnyValue` with one field that is no message.
pub(crate) enum Scalar<'a> {
    Text(&'a [u8]),
    /// A type and the bits of the number.
    Number(u8, u64),
}

/// Reads an attribute as nearly all of them are written: a key and a scalar of less than 128 bytes each, and nothing else.
#[inline]
pub(crate) fn usual(attribute: &[u8]) -> Option<(&[u8], Scalar<'_>)> {
    let [0x0a, key_length @ ..0x80, rest @ ..] = attribute else {
        return None;
    };
    let (key, rest) = rest.split_at_checked(usize::from(*key_length))?;
    let [0x12, any_length @ ..0x80, field, value @ ..] = rest else {
        return None;
    };
    if usize::from(*any_length) != value.len() + 1 {
        return None;
    }
    let scalar = match (field, value) {
        (0x0a, [length @ ..0x80, text @ ..]) if usize::from(*length) == text.len() => Scalar::Text(text),
        (0x18, digits) => Scalar::Number(kind::INT, varint(attribute, digits)?),
        (0x10, [value @ 0..=1]) => Scalar::Number(kind::BOOL, (*value).into()),
        (0x21, bits) => Scalar::Number(kind::DOUBLE, u64::from_le_bytes(bits.try_into().ok()?)),
        _ => return None,
    };
    Some((key, scalar))
}

/// The varint that the last bytes of a field are, all of them.
#[inline]
fn varint(field: &[u8], digits: &[u8]) -> Option<u64> {
    // The highest bit of each byte of a word says whether another one follows.
    const MORE: u64 = 0x8080_8080_8080_8080;
    let (word, after) = match (digits.len(), field.last_chunk::<8>()) {
        (count @ 1..=8, Some(last)) => {
            let bits_before = 64 - 8 * count as u32;
            let word = u64::from_le_bytes(*last) >> bits_before;
            if word & MORE != MORE >> 8 >> bits_before {
                return None;
            }
            (word, 0)
        }
        // A negative number has ten bytes, the last of which has the one bit that is left.
        (9 | 10, _) => {
            let (low, high) = digits.split_first_chunk::<8>()?;
            let word = u64::from_le_bytes(*low);
            let high = match high {
                [byte @ ..0x80] => u64::from(*byte),
                [byte, last @ 0..=1] if *byte >= 0x80 => u64::from(byte & 0x7f) | u64::from(*last) << 7,
                _ => return None,
            };
            if word & MORE != MORE {
                return None;
            }
            (word, high << 56)
        }
        // None, too many, or, with its key, fewer bytes than a word has: nothing that is usual.
        _ => return None,
    };
    // Seven bits of each byte move together, in pairs, then pairs of pairs.
    let word = word & !MORE;
    let word = word & 0x007f_007f_007f_007f | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let word = word & 0x0000_3fff_0000_3fff | (word & 0x3fff_0000_3fff_0000) >> 2;
    let word = word & 0x0000_0000_0fff_ffff | (word & 0x0fff_ffff_0000_0000) >> 4;
    Some(word | after)
}

#[cfg(test)]
mod tests {
    use prost::encoding::encode_varint;

    use super::*;

    /// Scenario: numbers of every length, behind keys of none to eight bytes; each of them with a byte less, a byte more, with its
    /// highest bits set or not, and without digits.
    /// Guarantees: what is read as usual is the number, and whatever is not one is left to who reads everything.
    #[test]
    fn numbers_are_read_in_one_go() {
        for bits in 0..=64u32 {
            let value = u64::MAX.checked_shr(64 - bits).unwrap_or(0) & 0xfedc_ba98_7654_3211;
            let mut digits = Vec::new();
            encode_varint(value, &mut digits);
            for before in 0..=8 {
                let field = [vec![0xff; before], digits.clone()].concat();
                let (_, last) = field.split_at(before);
                let is_long = field.len() >= 8;
                assert_eq!(varint(&field, last), is_long.then_some(value), "{bits} {before}");
                assert_eq!(varint(&field, &[]), None);
                for at in 0..digits.len() {
                    let mut wrong = field.clone();
                    wrong[before + at] ^= 0x80;
                    assert_eq!(varint(&wrong, &wrong[before..]), None, "{bits} {at}");
                }
            }
        }
        // More than 64 bits, and more than ten bytes.
        let most = [0xff; 9];
        assert_eq!(
            varint(&[&most[..], &[1]].concat(), &[&most[..], &[1]].concat()),
            Some(u64::MAX)
        );
        assert_eq!(
            varint(&[&most[..], &[2]].concat(), &[&most[..], &[2]].concat()),
            None
        );
        assert_eq!(varint(&[0x80; 11], &[0x80; 11]), None);
    }
}
