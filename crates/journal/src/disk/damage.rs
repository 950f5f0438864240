//! Damage to a journal that is open: what it costs is counted at once, and only once.

use std::path::Path;

use sluice_telemetry::DropReason;

use super::corruption::{DIRECTORY, append, open_with, read, settle};
use super::segment::{HEADER_BYTES, SegmentId};
use super::*;
use crate::testing::SimulatedDisk;
use crate::{CursorSpec, Journal, Limits, OnFull, OpenMode};

/// An exporter; one with a limit is cut loose beyond it.
fn spec(exporter: &str, requests: Option<u64>) -> CursorSpec {
    CursorSpec {
        exporter: exporter.to_owned(),
        limits: Limits {
            requests,
            ..Limits::default()
        },
        on_full: match requests {
            Some(_) => OnFull::DropOldest,
            None => OnFull::Refuse,
        },
    }
}

/// Flips a bit in the body of the record that is the `index`-th of the first segment.
fn damage(disk: &SimulatedDisk, index: usize) {
    let mut names: Vec<_> = disk.list(Path::new(DIRECTORY)).unwrap();
    names.retain(|name| SegmentId::parse(name).is_some());
    names.sort();
    let path = Path::new(DIRECTORY).join(&names[0]);
    let id = SegmentId::parse(&names[0]).unwrap();
    let file = disk.open(&path, OpenMode::Read).unwrap();
    let size = file.size_bytes().unwrap();
    let mut scan = scan::Scan::new(file.into(), id.epoch, HEADER_BYTES, size);
    let mut records = std::iter::from_fn(|| scan.next(false));
    let Some(scan::Found::Record(header, at)) = records.nth(index) else {
        panic!("there is no record {index}")
    };
    disk.damage(&path, |bytes| bytes[at as usize + header.body().start] ^= 1);
}

/// Items delivered, dropped as damaged, and waiting; requests that are lost.
fn account(journal: &Journal) -> (u64, u64, u64, u64) {
    let report = &journal.reports(std::time::Instant::now())[0];
    let account = report.total();
    assert!(account.balanced(), "{account:?}");
    assert_eq!(account.queued, report.depth.backlog.items, "{report:?}");
    let damaged = account.dropped[DropReason::Damaged as usize];
    (
        account.delivered,
        damaged,
        account.queued,
        journal.disk_report().unwrap().lost,
    )
}

/// Scenario: the middle one of three records in the segment being written is damaged before it is read.
/// Guarantees: when the others are delivered it is counted as lost: nobody waits for the segment to end, or for another process that
/// would not know of it.
#[test]
fn what_is_lost_is_counted_when_it_is_passed() {
    let disk = SimulatedDisk::default();
    let (journal, _) = open_with(&disk, vec![spec("a", None)]);
    (0..3).for_each(|id| append(&journal, id));
    damage(&disk, 1);
    for wanted in [0, 2] {
        let (seq, id) = read(&journal).unwrap();
        assert_eq!(id, wanted);
        settle(&journal, seq);
    }
    assert_eq!(account(&journal), (2, 1, 0, 1));
    append(&journal, 3);
    let (seq, _) = read(&journal).unwrap();
    settle(&journal, seq);
    assert_eq!(account(&journal), (3, 1, 0, 1), "once");
    assert_eq!(journal.abandon(), 0);
}

/// Scenario: a damaged record is passed by, and the one behind it is handed out and not settled when the process is killed.
/// Guarantees: the loss is counted, and not once more by the next process.
#[test]
fn what_was_passed_is_not_lost_again() {
    let disk = SimulatedDisk::default();
    let (journal, _) = open_with(&disk, vec![spec("a", None)]);
    (0..3).for_each(|id| append(&journal, id));
    damage(&disk, 1);
    settle(&journal, read(&journal).unwrap().0);
    journal.turn();
    assert_eq!(read(&journal).unwrap().1, 2);
    assert_eq!(account(&journal), (1, 1, 1, 1));
    journal.turn();
    disk.kill();
    let (_, recovered) = open_with(&disk, vec![spec("a", None)]);
    assert_eq!((recovered.records, recovered.lost), (1, 0));
}

