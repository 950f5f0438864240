//! Remote write 2.0: bodies of `io.prometheus.write.v2.Request`.
//!
//! A body has one table of texts, and a series refers to it: what a series costs is the references, its sample, and what is
//! new in its labels. The references of a plan's labels are found once for a body; a series is written as what differs from
//! the one before it (see [`crate::snappy`]).

mod symbols;

use std::collections::HashMap;

use crate::body::{Body, Format, Lanes, Written};
use crate::labels::{METRIC_NAME, SeriesLabels, Slot};
use crate::lane_set::LaneSet;
use crate::protobuf::{put_delimited, put_double, put_uint, put_varint, varint_len};
use crate::snappy;
use crate::transcode::{About, Exemplar, Sample, Sink, Value};

pub(crate) use symbols::Symbols;

/// `Request.timeseries` with its wire type.
const TIMESERIES_KEY: u8 = 5 << 3 | 2;

/// Fields of `TimeSeries`.
pub(crate) const LABELS_REFS: u32 = 1;
pub(crate) const SAMPLES: u32 = 2;
pub(crate) const HISTOGRAMS: u32 = 3;
pub(crate) const EXEMPLARS: u32 = 4;
pub(crate) const METADATA: u32 = 5;

/// Fields of `Histogram`, beside those the mapping makes.
pub(crate) const HISTOGRAM_TIMESTAMP: u32 = 15;
pub(crate) const HISTOGRAM_START: u32 = 17;

/// Plans whose references are kept for a body. Points that share a plan with no other have one each.
const MAX_TEMPLATES: usize = 1024;

/// Bytes a series may take beside its labels, in the table and out of it: references, keys, a sample and the metadata's
/// references. Only for deciding whether it still fits into a body.
const BESIDE_LABELS: usize = 128;

/// Writes series into the bodies of their lanes.
#[derive(Debug)]
pub(crate) struct V2 {
    lanes: Vec<Lane>,
    max_bytes: u64,
    left_out: LaneSet,
    /// Tells the metric that series are being written of from those before it; never 0.
    metric: u64,
    compressor: Compressor,
    refs: Vec<u8>,
    beside: Vec<u8>,
}

/// Compresses the tables of symbols.
struct Compressor(Box<snap::raw::Encoder>);

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Compressor")
    }
}

/// One lane's body so far.
#[derive(Debug, Default)]
struct Lane {
    symbols: Symbols,
    series: snappy::Block,
    /// The series written last, and where it stands.
    last: Vec<u8>,
    last_at: u64,
    now: Vec<u8>,
    templates: HashMap<u64, Template>,
    /// The metadata of this metric, as a field of a series.
    metric: u64,
    metadata: Vec<u8>,
    written: Written,
    finished: Vec<Body>,
}

/// The references of a plan's labels in one body: those of what all its series have, and between them the places of what each
/// has of its own.
#[derive(Debug, Default)]
struct Template {
    fixed: Vec<u8>,
    /// Where in `fixed` a value is missing, and whose.
    gaps: Vec<(u32, Slot)>,
}

impl V2 {
    pub fn new(lanes: usize, max_bytes: usize) -> Self {
        Self {
            lanes: (0..lanes.max(1)).map(|_| Lane::default()).collect(),
            max_bytes: max_bytes as u64,
            left_out: LaneSet::default(),
            metric: 1,
            compressor: Compressor(Box::new(snap::raw::Encoder::new())),
            refs: Vec::new(),
            beside: Vec::new(),
        }
    }

    /// Ends all bodies. The next sample begins new ones.
    pub fn finish(&mut self) -> Lanes {
        let compressor = &mut self.compressor;
        self.lanes
            .iter_mut()
            .map(|lane| {
                lane.finish(compressor);
                std::mem::take(&mut lane.finished)
            })
            .collect()
    }
}

impl Lane {
    fn finish(&mut self, compressor: &mut Compressor) {
        if self.series.position() == 0 {
            return;
        }
        self.finished.push(Body {
            bytes: self
                .series
                .finish_after(self.symbols.encoded(), &mut compressor.0),
            written: std::mem::take(&mut self.written),
            format: Format::V2,
        });
        self.symbols.clear();
        self.templates.clear();
        self.last.clear();
        self.last_at = 0;
        self.metric = 0;
    }

    /// Writes the references of a series's labels.
    #[inline]
    fn refs(&mut self, labels: &SeriesLabels<'_>, refs: &mut Vec<u8>) {
        if self.templates.len() >= MAX_TEMPLATES {
            self.templates.clear();
        }
        let symbols = &mut self.symbols;
        let template = (self.templates)
            .entry(labels.plan.id)
            .or_insert_with(|| Template::new(labels, symbols));
        let mut from = 0;
        for (to, slot) in &template.gaps {
            refs.extend_from_slice(&template.fixed[from..*to as usize]);
            from = *to as usize;
            let value = match slot {
                Slot::Name => labels.name.value.as_bytes(),
                Slot::Extra => labels.extra.map_or(&b""[..], |extra| extra.value.as_bytes()),
                Slot::Point(index) => labels.point.value_bytes(*index),
                Slot::Run(_) => continue,
            };
            put_varint(refs, u64::from(symbols.of(value)));
        }
        refs.extend_from_slice(&template.fixed[from..]);
    }

