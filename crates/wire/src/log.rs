//! Views of log records.

use crate::cursor::Fields;
use crate::message::{Message, views};
use crate::value::{Attributes, Value};

/// A view of a `LogRecord`.
#[derive(Debug, Clone, Copy)]
pub struct LogRecord<'a> {
    raw: &'a [u8],
    framed: &'a [u8],
}

views! {
    /// The log records of a scope.
    LogRecords of LogRecord, Fields<'a>, |field, unit: ()| {
        let () = unit;
        LogRecord { raw: field.value, framed: field.framed }
    }
}

impl<'a> LogRecord<'a> {
    pub(crate) fn all(fields: Fields<'a>) -> LogRecords<'a> {
        LogRecords {
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

    /// When it happened, in Unix nanoseconds; 0 when unknown.
    #[must_use]
    pub fn time_unix_nano(&self) -> u64 {
        self.message().fixed64(1).unwrap_or(0)
    }

    /// When it was observed, in Unix nanoseconds; 0 when unknown.
    #[must_use]
    pub fn observed_time_unix_nano(&self) -> u64 {
        self.message().fixed64(11).unwrap_or(0)
    }

    /// The `SeverityNumber`, 1 to 24; 0 when unspecified.
    #[must_use]
    pub fn severity_number(&self) -> i32 {
        self.message().varint(2) as i32
    }

    /// The severity as the source wrote it; empty when absent.
    #[must_use]
    pub fn severity_text(&self) -> &'a str {
        self.message().text(3)
    }

    /// Number and text of the severity, in one pass.
    #[must_use]
    pub fn severity(&self) -> (i32, &'a str) {
        let (mut number, mut text) = (0, &[][..]);
        for field in self.message().fields() {
            match field.number {
                2 => number = field.varint().unwrap_or(0) as i32,
                3 => text = field.bytes().unwrap_or_default(),
                _ => {}
            }
        }
        (number, crate::message::text(text).unwrap_or_default())
    }

    /// The body; `None` when absent or empty.
    #[must_use]
    pub fn body(&self) -> Option<Value<'a>> {
        Value::of(Message::within(self.raw, 5))
    }

    /// Its attributes.
    #[must_use]
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes::of(self.message(), 6)
    }

    /// How many attributes the sender has dropped.
    #[must_use]
    pub fn dropped_attributes_count(&self) -> u32 {
        self.message().varint(7) as u32
    }

    /// `LogRecordFlags`.
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.message().fixed32(8)
    }

    /// The trace it belongs to; `None` when absent or not 16 bytes.
    #[must_use]
    pub fn trace_id(&self) -> Option<&'a [u8; 16]> {
        self.message().bytes(9)?.try_into().ok()
    }

    /// The span it belongs to; `None` when absent or not 8 bytes.
    #[must_use]
    pub fn span_id(&self) -> Option<&'a [u8; 8]> {
        self.message().bytes(10)?.try_into().ok()
    }

    /// The name of the event it is; empty when it is none.
    #[must_use]
    pub fn event_name(&self) -> &'a str {
        self.message().text(12)
    }
}
