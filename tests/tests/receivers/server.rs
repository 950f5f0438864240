//! S1-S7: both transports.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;
use sluice_tests::{
    Answer, Config, Gateway, Kind, Sink, code, frame, grpc_call, gzipped, lz4, post, sample, snappy_block,
    snappy_framed, zlib, zstd,
};

use crate::{JSON, PROTOBUF, assert_refused, pair};

/// Scenario: the same kinds of requests, plain and in every content encoding of HTTP.
/// Guarantees: each is answered 200 and arrives once, unchanged.
#[tokio::test(flavor = "multi_thread")]
async fn s1_every_http_encoding_is_read() {
    type Compress = fn(&[u8]) -> Vec<u8>;
    let encodings: [(&str, Compress); 9] = [
        ("", |data| data.to_vec()),
        ("identity", |data| data.to_vec()),
        ("gzip", gzipped),
        ("GZIP", gzipped),
        ("zstd", zstd),
        ("deflate", zlib),
        ("snappy", snappy_block),
        ("snappy", snappy_framed),
        ("lz4", lz4),
    ];
    let (sink, gateway) = pair().await;
    let mut sent = Vec::new();
    for (seed, (encoding, compress)) in encodings.iter().enumerate() {
        let body = sample(Kind::Logs, seed as u64);
        let headers = [PROTOBUF, ("content-encoding", *encoding)];
        let headers = if encoding.is_empty() {
            &headers[..1]
        } else {
            &headers[..]
        };
        let reply = post(gateway.http(), "/v1/logs", headers, compress(&body)).await;
        assert_eq!(reply.status, 200, "{encoding}: {reply:?}");
        sent.push(body);
    }
    sink.wait_for_same(Kind::Logs, &sent).await;
    gateway.stop().await;
}

/// Scenario: calls in every message encoding of gRPC, and one that is not compressed although an
/// encoding is declared.
/// Guarantees: each succeeds and arrives once, unchanged.
#[tokio::test(flavor = "multi_thread")]
async fn s1_every_grpc_encoding_is_read() {
    type Compress = fn(&[u8]) -> Vec<u8>;
    let encodings: [(&str, u8, Compress); 7] = [
        ("", 0, |data| data.to_vec()),
        ("identity", 0, |data| data.to_vec()),
        ("gzip", 1, gzipped),
        ("gzip", 0, |data| data.to_vec()),
        ("zstd", 1, zstd),
        ("snappy", 1, snappy_framed),
        ("deflate", 1, zlib),
    ];
    let (sink, gateway) = pair().await;
    let mut sent = Vec::new();
    for (seed, (encoding, flag, compress)) in encodings.iter().enumerate() {
        let body = sample(Kind::Traces, seed as u64);
        let call = frame(*flag, &compress(&body));
        let reply = grpc_call(
            gateway.grpc(),
            Kind::Traces.grpc_path(),
            &[("grpc-encoding", encoding)],
            call,
        )
        .await;
        assert_eq!(reply.code(), code::OK, "{encoding}: {reply:?}");
        sent.push(body);
    }
    sink.wait_for_same(Kind::Traces, &sent).await;
    gateway.stop().await;
}

/// Scenario: gzip members and zstd frames laid end to end in one body.
/// Guarantees: all of them are read, as RFC 1952 and RFC 8878 say.
#[tokio::test(flavor = "multi_thread")]
async fn s1_concatenated_members_are_all_read() {
    let (sink, gateway) = pair().await;
    let bodies: Vec<_> = (0..6).map(|seed| sample(Kind::Metrics, seed)).collect();
    for (encoding, compress, part) in [
        ("gzip", gzipped as fn(&[u8]) -> Vec<u8>, &bodies[..3]),
        ("zstd", zstd, &bodies[3..]),
    ] {
        let body = part.iter().flat_map(|body| compress(body)).collect::<Vec<_>>();
        let reply = post(
            gateway.http(),
            "/v1/metrics",
            &[PROTOBUF, ("content-encoding", encoding)],
            body,
        )
        .await;
        assert_eq!(reply.status, 200, "{encoding}: {reply:?}");
    }
    sink.wait_for_same(Kind::Metrics, &bodies).await;
    gateway.stop().await;
}

