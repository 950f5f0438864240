//! Types for settings: values with their place, secrets, sizes and percentages.
//!
//! `std::time::Duration` needs no type of its own: the deserializer reads it in Go's syntax (`"1m30s"`).

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use crate::coerce::parse_byte_size;
use crate::node::{Source, Span};

/// The name by which the deserializer recognises a [`Spanned`].
pub(crate) const SPANNED: &str = "$sluice::Spanned";
/// The fields of a [`Spanned`] as the deserializer gives them.
pub(crate) const SPANNED_FIELDS: &[&str] = &["source", "line", "column", "value"];

/// A value that knows where it was written, for errors and warnings found after decoding.
#[derive(Clone, Debug)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Where it was written.
    pub span: Span,
}

impl<T> Deref for Spanned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// Equality of values: places do not count.
impl<T: PartialEq> PartialEq for Spanned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Spanned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SpannedVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for SpannedVisitor<T> {
            type Value = Spanned<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value with its place")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                fn key<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
                    let found = map.next_key::<String>()?;
                    let missing =
                        || de::Error::custom("a value with its place comes only from sluice-config");
                    found.map(drop).ok_or_else(missing)
                }
                key(&mut map)?;
                let source = map.next_value::<String>()?;
                key(&mut map)?;
                let line = map.next_value::<u32>()?;
                key(&mut map)?;
                let column = map.next_value::<u32>()?;
                key(&mut map)?;
                let value = map.next_value::<T>()?;
                Ok(Spanned {
                    value,
                    span: Span::new(Source::new(source), line, column),
                })
            }
        }

        deserializer.deserialize_struct(SPANNED, SPANNED_FIELDS, SpannedVisitor(PhantomData))
    }
}

/// Text that must not be shown: passwords, tokens, keys, header values. `Debug` and `Display` hide it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes text into hiding.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself; for use, not for show.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(crate::print::REDACTED)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(crate::print::REDACTED)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Secret)
    }
}

/// A size in bytes: an integer, or text such as `"64MiB"` or `"4MB"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_byte_size(&text).map(ByteSize).map_err(de::Error::custom)
    }
}

/// A share of a whole in percent, from 0 to 100: `80`, `12.5` or `"80%"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Percent(pub f64);

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let number = text.trim().trim_end_matches('%').trim_end().parse::<f64>();
        match number {
            Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Percent(percent)),
            _ => Err(de::Error::custom(format!(
                "expected a percentage from 0 to 100; found {text:?}"
            ))),
        }
    }
}
