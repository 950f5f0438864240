//! Admission levels: what is said, counted and refused when a gateway fills up.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use sluice_loadgen::{Generator, RemoteWrite, Signal, Spec};
use sluice_tests::{
    Answer, Config, Gateway, Kind, Reply, Sink, code, eventually, frame, grpc_call, post, sample,
    snappy_block,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::{JSON, PROTOBUF};

/// Levels as `sluice_admission_level` counts them.
const NORMAL: f64 = 0.0;
const WARNING: f64 = 1.0;
const MODERATE: f64 = 2.0;

const STEPS: &str = "budget: {warning: 20%, moderate: 40%, critical: never, emergency: never}";

/// A gateway with room for some fifty MiB, in front of a destination that answers once it is told to.
async fn held_up(admission: &str) -> (Sink, Gateway, watch::Sender<bool>) {
    let sink = Sink::start().await;
    let (open, opened) = watch::channel(false);
    sink.answer(move |_| {
        let opened = opened.clone();
        let wait = move || -> Pin<Box<dyn Future<Output = ()> + Send>> {
            let mut opened = opened.clone();
            Box::pin(async move { drop(opened.wait_for(|open| *open).await.unwrap()) })
        };
        Answer::After(Arc::new(wait), Box::new(Answer::Take))
    });
    let config = Config::to(&sink)
        .processor("memory_limiter", "check_interval: 1s, limit_mib: 80")
        .receiver("tenant: {from_header: X-Scope-OrgID}")
        .metrics_receiver(
            "prometheusremotewrite",
            "endpoint: \"127.0.0.1:0\", tenant: {from_header: X-Scope-OrgID}",
        )
        .admission(admission);
    (sink, Gateway::start(&config).await, open)
}

async fn level_is(gateway: &Gateway, level: f64) {
    eventually(&format!("the level is {level}"), || async {
        let now = gateway.metrics().await.sum("sluice_admission_level", &[]);
        (now == level).then_some(())
    })
    .await;
}

/// Sends a MiB at a time, all of which is taken, until the level is reached.
async fn fill_until(gateway: &Gateway, tenant: &str, level: f64) {
    for _ in 0..100 {
        let reply = send(gateway, tenant, large()).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let now = eventually("the gateway has seen it", || async {
            let metrics = gateway.metrics().await;
            let held = metrics.sum("sluice_memory_reserved_bytes", &[]);
            let share = held / metrics.sum("sluice_memory_budget_bytes", &[]);
            let seen = metrics.sum("sluice_admission_signal", &["signal=\"budget\""]);
            // Not to the byte: the budget follows the process.
            (seen > share - 0.005).then(|| metrics.sum("sluice_admission_level", &[]))
        })
        .await;
        if now == level {
            return;
        }
    }
    panic!("the level is not {level}");
}

async fn send(gateway: &Gateway, tenant: &str, body: Bytes) -> Reply {
    let headers = [PROTOBUF, ("x-scope-orgid", tenant)];
    post(gateway.http(), "/v1/logs", &headers, body).await
}

/// A request of a MiB.
fn large() -> Bytes {
    let one = sample(Kind::Logs, 0);
    one.repeat((1_usize << 20).div_ceil(one.len())).into()
}

/// Sends 40 small requests of each tenant at once; returns how many of each were refused.
async fn refused_of(gateway: &Gateway, tenants: [&'static str; 3]) -> [usize; 3] {
    let mut all = JoinSet::new();
    let (http, grpc) = (gateway.http(), gateway.grpc());
    let body = sample(Kind::Logs, 1);
    for number in 0..40 {
        for (index, tenant) in tenants.into_iter().enumerate() {
            let body = body.clone();
            all.spawn(async move {
                let refused = if number % 2 == 0 {
                    let headers = [PROTOBUF, ("x-scope-orgid", tenant)];
                    let reply = post(http, "/v1/logs", &headers, body).await;
                    assert!(
                        reply.status == 200 || reply.status == 503 && reply.header("retry-after").is_some(),
                        "{reply:?}"
                    );
                    reply.status == 503
                } else {
                    let headers = [("x-scope-orgid", tenant)];
                    let reply = grpc_call(grpc, Kind::Logs.grpc_path(), &headers, frame(0, &body)).await;
                    let is_refused = reply.code() == code::UNAVAILABLE && reply.retry_delay().is_some();
                    assert!(reply.code() == code::OK || is_refused, "{reply:?}");
                    is_refused
                };
                (index, refused)
            });
        }
    }
    let mut counts = [0; 3];
    while let Some(done) = all.join_next().await {
        let (index, refused) = done.unwrap();
        counts[index] += usize::from(refused);
    }
    counts
}

/// Scenario: a gateway that enforces levels fills up in front of a destination that takes nothing: to a quarter, to a half;
/// tenants of low, ordinary and high priority send. Then the destination takes everything.
/// Guarantees: each change of level is logged once, with its cause; at the first level a client is asked to slow down, in
/// OTLP's own terms, and nobody is refused; at the second, of low priority about half is refused, of ordinary about a tenth at
/// most, of high nothing, retryably; what was taken is delivered, and the level falls by itself.
#[tokio::test(flavor = "multi_thread")]
async fn an_enforced_level_sheds_by_priority() {
    let priority = "priority: {high: [vip], low: [batch]}";
    let (_sink, gateway, open) = held_up(&format!("mode: enforce, {STEPS}, {priority}")).await;
    level_is(&gateway, NORMAL).await;
    fill_until(&gateway, "filler", WARNING).await;
    // At most one answer a second says so.
    let json = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{}]}]}]}"#;
    let hint = eventually("an answer that asks to slow down", || async {
        let reply = post(gateway.http(), "/v1/logs", &[JSON], json).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let partial = reply.json().get("partialSuccess").cloned()?;
        assert_eq!(partial["rejectedLogRecords"], "0", "{partial}");
        Some(partial["errorMessage"].as_str().unwrap().to_owned())
    })
    .await;
    assert!(hint.contains("under pressure (level warning)"), "{hint}");
    fill_until(&gateway, "vip", MODERATE).await;
    let [low, ordinary, high] = refused_of(&gateway, ["batch", "acme", "vip"]).await;
    assert!(
        (1..=21).contains(&low) && ordinary <= 6 && high == 0,
        "{low} {ordinary} {high}"
    );
    let metrics = gateway.metrics().await;
    let counted = [
        metrics.sum("sluice_admission_shed_requests_total", &["level=\"moderate\""]),
        metrics.sum("sluice_receiver_refused_requests_total", &["reason=\"level\""]),
        metrics.sum(
            "sluice_tenant_refused_requests_total",
            &["reason=\"level\"", "tenant=\"batch\""],
        ) + metrics.sum(
            "sluice_tenant_refused_requests_total",
            &["reason=\"level\"", "tenant=\"acme\""],
        ),
    ];
    assert_eq!(counted, [(low + ordinary) as f64; 3]);

    open.send(true).unwrap();
    gateway.settled().await;
    level_is(&gateway, NORMAL).await;
    let log = gateway.log();
    for change in ["normal -> warning", "warning -> moderate"] {
        assert_eq!(log.matches(change).count(), 1, "{change} in\n{log}");
    }
    let rise = log
        .lines()
        .find(|line| line.contains("normal -> warning"))
        .unwrap();
    assert!(
        rise.contains("cause=budget") && rise.contains("enforced=true"),
        "{rise}"
    );
    assert!(log.contains("-> normal"), "{log}");
    gateway.stop().await;
}

