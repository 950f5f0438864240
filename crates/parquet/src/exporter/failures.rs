//! Files that cannot be written: what was in them arrives once all the same.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_journal::testing::SimulatedDisk;
use sluice_journal::{CursorSpec, DiskSettings, Durability, Journal, Limits, OnFull};
use sluice_payload::{Payload, Tenants};
use sluice_pipeline::RetrySettings;
use sluice_telemetry::{DropReason, Registry};

use super::layout::{Layout, LayoutSettings};
use super::spool::Spool;
use super::store::Sent;
use super::tests::{ALL, TIME, all, bodies, names, open, payload};
use super::work::Work;
use super::{Delivery, Feed, ParquetExporter, ParquetExporterOptions, Target};
use crate::encode::repairs::{field, most_nested, nested_lists};

/// Lays numbers out again that were laid out before, and cuts: the rows that are written now.
fn again(layout: &mut Layout, numbers: std::ops::Range<u64>) -> Vec<String> {
    let mut ready = Vec::new();
    for number in numbers {
        let payload = payload(number, 2);
        layout
            .push(number, &payload, 0, Instant::now(), &mut ready)
            .unwrap();
    }
    layout.cut_all(0, &mut ready).unwrap();
    all(&ready)
}

/// A layout that has cut the rows of number 0, and failed to cut one of the two files that have those of number 1.
fn torn(directory: &Path) -> Layout {
    let (mut layout, _) = open(directory, true);
    let (mut ready, now) = (Vec::new(), Instant::now());
    layout.push(0, &payload(0, 2), 0, now, &mut ready).unwrap();
    layout.cut_all(0, &mut ready).unwrap();
    assert_eq!(ready.len(), 2);
    layout.push(1, &payload(1, 2), 0, now, &mut ready).unwrap();
    layout.spool.break_cuts();
    layout.cut_all(0, &mut ready).unwrap_err();
    assert_eq!(ready.len(), 2);
    layout
}

/// The line that a cut leaves which fails after it was written, and the first bytes of one that fails before.
fn write_line_of_torn(directory: &Path, whole: bool) {
    let cuts = directory.join("cuts");
    let mut text = std::fs::read_to_string(&cuts).unwrap();
    let known: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let name = names(directory)
        .into_iter()
        .filter_map(|name| Some(name.strip_suffix(".parquet")?.rsplit_once('~')?.1.to_owned() + ".parquet"))
        .find(|name| known.iter().all(|line| line["name"] != **name))
        .unwrap();
    let mut line = known.last().unwrap().clone();
    // The first file that is cut is that of the first hour.
    line["hour"] = known[1]["hour"].clone();
    (line["first"], line["last"], line["rows"]) = (1.into(), 1.into(), 1.into());
    line["name"] = name.into();
    let line = line.to_string() + "\n";
    text.push_str(if whole { &line } else { &line[..20] });
    std::fs::write(&cuts, text).unwrap();
}

/// Scenario: a file was written and could not be noted as cut; its line is not there, there in part, or there but not known to be on
/// the disk. Then either the process is killed, or it begins anew, and is killed after that, or goes on.
/// Guarantees: rows of the file are in one file in the end: in that one, if its line was whole and the process was killed before it
/// began anew; what was cut before is not written again.
#[test]
fn a_file_that_could_not_be_cut_is_written_anew() {
    for line in [None, Some(false), Some(true)] {
        for (recovers, dies) in [(false, true), (true, true), (true, false)] {
            let directory = tempfile::tempdir().unwrap();
            let mut layout = torn(directory.path());
            if let Some(whole) = line {
                write_line_of_torn(directory.path(), whole);
            }
            if recovers {
                layout.recover().unwrap();
            }
            let mut found: Vec<String> = Vec::new();
            if dies {
                drop(layout);
                let waiting;
                (layout, waiting) = open(directory.path(), true);
                found.extend(waiting.iter().flat_map(|file| bodies(&file.path)));
            } else {
                found.extend(["0.0".to_owned(), "0.1".to_owned()]);
            }
            found.extend(again(&mut layout, 0..3));
            found.sort();
            assert_eq!(
                found,
                ["0.0", "0.1", "1.0", "1.1", "2.0", "2.1"],
                "{line:?} {recovers} {dies}"
            );
        }
    }
}

