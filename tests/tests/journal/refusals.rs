//! Destinations that refuse everything for a while.

use sluice_tests::{Answer, Config, Gateway, Kind, Sink, eventually};

use crate::{ITEMS, send};

/// Scenario: one destination answers 403, another RESOURCE_EXHAUSTED without RetryInfo; requests come meanwhile; then both take everything.
/// Guarantees: the backlogs are held, which the log and the metrics say, and one request at a time probes; nothing is dropped, and everything
/// arrives once.
#[tokio::test(flavor = "multi_thread")]
async fn who_refuses_everything_is_probed_and_nothing_is_lost() {
    const EXPORTERS: [&str; 2] = ["otlphttp/forbidden", "otlp/exhausted"];
    let (forbidden, exhausted) = (Sink::start().await, Sink::start().await);
    forbidden.answer(|_| Answer::Http(403, None));
    exhausted.answer(|_| Answer::Exhausted);
    let sinks = [&forbidden, &exhausted];
    let spool = tempfile::tempdir().unwrap();
    let queue =
        "sending_queue: {storage: file_storage, num_consumers: 1, batch: {flush_timeout: 5ms, min_size: 1}}";
    let config = Config::new()
        .signals(&["logs"])
        .extension("file_storage", &format!("directory: {}", spool.path().display()))
        .http_exporter("forbidden", &forbidden, queue)
        .grpc_exporter("exhausted", &exhausted, queue);
    let gateway = Gateway::start(&config).await;
    let held = async |exporter: &str| {
        let label = format!("exporter=\"{exporter}\"");
        gateway.metrics().await.sum("sluice_exporter_held", &[&label])
    };
    let mut sent = send(&gateway, 0..1).await;
    for exporter in EXPORTERS {
        eventually("the backlog is held", || async {
            (held(exporter).await == 1.0).then_some(())
        })
        .await;
    }
    gateway.says("the destination refuses everything").await;
    sent.extend(send(&gateway, 1..20).await);
    for sink in sinks {
        sink.until("a probe comes", |sink| (sink.refused().len() > 1).then_some(()))
            .await;
        assert_eq!(sink.refused().len(), 2, "one request, and one probe");
        sink.answer(|_| Answer::Take);
    }
    for (sink, exporter) in sinks.into_iter().zip(EXPORTERS) {
        sink.wait_for_same(Kind::Logs, &sent).await;
        gateway.settled().await;
        let account = gateway.account(exporter).await;
        assert_eq!(
            (account.delivered, account.dropped.len()),
            (20 * ITEMS, 0),
            "{account:?}"
        );
        assert_eq!(held(exporter).await, 0.0);
    }
    gateway.stop().await;
}
