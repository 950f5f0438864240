//! Remote write 1.0: bodies of `prometheus.WriteRequest`, written compressed.
//!
//! In 1.0 every series spells out all its labels, and most of them are those of a series before. So a lane remembers where
//! the parts of the last series of each plan stand in the body, and where each label stood last, and what has been there is written as
//! a repeat of those bytes (see [`crate::snappy`]): what a series costs is what is new in it.

use std::collections::HashSet;

use crate::body::{Body, Format, Lanes, Written};
use crate::labels::{Plan, Run, SeriesLabels, Slot};
use crate::protobuf::{put_delimited, put_double, put_uint, put_varint, varint_len};
use crate::snappy::MAX_OFFSET;
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
#[derive(Debug)]
struct Lane<W> {
    body: W,
    /// Bytes of the bodies before this one: positions that are remembered count from the first body, so that those of bodies
    /// that are finished are never taken for one in this.
    base: u64,
    written: Written,
    finished: Vec<Body>,
    /// Key and length of the series written last, and where they stand.
    head: Vec<u8>,
    head_at: u64,
    last_sample: Option<LastSample>,
    /// The last series of each plan, by the plan's id.
    last: Box<[Last; LAST]>,
    seen: Box<[Seen]>,
    places: Places,
}

/// Plans of which the last series is remembered: a histogram's series are of two, and metrics with several sets of keys take turns.
const LAST: usize = 16;

/// The last series of a plan: its parts, and where they stand.
#[derive(Debug, Default)]
struct Last {
    /// Of its plan; 0: there is none.
    plan: u64,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, Copy)]
struct LastSample {
    position: u64,
    value: [u8; 8],
    timestamp: i64,
}

/// Labels of which the last place is remembered, by their number.
const SEEN: usize = 1024;

/// Where a label stood last.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    serial: u64,
    /// Of the series that it stood in.
    plan: u64,
    position: u64,
}

#[derive(Debug, Default)]
struct Part {
    position: u64,
    serial: u64,
    /// Of what is no run.
    bytes: Vec<u8>,
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
            lanes: (0..lanes.max(1)).map(|_| Lane::new()).collect(),
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
    fn new() -> Self {
        Self {
            body: W::default(),
            // Positions before it are those of nothing.
            base: 1,
            written: Written::default(),
            finished: Vec::new(),
            head: Vec::new(),
            head_at: 0,
            last_sample: None,
            last: Box::default(),
            seen: vec![Seen::default(); SEEN].into(),
            places: Places::default(),
        }
    }

    fn finish(&mut self) {
        if self.body.position() == 0 {
            return;
        }
        self.base += self.body.position();
        self.finished.push(Body {
            bytes: self.body.finish(),
            written: std::mem::take(&mut self.written),
            format: W::FORMAT,
        });
        self.head.clear();
        self.last_sample = None;
        self.last.iter_mut().for_each(|last| last.plan = 0);
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
        if self.head == head {
            self.body.put_again(head, self.head_at);
        } else {
            self.body.put(head);
            self.head.clear();
            self.head.extend_from_slice(head);
        }
        self.head_at = start;
        if self.last[place_of(labels.plan)].plan == labels.plan.id {
            self.put_like_last(labels);
        } else {
            self.put_anew(labels);
        }
    }

    /// There is a series of the same plan in this body: the last one is repeated as far as it is the same. A label that
    /// is another is repeated from where it stood last, and what follows from there too.
    #[inline]
    fn put_like_last(&mut self, labels: &SeriesLabels<'_>) {
        let plan = labels.plan.id;
        // Where an older series of the same plan goes on that a label was repeated from.
        let mut source = None;
        for (slot, part) in labels
            .plan
            .slots
            .iter()
            .zip(&mut self.last[place_of(labels.plan)].parts)
        {
            let bytes = labels.slot(*slot);
            let position = self.body.position();
            let last_position = std::mem::replace(&mut part.position, position);
            if let Slot::Run(run) = slot {
                let from = source.unwrap_or(last_position);
                if position - from <= MAX_OFFSET {
                    self.body.put_again(bytes, from);
                } else {
                    put_run(&mut self.body, &mut self.places, labels, *run);
                }
                source = source.map(|source| source + bytes.len() as u64);
                continue;
            }
            let serial = labels.serial(*slot);
            let seen = Seen {
                serial,
                plan,
                position: self.base + position,
            };
            let seen = std::mem::replace(&mut self.seen[serial as usize % SEEN], seen);
            if serial != 0 && serial == part.serial {
                source = None;
                self.body.put_again(bytes, last_position);
                continue;
            }
            if serial != 0 && serial == seen.serial && seen.position >= self.base {
                let from = seen.position - self.base;
                source = (seen.plan == plan).then_some(from + bytes.len() as u64);
                self.body.put_again(bytes, from);
            } else {
                source = None;
                let same = common_prefix(&part.bytes, bytes);
                self.body.put_again(&bytes[..same], last_position);
                self.body.put(&bytes[same..]);
            }
            part.serial = serial;
            part.bytes.clear();
            part.bytes.extend_from_slice(bytes);
        }
    }

    #[cold]
    fn put_anew(&mut self, labels: &SeriesLabels<'_>) {
        let last = &mut self.last[place_of(labels.plan)];
        last.plan = labels.plan.id;
        last.parts.resize_with(labels.plan.slots.len(), Part::default);
        for (slot, part) in labels.plan.slots.iter().zip(&mut last.parts) {
            part.position = self.body.position();
            if let Slot::Run(run) = slot {
                put_run(&mut self.body, &mut self.places, labels, *run);
                continue;
            }
            let bytes = labels.slot(*slot);
            part.serial = labels.serial(*slot);
            part.bytes.clear();
            part.bytes.extend_from_slice(bytes);
            let seen = Seen {
                serial: part.serial,
                plan: last.plan,
                position: self.base + part.position,
            };
            let seen = std::mem::replace(&mut self.seen[part.serial as usize % SEEN], seen);
            if part.serial != 0 && part.serial == seen.serial && seen.position >= self.base {
                self.body.put_again(bytes, seen.position - self.base);
            } else {
                self.body.put(bytes);
            }
        }
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
        let sample = LastSample {
            position,
            value,
            timestamp: timestamp_ms,
        };
        match self.last_sample.replace(sample) {
            Some(last) if last.timestamp == timestamp_ms && last.value == value => {
                self.body.put_again(&message[..end], last.position);
            }
            Some(last) if last.timestamp == timestamp_ms => {
                self.body.put_again(&message[..3], last.position);
                self.body.put(&message[3..11]);
                self.body.put_again(&message[11..end], last.position + 11);
            }
            _ => self.body.put(&message[..end]),
        }
    }
}

#[inline]
fn place_of(plan: &Plan) -> usize {
    plan.id as usize % LAST
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