/// Scenario: `cuts` is written anew before a line is added, and the process is killed in between.
/// Guarantees: the rows of that file come again: no mark was there before its line.
#[test]
fn a_kill_while_cuts_are_written_anew_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (mut layout, _) = open(directory.path(), true);
    let (mut ready, now) = (Vec::new(), Instant::now());
    layout.push(0, &payload(0, 1), 0, now, &mut ready).unwrap();
    layout.spool.compact_at_next_cut();
    layout.cut_all(0, &mut ready).unwrap();
    let cuts = directory.path().join("cuts");
    let text = std::fs::read_to_string(&cuts).unwrap();
    let before_the_line = text.lines().count() - 1;
    let text: String = text.split_inclusive('\n').take(before_the_line).collect();
    std::fs::write(&cuts, text).unwrap();
    drop(layout);
    let (mut layout, waiting) = open(directory.path(), true);
    assert!(waiting.is_empty());
    let laid = layout.push(0, &payload(0, 1), 0, now, &mut Vec::new()).unwrap();
    assert_eq!(laid.known, []);
}

/// Scenario: a file could not be cut, and `cuts` cannot be written anew: as on a full disk, as long as what is unfinished has it. Then
/// it can.
/// Guarantees: what is unfinished goes first, and the file that was being cut only after the line; then all of it is over.
#[test]
fn space_of_unfinished_files_is_given_back_first() {
    let directory = tempfile::tempdir().unwrap();
    let mut layout = torn(directory.path());
    let count = |extension: &str| {
        let names = names(directory.path());
        names.iter().filter(|name| name.ends_with(extension)).count()
    };
    assert_eq!((count(".unfinished"), count(".parquet")), (1, 3));
    let in_the_way = directory.path().join("cuts.new");
    std::fs::create_dir(&in_the_way).unwrap();
    layout.recover().unwrap_err();
    assert_eq!((count(".unfinished"), count(".parquet")), (0, 3));
    std::fs::remove_dir(&in_the_way).unwrap();
    layout.recover().unwrap();
    assert_eq!(count(".parquet"), 2);
    assert_eq!(again(&mut layout, 0..2), ["1.0", "1.1"]);
}

/// Scenario: two files wait. `cuts` is removed by hand, or a line of it is damaged, or what is in the spool cannot be looked at; then
/// it is written anew. Then a restart.
/// Guarantees: the lines of files that wait stay: both are sent under their names, and their rows are not written again. What cannot
/// be looked at is an error.
#[test]
fn what_waits_keeps_its_line() {
    for damage in ["removed", "damaged", "unseen"] {
        let directory = tempfile::tempdir().unwrap();
        let (mut layout, _) = open(directory.path(), true);
        let (mut ready, now) = (Vec::new(), Instant::now());
        layout.push(0, &payload(0, 2), 0, now, &mut ready).unwrap();
        layout.cut_all(0, &mut ready).unwrap();
        let cuts = directory.path().join("cuts");
        match damage {
            "removed" => std::fs::remove_file(&cuts).unwrap(),
            "damaged" => {
                let text = std::fs::read_to_string(&cuts).unwrap();
                std::fs::write(&cuts, text.replacen("{\"table\"", "table", 1)).unwrap();
            }
            _ => {
                // A link that leads to itself: an error that is not "not found", for anybody.
                let file = &ready[0].finished.path;
                let aside = directory.path().join("aside");
                std::fs::rename(file, &aside).unwrap();
                std::os::unix::fs::symlink(file, file).unwrap();
                layout.recover().unwrap_err();
                std::fs::rename(&aside, file).unwrap();
            }
        }
        layout.recover().unwrap();
        drop(layout);
        let (mut layout, waiting) = open(directory.path(), true);
        assert_eq!(waiting.len(), 2, "{damage}");
        assert_eq!(again(&mut layout, 0..1), [""; 0], "{damage}");
    }
}

