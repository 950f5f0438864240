//! G4, H6: refusals that are retryable in the protocol's own terms.

use std::time::Duration;

use sluice_tests::{Answer, Config, Gateway, Kind, Sink, code, frame, grpc_call, post, sample};

use crate::{JSON, PROTOBUF, assert_refused};

/// A hint that a client can follow: not at once, not in an hour.
fn sensible(delay: Duration) -> bool {
    (Duration::from_millis(1)..=Duration::from_secs(300)).contains(&delay)
}

/// Sends to a gateway that has no room, on both transports, in both encodings, all at the same time.
async fn refused_everywhere(gateway: &Gateway, body: &[u8], reason: &str) {
    let json =
        r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"x"}}]}]}]}"#.to_owned();
    // For JSON, too, the body is as large as the others.
    let json = format!("{}{}", " ".repeat(body.len()), json);
    let path = Kind::Logs.grpc_path();
    let (http, http_json, grpc) = tokio::join!(
        post(gateway.http(), "/v1/logs", &[PROTOBUF], body.to_vec()),
        post(gateway.http(), "/v1/logs", &[JSON], json),
        grpc_call(gateway.grpc(), path, &[], frame(0, body)),
    );
    for (reply, content_type) in [(http, PROTOBUF.1), (http_json, JSON.1)] {
        assert_refused(&reply, 503, 14, content_type);
        let retry_after = reply.header("retry-after").expect("Retry-After");
        // RFC 9110, 10.2.3: a non-negative decimal integer.
        assert!(
            retry_after.bytes().all(|byte| byte.is_ascii_digit()),
            "{retry_after}"
        );
        assert!(
            sensible(Duration::from_secs(retry_after.parse().unwrap())),
            "{retry_after}"
        );
    }
    assert_eq!(grpc.code(), code::UNAVAILABLE, "{grpc:?}");
    let status = grpc.details().expect("grpc-status-details-bin");
    assert_eq!(status.code, code::UNAVAILABLE as i32);
    assert!(sensible(grpc.retry_delay().expect("RetryInfo")), "{grpc:?}");
    let label = format!("reason=\"{reason}\"");
    let counted = gateway
        .metrics()
        .await
        .sum("sluice_receiver_refused_requests_total", &[&label]);
    assert_eq!(counted, 3.0, "{reason}");
}

/// Scenario: the smallest memory budget (8 MiB), filled by a request that the destination does not take;
/// then requests that do not fit beside it; then the destination takes everything.
/// Guarantees: 503 with an integer Retry-After, UNAVAILABLE with RetryInfo in the status details; the gateway stays ready;
/// once there is room, the same requests are taken, and nothing was lost.
#[tokio::test(flavor = "multi_thread")]
async fn g4_h6_memory_budget_exhausted() {
    let sink = Sink::start().await;
    let config = Config::to(&sink).processor("memory_limiter", "check_interval: 1s, limit_mib: 20");
    let gateway = Gateway::start(&config).await;
    sink.answer(|_| Answer::Http(503, None));
    let body: Vec<u8> = std::iter::repeat_with(|| sample(Kind::Logs, 1))
        .take(400)
        .flatten()
        .collect();
    assert!((5 << 20..8 << 20).contains(&(body.len())), "{}", body.len());
    assert_eq!(
        post(gateway.http(), "/v1/logs", &[PROTOBUF], body.clone())
            .await
            .status,
        200
    );
    refused_everywhere(&gateway, &body, "memory").await;
    // Full is not unable: another gateway would not be better off, and clients know when to come back.
    assert_eq!(gateway.probe("/ready").await, 200);
    // A body that can never fit is not retryable.
    let never = vec![0; 9 << 20];
    assert_refused(
        &post(gateway.http(), "/v1/logs", &[PROTOBUF], never).await,
        413,
        8,
        PROTOBUF.1,
    );

    sink.answer(|_| Answer::Take);
    sink.wait_for(Kind::Logs, 400 * 50).await;
    gateway.settled().await;
    assert_eq!(
        post(gateway.http(), "/v1/logs", &[PROTOBUF], body).await.status,
        200
    );
    assert_eq!(sink.wait_for(Kind::Logs, 2 * 400 * 50).await.len(), 2 * 400 * 50);
    gateway.stop().await;
}

/// Scenario: a queue of one request, which the destination does not take.
/// Guarantees: the same refusals as for memory.
#[tokio::test(flavor = "multi_thread")]
async fn g4_h6_queue_full() {
    let sink = Sink::start().await;
    let queue = "sending_queue: {queue_size: 1, sizer: requests, batch: {flush_timeout: 5ms, min_size: 1}}";
    let gateway = Gateway::start(&Config::new().http_exporter("sink", &sink, queue)).await;
    sink.answer(|_| Answer::Http(503, None));
    let body = sample(Kind::Logs, 1);
    assert_eq!(
        post(gateway.http(), "/v1/logs", &[PROTOBUF], body.clone())
            .await
            .status,
        200
    );
    refused_everywhere(&gateway, &body, "queue_full").await;
    sink.answer(|_| Answer::Take);
    sink.wait_for_same(Kind::Logs, &[body]).await;
    gateway.stop().await;
}
