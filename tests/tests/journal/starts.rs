//! Starts on a queue that is not as it should be: damaged, on a full volume, on one that cannot be written.

use std::path::Path;

use sluice_tests::{Answer, Gateway, Kind, Sink, Volume, eventually, post, sample, skipped};

use crate::{HEADERS, ITEMS, durable, send};

/// A file that a gateway is started with and ends by itself: its exit code, and what it said.
async fn refused_start(sink: &Sink, spool: &Path) -> String {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gateway.yaml");
    std::fs::write(&file, durable(&[("sink", sink)], spool).yaml()).unwrap();
    let (code, _, said) = Gateway::command(&["--config", file.to_str().unwrap()]).await;
    assert_eq!(code, Some(1), "{said}");
    said
}

/// Scenario: a backlog of ten requests in one segment; SIGTERM, or SIGKILL; a bit of the fifth is flipped; the destination is up, and the gateway
/// is started.
/// Guarantees: it starts, delivers the other nine once, takes new requests, and counts one place and one request in its metrics; the account
/// balances: what an orderly end had counted is dropped as `damaged`, what a killed one had not is not recovered.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_journal_starts_and_delivers_the_rest() {
    for is_killed in [false, true] {
        let sink = Sink::start().await;
        sink.answer(|_| Answer::Http(503, None));
        let spool = tempfile::tempdir().unwrap();
        let config = durable(&[("sink", &sink)], spool.path());
        let gateway = Gateway::start(&config).await;
        let journal = spool.path().join("logs.journal");
        let segment = || {
            let files = std::fs::read_dir(&journal).unwrap();
            let mut paths = files.map(|entry| entry.unwrap().path());
            paths.find(|path| path.extension().is_some_and(|extension| extension == "segment"))
        };
        let mut sent = send(&gateway, 0..4).await;
        let at = std::fs::metadata(segment().unwrap()).unwrap().len();
        send(&gateway, 4..5).await;
        sent.extend(send(&gateway, 5..10).await);
        if is_killed {
            gateway.kill().await;
        } else {
            gateway.terminate();
            assert_eq!(gateway.ended().await.code, Some(0));
        }
        let segment = segment().unwrap();
        let mut bytes = std::fs::read(&segment).unwrap();
        // Behind its header.
        bytes[at as usize + 100] ^= 1;
        std::fs::write(&segment, bytes).unwrap();

        sink.answer(|_| Answer::Take);
        let gateway = Gateway::start(&config).await;
        sent.extend(send(&gateway, 10..12).await);
        gateway.settled().await;
        sink.wait_for_same(Kind::Logs, &sent).await;
        let metrics = gateway.metrics().await;
        for name in [
            "sluice_journal_damaged_total",
            "sluice_journal_lost_requests_total",
        ] {
            assert_eq!(metrics.sum(name, &[]), 1.0, "{name}, killed: {is_killed}");
        }
        let account = gateway.account("otlphttp/sink").await;
        let (recovered, damaged) = match is_killed {
            true => (9 * ITEMS, None),
            false => (10 * ITEMS, Some(&ITEMS)),
        };
        assert_eq!(
            (account.recovered, account.dropped.get("damaged")),
            (recovered, damaged)
        );
        assert!(
            account.balanced() && account.delivered == 11 * ITEMS,
            "{account:?}"
        );
        if is_killed {
            gateway.says("the journal is damaged").await;
        }
        gateway.stop().await;
    }
}

/// Scenario: a gateway with a backlog is killed; its volume is filled up by somebody else; it is started with a destination that is down, which
/// comes back; then there is room again.
/// Guarantees: it starts on the full volume and delivers its backlog; what comes is refused with a delay, `/ready` says so; with room it takes
/// requests again, without a start; everything that was acknowledged arrives once.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_volume_starts_and_goes_on_when_there_is_room() {
    let volume = match Volume::mount(4) {
        Ok(volume) => volume,
        Err(reason) => return skipped("a small file system", &reason),
    };
    let sink = Sink::start().await;
    sink.answer(|_| Answer::Http(503, None));
    let config = durable(&[("sink", &sink)], volume.path());
    let gateway = Gateway::start(&config).await;
    let mut sent = send(&gateway, 0..10).await;
    gateway.kill().await;
    let filler = volume.fill().unwrap();

    let gateway = Gateway::start(&config).await;
    let next = sample(Kind::Logs, 10);
    let reply = post(gateway.http(), "/v1/logs", &HEADERS, next.clone()).await;
    assert_eq!(reply.status, 503, "{reply:?}");
    assert!(reply.header("retry-after").is_some(), "{reply:?}");
    assert_eq!(gateway.probe("/ready").await, 503);
    let account = gateway.account("otlphttp/sink").await;
    assert_eq!((account.recovered, account.accepted), (10 * ITEMS, 0));

    sink.answer(|_| Answer::Take);
    gateway.settled().await;
    sink.wait_for_same(Kind::Logs, &sent).await;
    std::fs::remove_file(filler).unwrap();
    eventually("requests are taken again", || async {
        let reply = post(gateway.http(), "/v1/logs", &HEADERS, next.clone()).await;
        (reply.status == 200).then_some(())
    })
    .await;
    sent.push(next);
    assert_eq!(gateway.probe("/ready").await, 200);
    gateway.settled().await;
    sink.wait_for_same(Kind::Logs, &sent).await;
    gateway.stop().await;
}

/// Scenario: the first start of a gateway whose volume is full; and a start on one that was made read-only, with a journal on it and without.
/// Guarantees: it ends with exit code 1, and says which file, what is wrong with the volume, and what to do.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_cannot_be_used_is_told() {
    let sink = Sink::start().await;
    let full = match Volume::mount(1) {
        Ok(volume) => volume,
        Err(reason) => return skipped("a small file system", &reason),
    };
    full.fill().unwrap();
    let said = refused_start(&sink, full.path()).await;
    let names = |said: &str, volume: &Volume| said.contains(volume.path().to_str().unwrap());
    assert!(names(&said, &full) && said.contains("free some space"), "{said}");

    for has_journal in [true, false] {
        let volume = Volume::mount(1).unwrap();
        if has_journal {
            Gateway::start(&durable(&[("sink", &sink)], volume.path()))
                .await
                .stop()
                .await;
        }
        volume.set_read_only().unwrap();
        let said = refused_start(&sink, volume.path()).await;
        assert!(
            names(&said, &volume) && said.contains("read-only") && said.contains("mount it for writing"),
            "{said}"
        );
    }
}