const LIMIT: usize = 1 << 20;

/// A request of about `size` bytes: one log record with a long body, highly compressible.
fn large(size: usize) -> Vec<u8> {
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value::Value};
    use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
    let body = Some(AnyValue {
        value: Some(Value::StringValue("x".repeat(size))),
    });
    let scope_logs = vec![ScopeLogs {
        log_records: vec![LogRecord {
            body,
            ..Default::default()
        }],
        ..Default::default()
    }];
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            scope_logs,
            ..Default::default()
        }],
    }
    .encode_to_vec()
}

async fn limited() -> (Sink, Gateway) {
    let sink = Sink::start().await;
    let config = Config::to(&sink)
        .http(&format!("max_request_body_size: {LIMIT}"))
        .grpc(&format!("max_recv_msg_size_mib: {}", LIMIT >> 20));
    let gateway = Gateway::start(&config).await;
    (sink, gateway)
}

/// Scenario: with limits of 1 MiB, bodies just below and just above it, plain, on both transports.
/// Guarantees: below is taken; above is 413 and RESOURCE_EXHAUSTED without RetryInfo (H4, G2); the
/// server goes on serving.
#[tokio::test(flavor = "multi_thread")]
async fn s2_limit_before_inflation() {
    let (sink, gateway) = limited().await;
    let (below, above) = (large(LIMIT - 100), large(LIMIT + 1));
    for media in [PROTOBUF, JSON] {
        let reply = post(gateway.http(), "/v1/logs", &[media], above.clone()).await;
        assert_refused(&reply, 413, 8, media.1);
        assert_eq!(reply.header("retry-after"), None);
    }
    let path = Kind::Logs.grpc_path();
    let reply = grpc_call(gateway.grpc(), path, &[], frame(0, &above)).await;
    assert_eq!(
        (reply.code(), reply.retry_delay()),
        (code::RESOURCE_EXHAUSTED, None),
        "{reply:?}"
    );

    assert_eq!(
        post(gateway.http(), "/v1/logs", &[PROTOBUF], below.clone())
            .await
            .status,
        200
    );
    assert_eq!(
        grpc_call(gateway.grpc(), path, &[], frame(0, &below))
            .await
            .code(),
        code::OK
    );
    sink.wait_for_same(Kind::Logs, &[below.clone(), below]).await;
    gateway.stop().await;
}

/// Scenario: bombs: bodies of a few KiB that inflate to just above the limit, and to 100 times it, in
/// every encoding, on both transports; then bodies that inflate to just below.
/// Guarantees: 413 and RESOURCE_EXHAUSTED without RetryInfo; the honest ones are taken.
#[tokio::test(flavor = "multi_thread")]
async fn s2_limit_after_inflation() {
    type Compress = fn(&[u8]) -> Vec<u8>;
    let http: [(&str, Compress); 6] = [
        ("gzip", gzipped),
        ("zstd", zstd),
        ("deflate", zlib),
        ("snappy", snappy_block),
        ("snappy", snappy_framed),
        ("lz4", lz4),
    ];
    let grpc: [(&str, Compress); 4] = [
        ("gzip", gzipped),
        ("zstd", zstd),
        ("snappy", snappy_framed),
        ("deflate", zlib),
    ];
    let (sink, gateway) = limited().await;
    let path = Kind::Logs.grpc_path();
    for size in [LIMIT + 1, 16 * LIMIT] {
        let bomb = large(size);
        for (encoding, compress) in http {
            let headers = [PROTOBUF, ("content-encoding", encoding)];
            let reply = post(gateway.http(), "/v1/logs", &headers, compress(&bomb)).await;
            assert_refused(&reply, 413, 8, PROTOBUF.1);
        }
        for (encoding, compress) in grpc {
            let call = frame(1, &compress(&bomb));
            let reply = grpc_call(gateway.grpc(), path, &[("grpc-encoding", encoding)], call).await;
            assert_eq!(
                (reply.code(), reply.retry_delay()),
                (code::RESOURCE_EXHAUSTED, None),
                "{encoding} {reply:?}"
            );
        }
    }
    let below = large(LIMIT - 100);
    let mut sent = Vec::new();
    for (encoding, compress) in http {
        let reply = post(
            gateway.http(),
            "/v1/logs",
            &[PROTOBUF, ("content-encoding", encoding)],
            compress(&below),
        )
        .await;
        assert_eq!(reply.status, 200, "{encoding} {reply:?}");
        sent.push(below.clone());
    }
    sink.wait_for_same(Kind::Logs, &sent).await;
    gateway.stop().await;
}

