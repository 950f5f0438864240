//! The journal on disk: what was acknowledged as persisted survives the process and the machine.
//!
//! docs/journal-format.md describes the files. In the order of a payload's way:
//!
//! - `writer` takes everything that waits, `log` writes it with one call and syncs it with one (group commit), then
//!   everybody who waits is answered. Nothing that was not synced is handed to an exporter, so that nothing is delivered that
//!   was refused.
//! - `spill` says what of it stays in memory: little, and only near the end. Cursors that lag get theirs from `reader`,
//!   in plain sequential reads, a little ahead.
//! - what cursors settle moves their `position`, which the writer writes; segments behind all positions are removed.
//! - `recovery` puts it together again. `scan` finds its way around damage in all of them.
//!
//! A sync that failed is not tried again: nobody knows what it wrote. Those who wait are refused, and a new segment is
//! begun. A write that failed is cut off; new payloads are refused for a moment, then tried again.

mod again;
mod attendance;
mod body;
#[cfg(test)]
mod corruption;
#[cfg(test)]
mod damage;
mod dead_letter;
mod directory;
mod export;
mod inspect;
#[cfg(test)]
mod kept;
mod log;
mod lost;
mod next;
#[cfg(test)]
mod older;
mod position;
mod queue;
mod reader;
mod record;
mod recovery;
#[cfg(test)]
mod removal;
mod repair;
mod scan;
mod segment;
mod short;
#[cfg(test)]
mod simulation;
mod spill;
mod unreadable;
mod writer;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sluice_payload::{Encoding, Tenants};

use crate::state::State;
use crate::{Clock, CursorSpec, Disk, File, Filesystem, Full, SystemClock};
pub use again::Again;
pub use attendance::NotInOrder;
pub(crate) use body::is_storable;
pub use dead_letter::{DEAD_LETTER_BYTES, DeadLetters};
use directory::LOCK_NAME;
pub use directory::{OpenError, directory_of, escape, unread};
pub use export::{Stored, Which, export};
pub use inspect::{InspectedCursor, InspectedSegment, Inspection, inspect, journals};
pub(crate) use next::Next;
pub(crate) use queue::Pending;
use queue::Queue;
use reader::{CursorReader, Reader, Source};
pub use record::Refusal;
pub use recovery::{Left, Recovered};
pub use repair::{Repaired, repair};
pub(crate) use spill::{Place, Spill};
use writer::{Trouble, Writer};

/// A segment that has grown beyond this is sealed, and the next is begun: what is scanned after a crash, and what is freed at once.
pub const SEGMENT_BYTES: u64 = 64 << 20;

/// When what is written is also synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Before anybody is told that it is persisted, everything that waits at once.
    Group,
    /// After this long; a crash of the machine, not of the process, may lose what came in it.
    Interval(Duration),
    /// When the system sees fit.
    Off,
}

/// When an appended payload counts as taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Once it is written: it survives the process.
    Written,
    /// Once it is synced, as far as the [`SyncPolicy`] says so: it survives the machine.
    Synced,
}

/// Where a journal is kept, and how.
#[derive(Debug, Clone)]
pub struct DiskSettings {
    /// The directory in which the journal has one of its own.
    pub directory: PathBuf,
    /// Make the directory if it is not there.
    pub create_directory: bool,
    /// How long to wait for another process to let go of it; zero: not at all.
    pub lock_timeout: Duration,
    /// When to sync.
    pub sync: SyncPolicy,
    /// When a segment is full.
    pub segment_bytes: u64,
    /// Payloads kept in memory beside the disk, in retained bytes, for exporters that keep up.
    pub kept_bytes: u64,
    /// What one exporter may be sending at once, in inflated bytes; a single larger payload is sent all the same.
    pub in_flight_bytes: u64,
    /// Frames that some exporter can send on as they are.
    pub frames: Vec<Encoding>,
    /// The names of tenants.
    pub tenants: Tenants,
    /// The file system.
    pub filesystem: Arc<dyn Filesystem>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Instead of random epochs, for tests that must come out the same every time.
    pub seed: Option<u64>,
}

impl DiskSettings {
    /// The defaults: group commit, 32 MiB kept, 32 MiB in flight.
    pub fn new(directory: impl Into<PathBuf>, tenants: Tenants) -> Self {
        Self {
            directory: directory.into(),
            create_directory: true,
            lock_timeout: Duration::from_secs(1),
            sync: SyncPolicy::Group,
            segment_bytes: SEGMENT_BYTES,
            kept_bytes: 32 << 20,
            in_flight_bytes: 32 << 20,
            frames: Vec::new(),
            tenants,
            filesystem: Arc::new(Disk),
            clock: Arc::new(SystemClock),
            seed: None,
        }
    }
}

/// A record of a version that this binary does not know.
fn newer(version: u8) -> io::Error {
    let error = format!(
        "there is a record of version {version}, which this version of sluice does not read; use the newer sluice"
    );
    io::Error::new(io::ErrorKind::Unsupported, error)
}

/// How long after the pause that follows a failed write the journal is said to be unwritable: longer than the ten seconds
/// between two probes of Kubernetes, so that one of them sees it.
const TROUBLE_SHOWN: Duration = Duration::from_secs(15);

/// A payload was not stored, and nothing of it was kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the journal of pipeline {pipeline} cannot be written ({reason}); retry later")]
pub struct NotPersisted {
    /// The pipeline.
    pub pipeline: String,
    /// What the disk said.
    pub reason: String,
}

