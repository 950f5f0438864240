//! Reading remote write: both versions into series, strictly.

pub(crate) mod v1;
pub(crate) mod v2;

use sluice_wire::Field;

/// Which version a body is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// `prometheus.WriteRequest`
    V1,
    /// `io.prometheus.write.v2.Request`
    V2,
}

/// A body that cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("series {series}: {problem}")]
pub struct Invalid {
    /// Which series it was found in, from 0; the next one when it was found outside of them.
    pub series: usize,
    /// What is wrong.
    pub problem: &'static str,
}

/// How much a request held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// Float samples.
    pub samples: u64,
    /// Native histograms.
    pub histograms: u64,
    /// Exemplars.
    pub exemplars: u64,
    /// Exemplars that are not taken: OTLP has no place for those of a series without a sample.
    pub left_out_exemplars: u64,
    /// Native histograms that are not taken: OTLP cannot say them.
    pub left_out_histograms: u64,
}

impl Taken {
    /// Data points they became.
    #[must_use]
    pub fn points(&self) -> u64 {
        self.samples + self.histograms
    }

    /// What is taken both as OTLP, which this is, and as it came.
    pub(crate) fn and_as_it_came(self, other: Self) -> Self {
        Self {
            samples: self.samples.min(other.samples),
            histograms: self.histograms.min(other.histograms),
            exemplars: self.exemplars.min(other.exemplars),
            ..self
        }
    }
}

/// What 2.0 calls the type of a metric, by its number; 0 where nothing is said. The numbers of 1.0's metadata are the same.
pub(crate) type TypeNumber = u64;

/// A counter's.
pub(crate) const COUNTER: TypeNumber = 1;

/// Where nothing is said.
pub(crate) const UNKNOWN: TypeNumber = 0;

/// Labels a series may have: what is read takes 100 bytes a label, 50 MiB of so many, and what is sent two or more. Nobody has a hundred.
/// Bodies of ours that are cut or converted are held to it too.
pub(crate) const MAX_LABELS: usize = 524_288;

/// Bytes that the labels of a series and of its exemplars may have, written out: what all of a request comes to at most by default.
/// Some references of 2.0 can be more than memory, and sorting names of megabytes takes minutes.
pub(crate) const MAX_LABEL_BYTES: usize = 256 << 20;

/// Samples a series of one request may have, and histograms: 12 MiB of places for them while it is read. A block of vmagent has ten
/// thousand.
const MAX_ITEMS: usize = 524_288;

/// Exemplars a series of one request may have; Prometheus sends one.
const MAX_EXEMPLARS: usize = 1024;

/// Labels an exemplar may have: with a character each they are what OpenMetrics allows.
const MAX_EXEMPLAR_LABELS: usize = 128;

/// One series.
#[derive(Debug, Default)]
pub(crate) struct Series<'a> {
    /// Sorted by name, each once, none empty.
    pub labels: Vec<(&'a str, &'a str)>,
    pub samples: Vec<Sample>,
    /// `Histogram` messages.
    pub histograms: Vec<&'a [u8]>,
    pub exemplars: Vec<Exemplar<'a>>,
    pub kind: TypeNumber,
    pub help: &'a str,
    pub unit: &'a str,
    /// Room for the references of 2.0.
    refs: Vec<usize>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    pub value: f64,
    pub timestamp_ms: i64,
    pub start_ms: i64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Exemplar<'a> {
    pub labels: Vec<(&'a str, &'a str)>,
    pub value: f64,
    pub timestamp_ms: i64,
}

impl<'a> Series<'a> {
    fn clear(&mut self) {
        self.labels.clear();
        self.samples.clear();
        self.histograms.clear();
        self.exemplars.clear();
        self.kind = UNKNOWN;
        self.help = "";
        self.unit = "";
    }

