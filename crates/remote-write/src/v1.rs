//! Remote write 1.0: bodies of `prometheus.WriteRequest`, written compressed.
//!
//! In 1.0 every series spells out all its labels, and most of them are those of the series before. So a lane remembers where
//! the parts of its last series stand in the body, and a part that is the same is written as a repeat of those bytes (see
//! [`crate::snappy`]): what a series costs is what is new in it.

use std::collections::HashSet;

use crate::body::{Body, Format, Lanes, Written};
use crate::labels::{Run, SeriesLabels, Slot};
use crate::protobuf::{put_delimited, put_double, put_uint, put_varint, varint_len};
use crate::transcode::{About, Sample, Sink, Value};
use crate::v2::common_prefix;

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

    /// Appends bytes that stand at `position` already.
    fn put_again(&mut self, bytes: &[u8], position: u64);

    /// Ends the body and begins a new one.
    fn finish(&mut self) -> bytes::Bytes;
}

/// Writes series into the bodies of their lanes.
#[derive(Debug)]
pub(crate) struct V1<W> {
    lanes: Vec<Lane<W>>,
    max_bytes: u64,
    metadata: Option<Metadata>,
    beside: Vec<u8>,
}

/// The metadata of the families of one request, each once.
#[derive(Debug, Default)]
struct Metadata {
    body: Vec<u8>,
    known: HashSet<Box<str>>,
}

/// One lane's body so far.
#[derive(Debug, Default)]
struct Lane<W> {
    body: W,
    written: Written,
    finished: Vec<Body>,
    last: Last,
    places: Places,
}

/// The parts of the series written last, and where they stand.
#[derive(Debug, Default)]
struct Last {
    /// Of its plan; 0: there is none.
    plan: u64,
    start: u64,
    head: Vec<u8>,
    parts: Vec<Part>,
    /// The bytes of the parts that are no runs.
    bytes: Vec<u8>,
    has_sample: bool,
    sample: u64,
    value: [u8; 8],
    timestamp: i64,
}

#[derive(Debug, Clone, Copy)]
struct Part {
    position: u64,
    /// In [`Last::bytes`]; of a run nothing.
    start: u32,
    end: u32,
}

/// Where labels of blocks stand: for series whose plan is not the last one's.
#[derive(Debug)]
struct Places {
    slots: Box<[Place]>,
    /// The labels, for comparing.
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Place {
    hash: u64,
    position: u64,
    start: u32,
    end: u32,
}

impl Places {
    /// Labels of a few dozen resources.
    const SLOTS: usize = 512;

    /// When the labels take more than this, all are forgotten.
    const MAX_BYTES: usize = 256 << 10;

    fn clear(&mut self) {
        self.slots.fill(Place::default());
        self.bytes.clear();
    }

    /// Where this label stands, if it does; from now on it stands at `position`.
    fn note(&mut self, hash: u64, bytes: &[u8], position: u64) -> Option<u64> {
        if self.bytes.len() > Self::MAX_BYTES {
            self.clear();
        }
        let place = &mut self.slots[hash as usize % Self::SLOTS];
        if place.hash == hash && self.bytes[place.start as usize..place.end as usize] == *bytes {
            return Some(std::mem::replace(&mut place.position, position));
        }
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        *place = Place {
            hash,
            position,
            start,
            end: self.bytes.len() as u32,
        };
        None
    }
}

impl Default for Places {
    fn default() -> Self {
        Self {
            slots: vec![Place::default(); Self::SLOTS].into(),
            bytes: Vec::new(),
        }
    }
}

impl<W: Writer> V1<W> {
    pub fn new(lanes: usize, max_bytes: usize, metadata: bool) -> Self {
        Self {
            lanes: (0..lanes.max(1)).map(|_| Lane::default()).collect(),
            max_bytes: max_bytes as u64,
            metadata: metadata.then(Metadata::default),
            beside: Vec::new(),
        }
    }

    /// Ends all bodies. The next sample begins new ones.
    pub fn finish(&mut self) -> Lanes {
        if let Some(metadata) = &mut self.metadata {
            metadata.known.clear();
            self.lanes[0].body.put(&metadata.body);
            metadata.body.clear();
        }
        self.lanes
            .iter_mut()
            .map(|lane| {
                lane.finish();
                std::mem::take(&mut lane.finished)
            })
            .collect()
    }
}

impl<W: Writer> Lane<W> {
    fn finish(&mut self) {
        if self.body.position() == 0 {
            return;
        }
        self.finished.push(Body {
            bytes: self.body.finish(),
            written: std::mem::take(&mut self.written),
            format: W::FORMAT,
        });
        self.last.plan = 0;
        self.last.has_sample = false;
        self.places.clear();
    }

