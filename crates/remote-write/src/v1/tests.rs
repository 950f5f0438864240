use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, metric,
    number_data_point,
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
