//! G1-G6: OTLP/gRPC.

use bytes::Bytes;
use sluice_tests::{GrpcConnection, Kind, code, frame, grpc_call, gzipped, sample};

use crate::pair;

/// Scenario: a call of every service, and calls of unknown methods, services and paths.
/// Guarantees: the four are served; the others are UNIMPLEMENTED in a gRPC answer, not in an HTTP error.
#[tokio::test(flavor = "multi_thread")]
async fn g1_every_service_and_no_other() {
    let (sink, gateway) = pair().await;
    let mut connection = GrpcConnection::open(gateway.grpc()).await.unwrap();
    for (seed, kind) in Kind::ALL.into_iter().enumerate() {
        let body = sample(kind, seed as u64);
        let reply = connection
            .call(kind.grpc_path(), &[], frame(0, &body))
            .await
            .unwrap();
        assert_eq!((reply.http_status, reply.code()), (200, code::OK), "{reply:?}");
        assert_eq!(reply.headers["content-type"], "application/grpc");
        sink.wait_for_same(kind, &[body]).await;
    }
    for path in [
        "/opentelemetry.proto.collector.trace.v1.TraceService/Import",
        "/opentelemetry.proto.collector.trace.v1.TraceService/export",
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export/",
        "/opentelemetry.proto.collector.trace.v2.TraceService/Export",
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export?x=1",
        "/TraceService/Export",
        "/nothing",
        "/",
    ] {
        let reply = connection.call(path, &[], frame(0, &[])).await.unwrap();
        assert_eq!(
            (reply.http_status, reply.code()),
            (200, code::UNIMPLEMENTED),
            "{path}: {reply:?}"
        );
        assert_eq!(reply.headers["content-type"], "application/grpc");
        assert!(!reply.message().is_empty());
    }
    gateway.stop().await;
}

/// Scenario: a message whose frame announces more than the limit (64 MiB by default), without the
/// message ever being sent.
/// Guarantees: RESOURCE_EXHAUSTED at once, without RetryInfo: clients must not retry it.
#[tokio::test(flavor = "multi_thread")]
async fn g2_oversize_is_not_retryable() {
    let (_sink, gateway) = pair().await;
    let mut announced = vec![0];
    announced.extend(((64u32 << 20) + 1).to_be_bytes());
    let mut connection = GrpcConnection::open(gateway.grpc()).await.unwrap();
    let head = connection.head(Kind::Logs.grpc_path(), &[]);
    let mut sender = connection.sender().ready().await.unwrap();
    let (response, mut body) = sender.send_request(head, false).unwrap();
    body.send_data(announced.into(), false).unwrap();
    let response = sluice_tests::within("an answer", response).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "8");
    assert!(!response.headers().contains_key("grpc-status-details-bin"));
    // The connection is as good as before.
    assert_eq!(
        connection
            .call(Kind::Logs.grpc_path(), &[], frame(0, &[]))
            .await
            .unwrap()
            .code(),
        code::OK
    );
    gateway.stop().await;
}

/// Scenario: messages that are not OTLP: noise, a request of another signal, a length beyond the end, a
/// trace id of three bytes, a name that is not UTF-8.
/// Guarantees: INVALID_ARGUMENT without RetryInfo, with a message that says where.
#[tokio::test(flavor = "multi_thread")]
async fn g3_bad_data_is_invalid_argument() {
    let (sink, gateway) = pair().await;
    let field = |number: u8, content: &[u8]| [&[number << 3 | 2, content.len() as u8], content].concat();
    let in_request = |span: &[u8]| field(1, &field(2, &field(2, span)));
    for (what, body, says) in [
        ("noise", b"this is not protobuf".to_vec(), ""),
        ("a length beyond the end", vec![0x0a, 0x7f, 1], "byte"),
        ("an endless varint", vec![0xff; 20], ""),
        ("field number 0", vec![0x00, 0x00], ""),
        ("a short trace id", in_request(&field(1, &[1, 2, 3])), "trace_id"),
        ("a long span id", in_request(&field(2, &[1; 9])), "span_id"),
        (
            "a name that is not UTF-8",
            in_request(&field(5, &[0xff, 0xfe])),
            "name",
        ),
        ("a wire type that does not exist", vec![0x0f], ""),
        ("a group that does not end", vec![0x0b], ""),
    ] {
        let reply = grpc_call(gateway.grpc(), Kind::Traces.grpc_path(), &[], frame(0, &body)).await;
        assert_eq!(
            (reply.code(), reply.retry_delay()),
            (code::INVALID_ARGUMENT, None),
            "{what}: {reply:?}"
        );
        assert!(reply.message().contains(says), "{what}: {reply:?}");
    }
    assert!(sink.taken().is_empty());
    gateway.stop().await;
}

