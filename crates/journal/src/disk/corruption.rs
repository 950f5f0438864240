//! Corruptions planted one at a time into a journal at rest: each is found, costs what it hit, and can be repaired.
//!
//! `SLUICE_CORRUPTIONS=10000 cargo test -p sluice-journal --lib corruption` plants more than CI does.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use sluice_payload::{Payload, Signal, Tenants};
use sluice_telemetry::DropReason;

use super::segment::SegmentId;
use super::*;
use crate::testing::{ManualClock, Random, SimulatedDisk};
use crate::{CursorSpec, Entry, Journal, Limits, OnFull, OpenMode, Settled};

/// Corruptions of a run in CI.
const CORRUPTIONS: u64 = 300;

const PAYLOADS: u64 = 60;
pub(super) const DIRECTORY: &str = "/spool/logs.journal";

fn body(id: u64) -> Bytes {
    let mut random = Random(id);
    let mut body = id.to_le_bytes().to_vec();
    let length = random.below(400);
    body.extend((0..length).map(|_| random.below(256) as u8));
    body.into()
}

fn open_on(disk: &SimulatedDisk) -> (Journal, Recovered) {
    let spec = CursorSpec {
        exporter: "a/1".to_owned(),
        limits: Limits::default(),
        on_full: OnFull::Refuse,
    };
    open_with(disk, vec![spec])
}

pub(super) fn open_with(disk: &SimulatedDisk, specs: Vec<CursorSpec>) -> (Journal, Recovered) {
    open_keeping(disk, specs, 0)
}

/// One that keeps so many bytes in memory.
pub(super) fn open_keeping(
    disk: &SimulatedDisk,
    specs: Vec<CursorSpec>,
    kept_bytes: u64,
) -> (Journal, Recovered) {
    let (journal, _, recovered) = Journal::disk("logs", specs, settings(disk, kept_bytes)).unwrap();
    (journal, recovered)
}

pub(super) fn settings(disk: &SimulatedDisk, kept_bytes: u64) -> DiskSettings {
    DiskSettings {
        segment_bytes: 3 << 10,
        kept_bytes,
        filesystem: Arc::new(disk.clone()),
        clock: Arc::new(ManualClock::at(UNIX_EPOCH + Duration::from_secs(1_700_000_000))),
        seed: Some(1),
        ..DiskSettings::new("/spool", Tenants::default())
    }
}

/// The next payload, and its number in the journal.
pub(super) fn read(journal: &Journal) -> Option<(u64, u64)> {
    let disk = journal.0.disk.as_ref().unwrap();
    let Next::Ready(Entry { seq, payload, .. }) = disk.next(&journal.0, 0) else {
        return None;
    };
    let mut id = [0; 8];
    id.copy_from_slice(&payload.body[..8]);
    let id = u64::from_le_bytes(id);
    assert_eq!(payload.body, body(id), "{id} was altered");
    Some((seq, id))
}

pub(super) fn settle(journal: &Journal, seq: u64) {
    let settled = Settled {
        seq,
        delivered: 1,
        dropped: None,
    };
    crate::Cursor::new(journal.0.clone(), 0).settle(&[settled]);
}

/// Appends the payload of one item with this id, and lets the writer have a turn.
pub(super) fn append(journal: &Journal, id: u64) {
    let payload = Payload::uncharged(Signal::Logs, body(id), 1);
    let space = journal.try_reserve(journal.cost(&payload)).unwrap();
    let _ = journal.append(space, Arc::new(payload), None, Durability::Synced);
    journal.turn();
}

/// A journal of several segments, some of whose records are settled, that was stopped in order; and what waits in it.
fn journal_at_rest(disk: &SimulatedDisk, random: &mut Random) -> BTreeSet<u64> {
    let (journal, _) = open_on(disk);
    (0..PAYLOADS).for_each(|id| append(&journal, id));
    let mut waiting: BTreeSet<u64> = (0..PAYLOADS).collect();
    for _ in 0..random.below(PAYLOADS) {
        let (seq, id) = read(&journal).unwrap();
        if random.below(4) > 0 {
            settle(&journal, seq);
            waiting.remove(&id);
        }
    }
    journal.turn();
    assert_eq!(journal.abandon(), 0);
    waiting
}

/// Flips, zeroes, cuts off or cuts out some bytes of some file; what it was, or `None` when nothing changed.
fn corrupt(disk: &SimulatedDisk, random: &mut Random) -> Option<(PathBuf, Range<u64>)> {
    let mut names = disk.list(Path::new(DIRECTORY)).unwrap();
    names.sort();
    names.retain(|name| name != "LOCK");
    let path = Path::new(DIRECTORY).join(&names[random.below(names.len() as u64) as usize]);
    let before = disk.content(&path).unwrap();
    let size = before.len() as u64;
    let at = random.below(size);
    let end = (at + 1 + random.below(300)).min(size);
    let range = at as usize..end as usize;
    let (sort, bit) = (random.below(4), 1 << random.below(8));
    disk.damage(&path, |bytes| match sort {
        0 => bytes[at as usize] ^= bit,
        1 => bytes[range].fill(0),
        2 => bytes.truncate(at as usize),
        _ => drop(bytes.drain(range)),
    });
    let hit = match sort {
        0 => at..at + 1,
        2 => at..size,
        _ => at..end,
    };
    (disk.content(&path).unwrap() != before).then_some((path, hit))
}

