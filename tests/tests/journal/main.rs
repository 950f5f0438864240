//! Queues on disk as an operator meets them: outages, dead letters, damage, and the commands that look into them.

#![allow(clippy::unwrap_used, reason = "tests")]

mod laggards;
mod names;
mod process;
mod refusals;
mod starts;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_tests::{
    Answer, Config, Gateway, Kind, Sink, Volume, code, eventually, frame, grpc_call, items_of, post, sample,
    skipped,
};

/// Items in one [`sample`].
const ITEMS: u64 = 50;

const HEADERS: [(&str, &str); 1] = [("content-type", "application/x-protobuf")];

fn durable(sinks: &[(&str, &Sink)], spool: &Path) -> Config {
    let queue = "sending_queue: {storage: file_storage, batch: {flush_timeout: 5ms, min_size: 1}}";
    let config = Config::new()
        .signals(&["logs"])
        .extension("file_storage", &format!("directory: {}", spool.display()));
    sinks.iter().fold(config, |config, (name, sink)| {
        config.http_exporter(name, sink, queue)
    })
}

async fn send(gateway: &Gateway, seeds: std::ops::Range<u64>) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    for seed in seeds {
        let body = sample(Kind::Logs, seed);
        let reply = post(gateway.http(), "/v1/logs", &HEADERS, body.clone()).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        sent.push(body);
    }
    sent
}

/// Scenario: the credentials of one destination expire (401) while the other takes everything; SIGKILL; a start; then they are
/// renewed.
/// Guarantees: the healthy one has everything once; the backlog of the other is held through the kill and arrives whole.
#[tokio::test(flavor = "multi_thread")]
async fn expired_credentials_lose_nothing() {
    let (healthy, expired) = (Sink::start().await, Sink::start().await);
    let is_renewed = Arc::new(AtomicBool::new(false));
    let renewed = is_renewed.clone();
    expired.answer(move |_| match renewed.load(Ordering::Relaxed) {
        true => Answer::Take,
        false => Answer::Http(401, None),
    });
    let spool = tempfile::tempdir().unwrap();
    let config = durable(&[("healthy", &healthy), ("expired", &expired)], spool.path());
    let gateway = Gateway::start(&config).await;
    let mut sent = send(&gateway, 0..20).await;
    healthy.wait_for_same(Kind::Logs, &sent).await;
    gateway.says("the destination refuses everything").await;
    gateway.kill().await;

    let gateway = Gateway::start(&config).await;
    sent.extend(send(&gateway, 20..30).await);
    gateway.says("the destination refuses everything").await;
    is_renewed.store(true, Ordering::Relaxed);
    gateway.settled().await;
    expired.wait_for_same(Kind::Logs, &sent).await;
    healthy.wait_for_same(Kind::Logs, &sent).await;
    for exporter in ["otlphttp/healthy", "otlphttp/expired"] {
        assert!(gateway.account(exporter).await.dropped.is_empty());
    }
    gateway.stop().await;
}

/// Scenario: a destination that refuses one of ten requests for good (400); then somebody mends it, looks at the dead letter
/// and sends it again.
/// Guarantees: the other nine arrive, the tenth is counted as `dead_letter`, `journal stat` shows it with the destination's
/// words, `journal export` writes it, and sends it where one says.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_kept_and_sent_again() {
    let sink = Sink::start().await;
    let mark = items_of(Kind::Logs, &sample(Kind::Logs, 7));
    sink.answer(move |arrived| {
        let is_bad = arrived
            .items()
            .iter()
            .any(|item| mark.iter().any(|bad| bad == item));
        if is_bad {
            Answer::Http(400, None)
        } else {
            Answer::Take
        }
    });
    let spool = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(&durable(&[("sink", &sink)], spool.path())).await;
    let mut sent = send(&gateway, 0..10).await;
    gateway.settled().await;
    let account = gateway.account("otlphttp/sink").await;
    assert_eq!(account.dropped.get("dead_letter"), Some(&ITEMS), "{account:?}");
    let metrics = gateway.metrics().await;
    let removed = "sluice_dead_letters_removed_items_total{pipeline=\"logs\"} 0";
    assert!(metrics.text().contains(removed), "{}", metrics.text());
    let bad = sent.remove(7);
    sink.wait_for_same(Kind::Logs, &sent).await;

    let dead = spool.path().join("logs.dead");
    let dead = dead.to_str().unwrap();
    let (code, stat, _) = Gateway::command(&["journal", "stat", dead]).await;
    assert_eq!(code, Some(0));
    assert!(
        stat.contains("dead letters of otlphttp/sink") && stat.contains("400"),
        "{stat}"
    );
    let (code, json, said) = Gateway::command(&["journal", "export", dead]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(
        json.lines().all(|line| line.starts_with("{\"resourceLogs\"")),
        "{json}"
    );
    gateway.stop().await;

    let mended = Sink::start().await;
    let to = format!("http://{}", mended.address());
    let (code, _, said) = Gateway::command(&["journal", "export", dead, "--to", &to]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&format!("{ITEMS} items; 0 refused")), "{said}");
    mended.wait_for_same(Kind::Logs, &[bad]).await;
}