    /// Bytes that the texts of the metric with this number add to the table.
    #[inline]
    fn new_bytes(&self, metric: u64, about: &About<'_>) -> usize {
        if self.metric == metric {
            return 0;
        }
        let new = |text: &str| !self.symbols.has(text.as_bytes());
        let texts = [about.help, about.unit].into_iter().filter(|text| new(text));
        texts.map(str::len).sum()
    }

    /// The metadata of the metric with this number, as a field of a series.
    fn describe(&mut self, metric: u64, about: &About<'_>) {
        if self.metric == metric {
            return;
        }
        self.metric = metric;
        let help = self.symbols.of(about.help.as_bytes());
        let unit = self.symbols.of(about.unit.as_bytes());
        self.metadata.clear();
        put_metadata(&mut self.metadata, about.kind as u64, help, unit);
    }

    /// Writes what is in `now`, as what differs from the series before it.
    fn put_now(&mut self) {
        let at = self.series.position();
        put_difference(&mut self.series, &self.last, self.last_at, &self.now);
        std::mem::swap(&mut self.last, &mut self.now);
        self.last_at = at;
    }
}

impl Template {
    #[cold]
    fn new(labels: &SeriesLabels<'_>, symbols: &mut Symbols) -> Self {
        let mut template = Template::default();
        let fixed = &mut template.fixed;
        for slot in &labels.plan.slots {
            let name = match slot {
                Slot::Run(run) => {
                    for (name, value) in labels.block.labels(*run) {
                        put_varint(fixed, u64::from(symbols.of(name.as_bytes())));
                        put_varint(fixed, u64::from(symbols.of(value.as_bytes())));
                    }
                    continue;
                }
                Slot::Name => METRIC_NAME,
                Slot::Extra => labels.plan.extra().name(),
                Slot::Point(index) => &labels.names.get(labels.point.name(*index)).text,
            };
            put_varint(fixed, u64::from(symbols.of(name.as_bytes())));
            template.gaps.push((fixed.len() as u32, *slot));
        }
        template
    }
}

/// Writes `now` as what differs from `before`, which stands at `before_at`: first from its beginning on, then
/// from its end.
fn put_difference(block: &mut snappy::Block, before: &[u8], before_at: u64, now: &[u8]) {
    let same = common_prefix(before, now);
    block.put_again(&now[..same], before_at);
    let (before, now) = (&before[same..], &now[same..]);
    let aligned = before.len().min(now.len());
    let (new, mut now) = now.split_at(now.len() - aligned);
    block.put(new);
    let skipped = before.len() - aligned;
    let mut before = &before[skipped..];
    let mut at = before_at + (same + skipped) as u64;
    while !now.is_empty() {
        let other = before.iter().zip(now).take_while(|(a, b)| a != b).count();
        let same = common_prefix(&before[other..], &now[other..]);
        block.put(&now[..other]);
        block.put_again(&now[other..other + same], at + other as u64);
        at += (other + same) as u64;
        before = &before[other + same..];
        now = &now[other + same..];
    }
}

/// How many bytes two texts begin with alike.
#[inline]
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    // Bytes that differ first are found in words: a loop over bytes that ends anywhere is guessed wrongly each time.
    let first_difference = |a: &[u8; 8], b: &[u8; 8]| {
        let difference = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        (difference != 0).then_some(difference.trailing_zeros() as usize / 8)
    };
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    for (at, (a, b)) in words.enumerate() {
        if let Some(difference) = first_difference(a, b) {
            return 8 * at + difference;
        }
    }
    match (a.last_chunk(), b.last_chunk()) {
        // Some of it is known to be the same.
        (Some(last_a), Some(last_b)) => {
            first_difference(last_a, last_b).map_or(len, |difference| len - 8 + difference)
        }
        _ => a.iter().zip(b).take_while(|(a, b)| a == b).count(),
    }
}

/// Appends a `Metadata` as a field of a series.
pub(crate) fn put_metadata(out: &mut Vec<u8>, kind: u64, help: u32, unit: u32) {
    let mut message = Vec::with_capacity(16);
    put_uint(&mut message, 1, kind);
    put_uint(&mut message, 3, u64::from(help));
    put_uint(&mut message, 4, u64::from(unit));
    put_delimited(out, METADATA, &message);
}

/// Appends a `Sample` as a field of a series.
#[inline]
pub(crate) fn put_sample(out: &mut Vec<u8>, value: f64, timestamp_ms: i64, start_ms: i64) {
    let varint_field_len = |value: i64| {
        if value == 0 {
            0
        } else {
            1 + varint_len(value as u64)
        }
    };
    let len = 9 + varint_field_len(timestamp_ms) + varint_field_len(start_ms);
    out.extend_from_slice(&[(SAMPLES << 3 | 2) as u8, len as u8]);
    put_double(out, 1, value);
    put_uint(out, 2, timestamp_ms as u64);
    put_uint(out, 3, start_ms as u64);
}