/// Scenario: a zstd body of a few MiB that declares no content size, with members that add up to more
/// than the limit; a gzip bomb of many small members whose last one claims 0 bytes.
/// Guarantees: what a body says about itself does not get it past the limit.
#[tokio::test(flavor = "multi_thread")]
async fn s2_a_body_that_lies_about_its_size_is_limited() {
    let (_sink, gateway) = limited().await;
    let half = large(LIMIT / 2 + 1000);
    let unsized_zstd = ::zstd::stream::encode_all(&half[..], 3).unwrap();
    for (encoding, body) in [
        ("gzip", [gzipped(&half), gzipped(&half), gzipped(b"")].concat()),
        ("zstd", [zstd(&half), zstd(&half)].concat()),
        ("zstd", [unsized_zstd.clone(), unsized_zstd].concat()),
    ] {
        let reply = post(
            gateway.http(),
            "/v1/logs",
            &[PROTOBUF, ("content-encoding", encoding)],
            body,
        )
        .await;
        assert_refused(&reply, 413, 8, PROTOBUF.1);
    }
    gateway.stop().await;
}

/// Scenario: default limits; a body that inflates to 60 MiB, and one that announces 64 MiB and a byte.
/// Guarantees: the recommended limit of 64 MiB is the default.
#[tokio::test(flavor = "multi_thread")]
async fn s2_default_limit_is_64_mib() {
    let (sink, gateway) = pair().await;
    let body = large(60 << 20);
    let reply = post(
        gateway.http(),
        "/v1/logs",
        &[PROTOBUF, ("content-encoding", "zstd")],
        zstd(&body),
    )
    .await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let mut raw = sluice_tests::RawHttp::connect(gateway.http()).await;
    let head = format!(
        "POST /v1/logs HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length: {}\r\n\r\n",
        (64 << 20) + 1
    );
    assert!(raw.write(head).await);
    assert_eq!(raw.reply().await.unwrap().status, 413);
    sink.until("60 MiB arrive", |sink| {
        (sink.taken().first()?.body.len() == body.len()).then_some(())
    })
    .await;
    gateway.stop().await;
}

/// Scenario: requests to which there is a lot to say: a path and a content type of 8 KiB.
/// Guarantees: no answer comes near the 4 MiB that clients read.
#[tokio::test(flavor = "multi_thread")]
async fn s3_answers_are_small() {
    let (_sink, gateway) = pair().await;
    let long = "x".repeat(8 << 10);
    let replies = [
        post(gateway.http(), &format!("/{long}"), &[PROTOBUF], "").await,
        post(gateway.http(), "/v1/logs", &[("content-type", &long)], "").await,
        post(
            gateway.http(),
            "/v1/logs",
            &[PROTOBUF, ("content-encoding", &long)],
            "",
        )
        .await,
    ];
    for reply in replies {
        assert!(
            (400..500).contains(&reply.status) && reply.body.len() < 64 << 10,
            "{}",
            reply.body.len()
        );
    }
    let reply = grpc_call(gateway.grpc(), &format!("/{long}"), &[], frame(0, &[])).await;
    assert_eq!(reply.code(), code::UNIMPLEMENTED);
    gateway.stop().await;
}

