//! Outages, refusals, poison.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use sluice_tests::{Answer, Config, Gateway, Kind, Sink, eventually, items_of, within};

use crate::{ITEMS, send};

/// A batch is everything that came within half a second.
const MERGING: &str = "sending_queue: {batch: {flush_timeout: 500ms, min_size: 1000000}}";

/// Both kinds of exporters to one sink, of which `grpc` chooses.
fn exporting(sink: &Sink, grpc: bool, more: &str) -> (Config, &'static str) {
    match grpc {
        true => (Config::new().grpc_exporter("sink", sink, more), "otlp/sink"),
        false => (Config::new().http_exporter("sink", sink, more), "otlphttp/sink"),
    }
}

/// Scenario: the destination is down when the gateway starts; requests of three signals come; then the
/// destination comes up. Over both transports.
/// Guarantees: all are accepted, queued, and delivered once each, without a restart.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_loses_nothing() {
    for grpc in [false, true] {
        let sink = Sink::down().await;
        let (config, exporter) = exporting(&sink, grpc, "");
        let gateway = Gateway::start(&config).await;
        let mut sent = Vec::new();
        for kind in Kind::STABLE {
            sent.push((kind, send(&gateway, kind, 0..10).await));
        }
        let account = gateway.account(exporter).await;
        assert_eq!(
            (account.queued, account.delivered),
            (30 * ITEMS as u64, 0),
            "{account:?}"
        );
        sink.up().await;
        for (kind, sent) in &sent {
            sink.wait_for_same(*kind, sent).await;
        }
        gateway.settled().await;
        let account = gateway.account(exporter).await;
        assert_eq!(
            (account.accepted, account.delivered),
            (30 * ITEMS as u64, 30 * ITEMS as u64),
            "{account:?}"
        );
        gateway.stop().await;
    }
}

/// Scenario: the destination goes away and comes back five times while requests keep coming.
/// Guarantees: every item arrives at least once (an answer can be lost, then it is sent again), the
/// ledger counts each once.
#[tokio::test(flavor = "multi_thread")]
async fn a_flapping_destination_loses_nothing() {
    let sink = Sink::start().await;
    let (config, exporter) = exporting(&sink, true, "");
    let gateway = Gateway::start(&config).await;
    let mut sent = Vec::new();
    for round in 0..5 {
        sent.extend(send(&gateway, Kind::Logs, round * 20..round * 20 + 10).await);
        sink.stop().await;
        sent.extend(send(&gateway, Kind::Logs, round * 20 + 10..round * 20 + 20).await);
        sink.up().await;
    }
    gateway.settled().await;
    let account = gateway.account(exporter).await;
    assert_eq!(
        (account.delivered, account.dropped.len()),
        (100 * ITEMS as u64, 0),
        "{account:?}"
    );
    let arrived = sink.items(Kind::Logs);
    let arrived: std::collections::HashSet<_> = arrived.iter().collect();
    for body in &sent {
        for item in items_of(Kind::Logs, body).iter() {
            assert!(arrived.contains(item), "lost: {item}");
        }
    }
    gateway.stop().await;
}

/// Scenario: two exporters, one of them dead, one of them with a destination that never answers; 40
/// requests; then the dead one comes to life.
/// Guarantees: the healthy third one gets everything at once; then the revived one gets everything too;
/// neither gets anything twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_exporter_does_not_hold_up_the_others() {
    let (healthy, dead, stalled) = (Sink::start().await, Sink::down().await, Sink::start().await);
    stalled.answer(|_| Answer::Stall);
    let config = Config::new()
        .http_exporter("healthy", &healthy, "")
        .grpc_exporter("dead", &dead, "")
        .http_exporter("stalled", &stalled, "timeout: 1s");
    let gateway = Gateway::start(&config).await;
    let sent = send(&gateway, Kind::Traces, 0..40).await;
    healthy.wait_for_same(Kind::Traces, &sent).await;
    let account = gateway.account("otlp/dead").await;
    assert_eq!(
        (account.delivered, account.queued),
        (0, 40 * ITEMS as u64),
        "{account:?}"
    );
    dead.up().await;
    dead.wait_for_same(Kind::Traces, &sent).await;
    stalled.answer(|_| Answer::Take);
    stalled.wait_for(Kind::Traces, 40 * ITEMS).await;
    gateway.settled().await;
    healthy.wait_for_same(Kind::Traces, &sent).await;
    for exporter in ["otlphttp/healthy", "otlp/dead", "otlphttp/stalled"] {
        let account = gateway.account(exporter).await;
        assert_eq!(
            (account.delivered, account.dropped.len()),
            (40 * ITEMS as u64, 0),
            "{account:?}"
        );
    }
    gateway.stop().await;
}

