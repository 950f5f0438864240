//! A protobuf writer that remembers where ids, times and counters stand, so that they can be written over.

/// What to write at a place of a template when a request is made from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fill {
    /// The item's id as a six-byte varint.
    Id,
    /// The item's id, mixed, as a span id of eight bytes.
    SpanId,
    /// The id of the trace whose root is the item, sixteen bytes.
    TraceId,
    /// The request's time plus this many nanoseconds, eight bytes.
    Time(i64),
    /// A counter that starts at `base` and grows by `step` with each use of the template, eight bytes.
    Counter { base: u64, step: u64 },
    /// The item's series, as a six-byte varint.
    Series,
    /// The item's id as [`DIGITS`] decimal digits.
    IdDigits,
    /// The item's series as [`DIGITS`] decimal digits.
    SeriesDigits,
    /// The request's time plus this many nanoseconds, in milliseconds, as a six-byte varint: good from 2004,
    /// when it needs six, to 2109.
    Millis(i64),
    /// The same as `Counter`, as a double.
    FloatCounter { base: u64, step: u64 },
}

/// Every id, which is below 2^42, has at most so many decimal digits; shorter ones begin with zeros, so that
/// one can be written over another.
pub(crate) const DIGITS: usize = 13;

/// What a request made from a template is stamped with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) first_id: u64,
    pub(crate) unix_nanos: u64,
    /// How often the template has been used before.
    pub(crate) uses: u64,
    /// Series of the request's first item; the others follow without a gap.
    pub(crate) first_series: u64,
}

/// A place in a template.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patch {
    /// Byte offset in the body.
    pub(crate) at: usize,
    /// Index of the item the value derives from, counted from the request's first.
    pub(crate) item: u32,
    pub(crate) fill: Fill,
}

/// Writes one message; nested messages are written in place and given their length afterwards.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    body: Vec<u8>,
    patches: Vec<Patch>,
}

impl Writer {
    pub(crate) fn finish(self) -> (Vec<u8>, Vec<Patch>) {
        (self.body, self.patches)
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.body.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.body.push(value as u8);
    }

