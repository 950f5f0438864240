//! SIGTERM.

use std::time::{Duration, Instant};

use sluice_tests::{Answer, Config, Gateway, Kind, Sink};

use crate::{ITEMS, send};

/// Scenario: batches that would wait for an hour; SIGTERM.
/// Guarantees: everything is sent before the process ends, with exit code 0.
#[tokio::test(flavor = "multi_thread")]
async fn sigterm_drains() {
    let sink = Sink::start().await;
    let queue = "sending_queue: {batch: {flush_timeout: 3600s, min_size: 1000000}}";
    let gateway = Gateway::start(&Config::new().grpc_exporter("sink", &sink, queue)).await;
    let mut sent = Vec::new();
    for kind in Kind::STABLE {
        sent.push((kind, send(&gateway, kind, 0..20).await));
    }
    assert!(sink.taken().is_empty());
    gateway.terminate();
    let exit = gateway.ended().await;
    assert_eq!(exit.code, Some(0), "{}", exit.log);
    for (kind, sent) in &sent {
        sink.wait_for_same(*kind, sent).await;
    }
}

/// Scenario: SIGTERM while the destination is down; it comes up within the shutdown time-out.
/// Guarantees: the dead destination does not make the gateway unready, stopping does, while it lives on to drain;
/// everything is delivered, exit code 0.
#[tokio::test(flavor = "multi_thread")]
async fn sigterm_waits_for_a_destination_that_comes_back() {
    let sink = Sink::down().await;
    let gateway = Gateway::start_with(&Config::to(&sink), &["--shutdown-timeout", "50"]).await;
    let sent = send(&gateway, Kind::Logs, 0..10).await;
    assert_eq!(gateway.probe("/ready").await, 200);
    gateway.terminate();
    gateway.says("stopping").await;
    sluice_tests::eventually("/ready answers 503", async || {
        (gateway.probe("/ready").await == 503).then_some(())
    })
    .await;
    assert_eq!(gateway.probe("/live").await, 200);
    sink.up().await;
    let exit = gateway.ended().await;
    assert_eq!(exit.code, Some(0), "{}", exit.log);
    sink.wait_for_same(Kind::Logs, &sent).await;
}

/// Scenario: SIGTERM with a time-out of two seconds; one destination is dead, another never answers, a
/// third is well.
/// Guarantees: the process ends soon after the deadline with exit code 1, and says how many items are
/// left; the healthy destination has everything.
#[tokio::test(flavor = "multi_thread")]
async fn sigterm_with_a_dead_destination_ends_in_time_and_says_what_is_left() {
    let (dead, stalled, healthy) = (Sink::down().await, Sink::start().await, Sink::start().await);
    stalled.answer(|_| Answer::Stall);
    let config = Config::new()
        .http_exporter("dead", &dead, "")
        .grpc_exporter("stalled", &stalled, "")
        .http_exporter("healthy", &healthy, "");
    let gateway = Gateway::start_with(&config, &["--shutdown-timeout", "2"]).await;
    let sent = send(&gateway, Kind::Logs, 0..10).await;
    let asked = Instant::now();
    gateway.terminate();
    let exit = gateway.ended().await;
    // A loaded machine is slow; a deadline that is not kept is slower (the stalled request has 10 s and more).
    assert!(asked.elapsed() < Duration::from_secs(8), "{:?}", asked.elapsed());
    assert_eq!(exit.code, Some(1), "{}", exit.log);
    let left = format!("items={}", 2 * 10 * ITEMS);
    assert!(
        exit.log.contains(&left) && exit.log.contains("undelivered"),
        "no {left} in\n{}",
        exit.log
    );
    healthy.wait_for_same(Kind::Logs, &sent).await;
}

/// Scenario: SIGTERM while 20 senders send as fast as they can on connections of their own.
/// Guarantees: every request that was answered with success is delivered; the others were refused or cut
/// off, never lost silently; exit code 0.
#[tokio::test(flavor = "multi_thread")]
async fn sigterm_under_load_keeps_what_was_accepted() {
    let sink = Sink::start().await;
    let gateway = Gateway::start(&Config::to(&sink)).await;
    let address = gateway.http();
    let senders: Vec<_> = (0..20_u64)
        .map(|sender| {
            tokio::spawn(async move {
                let mut accepted = Vec::new();
                let headers = [("content-type", "application/x-protobuf")];
                let Ok(mut connection) = sluice_tests::HttpConnection::http1(address).await else {
                    return accepted;
                };
                for count in 0.. {
                    let body = sluice_tests::sample(Kind::Logs, sender * 100_000 + count);
                    let request = sluice_tests::request(
                        http::Method::POST,
                        address,
                        "/v1/logs",
                        &headers,
                        body.clone(),
                    );
                    match connection.send(request).await {
                        Ok(reply) if reply.status == 200 => accepted.push(body),
                        Ok(reply) => assert_eq!(reply.status, 503, "{reply:?}"),
                        Err(_) => break,
                    }
                }
                accepted
            })
        })
        .collect();
    sink.wait_for(Kind::Logs, 20 * ITEMS).await;
    gateway.terminate();
    let exit = gateway.ended().await;
    assert_eq!(exit.code, Some(0), "{}", exit.log);
    let arrived = sink.items(Kind::Logs);
    let arrived: std::collections::HashSet<_> = arrived.iter().collect();
    for sender in senders {
        for body in sender.await.unwrap() {
            for item in sluice_tests::items_of(Kind::Logs, &body).iter() {
                assert!(arrived.contains(item), "accepted and lost: {item}");
            }
        }
    }
}

/// Scenario: a file exporter writes into a pipe that somebody has open and nobody reads, more than the pipe holds;
/// SIGTERM with a time-out of two seconds.
/// Guarantees: the write that hangs does not hold the process: it ends soon after the deadline with exit code 1, and
/// says how many items are left.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_hangs_does_not_hold_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo failed");
    // For reading and writing, opening a pipe waits for nobody; while it is open the exporter can open it too.
    let _unread = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&pipe)
        .unwrap();
    let config = Config::new()
        .exporter("file", &format!("path: {}", pipe.display()))
        .signals(&["logs"]);
    let gateway = Gateway::start_with(&config, &["--shutdown-timeout", "2"]).await;
    // Linux pipes hold 64 KiB; a sample takes more than 5 KiB as JSON.
    let requests = 100;
    send(&gateway, Kind::Logs, 0..requests).await;
    let asked = Instant::now();
    gateway.terminate();
    let exit = gateway.ended().await;
    assert!(asked.elapsed() < Duration::from_secs(8), "{:?}", asked.elapsed());
    assert_eq!(exit.code, Some(1), "{}", exit.log);
    assert!(exit.log.contains("undelivered"), "{}", exit.log);
}