/// Scenario: a line of `cuts` is damaged, another one follows it; then a restart.
/// Guarantees: that is an error which names the line; nothing is removed.
#[test]
fn a_damaged_line_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let (mut layout, _) = open(directory.path(), true);
    let mut ready = Vec::new();
    layout
        .push(0, &payload(0, 2), 0, Instant::now(), &mut ready)
        .unwrap();
    layout.cut_all(0, &mut ready).unwrap();
    drop(layout);
    let cuts = directory.path().join("cuts");
    let text = std::fs::read_to_string(&cuts).unwrap();
    std::fs::write(&cuts, text.replacen("{\"table\"", "table", 1)).unwrap();
    let error = Spool::open(directory.path(), ALL, &Tenants::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("line 2 of cuts"), "{error}");
    assert!(ready.iter().all(|file| file.finished.path.exists()));
}

/// A journal with one cursor, in memory or on disk with next to nothing kept in memory.
pub(super) fn journal(directory: Option<&Path>) -> (Journal, sluice_journal::Cursor) {
    let spec = CursorSpec {
        exporter: "parquet".to_owned(),
        limits: Limits::default(),
        on_full: OnFull::Refuse,
    };
    let (journal, mut cursors) = match directory {
        None => Journal::memory("logs", vec![spec]),
        Some(directory) => {
            let settings = DiskSettings {
                kept_bytes: 0,
                ..DiskSettings::new(directory, Tenants::default())
            };
            let (journal, cursors, _) = Journal::disk("logs", vec![spec], settings).unwrap();
            (journal, cursors)
        }
    };
    (journal, cursors.remove(0))
}

pub(super) async fn append(journal: &Journal, payload: Payload) {
    let space = journal.try_reserve(journal.cost(&payload)).unwrap();
    let appended = journal.append(space, Arc::new(payload), None, Durability::Synced);
    appended.persisted().await.unwrap();
}

/// A delivery from `cursor` to `out`, with its spool in `spool`.
pub(super) fn delivery(
    cursor: sluice_journal::Cursor,
    directory: &Path,
    durable: bool,
    max_requests: u64,
    registry: &Registry,
) -> Delivery {
    let target = Target::Directory(directory.join("out"));
    delivery_to(target, cursor, directory, durable, max_requests, registry)
}

pub(super) fn delivery_to(
    target: Target,
    cursor: sluice_journal::Cursor,
    directory: &Path,
    durable: bool,
    max_requests: u64,
    registry: &Registry,
) -> Delivery {
    let retry = RetrySettings::default();
    retrying_delivery(target, retry, cursor, directory, durable, max_requests, registry)
}

/// One that gives up as `retry` says, and tries again at once.
pub(super) fn retrying_delivery(
    target: Target,
    retry: RetrySettings,
    cursor: sluice_journal::Cursor,
    directory: &Path,
    durable: bool,
    max_requests: u64,
    registry: &Registry,
) -> Delivery {
    let options = ParquetExporterOptions {
        target,
        layout: LayoutSettings::default(),
        max_uploads: 2,
        max_spool_bytes: 1 << 30,
        retry: RetrySettings {
            initial_interval: Duration::from_millis(1),
            max_interval: Duration::from_millis(1),
            ..retry
        },
    };
    let exporter = ParquetExporter::new("parquet", options, registry).unwrap();
    let feed = Feed {
        spool: directory.join("spool"),
        tenants: Tenants::default(),
        numbers_go_on: durable,
        max_bytes: u64::MAX,
        max_items: u64::MAX,
        max_requests,
    };
    exporter.open(cursor, feed, registry).unwrap()
}

