#![allow(clippy::unwrap_used, reason = "tests")]

use std::ffi::OsString;
use std::path::Path;
use std::sync::mpsc;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use sluice_payload::{Payload, Signal, Tenants};

use super::*;
use crate::clock::Clock as _;
use crate::clock::manual::ManualClock;
use crate::fs::{Disk, File, Filesystem, OpenMode};
use crate::{Appended, CursorSpec, DiskSettings, Durability, Full, Journal, Limits, OnFull};

/// Longer than any machine needs.
const LONGEST: Duration = Duration::from_secs(20);

/// What the next sync does.
#[derive(Debug)]
enum Mood {
    Panics,
    /// Tells that it was reached, and waits until it is let go.
    Hangs(mpsc::Sender<()>, mpsc::Receiver<()>),
}

/// The real disk, but for its syncs.
#[derive(Debug, Clone, Default)]
struct Moody(Arc<Mutex<Option<Mood>>>);

#[derive(Debug)]
struct MoodyFile(Box<dyn File>, Moody);

impl Filesystem for Moody {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn File>> {
        Ok(Box::new(MoodyFile(Disk.open(path, mode)?, self.clone())))
    }

    fn size_bytes(&self, path: &Path) -> io::Result<u64> {
        Disk.size_bytes(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Disk.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        Disk.link(from, to)
    }

    fn remove_directory(&self, directory: &Path) -> io::Result<()> {
        Disk.remove_directory(directory)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        Disk.remove(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        Disk.list(directory)
    }

    fn create_directories(&self, directory: &Path) -> io::Result<()> {
        Disk.create_directories(directory)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        Disk.sync_directory(directory)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        Disk.free_bytes(path)
    }
}

impl File for MoodyFile {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.append(bytes)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn size_bytes(&self) -> io::Result<u64> {
        self.0.size_bytes()
    }

    fn is_regular(&self) -> io::Result<bool> {
        self.0.is_regular()
    }

    fn truncate(&self, size_bytes: u64) -> io::Result<()> {
        self.0.truncate(size_bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mood = self.1.0.lock().take();
        match mood {
            None => {}
            Some(Mood::Panics) => panic!("as the test wants it"),
            Some(Mood::Hangs(reached, go_on)) => {
                reached.send(()).unwrap();
                // A test that failed has let go as well.
                let _ = go_on.recv();
            }
        }
        self.0.sync_data()
    }

    fn try_lock(&self) -> io::Result<()> {
        self.0.try_lock()
    }
}

fn open(directory: &Path, disk: &Moody, clock: &ManualClock) -> Journal {
    let spec = CursorSpec {
        exporter: "otlp".to_owned(),
        limits: Limits::default(),
        on_full: OnFull::Refuse,
    };
    let settings = DiskSettings {
        filesystem: Arc::new(disk.clone()),
        clock: Arc::new(clock.clone()),
        ..DiskSettings::new(directory, Tenants::default())
    };
    Journal::disk("logs", vec![spec], settings).unwrap().0
}

fn append(journal: &Journal) -> Result<Appended, Full> {
    let payload = Payload::uncharged(Signal::Logs, Bytes::from_static(b"a body"), 1);
    let space = journal.try_reserve(journal.cost(&payload))?;
    Ok(journal.append(space, Arc::new(payload), None, Durability::Synced))
}

/// What the writer does next, on its own thread.
async fn until(holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LONGEST, "it never does");
        tokio::task::yield_now().await;
    }
}

/// Scenario: the writer panics in a sync, while another payload waits behind it.
/// Guarantees: whoever waits is told that nothing is stored; what comes then is refused with the reason, for good; the journal is not
/// writable, says why, and ends without waiting. What was stored before is there at the next start, which writes again.
#[tokio::test]
async fn a_writer_that_panics_leaves_nobody_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, clock) = (
        Moody::default(),
        ManualClock::at(UNIX_EPOCH + Duration::from_secs(1_700_000_000)),
    );
    let journal = open(directory.path(), &disk, &clock);
    append(&journal).unwrap().persisted().await.unwrap();
    assert!(journal.is_writable());

    *disk.0.lock() = Some(Mood::Panics);
    let both = [append(&journal).unwrap(), append(&journal).unwrap()];
    for one in both {
        // The second may have been in the group that panicked, or behind it.
        assert_eq!(one.persisted().await.unwrap_err().pipeline, "logs");
    }
    // The last of them may have been told while the thread was still unwinding.
    until(|| !journal.is_writable()).await;
    clock.advance(Duration::from_secs(3600));
    assert!(!journal.is_writable());
    let told = append(&journal).err().unwrap().to_string();
    assert!(told.contains("restart the gateway"), "{told}");
    let shown = journal.disk_report().unwrap().trouble.unwrap();
    assert!(shown.contains("its writer panicked"), "{shown}");
    journal.abandon();
    drop(journal);

    let journal = open(directory.path(), &disk, &clock);
    assert!(journal.reports(clock.now())[0].total().queued >= 1);
    append(&journal).unwrap().persisted().await.unwrap();
    assert!(journal.is_writable());
}

