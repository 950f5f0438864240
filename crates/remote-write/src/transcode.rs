//! OTLP metrics to series, wire to wire.
//!
//! What is the same for many series is made once: the labels of a resource and scope are sorted and encoded as one
//! block, the name of a metric is translated and encoded once, and so are the bounds of buckets. Which part goes where is a
//! [`Plan`], made once for each list of attribute keys. What is left for a data point is one pass over its bytes.
//!
//! Open `Transcoder::metric` first. What the series are written into is a [`Sink`].

mod blocks;
mod exemplars;
mod exponential;
mod families;
mod histogram;
mod native;
mod number;
mod point;
mod target_info;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::plain_bodies;

use sluice_wire::{Kind, Metric, MetricData, MetricKind, Request};

use crate::dropped::{Dropped, Reason};
use crate::labels::{Names, SeriesLabels};
use crate::lane_set::LaneSet;
use crate::mapping::Mapping;

use blocks::Blocks;
pub(crate) use exemplars::Exemplar;
pub(crate) use exponential::{Buckets, Exponential, FINEST, varints};
pub(crate) use families::MetricType;
use families::{Families, Family};
use histogram::BoundLabels;
use number::Head;
use point::PointReader;
use target_info::TargetInfo;

/// Where series go.
pub(crate) trait Sink {
    /// Takes one sample of one series.
    fn sample(&mut self, labels: &SeriesLabels<'_>, sample: &Sample<'_>, about: &About<'_>);

    /// Takes what came of a series of exponential histograms since its last point, to be added to its total; `sample` has no value. Only
    /// [`Cumulative`](crate::cumulative::Cumulative) has totals, and it is first of all where there are deltas.
    fn delta(&mut self, _: &SeriesLabels<'_>, _: &Exponential, _: &Sample<'_>, _: &About<'_>) {}

    /// Called once for every metric that has data points, before its series.
    fn metric(&mut self, _: &About<'_>) {}

    /// Called when all series of a data point have been given.
    fn point(&mut self) {}

    /// From now on series of these lanes are left out: they have been delivered. Only what writes bodies has lanes.
    fn leave_out(&mut self, _: &LaneSet) {}
}

/// A value at a time.
#[derive(Debug)]
pub(crate) struct Sample<'a> {
    pub value: Value<'a>,
    pub timestamp_ms: i64,
    /// Start of the interval; 0 when unknown.
    pub start_ms: i64,
    /// It is what came since the last one, to be added to the series's total.
    pub is_delta: bool,
    pub exemplars: &'a [Exemplar],
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Float(f64),
    /// A `Histogram` message, without its timestamps.
    Native(&'a [u8]),
    /// None: exemplars of the series are all there is.
    Absent,
}

/// What is said of a metric beside its samples.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About<'a> {
    pub family: &'a str,
    pub kind: MetricType,
    pub unit: &'a str,
    pub help: &'a str,
}

/// What came of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Data points written.
    pub points: u64,
    /// Data points that were not written, by reason.
    pub dropped: Dropped,
    /// Attributes that became a label which a series had already: those of a data point are joined with `;`, any other gives way to it.
    pub label_collisions: u64,
    /// Metrics with a series whose name is that of a series of another metric.
    pub name_collisions: u64,
    /// Exemplars of points that were written, without a place in what is sent.
    pub dropped_exemplars: u64,
}

impl Outcome {
    /// Adds what came of another part of the request.
    pub(crate) fn add(&mut self, other: &Outcome) {
        self.points += other.points;
        self.dropped.add_all(&other.dropped);
        self.label_collisions += other.label_collisions;
        self.name_collisions += other.name_collisions;
        self.dropped_exemplars += other.dropped_exemplars;
    }
}

/// Turns OTLP metrics into series. Keeps what it has made, so that the next request costs less.
#[derive(Debug)]
pub(crate) struct Transcoder {
    mapping: Mapping,
    names: Names,
    families: Families,
    blocks: Blocks,
    bounds: BoundLabels,
    reader: PointReader,
    targets: TargetInfo,
    outcome: Outcome,
}

/// A metric whose points are being gone through.
struct Walk<'a, 'w> {
    block: usize,
    family: &'w Family,
    about: About<'w>,
    data: MetricData<'a>,
    is_delta: bool,
}

impl Transcoder {
    pub fn new(mapping: Mapping) -> Self {
        Self {
            names: Names::new(&mapping),
            families: Families::new(),
            blocks: Blocks::new(),
            bounds: BoundLabels::new(),
            reader: PointReader::default(),
            targets: TargetInfo::default(),
            outcome: Outcome::default(),
            mapping,
        }
    }

