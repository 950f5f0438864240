//! What a start reads, and what it makes of what it does not read.

use std::path::Path;

use super::super::corruption::{DIRECTORY, append, open_with, read, settings, settle};
use super::super::segment::SegmentId;
use super::super::{Next, Recovered, inspect, journals};
use crate::testing::{Fault, Operation, SimulatedDisk};
use crate::{CursorSpec, Filesystem, Journal, Limits, OnFull};

const PAYLOADS: u64 = 400;

/// Of a segment that is not read: its header, its trailer and its footer.
const ENDS_BYTES: u64 = 400;

fn open(disk: &SimulatedDisk, exporters: &[&str]) -> (Journal, Recovered) {
    let specs = exporters.iter().map(|exporter| CursorSpec {
        exporter: (*exporter).to_owned(),
        limits: Limits::default(),
        on_full: OnFull::Refuse,
    });
    open_with(disk, specs.collect())
}

/// The sizes of its segments, the oldest first.
fn segments(disk: &SimulatedDisk) -> Vec<u64> {
    let mut names = disk.list(Path::new(DIRECTORY)).unwrap();
    names.retain(|name| SegmentId::parse(name).is_some());
    names.sort();
    let size = |name| disk.size_bytes(&Path::new(DIRECTORY).join(name)).unwrap();
    names.iter().map(size).collect()
}

/// Bytes read meanwhile.
fn reading<T>(disk: &SimulatedDisk, work: impl FnOnce() -> T) -> (T, u64) {
    let before = disk.read_bytes();
    let done = work();
    (done, disk.read_bytes() - before)
}

/// A journal of many segments, of which the first exporter has settled all but payload 0; then the process is killed.
fn with_one_stuck(disk: &SimulatedDisk, exporters: &[&str]) {
    let (journal, _) = open(disk, exporters);
    (0..PAYLOADS).for_each(|id| append(&journal, id));
    // The segments stay: as where the process goes just before they do.
    disk.fail(Operation::Remove, Fault::Io, usize::MAX);
    while let Some((seq, id)) = read(&journal) {
        if id != 0 {
            settle(&journal, seq);
        }
    }
    journal.turn();
    disk.mend();
    disk.kill();
}

/// Opens the journal; checks that no more was read than what has no footer, what is settled in part, and the ends of the others.
fn opened(disk: &SimulatedDisk, exporters: &[&str]) -> (Journal, Recovered) {
    let sizes = segments(disk);
    assert!(sizes.len() > 20, "{sizes:?}");
    let most = sizes[0] + sizes[sizes.len() - 1] + ENDS_BYTES * sizes.len() as u64;
    let total: u64 = sizes.iter().sum();
    assert!(3 * most < total, "{most} of {total}");
    let (opened, bytes) = reading(disk, || open(disk, exporters));
    let positions = 4 * 4096 * exporters.len() as u64;
    assert!(bytes <= most + positions, "{bytes}, not {most}, of {total}");
    opened
}

/// Scenario: a destination never answers to the first payload and takes all others, in many segments; the process is killed before they are
/// removed. The next one starts, and takes one payload more.
/// Guarantees: segments that are settled whole are read neither at the start nor after it; the first payload and the new one come, none of
/// the others; nothing counts as lost; the segments go.
#[test]
fn what_everybody_has_settled_is_not_read() {
    let disk = SimulatedDisk::default();
    with_one_stuck(&disk, &["a"]);
    let (journal, recovered) = opened(&disk, &["a"]);
    assert_eq!((recovered.records, recovered.lost, recovered.damaged), (1, 0, 0));
    append(&journal, PAYLOADS);
    let total: u64 = segments(&disk).iter().sum();
    let (came, bytes) = reading(&disk, || {
        std::iter::from_fn(|| read(&journal)).collect::<Vec<_>>()
    });
    let ids: Vec<u64> = came.iter().map(|(_, id)| *id).collect();
    assert_eq!(ids, [0, PAYLOADS]);
    assert!(bytes < total / 4, "{bytes} of {total}");
    settle(&journal, came[1].0);
    journal.turn();
    assert_eq!(
        segments(&disk).len(),
        2,
        "that of the first, and that which is written"
    );
    let report = journal.disk_report().unwrap();
    assert_eq!((report.lost, report.damaged), (0, 0));
    let account = journal.reports(std::time::Instant::now())[0].total();
    assert!(account.balanced() && account.queued == 1, "{account:?}");
}

