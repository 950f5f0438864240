//! The least and the greatest value of a page or chunk, by which readers skip.

use parquet::basic::Type;
use parquet::data_type::ByteArray;
use parquet::file::statistics::{Statistics, ValueStatistics};

/// Longer texts are cut, as most writers do: bounds are for skipping, and a file has them for every page.
const TEXT_BYTES: usize = 64;

/// Bounds of the values of one physical type; what they mean is in its variant.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Bounds {
    Text(Vec<u8>, Vec<u8>),
    Long(i64, i64),
    Int(i32, i32),
    Double(f64, f64),
    Bool(bool, bool),
}

impl Bounds {
    /// Of these texts.
    pub fn of_texts<'a>(mut texts: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let first = texts.next()?;
        let (mut least, mut greatest) = (first, first);
        // Most texts are told from both by their first bytes.
        let (mut least_prefix, mut greatest_prefix) = (prefix(first), prefix(first));
        for text in texts {
            let prefix = prefix(text);
            if prefix <= least_prefix && text < least {
                (least, least_prefix) = (text, prefix);
            } else if prefix >= greatest_prefix && text > greatest {
                (greatest, greatest_prefix) = (text, prefix);
            }
        }
        Some(Self::Text(least.to_vec(), greatest.to_vec()))
    }

    /// Of numbers of this type: integers as they are, doubles as their bits. NaN is above nothing and below nothing.
    pub fn of_numbers(physical: Type, mut values: impl Iterator<Item = i64>) -> Option<Self> {
        match physical {
            Type::DOUBLE => {
                let numbers = values.map(|bits| f64::from_bits(bits as u64));
                let numbers = numbers.filter(|value| !value.is_nan());
                let (least, greatest) = numbers
                    .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, greatest), value| {
                        (least.min(value), greatest.max(value))
                    });
                // Zeros compare equal whatever their sign: the bounds hold both.
                let signed = |value: f64, zero: f64| if value == 0.0 { zero } else { value };
                (least <= greatest).then(|| Self::Double(signed(least, -0.0), signed(greatest, 0.0)))
            }
            _ => {
                let first = values.next()?;
                let (mut least, mut greatest) = (first, first);
                for value in values {
                    least = least.min(value);
                    greatest = greatest.max(value);
                }
                Some(match physical {
                    Type::INT32 => Self::Int(least as i32, greatest as i32),
                    Type::BOOLEAN => Self::Bool(least != 0, greatest != 0),
                    _ => Self::Long(least, greatest),
                })
            }
        }
    }

    /// Of these values and those.
    pub fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Text(a, b), Self::Text(c, d)) => Self::Text(a.min(c), b.max(d)),
            (Self::Long(a, b), Self::Long(c, d)) => Self::Long(a.min(c), b.max(d)),
            (Self::Int(a, b), Self::Int(c, d)) => Self::Int(a.min(c), b.max(d)),
            (Self::Double(a, b), Self::Double(c, d)) => Self::Double(a.min(c), b.max(d)),
            (Self::Bool(a, b), Self::Bool(c, d)) => Self::Bool(a && c, b || d),
            // A column has one type.
            (one, _) => one,
        }
    }

    /// As bytes of the page index; none where a bound cannot be made short.
    pub fn bytes(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        Some(match self {
            Self::Text(least, greatest) => (cut(least).to_vec(), above(greatest)?),
            Self::Long(least, greatest) => (least.to_le_bytes().into(), greatest.to_le_bytes().into()),
            Self::Int(least, greatest) => (least.to_le_bytes().into(), greatest.to_le_bytes().into()),
            Self::Double(least, greatest) => (least.to_le_bytes().into(), greatest.to_le_bytes().into()),
            Self::Bool(least, greatest) => (vec![(*least).into()], vec![(*greatest).into()]),
        })
    }

    /// As the statistics of a chunk with so many nulls, and, of doubles, so many that are no numbers.
    pub fn statistics(&self, nulls: u64, nans: Option<u64>) -> Statistics {
        let nulls = Some(nulls);
        match self {
            Self::Text(least, greatest) => {
                let (short, over) = (cut(least), above(greatest));
                let (exact_least, exact_greatest) =
                    (short.len() == least.len(), greatest.len() <= TEXT_BYTES);
                let values = ValueStatistics::new(
                    Some(ByteArray::from(short.to_vec())),
                    over.map(ByteArray::from),
                    None,
                    nulls,
                    false,
                );
                let values = values.with_min_is_exact(exact_least);
                Statistics::ByteArray(values.with_max_is_exact(exact_greatest))
            }
            Self::Long(least, greatest) => {
                Statistics::int64(Some(*least), Some(*greatest), None, nulls, false)
            }
            Self::Int(least, greatest) => {
                Statistics::int32(Some(*least), Some(*greatest), None, nulls, false)
            }
            Self::Double(least, greatest) => doubles(Some((*least, *greatest)), nulls, nans),
            Self::Bool(least, greatest) => {
                Statistics::boolean(Some(*least), Some(*greatest), None, nulls, false)
            }
        }
    }
}