/// Scenario: a journal with a backlog is damaged while the gateway is stopped, and repaired.
/// Guarantees: `journal verify` fails and says where, after `journal repair` it finds nothing, and the next start
/// delivers all but what was hit.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_journal_is_verified_and_repaired() {
    let sink = Sink::start().await;
    sink.answer(|_| Answer::Http(503, None));
    let spool = tempfile::tempdir().unwrap();
    let config = durable(&[("sink", &sink)], spool.path());
    let gateway = Gateway::start(&config).await;
    send(&gateway, 0..10).await;
    gateway.terminate();
    assert_eq!(gateway.ended().await.code, Some(0));

    let directory = spool.path().to_str().unwrap();
    let verify = ["journal", "verify", directory];
    let (code, text, _) = Gateway::command(&verify).await;
    assert_eq!(code, Some(0), "{text}");
    let journal = std::fs::read_dir(spool.path().join("logs.journal")).unwrap();
    let segment = journal
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "segment"))
        .unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let (code, text, _) = Gateway::command(&verify).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("are damaged"), "{text}");

    let (code, text, said) = Gateway::command(&["journal", "repair", directory]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(text.contains("written anew with 9 requests"), "{text}");
    let (code, text, _) = Gateway::command(&verify).await;
    assert_eq!(code, Some(0), "{text}");
    sink.answer(|_| Answer::Take);
    let gateway = Gateway::start(&config).await;
    gateway.settled().await;
    let account = gateway.account("otlphttp/sink").await;
    assert_eq!(
        (account.recovered, account.delivered),
        (9 * ITEMS, 9 * ITEMS),
        "{account:?}"
    );
    gateway.stop().await;
}

/// Scenario: the volume of the queue fills up while the destination is down; then the destination comes back.
/// Guarantees: the level of admission rises before anything is refused, because of the disk, and falls with what is delivered.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_fills_up_raises_the_level() {
    let volume = match Volume::mount(4) {
        Ok(volume) => volume,
        Err(reason) => return skipped("a small file system", &reason),
    };
    let sink = Sink::start().await;
    sink.answer(|_| Answer::Http(503, None));
    let never = "{warning: never, moderate: never, critical: never, emergency: never}";
    let config = durable(&[("sink", &sink)], volume.path()).admission(&format!(
        "disk: {{warning: 20%}}, budget: {never}, queue_bytes: {never}, queue_age: {never}, export_latency: {never}"
    ));
    let gateway = Gateway::start(&config).await;
    let level = async || gateway.metrics().await.sum("sluice_admission_level", &[]);
    let mut seeds = 0..10_000_u64;
    while gateway.metrics().await.sum("sluice_journal_bytes", &[]) < f64::from(1 << 20) {
        let seed = seeds.next().expect("a MiB is never there");
        send(&gateway, seed..seed + 1).await;
    }
    eventually("the level rises", || async {
        (level().await == 1.0).then_some(())
    })
    .await;
    gateway.says("cause=disk").await;
    sink.answer(|_| Answer::Take);
    gateway.settled().await;
    eventually("the level falls", || async {
        (level().await == 0.0).then_some(())
    })
    .await;
    gateway.stop().await;
}

/// Scenario: the volume of the queue, smaller than a segment, fills up while the destination is down; then the destination
/// comes back. Twice.
/// Guarantees: on the full volume requests are refused over HTTP and gRPC with a delay, and `/ready` says so; the same
/// process takes requests again when what is stored was delivered; everything that was acknowledged arrives once.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_and_recovers() {
    let volume = match Volume::mount(2) {
        Ok(volume) => volume,
        Err(reason) => return skipped("a small file system", &reason),
    };
    let sink = Sink::start().await;
    let config = durable(&[("sink", &sink)], volume.path());
    let gateway = Gateway::start(&config).await;
    let mut sent = Vec::new();
    let mut seeds = 0..;
    for _ in 0..2 {
        sink.answer(|_| Answer::Http(503, None));
        let refused = loop {
            let body = sample(Kind::Logs, seeds.next().unwrap());
            let reply = post(gateway.http(), "/v1/logs", &HEADERS, body.clone()).await;
            if reply.status != 200 {
                break reply;
            }
            sent.push(body);
            assert!(sent.len() < 10_000, "2 MiB are never full");
        };
        assert_eq!(refused.status, 503, "{refused:?}");
        assert!(refused.header("retry-after").is_some(), "{refused:?}");
        // What is smaller may still fit.
        let refused = loop {
            let body = sample(Kind::Logs, seeds.next().unwrap());
            let reply = grpc_call(gateway.grpc(), Kind::Logs.grpc_path(), &[], frame(0, &body)).await;
            if reply.code() != code::OK {
                break reply;
            }
            sent.push(body);
        };
        assert_eq!(refused.code(), code::UNAVAILABLE, "{refused:?}");
        assert!(refused.retry_delay().is_some(), "{refused:?}");
        assert_eq!(gateway.probe("/ready").await, 503);

        sink.answer(|_| Answer::Take);
        gateway.settled().await;
        let body = sample(Kind::Logs, seeds.next().unwrap());
        eventually("requests are taken again", || async {
            let reply = post(gateway.http(), "/v1/logs", &HEADERS, body.clone()).await;
            (reply.status == 200).then_some(())
        })
        .await;
        sent.push(body);
        assert_eq!(gateway.probe("/ready").await, 200);
    }
    gateway.settled().await;
    sink.wait_for_same(Kind::Logs, &sent).await;
    assert!(gateway.account("otlphttp/sink").await.dropped.is_empty());
    gateway.stop().await;
}
