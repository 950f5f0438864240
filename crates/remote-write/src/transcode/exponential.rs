//! An exponential histogram, and how it is written as a native one.

use sluice_wire::{Field, Fields};

use super::STALE_NAN;
use crate::protobuf::{put_delimited, put_double, put_uint, put_varint, unzigzag, zigzag};

/// Schemas of native histograms: the coarsest and the finest.
pub(crate) const COARSEST: i32 = -4;
pub(crate) const FINEST: i32 = 8;

/// What counts as zero, where a point does not say: client_golang's, and Prometheus's for OTLP.
const ZERO_THRESHOLD: f64 = 1e-128;

/// Up to so many empty buckets are written; more make a new span.
const MAX_EMPTY: i64 = 2;

/// What an `ExponentialHistogramDataPoint` says of its values.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Exponential {
    pub count: u64,
    pub sum: f64,
    pub scale: i32,
    pub zero_count: u64,
    pub zero_threshold: f64,
    pub positive: Buckets,
    pub negative: Buckets,
}

impl Exponential {
    pub fn clear(&mut self) {
        self.positive.clear();
        self.negative.clear();
        (self.count, self.sum, self.scale) = (0, 0.0, 0);
        (self.zero_count, self.zero_threshold) = (0, 0.0);
    }

    /// Takes in a field of the point, if it says something of its values.
    pub fn read(&mut self, field: &Field<'_>) {
        match field.number {
            4 => self.count = field.fixed64().unwrap_or(0),
            5 => self.sum = field.fixed64().map_or(self.sum, f64::from_bits),
            6 => self.scale = field.varint().map_or(self.scale, |value| unzigzag(value) as i32),
            7 => self.zero_count = field.fixed64().unwrap_or(0),
            8 => self.positive.read(field.bytes().unwrap_or_default()),
            9 => self.negative.read(field.bytes().unwrap_or_default()),
            14 => self.zero_threshold = field.fixed64().map_or(self.zero_threshold, f64::from_bits),
            _ => {}
        }
    }

    /// Appends it as a `Histogram` message without its timestamps; stale: as the one that ends a series.
    pub fn put(&self, out: &mut Vec<u8>, is_stale: bool) {
        let (count, sum) = match is_stale {
            true => (STALE_NAN, f64::from_bits(STALE_NAN)),
            false => (self.count, self.sum),
        };
        let levels = self.scale.saturating_sub(FINEST).max(0) as u32;
        // Arms of a oneof are written whatever their value: absent, they would be neither count.
        put_varint(out, 1 << 3);
        put_varint(out, count);
        put_double(out, 3, sum);
        put_uint(out, 4, zigzag(i64::from(self.scale.min(FINEST))));
        let threshold = self.zero_threshold;
        put_double(
            out,
            5,
            if threshold > 0.0 {
                threshold
            } else {
                ZERO_THRESHOLD
            },
        );
        put_varint(out, 6 << 3);
        put_varint(out, self.zero_count);
        self.negative.put(out, levels, 8, 9);
        self.positive.put(out, levels, 11, 12);
    }
}

/// The buckets of one sign.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Buckets {
    pub offset: i32,
    pub counts: Vec<u64>,
}

impl Buckets {
    pub fn clear(&mut self) {
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
    pub fn put(&self, out: &mut Vec<u8>, levels: u32, spans_field: u32, deltas_field: u32) {
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