/// Scenario: a dead exporter with a queue of 10 requests beside a healthy one; 40 requests.
/// Guarantees: the laggard is cut loose, oldest first, and what it lost is counted as `queue_full`; the
/// healthy one gets everything, no client is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_beside_a_healthy_exporter_drops_its_oldest() {
    let (healthy, dead) = (Sink::start().await, Sink::down().await);
    let queue = "sending_queue: {queue_size: 10, sizer: requests, batch: {flush_timeout: 5ms, min_size: 1}}";
    let config = Config::new()
        .http_exporter("healthy", &healthy, "")
        .http_exporter("dead", &dead, queue);
    let gateway = Gateway::start(&config).await;
    let sent = send(&gateway, Kind::Logs, 0..40).await;
    healthy.wait_for_same(Kind::Logs, &sent).await;
    let account = gateway.account("otlphttp/dead").await;
    let dropped = account.dropped.get("queue_full").copied().unwrap_or_default();
    assert_eq!(account.queued + dropped, 40 * ITEMS as u64, "{account:?}");
    assert!(
        account.queued <= 10 * ITEMS as u64 && dropped >= 30 * ITEMS as u64,
        "{account:?}"
    );
    dead.up().await;
    gateway.settled().await;
    let account = gateway.account("otlphttp/dead").await;
    assert_eq!(account.delivered + dropped, 40 * ITEMS as u64, "{account:?}");
    gateway.stop().await;
}

/// Scenario: a destination that takes requests of at most 30 KB; one merged batch of 20 requests that is
/// ten times as large; and an item that is too large by itself.
/// Guarantees: the batch is halved until it fits and everything arrives once; the large item alone is
/// given up, counted as `payload_fault`.
#[tokio::test(flavor = "multi_thread")]
async fn too_large_is_halved() {
    for grpc in [false, true] {
        let sink = Sink::start().await;
        sink.answer(move |arrived| match (arrived.body.len() > 30_000, grpc) {
            (false, _) => Answer::Take,
            (true, false) => Answer::Http(413, None),
            // Without RetryInfo: too large, do not retry.
            (true, true) => Answer::Grpc(8, None),
        });
        let (config, exporter) = exporting(&sink, grpc, MERGING);
        let gateway = Gateway::start(&config).await;
        let sent = send(&gateway, Kind::Metrics, 0..20).await;
        sink.wait_for_same(Kind::Metrics, &sent).await;
        if !grpc {
            assert!(
                sink.refused().iter().any(|arrived| arrived.body.len() > 60_000),
                "nothing was merged"
            );
            let huge =
                r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"HUGE"}}]}]}]}"#;
            let huge = huge.replace("HUGE", &"x".repeat(40_000));
            let headers = [("content-type", "application/json")];
            assert_eq!(
                sluice_tests::post(gateway.http(), "/v1/logs", &headers, huge)
                    .await
                    .status,
                200
            );
        }
        gateway.settled().await;
        let account = gateway.account(exporter).await;
        assert_eq!(account.delivered, 20 * ITEMS as u64, "{account:?}");
        assert_eq!(
            account.dropped.values().sum::<u64>(),
            u64::from(!grpc),
            "{account:?}"
        );
        gateway.stop().await;
    }
}

/// Scenario: 20 requests merged into one batch, one of which the destination can never take (400,
/// INVALID_ARGUMENT).
/// Guarantees: the poison is found by bisection and given up alone, counted as `payload_fault`; every
/// other item arrives once; the search takes few requests.
#[tokio::test(flavor = "multi_thread")]
async fn poison_is_bisected() {
    for grpc in [false, true] {
        let sink = Sink::start().await;
        let poison = sluice_tests::sample(Kind::Logs, 7);
        let mark = items_of(Kind::Logs, &poison);
        sink.answer(move |arrived| {
            let found = arrived.items();
            match (found.iter().any(|item| mark.iter().any(|bad| bad == item)), grpc) {
                (false, _) => Answer::Take,
                (true, false) => Answer::Http(400, None),
                (true, true) => Answer::Grpc(3, None),
            }
        });
        let (config, exporter) = exporting(&sink, grpc, MERGING);
        let gateway = Gateway::start(&config).await;
        let mut sent = send(&gateway, Kind::Logs, 0..20).await;
        gateway.settled().await;
        sent.remove(7);
        sink.wait_for_same(Kind::Logs, &sent).await;
        let account = gateway.account(exporter).await;
        assert_eq!(
            account.dropped.get("payload_fault"),
            Some(&(ITEMS as u64)),
            "{account:?}"
        );
        // At most two requests for each halving of 20, if all came in one batch, a few more if in two; and 32 to look for
        // something good in the poison.
        assert!(
            sink.refused().len() <= 10 + 32,
            "{} requests were refused",
            sink.refused().len()
        );
        gateway.stop().await;
    }
}