/// Scenario: requests without anything in them, and with envelopes that hold no items, on both
/// transports, protobuf and JSON, plain and compressed.
/// Guarantees: they succeed, and nothing is sent on for them (C9).
#[tokio::test(flavor = "multi_thread")]
async fn s4_empty_requests_succeed() {
    let (sink, gateway) = pair().await;
    let envelopes = ExportTraceServiceRequest {
        resource_spans: vec![Default::default(); 2],
    }
    .encode_to_vec();
    for kind in Kind::ALL {
        let (path, grpc) = (kind.http_path(), kind.grpc_path());
        for (body, encoding) in [
            (vec![], "identity"),
            (gzipped(b""), "gzip"),
            (zstd(b""), "zstd"),
            (vec![], "gzip"),
        ] {
            let reply = post(
                gateway.http(),
                path,
                &[PROTOBUF, ("content-encoding", encoding)],
                body,
            )
            .await;
            assert_eq!(
                (reply.status, reply.body.len()),
                (200, 0),
                "{kind:?} {encoding} {reply:?}"
            );
        }
        let reply = post(gateway.http(), path, &[JSON], "{}").await;
        assert_eq!((reply.status, reply.text()), (200, "{}"), "{kind:?} {reply:?}");
        for (flag, message) in [(0, vec![]), (1, gzipped(b"")), (0, envelopes.clone())] {
            let reply = grpc_call(
                gateway.grpc(),
                grpc,
                &[("grpc-encoding", "gzip")],
                frame(flag, &message),
            )
            .await;
            assert_eq!(reply.code(), code::OK, "{kind:?} {reply:?}");
        }
    }
    let marker = sample(Kind::Traces, 1);
    assert_eq!(
        post(gateway.http(), "/v1/traces", &[PROTOBUF], marker.clone())
            .await
            .status,
        200
    );
    sink.wait_for_same(Kind::Traces, &[marker]).await;
    assert_eq!(sink.taken().len(), 1, "an empty request was sent on");
    gateway.stop().await;
}

/// Scenario: good requests of every signal on both transports and in both encodings.
/// Guarantees: the answer's `partial_success` is not set: nothing in protobuf, `{}` in JSON.
#[tokio::test(flavor = "multi_thread")]
async fn s5_full_success_leaves_partial_success_unset() {
    let (sink, gateway) = pair().await;
    for (seed, kind) in Kind::ALL.into_iter().enumerate() {
        let body = sample(kind, seed as u64);
        let reply = post(gateway.http(), kind.http_path(), &[PROTOBUF], body.clone()).await;
        assert_eq!((reply.status, reply.body.len()), (200, 0), "{reply:?}");
        assert_eq!(reply.header("content-type"), Some(PROTOBUF.1));
        let reply = grpc_call(gateway.grpc(), kind.grpc_path(), &[], frame(0, &body)).await;
        assert_eq!((reply.code(), reply.only_message().len()), (code::OK, 0));
        sink.until("both arrive", |sink| {
            (sink.taken().iter().filter(|arrived| arrived.kind == kind).count() >= 2).then_some(())
        })
        .await;
    }
    gateway.stop().await;
}