    /// Writes key and length of a series, and its labels.
    #[inline]
    fn put_labels(&mut self, labels: &SeriesLabels<'_>, len: usize) {
        let (mut head, mut head_len) = ([TIMESERIES_KEY; 11], 1);
        let mut left = len;
        while left >= 0x80 {
            head[head_len] = left as u8 | 0x80;
            left >>= 7;
            head_len += 1;
        }
        head[head_len] = left as u8;
        let head = &head[..=head_len];
        let start = self.body.position();
        if self.last.plan != 0 && self.last.head == head {
            self.body.put_again(head, self.last.start);
        } else {
            self.body.put(head);
            self.last.head.clear();
            self.last.head.extend_from_slice(head);
        }
        self.last.start = start;
        if self.last.plan == labels.plan.id {
            self.put_like_last(labels);
        } else {
            self.put_anew(labels);
        }
    }

    /// The series is laid out like the one before.
    #[inline]
    fn put_like_last(&mut self, labels: &SeriesLabels<'_>) {
        let last = &mut self.last;
        let mut kept = 0;
        for (slot, part) in labels.plan.slots.iter().zip(&mut last.parts) {
            let position = self.body.position();
            let bytes = labels.slot(*slot);
            if let Slot::Run(_) = slot {
                self.body.put_again(bytes, part.position);
                part.position = position;
                continue;
            }
            let (start, end) = (part.start as usize, part.end as usize);
            let before = &last.bytes[start..end];
            let same = common_prefix(before, bytes);
            self.body.put_again(&bytes[..same], part.position);
            self.body.put(&bytes[same..]);
            part.position = position;
            if kept == start && before.len() == bytes.len() {
                last.bytes[start + same..end].copy_from_slice(&bytes[same..]);
                kept = end;
            } else {
                // What comes after has moved.
                kept = usize::MAX;
            }
        }
        if kept == usize::MAX {
            last.remember(labels);
        }
    }

    #[cold]
    fn put_anew(&mut self, labels: &SeriesLabels<'_>) {
        let last = &mut self.last;
        last.plan = labels.plan.id;
        last.parts.clear();
        for slot in &labels.plan.slots {
            last.parts.push(Part {
                position: self.body.position(),
                start: 0,
                end: 0,
            });
            match slot {
                Slot::Run(run) => put_run(&mut self.body, &mut self.places, labels, *run),
                slot => self.body.put(labels.slot(*slot)),
            }
        }
        last.remember(labels);
    }

    /// Writes a sample; `labels` have just been written.
    #[inline]
    fn put_sample(&mut self, value: f64, timestamp_ms: i64) {
        let value = value.to_bits().to_le_bytes();
        let mut message = [0u8; 32];
        let timestamp_len = varint_len(timestamp_ms as u64);
        message[..3].copy_from_slice(&[SAMPLE_KEY, (10 + timestamp_len) as u8, 0x09]);
        message[3..11].copy_from_slice(&value);
        message[11] = 0x10;
        let mut left = timestamp_ms as u64;
        let mut end = 12;
        while left >= 0x80 {
            message[end] = left as u8 | 0x80;
            left >>= 7;
            end += 1;
        }
        message[end] = left as u8;
        end += 1;
        let position = self.body.position();
        let last = &mut self.last;
        if !last.has_sample || timestamp_ms != last.timestamp {
            self.body.put(&message[..end]);
        } else if value == last.value {
            self.body.put_again(&message[..end], last.sample);
        } else {
            self.body.put_again(&message[..3], last.sample);
            self.body.put(&message[3..11]);
            self.body.put_again(&message[11..end], last.sample + 11);
        }
        last.has_sample = true;
        last.sample = position;
        last.value = value;
        last.timestamp = timestamp_ms;
    }
}

impl Last {
    /// Keeps the bytes of the parts that are no runs.
    fn remember(&mut self, labels: &SeriesLabels<'_>) {
        self.bytes.clear();
        for (slot, part) in labels.plan.slots.iter().zip(&mut self.parts) {
            part.start = self.bytes.len() as u32;
            if !matches!(slot, Slot::Run(_)) {
                self.bytes.extend_from_slice(labels.slot(*slot));
            }
            part.end = self.bytes.len() as u32;
        }
    }
}

/// Writes the labels of a run, each as a repeat where it stands already.
fn put_run(body: &mut impl Writer, places: &mut Places, labels: &SeriesLabels<'_>, run: Run) {
    for (hash, bytes) in labels.block.encoded_labels(run) {
        match places.note(hash, bytes, body.position()) {
            Some(position) => body.put_again(bytes, position),
            None => body.put(bytes),
        }
    }
}

/// Bytes of a sample as a field of a `TimeSeries`.
#[inline]
fn sample_len(timestamp_ms: i64) -> usize {
    2 + 9 + 1 + varint_len(timestamp_ms as u64)
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
        let mut len = labels.encoded_len() + beside.len();
        if let Value::Float(_) = sample.value {
            len += sample_len(sample.timestamp_ms);
        }
        if lane.body.position() + len as u64 > self.max_bytes {
            lane.finish();
        }
        lane.put_labels(labels, len);
        match sample.value {
            Value::Float(value) => {
                lane.put_sample(value, sample.timestamp_ms);
                lane.written.samples += 1;
            }
            Value::Native(_) => lane.written.histograms += 1,
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
        if metadata.known.contains(about.family) {
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
}