/// The bodies at the destination.
pub(super) fn rows(out: &Path) -> Vec<String> {
    let mut rows = Vec::new();
    for hour in 21..24 {
        let partition = out.join(format!("logs/dt=2025-11-21/hour={hour}"));
        rows.extend(
            names(&partition)
                .iter()
                .flat_map(|name| bodies(&partition.join(name))),
        );
    }
    rows.sort();
    rows
}

pub(super) fn value(registry: &Registry, name: &str) -> String {
    let metrics = registry.render();
    let line = metrics.lines().find(|line| line.starts_with(name)).unwrap();
    line.rsplit_once(' ').unwrap().1.to_owned()
}

/// Scenario: one of ten payloads makes the thread that writes it panic, each time; queues in memory and on disk.
/// Guarantees: it is tried three times, then given up as faulty and counted; all others arrive once, and what was before it is written
/// anew only once.
#[tokio::test]
async fn a_payload_that_always_fails_is_given_up() {
    for durable in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let queue = durable.then(|| directory.path().join("queue"));
        let (journal, cursor) = journal(queue.as_deref());
        let registry = Registry::default();
        let mut delivery = delivery(cursor, directory.path(), durable, u64::MAX, &registry);
        delivery.layout.as_mut().unwrap().panics_at_items = Some(2);
        for number in 0..10 {
            let hours = if number == 5 { 2 } else { 3 };
            append(&journal, payload(number, hours)).await;
        }
        let run = tokio::spawn(delivery.run());
        journal.drained().await;
        journal.close();
        run.await.unwrap();
        let expected: Vec<String> = (0..10)
            .filter(|number| *number != 5)
            .flat_map(|number| (0..3).map(move |hour| format!("{number}.{hour}")))
            .collect();
        assert_eq!(
            rows(&directory.path().join("out")),
            expected,
            "durable: {durable}"
        );
        let account = journal.reports(Instant::now())[0].total();
        assert!(account.balanced());
        assert_eq!((account.delivered, account.queued), (27, 0));
        assert_eq!(account.dropped[DropReason::PayloadFault as usize], 2);
        assert_eq!(value(&registry, "sluice_parquet_failed_writes_total{"), "3");
        assert_eq!(value(&registry, "sluice_parquet_write_failing{"), "0");
    }
}

/// Scenario: files must be written anew, and the queue's segments were cut short meanwhile, so that none of it can be read.
/// Guarantees: that is tried ten times a payload; then what cannot be read is settled as damaged, and the journal has counted it.
#[tokio::test]
async fn what_can_never_be_read_again_is_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let queue = directory.path().join("queue");
    {
        let (journal, _) = journal(Some(&queue));
        append(&journal, payload(0, 3)).await;
        journal.close();
    }
    // What an earlier process left is nowhere in memory.
    let (journal, cursor) = journal(Some(&queue));
    let registry = Registry::default();
    let mut delivery = delivery(cursor, directory.path(), true, u64::MAX, &registry);
    delivery.layout.as_mut().unwrap().panics_at_items = Some(3);
    let entry = delivery.cursor.next().await.unwrap();
    let segments = queue.join("logs.journal");
    for segment in names(&segments).iter().filter(|name| name.ends_with(".segment")) {
        let segment = std::fs::OpenOptions::new()
            .write(true)
            .open(segments.join(segment));
        segment.unwrap().set_len(64).unwrap();
    }
    let (entries, _) = delivery.gather(entry).await;
    assert!(delivery.work(Work::Lay(entries, false)).await);
    let account = journal.reports(Instant::now())[0].total();
    assert!(account.balanced());
    assert_eq!(account.dropped[DropReason::Damaged as usize], 3);
    assert_eq!(journal.disk_report().unwrap().damaged, 1);
    assert_eq!(value(&registry, "sluice_parquet_failed_writes_total{"), "11");
}

