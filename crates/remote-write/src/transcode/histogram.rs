//! Histograms with explicit bounds, and summaries: several series a point.

use std::sync::Arc;

use sluice_wire::{Field, Fields};

use super::number::Head;
use super::point::Attributes;
use super::{Context, Sample, Sink, Value, Walk, milliseconds};
use crate::dropped::Reason;
use crate::labels::{Extra, Label, LabelName};
use crate::text::put_bound;

/// Lists of bounds kept between requests.
const MAX_LISTS: usize = 256;

/// A list with more bounds than this is not kept: it is made again for each point.
const MAX_BOUNDS: usize = 1024;

/// The `le` labels of the lists of bounds in use, and `quantile` labels.
#[derive(Debug)]
pub(super) struct BoundLabels {
    lists: Vec<Arc<BoundList>>,
    last: usize,
    bucket: LabelName,
    quantile: LabelName,
    infinite: Arc<Label>,
}

#[derive(Debug)]
pub(super) struct BoundList {
    bounds: Vec<f64>,
    labels: Vec<Label>,
}

impl BoundLabels {
    pub fn new() -> Self {
        let bucket = LabelName::new(Extra::Bucket.name());
        Self {
            lists: Vec::new(),
            last: 0,
            infinite: Arc::new(Label::new(&bucket, "+Inf")),
            bucket,
            quantile: LabelName::new(Extra::Quantile.name()),
        }
    }

    pub fn make_room(&mut self) {
        if self.lists.len() > MAX_LISTS {
            self.lists.clear();
        }
    }

    fn of(&mut self, bounds: &[f64]) -> Arc<BoundList> {
        let same = |list: &Arc<BoundList>| {
            list.bounds.len() == bounds.len()
                && list
                    .bounds
                    .iter()
                    .zip(bounds)
                    .all(|(a, b)| a.to_bits() == b.to_bits())
        };
        if let Some(list) = self.lists.get(self.last).filter(|list| same(list)) {
            return list.clone();
        }
        if let Some(found) = self.lists.iter().position(same) {
            self.last = found;
            return self.lists[found].clone();
        }
        let label = |bound: &f64| bound_label(&self.bucket, *bound);
        let list = Arc::new(BoundList {
            bounds: bounds.to_vec(),
            labels: bounds.iter().map(label).collect(),
        });
        if bounds.len() <= MAX_BOUNDS {
            self.lists.push(list.clone());
            self.last = self.lists.len() - 1;
        }
        list
    }
}

fn bound_label(name: &LabelName, bound: f64) -> Label {
    let mut text = String::new();
    put_bound(&mut text, bound);
    Label::new(name, &text)
}

/// What a `HistogramDataPoint` says beside its attributes.
#[derive(Debug, Default)]
pub(super) struct HistogramPoint<'a> {
    pub head: Head<'a>,
    pub count: u64,
    pub sum: Option<f64>,
    pub counts: Vec<u64>,
    pub bounds: Vec<f64>,
}

/// Appends the eight-byte values of a repeated field, packed or not.
fn eight_bytes<T>(field: &Field<'_>, out: &mut Vec<T>, read: impl Fn(u64) -> T) {
    match field.bytes() {
        Some(packed) => {
            let (values, _) = packed.as_chunks::<8>();
            out.extend(values.iter().map(|value| read(u64::from_le_bytes(*value))));
        }
        None => out.extend(field.fixed64().map(read)),
    }
}

