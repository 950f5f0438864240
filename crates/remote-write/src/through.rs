//! Remote write to remote write: series as they came, into the bodies of an exporter.
//!
//! Names, labels, values and times stay as they are. What is added are the external labels that a series has not got; what
//! is done to series later, by rules and by what the destination reads, is the [`Sink`]'s.
//!
//! Requests are checked when they come ([`crate::check`]); of others some series may be missing or wrong, but what is written is
//! well-formed all the same. A label that was read before is known by its bytes, and neither read nor made again: see
//! [`crate::point_labels`]. The bytes it is known by are those of 1.0's `Label`, for both versions.

mod alone;
mod plans;

#[cfg(test)]
mod tests;

use sluice_wire::{Field, Fields, range_of};

use crate::decode::{self, Version};
use crate::dropped::Reason;
use crate::labels::{Block, BlockLabel, Label, METRIC_NAME, NameId, Names, SeriesLabels};
use crate::point_labels::{PointLabels, Unknown};
use crate::protobuf::{put_delimited, unzigzag};
use crate::rewrite::CUSTOM_BUCKETS;
use crate::transcode::{About, Exemplar, MetricType, Outcome, Sample, Sink, Value};
use crate::v2::{HISTOGRAM_START, HISTOGRAM_TIMESTAMP};
use alone::{Alone, Numbers};
use plans::Plans;

/// Reads series and hands them on. Keeps what it has made of labels, so that the next request costs less.
#[derive(Debug)]
pub(crate) struct Through {
    names: Names,
    /// The external labels.
    block: Block,
    plans: Plans,
    point: PointLabels,
    no_name: Label,
    /// `__name__`
    metric_name: Option<NameId>,
    /// The names of the series's labels.
    keys: Vec<NameId>,
    exemplars: Vec<Exemplar>,
    /// Room for a label of 2.0 as 1.0 writes it, for references, and for a histogram without its times.
    label: Vec<u8>,
    references: Vec<usize>,
    histogram: Vec<u8>,
    outcome: Outcome,
}

/// What is said of a metric of which nothing is said.
const UNKNOWN: About<'static> = About {
    family: "",
    kind: MetricType::Unknown,
    unit: "",
    help: "",
};

/// `TimeSeries.samples`, in both versions.
const SAMPLES: u32 = 2;

/// What a series has beside its labels.
struct Rest<'a> {
    version: Version,
    /// Its message from the first field that is no label on.
    fields: &'a [u8],
    /// Since when all of its samples count, where they do not say so themselves.
    created_ms: i64,
}

impl Through {
    pub fn new(external_labels: &[(String, String)]) -> Self {
        let label = |(name, value): &(String, String)| BlockLabel {
            name: name.clone(),
            value: value.clone(),
            wins: false,
        };
        Self {
            names: Names::verbatim(),
            block: Block::new(external_labels.iter().map(label).collect()),
            plans: Plans::default(),
            point: PointLabels::apart(),
            no_name: Label::none(),
            metric_name: None,
            keys: Vec::new(),
            exemplars: Vec::new(),
            label: Vec::new(),
            references: Vec::new(),
            histogram: Vec::new(),
            outcome: Outcome::default(),
        }
    }

    /// Hands on all series of a request, for a destination that reads `out`.
    pub fn run(&mut self, version: Version, body: &[u8], out: Version, sink: &mut impl Sink) -> Outcome {
        self.make_room();
        self.outcome = Outcome::default();
        let numbers = Numbers::of(version);
        let mut alone = match out {
            Version::V1 => Alone::default(),
            Version::V2 => Alone::of(body, numbers),
        };
        match version {
            Version::V1 => self.first(body, out, &mut alone, sink),
            Version::V2 => self.second(body, out, &mut alone, sink),
        }
        self.outcome.dropped_exemplars += alone.left(numbers);
        self.point.make_room();
        self.exemplars.clear();
        self.outcome
    }

    /// Forgets what has grown beyond its limit.
    fn make_room(&mut self) {
        if self.names.is_full() {
            // Plans and labels hold on to names by their index.
            self.names.clear();
            self.plans.clear();
            self.point.forget();
        }
        self.metric_name = self.names.of(METRIC_NAME);
    }

    /// A request of 1.0.
    fn first(&mut self, body: &[u8], out: Version, alone: &mut Alone<'_>, sink: &mut impl Sink) {
        let numbers = Numbers::of(Version::V1);
        sink.metric(&UNKNOWN);
        for field in Fields::of(body) {
            match (field.number, field.bytes()) {
                (1, Some(message)) => {
                    self.begin_series();
                    let mut rest = None;
                    for field in Fields::of(message) {
                        if field.number == 1 {
                            self.add_label(field.value);
                            continue;
                        }
                        rest = rest.or(Some(field.framed));
                        if field.number == numbers.exemplars {
                            self.add_exemplar(decode::v1::exemplar(field.value).ok());
                        }
                    }
                    let rest = Rest {
                        version: Version::V1,
                        fields: from(message, rest),
                        created_ms: 0,
                    };
                    let others = alone.take(message, rest.fields, numbers);
                    for field in others.into_iter().flat_map(Fields::of) {
                        if field.number == numbers.exemplars {
                            self.add_exemplar(decode::v1::exemplar(field.value).ok());
                        }
                    }
                    self.put_series(&rest, &UNKNOWN, out, sink);
                }
                (3, Some(message)) => sink.metric(&metadata(message)),
                _ => {}
            }
        }
    }

