use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics,
    Sum, exemplar, metric, number_data_point,
};
use prost::Message as _;

use crate::body::Format;
use crate::decode::{Version, each_series};
use crate::encoder::{Encoder, EncoderSettings};
use crate::transcode::plain_bodies;

fn attribute(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(any_value::Value::StringValue(value.to_owned())),
        }),
        ..Default::default()
    }
}

fn request(metrics: Vec<Metric>) -> Vec<u8> {
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            scope_metrics: vec![ScopeMetrics {
                metrics,
                ..Default::default()
            }],
            ..Default::default()
        }],
    }
    .encode_to_vec()
}

/// The values of all series of the bodies, by their labels.
fn read(encoder: &mut Encoder, request: &[u8]) -> BTreeMap<String, f64> {
    let (lanes, _) = encoder.encode(&[request]);
    let mut found = BTreeMap::new();
    for plain in plain_bodies(&lanes) {
        each_series(Version::V1, &plain, |series| {
            let labels: Vec<String> = series
                .labels
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            assert!(found.insert(labels.join(","), series.samples[0].value).is_none());
            Ok(())
        })
        .unwrap();
    }
    found
}

/// Scenario: a histogram with an attribute `le`, which its buckets' own takes the place of, twice.
/// Guarantees: buckets have the bucket's `le`, count and sum the attribute's: labels that one of a point's series leaves out are
/// in the next one, and no length is wrong.
#[test]
fn what_one_series_of_a_point_leaves_out_is_in_the_next() {
    let point = |sum: f64, host: &str| HistogramDataPoint {
        attributes: vec![attribute("le", "own"), attribute("host", host)],
        time_unix_nano: 1_000_000_000,
        count: 3,
        sum: Some(sum),
        bucket_counts: vec![1, 2],
        explicit_bounds: vec![0.5],
        ..Default::default()
    };
    let request = request(vec![Metric {
        name: "h".to_owned(),
        data: Some(metric::Data::Histogram(Histogram {
            data_points: vec![point(4.0, "a"), point(5.0, "b")],
            aggregation_temporality: 2,
        })),
        ..Default::default()
    }]);
    let mut encoder = Encoder::new(EncoderSettings::default());
    for _ in 0..2 {
        let found = read(&mut encoder, &request);
        let mut want = BTreeMap::new();
        for (host, sum) in [("a", 4.0), ("b", 5.0)] {
            want.insert(format!("__name__=h_bucket,host={host},le=0.5"), 1.0);
            want.insert(format!("__name__=h_bucket,host={host},le=+Inf"), 3.0);
            want.insert(format!("__name__=h_count,host={host},le=own"), 3.0);
            want.insert(format!("__name__=h_sum,host={host},le=own"), sum);
        }
        assert_eq!(found, want);
    }
}

/// Scenario: requests of 3,000 points with long values: a few that repeat all the time, one that comes again after hundreds of
/// points, one of each point's own; in requests after each other, with other values in between, over lanes and in small bodies.
/// Guarantees: every series is read back as it was, however far back what it repeats stands, and in whichever body.
#[test]
fn what_repeats_from_afar_is_read_back() {
    let value = |kind: &str, number: usize| format!("{kind}-{number}-{}", kind.repeat(number % 50));
    for (lanes, max_body_bytes, format) in [
        (1, usize::MAX, Format::V1),
        (1, 40_000, Format::V1),
        (3, 200_000, Format::V1),
        (2, 100_000, Format::V1Zstd),
    ] {
        let mut encoder = Encoder::new(EncoderSettings {
            lanes,
            max_body_bytes,
            format,
            ..EncoderSettings::default()
        });
        for round in 0..3 {
            let mut want = BTreeMap::new();
            let metric = |name: String, first: usize, want: &mut BTreeMap<String, f64>| Metric {
                data: Some(metric::Data::Gauge(Gauge {
                    data_points: (first..first + 30)
                        .map(|n| {
                            let (near, far) = (value("near", n % 7), value("far", (n * 31 + round) % 400));
                            let (own, number) = (value("own", n + round * 1000), n as f64);
                            let labels = format!("__name__={name},far={far},near={near},own={own}");
                            want.insert(labels, number);
                            NumberDataPoint {
                                attributes: vec![
                                    attribute("own", &own),
                                    attribute("near", &near),
                                    attribute("far", &far),
                                ],
                                time_unix_nano: 1_000_000_000,
                                value: Some(number_data_point::Value::AsDouble(number)),
                                ..Default::default()
                            }
                        })
                        .collect(),
                })),
                name,
                ..Default::default()
            };
            let metrics = (0..100).map(|n| metric(format!("m{}", n % 9), n * 30, &mut want));
            let request = request(metrics.collect());
            assert_eq!(read(&mut encoder, &request), want);
        }
    }
}

