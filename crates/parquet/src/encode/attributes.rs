//! Attributes of one resource, scope or record, as they are read from the wire.

use std::io::Write;

use sluice_wire::{Fields, KeyValue, Value};

use super::json;
use super::keys::{Keys, SERVICE_NAME};
use super::scalar::{Scalar, usual};
use super::text::{is_ascii, mended};

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

/// What had to be changed for a table to be readable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Attributes whose key occurred before in the same list; the first one is kept. Readers refuse maps with a key twice.
    pub duplicate_keys: u64,
    /// Texts that were not UTF-8, with U+FFFD in the place of what was not.
    pub invalid_texts: u64,
    /// Lists and maps within a hundred others, with null in their place.
    pub deep_values: u64,
}

impl Repairs {
    /// Adds others to these.
    pub fn add(&mut self, other: Repairs) {
        self.duplicate_keys += other.duplicate_keys;
        self.invalid_texts += other.invalid_texts;
        self.deep_values += other.deep_values;
    }
}

/// What reading needs and leaves behind.
#[derive(Debug)]
pub(crate) struct Reading<'a> {
    pub keys: &'a mut Keys,
    pub repairs: &'a mut Repairs,
    /// Attributes of the record, event, link or exemplar at hand.
    pub pairs: Pairs<'a>,
}

impl<'a> Reading<'a> {
    /// Reads the attributes in field `number` of a message.
    pub fn read(&mut self, message: &'a [u8], number: u8) {
        let Self { keys, pairs, repairs } = self;
        pairs.begin(keys);
        let mut fields = Fields::of(message);
        loop {
            pairs.push_next(&mut fields, number, keys, repairs);
            let Some(field) = fields.next() else { break };
            if field.number == u32::from(number)
                && let Some(attribute) = field.bytes()
            {
                pairs.push(attribute, keys, repairs);
            }
        }
    }
}

/// A list of attributes of a request. Kept and filled again, so that it allocates nothing once it has grown.
#[derive(Debug, Default)]
pub(crate) struct Pairs<'a> {
    pairs: Vec<Pair<'a>>,
    pub types: Vec<u8>,
    /// Texts that are not on the wire as they are.
    written: Vec<u8>,
    /// Bytes of its keys and texts, all of which every row has.
    text_bytes: usize,
    /// The first key of the list before.
    first: u32,
    /// The key that is expected next.
    guess: u32,
}

#[derive(Debug, Clone, Copy)]
struct Pair<'a> {
    /// The key's number.
    key: u32,
    /// A text that is on the wire.
    text: &'a [u8],
    /// An integer, the bits of a double, a boolean; of a text that was written, where it begins and, in the lower half, ends.
    number: u64,
}

/// One of a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attribute<'a> {
    /// The key's number.
    pub key: u32,
    pub kind: u8,
    text: &'a [u8],
    number: u64,
    written: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// The text of a value that is no number.
    #[inline]
    pub fn text(&self) -> &'a [u8] {
        match self.number {
            0 => self.text,
            place => &self.written[(place >> 32) as usize..place as u32 as usize],
        }
    }

    /// The bits of a value that is a number.
    #[inline]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// A value as a text, which is written into `scratch` where it is a number.
    #[inline]
    pub fn value<'b>(&self, scratch: &'b mut Vec<u8>) -> &'b [u8]
    where
        'a: 'b,
    {
        match self.kind {
            kind::INT => {
                scratch.clear();
                write_int(scratch, self.number as i64);
                scratch
            }
            kind::BOOL => bool_text(self.number != 0),
            kind::DOUBLE => {
                scratch.clear();
                write_double(scratch, f64::from_bits(self.number));
                scratch
            }
            _ => self.text(),
        }
    }
}

