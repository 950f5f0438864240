//! When a segment that is done with goes: not before the positions say that it is.

use std::path::Path;

use super::corruption::{DIRECTORY, append, open_with, read, settle};
use super::*;
use crate::testing::{Fault, Operation, SimulatedDisk};
use crate::{CursorSpec, Journal, Limits, OnFull};

const PAYLOADS: u64 = 40;

fn open(disk: &SimulatedDisk) -> (Journal, Recovered) {
    let spec = CursorSpec {
        exporter: "a".to_owned(),
        limits: Limits::default(),
        on_full: OnFull::Refuse,
    };
    open_with(disk, vec![spec])
}

fn segments(disk: &SimulatedDisk) -> usize {
    let files = disk.list(Path::new(DIRECTORY)).unwrap();
    let is_segment = |name: &&std::ffi::OsString| name.to_string_lossy().ends_with(".segment");
    files.iter().filter(is_segment).count()
}

/// Scenario: all that is in several segments is delivered; the position cannot be written, or not synced, because the device fails or
/// because the disk is full. Then the process, or the machine, goes, or the next turn comes and the process goes after it.
/// Guarantees: on a device that fails the segments stay until the position says that they are done with, and nothing counts as lost; on
/// a full disk they go at once.
#[test]
fn a_segment_goes_when_its_position_says_so() {
    for operation in [Operation::Write, Operation::Sync] {
        for (fault, then) in [
            (Fault::NoSpace, None),
            (Fault::Io, None),
            (Fault::Io, Some(SimulatedDisk::kill as fn(&SimulatedDisk))),
            (Fault::Io, Some(SimulatedDisk::crash)),
        ] {
            let disk = SimulatedDisk::default();
            let (journal, _) = open(&disk);
            (0..PAYLOADS).for_each(|id| append(&journal, id));
            let all = segments(&disk);
            assert!(all > 2);
            for _ in 0..PAYLOADS {
                settle(&journal, read(&journal).unwrap().0);
            }
            disk.fail(operation, fault, 1);
            journal.turn();
            if fault == Fault::NoSpace {
                assert_eq!(segments(&disk), 1, "{operation:?}: its space is needed");
                continue;
            }
            assert_eq!(segments(&disk), all, "{operation:?}");
            match then {
                None => {
                    if operation == Operation::Sync {
                        disk.fail(Operation::Write, fault, 1);
                        journal.turn();
                        assert_eq!(segments(&disk), all, "it is written again before it is synced");
                    }
                    journal.turn();
                    assert_eq!(segments(&disk), 1, "{operation:?}: it is tried again");
                    disk.kill();
                }
                Some(goes) => goes(&disk),
            }
            let (_, recovered) = open(&disk);
            assert_eq!((recovered.lost, recovered.damaged), (0, 0), "{operation:?}");
        }
    }
}

fn deliver(journal: &Journal, is_kept: impl Fn(u64) -> bool) {
    while let Some((seq, id)) = read(journal) {
        if !is_kept(id) {
            settle(journal, seq);
        }
    }
    journal.turn();
}

fn nothing_is_wrong(disk: &SimulatedDisk) {
    let found = inspect(disk, Path::new(DIRECTORY), true).unwrap();
    assert_eq!(found.problems, Vec::<String>::new());
    let repaired = repair(disk, Path::new(DIRECTORY)).unwrap();
    assert_eq!(repaired, Repaired::default());
}

/// Scenario: a destination never answers to the second payload and takes all others, in several segments. The process, or the machine, goes;
/// the same once more, with more payloads and an orderly end in between; then the payload is taken.
/// Guarantees: its segment stays, and the others go; at each start that payload comes, and no other of before; nothing counts as lost, there is
/// nothing to verify or to repair.
#[test]
fn a_payload_that_is_never_settled_keeps_its_segment_and_no_other() {
    for goes in [SimulatedDisk::kill as fn(&SimulatedDisk), SimulatedDisk::crash] {
        let disk = SimulatedDisk::default();
        let (journal, _) = open(&disk);
        (0..PAYLOADS).for_each(|id| append(&journal, id));
        assert!(segments(&disk) > 3);
        deliver(&journal, |id| id == 1);
        assert_eq!(segments(&disk), 2, "its own, and the one that is written");
        goes(&disk);
        nothing_is_wrong(&disk);
        for (round, first) in [PAYLOADS, 2 * PAYLOADS].into_iter().enumerate() {
            let (journal, recovered) = open(&disk);
            assert_eq!(
                (recovered.records, recovered.lost, recovered.damaged),
                (1, 0, 0),
                "{round}"
            );
            (first..first + PAYLOADS).for_each(|id| append(&journal, id));
            deliver(&journal, |id| {
                assert!(id == 1 || id >= first, "{id} comes again");
                id == 1
            });
            assert_eq!(segments(&disk), 2);
            assert_eq!(journal.abandon(), 0);
            drop(journal);
            assert_eq!(segments(&disk), 1, "nobody needs what was written last");
            nothing_is_wrong(&disk);
        }
        let (journal, recovered) = open(&disk);
        assert_eq!((recovered.records, recovered.lost), (1, 0));
        deliver(&journal, |_| false);
        assert_eq!(segments(&disk), 0);
    }
}

/// Scenario: every second payload of many stays, more of them than a position has room for; after them several segments are settled whole. Then
/// the process goes.
/// Guarantees: segments stay of which the position may not say that they are settled; nothing counts as lost, and all that stayed comes.
#[test]
fn what_a_position_has_no_room_for_stays() {
    const STAY: u64 = 300;
    let disk = SimulatedDisk::default();
    let (journal, _) = open(&disk);
    (0..2 * STAY + PAYLOADS).for_each(|id| append(&journal, id));
    let all = segments(&disk);
    let stays = |id| id < 2 * STAY && id % 2 == 0;
    deliver(&journal, stays);
    assert_eq!(segments(&disk), all);
    disk.kill();
    let (journal, recovered) = open(&disk);
    assert_eq!(recovered.lost, 0);
    let mut came = Vec::new();
    while let Some((seq, id)) = read(&journal) {
        settle(&journal, seq);
        came.push(id);
    }
    assert!((0..2 * STAY).filter(|id| stays(*id)).all(|id| came.contains(&id)));
}