    fn key(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    pub(crate) fn uint(&mut self, field: u32, value: u64) {
        self.key(field, 0);
        self.varint(value);
    }

    /// A zigzag-encoded `sint32`.
    pub(crate) fn sint(&mut self, field: u32, value: i32) {
        self.uint(field, u64::from((value << 1 ^ value >> 31) as u32));
    }

    pub(crate) fn fixed32(&mut self, field: u32, value: u32) {
        self.key(field, 5);
        self.body.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn fixed64(&mut self, field: u32, value: u64) {
        self.key(field, 1);
        self.body.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn double(&mut self, field: u32, value: f64) {
        self.fixed64(field, value.to_bits());
    }

    pub(crate) fn bytes(&mut self, field: u32, value: &[u8]) {
        self.key(field, 2);
        self.varint(value.len() as u64);
        self.body.extend_from_slice(value);
    }

    pub(crate) fn string(&mut self, field: u32, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    /// A packed list of fixed 64-bit values.
    pub(crate) fn packed_fixed64(&mut self, field: u32, values: impl IntoIterator<Item = u64>) {
        self.message(field, |w| {
            for value in values {
                w.body.extend_from_slice(&value.to_le_bytes());
            }
        });
    }

    /// A packed list of varints.
    pub(crate) fn packed_uint(&mut self, field: u32, values: impl IntoIterator<Item = u64>) {
        self.message(field, |w| {
            for value in values {
                w.varint(value);
            }
        });
    }

    pub(crate) fn message(&mut self, field: u32, write: impl FnOnce(&mut Writer)) {
        let start = self.body.len();
        let first_patch = self.patches.len();
        write(self);
        let inner_len = (self.body.len() - start) as u64;

        let mut header = Writer::default();
        header.key(field, 2);
        header.varint(inner_len);
        let header = header.body;
        for patch in self.patches.iter_mut().skip(first_patch) {
            patch.at += header.len();
        }
        drop(self.body.splice(start..start, header));
    }

    fn patch(&mut self, item: u32, fill: Fill) {
        self.patches.push(Patch {
            at: self.body.len(),
            item,
            fill,
        });
    }

    /// The id of `item` as a varint field.
    pub(crate) fn id(&mut self, field: u32, item: u32) {
        self.key(field, 0);
        self.patch(item, Fill::Id);
        self.varint(crate::FIRST_ID);
    }

    /// The span id that stands for `item`.
    pub(crate) fn span_id(&mut self, field: u32, item: u32) {
        self.key(field, 2);
        self.varint(8);
        self.patch(item, Fill::SpanId);
        self.body.extend_from_slice(&[0; 8]);
    }

    /// The id of the trace whose root span is `root`.
    pub(crate) fn trace_id(&mut self, field: u32, root: u32) {
        self.key(field, 2);
        self.varint(16);
        self.patch(root, Fill::TraceId);
        self.body.extend_from_slice(&[0; 16]);
    }

    /// A span id that belongs to no item of the request.
    pub(crate) fn fixed_span_id(&mut self, field: u32, id: u64) {
        self.bytes(field, &id.to_be_bytes());
    }

    /// A trace id that belongs to no item of the request.
    pub(crate) fn fixed_trace_id(&mut self, field: u32, id: u64) {
        self.bytes(field, &(u128::from(id) << 64 | u128::from(!id)).to_be_bytes());
    }

    /// The request's time plus `offset_nanos`, as `fixed64`.
    pub(crate) fn time(&mut self, field: u32, offset_nanos: i64) {
        self.key(field, 1);
        self.patch(0, Fill::Time(offset_nanos));
        self.body.extend_from_slice(&[0; 8]);
    }

    /// A growing count, as `fixed64` or `sfixed64`.
    pub(crate) fn counter(&mut self, field: u32, base: u64, step: u64) {
        self.key(field, 1);
        self.patch(0, Fill::Counter { base, step });
        self.body.extend_from_slice(&[0; 8]);
    }

    /// The id of `item` as a string of digits.
    pub(crate) fn id_digits(&mut self, field: u32, item: u32) {
        self.key(field, 2);
        self.varint(DIGITS as u64);
        self.patch(item, Fill::IdDigits);
        self.body.extend_from_slice(&[b'0'; DIGITS]);
    }

    /// The series of `item` as a string of digits.
    pub(crate) fn series_digits(&mut self, field: u32, item: u32) {
        self.key(field, 2);
        self.varint(DIGITS as u64);
        self.patch(item, Fill::SeriesDigits);
        self.body.extend_from_slice(&[b'0'; DIGITS]);
    }

    /// The request's time plus `offset_nanos` in milliseconds, as `int64`.
    pub(crate) fn millis(&mut self, field: u32, offset_nanos: i64) {
        self.key(field, 0);
        self.patch(0, Fill::Millis(offset_nanos));
        self.varint(crate::FIRST_ID);
    }

    /// A growing count, as `double`.
    pub(crate) fn float_counter(&mut self, field: u32, base: u64, step: u64) {
        self.key(field, 1);
        self.patch(0, Fill::FloatCounter { base, step });
        self.body.extend_from_slice(&[0; 8]);
    }

    /// A `KeyValue` whose value is a string.
    pub(crate) fn string_attribute(&mut self, field: u32, key: &str, value: &str) {
        self.message(field, |w| {
            w.string(1, key);
            w.message(2, |w| w.string(1, value));
        });
    }

    /// A `KeyValue` whose value is a boolean.
    pub(crate) fn bool_attribute(&mut self, field: u32, key: &str, value: bool) {
        self.message(field, |w| {
            w.string(1, key);
            w.message(2, |w| w.uint(2, u64::from(value)));
        });
    }

    /// A `KeyValue` whose value is a non-negative integer.
    pub(crate) fn int_attribute(&mut self, field: u32, key: &str, value: u64) {
        self.message(field, |w| {
            w.string(1, key);
            w.message(2, |w| w.uint(3, value));
        });
    }

    /// A `KeyValue` whose value is a double.
    pub(crate) fn double_attribute(&mut self, field: u32, key: &str, value: f64) {
        self.message(field, |w| {
            w.string(1, key);
            w.message(2, |w| w.double(4, value));
        });
    }

    /// The `KeyValue` that tells the series of `item` from others.
    pub(crate) fn series_attribute(&mut self, field: u32, item: u32) {
        self.message(field, |w| {
            w.string(1, "shop.series");
            w.message(2, |w| {
                w.key(3, 0);
                w.patch(item, Fill::Series);
                w.varint(crate::FIRST_ID);
            });
        });
    }

    /// The `KeyValue` that carries the id of `item`.
    pub(crate) fn id_attribute(&mut self, field: u32, item: u32) {
        self.message(field, |w| {
            w.string(1, crate::ids::ID_KEY);
            w.message(2, |w| w.id(3, item));
        });
    }
}

/// Writes `fill` for an item into its place of a body.
pub(crate) fn apply(body: &mut [u8], patch: &Patch, stamp: &Stamp) {
    use crate::random::mix;
    let id = stamp.first_id + u64::from(patch.item);
    let Some(place) = body.get_mut(patch.at..) else {
        return;
    };
    match patch.fill {
        Fill::Id => put_varint(place, id),
        Fill::Series => {
            let series = stamp.first_series + u64::from(patch.item);
            // Beyond 2^35 series the numbers start again, so that the varint keeps its length.
            put_varint(place, crate::FIRST_ID + series % crate::FIRST_ID);
        }
        Fill::SpanId => put(place, mix(id)),
        Fill::TraceId => {
            // The high half only has to differ from the span id of the root.
            put(place, mix(id ^ 0x5351_4c55_4943_4531));
            if let Some(low) = place.get_mut(8..) {
                put(low, mix(id));
            }
        }
        Fill::Time(offset_nanos) => put(place, stamp.unix_nanos.saturating_add_signed(offset_nanos)),
        Fill::Counter { base, step } => put(place, base.wrapping_add(step.wrapping_mul(stamp.uses))),
        Fill::IdDigits => put_digits(place, id),
        Fill::SeriesDigits => {
            let series = stamp.first_series + u64::from(patch.item);
            // Below every id, so that a table of symbols never holds the same digits twice.
            put_digits(place, series % crate::FIRST_ID);
        }
        Fill::Millis(offset_nanos) => {
            let nanos = stamp.unix_nanos.saturating_add_signed(offset_nanos);
            put_varint(place, nanos / NANOS_PER_MILLI);
        }
        Fill::FloatCounter { base, step } => {
            let count = base.wrapping_add(step.wrapping_mul(stamp.uses));
            put(place, (count as f64).to_bits());
        }
    }
}

const NANOS_PER_MILLI: u64 = 1_000_000;

/// [`DIGITS`] digits; of a number that has more, the last ones.
fn put_digits(place: &mut [u8], mut value: u64) {
    for byte in place.iter_mut().take(DIGITS).rev() {
        *byte = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// A six-byte varint.
fn put_varint(place: &mut [u8], value: u64) {
    for (at, byte) in place.iter_mut().take(6).enumerate() {
        let more = if at < 5 { 0x80 } else { 0 };
        *byte = (value >> (7 * at)) as u8 & 0x7f | more;
    }
}

fn put(place: &mut [u8], value: u64) {
    if let Some(place) = place.first_chunk_mut::<8>() {
        *place = value.to_le_bytes();
    }
}
