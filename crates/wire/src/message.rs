//! One message, however many times it occurs: what the views read their fields from.

use crate::cursor::{Field, Fields, wire};

/// A message: bytes, or all occurrences of one singular field, which protobuf merges into one message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    bytes: &'a [u8],
    /// Number of the singular field whose occurrences in `bytes` are the message; 0: `bytes` itself.
    number: u32,
}

impl<'a> Message<'a> {
    /// The message these bytes are.
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, number: 0 }
    }

    /// The singular message in field `number` of the message `parent` is.
    pub const fn within(parent: &'a [u8], number: u32) -> Self {
        Self {
            bytes: parent,
            number,
        }
    }

    /// Its fields, in wire order.
    #[inline]
    pub fn fields(self) -> MessageFields<'a> {
        let (outer, inner) = if self.number == 0 {
            (Fields::default(), Fields::of(self.bytes))
        } else {
            (Fields::of(self.bytes), Fields::default())
        };
        MessageFields {
            number: self.number,
            outer,
            inner,
        }
    }

    /// Whether it occurs at all.
    pub fn is_present(self) -> bool {
        self.number == 0 || delimited(Fields::of(self.bytes), self.number).next().is_some()
    }

    /// The last string in field `number`; empty when absent.
    pub fn text(self, number: u32) -> &'a str {
        self.bytes(number).and_then(text).unwrap_or_default()
    }

    /// The last delimited value in field `number`.
    pub fn bytes(self, number: u32) -> Option<&'a [u8]> {
        delimited(self.fields(), number).last()
    }

    /// The last varint in field `number`; 0 when absent.
    pub fn varint(self, number: u32) -> u64 {
        self.fields()
            .filter(|field| field.number == number)
            .filter_map(|field| field.varint())
            .last()
            .unwrap_or(0)
    }

    /// The last eight-byte value in field `number`.
    pub fn fixed64(self, number: u32) -> Option<u64> {
        self.fields()
            .filter(|field| field.number == number)
            .filter_map(|field| field.fixed64())
            .last()
    }

    /// The last four-byte value in field `number`; 0 when absent.
    pub fn fixed32(self, number: u32) -> u32 {
        self.fields()
            .filter(|field| field.number == number)
            .filter_map(|field| field.fixed32())
            .last()
            .unwrap_or(0)
    }

    /// The arm of a oneof of messages that counts, its number among `arms`, and from which field on only that arm
    /// follows: its occurrences from there on are one merged message.
    pub fn arm(self, arms: impl Fn(u32) -> bool) -> Option<(u32, usize)> {
        let mut current = None;
        for (index, field) in self.fields().enumerate() {
            if arms(field.number) && current.is_none_or(|(number, _)| number != field.number) {
                current = Some((field.number, index));
            }
        }
        current
    }
}

/// The fields of a [`Message`].
#[derive(Debug, Clone)]
pub(crate) struct MessageFields<'a> {
    number: u32,
    outer: Fields<'a>,
    inner: Fields<'a>,
}

impl<'a> MessageFields<'a> {
    /// The next delimited field of this number.
    #[inline]
    pub fn next_delimited(&mut self, number: u32) -> Option<Field<'a>> {
        loop {
            if let Some(field) = self.inner.next_delimited(number) {
                return Some(field);
            }
            self.inner = Fields::of(self.outer.seek_delimited(self.number)?.value);
        }
    }
}

impl<'a> Iterator for MessageFields<'a> {
    type Item = Field<'a>;

    #[inline]
    fn next(&mut self) -> Option<Field<'a>> {
        loop {
            if let Some(field) = self.inner.next() {
                return Some(field);
            }
            self.inner = Fields::of(delimited(&mut self.outer, self.number).next()?);
        }
    }
}

/// The delimited values of field `number`.
pub(crate) fn delimited<'a>(
    fields: impl Iterator<Item = Field<'a>>,
    number: u32,
) -> impl Iterator<Item = &'a [u8]> {
    fields
        .filter(move |field| field.number == number)
        .filter_map(|field| field.bytes())
}

/// Bytes as text; `None` when they are not UTF-8.
pub(crate) fn text(bytes: &[u8]) -> Option<&str> {
    simdutf8::basic::from_utf8(bytes).ok()
}

/// An iterator over the delimited values of one field, each made a view of.
macro_rules! views {
    ($(#[$doc:meta])* $name:ident of $view:ident, $fields:ty, |$field:ident, $state:ident: $state_type:ty| $make:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct $name<'a> {
            fields: $fields,
            number: u32,
            $state: $state_type,
        }

        impl<'a> Iterator for $name<'a> {
            type Item = $view<'a>;

            #[inline]
            fn next(&mut self) -> Option<$view<'a>> {
                let $field = self.fields.next_delimited(self.number)?;
                let $state = self.$state;
                Some($make)
            }
        }
    };
}
pub(crate) use views;

/// Whether a field is delimited.
pub(crate) fn is_delimited(field: &Field<'_>) -> bool {
    field.wire == wire::LEN
}
