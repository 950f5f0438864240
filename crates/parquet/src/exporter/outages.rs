//! What the metrics say while a store does not take files.

use std::time::{Duration, SystemTime};

use sluice_pipeline::RetrySettings;
use sluice_telemetry::Registry;

use super::Target;
use super::failures::{append, delivery_to, journal, retrying_delivery, value};
use super::s3::S3Settings;
use super::s3::tests::settings;
use super::stub::Stub;
use super::tests::{open, payload};

const AGE: &str = "sluice_parquet_oldest_unflushed_seconds{";
const LAG: &str = "sluice_parquet_upload_lag_seconds{";
const REFUSED: &str = "sluice_parquet_refused{";
const FAILED: &str = "sluice_parquet_failed_uploads_total{";
const SPOOLED: &str = "sluice_parquet_spooled_bytes{";

fn target(store: &Stub) -> Target {
    Target::S3(Box::new(S3Settings {
        endpoint: Some(store.endpoint()),
        timeout: Duration::from_secs(10),
        ..settings()
    }))
}

fn number(registry: &Registry, name: &str) -> f64 {
    value(registry, name).parse().unwrap()
}

async fn until(what: impl Fn() -> bool) {
    let happens = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), happens)
        .await
        .expect("it never happens");
}

/// Both ages now, once they have grown beyond what they were.
async fn grown(registry: &Registry, [age, lag]: [f64; 2]) -> [f64; 2] {
    until(|| number(registry, AGE) > age && number(registry, LAG) > lag).await;
    [number(registry, AGE), number(registry, LAG)]
}

/// Scenario: a store answers 503, then 403 to every attempt, then takes files; nothing new comes in until it has answered 403 for a while, then another file.
/// Guarantees: the age of the oldest row and the upload lag grow all the while; the gauge counts the files that wait for somebody to mend something, and only those; once
/// the file has arrived nothing is old and nothing waits.
#[tokio::test]
async fn ages_grow_through_an_outage() {
    let directory = tempfile::tempdir().unwrap();
    let store = Stub::start(Vec::new(), 503).await;
    let (journal, cursor) = journal(Some(&directory.path().join("queue")));
    let registry = Registry::default();
    let delivery = delivery_to(target(&store), cursor, directory.path(), true, 1, &registry);
    assert_eq!((number(&registry, AGE), number(&registry, LAG)), (0.0, 0.0));
    append(&journal, payload(0, 1)).await;
    let run = tokio::spawn(delivery.run());
    until(|| number(&registry, FAILED) > 0.0).await;
    let ages = grown(&registry, [0.0; 2]).await;
    let ages = grown(&registry, ages).await;
    assert_eq!(value(&registry, REFUSED), "0");
    assert!(number(&registry, SPOOLED) > 0.0);

    store.answer_puts(403);
    until(|| value(&registry, REFUSED) == "1").await;
    let failed = number(&registry, FAILED);
    let ages = grown(&registry, ages).await;
    until(|| number(&registry, FAILED) > failed + 1.0).await;
    grown(&registry, ages).await;
    assert_eq!(value(&registry, REFUSED), "1");
    append(&journal, payload(1, 1)).await;
    until(|| value(&registry, REFUSED) == "2").await;

    store.answer_puts(200);
    journal.drained().await;
    until(|| number(&registry, AGE) == 0.0 && number(&registry, LAG) == 0.0).await;
    assert_eq!(number(&registry, SPOOLED), 0.0);
    assert_eq!(value(&registry, REFUSED), "0");
    journal.close();
    run.await.unwrap();
}

/// Scenario: an earlier process left a file that was cut an hour ago, and the store takes nothing.
/// Guarantees: the ages say so at once, before any row is read again.
#[tokio::test]
async fn what_an_earlier_process_left_is_old() {
    let directory = tempfile::tempdir().unwrap();
    let spool = directory.path().join("spool");
    {
        let (mut layout, _) = open(&spool, true);
        let mut ready = Vec::new();
        let now = std::time::Instant::now();
        layout.push(0, &payload(0, 1), 0, now, &mut ready).unwrap();
        layout.cut_all(0, &mut ready).unwrap();
        let file = std::fs::File::open(&ready[0].finished.path).unwrap();
        let hour_ago = SystemTime::now() - Duration::from_secs(3600);
        file.set_modified(hour_ago).unwrap();
    }
    let store = Stub::start(Vec::new(), 503).await;
    let (_journal, cursor) = journal(None);
    let registry = Registry::default();
    let mut delivery = delivery_to(target(&store), cursor, directory.path(), true, 1, &registry);
    delivery.send_ready();
    for name in [AGE, LAG] {
        let age = number(&registry, name);
        assert!((3600.0..3700.0).contains(&age), "{name} {age}");
    }
}

/// Scenario: a file's name is taken, and the store does not say by what, for longer than a failing file is kept; then it takes the file.
/// Guarantees: the file is not given up: most likely it is there. Nothing is dropped.
#[tokio::test]
async fn what_cannot_be_compared_is_not_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let store = Stub::start(Vec::new(), 412).await;
    store.answer_gets(500);
    let (journal, cursor) = journal(None);
    let registry = Registry::default();
    let retry = RetrySettings {
        max_elapsed_time: Some(Duration::ZERO),
        ..RetrySettings::default()
    };
    let delivery = retrying_delivery(
        target(&store),
        retry,
        cursor,
        directory.path(),
        false,
        1,
        &registry,
    );
    append(&journal, payload(0, 1)).await;
    let run = tokio::spawn(delivery.run());
    until(|| number(&registry, FAILED) > 1.0).await;
    assert_eq!(value(&registry, REFUSED), "0");
    store.answer_puts(200);
    journal.drained().await;
    journal.close();
    run.await.unwrap();
    let account = journal.reports(std::time::Instant::now())[0].total();
    assert_eq!((account.delivered, account.queued), (1, 0));
}