/// Scenario: a queue that waits for the result; the destination takes a request but for three items;
/// then one with a warning and nothing rejected; then everything.
/// Guarantees: the sender is told the exact number and a message on both transports and in both
/// encodings; the ledger counts them as dropped by partial success.
#[tokio::test(flavor = "multi_thread")]
async fn s6_partial_success_is_passed_on() {
    let sink = Sink::start().await;
    let queue = "sending_queue: {wait_for_result: true, batch: {flush_timeout: 5ms, min_size: 1}}";
    let gateway = Gateway::start(&Config::new().http_exporter("sink", &sink, queue)).await;
    sink.answer(|_| Answer::Partial(3, "three points were out of order"));
    #[derive(Clone, PartialEq, prost::Message)]
    struct Response {
        #[prost(message, optional, tag = "1")]
        partial_success: Option<Partial>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct Partial {
        #[prost(int64, tag = "1")]
        rejected: i64,
        #[prost(string, tag = "2")]
        error_message: String,
    }
    let check = |message: &[u8]| {
        let partial = Response::decode(message)
            .unwrap()
            .partial_success
            .expect("partial_success is set");
        assert_eq!(partial.rejected, 3);
        assert!(!partial.error_message.is_empty());
    };
    let body = sample(Kind::Metrics, 1);
    let reply = post(gateway.http(), "/v1/metrics", &[PROTOBUF], body.clone()).await;
    assert_eq!(reply.status, 200);
    check(&reply.body);
    let reply = grpc_call(gateway.grpc(), Kind::Metrics.grpc_path(), &[], frame(0, &body)).await;
    assert_eq!(reply.code(), code::OK);
    check(&reply.only_message());
    for (kind, json, key) in [
        (Kind::Metrics, METRIC, "rejectedDataPoints"),
        (Kind::Logs, LOG, "rejectedLogRecords"),
        (Kind::Traces, SPAN, "rejectedSpans"),
    ] {
        sink.answer(|_| Answer::Partial(1, "too old"));
        let reply = post(gateway.http(), kind.http_path(), &[JSON], json).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let partial = &reply.json()["partialSuccess"];
        assert_eq!(partial[key], "1", "{reply:?}");
        assert!(
            partial["errorMessage"]
                .as_str()
                .is_some_and(|message| !message.is_empty()),
            "{reply:?}"
        );
    }
    sink.answer(|_| Answer::Partial(0, "this endpoint is going away"));
    let reply = post(gateway.http(), "/v1/metrics", &[PROTOBUF], body.clone()).await;
    assert_eq!(reply.status, 200);
    sink.answer(|_| Answer::Take);
    let reply = post(gateway.http(), "/v1/metrics", &[PROTOBUF], body).await;
    assert_eq!((reply.status, reply.body.len()), (200, 0));
    gateway.settled().await;
    let account = gateway.account("otlphttp/sink").await;
    assert_eq!(account.dropped.get("partial_success"), Some(&9), "{account:?}");
    gateway.stop().await;
}

const METRIC: &str = r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"m","gauge":{"dataPoints":[{"asInt":"1"}]}}]}]}]}"#;
const LOG: &str = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"x"}}]}]}]}"#;
const SPAN: &str = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"s","traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174"}]}]}]}"#;

/// Fields that no schema knows, of every wire type, to be put behind any message.
fn unknown_fields() -> Vec<u8> {
    // Field 2000 as varint, fixed64, length-delimited, fixed32; field 2001 as a group that holds a varint.
    let mut out = vec![0x80, 0x7d, 0x96, 0x01];
    out.extend([0x81, 0x7d, 1, 2, 3, 4, 5, 6, 7, 8]);
    out.extend([0x82, 0x7d, 3, 0xff, 0x00, 0x80]);
    out.extend([0x85, 0x7d, 9, 8, 7, 6]);
    out.extend([0x8b, 0x7d, 0x08, 0x01, 0x8c, 0x7d]);
    out
}

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    prost::encoding::encode_varint(content.len() as u64, &mut out);
    out.extend_from_slice(content);
    out
}

