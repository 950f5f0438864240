//! Views of spans.

use crate::cursor::Fields;
use crate::message::{Message, views};
use crate::value::Attributes;

/// A view of a `Span`.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    raw: &'a [u8],
    framed: &'a [u8],
}

views! {
    /// The spans of a scope.
    Spans of Span, Fields<'a>, |field, unit: ()| {
        let () = unit;
        Span { raw: field.value, framed: field.framed }
    }
}

impl<'a> Span<'a> {
    pub(crate) fn all(fields: Fields<'a>) -> Spans<'a> {
        Spans {
            fields,
            number: 2,
            unit: (),
        }
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

    const fn message(&self) -> Message<'a> {
        Message::of(self.raw)
    }

    /// Its trace; `None` when absent or not 16 bytes.
    #[must_use]
    pub fn trace_id(&self) -> Option<&'a [u8; 16]> {
        self.message().bytes(1)?.try_into().ok()
    }

    /// Its id; `None` when absent or not 8 bytes.
    #[must_use]
    pub fn span_id(&self) -> Option<&'a [u8; 8]> {
        self.message().bytes(2)?.try_into().ok()
    }

    /// Its parent; `None` for a root span, or when not 8 bytes.
    #[must_use]
    pub fn parent_span_id(&self) -> Option<&'a [u8; 8]> {
        self.message().bytes(4)?.try_into().ok()
    }

    /// W3C `tracestate`; empty when absent.
    #[must_use]
    pub fn trace_state(&self) -> &'a str {
        self.message().text(3)
    }

    /// W3C trace flags and whether the parent is remote.
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.message().fixed32(16)
    }

    /// Its name; empty when absent.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.message().text(5)
    }

    /// The `SpanKind`; 0 when unspecified.
    #[must_use]
    pub fn kind(&self) -> i32 {
        self.message().varint(6) as i32
    }

    /// When it started, in Unix nanoseconds; 0 when unknown.
    #[must_use]
    pub fn start_time_unix_nano(&self) -> u64 {
        self.message().fixed64(7).unwrap_or(0)
    }

    /// When it ended, in Unix nanoseconds; 0 when unknown.
    #[must_use]
    pub fn end_time_unix_nano(&self) -> u64 {
        self.message().fixed64(8).unwrap_or(0)
    }

    /// Its attributes.
    #[must_use]
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes::of(self.message(), 9)
    }

    /// How many attributes the sender has dropped.
    #[must_use]
    pub fn dropped_attributes_count(&self) -> u32 {
        self.message().varint(10) as u32
    }

    /// The bytes of its events.
    pub fn events(&self) -> impl Iterator<Item = &'a [u8]> {
        crate::message::delimited(self.message().fields(), 11)
    }

    /// The bytes of its links.
    pub fn links(&self) -> impl Iterator<Item = &'a [u8]> {
        crate::message::delimited(self.message().fields(), 13)
    }

    /// The `StatusCode`; 0 (unset) when absent.
    #[must_use]
    pub fn status_code(&self) -> i32 {
        Message::within(self.raw, 15).varint(3) as i32
    }

    /// The message of its status; empty when absent.
    #[must_use]
    pub fn status_message(&self) -> &'a str {
        Message::within(self.raw, 15).text(2)
    }
}