/// Scenario: a destination whose credentials have expired (401, UNAUTHENTICATED), or that is the wrong
/// one (404, UNIMPLEMENTED); then somebody mends it.
/// Guarantees: the backlog is held and nothing is dropped, `sluice_exporter_held` and the log say so, the
/// destination is probed and not hammered; afterwards everything arrives once.
#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_fault_holds_the_backlog() {
    let cases = [
        (false, Answer::Http(401, None)),
        (false, Answer::Http(404, None)),
        (true, Answer::Grpc(16, None)),
        (true, Answer::Grpc(12, None)),
    ];
    let cases: Vec<_> = cases
        .into_iter()
        .map(|(grpc, answer)| {
            tokio::spawn(async move {
                let sink = Sink::start().await;
                sink.answer(move |_| answer.clone());
                let (config, exporter) = exporting(&sink, grpc, "");
                let gateway = Gateway::start(&config).await;
                let sent = send(&gateway, Kind::Traces, 0..20).await;
                let label = format!("exporter=\"{exporter}\"");
                eventually("the exporter is held", || async {
                    (gateway.metrics().await.sum("sluice_exporter_held", &[&label]) == 1.0).then_some(())
                })
                .await;
                gateway.says("the backlog is held").await;
                let account = gateway.account(exporter).await;
                assert_eq!(
                    (account.queued, account.dropped.len()),
                    (20 * ITEMS as u64, 0),
                    "{account:?}"
                );
                assert!(
                    sink.refused().len() <= 20,
                    "hammered: {} requests",
                    sink.refused().len()
                );
                sink.answer(|_| Answer::Take);
                sink.wait_for_same(Kind::Traces, &sent).await;
                gateway.settled().await;
                assert_eq!(gateway.metrics().await.sum("sluice_exporter_held", &[]), 0.0);
                gateway.stop().await;
            })
        })
        .collect();
    for case in cases {
        within("the case ends", case).await.unwrap();
    }
}

/// Scenario: a destination that refuses once with a hint of two seconds (Retry-After; RetryInfo), with
/// configured retries of 50 ms.
/// Guarantees: the hint is kept (C3), then the request arrives.
#[tokio::test(flavor = "multi_thread")]
async fn hints_of_the_destination_are_kept() {
    const HINT: Duration = Duration::from_secs(2);
    for grpc in [false, true] {
        let sink = Sink::start().await;
        let attempts = std::sync::Arc::new(Mutex::new(Vec::new()));
        let seen = attempts.clone();
        sink.answer(move |_| {
            let mut seen = seen.lock().unwrap();
            seen.push(Instant::now());
            match (seen.len(), grpc) {
                (1, false) => Answer::Http(429, Some(HINT.as_secs())),
                (1, true) => Answer::Grpc(8, Some(HINT)),
                _ => Answer::Take,
            }
        });
        let (config, _) = exporting(&sink, grpc, "");
        let gateway = Gateway::start(&config).await;
        let sent = send(&gateway, Kind::Logs, 0..1).await;
        sink.wait_for_same(Kind::Logs, &sent).await;
        let attempts = attempts.lock().unwrap().clone();
        assert_eq!(attempts.len(), 2);
        assert!(
            attempts[1] - attempts[0] >= HINT,
            "{:?}",
            attempts[1] - attempts[0]
        );
        gateway.stop().await;
    }
}

/// Scenario: a destination that takes a request in part.
/// Guarantees: it is not sent again (C4), and what was rejected is counted.
#[tokio::test(flavor = "multi_thread")]
async fn partial_success_is_not_retried() {
    for grpc in [false, true] {
        let sink = Sink::start().await;
        sink.answer(|_| Answer::Partial(5, "too old"));
        let (config, exporter) = exporting(&sink, grpc, "");
        let gateway = Gateway::start(&config).await;
        send(&gateway, Kind::Metrics, 0..1).await;
        gateway.settled().await;
        let account = gateway.account(exporter).await;
        assert_eq!(
            (account.delivered, account.dropped.get("partial_success")),
            (45, Some(&5)),
            "{account:?}"
        );
        assert_eq!(sink.taken().len(), 1);
        gateway.stop().await;
    }
}

/// Scenario: retries that end after a second (`max_elapsed_time`), and a destination that is down.
/// Guarantees: the items are given up as configured, and counted as `retry_exhausted`.
#[tokio::test(flavor = "multi_thread")]
async fn exhausted_retries_are_counted() {
    let sink = Sink::down().await;
    let retry = "retry_on_failure: {initial_interval: 50ms, max_interval: 200ms, max_elapsed_time: 1s}";
    let (config, exporter) = exporting(&sink, false, retry);
    let gateway = Gateway::start(&config).await;
    send(&gateway, Kind::Logs, 0..4).await;
    gateway.settled().await;
    let account = gateway.account(exporter).await;
    assert_eq!(
        account.dropped.get("retry_exhausted"),
        Some(&(4 * ITEMS as u64)),
        "{account:?}"
    );
    gateway.stop().await;
}