/// Scenario: encodings nobody here reads.
/// Guarantees: UNIMPLEMENTED with `grpc-accept-encoding` naming those that are (compression.md).
#[tokio::test(flavor = "multi_thread")]
async fn g5_unknown_encoding_is_unimplemented() {
    let (_sink, gateway) = pair().await;
    for encoding in ["br", "lzma", "gzip, zstd", "x"] {
        let call = frame(1, b"whatever");
        let reply = grpc_call(
            gateway.grpc(),
            Kind::Logs.grpc_path(),
            &[("grpc-encoding", encoding)],
            call,
        )
        .await;
        assert_eq!(reply.code(), code::UNIMPLEMENTED, "{encoding}: {reply:?}");
        let accepted = reply
            .trailer("grpc-accept-encoding")
            .expect("grpc-accept-encoding");
        let accepted: Vec<_> = accepted.split(',').map(str::trim).collect();
        assert!(
            accepted.contains(&"gzip") && accepted.contains(&"zstd"),
            "{accepted:?}"
        );
    }
    gateway.stop().await;
}

/// Scenario: content types that are gRPC, and some that are not.
/// Guarantees: the former are served, the latter get 415 in HTTP, as gRPC over HTTP/2 says.
#[tokio::test(flavor = "multi_thread")]
async fn g1_content_types() {
    let (_sink, gateway) = pair().await;
    for content_type in [
        "application/grpc",
        "application/grpc+proto",
        "application/grpc;charset=utf-8",
    ] {
        let headers = [("content-type", content_type)];
        let reply = grpc_call(gateway.grpc(), Kind::Logs.grpc_path(), &headers, frame(0, &[])).await;
        assert_eq!(
            (reply.http_status, reply.code()),
            (200, code::OK),
            "{content_type}: {reply:?}"
        );
    }
    for content_type in ["application/grpcx", "application/x-protobuf", "text/plain", ""] {
        let headers = [("content-type", content_type)];
        let reply = grpc_call(gateway.grpc(), Kind::Logs.grpc_path(), &headers, frame(0, &[])).await;
        assert_eq!(reply.http_status, 415, "{content_type}: {reply:?}");
    }
    gateway.stop().await;
}

/// Scenario: 50 calls at once on one connection, half of them compressed, with metadata of all sorts.
/// Guarantees: all are answered OK, everything arrives once.
#[tokio::test(flavor = "multi_thread")]
async fn g1_concurrent_calls_on_one_connection() {
    let (sink, gateway) = pair().await;
    let connection = GrpcConnection::open(gateway.grpc()).await.unwrap();
    let bodies: Vec<_> = (0..50).map(|seed| sample(Kind::Traces, seed)).collect();
    let calls = bodies.iter().enumerate().map(|(index, body)| {
        let (call, encoding): (Bytes, _) = match index % 2 {
            0 => (frame(0, body), "identity"),
            _ => (frame(1, &gzipped(body)), "gzip"),
        };
        let head = connection.head(
            Kind::Traces.grpc_path(),
            &[
                ("grpc-encoding", encoding),
                ("grpc-timeout", "30S"),
                ("x-tenant", "a"),
                ("x-bin", "AAEC"),
            ],
        );
        let sender = connection.sender();
        tokio::spawn(async move {
            let mut sender = sender.ready().await.unwrap();
            let (response, mut body) = sender.send_request(head, false).unwrap();
            body.send_data(call, true).unwrap();
            let mut body = response.await.unwrap().into_body();
            while body.data().await.is_some() {}
            body.trailers().await.unwrap().unwrap()["grpc-status"].clone()
        })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap(), "0");
    }
    sink.wait_for_same(Kind::Traces, &bodies).await;
    gateway.stop().await;
}

/// Scenario: calls whose deadline is over when they arrive.
/// Guarantees: DEADLINE_EXCEEDED, and nothing is taken: the caller counts them as failed and may send them again.
#[tokio::test(flavor = "multi_thread")]
async fn g1_a_deadline_that_has_passed_takes_nothing() {
    let (sink, gateway) = pair().await;
    for timeout in ["0S", "0n", "1n"] {
        let call = frame(0, &sample(Kind::Logs, 1));
        let reply = grpc_call(
            gateway.grpc(),
            Kind::Logs.grpc_path(),
            &[("grpc-timeout", timeout)],
            call,
        )
        .await;
        assert_eq!(reply.code(), code::DEADLINE_EXCEEDED, "{timeout}: {reply:?}");
    }
    assert!(sink.taken().is_empty());
    gateway.stop().await;
}

/// Scenario: a call with a deadline of 300 ms, to a gateway that confirms delivery only, with a destination
/// that does not answer.
/// Guarantees: the call ends with DEADLINE_EXCEEDED when the deadline is over, not later; the payload is
/// still delivered.
#[tokio::test(flavor = "multi_thread")]
async fn g1_the_callers_deadline_is_kept() {
    let sink = sluice_tests::Sink::start().await;
    let queue =
        "sending_queue: {wait_for_result: true, batch: {flush_timeout: 5ms, min_size: 1}}, timeout: 1s";
    let gateway =
        sluice_tests::Gateway::start(&sluice_tests::Config::new().http_exporter("sink", &sink, queue)).await;
    sink.answer(|_| sluice_tests::Answer::Stall);
    let body = sample(Kind::Logs, 1);
    let reply = grpc_call(
        gateway.grpc(),
        Kind::Logs.grpc_path(),
        &[("grpc-timeout", "300m")],
        frame(0, &body),
    )
    .await;
    assert_eq!(reply.code(), code::DEADLINE_EXCEEDED, "{reply:?}");
    sink.answer(|_| sluice_tests::Answer::Take);
    sink.wait_for_same(Kind::Logs, &[body]).await;
    gateway.stop().await;
}
