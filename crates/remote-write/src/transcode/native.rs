//! Exponential histograms to native ones.

use sluice_wire::{Field, Fields};

use super::exemplars::exemplars;
use super::histogram::HistogramPoint;
use super::number::Head;
use super::point::Attributes;
use super::{Context, STALE_NAN, Sample, Sink, Value, Walk, milliseconds};
use crate::dropped::Reason;
use crate::labels::Extra;
use crate::protobuf::{put_delimited, put_double, put_uint, put_varint, unzigzag, zigzag};

/// Schemas of native histograms: the coarsest and the finest.
const COARSEST: i32 = -4;
const FINEST: i32 = 8;

/// What counts as zero, where a point does not say: client_golang's, and Prometheus's for OTLP.
const ZERO_THRESHOLD: f64 = 1e-128;

/// Up to so many empty buckets are written; more make a new span.
const MAX_EMPTY: i64 = 2;

/// The buckets of one sign.
#[derive(Debug, Default)]
struct Buckets {
    offset: i32,
    counts: Vec<u64>,
}

impl Buckets {
    fn clear(&mut self) {
        self.offset = 0;
        self.counts.clear();
    }

    /// Reads a `Buckets` message; a second one is merged into the first.
    fn read(&mut self, raw: &[u8]) {
        for field in Fields::of(raw) {
            match field.number {
                1 => self.offset = field.varint().map_or(self.offset, |value| unzigzag(value) as i32),
                2 => varints(&field, &mut self.counts),
                _ => {}
            }
        }
    }

    /// Buckets of a coarser schema, by index: `2^levels` neighbours become one. Empty ones are left out, the last one is
    /// not, as in Prometheus's own translation.
    fn merged(&self, levels: u32) -> Vec<(i64, i64)> {
        let mut merged: Vec<(i64, i64)> = Vec::new();
        let last = self.counts.len().saturating_sub(1);
        for (index, count) in self.counts.iter().enumerate() {
            // OTLP's bucket 0 begins where Prometheus's bucket 0 ends.
            let index_there = ((i64::from(self.offset) + index as i64) >> levels.min(63)) + 1;
            match merged.last_mut() {
                Some((at, sum)) if *at == index_there => *sum = sum.wrapping_add(*count as i64),
                _ if *count == 0 && index != last => {}
                _ => merged.push((index_there, *count as i64)),
            }
        }
        merged
    }

    /// Writes spans and deltas into the fields with these numbers.
    fn put(&self, out: &mut Vec<u8>, levels: u32, spans_field: u32, deltas_field: u32) {
        if self.counts.is_empty() {
            return;
        }
        let mut spans: Vec<(i64, u64)> = Vec::new();
        let mut deltas: Vec<u8> = Vec::new();
        let first = (i64::from(self.offset) >> levels.min(63)) + 1;
        let (mut next, mut before) = (first, 0i64);
        let mut put = |spans: &mut Vec<(i64, u64)>, count: i64| {
            if let Some((_, length)) = spans.last_mut() {
                *length += 1;
            }
            put_varint(&mut deltas, zigzag(count.wrapping_sub(before)));
            before = count;
        };
        spans.push((first, 0));
        for (index, count) in self.merged(levels) {
            let gap = index - next;
            if gap > MAX_EMPTY {
                spans.push((gap, 0));
            } else {
                for _ in 0..gap {
                    put(&mut spans, 0);
                }
            }
            put(&mut spans, count);
            next = index + 1;
        }
        let mut span = Vec::new();
        for (offset, length) in spans {
            span.clear();
            put_uint(&mut span, 1, u64::from(zigzag32(offset)));
            put_uint(&mut span, 2, length);
            put_delimited(out, spans_field, &span);
        }
        put_delimited(out, deltas_field, &deltas);
    }
}

/// An offset of a span. Those outside of 32 bits belong to buckets that no double falls into.
fn zigzag32(offset: i64) -> u32 {
    let offset = offset.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
    zigzag(offset) as u32
}

/// Appends the varints of a repeated field, packed or not.
pub(crate) fn varints(field: &Field<'_>, out: &mut Vec<u64>) {
    let Some(mut packed) = field.bytes() else {
        out.extend(field.varint());
        return;
    };
    while !packed.is_empty() {
        let (mut value, mut used) = (0u64, 0);
        for (index, byte) in packed.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * index).min(63);
            used = index + 1;
            if *byte < 0x80 {
                break;
            }
        }
        out.push(value);
        packed = &packed[used..];
    }
}

/// The schema of histograms with custom buckets, as `sint32` writes -53.
const CUSTOM_BUCKETS: u64 = 105;

