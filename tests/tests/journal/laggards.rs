//! One destination of a pipeline stands, and its backlog is larger than the disk.

use sluice_tests::{Answer, Gateway, Kind, Sink, Volume, eventually, post, sample, skipped};

use super::{HEADERS, ITEMS, durable};

/// Scenario: a small volume; one of two destinations answers 503 while more comes than the volume holds; then it comes
/// back.
/// Guarantees: everything is taken, now or when it is sent again, and the healthy one has all of it once; the other loses the oldest, which
/// is counted as `queue_full` (two segments at most: the first is kept by what is under way), and gets the rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_destination_does_not_fill_the_disk_for_the_other() {
    let volume = match Volume::mount(6) {
        Ok(volume) => volume,
        Err(reason) => return skipped("a small file system", &reason),
    };
    let (healthy, dead) = (Sink::start().await, Sink::start().await);
    dead.answer(|_| Answer::Http(503, None));
    let config = durable(&[("healthy", &healthy), ("dead", &dead)], volume.path());
    let gateway = Gateway::start(&config).await;
    let mut sent = Vec::new();
    let lost = ["exporter=\"otlphttp/dead\"", "reason=\"queue_full\""];
    loop {
        let body = sample(Kind::Logs, sent.len() as u64);
        eventually("a request is taken", || async {
            let reply = post(gateway.http(), "/v1/logs", &HEADERS, body.clone()).await;
            (reply.status == 200).then_some(())
        })
        .await;
        sent.push(body);
        if sent.len() % 100 == 0 {
            let lost = gateway
                .metrics()
                .await
                .sum("sluice_exporter_dropped_items_total", &lost);
            if lost > 0.0 {
                break;
            }
        }
        assert!(sent.len() < 30_000, "6 MiB are never full");
    }
    gateway.says("the disk is nearly full").await;
    healthy.wait_for_same(Kind::Logs, &sent).await;
    dead.answer(|_| Answer::Take);
    gateway.settled().await;
    assert!(gateway.account("otlphttp/healthy").await.dropped.is_empty());
    let account = gateway.account("otlphttp/dead").await;
    let all = sent.len() as u64 * ITEMS;
    let dropped = account.dropped["queue_full"];
    assert_eq!(account.delivered + dropped, all, "{account:?}");
    assert!(dropped <= all * 2 / 5, "{dropped} of {all}");
    gateway.stop().await;
}