/// Scenario: the same, and another exporter has taken nothing yet; one of the segments is damaged in its midst while nobody has the journal open.
/// Guarantees: the start does not read what one has settled and the other has not; the second exporter gets all but what is damaged, which is
/// lost to it and not to the first.
#[test]
fn what_one_has_settled_and_the_other_has_not_is_not_read_at_start() {
    let disk = SimulatedDisk::default();
    with_one_stuck(&disk, &["a", "b"]);
    let mut names = disk.list(Path::new(DIRECTORY)).unwrap();
    names.retain(|name| SegmentId::parse(name).is_some());
    names.sort();
    disk.damage(Path::new(DIRECTORY).join(&names[7]), |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    });
    let (journal, recovered) = opened(&disk, &["a", "b"]);
    assert_eq!(
        (recovered.records, recovered.lost, recovered.damaged),
        (PAYLOADS, 0, 0)
    );
    append(&journal, PAYLOADS);
    let ids: Vec<u64> = std::iter::from_fn(|| read(&journal)).map(|(_, id)| id).collect();
    assert_eq!(ids, [0, PAYLOADS]);

    let disk_side = journal.0.disk.as_ref().unwrap();
    let came = std::iter::from_fn(|| match disk_side.next(&journal.0, 1) {
        Next::Ready(entry) => Some(entry.seq),
        _ => None,
    });
    assert_eq!(came.count() as u64, PAYLOADS);
    let report = journal.disk_report().unwrap();
    assert_eq!((report.lost, report.damaged), (1, 1), "{report:?}");
    let reports = journal.reports(std::time::Instant::now());
    let dropped: Vec<u64> = reports
        .iter()
        .map(|report| report.total().dropped_total())
        .collect();
    assert_eq!(dropped, [0, 1]);
}

/// Scenario: one exporter has settled all but a request, another one nothing; a third one is configured in the place of both. Then a start more.
/// Guarantees: what each of the two had not settled is set aside and said once, by its id and its number of requests, as a journal in which
/// nothing is wrong; the third one gets what comes from then on.
#[test]
fn what_waits_for_exporters_that_are_gone_is_set_aside() {
    let disk = SimulatedDisk::default();
    with_one_stuck(&disk, &["otlphttp/a", "b"]);
    let (journal, recovered) = open(&disk, &["c"]);
    let left: Vec<_> = (recovered.left.iter())
        .map(|one| (&*one.exporter, one.requests, one.directory.to_str().unwrap()))
        .collect();
    let (of_a, of_b) = ("/spool/logs~otlphttp%2Fa.journal", "/spool/logs~b.journal");
    assert_eq!(left, [("b", PAYLOADS, of_b), ("otlphttp/a", 1, of_a)]);
    assert_eq!(recovered.records, 0);
    append(&journal, PAYLOADS);
    assert_eq!(read(&journal).map(|(_, id)| id), Some(PAYLOADS));
    drop(journal);
    disk.kill();
    let (_, recovered) = open(&disk, &["c"]);
    assert_eq!(recovered.left, []);
    assert_eq!(journals(&disk, Path::new("/spool")).unwrap().len(), 3);
    for (directory, exporter, requests) in [(of_a, "otlphttp/a", 1), (of_b, "b", PAYLOADS)] {
        let found = inspect(&disk, Path::new(directory), true).unwrap();
        assert_eq!(found.problems, Vec::<String>::new());
        let waiting: Vec<_> = (found.cursors.iter())
            .map(|cursor| (&*cursor.exporter, cursor.waiting))
            .collect();
        assert_eq!(waiting, [(exporter, requests)]);
    }
}