impl Context<'_> {
    /// Histograms with explicit bounds as native ones with custom buckets, which only 2.0 has.
    pub(super) fn custom_buckets(&mut self, walk: &Walk<'_, '_>, sink: &mut impl Sink) {
        let mut attributes = Attributes::default();
        let mut read = HistogramPoint::default();
        // Prometheus's bucket 0 is the first one here.
        let mut buckets = Buckets {
            offset: -1,
            ..Buckets::default()
        };
        let mut message = Vec::new();
        for point in walk.data.points() {
            self.read_histogram(point.raw(), &mut attributes, &mut read);
            std::mem::swap(&mut buckets.counts, &mut read.counts);
            let (mut count, mut sum) = (read.count, read.sum.unwrap_or(0.0));
            let HistogramPoint { head, bounds, .. } = &mut read;
            let Some(at) = self.labels(walk, &attributes, Extra::None) else {
                continue;
            };
            if head.is_stale() {
                count = STALE_NAN;
                sum = f64::from_bits(STALE_NAN);
            }
            message.clear();
            put_varint(&mut message, 1 << 3);
            put_varint(&mut message, count);
            put_double(&mut message, 3, sum);
            put_uint(&mut message, 4, CUSTOM_BUCKETS);
            put_varint(&mut message, 6 << 3);
            put_varint(&mut message, 0);
            buckets.put(&mut message, 0, 11, 12);
            // The last bucket has no bound; a list that holds its own end would give it one.
            bounds.retain(|bound| *bound != f64::INFINITY);
            let packed: Vec<u8> = bounds.iter().flat_map(|bound| bound.to_le_bytes()).collect();
            if !packed.is_empty() {
                put_delimited(&mut message, 16, &packed);
            }
            let exemplars = exemplars(&head.exemplars, self.sanitizes_exemplars, self.names);
            let sample = Sample {
                value: Value::Native(&message),
                timestamp_ms: milliseconds(head.time),
                start_ms: milliseconds(head.start),
                is_delta: false,
                exemplars: &exemplars,
            };
            self.emit(walk, at, &walk.family.plain, None, &sample, sink);
            self.done(sink);
        }
    }

    pub(super) fn native_histograms(&mut self, walk: &Walk<'_, '_>, sink: &mut impl Sink) {
        let mut attributes = Attributes::default();
        let mut head = Head::default();
        let (mut positive, mut negative) = (Buckets::default(), Buckets::default());
        let mut message = Vec::new();
        for point in walk.data.points() {
            attributes.clear(self.reader);
            head.clear();
            positive.clear();
            negative.clear();
            let (mut count, mut sum, mut zero_count) = (0, 0.0, 0);
            let (mut scale, mut zero_threshold) = (0, 0.0);
            for field in Fields::of(point.raw()) {
                match field.number {
                    1 => {
                        if let Some(raw) = field.bytes() {
                            attributes.push(raw, self.names, self.reader);
                        }
                    }
                    2 => head.start = field.fixed64().unwrap_or(0),
                    3 => head.time = field.fixed64().unwrap_or(0),
                    4 => count = field.fixed64().unwrap_or(0),
                    5 => sum = field.fixed64().map_or(sum, f64::from_bits),
                    6 => scale = field.varint().map_or(scale, |value| unzigzag(value) as i32),
                    7 => zero_count = field.fixed64().unwrap_or(0),
                    8 => positive.read(field.bytes().unwrap_or_default()),
                    9 => negative.read(field.bytes().unwrap_or_default()),
                    10 => head.flags = field.varint().unwrap_or(0),
                    11 => head.exemplars.extend(field.bytes()),
                    14 => zero_threshold = field.fixed64().map_or(zero_threshold, f64::from_bits),
                    _ => {}
                }
            }
            self.targets.saw(head.time);
            if scale < COARSEST {
                self.outcome.dropped.add(Reason::Scale, 1);
                continue;
            }
            let Some(at) = self.labels(walk, &attributes, Extra::None) else {
                continue;
            };
            if head.is_stale() {
                count = STALE_NAN;
                sum = f64::from_bits(STALE_NAN);
            }
            let levels = scale.saturating_sub(FINEST).max(0) as u32;
            message.clear();
            // Arms of a oneof are written whatever their value: absent, they would be neither count.
            put_varint(&mut message, 1 << 3);
            put_varint(&mut message, count);
            put_double(&mut message, 3, sum);
            put_uint(&mut message, 4, zigzag(i64::from(scale.min(FINEST))));
            put_double(
                &mut message,
                5,
                if zero_threshold > 0.0 {
                    zero_threshold
                } else {
                    ZERO_THRESHOLD
                },
            );
            put_varint(&mut message, 6 << 3);
            put_varint(&mut message, zero_count);
            negative.put(&mut message, levels, 8, 9);
            positive.put(&mut message, levels, 11, 12);
            let exemplars = exemplars(&head.exemplars, self.sanitizes_exemplars, self.names);
            let sample = Sample {
                value: Value::Native(&message),
                timestamp_ms: milliseconds(head.time),
                start_ms: milliseconds(head.start),
                is_delta: false,
                exemplars: &exemplars,
            };
            self.emit(walk, at, &walk.family.plain, None, &sample, sink);
            self.done(sink);
        }
    }
}
