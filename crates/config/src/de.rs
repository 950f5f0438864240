//! The serde deserializer over nodes. Strict about names, lenient about spellings:
//!
//! - Structs refuse unknown keys always, and all of them are noted, not only the first.
//! - A bare `key:` in a struct counts as absent, so that its default holds.
//! - Text stands for a boolean or number where one is expected (`"512"` from the environment), and a number or
//!   boolean for text where that is expected, in its original spelling.
//! - `std::time::Duration` is read in Go's syntax. Text where a list is expected is split at commas.

use std::cell::RefCell;
use std::fmt;

use serde::de::value::{BorrowedStrDeserializer, SeqDeserializer, StrDeserializer, U32Deserializer};
use serde::de::{
    self, DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use crate::coerce::{parse_bool, parse_duration, parse_int, resolve_plain};
use crate::error::Problem;
use crate::node::{Entry, Node, Span, Value};
use crate::suggest::nearest;
use crate::types::{SPANNED, SPANNED_FIELDS};

/// One step from a node to a node within it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

/// The way from the decoded root to a node, kept on the stack while walking.
#[derive(Clone, Copy)]
pub(crate) enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl Path<'_> {
    fn steps(&self) -> Vec<Step> {
        match self {
            Path::Root => Vec::new(),
            Path::Key(parent, key) => {
                let mut steps = parent.steps();
                steps.push(Step::Key((*key).to_owned()));
                steps
            }
            Path::Index(parent, index) => {
                let mut steps = parent.steps();
                steps.push(Step::Index(*index));
                steps
            }
        }
    }
}

/// Writes a key path as a person would: `receivers.otlp.protocols.http.cors.allowed_origins[1]`.
pub(crate) fn render(prefix: &str, steps: &[Step]) -> String {
    let mut text = prefix.to_owned();
    for step in steps {
        match step {
            Step::Key(key) if text.is_empty() => text.push_str(key),
            Step::Key(key) => {
                text.push('.');
                text.push_str(key);
            }
            Step::Index(index) => text.push_str(&format!("[{index}]")),
        }
    }
    text
}

/// Why a value could not be decoded.
#[derive(Debug)]
pub(crate) struct DecodeError {
    pub(crate) message: String,
    /// The place and path of the value at fault; set on the way out by the first node that knows.
    pub(crate) place: Option<(Span, Vec<Step>)>,
    /// The key whose absence is the fault.
    pub(crate) missing: Option<&'static str>,
    /// Whether the value was empty because of an unset variable, which has been warned about already.
    pub(crate) empty: bool,
}

impl DecodeError {
    fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            place: None,
            missing: None,
            empty: false,
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DecodeError {}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(unexpected: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        // Text may be a secret in the wrong place; numbers and the like are not.
        match unexpected {
            de::Unexpected::Str(_) => Self::new(format!("expected {expected}; found text")),
            _ => Self::new(format!("expected {expected}; found {unexpected}")),
        }
    }

    fn invalid_value(unexpected: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::new(format!("expected {expected}; found {unexpected}"))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let guess = match nearest(variant, expected.iter().copied()) {
            Some(name) => format!("; did you mean {name:?}?"),
            None if variant.starts_with('$') => "; a variable is written ${env:NAME}.".to_owned(),
            None => ";".to_owned(),
        };
        Self::new(format!(
            "{variant:?} is not a known value{guess} Known values: {}",
            expected.join(", ")
        ))
    }

    fn missing_field(field: &'static str) -> Self {
        Self {
            missing: Some(field),
            ..Self::new(format!("the key {field:?} is required; add it"))
        }
    }
}

/// What all deserializers of one decoding share.
pub(crate) struct Context<'a> {
    /// The path of the root, such as `receivers.otlp/internal`.
    pub(crate) prefix: &'a str,
    /// The unknown keys met so far.
    pub(crate) unknown: RefCell<Vec<Problem>>,
}

