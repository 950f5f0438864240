//! Gauges and sums.

use sluice_wire::{Fields, MetricKind};

use super::point::{Attributes, PlanAt};
use super::{Context, NO_RECORDED_VALUE, STALE_NAN, Sample, Sink, Value, Walk, milliseconds};
use crate::dropped::Reason;
use crate::labels::{Extra, Label, SeriesLabels};

/// Fields of a `NumberDataPoint`, each with its wire type.
const START_KEY: u8 = 2 << 3 | 1;
const TIME_KEY: u8 = 3 << 3 | 1;
const DOUBLE_KEY: u8 = 4 << 3 | 1;
const INT_KEY: u8 = 6 << 3 | 1;
const ATTRIBUTE_KEY: u8 = 7 << 3 | 2;

/// The content of a field of less than 128 bytes, whose key has been read, and what follows it.
#[inline]
fn short_field(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    match *len {
        len @ ..0x80 => rest.split_at_checked(usize::from(len)),
        _ => None,
    }
}

/// What all data points have.
#[derive(Debug, Default)]
pub(super) struct Head<'a> {
    pub start: u64,
    pub time: u64,
    pub flags: u64,
    pub exemplars: Vec<&'a [u8]>,
}

impl Head<'_> {
    pub fn clear(&mut self) {
        self.start = 0;
        self.time = 0;
        self.flags = 0;
        self.exemplars.clear();
    }

    pub fn is_stale(&self) -> bool {
        self.flags & NO_RECORDED_VALUE != 0
    }

    pub fn value(&self, value: f64) -> Value<'static> {
        Value::Float(if self.is_stale() {
            f64::from_bits(STALE_NAN)
        } else {
            value
        })
    }
}

impl Context<'_> {
    pub(super) fn numbers(&mut self, walk: &Walk<'_, '_>, sink: &mut impl Sink) {
        let takes_exemplars = walk.data.kind() == MetricKind::Sum;
        let mut attributes = Attributes::default();
        let mut head = Head::default();
        for point in walk.data.points() {
            attributes.clear(self.reader);
            head.clear();
            let mut value = None;
            let mut rest = point.raw();
            // The fields that nearly all points consist of, before the search for what else there can be.
            while let Some((key, tail)) = rest.split_first() {
                if *key == ATTRIBUTE_KEY {
                    if attributes.ends_as_known(rest, self.reader) {
                        rest = &[];
                        break;
                    }
                    let Some((raw, tail)) = short_field(tail) else {
                        break;
                    };
                    attributes.push(raw, self.names, self.reader);
                    rest = tail;
                    continue;
                }
                let Some((bytes, tail)) = tail.split_first_chunk() else {
                    break;
                };
                let bits = u64::from_le_bytes(*bytes);
                match *key {
                    START_KEY => head.start = bits,
                    TIME_KEY => head.time = bits,
                    DOUBLE_KEY => value = Some(f64::from_bits(bits)),
                    INT_KEY => value = Some(bits as i64 as f64),
                    _ => break,
                }
                rest = tail;
            }
            if rest.is_empty() {
                attributes.end(self.reader);
            } else {
                for field in Fields::of(rest) {
                    match field.number {
                        2 => head.start = field.fixed64().unwrap_or(0),
                        3 => head.time = field.fixed64().unwrap_or(0),
                        4 => value = field.fixed64().map(f64::from_bits).or(value),
                        6 => value = field.fixed64().map(|bits| bits as i64 as f64).or(value),
                        5 if takes_exemplars => head.exemplars.extend(field.bytes()),
                        // Prometheus's mapping has none of gauges.
                        5 => self.outcome.dropped_exemplars += 1,
                        7 => {
                            if let Some(raw) = field.bytes() {
                                attributes.push(raw, self.names, self.reader);
                            }
                        }
                        8 => head.flags = field.varint().unwrap_or(0),
                        _ => {}
                    }
                }
            }
            self.targets.saw(head.time);
            if value.is_none() && !head.is_stale() {
                self.outcome.dropped.add(Reason::NoValue, 1);
                continue;
            }
            if !walk.can_take(value.unwrap_or_default(), &head) {
                self.outcome.dropped.add(Reason::DeltaValue, 1);
                continue;
            }
            let Some(at) = self.labels(walk, &attributes, Extra::None) else {
                continue;
            };
            let exemplars = self.exemplars(&head.exemplars);
            let sample = Sample {
                value: head.value(value.unwrap_or_default()),
                timestamp_ms: milliseconds(head.time),
                start_ms: milliseconds(head.start),
                is_delta: walk.is_delta,
                exemplars: &exemplars,
            };
            self.emit(walk, at, &walk.family.plain, None, &sample, sink);
            self.done(sink);
        }
    }

    /// Makes the labels of a point; `None` when it has to be dropped, which is counted.
    #[inline]
    pub(super) fn labels(
        &mut self,
        walk: &Walk<'_, '_>,
        attributes: &Attributes<'_>,
        extra: Extra,
    ) -> Option<PlanAt> {
        let made = self.reader.make(
            attributes,
            extra,
            walk.block,
            self.blocks,
            self.names,
            &mut self.outcome.label_collisions,
        );
        if made.is_err() {
            self.outcome.dropped.add(Reason::LabelName, 1);
        }
        made.ok()
    }

    /// Writes a sample of the series with the labels made last.
    #[inline]
    pub(super) fn emit(
        &self,
        walk: &Walk<'_, '_>,
        at: PlanAt,
        name: &Label,
        extra: Option<&Label>,
        sample: &Sample<'_>,
        sink: &mut impl Sink,
    ) {
        let labels = self.series(walk, at, name, extra);
        sink.sample(&labels, sample, &walk.about);
    }

    /// The series with the labels made last.
    #[inline]
    pub(super) fn series<'s>(
        &'s self,
        walk: &Walk<'_, '_>,
        at: PlanAt,
        name: &'s Label,
        extra: Option<&'s Label>,
    ) -> SeriesLabels<'s> {
        SeriesLabels {
            block: self.blocks.get(walk.block),
            plan: self.reader.plan(at, self.blocks, walk.block),
            names: self.names,
            name,
            extra,
            point: self.reader.labels(),
        }
    }

    #[inline]
    pub(super) fn done(&mut self, sink: &mut impl Sink) {
        self.outcome.points += 1;
        sink.point();
    }
}
