//! The tables of data points: `metrics_number`, `metrics_histogram`, `metrics_exp_histogram`, `metrics_summary`.

use sluice_wire::{Field, Fields};

use super::attributes::Reading;
use super::column::{Columns, Data, Ending, Ends};
use super::file::FileSettings;
use super::metrics::{MetricSource, Numbers, PointColumns};
use super::number::{self, Doubles, Ints, Longs, Number};
use super::source::Source;

/// Wire types, as in the encoding's specification.
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const LEN: u8 = 2;

/// The bytes of the values in a repeated field of numbers with this wire type, packed or not.
fn run<'a>(field: &Field<'a>, wire: u8) -> &'a [u8] {
    match field.wire == wire || field.wire == LEN {
        true => field.value,
        false => &[],
    }
}

/// The values in field `number` of a message, a repeated fixed64 or double.
fn fixed64s(message: &[u8], number: u32) -> impl Iterator<Item = u64> {
    let fields = Fields::of(message).filter(move |field| field.number == number);
    fields
        .flat_map(|field| run(&field, FIXED64).as_chunks().0)
        .map(|bytes| u64::from_le_bytes(*bytes))
}

/// The values in a repeated varint field. Ends early on malformed bytes.
fn varints<'a>(field: &Field<'a>) -> impl Iterator<Item = u64> + use<'a> {
    let mut rest = run(field, VARINT);
    std::iter::from_fn(move || {
        let mut value = 0u64;
        for (index, byte) in rest.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if *byte < 0x80 {
                rest = &rest[index + 1..];
                return Some(value);
            }
        }
        None
    })
}

fn double(field: &Field<'_>) -> Option<f64> {
    field.fixed64().map(f64::from_bits)
}

fn sint32(field: &Field<'_>) -> i32 {
    let value = field.varint().unwrap_or(0) as u32;
    (value >> 1) as i32 ^ -((value & 1) as i32)
}

/// `metrics_number`: points of gauges and sums.
#[derive(Debug)]
pub(crate) struct NumberPoints {
    point: PointColumns,
    double: Doubles,
    int: Longs,
}

impl NumberPoints {
    pub fn new(settings: &FileSettings) -> Self {
        Self {
            point: PointColumns::new(settings),
            double: Doubles::default(),
            int: Longs::default(),
        }
    }

    pub fn push<'a>(
        &mut self,
        source: &Source<'_>,
        metric: &MetricSource<'_>,
        point: &'a [u8],
        reading: &mut Reading<'a>,
    ) {
        let (mut value, mut int) = (None, None);
        for field in Fields::of(point) {
            match field.number {
                4 if field.wire == FIXED64 => (value, int) = (double(&field), None),
                6 if field.wire == FIXED64 => (value, int) = (None, field.fixed64().map(|bits| bits as i64)),
                _ => {}
            }
        }
        self.double.push_option(value);
        self.int.push_option(int);
        let numbers = Numbers {
            attributes: 7,
            flags: 8,
            exemplars: Some(5),
        };
        self.point.push(source, metric, point, numbers, reading);
    }

    pub fn finish(&mut self, ending: &mut Ending) -> Columns {
        let mut columns = self.point.begin(ending);
        columns.put_nullable(20, "value_double", self.double.finish());
        columns.put_nullable(21, "value_int", self.int.finish());
        self.point.end(&mut columns, ending);
        columns
    }
}

/// Count, sum, least and greatest of a distribution.
#[derive(Debug, Default)]
struct Totals {
    count: Longs,
    sum: Doubles,
    min: Doubles,
    max: Doubles,
}

impl Totals {
    /// Takes those of a point whose least is in field `min`, and whose greatest is in the one after it.
    fn push(&mut self, point: &[u8], min: u32) {
        let (mut count, mut sum, mut least, mut greatest) = (0, None, None, None);
        for field in Fields::of(point) {
            match field.number {
                4 => count = field.fixed64().unwrap_or(0),
                5 => sum = double(&field),
                number if number == min => least = double(&field),
                number if number == min + 1 => greatest = double(&field),
                _ => {}
            }
        }
        self.count.push(count as i64);
        self.sum.push_option(sum);
        self.min.push_option(least);
        self.max.push_option(greatest);
    }

