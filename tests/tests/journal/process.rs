//! The process and its directory: who has it, what survives it, and who may look into it meanwhile.

use sluice_tests::{Answer, Config, Gateway, Kind, Sink, gzipped, post, sample, zstd};

use crate::{HEADERS, ITEMS, durable, send};

/// Scenario: a second gateway is started on the directory of one that runs.
/// Guarantees: it ends with exit code 1 and says which directory is in use, and what to do; the first one goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_has_one_gateway() {
    let sink = Sink::start().await;
    let spool = tempfile::tempdir().unwrap();
    let config = durable(&[("sink", &sink)], spool.path());
    let first = Gateway::start(&config).await;
    let file = first.dir().join("second.yaml");
    std::fs::write(&file, config.yaml()).unwrap();
    let (code, _, said) = Gateway::command(&["--config", file.to_str().unwrap()]).await;
    assert_eq!(code, Some(1), "{said}");
    let directory = spool.path().join("logs.journal");
    let words = format!(
        "{} is in use by another process; stop it, or give each its own directory",
        directory.display()
    );
    assert!(said.contains(&words), "{said}");
    let sent = send(&first, 0..3).await;
    sink.wait_for_same(Kind::Logs, &sent).await;
    first.stop().await;
}

/// Scenario: SIGHUP, three times, between requests that go into a queue on disk.
/// Guarantees: the process says that it reads nothing again, and goes on; everything arrives once.
#[tokio::test(flavor = "multi_thread")]
async fn sighup_disturbs_nothing() {
    let sink = Sink::start().await;
    let spool = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(&durable(&[("sink", &sink)], spool.path())).await;
    let mut sent = Vec::new();
    for round in 0..3 {
        sent.extend(send(&gateway, round * 10..round * 10 + 5).await);
        gateway.hang_up();
        sent.extend(send(&gateway, round * 10 + 5..round * 10 + 10).await);
    }
    gateway.says("SIGHUP ignored").await;
    sink.wait_for_same(Kind::Logs, &sent).await;
    gateway.stop().await;
}

/// Scenario: a destination that is down; without `fsync`, then with one a second; SIGKILL after each ten requests, thrice.
/// Guarantees: nothing that was acknowledged is lost with the process: the kernel has it.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_needs_no_sync() {
    for policy in ["fsync: false", "fsync_interval: 1s"] {
        let sink = Sink::start().await;
        sink.answer(|_| Answer::Http(503, None));
        let spool = tempfile::tempdir().unwrap();
        let storage = format!("directory: {}, {policy}", spool.path().display());
        let queue = "sending_queue: {storage: file_storage, batch: {flush_timeout: 5ms, min_size: 1}}";
        let config = Config::new()
            .signals(&["logs"])
            .extension("file_storage", &storage)
            .http_exporter("sink", &sink, queue);
        let mut sent = Vec::new();
        for round in 0..3 {
            let gateway = Gateway::start(&config).await;
            sent.extend(send(&gateway, round * 10..round * 10 + 10).await);
            gateway.kill().await;
        }
        sink.answer(|_| Answer::Take);
        let gateway = Gateway::start(&config).await;
        sink.wait_for_same(Kind::Logs, &sent).await;
        gateway.settled().await;
        let account = gateway.account("otlphttp/sink").await;
        assert_eq!(
            (account.recovered, account.delivered),
            (30 * ITEMS, 30 * ITEMS),
            "{policy}"
        );
        gateway.stop().await;
    }
}

/// Scenario: `passthrough: always`, and a destination that is down; a compressed request; SIGKILL; a start with the destination up.
/// Guarantees: the frame arrives bit by bit as the client sent it to the process before.
#[tokio::test(flavor = "multi_thread")]
async fn a_stored_frame_is_passed_on_by_the_next_process() {
    for encoding in ["zstd", "gzip"] {
        let sink = Sink::start().await;
        sink.answer(|_| Answer::Http(503, None));
        let spool = tempfile::tempdir().unwrap();
        let settings = format!(
            "compression: {encoding}, passthrough: always, \
             sending_queue: {{storage: file_storage, batch: {{flush_timeout: 5ms, min_size: 1}}}}"
        );
        let config = Config::new()
            .signals(&["logs"])
            .extension("file_storage", &format!("directory: {}", spool.path().display()))
            .http_exporter("sink", &sink, &settings);
        let gateway = Gateway::start(&config).await;
        // Enough for the frame to be worth passing on.
        let body: Vec<u8> = (0..10).flat_map(|seed| sample(Kind::Logs, seed)).collect();
        let frame = match encoding {
            "zstd" => zstd(&body),
            _ => gzipped(&body),
        };
        let headers = [HEADERS[0], ("content-encoding", encoding)];
        let reply = post(gateway.http(), "/v1/logs", &headers, frame.clone()).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        gateway.kill().await;
        sink.answer(|_| Answer::Take);
        let gateway = Gateway::start(&config).await;
        sink.wait_for_same(Kind::Logs, &[body]).await;
        let found = |wire: &[u8]| wire.windows(frame.len()).any(|window| window == &frame[..]);
        assert!(
            sink.taken().iter().any(|arrived| found(&arrived.wire)),
            "{encoding}"
        );
        gateway.settled().await;
        gateway.stop().await;
    }
}

/// Scenario: an exporter that names a `storage`, without an `ack`; its destination is down. While the gateway runs somebody looks into the
/// journal; then the destination is up.
/// Guarantees: clients are answered when their data is in the journal, and not when it is delivered: `stat` counts each request and `export`
/// writes it as soon as it is answered, and neither changes anything; in the end nothing waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_journal_can_be_looked_into() {
    let sink = Sink::start().await;
    sink.answer(|_| Answer::Http(503, None));
    let spool = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(&durable(&[("sink", &sink)], spool.path())).await;
    let journal = spool.path().join("logs.journal");
    let journal = journal.to_str().unwrap();
    let mut sent = Vec::new();
    for seed in 0..3 {
        sent.extend(send(&gateway, seed..seed + 1).await);
        let count = sent.len() as u64;
        let (code, stat, said) = Gateway::command(&["journal", "stat", journal]).await;
        assert_eq!(code, Some(0), "{said}");
        let waits = format!("{count} requests with {} items wait", count * ITEMS);
        assert!(stat.contains(&waits), "no {waits:?} in {stat}");
        let (code, json, said) = Gateway::command(&["journal", "export", journal]).await;
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(json.lines().count() as u64, count, "{json}");
    }
    sink.answer(|_| Answer::Take);
    sink.wait_for_same(Kind::Logs, &sent).await;
    gateway.stop().await;
    let (_, stat, _) = Gateway::command(&["journal", "stat", journal]).await;
    assert!(stat.contains("0 requests with 0 items wait"), "{stat}");
}