/// Scenario: the same with the default mode.
/// Guarantees: nobody is refused or told anything; what would have been refused is counted; the change is logged.
#[tokio::test(flavor = "multi_thread")]
async fn an_observed_level_refuses_nobody() {
    let (_sink, gateway, open) = held_up(STEPS).await;
    fill_until(&gateway, "filler", MODERATE).await;
    let reply = send(&gateway, "filler", large()).await;
    assert_eq!((reply.status, reply.body.len()), (200, 0), "{reply:?}");
    let mut would = 0.0;
    for _ in 0..10 {
        assert_eq!(refused_of(&gateway, ["batch", "acme", "vip"]).await, [0; 3]);
        let metrics = gateway.metrics().await;
        would = metrics.sum("sluice_admission_would_shed_requests_total", &[]);
        assert_eq!(
            metrics.sum("sluice_receiver_refused_requests_total", &["reason=\"level\""]),
            0.0
        );
        if would > 0.0 {
            break;
        }
    }
    assert!(would > 0.0, "a tenth of ordinary priority would be refused");
    assert!(gateway.log().contains("enforced=false"), "{}", gateway.log());
    open.send(true).unwrap();
    gateway.settled().await;
    gateway.stop().await;
}

/// Scenario: levels switched off, a gateway that fills up.
/// Guarantees: no level, and no series of it.
#[tokio::test(flavor = "multi_thread")]
async fn without_levels_there_are_none() {
    let (_sink, gateway, open) = held_up("mode: off").await;
    for _ in 0..30 {
        assert_eq!(send(&gateway, "filler", large()).await.status, 200);
    }
    let metrics = gateway.metrics().await;
    assert!(!metrics.text().contains("sluice_admission_level"));
    open.send(true).unwrap();
    gateway.settled().await;
    gateway.stop().await;
}

/// Scenario: remote write of a tenant of low and one of high priority, at a level that sheds the former.
/// Guarantees: some of the former is refused, with 503 and a delay; of the latter everything is taken.
#[tokio::test(flavor = "multi_thread")]
async fn remote_write_is_shed_as_well() {
    let priority = "priority: {high: [vip], low: [batch]}";
    let (_sink, gateway, open) = held_up(&format!("mode: enforce, {STEPS}, {priority}")).await;
    fill_until(&gateway, "vip", MODERATE).await;
    let to = gateway.bound("receivers.prometheusremotewrite");
    let spec = Spec::gateway(Signal::Metrics).items(1);
    let body = snappy_block(&Generator::remote_write(spec, RemoteWrite::V1).next_request().body);
    for (tenant, shed) in [("batch", true), ("vip", false)] {
        let mut refused = 0;
        for _ in 0..40 {
            let headers = [PROTOBUF, ("x-scope-orgid", tenant)];
            let reply = post(to, "/api/v1/write", &headers, body.clone()).await;
            assert!(
                reply.status == 204 || reply.status == 503 && reply.header("retry-after").is_some(),
                "{reply:?}"
            );
            refused += u32::from(reply.status == 503);
        }
        assert_eq!(refused > 0, shed, "{tenant}: {refused}");
    }
    open.send_replace(true);
    gateway.stop().await;
}
