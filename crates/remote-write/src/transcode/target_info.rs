//! `target_info`: a series a resource with the attributes that the other series do not have.

use std::collections::HashSet;

use sluice_wire::ResourceItems;

use super::blocks::{SERVICE_INSTANCE, SERVICE_NAME, SERVICE_NAMESPACE, external, target};
use super::point::Attributes;
use super::{About, MetricType, Sample, Sink, Transcoder, Value, milliseconds};
use crate::labels::{Extra, Label, LabelName, METRIC_NAME, SeriesLabels};
use crate::mapping::Mapping;

/// A sample at least this often, so that queries over the time of the points find one: half of Prometheus's default
/// lookback of 5 minutes.
const INTERVAL_NANOS: u64 = 150_000_000_000;

/// Samples of one resource in one request, at most: a day. One point with a wrong time must not make thousands; the newest
/// stay.
const MAX_SAMPLES: u64 = 576;

/// The times of the points of the resource, and the samples written so far.
#[derive(Debug, Default)]
pub(super) struct TargetInfo {
    earliest: u64,
    latest: u64,
    seen: bool,
    written: HashSet<(u64, i64)>,
}

impl TargetInfo {
    pub fn begin(&mut self) {
        self.written.clear();
    }

    pub fn begin_resource(&mut self) {
        self.seen = false;
        self.earliest = u64::MAX;
        self.latest = 0;
    }

    /// Notes the time of a point.
    #[inline]
    pub fn saw(&mut self, unix_nanos: u64) {
        self.seen = true;
        self.earliest = self.earliest.min(unix_nanos);
        self.latest = self.latest.max(unix_nanos);
    }

    /// The times to write, in milliseconds: from the earliest point on, and at the latest.
    fn times(&self) -> impl Iterator<Item = i64> + use<> {
        let (earliest, latest) = (self.earliest, self.latest);
        let steps = (latest - earliest).div_ceil(INTERVAL_NANOS);
        let first = steps.saturating_sub(MAX_SAMPLES);
        (first..steps)
            .map(move |step| milliseconds(earliest + step * INTERVAL_NANOS))
            .chain([milliseconds(latest)])
    }
}

/// What the series are called.
pub(super) fn name(mapping: &Mapping) -> String {
    match mapping.namespace.as_str() {
        "" => "target_info".to_owned(),
        namespace => format!("{namespace}_target_info"),
    }
}

impl Transcoder {
    pub(super) fn target_info(&mut self, resource: &ResourceItems<'_>, sink: &mut impl Sink) {
        if !self.mapping.target_info || !self.targets.seen {
            return;
        }
        let identifying = |key: &str| [SERVICE_NAMESPACE, SERVICE_NAME, SERVICE_INSTANCE].contains(&key);
        let attributes = resource.resource().attributes();
        if attributes.clone().all(|attribute| identifying(attribute.key())) {
            return;
        }
        let mut labels = Vec::new();
        target(&mut labels, attributes.clone());
        let has_target = !labels.is_empty();
        external(&mut labels, &self.mapping.external_labels);
        let mut own = Attributes::default();
        own.clear(&mut self.reader);
        let keeps = self.mapping.keep_identifying_attributes;
        for attribute in attributes.filter(|attribute| keeps || !identifying(attribute.key())) {
            own.push(attribute.raw(), &mut self.names, &mut self.reader);
        }
        let block = self.blocks.keep(labels);
        let made = self.reader.make(
            &own,
            Extra::None,
            block,
            &mut self.blocks,
            &mut self.names,
            &mut self.outcome.label_collisions,
        );
        if let Ok(at) = made {
            let name = name(&self.mapping);
            let about = About {
                family: &name,
                kind: MetricType::Gauge,
                unit: "",
                help: "Target metadata",
            };
            let labels = SeriesLabels {
                block: self.blocks.get(block),
                plan: self.reader.plan(at, &self.blocks, block),
                names: &self.names,
                name: &Label::new(&LabelName::new(METRIC_NAME), &name),
                extra: None,
                point: self.reader.labels(),
            };
            let mut has_identifier = has_target;
            labels.each(|name, _| has_identifier |= name == "job" || name == "instance");
            if has_identifier {
                sink.metric(&about);
                let hash = labels.hash();
                for timestamp_ms in self.targets.times() {
                    if self.targets.written.insert((hash, timestamp_ms)) {
                        let sample = Sample {
                            value: Value::Float(1.0),
                            timestamp_ms,
                            start_ms: 0,
                            is_delta: false,
                            exemplars: &[],
                        };
                        sink.sample(&labels, &sample, &about);
                    }
                }
            }
        }
        self.blocks.forget_last();
    }
}
