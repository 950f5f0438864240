//! Metric families: names and units translated once, and the labels that hold the names.

use std::collections::HashMap;

use sluice_wire::{Fields, Metric, MetricData, MetricKind};

use crate::labels::{Label, LabelName, METRIC_NAME};
use crate::mapping::Mapping;
use crate::names::{Suffix, metric_name, unit_of_metadata};

/// Families kept between requests.
const MAX_FAMILIES: usize = 16_384;

/// What they may take between requests, about: a kilobyte each. Names can be as long as a request, and no permit covers them.
const MAX_FAMILY_BYTES: usize = 16 << 20;

/// A family has its name this often: as itself and in the map of names, and in four labels, which have it as text and as they are written.
const NAMES_OF_A_FAMILY: usize = 10;

/// What a family takes beside its texts, about.
const FAMILY_BYTES: usize = 512;

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
    /// Another metric had become the same name before.
    pub collides: bool,
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
    /// What all of them take, about.
    bytes: usize,
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
            bytes: 0,
            key: Vec::new(),
            label: LabelName::new(METRIC_NAME),
        }
    }

    pub fn make_room(&mut self) {
        if self.by_key.len() > MAX_FAMILIES || self.bytes > MAX_FAMILY_BYTES {
            self.by_key.clear();
            self.by_name.clear();
            self.families.clear();
            self.bytes = 0;
        }
    }

    pub fn get(&self, index: usize) -> Option<&Family> {
        self.families.get(index)
    }

    /// The family of a metric, `None` when nothing of its name can be kept.
    pub fn of(&mut self, mapping: &Mapping, texts: &Texts<'_>, data: &MetricData<'_>) -> Option<usize> {
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
            return *known;
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
        self.bytes += self.key.len() + FAMILY_BYTES;
        index
    }

    fn push(&mut self, name: String, kind: MetricType, unit: &str) -> usize {
        let index = self.families.len();
        self.bytes += NAMES_OF_A_FAMILY * name.len();
        let label = |suffix: &str| Label::new(&self.label, &format!("{name}{suffix}"));
        let family = Family {
            plain: label(""),
            bucket: label("_bucket"),
            sum: label("_sum"),
            count: label("_count"),
            kind,
            unit: unit_of_metadata(unit).into(),
            collides: *self.by_name.entry(name.as_str().into()).or_insert(index) != index,
            name: name.into(),
        };
        self.families.push(family);
        index
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
    use opentelemetry_proto::tonic::metrics::v1::{
        Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, metric, number_data_point,
    };
    use prost::Message;

    use super::MAX_FAMILY_BYTES;
    use crate::encoder::{Encoder, EncoderSettings};
    use crate::mapping::Mapping;
    use crate::transcode::{Outcome, Transcoder};

    /// A request with a gauge of each of these names, of one point.
    fn gauges(names: &[String]) -> Vec<u8> {
        let metrics = names.iter().map(|name| Metric {
            name: name.clone(),
            data: Some(metric::Data::Gauge(Gauge {
                data_points: vec![NumberDataPoint {
                    value: Some(number_data_point::Value::AsInt(1)),
                    ..NumberDataPoint::default()
                }],
            })),
            ..Metric::default()
        });
        ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                scope_metrics: vec![ScopeMetrics {
                    metrics: metrics.collect(),
                    ..ScopeMetrics::default()
                }],
                ..ResourceMetrics::default()
            }],
        }
        .encode_to_vec()
    }

    /// Scenario: three metrics of which two become the same name, again and again; then one of these two alone.
    /// Guarantees: the second of them is counted in every request in which it comes, and nothing else.
    #[test]
    fn a_collision_is_counted_in_every_request() {
        let mut encoder = Encoder::new(EncoderSettings::default());
        let mut collisions = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let (_, outcome): (_, Outcome) = encoder.encode(&[&gauges(&names)]);
            assert_eq!(outcome.points, names.len() as u64);
            outcome.name_collisions
        };
        for _ in 0..3 {
            assert_eq!(collisions(&["a.b", "c", "a_b"]), 1);
        }
        assert_eq!(collisions(&["a.b", "c"]), 0);
        assert_eq!(collisions(&["a_b", "a_b"]), 2);
    }

    /// Scenario: requests with names of a megabyte, each another one.
    /// Guarantees: what is kept of them is never more than is allowed and what one request adds.
    #[test]
    fn long_names_are_forgotten() {
        let mut transcoder = Transcoder::new(Mapping::default());
        let mut writer = crate::v1::V1::<crate::snappy::Block>::new(1, usize::MAX, false);
        let mut most = 0;
        for n in 0..8 {
            let name = format!("{n}").repeat(1 << 20);
            transcoder.run(&[&gauges(&[name])], &mut writer);
            writer.finish();
            most = most.max(transcoder.families.bytes);
        }
        assert!(most <= MAX_FAMILY_BYTES + (13 << 20), "{most}");
        assert!(transcoder.families.by_key.len() < 4);
    }
}