impl<'a> Pairs<'a> {
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// Them, in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Attribute<'_>> {
        let attributes = self.pairs.iter().zip(&self.types);
        attributes.map(|(pair, kind)| Attribute {
            key: pair.key,
            kind: *kind,
            text: pair.text,
            number: pair.number,
            written: &self.written,
        })
    }

    /// Bytes a row with these takes before it is encoded.
    pub fn bytes(&self) -> usize {
        self.text_bytes + BYTES_EACH * self.len()
    }

    /// The service's name, if it is there and a string.
    pub fn service_name(&self) -> Option<&[u8]> {
        let name = self.iter().find(|attribute| attribute.key == SERVICE_NAME)?;
        (name.kind == kind::STRING).then(|| name.text())
    }

    /// Forgets what it had, for another list.
    #[inline]
    pub fn begin(&mut self, keys: &mut Keys) {
        keys.begin_list();
        self.guess = self.pairs.first().map_or(self.first, |pair| pair.key);
        self.first = self.guess;
        self.pairs.clear();
        self.types.clear();
        self.written.clear();
        self.text_bytes = 0;
    }

    /// Empty, for another request, with the room that it has.
    pub fn emptied<'b>(mut self) -> Pairs<'b> {
        let first = self.pairs.first().map_or(self.first, |pair| pair.key);
        self.pairs.clear();
        self.types.clear();
        let nothing = |pair: Pair<'a>| Pair {
            key: pair.key,
            text: &[],
            number: pair.number,
        };
        Pairs {
            // Collecting into the same kind of vector keeps its room.
            pairs: self.pairs.into_iter().map(nothing).collect(),
            types: self.types,
            written: self.written,
            text_bytes: 0,
            first,
            guess: first,
        }
    }

    /// Takes the attributes that come next, in fields of this number with less than 128 bytes, as nearly all of them are.
    #[inline]
    pub fn push_next(&mut self, fields: &mut Fields<'a>, number: u8, keys: &mut Keys, repairs: &mut Repairs) {
        while let Some(attribute) = fields.next_short(number) {
            self.push(attribute, keys, repairs);
        }
    }

    /// Takes an attribute, unless its key is there already.
    #[inline]
    pub fn push(&mut self, attribute: &'a [u8], keys: &mut Keys, repairs: &mut Repairs) {
        let (key, scalar) = match usual(attribute) {
            Some((key, scalar)) => (key, Some(scalar)),
            None => (KeyValue::parse(attribute).key_bytes(), None),
        };
        let key_bytes = key.len();
        let Some((key, after)) = keys.next(key, self.guess, repairs) else {
            return;
        };
        self.text_bytes += key_bytes;
        if key != self.guess
            && let Some(before) = self.pairs.last()
        {
            keys.set_after(before.key, key);
        }
        self.guess = after;
        let (kind, text, number) = match scalar {
            Some(Scalar::Text(text)) if is_ascii(text) => (kind::STRING, text, 0),
            Some(Scalar::Text(text)) => self.take_text(text, repairs),
            Some(Scalar::Number(kind, bits)) => (kind, &[][..], bits),
            None => self.take_value(attribute, repairs),
        };
        self.text_bytes += text.len();
        self.types.push(kind);
        self.pairs.push(Pair { key, text, number });
    }

    /// Takes a text that may have to be mended.
    #[inline(never)]
    fn take_text(&mut self, text: &'a [u8], repairs: &mut Repairs) -> (u8, &'a [u8], u64) {
        let Some(mended) = mended(text) else {
            return (kind::STRING, text, 0);
        };
        repairs.invalid_texts += 1;
        let start = self.written.len();
        self.written.extend_from_slice(mended.as_bytes());
        (kind::STRING, &[], self.place_from(start))
    }

    /// The place of what was written from `start` on.
    fn place_from(&mut self, start: usize) -> u64 {
        let end = self.written.len();
        self.text_bytes += end - start;
        (start as u64) << 32 | end as u64
    }

    /// Takes a value of any kind.
    #[inline(never)]
    fn take_value(&mut self, attribute: &'a [u8], repairs: &mut Repairs) -> (u8, &'a [u8], u64) {
        let attribute = KeyValue::parse(attribute);
        match attribute.value() {
            Some(Value::InvalidText(text)) => self.take_text(text, repairs),
            Some(Value::String(text)) => (kind::STRING, text.as_bytes(), 0),
            Some(Value::Int(value)) => (kind::INT, &[], value as u64),
            Some(Value::Bool(value)) => (kind::BOOL, &[], value.into()),
            Some(Value::Double(value)) => (kind::DOUBLE, &[], value.to_bits()),
            value => {
                let start = self.written.len();
                let kind = write_value(&mut self.written, value, repairs);
                (kind, &[], self.place_from(start))
            }
        }
    }
}

/// Bytes an attribute takes beside its key and its text: the digits of a number, and its place in columns.
const BYTES_EACH: usize = 16;

/// Appends a text, mended where it is not UTF-8.
#[inline]
pub(crate) fn push_text(out: &mut Vec<u8>, text: &[u8], repairs: &mut Repairs) {
    match is_ascii(text) {
        true => out.extend_from_slice(text),
        false => push_mended(out, text, repairs),
    }
}

#[inline(never)]
fn push_mended(out: &mut Vec<u8>, text: &[u8], repairs: &mut Repairs) {
    match mended(text) {
        None => out.extend_from_slice(text),
        Some(mended) => {
            repairs.invalid_texts += 1;
            out.extend_from_slice(mended.as_bytes());
        }
    }
}

/// Appends a value as text; returns its type.
pub(crate) fn write_value(out: &mut Vec<u8>, value: Option<Value<'_>>, repairs: &mut Repairs) -> u8 {
    match value {
        Some(Value::String(text)) => {
            out.extend_from_slice(text.as_bytes());
            kind::STRING
        }
        Some(Value::InvalidText(text)) => {
            push_mended(out, text, repairs);
            kind::STRING
        }
        Some(Value::Bool(value)) => {
            out.extend_from_slice(bool_text(value));
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
            json::write(out, Some(array), repairs);
            kind::ARRAY
        }
        Some(map @ Value::Map(_)) => {
            json::write(out, Some(map), repairs);
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

fn bool_text(value: bool) -> &'static [u8] {
    if value { b"true" } else { b"false" }
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

#[cfg(test)]
mod tests;