impl Context<'_> {
    fn note_unknown(&self, entry: &Entry, path: &Path<'_>, known: &[&str]) {
        let place = match render(self.prefix, &path.steps()) {
            place if place.is_empty() => "the configuration".to_owned(),
            place => place,
        };
        let guess = match nearest(&entry.key, known.iter().copied()) {
            Some(name) => format!("; did you mean {name:?}?"),
            None => "; remove it.".to_owned(),
        };
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        };
        let message = format!(
            "unknown key {:?} in {place}{guess} Known keys: {known}",
            entry.key
        );
        self.unknown
            .borrow_mut()
            .push(Problem::at(&entry.key_span, message));
    }
}

/// Deserializes one node.
#[derive(Clone, Copy)]
pub(crate) struct NodeDeserializer<'de, 'p> {
    pub(crate) node: &'de Node,
    pub(crate) path: &'p Path<'p>,
    pub(crate) context: &'p Context<'p>,
}

type Result<T> = std::result::Result<T, DecodeError>;

impl<'de> NodeDeserializer<'de, '_> {
    /// Gives an error that has no place yet this node's place.
    fn placed<T>(self, result: Result<T>) -> Result<T> {
        result.map_err(|mut error| {
            error
                .place
                .get_or_insert_with(|| (self.node.span.clone(), self.path.steps()));
            error
        })
    }

    /// A scalar of the wrong kind is shown; text where a list or map belongs may be a secret, and is not.
    fn mismatch<T>(self, expected: &str) -> Result<T> {
        let collection = matches!(expected, "a map" | "a list");
        let found = match &self.node.value {
            Value::String(text) if !collection => format!("{text:?}"),
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
                self.node.as_text().unwrap_or(self.node.value.kind()).to_owned()
            }
            other => other.kind().to_owned(),
        };
        let mut error = DecodeError::new(format!("expected {expected}; found {found}"));
        error.empty = self.node.is_null() && self.node.text.is_some();
        self.placed(Err(error))
    }

    /// The scalar's text: its spelling as written.
    fn text(self) -> Option<&'de str> {
        match (&self.node.value, &self.node.text) {
            (Value::String(text), _) => Some(text),
            (_, Some(text)) => Some(text),
            (Value::Null, None) => Some(""),
            _ => None,
        }
    }

    fn integer(self) -> Option<i128> {
        match &self.node.value {
            Value::Int(int) => Some(*int),
            Value::String(text) => parse_int(text.trim()),
            #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^53")]
            Value::Float(float) if float.fract() == 0.0 && float.abs() < 9.0e15 => Some(*float as i128),
            _ => None,
        }
    }

    fn visit_integer<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let Some(int) = self.integer() else {
            return self.mismatch("a whole number");
        };
        let result = if let Ok(unsigned) = u64::try_from(int) {
            visitor.visit_u64(unsigned)
        } else if let Ok(signed) = i64::try_from(int) {
            visitor.visit_i64(signed)
        } else {
            Err(DecodeError::new(format!("{int} does not fit into 64 bits")))
        };
        self.placed(result)
    }

    fn visit_mapping<V: Visitor<'de>>(
        self,
        fields: Option<&'static [&'static str]>,
        visitor: V,
    ) -> Result<V::Value> {
        let entries: &[Entry] = match &self.node.value {
            Value::Mapping(mapping) => mapping.entries(),
            Value::Null => &[],
            _ => return self.mismatch("a map"),
        };
        let access = EntryAccess {
            parent: self,
            entries: entries.iter(),
            current: None,
            fields,
        };
        self.placed(visitor.visit_map(access))
    }

    fn visit_duration<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let text = match &self.node.value {
            Value::String(text) => text.trim(),
            Value::Int(0) => "0",
            Value::Int(int) => {
                let message = format!("the duration {int} needs a unit, such as \"{int}s\" or \"{int}ms\"");
                return self.placed(Err(DecodeError::new(message)));
            }
            _ => return self.mismatch("a duration such as \"200ms\" or \"1m30s\""),
        };
        let duration = self.placed(parse_duration(text).map_err(DecodeError::new))?;
        let parts = [duration.as_secs(), u64::from(duration.subsec_nanos())];
        visitor.visit_seq(SeqDeserializer::new(parts.into_iter()))
    }
}