/// Scenario: the disk does not answer a sync; then it does.
/// Guarantees: after ten seconds the journal is not writable, says how long, and refuses what comes; who waits goes on waiting, and is told in the
/// end that it is stored; then everything is as before.
#[tokio::test]
async fn a_disk_that_does_not_answer_shows() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, clock) = (
        Moody::default(),
        ManualClock::at(UNIX_EPOCH + Duration::from_secs(1_700_000_000)),
    );
    let journal = open(directory.path(), &disk, &clock);
    let (tell, reached) = mpsc::channel();
    let (go_on, wait) = mpsc::channel();
    *disk.0.lock() = Some(Mood::Hangs(tell, wait));
    let waits = append(&journal).unwrap();
    reached.recv_timeout(LONGEST).unwrap();
    clock.advance(STALLED - Duration::from_millis(1));
    assert!(journal.is_writable());
    clock.advance(Duration::from_secs(3));
    assert!(!journal.is_writable());
    let told = append(&journal).err().unwrap().to_string();
    assert!(told.contains("has not answered for 12 s"), "{told}");
    assert!(journal.disk_report().unwrap().trouble.is_some());

    go_on.send(()).unwrap();
    waits.persisted().await.unwrap();
    // The answer comes before the turn ends; the next one has one after it.
    until(|| journal.is_writable()).await;
    append(&journal).unwrap().persisted().await.unwrap();
    assert_eq!(journal.disk_report().unwrap().trouble, None);
}

/// Scenario: the gateway stops while the disk does not answer a sync; then the disk answers after all.
/// Guarantees: who stops waits until its time is over, and no longer, and is told which directory it is; then the writer ends as if nothing had
/// been, the payload is stored, and nothing has to be looked through at the next start.
#[tokio::test]
async fn a_disk_that_does_not_answer_keeps_nobody_from_stopping() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, clock) = (
        Moody::default(),
        ManualClock::at(UNIX_EPOCH + Duration::from_secs(1_700_000_000)),
    );
    let journal = open(directory.path(), &disk, &clock);
    let (tell, reached) = mpsc::channel();
    let (go_on, wait) = mpsc::channel();
    *disk.0.lock() = Some(Mood::Hangs(tell, wait));
    let waits = append(&journal).unwrap();
    reached.recv_timeout(LONGEST).unwrap();
    let end = Instant::now() + Duration::from_millis(10);
    let told = journal.abandon_by(end).unwrap_err().to_string();
    assert!(Instant::now() >= end);
    let path = directory.path().join("logs.journal");
    assert!(told.contains(&format!("under {} ", path.display())), "{told}");

    go_on.send(()).unwrap();
    waits.persisted().await.unwrap();
    let is_sealed = || {
        let found = crate::inspect(&Disk, &path, true).unwrap();
        found.segments.iter().all(|segment| segment.sealed)
    };
    until(is_sealed).await;
}
