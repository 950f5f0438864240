//! What the four tables of data points share: the metric, the point's times and flags, exemplars.

use sluice_wire::{Fields, Metric, MetricData};

use super::attributes::{Pairs, Reading};
use super::column::{Columns, Data, Ending, Ends, Maps};
use super::file::FileSettings;
use super::number::{Booleans, Doubles, Ints, Longs};
use super::source::{Source, SourceColumns, set};
use super::text::Texts;
use super::times::Times;

/// A metric, read once for all of its points.
#[derive(Debug, Default)]
pub(crate) struct MetricSource<'a> {
    name: Vec<u8>,
    description: Vec<u8>,
    unit: Vec<u8>,
    metadata: Pairs<'a>,
    pub temporality: Option<i32>,
    pub is_monotonic: Option<bool>,
    pub metric_type: &'static str,
}

impl<'a> MetricSource<'a> {
    pub fn set(&mut self, metric: &Metric<'a>, data: &MetricData<'a>, reading: &mut Reading<'_>) {
        use sluice_wire::MetricKind::{ExponentialHistogram, Gauge, Histogram, Sum, Summary};
        for text in [&mut self.name, &mut self.description, &mut self.unit] {
            text.clear();
        }
        for field in Fields::of(metric.raw()) {
            match (field.number, field.bytes()) {
                (1, Some(name)) => set(&mut self.name, name, reading.repairs),
                (2, Some(description)) => set(&mut self.description, description, reading.repairs),
                (3, Some(unit)) => set(&mut self.unit, unit, reading.repairs),
                _ => {}
            }
        }
        self.metadata.begin(reading.keys);
        for attribute in metric.metadata() {
            self.metadata.push(attribute.raw(), reading.keys, reading.repairs);
        }
        self.temporality = (!matches!(data.kind(), Gauge | Summary)).then(|| data.temporality());
        self.is_monotonic = (data.kind() == Sum).then(|| data.is_monotonic());
        self.metric_type = match data.kind() {
            Gauge => "gauge",
            Sum => "sum",
            Histogram => "histogram",
            ExponentialHistogram => "exponential_histogram",
            Summary => "summary",
        };
    }

    pub fn bytes(&self) -> usize {
        self.name.len() + self.description.len() + self.unit.len() + self.metadata.bytes()
    }

    /// Empty, for another request.
    pub fn emptied<'b>(self) -> MetricSource<'b> {
        MetricSource {
            name: self.name,
            description: self.description,
            unit: self.unit,
            metadata: self.metadata.emptied(),
            ..MetricSource::default()
        }
    }
}

/// The columns every table of data points begins and ends with.
#[derive(Debug)]
pub(crate) struct PointColumns {
    times: Times,
    start: Longs,
    name: Texts,
    description: Texts,
    unit: Texts,
    metric_type: Texts,
    metadata: Maps,
    temporality: Ints,
    is_monotonic: Booleans,
    flags: Longs,
    exemplars: Exemplars,
    source: SourceColumns,
}

impl PointColumns {
    pub fn new(settings: &FileSettings) -> Self {
        Self {
            times: Times::default(),
            start: Longs::default(),
            name: Texts::new(settings),
            description: Texts::new(settings),
            unit: Texts::new(settings),
            metric_type: Texts::new(settings),
            metadata: Maps::new(settings),
            temporality: Ints::default(),
            is_monotonic: Booleans::default(),
            flags: Longs::default(),
            exemplars: Exemplars::new(settings),
            source: SourceColumns::new(settings),
        }
    }