impl<'de> de::Deserializer<'de> for NodeDeserializer<'de, '_> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let result = match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(_) => return self.visit_integer(visitor),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Sequence(_) => return self.deserialize_seq(visitor),
            Value::Mapping(_) => return self.visit_mapping(None, visitor),
        };
        self.placed(result)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let value = match &self.node.value {
            Value::Bool(value) => Some(*value),
            Value::Int(0) => Some(false),
            Value::Int(1) => Some(true),
            Value::String(text) => parse_bool(text.trim()),
            _ => None,
        };
        match value {
            Some(value) => self.placed(visitor.visit_bool(value)),
            None => self.mismatch("true or false"),
        }
    }

    fn deserialize_i8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.visit_integer(visitor)
    }

    fn deserialize_i16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.visit_integer(visitor)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.visit_integer(visitor)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.visit_integer(visitor)
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.visit_integer(visitor)
    }

    fn deserialize_u16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.visit_integer(visitor)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.visit_integer(visitor)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.visit_integer(visitor)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let resolved;
        let value = match &self.node.value {
            Value::String(text) => {
                resolved = resolve_plain(text.trim());
                &resolved
            }
            value => value,
        };
        match value {
            Value::Float(value) => self.placed(visitor.visit_f64(*value)),
            Value::Int(value) => self.placed(visitor.visit_f64(*value as f64)),
            _ => self.mismatch("a number"),
        }
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.text() {
            Some(text) => self.placed(visitor.visit_borrowed_str(text)),
            None => self.mismatch("text"),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if self.node.is_null() && self.node.text.is_none() {
            self.placed(visitor.visit_none())
        } else {
            self.placed(visitor.visit_some(self))
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if self.node.is_null() {
            self.placed(visitor.visit_unit())
        } else {
            self.mismatch("nothing")
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        self.placed(visitor.visit_newtype_struct(self))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match &self.node.value {
            Value::Sequence(items) => self.placed(visitor.visit_seq(ItemAccess {
                parent: self,
                items: items.iter().enumerate(),
            })),
            Value::Null => self.placed(visitor.visit_seq(ItemAccess {
                parent: self,
                items: [].iter().enumerate(),
            })),
            Value::String(text) => {
                let span = &self.node.span;
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                self.placed(visitor.visit_seq(SeqDeserializer::new(parts.map(|text| Part { text, span }))))
            }
            _ => self.mismatch("a list"),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.visit_mapping(None, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        match (name, fields) {
            (SPANNED, _) => {
                let span = &self.node.span;
                self.placed(visitor.visit_map(SpannedAccess {
                    span,
                    value: self,
                    step: 0,
                }))
            }
            ("Duration", ["secs", "nanos"]) => self.visit_duration(visitor),
            _ => self.visit_mapping(Some(fields), visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        match &self.node.value {
            Value::Mapping(mapping) if mapping.len() == 1 => {
                let entry = &mapping.entries()[0];
                self.placed(visitor.visit_enum(VariantOf { parent: self, entry }))
            }
            Value::Null | Value::Mapping(_) | Value::Sequence(_) => self.mismatch("one word"),
            _ => match self.text() {
                Some(text) => self.placed(visitor.visit_enum(StrDeserializer::<DecodeError>::new(text))),
                None => self.mismatch("one word"),
            },
        }
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_unit()
    }
}

/// Walks the entries of a map. With `fields`, keys outside them are noted and skipped, and bare keys count as absent.
struct EntryAccess<'de, 'p> {
    parent: NodeDeserializer<'de, 'p>,
    entries: std::slice::Iter<'de, Entry>,
    current: Option<&'de Entry>,
    fields: Option<&'static [&'static str]>,
}

impl<'de> MapAccess<'de> for EntryAccess<'de, '_> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        for entry in self.entries.by_ref() {
            if let Some(fields) = self.fields {
                if !fields.contains(&entry.key.as_str()) {
                    self.parent.context.note_unknown(entry, self.parent.path, fields);
                    continue;
                }
                if entry.value.is_null() && entry.value.text.is_none() {
                    continue;
                }
            }
            self.current = Some(entry);
            return seed
                .deserialize(BorrowedStrDeserializer::new(&entry.key))
                .map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        let Some(entry) = self.current.take() else {
            return Err(DecodeError::new("a value was asked for before its key"));
        };
        let path = Path::Key(self.parent.path, &entry.key);
        child(&entry.value, &path, self.parent.context, seed)
    }
}

struct ItemAccess<'de, 'p> {
    parent: NodeDeserializer<'de, 'p>,
    items: std::iter::Enumerate<std::slice::Iter<'de, Node>>,
}

impl<'de> SeqAccess<'de> for ItemAccess<'de, '_> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        let Some((index, node)) = self.items.next() else {
            return Ok(None);
        };
        let path = Path::Index(self.parent.path, index);
        child(node, &path, self.parent.context, seed).map(Some)
    }
}

fn child<'de, S: DeserializeSeed<'de>>(
    node: &'de Node,
    path: &Path<'_>,
    context: &Context<'_>,
    seed: S,
) -> Result<S::Value> {
    let deserializer = NodeDeserializer { node, path, context };
    // Errors that a type raises itself, after reading, have no place yet: it is this one.
    deserializer.placed(seed.deserialize(deserializer))
}

/// Gives a [`Spanned`](crate::Spanned) its place, then its value.
struct SpannedAccess<'de, D> {
    span: &'de Span,
    value: D,
    step: usize,
}