/// Payloads of which no position knows that they are there.
const LATE: u64 = 3;

/// Numbers of payloads from `from` on: `a` has taken every second one of them.
fn every_second(from: u64, to: u64) -> Vec<u64> {
    (from..to).filter(|id| (id - from) % 2 == 1).collect()
}

fn append_all(journal: &Journal, ids: std::ops::Range<u64>) {
    ids.for_each(|id| append(journal, id));
}

/// What comes, until nothing does; what `is_taken` says is settled.
fn take(journal: &Journal, is_taken: impl Fn(u64) -> bool) -> Vec<u64> {
    let came: Vec<(u64, u64)> = std::iter::from_fn(|| read(journal)).collect();
    for (seq, id) in &came {
        if is_taken(*id) {
            settle(journal, *seq);
        }
    }
    journal.turn();
    came.into_iter().map(|(_, id)| id).collect()
}

/// Scenario: an exporter has taken every second payload of many when another one takes its place, and takes all that comes; then the first
/// is there again, alone or beside the other, takes what waits for it, and leaves once more. The process is killed, or ends in order before the
/// machine crashes.
/// Guarantees: the exporter that is back gets what waited for it when it left and what comes from then on, nothing twice and nothing that came
/// meanwhile; nothing counts as lost, nothing is left behind on the disk.
#[test]
fn an_exporter_that_is_back_goes_on_where_it_was() {
    for in_order in [false, true] {
        for back in [&["a"][..], &["a", "b"]] {
            let disk = SimulatedDisk::default();
            let end = |journal: Journal| match in_order {
                true => {
                    assert_eq!(journal.abandon(), 0);
                    drop(journal);
                    disk.crash();
                }
                false => {
                    drop(journal);
                    disk.kill();
                }
            };
            let (journal, _) = open(&disk, &["a"]);
            append_all(&journal, 0..PAYLOADS);
            let mut waits = every_second(0, PAYLOADS);
            take(&journal, |id| !waits.contains(&id));
            // Its position was written before these came.
            append_all(&journal, PAYLOADS..PAYLOADS + LATE);
            waits.extend(PAYLOADS..PAYLOADS + LATE);
            end(journal);

            let (journal, recovered) = open(&disk, &["b"]);
            assert_eq!(recovered.left[0].requests, waits.len() as u64);
            let meanwhile = PAYLOADS + LATE..2 * PAYLOADS;
            append_all(&journal, meanwhile.clone());
            let stays = 2 * PAYLOADS - 1;
            let came = take(&journal, |id| id != stays);
            assert_eq!(came, meanwhile.collect::<Vec<_>>());
            end(journal);

            let (journal, recovered) = open(&disk, back);
            assert_eq!(recovered.returned, ["a"]);
            assert_eq!((recovered.lost, recovered.damaged), (0, 0));
            append(&journal, 2 * PAYLOADS);
            let mut expected = waits.clone();
            expected.push(2 * PAYLOADS);
            assert_eq!(take(&journal, |id| id != 1), expected);
            let account = journal.reports(std::time::Instant::now())[0].total();
            assert!(account.balanced() && account.queued == 1, "{account:?}");
            end(journal);

            let (_, recovered) = open(&disk, &["b"]);
            assert_eq!(recovered.left.iter().map(|left| left.requests).sum::<u64>(), 1);
            disk.kill();
            let (journal, recovered) = open(&disk, &["a"]);
            assert_eq!((recovered.returned, recovered.lost), (vec!["a".to_owned()], 0));
            assert_eq!(take(&journal, |_| true), [1]);
            drop(journal);
            disk.kill();
            let (_, recovered) = open(&disk, &["a"]);
            assert_eq!(
                (recovered.returned.len(), recovered.records, recovered.lost),
                (0, 0, 0)
            );
            let of_a = inspect(&disk, Path::new("/spool/logs~a.journal"), true);
            assert_eq!(of_a.unwrap_err().kind(), std::io::ErrorKind::NotFound);
        }
    }
}

