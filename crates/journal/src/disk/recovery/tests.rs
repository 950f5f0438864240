//! What a start reads, and what it makes of what it does not read.

use std::path::Path;

use super::super::corruption::{DIRECTORY, append, open_with, read, settle};
use super::super::segment::SegmentId;
use super::super::{Next, Recovered};
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
/// Guarantees: what each of the two had not settled is given up and said once, by its id and its number of requests.
#[test]
fn what_is_given_up_of_exporters_that_are_gone_is_counted() {
    let disk = SimulatedDisk::default();
    with_one_stuck(&disk, &["otlphttp/a", "b"]);
    let (journal, recovered) = open(&disk, &["c"]);
    let mut given_up: Vec<_> = (recovered.released.iter())
        .map(|one| (&*one.exporter, one.requests))
        .collect();
    given_up.sort();
    assert_eq!(given_up, [("b", PAYLOADS), ("otlphttp/a", 1)]);
    drop(journal);
    disk.kill();
    let (_, recovered) = open(&disk, &["c"]);
    assert_eq!(recovered.released, []);
}
