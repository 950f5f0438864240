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
    }

    /// Takes these attributes in the place of what it had.
    pub fn fill<'a>(&mut self, attributes: impl Iterator<Item = KeyValue<'a>>, repairs: &mut Repairs) {
        self.clear();
        let mut seen: HashSet<Vec<u8>> = HashSet::new();
        for attribute in attributes {
            let value = match attribute.value() {
                // Also what a text that is not UTF-8 reads as.
                Some(Value::String("")) => match invalid_text(&attribute) {
                    Some(text) => {
                        repairs.invalid_texts += 1;
                        let text = String::from_utf8_lossy(text);
                        self.push(
                            attribute.key_bytes(),
                            Some(Value::String(&text)),
                            &mut seen,
                            repairs,
                        );
                        continue;
                    }
                    None => Some(Value::String("")),
                },
                value => value,
            };
            self.push(attribute.key_bytes(), value, &mut seen, repairs);
        }
    }

    #[inline]
    fn push(
        &mut self,
        key: &[u8],
        value: Option<Value<'_>>,
        seen: &mut HashSet<Vec<u8>>,
        repairs: &mut Repairs,
    ) {
        let start = self.keys.len();
        match std::str::from_utf8(key) {
            Ok(_) => self.keys.extend_from_slice(key),
            Err(_) => {
                repairs.invalid_texts += 1;
                self.keys
                    .extend_from_slice(String::from_utf8_lossy(key).as_bytes());
            }
        }
        if self.is_known(start, seen) {
            repairs.duplicate_keys += 1;
            self.keys.truncate(start);
            return;
        }
        self.key_ends.push(self.keys.len() as u32);
        self.types.push(write_value(&mut self.values, value));
        self.value_ends.push(self.values.len() as u32);
    }

    /// Whether the key from `start` on is there already.
    fn is_known(&self, start: usize, seen: &mut HashSet<Vec<u8>>) -> bool {
        let (known, new) = self.keys.split_at(start);
        if self.len() < LINEAR_UP_TO {
            return (0..self.len()).any(|index| slice(known, &self.key_ends, index) == new);
        }
        if seen.is_empty() {
            seen.extend((0..self.len()).map(|index| slice(known, &self.key_ends, index).to_vec()));
        }
        !seen.insert(new.to_vec())
    }
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
    // Writing to memory does not fail.
    let _ = write!(out, "{value}");
}

/// The shortest digits that read back as the same number, always with a point or an exponent.
pub(crate) fn write_double(out: &mut Vec<u8>, value: f64) {
    let _ = match value {
        value if value.is_nan() => out.write_all(b"NaN"),
        f64::INFINITY => out.write_all(b"Infinity"),
        f64::NEG_INFINITY => out.write_all(b"-Infinity"),
        value => write!(out, "{value:?}"),
    };
}