/// Scenario: the start at which an exporter has left is cut off after each of its operations by a crash of the machine; so is the one at which it is back.
/// In between the configuration is as it was before, or as it was to be.
/// Guarantees: wherever that was, the exporter gets in the end what waited for it, and nothing that came while it was not there.
#[test]
fn leaving_and_coming_back_may_be_cut_off() {
    const FEW: u64 = 40;
    let specs = |exporter: &str| CursorSpec {
        exporter: exporter.to_owned(),
        limits: Limits::default(),
        on_full: OnFull::Refuse,
    };
    let cut_off = |disk: &SimulatedDisk, exporter: &str, operations: u64| -> bool {
        disk.stop_after(operations);
        let settings = settings(disk, 0);
        let opened = Journal::disk("logs", vec![specs(exporter)], settings);
        let is_cut_off = opened.is_err();
        drop(opened);
        disk.crash();
        is_cut_off
    };
    let waits = every_second(0, FEW);
    for next in ["a", "b"] {
        let (mut operations, mut cut) = (0, 0);
        loop {
            let disk = SimulatedDisk::default();
            let (journal, _) = open(&disk, &["a"]);
            append_all(&journal, 0..FEW);
            take(&journal, |id| !waits.contains(&id));
            assert_eq!(journal.abandon(), 0);
            drop(journal);
            let leaving = cut_off(&disk, "b", operations);
            let was_away = !leaving || next == "b";
            if was_away {
                let (journal, _) = open(&disk, &["b"]);
                append_all(&journal, FEW..2 * FEW);
                take(&journal, |_| true);
                assert_eq!(journal.abandon(), 0);
                drop(journal);
            }
            let returning = cut_off(&disk, "a", operations);
            let (journal, recovered) = open(&disk, &["a"]);
            assert_eq!(recovered.lost, 0, "{next} {operations}");
            assert_eq!(take(&journal, |_| true), waits, "{next} {operations}");
            drop(journal);
            cut += u64::from(leaving) + u64::from(returning);
            operations += 1;
            if !leaving && !returning {
                break;
            }
        }
        assert!(cut > 40, "{cut}");
    }
}

/// Scenario: an exporter has left; somebody removes the pipeline's journal, which begins anew with another exporter; the first is back, and leaves
/// again. Then the journal is removed once more.
/// Guarantees: what was set aside is not mixed with records that have the same numbers, and is not touched; nothing of the new journal is lost. Into an
/// empty journal it comes back.
#[test]
fn what_was_set_aside_is_not_put_into_another_journal() {
    const FEW: u64 = 40;
    let disk = SimulatedDisk::default();
    let (journal, _) = open(&disk, &["a"]);
    append_all(&journal, 0..FEW);
    assert_eq!(journal.abandon(), 0);
    drop(journal);
    drop(open(&disk, &["b"]));
    let remove_all = || {
        disk.kill();
        for name in disk.list(Path::new(DIRECTORY)).unwrap() {
            disk.remove(&Path::new(DIRECTORY).join(name)).unwrap();
        }
    };
    remove_all();
    let (journal, _) = open(&disk, &["b"]);
    append_all(&journal, FEW..FEW + 10);
    assert_eq!(journal.abandon(), 0);
    drop(journal);
    disk.kill();
    let (journal, recovered) = open(&disk, &["b", "a"]);
    assert_eq!((recovered.returned.len(), recovered.lost), (0, 0));
    assert_eq!(take(&journal, |_| true), (FEW..FEW + 10).collect::<Vec<_>>());
    append(&journal, FEW + 10);
    drop(journal);
    disk.kill();
    let (journal, recovered) = open(&disk, &["b"]);
    let left: Vec<_> = (recovered.left.iter())
        .map(|one| (one.requests, one.directory.to_str().unwrap()))
        .collect();
    assert_eq!(left, [(1, "/spool/logs~a~2.journal")]);
    drop(journal);
    remove_all();
    let (journal, recovered) = open(&disk, &["a"]);
    assert_eq!(recovered.returned, ["a"]);
    assert_eq!(take(&journal, |_| true), (0..FEW).collect::<Vec<_>>());
}
