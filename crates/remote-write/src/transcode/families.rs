//! Metric families: names and units translated once, and the labels that hold the names.

use std::collections::HashMap;

use super::target_info;
use sluice_wire::{Fields, Metric, MetricData, MetricHead, MetricKind};

use crate::labels::{Label, LabelName, METRIC_NAME};
use crate::mapping::Mapping;
use crate::names::{Suffix, metric_name, unit_of_metadata};

/// Families kept between requests.
const MAX_FAMILIES: usize = 16_384;

/// What they may take between requests, about: a kilobyte each. Names can be as long as a request, and no permit covers them.
const MAX_FAMILY_BYTES: usize = 16 << 20;

/// A family has its name this often at most: as itself, four times in the map of names, and in four labels, which have it as text and as they are written.
const NAMES_OF_A_FAMILY: usize = 13;

/// What a family takes beside its texts, about.
const FAMILY_BYTES: usize = 512;

/// What a metric begins with is kept up to this size, which is more than name, unit and a sentence take.
const MAX_HEAD_BYTES: usize = 1024;

/// What Prometheus calls the type of a metric; the numbers are those of both protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetricType {
    Unknown = 0,
    Counter = 1,
    Gauge = 2,
    Histogram = 3,
    GaugeHistogram = 4,
    Summary = 5,
    Info = 6,
    StateSet = 7,
}

impl MetricType {
    /// The one with this number; what is not known is unknown.
    pub fn of(number: u64) -> Self {
        match number {
            1 => Self::Counter,
            2 => Self::Gauge,
            3 => Self::Histogram,
            4 => Self::GaugeHistogram,
            5 => Self::Summary,
            6 => Self::Info,
            7 => Self::StateSet,
            _ => Self::Unknown,
        }
    }
}

/// A metric family.
#[derive(Debug)]
pub(crate) struct Family {
    pub name: Box<str>,
    pub kind: MetricType,
    pub unit: Box<str>,
    /// One of its series has a name that another metric's had before, or that of our own `target_info`.
    pub collides: bool,
    /// The label of the name itself, of `_bucket`, `_sum` and `_count`.
    pub plain: Label,
    pub bucket: Label,
    pub sum: Label,
    pub count: Label,
}

/// A metric that came before.
#[derive(Debug)]
struct Known {
    /// `None` when nothing of its name can be kept.
    family: Option<usize>,
    kind: u8,
    /// What it began with the last time it was looked for by its words, and the description in it.
    head: Option<MetricHead>,
    help: Box<str>,
    /// The metric that came after it the last time: metrics mostly come in the order they came in before.
    next: usize,
}

impl Known {
    /// What it keeps of how the metric begins.
    fn head_bytes(&self) -> usize {
        self.head.as_ref().map_or(0, MetricHead::bytes) + self.help.len()
    }
}

/// What is known of a metric.
#[derive(Debug)]
pub(super) struct Found<'a> {
    pub data: MetricData<'a>,
    /// `None` when nothing of its name can be kept.
    pub family: Option<usize>,
    /// Its description, where that had to be read.
    help: Option<&'a str>,
    at: usize,
}

#[derive(Debug)]
pub(super) struct Families {
    by_key: HashMap<Box<[u8]>, usize>,
    known: Vec<Known>,
    /// The one that was found last.
    last: usize,
    /// The families that series of these names are of.
    by_name: HashMap<Box<str>, usize>,
    families: Vec<Family>,
    /// What all of them take, about.
    bytes: usize,
    key: Vec<u8>,
    label: LabelName,
}

/// What a metric says of itself in words.
#[derive(Debug, Clone, Copy, Default)]
struct Texts<'a> {
    name: &'a str,
    description: &'a str,
    unit: &'a str,
}

impl<'a> Texts<'a> {
    /// In one pass over the metric, which the view of it takes for each.
    fn of(metric: &Metric<'a>) -> Self {
        let mut texts = Self::default();
        for field in Fields::of(metric.raw()) {
            let text = match field.number {
                1 => &mut texts.name,
                2 => &mut texts.description,
                3 => &mut texts.unit,
                _ => continue,
            };
            if let Some(bytes) = field.bytes() {
                *text = std::str::from_utf8(bytes).unwrap_or_default();
            }
        }
        texts
    }
}

impl Families {
    pub fn new() -> Self {
        Self {
            by_key: HashMap::new(),
            known: Vec::new(),
            last: 0,
            by_name: HashMap::new(),
            families: Vec::new(),
            bytes: 0,
            key: Vec::new(),
            label: LabelName::new(METRIC_NAME),
        }
    }

    pub fn make_room(&mut self) {
        if self.by_key.len() > MAX_FAMILIES || self.bytes > MAX_FAMILY_BYTES {
            self.by_key.clear();
            self.known.clear();
            self.by_name.clear();
            self.families.clear();
            self.bytes = 0;
        }
    }

    pub fn get(&self, index: usize) -> Option<&Family> {
        self.families.get(index)
    }