/// Scenario: a process is killed, and a record in the segment that it was writing is damaged; the exporter of the next one passes it by.
/// Guarantees: the start finds it, and it is counted once.
#[test]
fn what_a_start_finds_is_not_found_again() {
    let disk = SimulatedDisk::default();
    let (journal, _) = open_with(&disk, vec![spec("a", None)]);
    (0..3).for_each(|id| append(&journal, id));
    disk.kill();
    damage(&disk, 1);
    let (journal, recovered) = open_with(&disk, vec![spec("a", None)]);
    assert_eq!((recovered.damaged, recovered.lost), (1, 1));
    assert_eq!(std::iter::from_fn(|| read(&journal)).count(), 2);
    let report = journal.disk_report().unwrap();
    assert_eq!((report.damaged, report.lost), (1, 1), "{report:?}");
}

/// Scenario: two exporters come by the same damaged record.
/// Guarantees: it is one place that cannot be read, and a request lost to each of them.
#[test]
fn a_place_is_counted_once_and_its_loss_for_each_exporter() {
    let disk = SimulatedDisk::default();
    let (journal, _) = open_with(&disk, vec![spec("a", None), spec("b", None)]);
    (0..3).for_each(|id| append(&journal, id));
    damage(&disk, 1);
    let side = journal.0.disk.as_ref().unwrap();
    for index in 0..2 {
        let handed = std::iter::from_fn(|| match side.next(&journal.0, index) {
            Next::Ready(entry) => Some(entry.seq),
            _ => None,
        });
        assert_eq!(handed.count(), 2, "exporter {index}");
    }
    let report = journal.disk_report().unwrap();
    assert_eq!((report.damaged, report.lost), (1, 2), "{report:?}");
}

/// Scenario: an earlier process settled the second of four records before the others; it is damaged while the next one reads.
/// Guarantees: it is no loss, and the account of the others holds.
#[test]
fn what_was_settled_before_is_no_loss() {
    let disk = SimulatedDisk::default();
    let (journal, _) = open_with(&disk, vec![spec("a", None)]);
    (0..4).for_each(|id| append(&journal, id));
    let handed: Vec<_> = (0..4).map(|_| read(&journal).unwrap().0).collect();
    settle(&journal, handed[1]);
    journal.turn();
    assert_eq!(journal.abandon(), 0);
    drop(journal);

    let (journal, recovered) = open_with(&disk, vec![spec("a", None)]);
    assert_eq!((recovered.records, recovered.lost), (3, 0));
    damage(&disk, 1);
    let handed: Vec<_> = std::iter::from_fn(|| read(&journal)).collect();
    assert_eq!(handed.iter().map(|(_, id)| *id).collect::<Vec<_>>(), [0, 2, 3]);
    handed.iter().for_each(|(seq, _)| settle(&journal, *seq));
    journal.turn();
    assert_eq!(account(&journal), (3, 0, 0, 0));
}

/// Scenario: a reader was told where to read, and the exporter is cut loose meanwhile: what it was to read is dropped, and its
/// segment removed.
/// Guarantees: nothing is said to be damaged.
#[test]
fn a_segment_that_was_removed_is_not_damaged() {
    let disk = SimulatedDisk::default();
    let (journal, _) = open_with(&disk, vec![spec("well", None), spec("dead", Some(4))]);
    append(&journal, 0);
    let from = journal.0.state.lock().where_to_read(1);
    for id in 1..60 {
        append(&journal, id);
        let (seq, _) = read(&journal).unwrap();
        settle(&journal, seq);
    }
    let side = journal.0.disk.as_ref().unwrap();
    let mut reader = side.readers[1].reader.lock();
    reader.fill(&from).unwrap();
    let unread = std::mem::take(&mut reader.damaged);
    drop(reader);
    assert_eq!(unread.len(), 1, "the segment is gone");
    journal.0.state.lock().found_damage(unread);
    let report = journal.disk_report().unwrap();
    assert_eq!((report.damaged, report.lost), (0, 0), "{report:?}");
}