/// What a journal on disk amounts to now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskReport {
    /// Segments.
    pub segments: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Bytes of payloads kept in memory.
    pub kept_bytes: u64,
    /// Bodies written since the start, in bytes as stored.
    pub stored_bytes: u64,
    /// Places that could not be read since the start.
    pub damaged: u64,
    /// Stored requests that are not there any more, once for each exporter that had not settled them.
    pub lost: u64,
    /// Why it cannot be written, if it cannot.
    pub trouble: Option<String>,
}

/// What a journal has on the disk, beside its state.
pub(crate) struct DiskSide {
    pub queue: Arc<Queue>,
    pub filesystem: Arc<dyn Filesystem>,
    directory: PathBuf,
    pub clock: Arc<dyn Clock>,
    pub trouble: Mutex<Option<Trouble>>,
    pub stored_bytes: AtomicU64,
    source: Source,
    readers: Vec<CursorReader>,
    writer: Mutex<Writer>,
    attendance: attendance::Attendance,
    /// Without threads: in tests.
    inline: bool,
    /// Held until the journal goes.
    _lock: Box<dyn File>,
}

/// Opens or makes the journal of a pipeline.
pub(crate) fn open(
    pipeline: &str,
    specs: Vec<CursorSpec>,
    settings: DiskSettings,
) -> Result<(State, DiskSide, Recovered), OpenError> {
    let (directory, lock) = directory::lock(&settings, pipeline)?;
    let source = Source {
        filesystem: settings.filesystem.clone(),
        directory,
        clock: settings.clock.clone(),
        tenants: settings.tenants.clone(),
        frames: settings.frames,
    };
    let cursors = specs.len();
    let mut state = State::new(specs);
    let (numbers, positions, recovered) = recovery::recover(&source, &mut state)?;
    let spill = state.spilled();
    spill.most_kept_bytes = settings.kept_bytes;
    spill.most_in_flight_bytes = settings.in_flight_bytes;
    let now = settings.clock.now();
    let own_bytes = spill.segments.values().map(|segment| segment.size_bytes).sum();
    // A disk that cannot say what is free is taken for a large one.
    let free_bytes = settings
        .filesystem
        .free_bytes(&source.directory)
        .unwrap_or(u64::MAX);
    let segment_bytes = short::segment_bytes(settings.segment_bytes, own_bytes, free_bytes);
    let droppers = source.clone();
    let writer = Writer {
        log: log::Log::new(source.clone(), numbers, segment_bytes, settings.seed),
        positions,
        codec: body::Codec::new(),
        sync: settings.sync,
        synced_at: now,
        positions_synced_at: now,
        droppers: (0..cursors).map(|_| None).collect(),
        done: Vec::new(),
        watch: short::Watch::new(segment_bytes),
        new_dropper: Box::new(move || Reader::new(droppers.clone(), false)),
    };
    let reader = |_| CursorReader::new(Reader::new(source.clone(), true));
    let side = DiskSide {
        queue: Arc::default(),
        filesystem: settings.filesystem,
        directory: source.directory.clone(),
        clock: settings.clock,
        trouble: Mutex::new(None),
        stored_bytes: AtomicU64::new(0),
        readers: (0..cursors).map(reader).collect(),
        source,
        writer: Mutex::new(writer),
        attendance: attendance::Attendance::default(),
        inline: settings.seed.is_some(),
        _lock: lock,
    };
    Ok((state, side, recovered))
}

impl DiskSide {
    /// One turn of the writer.
    #[cfg(any(test, feature = "testing"))]
    pub fn turn(&self, shared: &crate::journal::Shared) {
        let group = self.queue.take();
        self.writer.lock().turn(shared, group.unwrap_or_default());
    }

    /// Whether payloads are taken just now.
    pub fn check(&self, pipeline: &str) -> Result<(), Full> {
        let reason = self.absence().or_else(|| {
            let trouble = self.trouble.lock();
            let trouble = trouble
                .as_ref()
                .filter(|trouble| self.clock.now() < trouble.until);
            trouble.map(|trouble| trouble.reason.clone())
        });
        reason.map_or(Ok(()), |reason| {
            Err(Full::Disk {
                pipeline: pipeline.to_owned(),
                reason,
            })
        })
    }

    /// Whether the last write did not fail, or failed [a while](TROUBLE_SHOWN) ago: only payloads try again, and who is
    /// told that nothing is written sends none. Not while the disk does not answer, nor after the writer has ended.
    pub fn is_writable(&self) -> bool {
        if self.absence().is_some() {
            return false;
        }
        let trouble = self.trouble.lock();
        let until = trouble.as_ref().map(|trouble| trouble.until + TROUBLE_SHOWN);
        until.is_none_or(|until| self.clock.now() >= until)
    }

    /// What is free where its files are.
    pub fn free_bytes(&self) -> io::Result<u64> {
        self.filesystem.free_bytes(&self.directory)
    }

    pub fn report(&self, state: &mut State) -> DiskReport {
        let spill = state.spilled();
        DiskReport {
            segments: spill.segments.len() as u64,
            bytes: spill.segments.values().map(|segment| segment.size_bytes).sum(),
            kept_bytes: spill.kept_bytes,
            stored_bytes: self.stored_bytes.load(Ordering::Relaxed),
            damaged: spill.damaged,
            lost: spill.lost,
            trouble: (self.absence())
                .or_else(|| self.trouble.lock().as_ref().map(|trouble| trouble.reason.clone())),
        }
    }
}

impl Drop for DiskSide {
    fn drop(&mut self) {
        self.queue.stop();
    }
}
