//! Prometheus remote write, in and out, by the real binary.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod behind;
mod credentials;
mod deltas;
mod destination;
mod restart;
mod rounds;
mod sender;
mod ten_million;
mod tenants;
mod through;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use prost::Message;
use sluice_loadgen::{Generator, RemoteWrite, Request, Signal, Spec};
use sluice_tests::{
    Answer, Config, Gateway, HttpConnection, Kind, Reply, Sink, post, request, snappy_block, zstd,
};

use rounds::Rounds;

const V1: &str = "application/x-protobuf";
const V2: &str = "application/x-protobuf;proto=io.prometheus.write.v2.Request";

/// A gateway that takes remote write and sends OTLP to `sink`.
async fn receiving(sink: &Sink) -> Gateway {
    let config = Config::to(sink)
        .signals(&["metrics"])
        .metrics_receiver("prometheusremotewrite", "endpoint: \"127.0.0.1:0\"");
    Gateway::start(&config).await
}

async fn write(gateway: &Gateway, content_type: &str, encoding: &str, body: Vec<u8>) -> Reply {
    let headers = [("content-type", content_type), ("content-encoding", encoding)];
    let to = gateway.bound("receivers.prometheusremotewrite");
    post(to, "/api/v1/write", &headers, body).await
}

fn numbers(request: &Request) -> BTreeSet<u64> {
    (request.first_id..request.first_id + u64::from(request.items)).collect()
}

/// The ids that have arrived at the sink.
fn arrived(sink: &Sink) -> Vec<u64> {
    let of = |body: &[u8]| ids_of_labels(&ExportMetricsServiceRequest::decode(body).unwrap());
    sink.taken()
        .iter()
        .flat_map(|arrived| of(&arrived.body))
        .collect()
}

/// Scenario: requests of both versions, with snappy and with zstd.
/// Guarantees: 204, in 2.0 with what was written; every sample arrives as OTLP, once.
#[tokio::test(flavor = "multi_thread")]
async fn both_versions_are_taken() {
    let sink = Sink::start().await;
    let gateway = receiving(&sink).await;
    let mut sent = BTreeSet::new();
    for (lane, (version, content_type)) in [(RemoteWrite::V1, V1), (RemoteWrite::V2, V2)]
        .into_iter()
        .enumerate()
    {
        let spec = Spec::gateway(Signal::Metrics).items(50).lane(lane as u32);
        let mut generator = Generator::remote_write(spec, version);
        for encoding in ["snappy", "zstd"] {
            let made = generator.next_request();
            sent.extend(numbers(&made));
            let body = match encoding {
                "snappy" => snappy_block(&made.body),
                _ => zstd(&made.body),
            };
            let reply = write(&gateway, content_type, encoding, body).await;
            assert_eq!(reply.status, 204, "{}", reply.text());
            let written = reply.header("x-prometheus-remote-write-samples-written");
            assert_eq!(written, (version == RemoteWrite::V2).then_some("50"));
        }
    }
    sink.wait_for(Kind::Metrics, sent.len()).await;
    let arrived = arrived(&sink);
    assert_eq!(arrived.len(), sent.len());
    assert_eq!(arrived.into_iter().collect::<BTreeSet<_>>(), sent);
    gateway.stop().await;
}