    /// A request of 2.0.
    fn second(&mut self, body: &[u8], out: Version, alone: &mut Alone<'_>, sink: &mut impl Sink) {
        let numbers = Numbers::of(Version::V2);
        let symbols = decode::v2::symbols(body).unwrap_or_default();
        let symbol = |reference: usize| symbols.get(reference).copied().unwrap_or_default();
        let mut about = UNKNOWN;
        // What `about` was made of: the references of a name, and what is said of it.
        let mut told = None;
        let mut references = std::mem::take(&mut self.references);
        for message in Fields::of(body).filter_map(|field| field.bytes().filter(|_| field.number == 5)) {
            self.begin_series();
            references.clear();
            let (mut rest, mut created_ms) = (None, 0);
            let mut said = Said::default();
            for field in Fields::of(message) {
                if field.number == 1 {
                    // A list that is broken ends there.
                    let _ = decode::v2::references(&field, &mut references, decode::MAX_LABELS, "");
                    continue;
                }
                rest = rest.or(Some(field.framed));
                match field.number {
                    4 => self.add_exemplar(decode::v2::exemplar(field.value, &symbols).ok()),
                    5 => said.read(field.value),
                    6 => created_ms = field.varint().unwrap_or_default() as i64,
                    _ => {}
                }
            }
            let fields = from(message, rest);
            let items = Fields::of(fields).any(|field| match field.number {
                2 | 3 => true,
                4 => out == Version::V1,
                _ => false,
            });
            let texts = references.iter().map(|reference| symbol(*reference).len());
            // Nothing is sent of it, but a few references can be gigabytes.
            if !items || texts.sum::<usize>() > decode::MAX_LABEL_BYTES {
                continue;
            }
            for [name, value] in references.as_chunks::<2>().0 {
                if symbol(*name) == METRIC_NAME {
                    said.name = *value;
                }
                self.add_pair(symbol(*name), symbol(*value));
            }
            if told.replace(said) != Some(said) {
                let kind = MetricType::of(said.kind);
                about = About {
                    family: family(symbol(said.name), kind),
                    kind,
                    unit: symbol(said.unit),
                    help: symbol(said.help),
                };
                sink.metric(&about);
            }
            for field in alone
                .take(message, fields, numbers)
                .into_iter()
                .flat_map(Fields::of)
            {
                if field.number == numbers.exemplars {
                    self.add_exemplar(decode::v2::exemplar(field.value, &symbols).ok());
                }
            }
            let rest = Rest {
                version: Version::V2,
                fields,
                created_ms,
            };
            self.put_series(&rest, &about, out, sink);
        }
        references.shrink_to(MAX_KEPT_REFERENCES);
        self.references = references;
    }

    fn begin_series(&mut self) {
        self.point.begin();
        self.keys.clear();
        self.exemplars.clear();
    }

    fn add_exemplar(&mut self, exemplar: Option<decode::Exemplar<'_>>) {
        self.exemplars.extend(exemplar.as_ref().map(owned));
    }

    /// Adds a label, by its message of 1.0.
    #[inline]
    fn add_label(&mut self, message: &[u8]) {
        match self.point.add_known(message) {
            Ok(name) => self.keys.push(name),
            Err(unknown) => {
                let (name, value) = decode::v1::label(message).unwrap_or_default();
                self.add_new(message, unknown, name, value);
            }
        }
    }

    /// Adds a label, by its texts.
    #[inline]
    fn add_pair(&mut self, name: &str, value: &str) {
        let mut message = std::mem::take(&mut self.label);
        message.clear();
        put_delimited(&mut message, 1, name.as_bytes());
        put_delimited(&mut message, 2, value.as_bytes());
        match self.point.add_known(&message) {
            Ok(name) => self.keys.push(name),
            Err(unknown) => self.add_new(&message, unknown, name, value),
        }
        message.shrink_to(MAX_KEPT_LABEL_BYTES);
        self.label = message;
    }

    #[cold]
    fn add_new(&mut self, message: &[u8], unknown: Unknown, name: &str, value: &str) {
        // One without a value counts as absent.
        if value.is_empty() {
            return;
        }
        let Some(id) = self.names.of(name) else { return };
        let name = self.names.get(id);
        self.point.add_new(message, unknown, id, name, value.as_bytes());
        self.keys.push(id);
    }

