//! Remote write 1.0: bodies of `prometheus.WriteRequest`, written compressed.
//!
//! In 1.0 every series spells out all its labels, and most of them are those of a series before. So a lane (`v1/lane.rs`)
//! remembers where they stand in the body, and what has been there is written as a repeat of those bytes (see
//! [`crate::snappy`]): what a series costs is what is new in it.

mod lane;

use std::collections::HashSet;

use sluice_wire::Fields;

use crate::body::{Format, Lanes};
use crate::labels::SeriesLabels;
use crate::lane_set::LaneSet;
use crate::protobuf::{put_delimited, put_double, put_uint, put_varint, varint_len};
use crate::transcode::{About, Sample, Sink, Value};
use lane::{Lane, Shape};

/// `WriteRequest.timeseries` with its wire type, and `WriteRequest.metadata`.
const TIMESERIES_KEY: u8 = 0x0a;
const METADATA: u32 = 3;
/// Fields of `TimeSeries`.
const SAMPLE_KEY: u8 = 0x12;
const EXEMPLAR: u32 = 3;
const HISTOGRAM_KEY: u8 = 0x22;

/// What bodies are written with: something that compresses.
pub(crate) trait Writer: Default {
    /// What comes out.
    const FORMAT: Format;

    /// Bytes so far, as they will be after decompression: where the next one goes.
    fn position(&self) -> u64;

    /// Appends bytes.
    fn put(&mut self, bytes: &[u8]);

    /// Appends `len` bytes that stand at `position` already; false where that cannot be said, or not in less: nothing is appended then.
    fn again(&mut self, len: usize, position: u64) -> bool;

    /// The same; the `same` bytes before these are also what the body ends with. So all of them are one repeat where the body ends with
    /// a repeat of no more than those.
    fn again_after(&mut self, same: usize, len: usize, position: u64) -> bool;

    /// Ends the body and begins a new one.
    fn finish(&mut self) -> bytes::Bytes;
}

/// Writes series into the bodies of their lanes.
#[derive(Debug)]
pub(crate) struct V1<W> {
    lanes: Vec<Lane<W>>,
    max_bytes: u64,
    left_out: LaneSet,
    metadata: Option<Metadata>,
    beside: Vec<u8>,
}

/// The metadata of the families of one request, each once.
#[derive(Debug, Default)]
struct Metadata {
    body: Vec<u8>,
    known: HashSet<Box<str>>,
}

impl<W: Writer> V1<W> {
    pub fn new(lanes: usize, max_bytes: usize, metadata: bool) -> Self {
        Self {
            lanes: (0..lanes.max(1)).map(Lane::new).collect(),
            max_bytes: max_bytes as u64,
            left_out: LaneSet::default(),
            metadata: metadata.then(Metadata::default),
            beside: Vec::new(),
        }
    }

    /// Ends all bodies. The next sample begins new ones.
    pub fn finish(&mut self) -> Lanes {
        if let Some(metadata) = &mut self.metadata {
            metadata.known = HashSet::new();
            let lane = &mut self.lanes[0];
            for field in Fields::of(&metadata.body) {
                if lane.body.position() + field.framed.len() as u64 > self.max_bytes {
                    lane.finish();
                }
                lane.body.put(field.framed);
            }
            metadata.body = Vec::new();
        }
        self.lanes.iter_mut().map(Lane::take).collect()
    }
}

/// Bytes of a sample as a message: below 128.
#[inline]
fn sample_len(timestamp_ms: i64) -> usize {
    9 + 1 + varint_len(timestamp_ms as u64)
}

/// Appends an `Exemplar` as a field of a `TimeSeries`.
pub(crate) fn put_exemplar<'l>(
    out: &mut Vec<u8>,
    labels: impl Iterator<Item = (&'l str, &'l str)>,
    value: f64,
    timestamp_ms: i64,
) {
    let mut message = Vec::new();
    for (name, value) in labels {
        put_label(&mut message, name, value);
    }
    put_double(&mut message, 2, value);
    put_uint(&mut message, 3, timestamp_ms as u64);
    put_delimited(out, EXEMPLAR, &message);
}

/// Appends a `Label` as a field of a `TimeSeries` or an `Exemplar`.
pub(crate) fn put_label(out: &mut Vec<u8>, name: &str, value: &str) {
    let mut label = Vec::with_capacity(name.len() + value.len() + 8);
    put_delimited(&mut label, 1, name.as_bytes());
    put_delimited(&mut label, 2, value.as_bytes());
    put_delimited(out, 1, &label);
}

impl<W: Writer> Sink for V1<W> {
    #[inline]
    fn sample(&mut self, labels: &SeriesLabels<'_>, sample: &Sample<'_>, _: &About<'_>) {
        let lane = match self.lanes.len() {
            1 => 0,
            lanes => crate::hash::lane(labels.hash(), lanes),
        };
        if self.left_out.contains(lane) {
            return;
        }
        let lane = &mut self.lanes[lane];
        let beside = &mut self.beside;
        beside.clear();
        for exemplar in sample.exemplars {
            put_exemplar(beside, exemplar.pairs(), exemplar.value, exemplar.timestamp_ms);
        }
        if let Value::Native(histogram) = sample.value {
            let timestamp = sample.timestamp_ms as u64;
            beside.push(HISTOGRAM_KEY);
            put_varint(beside, (histogram.len() + 1 + varint_len(timestamp)) as u64);
            beside.extend_from_slice(histogram);
            beside.push(15 << 3);
            put_varint(beside, timestamp);
        }
        let mut shape = Shape {
            len: labels.encoded_len() + beside.len(),
            sample_len: 0,
        };
        if let Value::Float(_) = sample.value {
            shape.sample_len = sample_len(sample.timestamp_ms);
            shape.len += 2 + shape.sample_len;
        }
        if lane.body.position() + shape.len as u64 > self.max_bytes {
            lane.finish();
        }
        lane.put_labels(labels, shape);
        match sample.value {
            Value::Float(value) => {
                lane.put_sample(value, sample.timestamp_ms);
                lane.written.samples += 1;
            }
            Value::Native(_) => lane.written.histograms += 1,
            Value::Absent => {}
        }
        if !beside.is_empty() {
            lane.body.put(beside);
        }
        lane.written.series += 1;
        lane.written.exemplars += sample.exemplars.len() as u64;
    }

    fn metric(&mut self, about: &About<'_>) {
        let Some(metadata) = &mut self.metadata else {
            return;
        };
        // It goes with the first lane.
        if about.family.is_empty() || metadata.known.contains(about.family) || self.left_out.contains(0) {
            return;
        }
        metadata.known.insert(about.family.into());
        let mut message = Vec::new();
        put_uint(&mut message, 1, about.kind as u64);
        put_delimited(&mut message, 2, about.family.as_bytes());
        put_delimited(&mut message, 4, about.help.as_bytes());
        put_delimited(&mut message, 5, about.unit.as_bytes());
        put_delimited(&mut metadata.body, METADATA, &message);
    }

    fn leave_out(&mut self, lanes: &LaneSet) {
        self.left_out.clone_from(lanes);
    }
}

#[cfg(test)]
mod tests;
