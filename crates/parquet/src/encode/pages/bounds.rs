//! The least and the greatest value of a page or chunk, by which readers skip.

use parquet::basic::Type;
use parquet::data_type::ByteArray;
use parquet::file::statistics::{Statistics, ValueStatistics};

/// Longer texts are cut, as most writers do: bounds are for skipping, and a file has them for every page.
pub(crate) const TEXT_BYTES: usize = 64;

/// Bounds of the values of one physical type; what they mean is in its variant.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Bounds {
    Text(Texts),
    Long(i64, i64),
    Int(i32, i32),
    Double(f64, f64),
    Bool(bool, bool),
}

/// Bounds of texts, which are cut as soon as they are known: they are kept until the row group ends.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Texts {
    least: Vec<u8>,
    /// None where the greatest text is long and nothing above it is short.
    greatest: Option<Vec<u8>>,
    /// Whether they are texts that there are.
    least_is_exact: bool,
    greatest_is_exact: bool,
}

impl Texts {
    fn new(least: &[u8], greatest: &[u8]) -> Self {
        Self {
            least: cut(least).to_vec(),
            greatest: above(greatest),
            least_is_exact: least.len() <= TEXT_BYTES,
            greatest_is_exact: greatest.len() <= TEXT_BYTES,
        }
    }

    fn with(self, other: Self) -> Self {
        // Where both are the same and one is exact, it is the bound of both: the other text is on its inner side.
        let (least, not_least) = (
            (self.least, !self.least_is_exact),
            (other.least, !other.least_is_exact),
        );
        let (least, least_is_cut) = least.min(not_least);
        let (greatest, greatest_is_exact) = match (self.greatest, other.greatest) {
            (Some(one), Some(two)) => {
                let (greatest, exact) = (one, self.greatest_is_exact).max((two, other.greatest_is_exact));
                (Some(greatest), exact)
            }
            _ => (None, false),
        };
        Self {
            least,
            greatest,
            least_is_exact: !least_is_cut,
            greatest_is_exact,
        }
    }
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
        Some(Self::Text(Texts::new(least, greatest)))
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
            (Self::Text(one), Self::Text(other)) => Self::Text(one.with(other)),
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
            Self::Text(texts) => (texts.least.clone(), texts.greatest.clone()?),
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
            Self::Text(texts) => {
                let values = ValueStatistics::new(
                    Some(ByteArray::from(texts.least.clone())),
                    texts.greatest.clone().map(ByteArray::from),
                    None,
                    nulls,
                    false,
                );
                let values = values.with_min_is_exact(texts.least_is_exact);
                Statistics::ByteArray(values.with_max_is_exact(texts.greatest_is_exact))
            }
            Self::Long(least, greatest) => {
                Statistics::int64(Some(*least), Some(*greatest), None, nulls, false)
            }
            Self::Int(least, greatest) => {
                Statistics::int32(Some(*least), Some(*greatest), None, nulls, false)
            }
            // Beside NaN none: they are not the bounds of every value, and DataFusion 55 takes a column whose bounds are one number for that
            // number everywhere. Those of pages are there.
            Self::Double(least, greatest) => {
                let has_nans = nans.is_some_and(|nans| nans > 0);
                doubles((!has_nans).then_some((*least, *greatest)), nulls, nans)
            }
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

    /// Scenario: chunks of two pages, each of a text that is short, long, or as long as the limit, in either order.
    /// Guarantees: no page keeps more than the limit, the chunk's bounds hold both texts, and are called exact only where they are
    /// such a text.
    #[test]
    fn bounds_of_pages_are_cut_when_they_are_made() {
        let texts = ["a", "b", "c"].map(|letter| {
            let with = |length, end: &str| letter.repeat(length) + end;
            [
                with(1, ""),
                with(TEXT_BYTES, ""),
                with(TEXT_BYTES, "z"),
                with(100, ""),
            ]
        });
        let texts: Vec<String> = texts
            .into_iter()
            .flatten()
            .chain(["\u{10ffff}".repeat(50)])
            .collect();
        let of = |text: &str| Bounds::of_texts(std::iter::once(text.as_bytes())).unwrap();
        for one in &texts {
            for other in &texts {
                let bounds = of(one).with(of(other));
                let Bounds::Text(kept) = &bounds else {
                    panic!("{bounds:?}")
                };
                assert!(kept.least.capacity() <= TEXT_BYTES);
                assert!(kept.greatest.as_ref().is_none_or(|text| text.len() <= TEXT_BYTES));
                let (least, greatest) = (one.min(other).as_bytes(), one.max(other).as_bytes());
                let Statistics::ByteArray(said) = bounds.statistics(0, None) else {
                    panic!("{bounds:?}")
                };
                let min = said.min_bytes_opt().unwrap();
                assert!(min <= least);
                assert_eq!(said.min_is_exact(), min == least, "{one} {other}");
                let Some(max) = said.max_bytes_opt() else {
                    assert!(!said.max_is_exact() && greatest.starts_with("\u{10ffff}".as_bytes()));
                    continue;
                };
                assert!(max >= greatest);
                assert_eq!(said.max_is_exact(), max == greatest, "{one} {other}");
            }
        }
    }

    /// Scenario: a chunk of one number, without and with NaN beside it.
    /// Guarantees: it has bounds only where they are those of every value.
    #[test]
    fn chunks_with_nan_have_no_bounds() {
        for (nans, are_there) in [(0, true), (1, false)] {
            let said = Bounds::Double(5.0, 5.0).statistics(0, Some(nans));
            assert_eq!(said.min_bytes_opt().is_some(), are_there);
            assert_eq!(said.max_bytes_opt().is_some(), are_there);
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