    fn finish(&mut self, columns: &mut Columns) {
        columns.put(20, "count", self.count.finish());
        columns.put_nullable(21, "sum", self.sum.finish());
        columns.put_nullable(22, "min", self.min.finish());
        columns.put_nullable(23, "max", self.max.finish());
    }
}

/// Lists of numbers, one a row.
#[derive(Debug)]
struct Lists<T: Number> {
    ends: Ends,
    values: number::Numbers<T>,
}

impl<T: Number> Default for Lists<T> {
    fn default() -> Self {
        Self {
            ends: Ends::default(),
            values: number::Numbers::default(),
        }
    }
}

impl<T: Number> Lists<T> {
    fn push(&mut self, values: impl Iterator<Item = T>) {
        let mut count = 0;
        for value in values {
            self.values.push(value);
            count += 1;
        }
        self.ends.push(count);
    }

    fn finish(&mut self, columns: &mut Columns, id: i32, name: &str) {
        columns.put(id, name, self.ends.lists(id, self.values.finish()));
    }
}

/// `metrics_histogram`: points of histograms with explicit bounds.
#[derive(Debug)]
pub(crate) struct HistogramPoints {
    point: PointColumns,
    totals: Totals,
    bucket_counts: Lists<i64>,
    explicit_bounds: Lists<f64>,
}

impl HistogramPoints {
    pub fn new(settings: &FileSettings) -> Self {
        Self {
            point: PointColumns::new(settings),
            totals: Totals::default(),
            bucket_counts: Lists::default(),
            explicit_bounds: Lists::default(),
        }
    }

    pub fn push<'a>(
        &mut self,
        source: &Source<'_>,
        metric: &MetricSource<'_>,
        point: &'a [u8],
        reading: &mut Reading<'a>,
    ) {
        self.totals.push(point, 11);
        self.bucket_counts
            .push(fixed64s(point, 6).map(|count| count as i64));
        self.explicit_bounds.push(fixed64s(point, 7).map(f64::from_bits));
        let numbers = Numbers {
            attributes: 9,
            flags: 10,
            exemplars: Some(8),
        };
        self.point.push(source, metric, point, numbers, reading);
    }

    pub fn finish(&mut self, ending: &mut Ending) -> Columns {
        let mut columns = self.point.begin(ending);
        self.totals.finish(&mut columns);
        self.bucket_counts.finish(&mut columns, 24, "bucket_counts");
        self.explicit_bounds.finish(&mut columns, 25, "explicit_bounds");
        self.point.end(&mut columns, ending);
        columns
    }
}

/// One side of an exponential histogram.
#[derive(Debug, Default)]
struct Buckets {
    offset: Ints,
    counts: Lists<i64>,
}

impl Buckets {
    /// Takes the buckets in field `number`; without them the offset is absent.
    fn push(&mut self, point: &[u8], number: u32) {
        let occurrences = || {
            Fields::of(point)
                .filter(move |field| field.number == number)
                .filter_map(|field| field.bytes())
        };
        let fields = || occurrences().flat_map(Fields::of);
        let offset = fields().filter(|field| field.number == 1).last();
        let present = occurrences().next().is_some();
        self.offset
            .push_option(present.then(|| offset.map_or(0, |field| sint32(&field))));
        let counts = fields().filter(|field| field.number == 2);
        self.counts
            .push(counts.flat_map(|field| varints(&field)).map(|count| count as i64));
    }

    fn finish(&mut self, columns: &mut Columns, id: i32, side: &str) {
        columns.put_nullable(id, &format!("{side}_offset"), self.offset.finish());
        self.counts
            .finish(columns, id + 1, &format!("{side}_bucket_counts"));
    }
}

/// `metrics_exp_histogram`: points of exponential histograms.
#[derive(Debug)]
pub(crate) struct ExponentialPoints {
    point: PointColumns,
    totals: Totals,
    scale: Ints,
    zero_count: Longs,
    zero_threshold: Doubles,
    positive: Buckets,
    negative: Buckets,
}

