//! Attributes of one resource, scope or record, as the texts and types that go into a map column.

use std::collections::HashSet;
use std::io::Write;

use sluice_wire::{Fields, KeyValue, Value};

use super::json;

/// From so many attributes on, a set finds the keys that occur twice; below, looking at each of them is quicker.
const LINEAR_UP_TO: usize = 24;

/// What each value was, one letter an attribute.
pub(crate) mod kind {
    pub const STRING: u8 = b's';
    pub const BOOL: u8 = b'b';
    pub const INT: u8 = b'i';
    pub const DOUBLE: u8 = b'd';
    pub const ARRAY: u8 = b'a';
    pub const MAP: u8 = b'm';
    pub const BYTES: u8 = b'y';
    pub const EMPTY: u8 = b'n';
}

/// Attributes as texts. Kept and filled again, so that it allocates nothing once it has grown.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    pub keys: Vec<u8>,
    pub key_ends: Vec<u32>,
    pub values: Vec<u8>,
    pub value_ends: Vec<u32>,
    pub types: Vec<u8>,
    /// Of each key, see [`fingerprint`].
    pub fingerprints: Vec<u64>,
}

/// What had to be changed for a table to be readable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Attributes whose key occurred before in the same list; the first one is kept. Readers refuse maps with a key twice.
    pub duplicate_keys: u64,
    /// Texts that were not UTF-8, with U+FFFD in the place of what was not.
    pub invalid_texts: u64,
}

impl Repairs {
    /// Adds others to these.
    pub fn add(&mut self, other: Repairs) {
        self.duplicate_keys += other.duplicate_keys;
        self.invalid_texts += other.invalid_texts;
    }
}

impl Pairs {
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// Bytes a row with these takes before it is encoded.
    pub fn bytes(&self) -> usize {
        self.keys.len() + self.values.len() + 9 * self.len()
    }

    pub fn key(&self, index: usize) -> &[u8] {
        slice(&self.keys, &self.key_ends, index)
    }

    pub fn value(&self, index: usize) -> &[u8] {
        slice(&self.values, &self.value_ends, index)
    }

    pub fn clear(&mut self) {
        self.keys.clear();
        self.key_ends.clear();
        self.values.clear();
        self.value_ends.clear();
        self.types.clear();
        self.fingerprints.clear();
    }

    /// Takes these attributes in the place of what it had.
    pub fn fill<'a>(&mut self, attributes: impl Iterator<Item = KeyValue<'a>>, repairs: &mut Repairs) {
        self.clear();
        let mut seen: HashSet<Vec<u8>> = HashSet::new();
        for attribute in attributes {
            let (key, any) = match parts(attribute.raw()) {
                Some((key, any)) => (key, Some(any)),
                None => (attribute.key_bytes(), attribute.value_raw()),
            };
            if !self.push_key(key, &mut seen, repairs) {
                continue;
            }
            let kind = match any.and_then(only_text) {
                Some(text) => {
                    push_text(&mut self.values, text, repairs);
                    kind::STRING
                }
                None => self.push_value(&attribute, repairs),
            };
            self.types.push(kind);
            self.value_ends.push(self.values.len() as u32);
        }
    }

    /// Takes a key, unless it is there already.
    #[inline]
    fn push_key(&mut self, key: &[u8], seen: &mut HashSet<Vec<u8>>, repairs: &mut Repairs) -> bool {
        let start = self.keys.len();
        push_text(&mut self.keys, key, repairs);
        let fingerprint = fingerprint(&self.keys[start..]);
        if self.is_known(start, fingerprint, seen) {
            repairs.duplicate_keys += 1;
            self.keys.truncate(start);
            return false;
        }
        self.key_ends.push(self.keys.len() as u32);
        self.fingerprints.push(fingerprint);
        true
    }

    /// Takes a value of any kind.
    #[inline(never)]
    fn push_value(&mut self, attribute: &KeyValue<'_>, repairs: &mut Repairs) -> u8 {
        match attribute.value() {
            // Also what a text that is not UTF-8 reads as.
            Some(Value::String("")) => {
                push_text(
                    &mut self.values,
                    invalid_text(attribute).unwrap_or_default(),
                    repairs,
                );
                kind::STRING
            }
            value => write_value(&mut self.values, value),
        }
    }

    /// Whether the key from `start` on is there already.
    #[inline]
    fn is_known(&self, start: usize, fingerprint: u64, seen: &mut HashSet<Vec<u8>>) -> bool {
        let (known, new) = self.keys.split_at(start);
        let count = self.fingerprints.len();
        if count < LINEAR_UP_TO {
            let mut alike = (0..count).filter(|index| self.fingerprints[*index] == fingerprint);
            return alike.any(|index| slice(known, &self.key_ends, index) == new);
        }
        if seen.is_empty() {
            seen.extend((0..count).map(|index| slice(known, &self.key_ends, index).to_vec()));
        }
        !seen.insert(new.to_vec())
    }
}

