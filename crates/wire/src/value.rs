//! Attributes and their values.

use crate::cursor::{Fields, wire};
use crate::message::{Message, MessageFields, text, views};

/// One attribute: a key and a value.
#[derive(Debug, Clone, Copy)]
pub struct KeyValue<'a> {
    raw: &'a [u8],
    framed: &'a [u8],
}

impl<'a> KeyValue<'a> {
    /// The `KeyValue` these bytes are; [`KeyValue::framed`] is then the same bytes.
    #[must_use]
    pub const fn parse(raw: &'a [u8]) -> Self {
        Self { raw, framed: raw }
    }

    /// The bytes of the message.
    #[must_use]
    pub const fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// The bytes of the message with its key and length before them.
    #[must_use]
    pub const fn framed(&self) -> &'a [u8] {
        self.framed
    }

    /// The key; empty when absent.
    #[must_use]
    pub fn key(&self) -> &'a str {
        text(self.key_bytes()).unwrap_or_default()
    }

    /// The bytes of the key, unchecked.
    #[must_use]
    #[inline]
    pub fn key_bytes(&self) -> &'a [u8] {
        Message::of(self.raw).bytes(1).unwrap_or_default()
    }

    /// The value; `None` when absent or empty.
    #[must_use]
    pub fn value(&self) -> Option<Value<'a>> {
        Value::of(Message::within(self.raw, 2))
    }

    /// The bytes of the `AnyValue`, where there is exactly one occurrence of it.
    #[must_use]
    pub fn value_raw(&self) -> Option<&'a [u8]> {
        let mut values = Fields::of(self.raw)
            .filter(|field| field.number == 2)
            .filter_map(|field| field.bytes());
        values.next().filter(|_| values.next().is_none())
    }

    /// The value if it is a string.
    #[must_use]
    pub fn string_value(&self) -> Option<&'a str> {
        match self.value() {
            Some(Value::String(text)) => Some(text),
            _ => None,
        }
    }
}

views! {
    /// The attributes of a message, in wire order.
    Attributes of KeyValue, MessageFields<'a>, |field, unit: ()| {
        let () = unit;
        KeyValue { raw: field.value, framed: field.framed }
    }
}

impl<'a> Attributes<'a> {
    pub(crate) fn of(message: Message<'a>, number: u32) -> Self {
        Self {
            fields: message.fields(),
            number,
            unit: (),
        }
    }

    /// The value of the first attribute with this key; `None` when there is none or it is empty.
    #[must_use]
    pub fn get(mut self, key: &str) -> Option<Value<'a>> {
        self.find(|attribute| attribute.key_bytes() == key.as_bytes())?
            .value()
    }

    /// The value of the first attribute with this key if it is a string.
    #[must_use]
    pub fn get_str(self, key: &str) -> Option<&'a str> {
        match self.get(key) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        }
    }
}

/// The value of an `AnyValue`.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Value<'a> {
    /// `string_value`.
    String(&'a str),
    /// `bool_value`.
    Bool(bool),
    /// `int_value`.
    Int(i64),
    /// `double_value`.
    Double(f64),
    /// `array_value`.
    Array(Array<'a>),
    /// `kvlist_value`.
    Map(Map<'a>),
    /// `bytes_value`.
    Bytes(&'a [u8]),
    /// `string_value_strindex`: a string of a profiles dictionary.
    StringIndex(i32),
    /// `string_value` that is not UTF-8, which only shallow validation lets in.
    InvalidText(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The value of the `AnyValue` these bytes are; `None` when empty.
    #[must_use]
    pub fn parse(any_value: &'a [u8]) -> Option<Self> {
        Self::of(Message::of(any_value))
    }

    pub(crate) fn of(any: Message<'a>) -> Option<Self> {
        // The last arm counts; the same message arm merges with what came directly before it.
        let mut value = None;
        let mut arm = (0, 0);
        for (index, field) in any.fields().enumerate() {
            let read = match (field.number, field.wire) {
                (1, wire::LEN) => text(field.value).map_or(Self::InvalidText(field.value), Self::String),
                (2, wire::VARINT) => Self::Bool(field.varint() != Some(0)),
                (3, wire::VARINT) => Self::Int(field.varint().unwrap_or(0) as i64),
                (4, wire::FIXED64) => Self::Double(f64::from_bits(field.fixed64().unwrap_or(0))),
                (5, wire::LEN) => {
                    let from = if arm.0 == 5 { arm.1 } else { index };
                    Self::Array(Array { any, from })
                }
                (6, wire::LEN) => {
                    let from = if arm.0 == 6 { arm.1 } else { index };
                    Self::Map(Map { any, from })
                }
                (7, wire::LEN) => Self::Bytes(field.value),
                (8, wire::VARINT) => Self::StringIndex(field.varint().unwrap_or(0) as i32),
                _ => continue,
            };
            if arm.0 != field.number {
                arm = (field.number, index);
            }
            value = Some(read);
        }
        value
    }
}

/// The values of an `ArrayValue`.
#[derive(Debug, Clone, Copy)]
pub struct Array<'a> {
    any: Message<'a>,
    from: usize,
}

impl<'a> Array<'a> {
    /// Its values, in order; `None` for an empty one.
    pub fn values(self) -> impl Iterator<Item = Option<Value<'a>>> {
        merged(self.any, self.from, 5).map(|value| Value::of(Message::of(value)))
    }
}

/// The pairs of a `KeyValueList`.
#[derive(Debug, Clone, Copy)]
pub struct Map<'a> {
    any: Message<'a>,
    from: usize,
}

impl<'a> Map<'a> {
    /// Its pairs, in order.
    pub fn pairs(self) -> impl Iterator<Item = KeyValue<'a>> {
        let lists = self
            .any
            .fields()
            .skip(self.from)
            .filter(|field| field.number == 6);
        lists
            .filter_map(|field| field.bytes())
            .flat_map(Fields::of)
            .filter(|field| field.number == 1)
            .filter_map(|field| {
                Some(KeyValue {
                    raw: field.bytes()?,
                    framed: field.framed,
                })
            })
    }
}

/// The delimited values in field 1 of all occurrences of field `number` of `any`, from its field `from` on.
fn merged<'a>(any: Message<'a>, from: usize, number: u32) -> impl Iterator<Item = &'a [u8]> {
    let lists = any
        .fields()
        .skip(from)
        .filter(move |field| field.number == number);
    let fields = lists.filter_map(|field| field.bytes()).flat_map(Fields::of);
    fields
        .filter(|field| field.number == 1)
        .filter_map(|field| field.bytes())
}
