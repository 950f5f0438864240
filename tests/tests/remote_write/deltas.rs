//! Totals of deltas over kills, by the real binary.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::{
    ExponentialHistogram, ExponentialHistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use prost::Message;
use sluice_tests::{Config, Gateway, Sink, post};

use super::rounds::Rounds;
use super::{V1, slow_destination};

const SERIES: u64 = 100;
const ROUNDS: u64 = 10;
const KILLS: u64 = 4;
const DELTA: i32 = 1;
const FIRST_NANOS: u64 = 1_790_000_000_000_000_000;

/// A counter and an exponential histogram of each series as deltas: in round n the counter grows by n + 1, and the histogram by n + 1 values in
/// one of its buckets, at a scale that goes up and down.
fn round_of_deltas(round: u64) -> Vec<u8> {
    let attributes = |series: u64| {
        vec![KeyValue {
            key: "series".to_owned(),
            value: Some(AnyValue {
                value: Some(Value::StringValue(series.to_string())),
            }),
            ..KeyValue::default()
        }]
    };
    let time_unix_nano = FIRST_NANOS + round * 1_000_000_000;
    let start_time_unix_nano = time_unix_nano - 1_000_000_000;
    let numbers = (0..SERIES).map(|series| NumberDataPoint {
        attributes: attributes(series),
        start_time_unix_nano,
        time_unix_nano,
        value: Some(number_data_point::Value::AsInt(round as i64 + 1)),
        ..NumberDataPoint::default()
    });
    let histograms = (0..SERIES).map(|series| ExponentialHistogramDataPoint {
        attributes: attributes(series),
        start_time_unix_nano,
        time_unix_nano,
        count: round + 1,
        sum: Some(round as f64 + 1.0),
        scale: (round % 3) as i32,
        positive: Some(Buckets {
            offset: (round % 7) as i32,
            bucket_counts: vec![round + 1],
        }),
        ..ExponentialHistogramDataPoint::default()
    });
    let metric = |name: &str, data| Metric {
        name: name.to_owned(),
        data: Some(data),
        ..Metric::default()
    };
    let metrics = vec![
        metric(
            "requests",
            metric::Data::Sum(Sum {
                data_points: numbers.collect(),
                aggregation_temporality: DELTA,
                is_monotonic: true,
            }),
        ),
        metric(
            "latency",
            metric::Data::ExponentialHistogram(ExponentialHistogram {
                data_points: histograms.collect(),
                aggregation_temporality: DELTA,
            }),
        ),
    ];
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            scope_metrics: vec![ScopeMetrics {
                metrics,
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    }
    .encode_to_vec()
}

/// Start, total and, of a histogram, what is in its buckets.
type Total = (u64, u64, u64);

/// What has arrived of each series: by metric and series, and by round, in the order of their coming.
fn arrived(sink: &Sink) -> BTreeMap<(String, String), Vec<(u64, Total)>> {
    let series = |attributes: &[KeyValue]| {
        let found = attributes.iter().find(|attribute| attribute.key == "series");
        match found.and_then(|attribute| attribute.value.clone()?.value) {
            Some(Value::StringValue(series)) => series,
            other => panic!("{other:?}"),
        }
    };
    let round = |nanos: u64| (nanos - FIRST_NANOS) / 1_000_000_000;
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for arrived in sink.taken() {
        let request = ExportMetricsServiceRequest::decode(&arrived.body[..]).unwrap();
        let resources = request.resource_metrics.into_iter();
        let scopes = resources.flat_map(|resource| resource.scope_metrics);
        for metric in scopes.flat_map(|scope| scope.metrics) {
            let mut put = |attributes: &[KeyValue], time, total: Total| {
                let at = (metric.name.clone(), series(attributes));
                all.entry(at).or_default().push((round(time), total));
            };
            match metric.data {
                Some(metric::Data::Sum(sum)) => {
                    for point in sum.data_points {
                        let Some(number_data_point::Value::AsDouble(value)) = point.value else {
                            panic!("{point:?}");
                        };
                        let total = (point.start_time_unix_nano, value as u64, 0);
                        put(&point.attributes, point.time_unix_nano, total);
                    }
                }
                Some(metric::Data::ExponentialHistogram(histogram)) => {
                    for point in histogram.data_points {
                        let buckets = point.positive.iter().flat_map(|buckets| &buckets.bucket_counts);
                        let total = (point.start_time_unix_nano, point.count, buckets.sum());
                        put(&point.attributes, point.time_unix_nano, total);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }
    all
}

/// Scenario: deltas of 200 series to a gateway with its queue on disk, over 8 lanes; it is killed (SIGKILL) again and again with a batch
/// under way.
/// Guarantees: every total that arrives is that of all deltas so far, since the first one's start, whether it comes once or again; the last one
/// has them all; they come in order, but for what comes again after a kill.
#[tokio::test(flavor = "multi_thread")]
async fn totals_survive_kills() {
    let (sink, second, url) = slow_destination().await;
    let spool = tempfile::tempdir().unwrap();
    let config = Config::new()
        .signals(&["metrics"])
        .extension("file_storage", &format!("directory: {}", spool.path().display()))
        .exporter(
            "prometheusremotewrite",
            &format!(
                "endpoint: \"{url}\", protobuf_message: io.prometheus.write.v2.Request, delta_to_cumulative: {{}}, \
                 remote_write_queue: {{num_consumers: 8}}, sending_queue: {{storage: file_storage, \
                 batch: {{flush_timeout: 5ms, min_size: {0}, max_size: {0}}}}}",
                2 * SERIES
            ),
        );
    let mut first = Gateway::start(&config).await;
    let end = ROUNDS * (KILLS + 1);
    for round in 0..end {
        if round > 0 && round % ROUNDS == 0 {
            first.kill().await;
            first = Gateway::start(&config).await;
        }
        let reply = post(
            first.http(),
            "/v1/metrics",
            &[("content-type", V1)],
            round_of_deltas(round),
        )
        .await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    first.settled().await;
    second.settled().await;
    let metrics = first.metrics().await;
    for reason in ["damaged", "unwritten", "absent"] {
        let lost = metrics.sum(
            "sluice_remote_write_totals_lost_total",
            &[&format!("reason=\"{reason}\"")],
        );
        assert!(lost == 0.0, "{reason}: {lost}");
    }
    assert!(metrics.sum("sluice_remote_write_dropped_points_total", &[]) == 0.0);
    let arrived = arrived(&sink);
    assert_eq!(arrived.len() as u64, 2 * SERIES);
    let (mut again, mut most_again) = (0, 0);
    for (series, totals) in &arrived {
        let mut rounds = Rounds::default();
        for (round, total) in totals {
            rounds.take(*round);
            let sum = (round + 1) * (round + 2) / 2;
            let in_buckets = if series.0.starts_with("latency") { sum } else { 0 };
            assert_eq!(
                *total,
                (FIRST_NANOS - 1_000_000_000, sum, in_buckets),
                "{series:?} in round {round}"
            );
        }
        assert!(rounds.are_whole(end, KILLS), "{series:?}: {rounds:?}: {totals:?}");
        again += rounds.again;
        most_again = most_again.max(rounds.most_again);
    }
    println!(
        "{KILLS} kills: {again} samples of {} came again, of a series {most_again} after a kill at most",
        2 * end * SERIES
    );
    first.stop().await;
    second.stop().await;
}
