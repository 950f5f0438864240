//! Views of metrics and their data points.

use std::iter::{Flatten, Skip};

use crate::cursor::{Field, Fields, short_delimited, wire};
use crate::message::{Message, MessageFields, is_delimited, views};
use crate::value::Attributes;

/// A view of a `Metric`.
#[derive(Debug, Clone, Copy)]
pub struct Metric<'a> {
    raw: &'a [u8],
    framed: &'a [u8],
}

views! {
    /// The metrics of a scope.
    Metrics of Metric, Fields<'a>, |field, unit: ()| {
        let () = unit;
        Metric { raw: field.value, framed: field.framed }
    }
}

/// Which sort of data a metric holds: the arm of its `data`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MetricKind {
    /// `Gauge`.
    Gauge,
    /// `Sum`.
    Sum,
    /// `Histogram`.
    Histogram,
    /// `ExponentialHistogram`.
    ExponentialHistogram,
    /// `Summary`.
    Summary,
}

impl MetricKind {
    const fn of_number(number: u32) -> Option<Self> {
        Some(match number {
            5 => Self::Gauge,
            7 => Self::Sum,
            9 => Self::Histogram,
            10 => Self::ExponentialHistogram,
            11 => Self::Summary,
            _ => return None,
        })
    }
}

impl<'a> Metric<'a> {
    pub(crate) fn all(fields: Fields<'a>) -> Metrics<'a> {
        Metrics {
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

    /// Its name; empty when absent.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.message().text(1)
    }

    /// Its description; empty when absent.
    #[must_use]
    pub fn description(&self) -> &'a str {
        self.message().text(2)
    }

    /// Its unit; empty when absent.
    #[must_use]
    pub fn unit(&self) -> &'a str {
        self.message().text(3)
    }

    /// Its metadata.
    #[must_use]
    pub fn metadata(&self) -> Attributes<'a> {
        Attributes::of(self.message(), 12)
    }

    /// Its data; `None` when it has none. Of several arms the last one counts, merged with its like directly before it.
    #[must_use]
    pub fn data(&self) -> Option<MetricData<'a>> {
        let (number, from) = self
            .message()
            .arm(|number| MetricKind::of_number(number).is_some())?;
        Some(MetricData {
            kind: MetricKind::of_number(number)?,
            metric: self.raw,
            number,
            from,
        })
    }

    /// Which sort of data it holds.
    #[must_use]
    pub fn kind(&self) -> Option<MetricKind> {
        self.data().map(|data| data.kind)
    }

    /// The data points; none when it has no data.
    pub fn points(&self) -> Flatten<std::option::IntoIter<Points<'a>>> {
        self.data().map(|data| data.points()).into_iter().flatten()
    }

    /// How many data points it holds; 0 when the framing is broken.
    #[must_use]
    pub fn items(&self) -> u64 {
        crate::count::message(crate::grammar::MessageId::Metric, self.raw).unwrap_or(0)
    }
}

/// What a metric begins with, up to its data: metrics that begin with the same bytes say the same of themselves, and hold data of the same kind.
#[derive(Debug, Clone)]
pub struct MetricHead {
    /// All fields before the data, and the data's key.
    bytes: Box<[u8]>,
    kind: MetricKind,
    number: u32,
    from: usize,
}

impl MetricHead {
    /// That of a metric with this data; `None` where the data is not the last of its fields.
    #[must_use]
    pub fn of(metric: &Metric<'_>, data: &MetricData<'_>) -> Option<Self> {
        let (mut before, mut end, mut key) = (0, 0, 0);
        for field in Fields::of(metric.raw) {
            before = end;
            end += field.framed.len();
            key = field.framed[0];
        }
        let is_last = u32::from(key) == data.number << 3 | u32::from(wire::LEN);
        (is_last && end == metric.raw.len()).then(|| Self {
            bytes: metric.raw[..=before].into(),
            kind: data.kind,
            number: data.number,
            from: data.from,
        })
    }

    /// The data of a metric that begins with these bytes and holds nothing behind its data; `None` for others.
    #[inline]
    #[must_use]
    pub fn data_of<'a>(&self, metric: &Metric<'a>) -> Option<MetricData<'a>> {
        let rest = metric.raw.strip_prefix(&*self.bytes)?;
        let (_, behind) = short_delimited(rest)?;
        behind.is_empty().then_some(MetricData {
            kind: self.kind,
            metric: metric.raw,
            number: self.number,
            from: self.from,
        })
    }

    /// How many bytes it keeps.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// A view of the data of a metric: `Gauge`, `Sum`, `Histogram`, `ExponentialHistogram` or `Summary`.
#[derive(Debug, Clone, Copy)]
pub struct MetricData<'a> {
    kind: MetricKind,
    metric: &'a [u8],
    number: u32,
    /// Field of the metric from which on no other arm follows.
    from: usize,
}

impl<'a> MetricData<'a> {
    /// Which sort of data it is.
    #[must_use]
    pub const fn kind(&self) -> MetricKind {
        self.kind
    }