/// Appends a `Histogram` as a field of a series: what the mapping made of it, and its times.
fn put_histogram(out: &mut Vec<u8>, histogram: &[u8], timestamp_ms: i64, start_ms: i64) {
    let mut times = Vec::with_capacity(24);
    put_uint(&mut times, HISTOGRAM_TIMESTAMP, timestamp_ms as u64);
    put_uint(&mut times, HISTOGRAM_START, start_ms as u64);
    put_varint(out, u64::from(HISTOGRAMS << 3 | 2));
    put_varint(out, (histogram.len() + times.len()) as u64);
    out.extend_from_slice(histogram);
    out.extend_from_slice(&times);
}

/// Appends an `Exemplar` as a field of a series.
pub(crate) fn put_exemplar<'l>(
    out: &mut Vec<u8>,
    symbols: &mut Symbols,
    labels: impl Iterator<Item = (&'l str, &'l str)>,
    value: f64,
    timestamp_ms: i64,
) {
    let mut refs = Vec::new();
    for (name, value) in labels {
        put_varint(&mut refs, u64::from(symbols.of(name.as_bytes())));
        put_varint(&mut refs, u64::from(symbols.of(value.as_bytes())));
    }
    let mut message = Vec::with_capacity(refs.len() + 24);
    if !refs.is_empty() {
        put_delimited(&mut message, LABELS_REFS, &refs);
    }
    put_double(&mut message, 2, value);
    put_uint(&mut message, 3, timestamp_ms as u64);
    put_delimited(out, EXEMPLARS, &message);
}

/// Bytes that the labels of exemplars may add to the table of symbols.
fn exemplar_bytes(exemplars: &[Exemplar]) -> usize {
    let labels = exemplars.iter().flat_map(|exemplar| &exemplar.labels);
    let texts: usize = labels.map(|(name, value)| name.len() + value.len() + 20).sum();
    texts + 32 * exemplars.len()
}

impl Sink for V2 {
    #[inline]
    fn sample(&mut self, labels: &SeriesLabels<'_>, sample: &Sample<'_>, about: &About<'_>) {
        let lane = match self.lanes.len() {
            1 => 0,
            lanes => crate::hash::lane(labels.hash(), lanes),
        };
        if self.left_out.contains(lane) {
            return;
        }
        let lane = &mut self.lanes[lane];
        let histogram = match sample.value {
            Value::Float(_) | Value::Absent => 0,
            Value::Native(histogram) => histogram.len(),
        };
        let at_most = labels.encoded_len()
            + histogram
            + exemplar_bytes(sample.exemplars)
            + lane.new_bytes(self.metric, about)
            + BESIDE_LABELS;
        let so_far = lane.symbols.encoded().len() as u64 + lane.series.position();
        if so_far + at_most as u64 > self.max_bytes {
            lane.finish(&mut self.compressor);
        }
        self.refs.clear();
        lane.refs(labels, &mut self.refs);
        lane.describe(self.metric, about);
        let beside = &mut self.beside;
        beside.clear();
        match sample.value {
            Value::Float(value) => {
                put_sample(beside, value, sample.timestamp_ms, sample.start_ms);
                lane.written.samples += 1;
            }
            Value::Native(histogram) => {
                put_histogram(beside, histogram, sample.timestamp_ms, sample.start_ms);
                lane.written.histograms += 1;
            }
            Value::Absent => {}
        }
        for exemplar in sample.exemplars {
            put_exemplar(
                beside,
                &mut lane.symbols,
                exemplar.pairs(),
                exemplar.value,
                exemplar.timestamp_ms,
            );
        }
        let refs_len = 1 + varint_len(self.refs.len() as u64) + self.refs.len();
        let now = &mut lane.now;
        now.clear();
        now.push(TIMESERIES_KEY);
        put_varint(now, (refs_len + beside.len() + lane.metadata.len()) as u64);
        put_delimited(now, LABELS_REFS, &self.refs);
        now.extend_from_slice(beside);
        now.extend_from_slice(&lane.metadata);
        lane.put_now();
        lane.written.series += 1;
        lane.written.exemplars += sample.exemplars.len() as u64;
    }

    fn metric(&mut self, _: &About<'_>) {
        self.metric += 1;
    }

    fn leave_out(&mut self, lanes: &LaneSet) {
        self.left_out.clone_from(lanes);
    }
}

#[cfg(test)]
mod tests {
    use super::common_prefix;

    /// Scenario: texts of all lengths up to 20, and those that differ from them in one byte, or are shorter.
    /// Guarantees: what they begin with alike is as long as looking byte by byte says.
    #[test]
    fn what_texts_begin_with_alike() {
        let text = b"abcdefghijklmnopqrst";
        for len in 0..=text.len() {
            for other_len in 0..=len {
                assert_eq!(common_prefix(&text[..len], &text[..other_len]), other_len);
                for at in 0..other_len {
                    let mut other = text[..other_len].to_vec();
                    other[at] ^= 0x80;
                    assert_eq!(common_prefix(&text[..len], &other), at);
                    assert_eq!(common_prefix(&other, &text[..len]), at);
                }
            }
        }
    }
}
