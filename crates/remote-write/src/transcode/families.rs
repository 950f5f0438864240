//! Metric families: names and units translated once, and the labels that hold the names.

use std::collections::HashMap;

use sluice_wire::{Fields, Metric, MetricData, MetricKind};

use crate::labels::{Label, LabelName, METRIC_NAME};
use crate::mapping::Mapping;
use crate::names::{Suffix, metric_name, unit_of_metadata};

/// Families kept between requests.
const MAX_FAMILIES: usize = 16_384;

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
    /// The label of the name itself, of `_bucket`, `_sum` and `_count`.
    pub plain: Label,
    pub bucket: Label,
    pub sum: Label,
    pub count: Label,
}

#[derive(Debug)]
pub(super) struct Families {
    by_key: HashMap<Box<[u8]>, Option<usize>>,
    by_name: HashMap<Box<str>, usize>,
    families: Vec<Family>,
    key: Vec<u8>,
    label: LabelName,
}

/// What a metric says of itself in words.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Texts<'a> {
    pub name: &'a str,
    pub description: &'a str,
    pub unit: &'a str,
}

impl<'a> Texts<'a> {
    /// In one pass over the metric, which the view of it takes for each.
    pub fn of(metric: &Metric<'a>) -> Self {
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
            by_name: HashMap::new(),
            families: Vec::new(),
            key: Vec::new(),
            label: LabelName::new(METRIC_NAME),
        }
    }

    pub fn make_room(&mut self) {
        if self.by_key.len() > MAX_FAMILIES {
            self.by_key.clear();
            self.by_name.clear();
            self.families.clear();
        }
    }

    pub fn get(&self, index: usize) -> Option<&Family> {
        self.families.get(index)
    }

    /// The family of a metric, `None` when nothing of its name can be kept, and whether it was found out just now that
    /// another metric has the same name.
    pub fn of(
        &mut self,
        mapping: &Mapping,
        texts: &Texts<'_>,
        data: &MetricData<'_>,
    ) -> (Option<usize>, bool) {
        let kind = match (data.kind(), data.is_monotonic()) {
            (MetricKind::Gauge, _) => 0,
            (MetricKind::Sum, false) => 1,
            (MetricKind::Sum, true) => 2,
            (MetricKind::Histogram, _) => 3,
            (MetricKind::ExponentialHistogram, _) => 4,
            (MetricKind::Summary, _) => 5,
        };
        self.key.clear();
        self.key.extend_from_slice(texts.name.as_bytes());
        // Neither byte is in UTF-8.
        self.key.push(0xff);
        self.key.extend_from_slice(texts.unit.as_bytes());
        self.key.extend_from_slice(&[0xff, kind]);
        if let Some(known) = self.by_key.get(&*self.key) {
            return (*known, false);
        }
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
        let index = name.map(|name| self.push(name, kind, texts.unit));
        self.by_key.insert(self.key.as_slice().into(), index);
        let first = index.and_then(|index| {
            let name = self.families[index].name.clone();
            Some(*self.by_name.entry(name).or_insert(index)).filter(|first| *first != index)
        });
        (index, first.is_some())
    }

    fn push(&mut self, name: String, kind: MetricType, unit: &str) -> usize {
        let label = |suffix: &str| Label::new(&self.label, &format!("{name}{suffix}"));
        let family = Family {
            plain: label(""),
            bucket: label("_bucket"),
            sum: label("_sum"),
            count: label("_count"),
            kind,
            unit: unit_of_metadata(unit).into(),
            name: name.into(),
        };
        self.families.push(family);
        self.families.len() - 1
    }
}