/// Key and `AnyValue` of an attribute as nearly all of them are written: one after the other, shorter than 128 bytes.
#[inline]
fn parts(attribute: &[u8]) -> Option<(&[u8], &[u8])> {
    let (key, rest) = short(attribute, 0x0a)?;
    let (any, rest) = short(rest, 0x12)?;
    rest.is_empty().then_some((key, any))
}

/// The text of an `AnyValue` that is one and nothing else.
#[inline]
fn only_text(any: &[u8]) -> Option<&[u8]> {
    let (text, rest) = short(any, 0x0a)?;
    rest.is_empty().then_some(text)
}

/// The delimited field with this key that `bytes` begin with, if it is shorter than 128 bytes, and what follows.
#[inline]
fn short(bytes: &[u8], key: u8) -> Option<(&[u8], &[u8])> {
    match bytes {
        [first, length, rest @ ..] if *first == key && *length < 0x80 => {
            rest.split_at_checked(usize::from(*length))
        }
        _ => None,
    }
}

/// A number that differs, as good as always, where keys differ: both ends of the key and its length.
#[inline]
pub(crate) fn fingerprint(key: &[u8]) -> u64 {
    // An odd number with bits all over: 2^64 over the golden ratio.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let (first, last) = match (key.first_chunk::<8>(), key.last_chunk::<8>()) {
        (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
        _ => (key.iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte)), 0),
    };
    let mixed = (first.wrapping_mul(SPREAD) ^ last).wrapping_add(key.len() as u64);
    let mixed = mixed.wrapping_mul(SPREAD);
    mixed ^ mixed >> 32
}

/// Appends a text, mended where it is not UTF-8.
#[inline]
fn push_text(out: &mut Vec<u8>, text: &[u8], repairs: &mut Repairs) {
    match text.is_ascii() {
        true => out.extend_from_slice(text),
        false => push_mended(out, text, repairs),
    }
}

#[inline(never)]
fn push_mended(out: &mut Vec<u8>, text: &[u8], repairs: &mut Repairs) {
    let mended = String::from_utf8_lossy(text);
    repairs.invalid_texts += u64::from(matches!(mended, std::borrow::Cow::Owned(_)));
    out.extend_from_slice(mended.as_bytes());
}

/// The bytes of a string value that reads as empty and is not.
#[cold]
fn invalid_text<'a>(attribute: &KeyValue<'a>) -> Option<&'a [u8]> {
    let last = Fields::of(attribute.value_raw()?)
        .filter(|field| field.number == 1)
        .last();
    last?.bytes().filter(|text| !text.is_empty())
}

#[inline]
fn slice<'a>(bytes: &'a [u8], ends: &[u32], index: usize) -> &'a [u8] {
    let start = match index {
        0 => 0,
        _ => ends[index - 1] as usize,
    };
    &bytes[start..ends[index] as usize]
}

/// Appends a value as text; returns its type.
pub(crate) fn write_value(out: &mut Vec<u8>, value: Option<Value<'_>>) -> u8 {
    match value {
        Some(Value::String(text)) => {
            out.extend_from_slice(text.as_bytes());
            kind::STRING
        }
        Some(Value::Bool(value)) => {
            out.extend_from_slice(if value { b"true" } else { b"false" });
            kind::BOOL
        }
        Some(Value::Int(value)) => {
            write_int(out, value);
            kind::INT
        }
        Some(Value::Double(value)) => {
            write_double(out, value);
            kind::DOUBLE
        }
        Some(array @ Value::Array(_)) => {
            json::write(out, Some(array));
            kind::ARRAY
        }
        Some(map @ Value::Map(_)) => {
            json::write(out, Some(map));
            kind::MAP
        }
        Some(Value::Bytes(bytes)) => {
            json::write_base64(out, bytes);
            kind::BYTES
        }
        // A string of a profiles dictionary means nothing here.
        _ => kind::EMPTY,
    }
}

pub(crate) fn write_int(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// The shortest digits that read back as the same number, always with a point or an exponent.
pub(crate) fn write_double(out: &mut Vec<u8>, value: f64) {
    // Writing to memory does not fail.
    let _ = match value {
        value if value.is_nan() => out.write_all(b"NaN"),
        f64::INFINITY => out.write_all(b"Infinity"),
        f64::NEG_INFINITY => out.write_all(b"-Infinity"),
        value => write!(out, "{value:?}"),
    };
}