impl ExponentialPoints {
    pub fn new(settings: &FileSettings) -> Self {
        Self {
            point: PointColumns::new(settings),
            totals: Totals::default(),
            scale: Ints::default(),
            zero_count: Longs::default(),
            zero_threshold: Doubles::default(),
            positive: Buckets::default(),
            negative: Buckets::default(),
        }
    }

    pub fn push<'a>(
        &mut self,
        source: &Source<'_>,
        metric: &MetricSource<'_>,
        point: &'a [u8],
        reading: &mut Reading<'a>,
    ) {
        self.totals.push(point, 12);
        let (mut scale, mut zero_count, mut zero_threshold) = (0, 0, 0.0);
        for field in Fields::of(point) {
            match field.number {
                6 => scale = sint32(&field),
                7 => zero_count = field.fixed64().unwrap_or(0),
                14 => zero_threshold = double(&field).unwrap_or(0.0),
                _ => {}
            }
        }
        self.scale.push(scale);
        self.zero_count.push(zero_count as i64);
        self.zero_threshold.push(zero_threshold);
        self.positive.push(point, 8);
        self.negative.push(point, 9);
        let numbers = Numbers {
            attributes: 1,
            flags: 10,
            exemplars: Some(11),
        };
        self.point.push(source, metric, point, numbers, reading);
    }

    pub fn finish(&mut self, ending: &mut Ending) -> Columns {
        let mut columns = self.point.begin(ending);
        self.totals.finish(&mut columns);
        columns.put(24, "scale", self.scale.finish());
        columns.put(25, "zero_count", self.zero_count.finish());
        columns.put(26, "zero_threshold", self.zero_threshold.finish());
        self.positive.finish(&mut columns, 27, "positive");
        self.negative.finish(&mut columns, 29, "negative");
        self.point.end(&mut columns, ending);
        columns
    }
}

/// `metrics_summary`: points of summaries.
#[derive(Debug)]
pub(crate) struct SummaryPoints {
    point: PointColumns,
    count: Longs,
    sum: Doubles,
    ends: Ends,
    quantile: Doubles,
    value: Doubles,
}

impl SummaryPoints {
    pub fn new(settings: &FileSettings) -> Self {
        Self {
            point: PointColumns::new(settings),
            count: Longs::default(),
            sum: Doubles::default(),
            ends: Ends::default(),
            quantile: Doubles::default(),
            value: Doubles::default(),
        }
    }

    pub fn push<'a>(
        &mut self,
        source: &Source<'_>,
        metric: &MetricSource<'_>,
        point: &'a [u8],
        reading: &mut Reading<'a>,
    ) {
        let (mut count, mut sum, mut quantiles) = (0, 0.0, 0);
        for field in Fields::of(point) {
            match field.number {
                4 => count = field.fixed64().unwrap_or(0),
                5 => sum = double(&field).unwrap_or(0.0),
                6 => {
                    let (mut quantile, mut value) = (0.0, 0.0);
                    for field in Fields::of(field.bytes().unwrap_or_default()) {
                        match field.number {
                            1 => quantile = double(&field).unwrap_or(0.0),
                            2 => value = double(&field).unwrap_or(0.0),
                            _ => {}
                        }
                    }
                    self.quantile.push(quantile);
                    self.value.push(value);
                    quantiles += 1;
                }
                _ => {}
            }
        }
        self.count.push(count as i64);
        self.sum.push(sum);
        self.ends.push(quantiles);
        let numbers = Numbers {
            attributes: 7,
            flags: 8,
            exemplars: None,
        };
        self.point.push(source, metric, point, numbers, reading);
    }

    pub fn finish(&mut self, ending: &mut Ending) -> Columns {
        let mut columns = self.point.begin(ending);
        columns.put(20, "count", self.count.finish());
        columns.put(21, "sum", self.sum.finish());
        let mut quantile = Columns::default();
        quantile.put(2201, "quantile", self.quantile.finish());
        quantile.put(2202, "value", self.value.finish());
        columns.put(
            22,
            "quantile_values",
            self.ends.lists(2200, Data::Structs(quantile)),
        );
        self.point.end(&mut columns, ending);
        columns
    }
}