    /// Takes what a point has in common with points of other kinds, whose fields have these numbers.
    pub fn push<'a>(
        &mut self,
        source: &Source<'_>,
        metric: &MetricSource<'_>,
        point: &'a [u8],
        numbers: Numbers,
        reading: &mut Reading<'a>,
    ) {
        let (mut start, mut time, mut flags, mut exemplars) = (0u64, 0u64, 0u32, 0);
        for field in Fields::of(point) {
            match field.number {
                2 => start = field.fixed64().unwrap_or(0),
                3 => time = field.fixed64().unwrap_or(0),
                number if number == numbers.flags => flags = field.varint().unwrap_or(0) as u32,
                number if numbers.exemplars == Some(number) => {
                    let exemplar = field.bytes().unwrap_or_default();
                    self.exemplars.push(exemplar, reading);
                    exemplars += 1;
                }
                _ => {}
            }
        }
        self.times.push(time, time);
        self.start.push(start as i64);
        self.name.push(&metric.name);
        self.description.push_unless_empty(&metric.description);
        self.unit.push_unless_empty(&metric.unit);
        self.metric_type.push(metric.metric_type.as_bytes());
        self.metadata.push(&metric.metadata, reading.keys);
        self.temporality.push_option(metric.temporality);
        self.is_monotonic.push_option(metric.is_monotonic);
        self.flags.push(flags.into());
        self.exemplars.ends.push(exemplars);
        reading.read(point, numbers.attributes);
        self.source.push(source, reading);
    }

    /// The first columns; those of the kind follow.
    pub fn begin(&mut self, ending: &mut Ending) -> Columns {
        let mut columns = Columns::default();
        self.times.finish(&mut columns);
        columns.put(3, "start_time_unix_nano", self.start.finish());
        columns.put(4, "metric_name", self.name.finish(ending));
        columns.put_nullable(5, "metric_description", self.description.finish(ending));
        columns.put_nullable(6, "metric_unit", self.unit.finish(ending));
        columns.put(7, "metric_type", self.metric_type.finish(ending));
        columns.put_nullable(8, "aggregation_temporality", self.temporality.finish());
        columns.put_nullable(9, "is_monotonic", self.is_monotonic.finish());
        columns.put(10, "flags", self.flags.finish());
        columns
    }

    pub fn end(&mut self, columns: &mut Columns, ending: &mut Ending) {
        self.exemplars.finish(columns, ending);
        self.metadata
            .finish(columns, 50, "metric_metadata", "metric_metadata_types", ending);
        self.source.finish(columns, ending)
    }
}

/// The numbers of fields that differ from one kind of point to another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbers {
    pub attributes: u8,
    pub flags: u32,
    pub exemplars: Option<u32>,
}

#[derive(Debug)]
struct Exemplars {
    ends: Ends,
    time: Longs,
    double: Doubles,
    int: Longs,
    trace_id: Texts,
    span_id: Texts,
    attributes: Maps,
}

impl Exemplars {
    fn new(settings: &FileSettings) -> Self {
        Self {
            ends: Ends::default(),
            time: Longs::default(),
            double: Doubles::default(),
            int: Longs::default(),
            trace_id: Texts::in_lists(settings),
            span_id: Texts::in_lists(settings),
            attributes: Maps::in_lists(settings),
        }
    }

    fn push<'a>(&mut self, exemplar: &'a [u8], reading: &mut Reading<'a>) {
        let (mut time, mut double, mut int) = (0u64, None, None);
        let (mut trace_id, mut span_id): (&[u8], &[u8]) = (&[], &[]);
        for field in Fields::of(exemplar) {
            match field.number {
                2 => time = field.fixed64().unwrap_or(0),
                3 => (double, int) = (field.fixed64().map(f64::from_bits), None),
                4 => span_id = field.bytes().unwrap_or_default(),
                5 => trace_id = field.bytes().unwrap_or_default(),
                6 => (double, int) = (None, field.fixed64().map(|bits| bits as i64)),
                _ => {}
            }
        }
        self.time.push(time as i64);
        self.double.push_option(double);
        self.int.push_option(int);
        self.trace_id.push_hex(trace_id);
        self.span_id.push_hex(span_id);
        reading.read(exemplar, 7);
        self.attributes.push(&reading.pairs, reading.keys);
    }

    fn finish(&mut self, columns: &mut Columns, ending: &mut Ending) {
        let mut exemplar = Columns::default();
        exemplar.put(4901, "time_unix_nano", self.time.finish());
        exemplar.put_nullable(4902, "value_double", self.double.finish());
        exemplar.put_nullable(4903, "value_int", self.int.finish());
        exemplar.put_nullable(4904, "trace_id", self.trace_id.finish(ending));
        exemplar.put_nullable(4905, "span_id", self.span_id.finish(ending));
        self.attributes.finish(
            &mut exemplar,
            4906,
            "filtered_attributes",
            "filtered_attr_types",
            ending,
        );
        columns.put(49, "exemplars", self.ends.lists(4900, Data::Structs(exemplar)));
    }
}