/// Scenario: less is free than new rows need, more than what is open: before a payload is laid out, and after. Then next to nothing is
/// free for a while.
/// Guarantees: what is open is cut and settled, which gives the queue's space back, and new rows are cut at once; with too little
/// for that nothing is written, the gauge says so, and it goes on when there is space.
#[tokio::test]
async fn a_nearly_full_disk_settles_what_is_open() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, cursor) = journal(None);
    let registry = Registry::default();
    let mut delivery = delivery(cursor, directory.path(), false, u64::MAX, &registry);
    let disk = SimulatedDisk::default();
    delivery.filesystem = Arc::new(disk.clone());
    append(&journal, payload(0, 3)).await;
    let entry = delivery.cursor.next().await.unwrap();
    let (entries, _) = delivery.gather(entry).await;
    assert!(delivery.work(Work::Lay(entries, false)).await);
    assert_eq!(delivery.layout.as_ref().unwrap().open_files(), 3);

    disk.set_capacity_bytes(200 << 20);
    append(&journal, payload(1, 3)).await;
    let entry = delivery.cursor.next().await.unwrap();
    let (entries, _) = delivery.gather(entry).await;
    assert!(delivery.work(Work::Lay(entries, false)).await);
    journal.drained().await;
    assert_eq!(rows(&directory.path().join("out")).len(), 6);

    disk.set_capacity_bytes(0);
    append(&journal, payload(2, 3)).await;
    journal.close();
    let run = tokio::spawn(delivery.run());
    while value(&registry, "sluice_parquet_write_failing{") == "0" {
        tokio::task::yield_now().await;
    }
    assert_eq!(rows(&directory.path().join("out")).len(), 6);
    disk.set_capacity_bytes(u64::MAX);
    run.await.unwrap();
    assert_eq!(rows(&directory.path().join("out")).len(), 9);
    assert_eq!(value(&registry, "sluice_parquet_write_failing{"), "0");
}

/// Scenario: a queue in memory, and one on disk. The file of the second hour is on a device that is full when it is written; one of
/// the others has been cut by then, one has not.
/// Guarantees: without a restart every row is in one file at the destination, all items are settled as delivered, the failure is
/// counted, and then it is said that nothing fails any more.
#[tokio::test]
async fn what_could_not_be_written_is_written_anew() {
    const REQUESTS: u64 = 20;
    for durable in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (out, spool) = (directory.path().join("out"), directory.path().join("spool"));
        let queue = durable.then(|| directory.path().join("queue"));
        let (journal, cursor) = journal(queue.as_deref());
        let registry = Registry::default();
        let delivery = delivery(cursor, directory.path(), durable, REQUESTS / 2, &registry);
        let of_process = if durable { spool } else { spool.join("0") };
        // Whatever the queue's first number is.
        for first in 0..REQUESTS {
            let name = format!("logs~dt=2025-11-21~hour=22~{first}.unfinished");
            std::os::unix::fs::symlink("/dev/full", of_process.join(name)).unwrap();
        }
        for number in 0..REQUESTS {
            append(&journal, payload(number, 3)).await;
        }
        let run = tokio::spawn(delivery.run());
        journal.drained().await;
        journal.close();
        run.await.unwrap();

        let rows = rows(&out);
        let mut expected: Vec<String> = (0..REQUESTS)
            .flat_map(|number| (0..3).map(move |hour| format!("{number}.{hour}")))
            .collect();
        expected.sort();
        assert_eq!(rows, expected, "durable: {durable}");
        let account = journal.reports(Instant::now())[0].total();
        assert!(account.balanced());
        assert_eq!((account.delivered, account.queued), (REQUESTS * 3, 0));
        assert_eq!(value(&registry, "sluice_parquet_failed_writes_total{"), "1");
        assert_eq!(value(&registry, "sluice_parquet_write_failing{"), "0");
    }
}