/// Scenario: requests with unknown fields of every wire type in the request, the resource, the scope, the
/// item and an attribute, on both transports and through both exporters.
/// Guarantees: they are accepted, and arrive at the destination byte for byte.
#[tokio::test(flavor = "multi_thread")]
async fn s7_unknown_fields_survive() {
    let unknown = unknown_fields();
    let with = |parts: &[Vec<u8>]| [parts.concat(), unknown.clone()].concat();
    let any = with(&[field(1, b"value")]);
    let attribute = with(&[field(1, b"key"), field(2, &any)]);
    let span = with(&[
        field(1, &[7; 16]),
        field(2, &[8; 8]),
        field(5, b"span"),
        field(9, &attribute),
    ]);
    let scope = with(&[field(1, b"scope")]);
    let scope_spans = with(&[field(1, &scope), field(2, &span)]);
    let resource = with(&[field(1, &attribute)]);
    let resource_spans = with(&[field(1, &resource), field(2, &scope_spans)]);
    let request = with(&[field(1, &resource_spans)]);

    let sinks = [Sink::start().await, Sink::start().await];
    let config = Config::new()
        .http_exporter("one", &sinks[0], "")
        .grpc_exporter("two", &sinks[1], "");
    let gateway = Gateway::start(&config).await;
    assert_eq!(
        post(gateway.http(), "/v1/traces", &[PROTOBUF], request.clone())
            .await
            .status,
        200
    );
    for sink in &sinks {
        let arrived = sink.until("it arrives", |sink| sink.taken().pop()).await;
        assert_eq!(arrived.body, request);
        sink.clear();
    }
    let reply = grpc_call(gateway.grpc(), Kind::Traces.grpc_path(), &[], frame(0, &request)).await;
    assert_eq!(reply.code(), code::OK);
    for sink in &sinks {
        assert_eq!(
            sink.until("it arrives", |sink| sink.taken().pop()).await.body,
            request
        );
    }
    gateway.stop().await;
}

/// Scenario: profiles on both transports, in protobuf and JSON.
/// Guarantees: they reach destinations of both kinds byte for byte.
#[tokio::test(flavor = "multi_thread")]
async fn profiles_are_forwarded_opaquely() {
    let sinks = [Sink::start().await, Sink::start().await];
    let config = Config::new()
        .http_exporter("one", &sinks[0], "")
        .grpc_exporter("two", &sinks[1], "");
    let gateway = Gateway::start(&config).await;
    let bodies = [sample(Kind::Profiles, 1), sample(Kind::Profiles, 2)];
    let reply = post(
        gateway.http(),
        Kind::Profiles.http_path(),
        &[PROTOBUF],
        bodies[0].clone(),
    )
    .await;
    assert_eq!(reply.status, 200, "{reply:?}");
    for sink in &sinks {
        sink.until("the first arrives", |sink| {
            (sink.taken().len() == 1).then_some(())
        })
        .await;
    }
    let reply = grpc_call(
        gateway.grpc(),
        Kind::Profiles.grpc_path(),
        &[],
        frame(0, &bodies[1]),
    )
    .await;
    assert_eq!(reply.code(), code::OK, "{reply:?}");
    for sink in &sinks {
        let arrived = sink
            .until("both arrive", |sink| {
                Some(sink.taken()).filter(|taken| taken.len() == 2)
            })
            .await;
        for (arrived, sent) in arrived.iter().zip(&bodies) {
            assert_eq!((arrived.kind, &arrived.body[..]), (Kind::Profiles, &sent[..]));
        }
    }
    let json = r#"{"resourceProfiles":[{"scopeProfiles":[{"profiles":[{"profileId":"AAECAwQFBgcICQoLDA0ODw=="}]}]}]}"#;
    assert_eq!(
        post(gateway.http(), Kind::Profiles.http_path(), &[JSON], json)
            .await
            .status,
        200
    );
    for sink in &sinks {
        sink.until("the third arrives", |sink| {
            (sink.taken().len() == 3).then_some(())
        })
        .await;
    }
    gateway.stop().await;
}