/// The statistics of a chunk of doubles.
pub(crate) fn doubles(bounds: Option<(f64, f64)>, nulls: Option<u64>, nans: Option<u64>) -> Statistics {
    let (least, greatest) = bounds.unzip();
    let values = ValueStatistics::new(least, greatest, None, nulls, false);
    Statistics::Double(values.with_nan_count(nans))
}

/// The first bytes of a text as a number: texts are in the order of these numbers, where they differ.
#[inline]
fn prefix(text: &[u8]) -> u64 {
    match text.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut first = [0; 8];
            first[..text.len()].copy_from_slice(text);
            u64::from_be_bytes(first)
        }
    }
}

/// The text up to a whole character before the limit.
fn cut(text: &[u8]) -> &[u8] {
    if text.len() <= TEXT_BYTES {
        return text;
    }
    let begins = |at: &usize| text[*at] & 0xc0 != 0x80;
    &text[..(0..=TEXT_BYTES).rev().find(begins).unwrap_or_default()]
}

/// A text within the limit that no shorter than `text` is below: `text` itself, or its beginning with the last character
/// raised that can be.
fn above(text: &[u8]) -> Option<Vec<u8>> {
    if text.len() <= TEXT_BYTES {
        return Some(text.to_vec());
    }
    let mut short = std::str::from_utf8(cut(text)).ok()?.to_owned();
    while let Some(last) = short.pop() {
        let next = (u32::from(last) + 1..=char::MAX.into()).find_map(char::from_u32);
        if let Some(next) = next.filter(|next| short.len() + next.len_utf8() <= TEXT_BYTES) {
            short.push(next);
            return Some(short.into_bytes());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: texts around the limit, of characters of one to four bytes, and of the greatest of each.
    /// Guarantees: the lower bound is not above the text, the upper one not below, both are UTF-8 and short.
    #[test]
    fn cut_bounds_still_bound() {
        for character in [
            'a',
            '\u{7f}',
            'é',
            '\u{7ff}',
            '\u{d7ff}',
            '\u{ffff}',
            '\u{1f600}',
            '\u{10ffff}',
        ] {
            for length in 0..100 {
                let text = character.to_string().repeat(length) + "z";
                let bounds = Bounds::of_texts(std::iter::once(text.as_bytes())).unwrap();
                let Some((least, greatest)) = bounds.bytes() else {
                    assert_eq!(character, '\u{10ffff}');
                    continue;
                };
                assert!(
                    *least <= *text.as_bytes() && *text.as_bytes() <= *greatest,
                    "{text}"
                );
                assert!(least.len() <= TEXT_BYTES && greatest.len() <= TEXT_BYTES);
                assert!(std::str::from_utf8(&least).is_ok() && std::str::from_utf8(&greatest).is_ok());
            }
        }
    }

    /// Scenario: doubles with NaN and zeros of both signs.
    /// Guarantees: NaN is not in the bounds, both zeros are.
    #[test]
    fn bounds_of_doubles() {
        let of = |values: &[f64]| {
            Bounds::of_numbers(Type::DOUBLE, values.iter().map(|value| value.to_bits() as i64))
        };
        assert_eq!(of(&[f64::NAN]), None);
        assert_eq!(of(&[1.0, f64::NAN, -2.0]), Some(Bounds::Double(-2.0, 1.0)));
        let zeros = of(&[0.0, -0.0]).unwrap().bytes().unwrap();
        assert_eq!(
            zeros,
            ((-0.0f64).to_le_bytes().to_vec(), 0.0f64.to_le_bytes().to_vec())
        );
    }
}
