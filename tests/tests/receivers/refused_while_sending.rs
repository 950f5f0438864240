//! Refusals that come while the client still has its body, or most of it: it has to get them, and nothing worse.

use std::future::poll_fn;

use bytes::Bytes;
use sluice_tests::{
    Answer, Config, Gateway, GrpcConnection, Kind, RawHttp, RawReply, Sink, code, frame, grpc_call, post,
    sample, within,
};

use crate::PROTOBUF;

/// A request that takes both lanes of the smallest budget to their ends: small enough for the express lane.
const FILLING_BYTES: usize = 100 << 10;

/// What is refused: fits the budget, if that were empty, and no socket buffer.
const BODY_BYTES: usize = 6 << 20;

/// A gateway whose memory budget, the smallest there is, holds what its destination does not take.
async fn full() -> (Sink, Gateway) {
    let sink = Sink::start().await;
    sink.answer(|_| Answer::Http(503, None));
    let config = Config::to(&sink).processor("memory_limiter", "check_interval: 1s, limit_mib: 20");
    let gateway = Gateway::start(&config).await;
    let one = sample(Kind::Logs, 1);
    let body = one.repeat(FILLING_BYTES / one.len());
    let mut taken = 0;
    while post(gateway.http(), "/v1/logs", &[PROTOBUF], body.clone())
        .await
        .status
        == 200
    {
        taken += 1;
        assert!(taken < 1000, "it is never full");
    }
    (sink, gateway)
}

fn head(more: &str) -> String {
    format!(
        "POST /v1/logs HTTP/1.1\r\nhost: sluice\r\ncontent-type: application/x-protobuf\r\n{more}content-length: {BODY_BYTES}\r\n\r\n"
    )
}

#[track_caller]
fn assert_told_when(reply: &RawReply) {
    assert_eq!(reply.status, 503, "{reply:?}");
    assert!(reply.header("retry-after").is_some(), "{reply:?}");
}

/// Scenario: the memory budget is full; a client announces a body and waits for `100 Continue`.
/// Guarantees: the first that it is told is 503 with when to come back: the body is never asked for.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_budget_asks_for_no_body() {
    let (_sink, gateway) = full().await;
    let mut raw = RawHttp::connect(gateway.http()).await;
    assert!(raw.write(head("expect: 100-continue\r\n")).await);
    assert_told_when(&raw.reply().await.expect("an answer"));
    gateway.kill().await;
}

/// Scenario: the memory budget is full; a client sends a third of its body over HTTP/1.1, reads, and only then sends the rest and another request.
/// Guarantees: it reads 503 with when to come back; the rest of the body is taken off the connection, which serves the other request.
#[tokio::test(flavor = "multi_thread")]
async fn an_http_1_1_client_that_still_sends_reads_its_refusal() {
    let (_sink, gateway) = full().await;
    let mut raw = RawHttp::connect(gateway.http()).await;
    let body = vec![0; BODY_BYTES];
    let (now, later) = body.split_at(BODY_BYTES / 3);
    assert!(raw.write(head("")).await && raw.write(now).await);
    assert_told_when(&raw.reply().await.expect("an answer"));
    assert!(raw.write(later).await, "the connection is there");
    assert!(
        raw.write("POST /nowhere HTTP/1.1\r\nhost: sluice\r\ncontent-length: 0\r\n\r\n")
            .await
    );
    assert_eq!(raw.reply().await.expect("an answer").status, 404);
    gateway.kill().await;
}

/// Scenario: the memory budget is full; clients on h2 have sent a part of their messages, over gRPC and over HTTP, and do not end them.
/// Guarantees: they get their answers whole, with when to come back, and then RST_STREAM(NO_ERROR): "stop sending" (RFC 9113, 8.1), and nothing that a
/// client takes for a failure of its own; the connections serve other requests.
#[tokio::test(flavor = "multi_thread")]
async fn an_h2_client_that_still_sends_is_told_to_stop() {
    let (_sink, gateway) = full().await;
    let part = frame(0, &vec![0; BODY_BYTES]).slice(..BODY_BYTES / 100);
    for (address, path, content_type) in [
        (gateway.grpc(), Kind::Logs.grpc_path(), "application/grpc"),
        (gateway.http(), "/v1/logs", "application/x-protobuf"),
    ] {
        let connection = GrpcConnection::open(address).await.unwrap();
        let length = BODY_BYTES.to_string();
        let mut headers = vec![("content-type", content_type)];
        if content_type != "application/grpc" {
            headers.extend([("content-length", &length[..]), ("te", "")]);
        }
        let mut sender = connection.sender().ready().await.unwrap();
        let (response, mut stream) = sender
            .send_request(connection.head(path, &headers), false)
            .unwrap();
        stream.send_data(part.clone(), false).unwrap();
        let (head, mut body) = within(&format!("an answer on {path}"), response)
            .await
            .unwrap()
            .into_parts();
        let mut said = Vec::new();
        while let Some(data) = within("the whole answer", body.data()).await {
            let data: Bytes = data.expect("the answer is whole");
            said.extend_from_slice(&data);
        }
        let trailers = body
            .trailers()
            .await
            .expect("the answer is whole")
            .unwrap_or_default();
        if content_type == "application/grpc" {
            let status = trailers.get("grpc-status").or(head.headers.get("grpc-status"));
            assert_eq!(
                status.unwrap(),
                &code::UNAVAILABLE.to_string(),
                "{head:?} {trailers:?}"
            );
        } else {
            assert_eq!(head.status, 503);
            assert!(head.headers.contains_key("retry-after"), "{head:?}");
            assert!(!said.is_empty());
        }
        let reset = within(&format!("a reset on {path}"), poll_fn(|cx| stream.poll_reset(cx))).await;
        assert_eq!(reset.expect("no GOAWAY"), h2::Reason::NO_ERROR, "{path}");
        let other = connection.head("/nowhere", &headers[..1]);
        let mut sender = sender.ready().await.expect("the connection goes on");
        let (response, _) = sender.send_request(other, true).unwrap();
        within("another answer", response)
            .await
            .expect("the connection goes on");
    }
    // What holds nothing passes.
    let reply = grpc_call(gateway.grpc(), Kind::Logs.grpc_path(), &[], frame(0, &[])).await;
    assert_eq!(reply.code(), code::OK);
    gateway.kill().await;
}