/// Scenario: what a receiver must not take: other types, encodings, paths and methods, broken bodies, a good series
/// before a bad one.
/// Guarantees: 415, 404, 405 and 400 with a reason; in 2.0 the headers say that nothing was written; nothing arrives.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_taken_is_told_why() {
    let sink = Sink::start().await;
    let gateway = receiving(&sink).await;
    let good = Generator::remote_write(Spec::gateway(Signal::Metrics).items(3), RemoteWrite::V1)
        .next_request()
        .body
        .to_vec();
    let bad = [&good[..], b"\x0a\x02\x12\x00"].concat();
    for (content_type, encoding, body, status) in [
        ("application/json", "snappy", snappy_block(&good), 415),
        (
            "application/x-protobuf;proto=io.prometheus.write.v3.Request",
            "snappy",
            snappy_block(&good),
            415,
        ),
        (V1, "gzip", snappy_block(&good), 415),
        (V1, "snappy", good.clone(), 400),
        (V1, "snappy", snappy_block(&bad), 400),
        (V2, "snappy", snappy_block(b"\x2a\x01"), 400),
    ] {
        let reply = write(&gateway, content_type, encoding, body).await;
        assert_eq!(reply.status, status, "{content_type} {encoding} {}", reply.text());
        assert!(!reply.text().is_empty());
        let written = reply.header("x-prometheus-remote-write-samples-written");
        assert_eq!(written, (content_type == V2).then_some("0"));
    }
    let to = gateway.bound("receivers.prometheusremotewrite");
    assert_eq!(
        post(to, "/write", &[("content-type", V1)], good).await.status,
        404
    );
    let mut connection = HttpConnection::http1(to).await.unwrap();
    let get = request(Method::GET, to, "/api/v1/write", &[], "");
    assert_eq!(connection.send(get).await.unwrap().status, 405);
    assert!(sink.taken().is_empty());
    gateway.stop().await;
}

/// Scenario: requests of two tenants, by a header, and of none.
/// Guarantees: the ledger has an account for each.
#[tokio::test(flavor = "multi_thread")]
async fn tenants_are_told_apart() {
    let sink = Sink::start().await;
    let config = Config::to(&sink).signals(&["metrics"]).metrics_receiver(
        "prometheusremotewrite",
        "endpoint: \"127.0.0.1:0\", tenant: {from_header: X-Scope-OrgID}",
    );
    let gateway = Gateway::start(&config).await;
    let to = gateway.bound("receivers.prometheusremotewrite");
    for (tenant, items) in [(Some("a"), 3), (Some("b"), 5), (None, 7)] {
        let spec = Spec::gateway(Signal::Metrics).items(items);
        let made = Generator::remote_write(spec, RemoteWrite::V1).next_request();
        let mut headers = vec![("content-type", V1), ("content-encoding", "snappy")];
        headers.extend(tenant.map(|name| ("x-scope-orgid", name)));
        let reply = post(to, "/api/v1/write", &headers, snappy_block(&made.body)).await;
        assert_eq!(reply.status, 204, "{}", reply.text());
    }
    gateway.settled().await;
    let tenants = gateway.tenants("otlphttp/sink").await;
    let want = [("a", 3), ("b", 5), ("default", 7)];
    let want = want.map(|(tenant, items)| (tenant.to_owned(), (items, items)));
    assert_eq!(tenants, want.into_iter().collect());
    gateway.stop().await;
}

/// Scenario: OTLP of every kind to one gateway, which sends remote write to a second one, which sends OTLP; over 16 lanes, in
/// each format.
/// Guarantees: every sample that the first one sent arrives; both ledgers balance, with the points of delta temporality
/// dropped by the first and nothing by the second.
#[tokio::test(flavor = "multi_thread")]
async fn out_and_in_again() {
    for format in [
        "",
        "protobuf_message: io.prometheus.write.v2.Request, ",
        "compression: zstd, ",
    ] {
        goes_out_and_in_again(format).await;
    }
}