/// Scenario: shallow validation has let in a log record with lists in each other, a hundred thousand of them, as its body and as an
/// attribute; the queue is on disk.
/// Guarantees: the process lives, the record arrives as far as it can be written, what is not written of it is counted, and rows
/// after it arrive.
#[tokio::test]
async fn deep_nesting_harms_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, cursor) = journal(Some(&directory.path().join("queue")));
    let registry = Registry::default();
    let delivery = delivery(cursor, directory.path(), true, 2, &registry);
    let lists = nested_lists(100_000);
    let attribute = [field(1, b"key"), field(2, &lists)].concat();
    let time = [&[1 << 3 | 1][..], &TIME.to_le_bytes()].concat();
    let record = [time, field(5, &lists), field(6, &attribute)].concat();
    let deep = Payload {
        body: field(1, &field(2, &field(2, &record))).into(),
        ..payload(0, 1)
    };
    append(&journal, deep).await;
    append(&journal, payload(1, 3)).await;
    let run = tokio::spawn(delivery.run());
    journal.drained().await;
    journal.close();
    run.await.unwrap();
    let expected = ["1.0", "1.1", "1.2", &most_nested()];
    assert_eq!(rows(&directory.path().join("out")), expected);
    let account = journal.reports(Instant::now())[0].total();
    assert!(account.balanced());
    assert_eq!((account.delivered, account.queued), (4, 0));
    let metrics = registry.render();
    let repaired =
        |line: &&str| line.starts_with("sluice_parquet_repairs_total") && line.contains("deep_value");
    assert!(
        metrics.lines().find(repaired).unwrap().ends_with(" 2"),
        "{metrics}"
    );
}

/// Scenario: files have been sent, and the process is killed before the queue hears of it: before they are gone from the spool, and
/// after. Then it starts again with the same queue.
/// Guarantees: the destination has the same names as before, each row is in one file, and all of them are settled as delivered.
#[tokio::test]
async fn a_kill_between_sending_and_settling_sends_nothing_twice() {
    for removed in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (queue, out) = (directory.path().join("queue"), directory.path().join("out"));
        let sent = {
            let (journal, cursor) = journal(Some(&queue));
            let mut killed = delivery(cursor, directory.path(), true, u64::MAX, &Registry::default());
            append(&journal, payload(0, 3)).await;
            let entry = killed.cursor.next().await.unwrap();
            let layout = killed.layout.as_mut().unwrap();
            let mut ready = Vec::new();
            layout.lay(entry.seq, &entry.payload, Instant::now()).unwrap();
            layout.cut_all(entry.seq, &mut ready).unwrap();
            for file in ready {
                let sent = killed.shared.exporter.0.store.send(&file.finished).await;
                assert!(matches!(sent, Sent::There), "{sent:?}");
                if removed {
                    std::fs::remove_file(&file.finished.path).unwrap();
                }
            }
            journal.close();
            all_names(&out)
        };
        assert_eq!(sent.len(), 3);
        let (journal, cursor) = journal(Some(&queue));
        let registry = Registry::default();
        let delivery = delivery(cursor, directory.path(), true, u64::MAX, &registry);
        let run = tokio::spawn(delivery.run());
        journal.drained().await;
        journal.close();
        run.await.unwrap();
        assert_eq!(all_names(&out), sent, "removed: {removed}");
        assert_eq!(rows(&out), ["0.0", "0.1", "0.2"]);
        let account = journal.reports(Instant::now())[0].total();
        assert!(account.balanced());
        assert_eq!((account.delivered, account.queued), (3, 0));
    }
}

/// The names at the destination, by their hour.
fn all_names(out: &Path) -> Vec<Vec<String>> {
    let hours = (21..24).map(|hour| names(&out.join(format!("logs/dt=2025-11-21/hour={hour}"))));
    hours.collect()
}