    /// The description of a metric.
    pub fn help<'f>(&'f self, found: &Found<'f>) -> &'f str {
        found.help.unwrap_or_else(|| &self.known[found.at].help)
    }

    /// What is known of a metric; `None` when it has no data.
    #[inline]
    pub fn of<'a>(&mut self, mapping: &Mapping, metric: &Metric<'a>) -> Option<Found<'a>> {
        let at = self.known.get(self.last).map_or(0, |last| last.next);
        if let Some(known) = self.known.get(at)
            && let Some(data) = known.head.as_ref().and_then(|head| head.data_of(metric))
            && kind_of(&data) == known.kind
        {
            self.last = at;
            return Some(Found {
                data,
                family: known.family,
                help: None,
                at,
            });
        }
        self.seek(mapping, metric)
    }

    fn seek<'a>(&mut self, mapping: &Mapping, metric: &Metric<'a>) -> Option<Found<'a>> {
        let data = metric.data()?;
        let texts = Texts::of(metric);
        let kind = kind_of(&data);
        self.key.clear();
        self.key.extend_from_slice(texts.name.as_bytes());
        // Neither byte is in UTF-8.
        self.key.push(0xff);
        self.key.extend_from_slice(texts.unit.as_bytes());
        self.key.extend_from_slice(&[0xff, kind]);
        let at = match self.by_key.get(&*self.key) {
            Some(at) => *at,
            None => self.add(mapping, &texts, kind),
        };
        let known = &mut self.known[at];
        if known
            .head
            .as_ref()
            .is_none_or(|head| head.data_of(metric).is_none())
        {
            self.bytes -= known.head_bytes();
            known.head = MetricHead::of(metric, &data).filter(|head| head.bytes() <= MAX_HEAD_BYTES);
            known.help = known.head.as_ref().map_or("", |_| texts.description).into();
            self.bytes += known.head_bytes();
        }
        let family = known.family;
        if let Some(last) = self.known.get_mut(std::mem::replace(&mut self.last, at)) {
            last.next = at;
        }
        Some(Found {
            data,
            family,
            help: Some(texts.description),
            at,
        })
    }

    /// Keeps a metric that has not come before, under `key`.
    fn add(&mut self, mapping: &Mapping, texts: &Texts<'_>, kind: u8) -> usize {
        let number = kind;
        let suffixes: &[&str] = match kind {
            3 if !mapping.custom_buckets => &["_bucket", "_sum", "_count"],
            5 => &["_sum", "_count"],
            _ => &[],
        };
        let (kind, suffix) = match kind {
            0 => (MetricType::Gauge, Suffix::Ratio),
            1 => (MetricType::Gauge, Suffix::None),
            2 => (MetricType::Counter, Suffix::Total),
            5 => (MetricType::Summary, Suffix::None),
            _ => (MetricType::Histogram, Suffix::None),
        };
        let name = metric_name(
            mapping.strategy,
            &mapping.namespace,
            texts.name,
            texts.unit,
            suffix,
        );
        let known = Known {
            family: name.map(|name| self.push(mapping, name, suffixes, kind, texts.unit)),
            kind: number,
            head: None,
            help: Box::default(),
            next: 0,
        };
        self.known.push(known);
        let at = self.known.len() - 1;
        self.by_key.insert(self.key.as_slice().into(), at);
        self.bytes += self.key.len() + FAMILY_BYTES;
        at
    }

    /// Keeps a family with this name, by which its metadata goes too, and with series of the name with each of `suffixes`.
    fn push(
        &mut self,
        mapping: &Mapping,
        name: String,
        suffixes: &[&str],
        kind: MetricType,
        unit: &str,
    ) -> usize {
        let index = self.families.len();
        self.bytes += NAMES_OF_A_FAMILY * name.len();
        let own = mapping.target_info.then(|| target_info::name(mapping));
        let mut collides = false;
        for suffix in [""].iter().chain(suffixes) {
            let name = format!("{name}{suffix}");
            collides |= own.as_ref() == Some(&name);
            collides |= *self.by_name.entry(name.into()).or_insert(index) != index;
        }
        let label = |suffix: &str| Label::new(&self.label, &format!("{name}{suffix}"));
        let family = Family {
            plain: label(""),
            bucket: label("_bucket"),
            sum: label("_sum"),
            count: label("_count"),
            kind,
            unit: unit_of_metadata(unit).into(),
            collides,
            name: name.into(),
        };
        self.families.push(family);
        index
    }
}

/// The number of a kind of data, which becomes a family of its own.
#[inline]
fn kind_of(data: &MetricData<'_>) -> u8 {
    match (data.kind(), data.is_monotonic()) {
        (MetricKind::Gauge, _) => 0,
        (MetricKind::Sum, false) => 1,
        (MetricKind::Sum, true) => 2,
        (MetricKind::Histogram, _) => 3,
        (MetricKind::ExponentialHistogram, _) => 4,
        (MetricKind::Summary, _) => 5,
    }
}

#[cfg(test)]
mod tests;
