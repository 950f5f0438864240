//! What stays in memory of a journal on disk.

use super::corruption::{append, open_keeping, read, settle};
use crate::testing::SimulatedDisk;
use crate::{CursorSpec, Journal, Limits, OnFull};

const KEPT_BYTES: u64 = 2000;

fn kept(journal: &Journal) -> u64 {
    journal.disk_report().unwrap().kept_bytes
}

/// Scenario: an exporter keeps up, then stands while many times as much comes as may be kept; then it catches up, and keeps up again.
/// Guarantees: what is next stays in memory up to the limit; while the exporter is far behind nothing does, and receivers see a full backlog;
/// near the end payloads are kept again; everything is read once, in order.
#[test]
fn who_is_far_behind_has_nothing_kept() {
    let disk = SimulatedDisk::default();
    let spec = CursorSpec {
        exporter: "a".to_owned(),
        limits: Limits::default(),
        on_full: OnFull::Refuse,
    };
    let (journal, _) = open_keeping(&disk, vec![spec], KEPT_BYTES);
    let mut next = 0..;
    let mut come = |count| {
        let ids: Vec<u64> = next.by_ref().take(count).collect();
        ids.iter().for_each(|id| append(&journal, *id));
        ids
    };
    let deliver = |expected: Vec<u64>| {
        for id in expected {
            let (seq, found) = read(&journal).unwrap();
            assert_eq!(found, id);
            settle(&journal, seq);
        }
    };
    let few = come(3);
    assert!(kept(&journal) > 0);
    deliver(few);
    assert_eq!(kept(&journal), 0, "delivered");

    let mut behind = come(15);
    assert!(
        kept(&journal) > 0 && kept(&journal) <= KEPT_BYTES,
        "some do not fit"
    );
    behind.extend(come(60));
    assert_eq!((kept(&journal), journal.backlog_bytes()), (0, KEPT_BYTES));
    let mut last = behind.split_off(70);
    deliver(behind);
    assert_eq!(
        journal.backlog_bytes(),
        0,
        "nobody is to wait any more, though nothing has come"
    );
    last.extend(come(2));
    assert!(kept(&journal) > 0, "it is nearly there");
    deliver(last);
    assert_eq!((kept(&journal), journal.backlog_bytes()), (0, 0));
}