    /// The value of a label; empty when there is none.
    pub fn label(&self, name: &str) -> &'a str {
        let found = self.labels.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, value)| value)
    }

    /// Samples of either kind.
    pub fn points(&self) -> usize {
        self.samples.len() + self.histograms.len()
    }

    /// The same with those samples that are to be kept, by their number; histograms come behind the others. Exemplars stay with the last one.
    pub fn only(&self, keep: impl Fn(usize) -> bool) -> Self {
        let floats = self.samples.len();
        let samples = self.samples.iter().enumerate();
        let histograms = self.histograms.iter().enumerate();
        let keeps_last = self.points().checked_sub(1).is_none_or(&keep);
        Self {
            labels: self.labels.clone(),
            samples: samples
                .filter(|(at, _)| keep(*at))
                .map(|(_, sample)| *sample)
                .collect(),
            histograms: histograms
                .filter(|(at, _)| keep(floats + at))
                .map(|(_, histogram)| *histogram)
                .collect(),
            exemplars: if keeps_last {
                self.exemplars.clone()
            } else {
                Vec::new()
            },
            kind: self.kind,
            help: self.help,
            unit: self.unit,
            refs: Vec::new(),
        }
    }

    /// Sorts the labels and holds the series to what every receiver has to.
    fn check(&mut self) -> Result<(), &'static str> {
        let exemplars = self.exemplars.iter().flat_map(|exemplar| &exemplar.labels);
        let labels = self.labels.iter().chain(exemplars);
        let bytes: usize = labels.map(|(name, value)| name.len() + value.len()).sum();
        if bytes > MAX_LABEL_BYTES {
            return Err(LONG_LABELS);
        }
        sort_labels(&mut self.labels)?;
        if self.label(crate::labels::METRIC_NAME).is_empty() {
            return Err("it has no __name__");
        }
        for exemplar in &mut self.exemplars {
            sort_labels(&mut exemplar.labels)?;
        }
        Ok(())
    }
}

/// Appends one more, of which there may be so many.
fn push<T>(list: &mut Vec<T>, one: T, most: usize, problem: &'static str) -> Result<(), &'static str> {
    if list.len() >= most {
        return Err(problem);
    }
    list.push(one);
    Ok(())
}

const LONG_LABELS: &str = "its labels have more than 268,435,456 bytes";
const MANY_ITEMS: &str = "it has more than 524,288 samples or histograms";
const MANY_LABELS: &str = "it has more than 524,288 labels";
const MANY_EXEMPLARS: &str = "it has more than 1,024 exemplars";
const MANY_EXEMPLAR_LABELS: &str = "an exemplar has more than 128 labels";

/// Sorts labels by name; those without a value count as absent.
fn sort_labels(labels: &mut Vec<(&str, &str)>) -> Result<(), &'static str> {
    labels.retain(|(_, value)| !value.is_empty());
    if !labels.is_sorted_by(|a, b| a.0 < b.0) {
        labels.sort_unstable();
        if labels.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err("two labels have the same name");
        }
    }
    if labels.first().is_some_and(|(name, _)| name.is_empty()) {
        return Err("a label has no name");
    }
    Ok(())
}

/// Calls `take` with every series of a body, in order.
///
/// # Errors
/// When the body is no message of its version, or a series cannot be taken.
pub(crate) fn each_series<'a>(
    version: Version,
    body: &'a [u8],
    take: impl FnMut(&Series<'a>) -> Result<(), &'static str>,
) -> Result<(), Invalid> {
    match version {
        Version::V1 => v1::each_series(body, take),
        Version::V2 => v2::each_series(body, take),
    }
}

const BROKEN: &str = "it is not protobuf of this message";
const WIRE_TYPE: &str = "a field has the wire type of another";
const NOT_UTF8: &str = "a text is not UTF-8";

/// Calls `visit` with every field of a message, which has to be whole.
fn fields<'a>(
    message: &'a [u8],
    mut visit: impl FnMut(Field<'a>) -> Result<(), &'static str>,
) -> Result<(), &'static str> {
    let mut read = 0;
    for field in sluice_wire::Fields::of(message) {
        read += field.framed.len();
        visit(field)?;
    }
    if read == message.len() {
        Ok(())
    } else {
        Err(BROKEN)
    }
}

fn bytes<'a>(field: &Field<'a>) -> Result<&'a [u8], &'static str> {
    field.bytes().ok_or(WIRE_TYPE)
}

fn text<'a>(field: &Field<'a>) -> Result<&'a str, &'static str> {
    std::str::from_utf8(bytes(field)?).map_err(|_| NOT_UTF8)
}

fn double(field: &Field<'_>) -> Result<f64, &'static str> {
    field.fixed64().map(f64::from_bits).ok_or(WIRE_TYPE)
}

fn varint(field: &Field<'_>) -> Result<u64, &'static str> {
    field.varint().ok_or(WIRE_TYPE)
}