async fn goes_out_and_in_again(format: &str) {
    let sink = Sink::start().await;
    let second = receiving(&sink).await;
    let url = format!(
        "http://{}/api/v1/write",
        second.bound("receivers.prometheusremotewrite")
    );
    let first = Gateway::start(&Config::new().signals(&["metrics"]).exporter(
        "prometheusremotewrite",
        &format!("{format}endpoint: \"{url}\", remote_write_queue: {{num_consumers: 16}}, sending_queue: {{batch: {{flush_timeout: 5ms, min_size: 1}}}}"),
    ))
    .await;
    let mut generator = Generator::new(Spec::gateway(Signal::Metrics));
    let mut sent = BTreeSet::new();
    for _ in 0..10 {
        let made = generator.next_request();
        sent.extend(numbers(&made));
        let reply = post(first.http(), "/v1/metrics", &[("content-type", V1)], made.body).await;
        assert_eq!(reply.status, 200);
    }
    first.settled().await;
    second.settled().await;
    let account = first.account("prometheusremotewrite").await;
    assert_eq!((account.accepted, account.delivered), (5000, 5000), "{account:?}");
    let account = second.account("otlphttp/sink").await;
    assert_eq!(account.accepted, account.delivered);
    let mut found = BTreeSet::new();
    for arrived in sink.taken() {
        let request = ExportMetricsServiceRequest::decode(&arrived.body[..]).unwrap();
        let metrics = request
            .resource_metrics
            .iter()
            .flat_map(|resource| &resource.scope_metrics);
        assert!(
            metrics
                .flat_map(|scope| &scope.metrics)
                .all(|metric| !metric.name.contains('.'))
        );
        for id in ids_of_labels(&request) {
            assert!(found.insert(id), "{id} came twice");
        }
    }
    assert_eq!(found, sent);
    first.stop().await;
    second.stop().await;
}

/// Series of the test that kills, and points of each between two kills.
const KILL_SERIES: u64 = 200;
const KILL_ROUNDS: u64 = 10;
const KILLS: u64 = 4;