impl Context<'_> {
    /// Reads a `HistogramDataPoint`.
    pub(super) fn read_histogram<'a>(
        &mut self,
        raw: &'a [u8],
        attributes: &mut Attributes<'a>,
        point: &mut HistogramPoint<'a>,
    ) {
        attributes.clear(self.reader);
        let HistogramPoint {
            head,
            count,
            sum,
            counts,
            bounds,
        } = point;
        head.clear();
        counts.clear();
        bounds.clear();
        (*count, *sum) = (0, None);
        for field in Fields::of(raw) {
            match field.number {
                2 => head.start = field.fixed64().unwrap_or(0),
                3 => head.time = field.fixed64().unwrap_or(0),
                4 => *count = field.fixed64().unwrap_or(0),
                5 => *sum = field.fixed64().map(f64::from_bits).or(*sum),
                6 => eight_bytes(&field, counts, |bits| bits),
                7 => eight_bytes(&field, bounds, f64::from_bits),
                8 => head.exemplars.extend(field.bytes()),
                9 => {
                    if let Some(raw) = field.bytes() {
                        attributes.push(raw, self.names, self.reader);
                    }
                }
                10 => head.flags = field.varint().unwrap_or(0),
                _ => {}
            }
        }
        self.targets.saw(head.time);
    }

    pub(super) fn histograms(&mut self, walk: &Walk<'_, '_>, sink: &mut impl Sink) {
        let mut attributes = Attributes::default();
        let mut read = HistogramPoint::default();
        let infinite = self.bounds.infinite.clone();
        for point in walk.data.points() {
            self.read_histogram(point.raw(), &mut attributes, &mut read);
            let HistogramPoint {
                head,
                count,
                sum,
                counts,
                bounds,
            } = &read;
            let (count, sum) = (*count, *sum);
            if !walk.can_take(sum.unwrap_or_default(), head) {
                self.outcome.dropped.add(Reason::DeltaValue, 1);
                continue;
            }
            let exemplars = self.exemplars(&head.exemplars);
            let mut sample = Sample {
                value: Value::Float(0.0),
                timestamp_ms: milliseconds(head.time),
                start_ms: milliseconds(head.start),
                is_delta: walk.is_delta,
                exemplars: &[],
            };
            let Some(at) = self.labels(walk, &attributes, Extra::None) else {
                continue;
            };
            if let Some(sum) = sum {
                sample.value = head.value(sum);
                self.emit(walk, at, &walk.family.sum, None, &sample, sink);
            }
            sample.value = head.value(count as f64);
            self.emit(walk, at, &walk.family.count, None, &sample, sink);
            // The same attributes again, with `le` among them.
            let Some(at) = self.labels(walk, &attributes, Extra::Bucket) else {
                continue;
            };
            let list = self.bounds.of(bounds);
            let (mut below, mut next) = (0u64, 0);
            for ((bound, label), bucket) in list.bounds.iter().zip(&list.labels).zip(counts) {
                below = below.wrapping_add(*bucket);
                // A list of bounds that holds its own end would make the last bucket twice.
                if *bound == f64::INFINITY {
                    continue;
                }
                let first = next;
                while exemplars
                    .get(next)
                    .is_some_and(|exemplar| exemplar.value <= *bound)
                {
                    next += 1;
                }
                sample.value = head.value(below as f64);
                sample.exemplars = &exemplars[first..next];
                self.emit(walk, at, &walk.family.bucket, Some(label), &sample, sink);
            }
            sample.value = head.value(count as f64);
            sample.exemplars = &exemplars[next..];
            self.emit(walk, at, &walk.family.bucket, Some(&infinite), &sample, sink);
            self.done(sink);
        }
    }

    pub(super) fn summaries(&mut self, walk: &Walk<'_, '_>, sink: &mut impl Sink) {
        let mut attributes = Attributes::default();
        let mut head = Head::default();
        let mut quantiles: Vec<(f64, f64)> = Vec::new();
        for point in walk.data.points() {
            attributes.clear(self.reader);
            head.clear();
            quantiles.clear();
            let (mut count, mut sum) = (0, 0.0);
            for field in Fields::of(point.raw()) {
                match field.number {
                    2 => head.start = field.fixed64().unwrap_or(0),
                    3 => head.time = field.fixed64().unwrap_or(0),
                    4 => count = field.fixed64().unwrap_or(0),
                    5 => sum = field.fixed64().map_or(sum, f64::from_bits),
                    6 => quantiles.extend(field.bytes().map(quantile)),
                    7 => {
                        if let Some(raw) = field.bytes() {
                            attributes.push(raw, self.names, self.reader);
                        }
                    }
                    8 => head.flags = field.varint().unwrap_or(0),
                    _ => {}
                }
            }
            self.targets.saw(head.time);
            let mut sample = Sample {
                value: head.value(sum),
                timestamp_ms: milliseconds(head.time),
                start_ms: milliseconds(head.start),
                is_delta: walk.is_delta,
                exemplars: &[],
            };
            let Some(at) = self.labels(walk, &attributes, Extra::None) else {
                continue;
            };
            self.emit(walk, at, &walk.family.sum, None, &sample, sink);
            sample.value = head.value(count as f64);
            self.emit(walk, at, &walk.family.count, None, &sample, sink);
            if !quantiles.is_empty() {
                let Some(at) = self.labels(walk, &attributes, Extra::Quantile) else {
                    continue;
                };
                for (quantile, value) in &quantiles {
                    let label = bound_label(&self.bounds.quantile, *quantile);
                    sample.value = head.value(*value);
                    self.emit(walk, at, &walk.family.plain, Some(&label), &sample, sink);
                }
            }
            self.done(sink);
        }
    }
}

/// Quantile and value of a `ValueAtQuantile`.
fn quantile(raw: &[u8]) -> (f64, f64) {
    let mut read = (0.0, 0.0);
    for field in Fields::of(raw) {
        match (field.number, field.fixed64().map(f64::from_bits)) {
            (1, Some(quantile)) => read.0 = quantile,
            (2, Some(value)) => read.1 = value,
            _ => {}
        }
    }
    read
}
