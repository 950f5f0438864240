//! Views of what all requests have in common: the request, its resources and their scopes.

use std::ops::Range;

use crate::count;
use crate::cursor::Fields;
use crate::grammar::MessageId;
use crate::kind::Kind;
use crate::log::{LogRecord, LogRecords};
use crate::message::{Message, views};
use crate::metric::{Metric, Metrics};
use crate::span::{Span, Spans};
use crate::value::Attributes;

/// A view of one `Export*ServiceRequest`.
///
/// Views borrow the body and read it on the way; they belong on a body that has passed [`crate::validate`]. On other
/// bytes they never panic, but end early where the framing is broken and read a string that is not UTF-8 as empty.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    kind: Kind,
    body: &'a [u8],
}

impl<'a> Request<'a> {
    /// A view of `body`.
    #[must_use]
    pub const fn new(kind: Kind, body: &'a [u8]) -> Self {
        Self { kind, body }
    }

    /// Which request it is.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The bytes of the request.
    #[must_use]
    pub const fn raw(&self) -> &'a [u8] {
        self.body
    }

    /// Its resources, in wire order.
    #[must_use]
    #[inline]
    pub fn resources(&self) -> Resources<'a> {
        Resources {
            fields: Fields::of(self.body),
            number: 1,
            kind: self.kind,
        }
    }

    /// How many items it holds; 0 when the framing is broken.
    #[must_use]
    pub fn items(&self) -> u64 {
        count::message(self.kind.root(), self.body).unwrap_or(0)
    }
}

views! {
    /// The resources of a request.
    Resources of ResourceItems, Fields<'a>, |field, kind: Kind| {
        ResourceItems { kind, raw: field.value, framed: field.framed }
    }
}

/// A view of one `ResourceMetrics`, `ResourceLogs`, `ResourceSpans` or `ResourceProfiles`.
#[derive(Debug, Clone, Copy)]
pub struct ResourceItems<'a> {
    kind: Kind,
    raw: &'a [u8],
    framed: &'a [u8],
}

impl<'a> ResourceItems<'a> {
    /// The bytes of the message.
    #[must_use]
    pub const fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// The bytes of the message with its key and length before them: an export request of this resource alone.
    #[must_use]
    pub const fn framed(&self) -> &'a [u8] {
        self.framed
    }

    /// The resource; all occurrences merged, absent reads as empty.
    #[must_use]
    pub const fn resource(&self) -> Resource<'a> {
        Resource {
            message: Message::within(self.raw, 1),
        }
    }

    /// The schema URL of the resource; empty when absent.
    #[must_use]
    pub fn schema_url(&self) -> &'a str {
        Message::of(self.raw).text(3)
    }

    /// Its scopes, in wire order.
    #[must_use]
    #[inline]
    pub fn scopes(&self) -> Scopes<'a> {
        Scopes {
            fields: Fields::of(self.raw),
            number: 2,
            kind: self.kind,
        }
    }

    /// How many items it holds; 0 when the framing is broken.
    #[must_use]
    pub fn items(&self) -> u64 {
        let id = match self.kind {
            Kind::Metrics => MessageId::ResourceMetrics,
            Kind::Logs => MessageId::ResourceLogs,
            Kind::Traces => MessageId::ResourceSpans,
            Kind::Profiles => MessageId::ResourceProfiles,
        };
        count::message(id, self.raw).unwrap_or(0)
    }
}

views! {
    /// The scopes of a resource.
    Scopes of ScopeItems, Fields<'a>, |field, kind: Kind| {
        ScopeItems { kind, raw: field.value, framed: field.framed }
    }
}

/// A view of one `ScopeMetrics`, `ScopeLogs`, `ScopeSpans` or `ScopeProfiles`.
#[derive(Debug, Clone, Copy)]
pub struct ScopeItems<'a> {
    kind: Kind,
    raw: &'a [u8],
    framed: &'a [u8],
}

impl<'a> ScopeItems<'a> {
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

    /// The scope; all occurrences merged, absent reads as empty.
    #[must_use]
    pub const fn scope(&self) -> Scope<'a> {
        Scope {
            message: Message::within(self.raw, 1),
        }
    }

    /// The schema URL of the scope; empty when absent.
    #[must_use]
    pub fn schema_url(&self) -> &'a str {
        Message::of(self.raw).text(3)
    }

    /// How many items it holds; 0 when the framing is broken.
    #[must_use]
    pub fn items(&self) -> u64 {
        let id = match self.kind {
            Kind::Metrics => MessageId::ScopeMetrics,
            Kind::Logs => MessageId::ScopeLogs,
            Kind::Traces => MessageId::ScopeSpans,
            Kind::Profiles => MessageId::ScopeProfiles,
        };
        count::message(id, self.raw).unwrap_or(0)
    }

    /// Its metrics; none unless the request is [`Kind::Metrics`].
    #[must_use]
    #[inline]
    pub fn metrics(&self) -> Metrics<'a> {
        Metric::all(self.only(Kind::Metrics))
    }

    /// Its log records; none unless the request is [`Kind::Logs`].
    #[must_use]
    #[inline]
    pub fn log_records(&self) -> LogRecords<'a> {
        LogRecord::all(self.only(Kind::Logs))
    }

    /// Its spans; none unless the request is [`Kind::Traces`].
    #[must_use]
    #[inline]
    pub fn spans(&self) -> Spans<'a> {
        Span::all(self.only(Kind::Traces))
    }

    fn only(&self, kind: Kind) -> Fields<'a> {
        if self.kind == kind {
            Fields::of(self.raw)
        } else {
            Fields::default()
        }
    }
}

/// A view of a `Resource`.
#[derive(Debug, Clone, Copy)]
pub struct Resource<'a> {
    message: Message<'a>,
}

impl<'a> Resource<'a> {
    /// Whether the request has a resource here at all.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.message.is_present()
    }

    /// Its attributes.
    #[must_use]
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes::of(self.message, 1)
    }

    /// How many attributes the sender has dropped.
    #[must_use]
    pub fn dropped_attributes_count(&self) -> u32 {
        self.message.varint(2) as u32
    }
}

/// A view of an `InstrumentationScope`.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    message: Message<'a>,
}

impl<'a> Scope<'a> {
    /// Whether the request has a scope here at all.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.message.is_present()
    }

    /// Its name; empty when absent.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.message.text(1)
    }

    /// Its version; empty when absent.
    #[must_use]
    pub fn version(&self) -> &'a str {
        self.message.text(2)
    }

    /// Its attributes.
    #[must_use]
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes::of(self.message, 3)
    }

    /// How many attributes the sender has dropped.
    #[must_use]
    pub fn dropped_attributes_count(&self) -> u32 {
        self.message.varint(4) as u32
    }
}

/// Where `part`, the `raw` or `framed` bytes of a view, lies in the body it was read from: what [`crate::Edits`] takes.
/// `None` when `part` is not a slice of `body`.
#[must_use]
pub fn range_of(body: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(body.as_ptr() as usize)?;
    let end = start.checked_add(part.len())?;
    (end <= body.len()).then_some(start..end)
}