    /// Hands on what a series has, its labels and exemplars being known.
    fn put_series(&mut self, rest: &Rest<'_>, about: &About<'_>, out: Version, sink: &mut impl Sink) {
        if rest.fields.is_empty() {
            return;
        }
        if !self.metric_name.is_some_and(|name| self.keys.contains(&name)) {
            return;
        }
        let plan = self.plans.of(&self.block, &self.names, &self.keys);
        match plan.takes_all() {
            true => self.point.all(),
            false => self.point.only(plan.point.iter().copied()),
        }
        let labels = SeriesLabels {
            block: &self.block,
            plan,
            names: &self.names,
            name: &self.no_name,
            extra: None,
            point: &self.point,
        };
        let histograms = Numbers::of(rest.version).histograms;
        // They are the series's, not of any sample of it.
        let mut exemplars = &self.exemplars[..];
        for field in Fields::of(rest.fields) {
            let (value, timestamp_ms, start_ms) = if field.number == SAMPLES {
                let Ok(sample) = (match rest.version {
                    Version::V1 => decode::v1::sample(field.value),
                    Version::V2 => decode::v2::sample(field.value),
                }) else {
                    continue;
                };
                (Value::Float(sample.value), sample.timestamp_ms, sample.start_ms)
            } else if field.number == histograms {
                let read = without_times(field.value, &mut self.histogram);
                if read.schema == CUSTOM_BUCKETS && rest.version == Version::V2 && out == Version::V1 {
                    self.outcome.dropped.add(Reason::CustomBuckets, 1);
                    continue;
                }
                (Value::Native(&self.histogram), read.timestamp_ms, read.start_ms)
            } else {
                continue;
            };
            let sample = Sample {
                value,
                timestamp_ms,
                start_ms: if start_ms == 0 { rest.created_ms } else { start_ms },
                is_delta: false,
                exemplars: std::mem::take(&mut exemplars),
            };
            sink.sample(&labels, &sample, about);
            sink.point();
            self.outcome.points += 1;
        }
        // To a destination of 2.0 they went with a sample, see [`Alone`].
        if !exemplars.is_empty() && out == Version::V1 {
            let alone = Sample {
                value: Value::Absent,
                timestamp_ms: 0,
                start_ms: 0,
                is_delta: false,
                exemplars,
            };
            sink.sample(&labels, &alone, about);
        }
    }
}

/// Room that stays between requests: what no usual series needs more of.
const MAX_KEPT_REFERENCES: usize = 1024;
const MAX_KEPT_LABEL_BYTES: usize = 64 << 10;

/// What a series of 2.0 says of its metric: its type, and the references of texts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Said {
    name: usize,
    kind: u64,
    help: usize,
    unit: usize,
}

impl Said {
    fn read(&mut self, metadata: &[u8]) {
        for field in Fields::of(metadata) {
            let number = field.varint().unwrap_or_default();
            match field.number {
                1 => self.kind = number,
                3 => self.help = number as usize,
                4 => self.unit = number as usize,
                _ => {}
            }
        }
    }
}

/// What a `MetricMetadata` of 1.0 says.
fn metadata(message: &[u8]) -> About<'_> {
    let mut about = UNKNOWN;
    for field in Fields::of(message) {
        match field.number {
            1 => about.kind = MetricType::of(field.varint().unwrap_or_default()),
            2 => about.family = text(&field),
            4 => about.help = text(&field),
            5 => about.unit = text(&field),
            _ => {}
        }
    }
    about
}

fn text<'a>(field: &Field<'a>) -> &'a str {
    std::str::from_utf8(field.value).unwrap_or_default()
}

/// The family that a series of this name is of.
fn family(name: &str, kind: MetricType) -> &str {
    let suffixes: &[&str] = match kind {
        MetricType::Histogram | MetricType::GaugeHistogram => &["_bucket", "_count", "_sum"],
        MetricType::Summary => &["_count", "_sum"],
        _ => &[],
    };
    let stripped = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
    stripped.unwrap_or(name)
}

/// `message` from this field of it on; nothing where there is none.
fn from<'a>(message: &'a [u8], field: Option<&[u8]>) -> &'a [u8] {
    let start = field.and_then(|field| range_of(message, field));
    start.map_or(&[], |range| &message[range.start..])
}

fn owned(exemplar: &decode::Exemplar<'_>) -> Exemplar {
    let mut labels: Vec<_> = (exemplar.labels.iter())
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    labels.sort();
    labels.dedup_by(|later, first| later.0 == first.0);
    Exemplar {
        labels,
        value: exemplar.value,
        timestamp_ms: exemplar.timestamp_ms,
    }
}

/// What a `Histogram` says beside its buckets.
#[derive(Debug, Default)]
struct Times {
    timestamp_ms: i64,
    start_ms: i64,
    schema: i64,
}

/// Copies a `Histogram` but for its times, which each version has its own place for.
fn without_times(message: &[u8], out: &mut Vec<u8>) -> Times {
    out.clear();
    let mut times = Times::default();
    for field in Fields::of(message) {
        let number = || field.varint().unwrap_or_default();
        match field.number {
            HISTOGRAM_TIMESTAMP => times.timestamp_ms = number() as i64,
            HISTOGRAM_START => times.start_ms = number() as i64,
            other => {
                if other == 4 {
                    times.schema = unzigzag(number());
                }
                out.extend_from_slice(field.framed);
            }
        }
    }
    times
}
