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