    fn fields(&self) -> DataFields<'a> {
        DataFields {
            arms: Fields::of(self.metric).skip(self.from),
            number: self.number,
            inner: Fields::default(),
        }
    }

    fn varint(&self, number: u32) -> u64 {
        self.fields()
            .filter(|field| field.number == number)
            .filter_map(|field| field.varint())
            .last()
            .unwrap_or(0)
    }

    /// The `AggregationTemporality`; 0 (unspecified) for gauges and summaries, which have none.
    #[must_use]
    pub fn temporality(&self) -> i32 {
        match self.kind {
            MetricKind::Gauge | MetricKind::Summary => 0,
            _ => self.varint(2) as i32,
        }
    }

    /// Whether a sum only grows; `false` for all other kinds.
    #[must_use]
    pub fn is_monotonic(&self) -> bool {
        self.kind == MetricKind::Sum && self.varint(3) != 0
    }

    /// Its data points, in wire order.
    #[must_use]
    pub fn points(&self) -> Points<'a> {
        Points {
            fields: self.fields(),
            number: 1,
            kind: self.kind,
        }
    }
}

/// The fields of a metric's data, its occurrences merged.
#[derive(Debug, Clone)]
struct DataFields<'a> {
    arms: Skip<Fields<'a>>,
    number: u32,
    inner: Fields<'a>,
}

impl<'a> DataFields<'a> {
    /// The next delimited field of this number.
    #[inline]
    fn next_delimited(&mut self, number: u32) -> Option<Field<'a>> {
        match self.inner.next_delimited(number) {
            Some(field) => Some(field),
            None => self.next_of_arms(number),
        }
    }

    /// The same, where there is none in the occurrence that is being read.
    #[inline(never)]
    fn next_of_arms(&mut self, number: u32) -> Option<Field<'a>> {
        loop {
            let arm = self
                .arms
                .find(|field| field.number == self.number && is_delimited(field))?;
            self.inner = Fields::of(arm.value);
            if let Some(field) = self.inner.next_delimited(number) {
                return Some(field);
            }
        }
    }
}

impl<'a> Iterator for DataFields<'a> {
    type Item = Field<'a>;

    #[inline]
    fn next(&mut self) -> Option<Field<'a>> {
        loop {
            if let Some(field) = self.inner.next() {
                return Some(field);
            }
            let arm = self
                .arms
                .find(|field| field.number == self.number && is_delimited(field))?;
            self.inner = Fields::of(arm.value);
        }
    }
}

views! {
    /// The data points of a metric.
    Points of Point, DataFields<'a>, |field, kind: MetricKind| {
        Point { kind, raw: field.value, framed: field.framed }
    }
}

/// A view of a data point of any kind.
#[derive(Debug, Clone, Copy)]
pub struct Point<'a> {
    kind: MetricKind,
    raw: &'a [u8],
    framed: &'a [u8],
}

/// The value of a number data point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// `as_int`.
    Int(i64),
    /// `as_double`.
    Double(f64),
}

impl<'a> Point<'a> {
    /// Of which kind of metric it is.
    #[must_use]
    pub const fn kind(&self) -> MetricKind {
        self.kind
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

    /// Start of the interval it covers, in Unix nanoseconds; 0 when unknown.
    #[must_use]
    pub fn start_time_unix_nano(&self) -> u64 {
        self.message().fixed64(2).unwrap_or(0)
    }

    /// Its time, in Unix nanoseconds; 0 when unknown.
    #[must_use]
    pub fn time_unix_nano(&self) -> u64 {
        self.message().fixed64(3).unwrap_or(0)
    }

    /// Its attributes.
    #[must_use]
    pub fn attributes(&self) -> Attributes<'a> {
        let number = match self.kind {
            MetricKind::Gauge | MetricKind::Sum | MetricKind::Summary => 7,
            MetricKind::Histogram => 9,
            MetricKind::ExponentialHistogram => 1,
        };
        Attributes::of(self.message(), number)
    }

    /// `DataPointFlags`.
    #[must_use]
    pub fn flags(&self) -> u32 {
        let number = match self.kind {
            MetricKind::Gauge | MetricKind::Sum | MetricKind::Summary => 8,
            MetricKind::Histogram | MetricKind::ExponentialHistogram => 10,
        };
        self.message().varint(number) as u32
    }

    /// The value of a point of a gauge or sum; `None` when absent, or for another kind.
    #[must_use]
    pub fn value(&self) -> Option<Number> {
        if !matches!(self.kind, MetricKind::Gauge | MetricKind::Sum) {
            return None;
        }
        let last = self
            .message()
            .fields()
            .filter(|field| field.wire == wire::FIXED64 && matches!(field.number, 4 | 6));
        let field = last.last()?;
        let bits = field.fixed64()?;
        Some(if field.number == 4 {
            Number::Double(f64::from_bits(bits))
        } else {
            Number::Int(bits as i64)
        })
    }

    /// The count of a histogram or summary point; `None` for a number point.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        match self.kind {
            MetricKind::Gauge | MetricKind::Sum => None,
            _ => Some(self.message().fixed64(4).unwrap_or(0)),
        }
    }

    /// The sum of a histogram or summary point; `None` when absent, or for a number point.
    #[must_use]
    pub fn sum(&self) -> Option<f64> {
        match self.kind {
            MetricKind::Gauge | MetricKind::Sum => None,
            _ => self.message().fixed64(5).map(f64::from_bits),
        }
    }

    /// All fields as they are, number and raw value, for what this view does not name (buckets, quantiles, exemplars).
    pub fn raw_fields(&self) -> impl Iterator<Item = (u32, &'a [u8])> {
        let fields: MessageFields<'a> = self.message().fields();
        fields.map(|field| (field.number, field.value))
    }
}

#[cfg(test)]
mod tests;