/// Payloads whose records have a byte in this part of a segment.
fn hit(disk: &SimulatedDisk, path: &Path, range: &Range<u64>) -> BTreeSet<u64> {
    let Some(id) = path.file_name().and_then(SegmentId::parse) else {
        return BTreeSet::new();
    };
    let file = disk.open(path, OpenMode::Read).unwrap();
    let size = file.size_bytes().unwrap();
    let mut scan = scan::Scan::new(file.into(), id.epoch, segment::HEADER_BYTES, size);
    let mut inflater = body::Inflater::new();
    let mut hit = BTreeSet::new();
    while let Some(found) = scan.next(true) {
        if let scan::Found::Record(header, at) = found
            && at < range.end
            && range.start < at + header.record_bytes()
        {
            let body = inflater
                .inflate(header.encoding, scan.body(), header.inflated_bytes as usize)
                .unwrap();
            let mut id = [0; 8];
            id.copy_from_slice(&body[..8]);
            hit.insert(u64::from_le_bytes(id));
        }
    }
    hit
}

/// Delivers everything; what came, and how many stored payloads were counted as lost.
fn deliver_all(disk: &SimulatedDisk) -> (BTreeSet<u64>, u64) {
    let (journal, _) = open_on(disk);
    let mut came = BTreeSet::new();
    while let Some((seq, id)) = read(&journal) {
        assert!(came.insert(id), "{id} came twice");
        settle(&journal, seq);
    }
    journal.turn();
    let report = &journal.reports(std::time::Instant::now())[0];
    let account = report.total();
    assert!(account.balanced() && account.queued == 0, "{report:?}");
    let damaged = account.dropped[DropReason::Damaged as usize];
    let disk_report = journal.disk_report().unwrap();
    assert!(damaged <= disk_report.lost, "{disk_report:?} {account:?}");
    (came, disk_report.lost)
}

fn run(seed: u64) {
    let mut random = Random(seed);
    let sound = SimulatedDisk::default();
    let waiting = journal_at_rest(&sound, &mut random);
    let problems = |disk: &SimulatedDisk| inspect(disk, Path::new(DIRECTORY), true).unwrap().problems;
    assert_eq!(problems(&sound), Vec::<String>::new(), "nothing is wrong");
    let disk = sound.copy();
    let Some((path, range)) = corrupt(&disk, &mut random) else {
        return;
    };
    let may_be_lost = hit(&sound, &path, &range);
    let found = problems(&disk);
    // The newest segment without its footer is what SIGKILL leaves, and nothing is wrong with it.
    let (before, after) = (sound.content(&path).unwrap(), disk.content(&path).unwrap());
    let as_killed = may_be_lost.is_empty() && before.starts_with(&after);
    assert!(!found.is_empty() || as_killed, "{path:?} {range:?} is not found");

    let (came, lost) = deliver_all(&disk.copy());
    let missing: BTreeSet<u64> = waiting.difference(&came).copied().collect();
    assert!(
        missing.is_subset(&may_be_lost),
        "{missing:?} lost by {path:?} {range:?}, which hit {may_be_lost:?}"
    );
    if path.extension().is_some_and(|extension| extension == "segment") {
        assert!(came.is_subset(&waiting), "settled and came again");
        assert_eq!(lost, missing.len() as u64, "{path:?} {range:?}: {found:?}");
    }

    repair(&disk, Path::new(DIRECTORY)).unwrap();
    assert_eq!(
        problems(&disk),
        Vec::<String>::new(),
        "{path:?} {range:?}: {found:?}"
    );
    let done = repair(&disk, Path::new(DIRECTORY)).unwrap();
    assert_eq!(done, Repaired::default(), "a second repair has nothing to do");
    let (again, lost) = deliver_all(&disk);
    assert_eq!(
        (again, lost),
        (came, 0),
        "what is repaired is delivered as what is not"
    );
}

/// Scenario: one corruption at a time (a bit, a run of zeros, a cut, bytes that are gone) anywhere in the files of a journal.
/// Guarantees: `verify` finds every one that is not as harmless as a kill; the journal opens, delivers all that was not hit, alters nothing, and counts
/// what is lost exactly; `repair` leaves nothing to find, loses nothing more, and is done after one run.
#[test]
fn every_corruption_is_found_and_costs_what_it_hit() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("SLUICE_CORRUPTION") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SLUICE_CORRUPTIONS").unwrap_or(CORRUPTIONS),
    };
    let failed: Vec<u64> = seeds
        .filter(|seed| std::panic::catch_unwind(|| run(*seed)).is_err())
        .collect();
    assert!(
        failed.is_empty(),
        "{} fail, SLUICE_CORRUPTION is one of {:?}",
        failed.len(),
        &failed[..failed.len().min(20)]
    );
}