/// A point of so many series, of this time and value.
fn round_of_points(round: u64, series: u64) -> Vec<u8> {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
    use opentelemetry_proto::tonic::metrics::v1::{
        Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, metric, number_data_point,
    };
    let point = |series: u64| NumberDataPoint {
        attributes: vec![KeyValue {
            key: "series".to_owned(),
            value: Some(AnyValue {
                value: Some(Value::StringValue(series.to_string())),
            }),
            ..KeyValue::default()
        }],
        time_unix_nano: 1_790_000_000_000_000_000 + round * 1_000_000_000,
        value: Some(number_data_point::Value::AsDouble(round as f64)),
        ..NumberDataPoint::default()
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            scope_metrics: vec![ScopeMetrics {
                metrics: vec![Metric {
                    name: "level".to_owned(),
                    data: Some(metric::Data::Gauge(Gauge {
                        data_points: (0..series).map(point).collect(),
                    })),
                    ..Metric::default()
                }],
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    }
    .encode_to_vec()
}

/// The rounds of each series, in the order they arrived.
fn arrived_rounds(sink: &Sink) -> BTreeMap<String, Vec<u64>> {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::metrics::v1::{metric::Data, number_data_point};
    let mut rounds: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for arrived in sink.taken() {
        let request = ExportMetricsServiceRequest::decode(&arrived.body[..]).unwrap();
        let scopes = request
            .resource_metrics
            .into_iter()
            .flat_map(|resource| resource.scope_metrics);
        for metric in scopes.flat_map(|scope| scope.metrics) {
            let Some(Data::Gauge(gauge)) = metric.data else {
                continue;
            };
            for point in gauge.data_points {
                let series = point
                    .attributes
                    .iter()
                    .find(|attribute| attribute.key == "series");
                let text = series.and_then(|series| series.value.clone()?.value);
                if let (Some(Value::StringValue(series)), Some(number_data_point::Value::AsDouble(round))) =
                    (text, point.value)
                {
                    rounds.entry(series).or_default().push(round as u64);
                }
            }
        }
    }
    rounds
}

/// A sink that takes 20 ms for an answer, longer than a round of points: there is a backlog in front of it, and every kill comes in the
/// middle of a batch. Before it a gateway that receives remote write and sends on in order, and the URL of that.
async fn slow_destination() -> (Sink, Gateway, String) {
    let sink = Sink::start().await;
    sink.answer(|_| {
        let wait = || -> Pin<Box<dyn Future<Output = ()> + Send>> {
            Box::pin(tokio::time::sleep(Duration::from_millis(20)))
        };
        Answer::After(Arc::new(wait), Box::new(Answer::Take))
    });
    let in_order = Config::new()
        .signals(&["metrics"])
        .http_exporter(
            "sink",
            &sink,
            "sending_queue: {num_consumers: 1, wait_for_result: true, batch: {flush_timeout: 5ms, min_size: 1}}",
        )
        .metrics_receiver("prometheusremotewrite", "endpoint: \"127.0.0.1:0\"");
    let second = Gateway::start(&in_order).await;
    let url = format!(
        "http://{}/api/v1/write",
        second.bound("receivers.prometheusremotewrite")
    );
    (sink, second, url)
}

/// Scenario: a gateway with its queue on disk sends 200 series over 16 lanes, a batch for each round of points, and is killed
/// (SIGKILL) again and again on the way.
/// Guarantees: what was acknowledged arrives; no sample of a series comes after a later one; a start sends no more of a series again than its last sample,
/// whose answer was on its way.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_sends_no_more_again_than_what_was_under_way() {
    let (sink, second, url) = slow_destination().await;
    let spool = tempfile::tempdir().unwrap();
    let config = Config::new()
        .signals(&["metrics"])
        .extension("file_storage", &format!("directory: {}", spool.path().display()))
        .exporter(
            "prometheusremotewrite",
            &format!(
                "endpoint: \"{url}\", remote_write_queue: {{num_consumers: 16}}, sending_queue: {{storage: file_storage, \
                 batch: {{flush_timeout: 5ms, min_size: {KILL_SERIES}, max_size: {KILL_SERIES}}}}}"
            ),
        );
    let mut first = Gateway::start(&config).await;
    let end = KILL_ROUNDS * (KILLS + 1);
    for round in 0..end {
        if round > 0 && round % KILL_ROUNDS == 0 {
            first.kill().await;
            first = Gateway::start(&config).await;
        }
        let body = round_of_points(round, KILL_SERIES);
        let reply = post(first.http(), "/v1/metrics", &[("content-type", V1)], body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    first.settled().await;
    second.settled().await;
    let arrived = arrived_rounds(&sink);
    assert_eq!(arrived.len() as u64, KILL_SERIES);
    let (mut again, mut most_again) = (0, 0);
    for (series, came) in &arrived {
        let mut rounds = Rounds::default();
        came.iter().for_each(|round| rounds.take(*round));
        assert!(rounds.are_whole(end, KILLS), "{series}: {rounds:?}: {came:?}");
        again += rounds.again;
        most_again = most_again.max(rounds.most_again);
    }
    assert!(most_again <= 1, "{most_again}");
    println!(
        "{KILLS} kills: {again} samples of {} were sent again, of a series {most_again} after a kill at most",
        end * KILL_SERIES
    );
    first.stop().await;
    second.stop().await;
}

/// Remote write has strings only: the ids are attributes in decimal now.
fn ids_of_labels(request: &ExportMetricsServiceRequest) -> Vec<u64> {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::metrics::v1::metric::Data;
    let metrics = request
        .resource_metrics
        .iter()
        .flat_map(|resource| &resource.scope_metrics)
        .flat_map(|scope| &scope.metrics);
    let mut ids = Vec::new();
    for metric in metrics {
        let Some(Data::Gauge(gauge)) = &metric.data else {
            continue;
        };
        for point in &gauge.data_points {
            let id = point
                .attributes
                .iter()
                .find(|attribute| attribute.key == "sluice_id");
            let value = id.and_then(|attribute| attribute.value.as_ref()?.value.as_ref());
            if let Some(Value::StringValue(text)) = value {
                ids.push(text.parse().unwrap());
            }
        }
    }
    ids
}