impl<'de, D: de::Deserializer<'de, Error = DecodeError> + Copy> MapAccess<'de> for SpannedAccess<'de, D> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        match SPANNED_FIELDS.get(self.step) {
            Some(field) => seed.deserialize(BorrowedStrDeserializer::new(field)).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        self.step += 1;
        match self.step {
            1 => seed.deserialize(StrDeserializer::new(self.span.source.as_str())),
            2 => seed.deserialize(U32Deserializer::new(self.span.line)),
            3 => seed.deserialize(U32Deserializer::new(self.span.column)),
            _ => seed.deserialize(self.value),
        }
    }
}

/// One part of a text that stands for a list: `a, b`.
#[derive(Clone, Copy)]
struct Part<'de> {
    text: &'de str,
    span: &'de Span,
}

impl<'de> IntoDeserializer<'de, DecodeError> for Part<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> de::Deserializer<'de> for Part<'de> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_borrowed_str(self.text)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        match name {
            SPANNED => visitor.visit_map(SpannedAccess {
                span: self.span,
                value: self,
                step: 0,
            }),
            _ => Err(DecodeError::new("expected a map; found text")),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_enum(StrDeserializer::<DecodeError>::new(self.text))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

/// An enum variant with content: `variant: content`.
struct VariantOf<'de, 'p> {
    parent: NodeDeserializer<'de, 'p>,
    entry: &'de Entry,
}

impl<'de, 'p> EnumAccess<'de> for VariantOf<'de, 'p> {
    type Error = DecodeError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self)> {
        let name = seed.deserialize(BorrowedStrDeserializer::<DecodeError>::new(&self.entry.key))?;
        Ok((name, self))
    }
}

impl<'de> VariantAccess<'de> for VariantOf<'de, '_> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<()> {
        self.newtype_variant_seed(std::marker::PhantomData)
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value> {
        let path = Path::Key(self.parent.path, &self.entry.key);
        child(&self.entry.value, &path, self.parent.context, seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value> {
        let path = Path::Key(self.parent.path, &self.entry.key);
        let node = NodeDeserializer {
            node: &self.entry.value,
            path: &path,
            context: self.parent.context,
        };
        de::Deserializer::deserialize_seq(node, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let path = Path::Key(self.parent.path, &self.entry.key);
        let node = NodeDeserializer {
            node: &self.entry.value,
            path: &path,
            context: self.parent.context,
        };
        node.visit_mapping(Some(fields), visitor)
    }
}
