//! Histograms to native ones.

use sluice_wire::Fields;

use super::exponential::{Buckets, COARSEST, Exponential};
use super::histogram::HistogramPoint;
use super::number::Head;
use super::point::Attributes;
use super::{Context, STALE_NAN, Sample, Sink, Value, Walk, milliseconds};
use crate::dropped::Reason;
use crate::labels::Extra;
use crate::protobuf::{put_delimited, put_double, put_uint, put_varint};

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
            let exemplars = self.exemplars(&head.exemplars);
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
        let mut histogram = Exponential::default();
        let mut message = Vec::new();
        for point in walk.data.points() {
            attributes.clear(self.reader);
            head.clear();
            histogram.clear();
            for field in Fields::of(point.raw()) {
                match field.number {
                    1 => {
                        if let Some(raw) = field.bytes() {
                            attributes.push(raw, self.names, self.reader);
                        }
                    }
                    2 => head.start = field.fixed64().unwrap_or(0),
                    3 => head.time = field.fixed64().unwrap_or(0),
                    10 => head.flags = field.varint().unwrap_or(0),
                    11 => head.exemplars.extend(field.bytes()),
                    _ => histogram.read(&field),
                }
            }
            self.targets.saw(head.time);
            if histogram.scale < COARSEST {
                self.outcome.dropped.add(Reason::Scale, 1);
                continue;
            }
            if !walk.can_take(histogram.sum, &head) {
                self.outcome.dropped.add(Reason::DeltaValue, 1);
                continue;
            }
            let Some(at) = self.labels(walk, &attributes, Extra::None) else {
                continue;
            };
            message.clear();
            let adds_up = walk.is_delta && !head.is_stale();
            if !adds_up {
                histogram.put(&mut message, head.is_stale());
            }
            let exemplars = self.exemplars(&head.exemplars);
            let sample = Sample {
                value: Value::Native(&message),
                timestamp_ms: milliseconds(head.time),
                start_ms: milliseconds(head.start),
                is_delta: walk.is_delta,
                exemplars: &exemplars,
            };
            if adds_up {
                let labels = self.series(walk, at, &walk.family.plain, None);
                sink.delta(&labels, &histogram, &sample, &walk.about);
            } else {
                self.emit(walk, at, &walk.family.plain, None, &sample, sink);
            }
            self.done(sink);
        }
    }
}
