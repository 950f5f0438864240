use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, metric, number_data_point,
};
use parking_lot::Mutex;
use prost::Message;
use sluice_payload::{Signal, WireFormat};
use sluice_pipeline::{Batch, Exporter, Part, Turn, Verdict};
use sluice_telemetry::{Counter, Registry};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::lane::Lane;
use super::*;
use crate::body::{Format, Written};
use crate::decode::each_series;

mod ahead;
mod alone;
mod collisions;
mod pace;
mod refused;
mod restart;
mod said_no;
mod simulation;
mod tenants;
mod too_old;
mod written;

/// Answers in the place of endpoints, which are known by their URLs, so that time may be virtual.
pub(super) trait Scripted: std::fmt::Debug + Send + Sync {
    fn answer<'a>(
        &'a self,
        url: &'a str,
        body: &'a Body,
    ) -> Pin<Box<dyn Future<Output = Result<Answer, SendError>> + Send + 'a>>;
}

/// What a destination has been sent, and what it took.
#[derive(Debug, Default)]
struct Seen {
    requests: AtomicUsize,
    heads: Mutex<Vec<String>>,
    /// Values in the order they came, by the series's `n`.
    taken: Mutex<BTreeMap<String, Vec<f64>>>,
}

/// Looks at a request and its series and says how to answer it, with a text behind an empty line if there is one; with nothing: never.
type Judge = dyn Fn(&Got<'_>, &[(String, f64)]) -> &'static str + Send + Sync;

/// A request, beside its series.
struct Got<'a> {
    /// How many were before it.
    number: usize,
    format: Format,
    head: &'a str,
}

const TAKEN: &str = "204 No Content\r\n";
const REFUSED: &str = "400 Bad Request\r\n";

/// A destination that answers as `judge` says, which is given the number of the request.
async fn destination(
    judge: impl Fn(usize, &[(String, f64)]) -> &'static str + Send + Sync + 'static,
) -> (String, Arc<Seen>) {
    destination_of_formats(move |got, samples| judge(got.number, samples)).await
}

async fn destination_of_formats(
    judge: impl Fn(&Got<'_>, &[(String, f64)]) -> &'static str + Send + Sync + 'static,
) -> (String, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/api/v1/write", listener.local_addr().unwrap());
    let seen = Arc::new(Seen::default());
    let (told, judge): (_, Arc<Judge>) = (seen.clone(), Arc::new(judge));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, told.clone(), judge.clone()));
        }
    });
    (url, seen)
}

