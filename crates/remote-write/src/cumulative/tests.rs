//! Totals through encoders that come and go: what the tests of them share.

mod again;
mod disk;
mod sums;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1 as otlp;
use otlp::exponential_histogram_data_point::Buckets as OtlpBuckets;
use otlp::{metric, number_data_point};
use prost::Message as _;
use sluice_journal::Filesystem as _;
use sluice_journal::testing::{Fault as DiskFault, ManualClock, Operation, SimulatedDisk};
use sluice_wire::Fields;

use super::*;
use crate::body::Format;
use crate::decode::{Version, each_series};
use crate::dropped::Reason;
use crate::encoder::{Encoder, EncoderSettings};
use crate::mapping::Mapping;
use crate::transcode::{Buckets, Outcome, plain_bodies};

const PATH: &str = "/queue/remote-write/rw.totals";
const DELTA: i32 = 1;
const CUMULATIVE: i32 = 2;

fn encoder_of(max_delta_series: usize, totals: Option<TotalsFile>) -> Encoder {
    Encoder::new(EncoderSettings {
        format: Format::V2,
        mapping: Mapping {
            delta_to_cumulative: true,
            ..Mapping::default()
        },
        max_delta_series,
        totals,
        ..EncoderSettings::default()
    })
}

fn on(disk: &SimulatedDisk) -> TotalsFile {
    TotalsFile {
        path: PATH.into(),
        synced: true,
        filesystem: Arc::new(disk.clone()),
    }
}

/// A process that has just started.
fn encoder(disk: &SimulatedDisk) -> Encoder {
    encoder_of(1000, Some(on(disk)))
}

fn attributes(series: &str) -> Vec<KeyValue> {
    vec![KeyValue {
        key: "s".to_owned(),
        value: Some(AnyValue {
            value: Some(any_value::Value::StringValue(series.to_owned())),
        }),
        ..Default::default()
    }]
}

fn request(name: &str, data: metric::Data) -> Vec<u8> {
    let metric = otlp::Metric {
        name: name.to_owned(),
        data: Some(data),
        ..Default::default()
    };
    let scope = otlp::ScopeMetrics {
        metrics: vec![metric],
        ..Default::default()
    };
    let resource = otlp::ResourceMetrics {
        scope_metrics: vec![scope],
        ..Default::default()
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![resource],
    }
    .encode_to_vec()
}

/// Deltas by series and second; `None` ends the series.
fn numbers(points: &[(&str, u64, Option<i64>)]) -> Vec<u8> {
    let points = points
        .iter()
        .map(|(series, second, delta)| otlp::NumberDataPoint {
            attributes: attributes(series),
            start_time_unix_nano: (second - 1) * 1_000_000_000,
            time_unix_nano: second * 1_000_000_000,
            flags: u32::from(delta.is_none()),
            value: delta.map(number_data_point::Value::AsInt),
            ..Default::default()
        });
    request(
        "c",
        metric::Data::Sum(otlp::Sum {
            data_points: points.collect(),
            aggregation_temporality: DELTA,
            is_monotonic: true,
        }),
    )
}

fn exponentials(points: &[(&str, u64, &Exponential)], aggregation_temporality: i32) -> Vec<u8> {
    let buckets = |buckets: &Buckets| {
        Some(OtlpBuckets {
            offset: buckets.offset,
            bucket_counts: buckets.counts.clone(),
        })
    };
    let points = points.iter().map(
        |(series, second, histogram)| otlp::ExponentialHistogramDataPoint {
            attributes: attributes(series),
            start_time_unix_nano: (second - 1) * 1_000_000_000,
            time_unix_nano: second * 1_000_000_000,
            count: histogram.count,
            sum: Some(histogram.sum),
            scale: histogram.scale,
            zero_count: histogram.zero_count,
            zero_threshold: histogram.zero_threshold,
            positive: buckets(&histogram.positive),
            negative: buckets(&histogram.negative),
            ..Default::default()
        },
    );
    request(
        "h",
        metric::Data::ExponentialHistogram(otlp::ExponentialHistogram {
            data_points: points.collect(),
            aggregation_temporality,
        }),
    )
}

/// A histogram of one value in each of these buckets.
fn histogram_of(scale: i32, indexes: &[i32]) -> Exponential {
    let first = *indexes.iter().min().unwrap();
    let last = *indexes.iter().max().unwrap();
    let mut counts = vec![0; (last - first + 1) as usize];
    indexes
        .iter()
        .for_each(|index| counts[(index - first) as usize] += 1);
    Exponential {
        count: indexes.len() as u64,
        sum: indexes.len() as f64,
        scale,
        positive: Buckets {
            offset: first,
            counts,
        },
        ..Default::default()
    }
}

/// What was written: value, or the histogram without its times, and the start, by series and time.
type Got = BTreeMap<(String, i64), (f64, Vec<u8>, i64)>;

fn send(encoder: &mut Encoder, requests: &[&[u8]]) -> (Got, Outcome) {
    let (lanes, outcome) = encoder.encode(requests);
    let mut got = Got::new();
    for plain in plain_bodies(&lanes) {
        each_series(Version::V2, &plain, |read| {
            let series = read.label("s").to_owned();
            for sample in &read.samples {
                let at = (series.clone(), sample.timestamp_ms);
                got.insert(at, (sample.value, Vec::new(), sample.start_ms));
            }
            for histogram in &read.histograms {
                let varint = |number| {
                    let field = Fields::of(histogram).find(|field| field.number == number);
                    field.map_or(0, |field| field.varint().unwrap() as i64)
                };
                let own = Fields::of(histogram).filter(|field| !matches!(field.number, 15 | 17));
                let own = own.flat_map(|field| field.framed.to_vec()).collect();
                got.insert((series.clone(), varint(15)), (0.0, own, varint(17)));
            }
            Ok(())
        })
        .unwrap();
    }
    (got, outcome)
}

/// Values of one series, in order.
fn values(got: &Got, series: &str) -> Vec<f64> {
    let of = got.iter().filter(|((name, _), _)| name == series);
    of.map(|(_, (value, ..))| *value).collect()
}