/// Scenario: thousands of sums in ever other order: of labels of a few lengths, with values and times that are those before or not, times of one to ten
/// bytes, with and without exemplars; over lanes and in small bodies.
/// Guarantees: every series, sample and exemplar is read back as it was, whatever stands before labels and behind them is taken to be.
#[test]
fn what_is_around_labels_is_read_back() {
    let mut state = 3u64;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for (lanes, max_body_bytes, format) in [
        (1, usize::MAX, Format::V1),
        (1, 3_000, Format::V1),
        (3, 20_000, Format::V1),
        (2, 10_000, Format::V1Zstd),
    ] {
        let mut encoder = Encoder::new(EncoderSettings {
            lanes,
            max_body_bytes,
            format,
            ..EncoderSettings::default()
        });
        for _ in 0..4 {
            let mut want = BTreeMap::new();
            let mut metric = |n: usize, want: &mut BTreeMap<String, (f64, i64, usize)>| {
                let time = [-5, 1, 1_767_225_600_000, 1_767_225_600_000, 1_767_225_600_001];
                // Of most of them: a request mostly has one time.
                let time: i64 = time[draw(time.len() as u64) as usize];
                let points = (0..20).map(|point| {
                    let own = "o".repeat(1 + draw(3) as usize);
                    let (own, near) = (format!("{n}-{point}-{own}"), format!("near-{}", draw(6)));
                    let (number, exemplars) = (draw(3) as f64, usize::from(draw(9) == 0));
                    let time = time + i64::from(draw(10) == 0);
                    let labels = format!("__name__=m_total,near={near},own={own}");
                    want.insert(labels, (number, time, exemplars));
                    NumberDataPoint {
                        attributes: vec![attribute("own", &own), attribute("near", &near)],
                        time_unix_nano: (time * 1_000_000) as u64,
                        value: Some(number_data_point::Value::AsDouble(number)),
                        exemplars: vec![
                            Exemplar {
                                value: Some(exemplar::Value::AsDouble(1.0)),
                                ..Default::default()
                            };
                            exemplars
                        ],
                        ..Default::default()
                    }
                });
                Metric {
                    name: "m".to_owned(),
                    data: Some(metric::Data::Sum(Sum {
                        data_points: points.collect(),
                        aggregation_temporality: 2,
                        is_monotonic: true,
                    })),
                    ..Default::default()
                }
            };
            let request = request((0..150).map(|n| metric(n, &mut want)).collect());
            let (bodies, _) = encoder.encode(&[&request]);
            let mut found = BTreeMap::new();
            for plain in plain_bodies(&bodies) {
                each_series(Version::V1, &plain, |series| {
                    let labels: Vec<String> = series
                        .labels
                        .iter()
                        .map(|(name, value)| format!("{name}={value}"))
                        .collect();
                    let [sample] = &series.samples[..] else {
                        panic!("{}", series.samples.len())
                    };
                    let sample = (sample.value, sample.timestamp_ms, series.exemplars.len());
                    assert!(found.insert(labels.join(","), sample).is_none());
                    Ok(())
                })
                .unwrap();
            }
            assert!(found == want);
        }
    }
}