async fn serve(mut stream: TcpStream, seen: Arc<Seen>, judge: Arc<Judge>) {
    let mut read = Vec::new();
    loop {
        let head_len = loop {
            if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let head = String::from_utf8(read[..head_len].to_vec())
            .unwrap()
            .to_lowercase();
        let length = head.split("content-length: ").nth(1).unwrap();
        let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
        while read.len() < head_len + length {
            if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let format = match head.contains("proto=io.prometheus.write.v2.request") {
            true => Format::V2,
            false if head.contains("content-encoding: zstd") => Format::V1Zstd,
            false => Format::V1,
        };
        let body = Body {
            bytes: Bytes::copy_from_slice(&read[head_len..head_len + length]),
            written: Written::default(),
            format,
        };
        read.drain(..head_len + length);
        let plain = body.plain().unwrap();
        let mut samples = Vec::new();
        each_series(format.version(), &plain, |series| {
            for sample in &series.samples {
                samples.push((series.label("n").to_owned(), sample.value));
            }
            Ok(())
        })
        .unwrap();
        let number = seen.requests.fetch_add(1, Ordering::SeqCst);
        let got = Got {
            number,
            format,
            head: &head,
        };
        let answer = judge(&got, &samples);
        seen.heads.lock().push(head);
        if answer.is_empty() {
            return std::future::pending().await;
        }
        if answer.starts_with("20") {
            let mut taken = seen.taken.lock();
            for (series, value) in samples {
                taken.entry(series).or_default().push(value);
            }
        }
        let (head, text) = answer.split_once("\r\n\r\n").unwrap_or((answer.trim_end(), ""));
        let answer = format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{text}", text.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

fn exporter(url: &str, lanes: usize) -> RemoteWriteExporter {
    exporter_of(url, lanes, Format::V1)
}

fn exporter_of(url: &str, lanes: usize, format: Format) -> RemoteWriteExporter {
    let mut options = RemoteWriteExporterOptions {
        endpoint: url.to_owned(),
        headers: vec![
            ("X-Scope-OrgID".to_owned(), "a".to_owned()),
            ("Content-Encoding".to_owned(), "gzip".to_owned()),
        ],
        ..Default::default()
    };
    options.encoder.lanes = lanes;
    options.encoder.format = format;
    // A destination that never answers is part of a test; nothing else here takes any time.
    options.timeout = Duration::from_secs(2);
    RemoteWriteExporter::new("rw", options, &Registry::default()).unwrap()
}

/// One point for each of these series, with this value.
fn batch(series: std::ops::Range<usize>, value: f64) -> Batch {
    batch_at(0, series, value)
}

/// The same so many seconds later.
fn batch_at(seconds: u64, series: std::ops::Range<usize>, value: f64) -> Batch {
    let points = series.clone().map(|n| NumberDataPoint {
        attributes: vec![KeyValue {
            key: "n".to_owned(),
            value: Some(AnyValue {
                value: Some(Any::StringValue(n.to_string())),
            }),
            ..Default::default()
        }],
        time_unix_nano: 1_790_000_000_000_000_000 + seconds * 1_000_000_000,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..Default::default()
    });
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            scope_metrics: vec![ScopeMetrics {
                metrics: vec![Metric {
                    name: "m".to_owned(),
                    data: Some(metric::Data::Gauge(Gauge {
                        data_points: points.collect(),
                    })),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        }],
    };
    Batch {
        signal: Signal::Metrics,
        parts: vec![Part {
            body: Bytes::from(request.encode_to_vec()),
            items: series.len() as u64,
            wire_format: WireFormat::Otlp,
            frame: None,
        }],
    }
}

/// The same as it comes straight from a receiver of 1.0.
fn straight_batch(series: std::ops::Range<usize>, value: f64) -> Batch {
    let mut body = Vec::new();
    for n in series.clone() {
        let mut message = Vec::new();
        crate::v1::put_label(&mut message, "__name__", "m");
        crate::v1::put_label(&mut message, "n", &n.to_string());
        let mut sample = Vec::new();
        crate::protobuf::put_double(&mut sample, 1, value);
        crate::protobuf::put_delimited(&mut message, 2, &sample);
        crate::protobuf::put_delimited(&mut body, 1, &message);
    }
    Batch {
        signal: Signal::Metrics,
        parts: vec![Part {
            body: body.into(),
            items: series.len() as u64,
            wire_format: WireFormat::RemoteWrite1,
            frame: None,
        }],
    }
}

fn delivered(rejected: u64) -> Verdict {
    Verdict::Delivered {
        rejected,
        message: None,
    }
}

/// As [`delivered`], where the rejected ones are series that were refused.
fn in_part(verdict: Verdict) -> Verdict {
    let Verdict::InPart { refused, rejected } = verdict else {
        panic!("{verdict:?}")
    };
    assert_eq!(refused.iter().map(|one| one.items).sum::<u64>(), rejected);
    delivered(rejected)
}

/// Has the endpoint take a series that no test asks for: one that has taken nothing yet is not searched.
async fn has_taken(exporter: &RemoteWriteExporter) {
    assert_eq!(exporter.export(&batch(20_000..20_001, 0.0)).await, delivered(0));
}

/// Scenario: a batch of a hundred series as they came, of which the destination takes all but one.
/// Guarantees: that one is found, and counted as the sample that it has.
#[tokio::test]
async fn one_bad_series_of_those_that_came_straight() {
    let (url, seen) = destination(|_, samples| match samples.iter().any(|(n, _)| n == "37") {
        true => REFUSED,
        false => TAKEN,
    })
    .await;
    let exporter = exporter(&url, 4);
    assert!(exporter.takes(WireFormat::RemoteWrite1) && exporter.takes(WireFormat::RemoteWrite2));
    has_taken(&exporter).await;
    assert_eq!(
        in_part(exporter.export(&straight_batch(0..100, 1.0)).await),
        delivered(1)
    );
    assert_eq!(seen.taken.lock().len(), 1 + 99);
}

/// Scenario: a batch in one lane, with headers configured that are the protocol's.
/// Guarantees: one POST to the endpoint's path with the headers of remote write 1.0, which cannot be changed.
#[tokio::test]
async fn a_request_is_as_the_specification_says() {
    let (url, seen) = destination(|_, _| TAKEN).await;
    let exporter = exporter(&url, 1);
    assert_eq!(exporter.export(&batch(0..10, 1.0)).await, delivered(0));
    assert_eq!(seen.taken.lock().len(), 10);
    let heads = seen.heads.lock();
    assert_eq!(heads.len(), 1);
    for line in [
        "post /api/v1/write http/1.1\r\n",
        "content-type: application/x-protobuf\r\n",
        "content-encoding: snappy\r\n",
        "x-prometheus-remote-write-version: 0.1.0\r\n",
        "x-scope-orgid: a\r\n",
        "user-agent: sluice/",
    ] {
        assert!(heads[0].contains(line), "{line} is not in {}", heads[0]);
    }
    assert!(!heads[0].contains("gzip"));
}

/// Scenario: 40 batches of 200 series over 16 lanes, in turn of OTLP and of remote write as it came; three requests in ten are answered
/// with 503, and each batch is retried until it is delivered.
/// Guarantees: every sample arrives exactly once, and the samples of every series in the order they were given in: what
/// a destination took is not sent again.
#[tokio::test]
async fn series_stay_in_order_through_retries() {
    let (url, seen) = destination(|number, _| {
        if number * 7 % 10 < 3 {
            "503 Service Unavailable\r\nretry-after: 1\r\n"
        } else {
            TAKEN
        }
    })
    .await;
    let exporter = exporter(&url, 16);
    let mut retries = 0;
    for round in 0..40 {
        let batch = match round % 2 {
            0 => batch(0..200, f64::from(round)),
            _ => straight_batch(0..200, f64::from(round)),
        };
        loop {
            match exporter.export(&batch).await {
                Verdict::Delivered { rejected: 0, .. } => break,
                Verdict::Retry { after, .. } => {
                    assert_eq!(after, Some(Duration::from_secs(1)));
                    retries += 1;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(retries > 20);
    let want: Vec<f64> = (0..40).map(f64::from).collect();
    let taken = seen.taken.lock();
    assert_eq!(taken.len(), 200);
    for (series, values) in taken.iter() {
        assert_eq!(*values, want, "{series}");
    }
}

/// Scenario: settings that cannot work.
/// Guarantees: each is refused at start, by name.
#[test]
fn settings_that_cannot_work() {
    let made = |change: &dyn Fn(&mut RemoteWriteExporterOptions)| {
        let mut options = RemoteWriteExporterOptions {
            endpoint: "http://a/api/v1/write".to_owned(),
            ..Default::default()
        };
        change(&mut options);
        RemoteWriteExporter::new("rw", options, &Registry::default())
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    let label = |name: &str, value: &str| {
        let label = (name.to_owned(), value.to_owned());
        made(&move |options| options.encoder.mapping.external_labels = vec![label.clone()])
    };
    assert!(label("a.b", "c").contains("external_labels: \"a.b\""));
    assert!(label("__name__", "c").contains("__name__"));
    assert!(label("a", "").contains("has no value"));
    assert!(made(&|options| options.encoder.mapping.namespace = "a-b".to_owned()).contains("namespace"));
    assert!(made(&|options| options.headers = vec![("te".to_owned(), "x".to_owned())]).contains("te"));
    assert!(made(&|options| options.endpoint = "ftp://a".to_owned()).contains("ftp"));
}

/// What a receiver of 2.0 says of ten samples.
const TEN_WRITTEN: &str = "204 No Content\r\nx-prometheus-remote-write-samples-written: 10\r\n";

/// Scenario: a destination of 2.0, which writes all of a request, and then all but three samples.
/// Guarantees: the headers are 2.0's; what it says it has not written is rejected and counted.
#[tokio::test]
async fn what_was_not_written_is_counted() {
    let (url, seen) = destination_of_formats(|got, _| match got.number {
        0 => TEN_WRITTEN,
        1 => "204 No Content\r\nx-prometheus-remote-write-samples-written: 7\r\n",
        _ => "400 Bad Request\r\nx-prometheus-remote-write-samples-written: 9\r\n",
    })
    .await;
    let exporter = exporter_of(&url, 1, Format::V2);
    for rejected in [0, 3, 1] {
        let verdict = exporter.export(&batch(0..10, 1.0)).await;
        assert_eq!(verdict, delivered(rejected));
    }
    let heads = seen.heads.lock();
    assert_eq!(heads.len(), 3);
    for line in [
        "content-type: application/x-protobuf;proto=io.prometheus.write.v2.request\r\n",
        "content-encoding: snappy\r\n",
        "x-prometheus-remote-write-version: 2.0.0\r\n",
    ] {
        assert!(heads[0].contains(line), "{line} is not in {}", heads[0]);
    }
    let metrics = &exporter.0.metrics;
    assert_eq!(metrics.unwritten.each_ref().map(Counter::get), [4, 0, 0]);
    assert_eq!(metrics.samples.get(), 26);
}

/// Scenario: destinations that do not read what they are sent: 2.0 is answered with 415, or like 1.0 by a receiver that finds
/// nothing in it; zstd with 415 or 400.
/// Guarantees: the same samples are sent as 1.0 under snappy, each once and in order, and so is everything after; each lane
/// asks at most once.
#[tokio::test]
async fn a_destination_gets_what_it_reads() {
    const UNSUPPORTED: &str = "415 Unsupported Media Type\r\n";
    const NOTHING_FOUND: &str = "204 No Content\r\n";
    for (format, answer) in [
        (Format::V2, UNSUPPORTED),
        (Format::V2, NOTHING_FOUND),
        (Format::V1Zstd, UNSUPPORTED),
        (Format::V1Zstd, REFUSED),
    ] {
        let (url, seen) = destination_of_formats(move |got, _| match got.format {
            Format::V1 => TAKEN,
            _ => answer,
        })
        .await;
        let exporter = exporter_of(&url, 4, format);
        for round in 0..5 {
            let verdict = exporter.export(&batch(0..100, f64::from(round))).await;
            assert_eq!(verdict, delivered(0), "{format:?} {answer}");
        }
        let want: Vec<f64> = (0..5).map(f64::from).collect();
        for values in seen.taken.lock().values() {
            // What counts as taken here is what the destination answered, and it said so twice to who asked.
            let again = answer == NOTHING_FOUND && values.len() == 6;
            assert_eq!(values[usize::from(again)..], want, "{format:?} {answer}");
        }
        assert_eq!(seen.taken.lock().len(), 100);
        assert!(seen.requests.load(Ordering::SeqCst) <= 4 + 5 * 4);
        let heads = seen.heads.lock();
        for line in [
            "content-type: application/x-protobuf\r\n",
            "content-encoding: snappy\r\n",
            "x-prometheus-remote-write-version: 0.1.0\r\n",
        ] {
            assert!(heads[heads.len() - 1].contains(line));
        }
        assert!(!heads[heads.len() - 1].contains("victoriametrics"));
    }
}

/// Scenario: three endpoints, of which one reads 1.0 only and one fails for a while; five rounds of 300 series as 2.0.
/// Guarantees: each series goes to one of them, always the same, in order; each gets its share, in what it reads; what was taken is
/// not sent again because of another endpoint.
#[tokio::test]
async fn series_are_shared_out_over_endpoints() {
    const ALL_WRITTEN: &str = "204 No Content\r\nx-prometheus-remote-write-samples-written: 1000\r\n";
    let (reads_all, first) = destination_of_formats(|_, _| ALL_WRITTEN).await;
    let (reads_old, second) = destination_of_formats(|got, _| match got.format {
        Format::V1 => TAKEN,
        _ => "415 Unsupported Media Type\r\n",
    })
    .await;
    let (fails, third) = destination_of_formats(|got, _| match got.number {
        4..12 => "503 Service Unavailable\r\n",
        _ => ALL_WRITTEN,
    })
    .await;
    let mut options = RemoteWriteExporterOptions {
        endpoint: reads_all,
        shard_endpoints: vec![reads_old, fails],
        ..Default::default()
    };
    options.encoder.lanes = 2;
    options.encoder.format = Format::V2;
    let exporter = RemoteWriteExporter::new("rw", options, &Registry::default()).unwrap();
    for round in 0..5 {
        let batch = batch(0..300, f64::from(round));
        let mut verdict = exporter.export(&batch).await;
        while let Verdict::Retry { .. } = verdict {
            verdict = exporter.export(&batch).await;
        }
        assert_eq!(verdict, delivered(0));
    }
    let want: Vec<f64> = (0..5).map(f64::from).collect();
    let mut all = 0;
    for seen in [first, second, third] {
        let taken = seen.taken.lock();
        assert!((60..140).contains(&taken.len()), "{}", taken.len());
        assert!(taken.values().all(|values| *values == want));
        all += taken.len();
    }
    assert_eq!(all, 300);
}

/// Notes what it is asked to sign; or never comes to an end, as credentials that nobody gives out.
#[derive(Debug, Default)]
struct Signer {
    never: bool,
    urls: Mutex<Vec<String>>,
}

impl Sign for Signer {
    fn sign<'a>(&'a self, url: &'a str, _: &'a mut HeaderMap, _: Bytes) -> sluice_client::Signing<'a> {
        self.urls.lock().push(url.to_owned());
        Box::pin(async {
            if self.never {
                std::future::pending::<()>().await;
            }
            Ok(())
        })
    }
}

/// Scenario: whoever gives out credentials never answers.
/// Guarantees: the batch is tried again after the time-out; nobody is told to mend anything.
#[tokio::test]
async fn a_signature_that_never_comes_is_tried_again() {
    let options = RemoteWriteExporterOptions {
        endpoint: "http://127.0.0.1:9/".to_owned(),
        signer: Some(Arc::new(Signer {
            never: true,
            ..Default::default()
        })),
        timeout: Duration::from_millis(10),
        ..Default::default()
    };
    let exporter = RemoteWriteExporter::new("rw", options, &Registry::default()).unwrap();
    let batch = batch(0..10, 1.0);
    let verdict = tokio::time::timeout(Duration::from_secs(20), exporter.export(&batch)).await;
    let Ok(Verdict::Retry { after: None, reason }) = verdict else {
        panic!("{verdict:?}");
    };
    assert!(reason.contains("credentials"), "{reason}");
}

/// Scenario: an endpoint without a scheme, whose Host is configured, in capitals and with the scheme's own port; and with another.
/// Guarantees: what is signed is the host that is sent, as URLs spell it.
#[tokio::test]
async fn the_host_that_is_sent_is_signed() {
    for (host, sent) in [
        ("APS.Example:80", "aps.example"),
        ("APS.Example:8443", "aps.example:8443"),
    ] {
        let (url, seen) = destination(|_, _| TAKEN).await;
        let signer = Arc::new(Signer::default());
        let options = RemoteWriteExporterOptions {
            endpoint: format!("{}?a=B", url.trim_start_matches("http://")),
            headers: vec![("Host".to_owned(), host.to_owned())],
            signer: Some(signer.clone()),
            ..Default::default()
        };
        let exporter = RemoteWriteExporter::new("rw", options, &Registry::default()).unwrap();
        assert_eq!(exporter.export(&batch(0..10, 1.0)).await, delivered(0));
        assert!(seen.heads.lock()[0].contains(&format!("\r\nhost: {sent}\r\n")));
        assert_eq!(signer.urls.lock()[0], format!("http://{sent}/api/v1/write?a=B"));
    }
}

/// Scenario: a pool that is smaller than any body; a batch is made ready while the one before it waits for its turn.
/// Guarantees: neither waits for the other.
#[tokio::test]
async fn a_batch_made_ready_holds_up_none_before_it() {
    let (url, _) = destination(|_, _| TAKEN).await;
    let options = RemoteWriteExporterOptions {
        endpoint: url,
        egress: sluice_client::EgressPool::new(1),
        ..Default::default()
    };
    let exporter = RemoteWriteExporter::new("rw", options, &Registry::default()).unwrap();
    let (first, second) = (batch(0..1000, 1.0), batch(0..1000, 2.0));
    exporter.prepare(&second, Turn::first()).await;
    for batch in [first, second] {
        let sent = tokio::time::timeout(Duration::from_secs(20), exporter.export(&batch));
        assert_eq!(sent.await, Ok(delivered(0)));
    }
}

/// Scenario: of two endpoints one takes everything, the other answers 400 to everything (or 503 to the second of its lanes) until it
/// is mended; few series, and so many that the search comes to its limit.
/// Guarantees: what one endpoint takes licenses dropping nothing of the other: the exporter holds, and once the endpoint is mended
/// every sample has been taken once.
#[tokio::test]
async fn what_one_endpoint_takes_says_nothing_of_another() {
    for (series, lanes, other) in [
        (10, 1, REFUSED),
        (2_000, 1, REFUSED),
        (200, 2, "503 Service Unavailable\r\n"),
    ] {
        let mended = Arc::new(AtomicUsize::new(1));
        let (takes, first) = destination(|_, _| TAKEN).await;
        let is_mended = mended.clone();
        let (refuses, second) = destination(move |number, _| match is_mended.load(Ordering::SeqCst) {
            1 => TAKEN,
            _ if number == lanes + 1 => other,
            _ => REFUSED,
        })
        .await;
        let mut options = RemoteWriteExporterOptions {
            endpoint: takes,
            shard_endpoints: vec![refuses],
            ..Default::default()
        };
        options.encoder.lanes = lanes;
        let exporter = RemoteWriteExporter::new("rw", options, &Registry::default()).unwrap();
        assert_eq!(exporter.export(&batch(0..series, 0.0)).await, delivered(0));
        mended.store(0, Ordering::SeqCst);
        let batch = batch(0..series, 1.0);
        for _ in 0..3 {
            let verdict = exporter.export(&batch).await;
            assert!(matches!(verdict, Verdict::EndpointFault { .. }), "{verdict:?}");
        }
        assert_eq!(exporter.0.metrics.refused_series.get(), 0);
        mended.store(1, Ordering::SeqCst);
        assert_eq!(exporter.export(&batch).await, delivered(0));
        let (first, second) = (first.taken.lock(), second.taken.lock());
        assert!(!first.is_empty() && !second.is_empty());
        assert_eq!(first.len() + second.len(), series);
        assert!(
            first
                .values()
                .chain(second.values())
                .all(|values| *values == [0.0, 1.0])
        );
    }
}

/// Scenario: VictoriaMetrics takes zstd, and then a series it does not like comes.
/// Guarantees: its headers; a 400 is about the series now, which is found, and zstd goes on.
#[tokio::test]
async fn zstd_that_was_taken_stays() {
    let (url, seen) = destination_of_formats(|got, samples| {
        assert!(got.head.contains("x-victoriametrics-remote-write-version: 1\r\n"));
        assert!(!got.head.contains("x-prometheus-remote-write-version"));
        match samples.iter().any(|(series, _)| series == "77") {
            true => REFUSED,
            false => TAKEN,
        }
    })
    .await;
    let exporter = exporter_of(&url, 1, Format::V1Zstd);
    assert_eq!(exporter.export(&batch(0..50, 1.0)).await, delivered(0));
    assert_eq!(in_part(exporter.export(&batch(50..100, 1.0)).await), delivered(1));
    assert_eq!(seen.taken.lock().len(), 99);
}

/// Sends `rounds` batches of 10,000 series, each made ready while the one before it is under way, through 16 lanes to a destination that fails in all ways at once: one request in
/// five is answered with 503, one in a hundred never; more than 400 series are too many; one series is refused.
async fn faults_of_all_kinds(format: Format, rounds: u32) {
    const SERIES: usize = 10_000;
    let (url, seen) = destination_of_formats(move |got, samples| {
        let chance = got.number * 7919 % 100;
        match samples {
            _ if chance < 20 => "503 Service Unavailable\r\n",
            _ if chance == 20 && got.number < 300 => "",
            samples if samples.len() > 400 => "413 Content Too Large\r\n",
            samples if samples.iter().any(|(series, _)| series == "4711") => REFUSED,
            _ if got.format == Format::V2 => {
                "204 No Content\r\nx-prometheus-remote-write-samples-written: 10000\r\n"
            }
            _ => TAKEN,
        }
    })
    .await;
    let exporter = exporter_of(&url, 16, format);
    let mut next = batch(0..SERIES, 0.0);
    for round in 0..rounds {
        let now = std::mem::replace(&mut next, batch(0..SERIES, f64::from(round + 1)));
        // As the pipeline does: once for each batch, in the middle of what goes wrong with the one before it.
        let (mut verdict, ()) = tokio::join!(exporter.export(&now), exporter.prepare(&next, Turn::first()));
        // The very first request may be one that is refused: then it is held.
        while let Verdict::Retry { .. } | Verdict::EndpointFault { .. } = verdict {
            verdict = exporter.export(&now).await;
        }
        assert_eq!(in_part(verdict), delivered(1));
    }
    let want: Vec<f64> = (0..rounds).map(f64::from).collect();
    let taken = seen.taken.lock();
    assert_eq!(taken.len(), SERIES - 1);
    for (series, values) in taken.iter() {
        assert_eq!(*values, want, "{series}");
    }
}

/// Scenario: 200,000 samples in each format, 16 lanes; 503, 413, 400 and requests that are never answered, mixed.
/// Guarantees: every sample of every series but the refused one is taken exactly once, in order, though the next batch is made
/// ready between the attempts of the one before it.
#[tokio::test]
async fn order_holds_through_faults_of_all_kinds() {
    for format in [Format::V1, Format::V2] {
        faults_of_all_kinds(format, 10).await;
    }
}

/// Scenario: the same with 10^7 samples in each format. Takes minutes:
/// `cargo test --release -p sluice-remote-write -- --ignored ten_million`.
/// Guarantees: the same.
#[tokio::test]
#[ignore = "minutes"]
async fn ten_million_samples_through_faults() {
    for format in [Format::V1, Format::V2] {
        faults_of_all_kinds(format, 1000).await;
    }
}

/// Scenario: 16 lanes with a body each, to a destination that nobody knows yet; it never answers the first request.
/// Guarantees: nothing else is sent to it before that has timed out; then all lanes go on.
#[tokio::test]
async fn a_destination_that_is_new_gets_one_request_at_first() {
    const TIMEOUT: Duration = Duration::from_secs(2); // None of the others takes as long on a busy machine.
    let times = Arc::new(Mutex::new(Vec::new()));
    let told = times.clone();
    let (url, seen) = destination(move |number, _| {
        told.lock().push(std::time::Instant::now());
        if number == 0 { "" } else { TAKEN }
    })
    .await;
    let mut options = RemoteWriteExporterOptions {
        endpoint: url,
        timeout: TIMEOUT,
        ..Default::default()
    };
    options.encoder.lanes = 16;
    let registry = Registry::default();
    let exporter = RemoteWriteExporter::new("rw", options, &registry).unwrap();
    let limit = || {
        let page = registry.render();
        let line = page
            .lines()
            .find(|line| line.starts_with("sluice_remote_write_concurrency_limit{"));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        value.unwrap()
    };
    let first = batch(0..400, 0.0);
    assert!(matches!(exporter.export(&first).await, Verdict::Retry { .. }));
    assert_eq!(exporter.export(&first).await, delivered(0));
    {
        let times = times.lock();
        assert_eq!(times.len(), 17);
        assert!(times[1] - times[0] >= TIMEOUT / 2);
    }
    let after_one = limit();
    assert!(after_one < 16.0, "{after_one}");
    for round in 1..20 {
        let batch = batch(0..400, f64::from(round));
        assert_eq!(exporter.export(&batch).await, delivered(0));
    }
    let want: Vec<f64> = (0..20).map(f64::from).collect();
    let taken = seen.taken.lock();
    assert!(taken.len() == 400 && taken.values().all(|values| *values == want));
}

/// What came of these series, a counter, since the second before.
fn deltas(series: std::ops::Range<usize>, second: u64, delta: f64) -> Batch {
    let mut batch = batch(series, delta);
    for part in &mut batch.parts {
        let mut request = ExportMetricsServiceRequest::decode(&part.body[..]).unwrap();
        let metric = &mut request.resource_metrics[0].scope_metrics[0].metrics[0];
        let Some(metric::Data::Gauge(Gauge { mut data_points })) = metric.data.take() else {
            unreachable!()
        };
        for point in &mut data_points {
            point.time_unix_nano = second * 1_000_000_000;
        }
        metric.data = Some(metric::Data::Sum(Sum {
            data_points,
            aggregation_temporality: 1,
            is_monotonic: true,
        }));
        part.body = Bytes::from(request.encode_to_vec());
    }
    batch
}

/// Scenario: a destination refuses all series of a batch of deltas until it is mended; the pipeline sends the payloads of that batch one by one, after
/// the next batch was made ready.
/// Guarantees: each series has its running totals, each once and in order; nothing is dropped.
#[tokio::test]
async fn deltas_of_a_batch_that_is_cut_are_added_once() {
    let mended = Arc::new(AtomicUsize::new(1));
    let is_mended = mended.clone();
    let (url, seen) = destination(move |_, _| match is_mended.load(Ordering::SeqCst) {
        1 => TAKEN,
        _ => REFUSED,
    })
    .await;
    let mut options = RemoteWriteExporterOptions {
        endpoint: url,
        ..Default::default()
    };
    options.encoder.mapping.delta_to_cumulative = true;
    let exporter = RemoteWriteExporter::new("rw", options, &Registry::default()).unwrap();
    has_taken(&exporter).await;
    mended.store(0, Ordering::SeqCst);
    seen.taken.lock().clear();
    let payloads = [deltas(0..50, 1, 1.0), deltas(0..50, 2, 2.0)];
    let next = deltas(0..50, 3, 4.0);
    let mut both = payloads[0].clone();
    both.parts.extend(payloads[1].parts.clone());
    let (verdict, ()) = tokio::join!(exporter.export(&both), exporter.prepare(&next, Turn::first()));
    assert!(matches!(verdict, Verdict::PayloadFault { .. }), "{verdict:?}");
    mended.store(1, Ordering::SeqCst);
    for batch in payloads.iter().chain([&next]) {
        assert_eq!(exporter.export(batch).await, delivered(0));
    }
    let taken = seen.taken.lock();
    assert_eq!(taken.len(), 50);
    assert!(
        taken.values().all(|values| *values == [1.0, 3.0, 7.0]),
        "{taken:?}"
    );
}