    /// Writes all series of a request, which is `parts` laid end to end.
    ///
    /// The parts have passed [`sluice_wire::validate`]; of others some points may be missing or wrong, but what is written
    /// is well-formed all the same.
    pub fn run(&mut self, parts: &[&[u8]], sink: &mut impl Sink) -> Outcome {
        self.outcome = Outcome::default();
        self.make_room();
        self.targets.begin();
        for part in parts {
            for resource in Request::new(Kind::Metrics, part).resources() {
                self.targets.begin_resource();
                for scope in resource.scopes() {
                    let mut block = None;
                    for metric in scope.metrics() {
                        let block = *block.get_or_insert_with(|| {
                            let block = self.blocks.of(&resource, &scope, &self.mapping, &mut self.names);
                            self.outcome.label_collisions += self.blocks.get(block).collisions;
                            block
                        });
                        self.metric(&metric, block, sink);
                    }
                }
                self.target_info(&resource, sink);
            }
        }
        self.reader.make_room();
        self.outcome
    }

    /// Forgets what has grown beyond its limit.
    fn make_room(&mut self) {
        if self.names.is_full() {
            // Plans and labels hold on to names by their index.
            self.names.clear();
            self.blocks.clear();
            self.reader.forget();
        }
        self.families.make_room();
        self.bounds.make_room();
        self.blocks.make_room();
    }

    fn metric(&mut self, metric: &Metric<'_>, block: usize, sink: &mut impl Sink) {
        let Some(found) = self.families.of(&self.mapping, metric) else {
            return;
        };
        let data = found.data;
        // What becomes histograms with custom buckets is not added up.
        let adds_up = match data.kind() {
            MetricKind::Sum | MetricKind::ExponentialHistogram => self.mapping.delta_to_cumulative,
            MetricKind::Histogram => self.mapping.delta_to_cumulative && !self.mapping.custom_buckets,
            _ => false,
        };
        let (is_delta, reason) = match data.kind() {
            MetricKind::Gauge | MetricKind::Summary => (false, None),
            _ => match data.temporality() {
                CUMULATIVE => (false, None),
                DELTA if adds_up => (true, None),
                DELTA => (true, Some(Reason::Delta)),
                _ => (false, Some(Reason::Temporality)),
            },
        };
        let reason = reason.or(found.family.is_none().then_some(Reason::MetricName));
        if let Some(reason) = reason {
            let mut points = 0;
            for point in data.points() {
                points += 1;
                self.targets.saw(point.time_unix_nano());
            }
            return self.outcome.dropped.add(reason, points);
        }
        let Some(family) = found.family.and_then(|index| self.families.get(index)) else {
            return;
        };
        self.outcome.name_collisions += u64::from(family.collides);
        let about = About {
            family: &family.name,
            kind: family.kind,
            unit: &family.unit,
            help: self.families.help(&found),
        };
        sink.metric(&about);
        let walk = Walk {
            block,
            family,
            about,
            data,
            is_delta,
        };
        let mut context = Context {
            names: &mut self.names,
            blocks: &mut self.blocks,
            bounds: &mut self.bounds,
            reader: &mut self.reader,
            targets: &mut self.targets,
            outcome: &mut self.outcome,
            sanitizes_exemplars: self.mapping.strategy.escapes(),
        };
        match data.kind() {
            MetricKind::Gauge | MetricKind::Sum => context.numbers(&walk, sink),
            MetricKind::Histogram if self.mapping.custom_buckets => context.custom_buckets(&walk, sink),
            MetricKind::Histogram => context.histograms(&walk, sink),
            MetricKind::ExponentialHistogram => context.native_histograms(&walk, sink),
            MetricKind::Summary => context.summaries(&walk, sink),
        }
    }
}

/// `AGGREGATION_TEMPORALITY_DELTA`
const DELTA: i32 = 1;
/// `AGGREGATION_TEMPORALITY_CUMULATIVE`
const CUMULATIVE: i32 = 2;

/// The parts of a [`Transcoder`] that the points of one metric need.
struct Context<'t> {
    names: &'t mut Names,
    blocks: &'t mut Blocks,
    bounds: &'t mut BoundLabels,
    reader: &'t mut PointReader,
    targets: &'t mut TargetInfo,
    outcome: &'t mut Outcome,
    sanitizes_exemplars: bool,
}

impl Walk<'_, '_> {
    /// Whether `value`, or the sum, of a point can be added to a total, if that is what will be done with it.
    fn can_take(&self, value: f64, head: &Head<'_>) -> bool {
        !self.is_delta || value.is_finite() || head.is_stale()
    }
}

/// `NO_RECORDED_VALUE_MASK` of `DataPointFlags`.
const NO_RECORDED_VALUE: u64 = 1;

/// The value that ends a series: a NaN of exactly these bits.
pub(crate) const STALE_NAN: u64 = 0x7ff0_0000_0000_0002;

/// OTLP's nanoseconds to Prometheus's milliseconds.
#[inline]
fn milliseconds(unix_nanos: u64) -> i64 {
    unix_nanos as i64 / 1_000_000
}
