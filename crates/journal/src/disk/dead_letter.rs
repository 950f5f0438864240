//! What a destination refuses for good, kept for somebody to look at and to send again.
//!
//! `DIRECTORY/PIPELINE.dead` has the files of a journal without cursors: the same segments and records, each with the
//! exporter and the reason (docs/journal-format.md). It is made with the first letter, and written by the process that
//! holds the journal beside it.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sluice_payload::Payload;

use super::body::Codec;
use super::log::{Entry, Log};
use super::reader::Source;
use super::record::Refusal;
use super::recovery::{Numbers, look_through};
use super::segment::{Contents, SegmentId};
use super::{DiskSettings, escape};
use crate::Cost;

/// Ends the names of directories with dead letters.
pub(crate) const DEAD_SUFFIX: &str = ".dead";

/// Letters of a pipeline beyond this push out the oldest: a destination that refuses for weeks must not fill the disk.
pub const DEAD_LETTER_BYTES: u64 = 256 << 20;

/// What is pushed out at once, and what is scanned at the first letter after a start.
const SEGMENT_BYTES: u64 = 16 << 20;

/// Where the dead letters of one pipeline are kept. Cloning shares it.
#[derive(Clone)]
pub struct DeadLetters(Arc<Shared>);

struct Shared {
    letters: Mutex<Letters>,
    /// Beside the lock, which is held while the disk works.
    removed_items: AtomicU64,
}

struct Letters {
    source: Source,
    seed: Option<u64>,
    most_bytes: u64,
    segment_bytes: u64,
    open: Option<Open>,
}

struct Open {
    log: Log,
    codec: Codec,
    /// What the segment being written holds.
    contents: Contents,
    /// The others, the oldest first.
    before: VecDeque<Before>,
}

/// A segment that nothing is written to any more.
struct Before {
    id: SegmentId,
    size_bytes: u64,
    items: u64,
}

impl std::fmt::Debug for DeadLetters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeadLetters({})", self.directory().display())
    }
}

impl DeadLetters {
    /// Beside the journal of `pipeline`, which this process has open; nothing is made or read yet.
    pub fn new(pipeline: &str, settings: &DiskSettings) -> Self {
        let letters = Letters {
            source: Source {
                filesystem: settings.filesystem.clone(),
                directory: settings
                    .directory
                    .join(format!("{}{DEAD_SUFFIX}", escape(pipeline))),
                clock: settings.clock.clone(),
                tenants: settings.tenants.clone(),
                frames: Vec::new(),
            },
            seed: settings.seed,
            most_bytes: DEAD_LETTER_BYTES,
            segment_bytes: SEGMENT_BYTES,
            open: None,
        };
        Self(Arc::new(Shared {
            letters: Mutex::new(letters),
            removed_items: AtomicU64::new(0),
        }))
    }

    /// Where they are.
    pub fn directory(&self) -> PathBuf {
        self.0.letters.lock().source.directory.clone()
    }

    /// Items of letters that were removed since the start, because there were more than [are kept](DEAD_LETTER_BYTES).
    pub fn removed_items(&self) -> u64 {
        self.0.removed_items.load(Ordering::Relaxed)
    }

    /// Keeps a payload, and returns when it is synced: it blocks.
    ///
    /// # Errors
    /// It is not kept, because the directory cannot be read or written.
    pub fn keep(&self, payload: &Payload, refusal: &Refusal) -> io::Result<()> {
        let letters = &mut *self.0.letters.lock();
        let mut open = match letters.open.take() {
            Some(open) => open,
            None => letters.look()?,
        };
        let kept = open.keep(payload, refusal);
        if open.log.is_full() || open.log.active.is_none() {
            open.end_segment();
        }
        let removed_items = open.push_out(&letters.source, letters.most_bytes);
        self.0.removed_items.fetch_add(removed_items, Ordering::Relaxed);
        letters.open = Some(open);
        kept
    }
}

impl Letters {
    fn look(&self) -> io::Result<Open> {
        let source = &self.source;
        source.filesystem.create_directories(&source.directory)?;
        if let Some(parent) = source.directory.parent() {
            source.filesystem.sync_directory(parent)?;
        }
        let found = look_through(source).map_err(io::Error::other)?;
        let before = found.segments.values().map(|segment| Before {
            id: segment.id,
            size_bytes: segment.size_bytes,
            items: items(&segment.contents),
        });
        Ok(Open {
            before: before.collect(),
            log: Log::new(
                source.clone(),
                Numbers {
                    next: found.highest + 1,
                    last: found.last,
                },
                self.segment_bytes,
                self.seed,
            ),
            codec: Codec::new(),
            contents: Contents::default(),
        })
    }
}

impl Open {
    fn keep(&mut self, payload: &Payload, refusal: &Refusal) -> io::Result<()> {
        self.log.begin()?;
        let sound_bytes = self.log.active.as_ref().map_or(0, |active| active.offset);
        let (encoding, stored) = self.codec.stored(payload);
        let entry = Entry {
            payload,
            encoding,
            stored,
            refusal: Some(refusal),
        };
        let written = self.log.write(&[entry])?;
        self.log.sync(sound_bytes)?;
        for one in written {
            let cost = Cost {
                requests: 1,
                items: payload.items,
                bytes: payload.body.len() as u64,
            };
            self.contents
                .add(one.seq, one.received_at_nanos, payload.tenant, cost);
            self.log.last_seq = one.seq;
        }
        Ok(())
    }

    /// Begins the next segment with the next letter.
    fn end_segment(&mut self) {
        let contents = std::mem::take(&mut self.contents);
        let Some(active) = &self.log.active else { return };
        let (id, size_bytes) = (active.id, active.offset);
        // Without a footer it is scanned another time.
        let size_bytes = self.log.seal(&contents, true).unwrap_or(size_bytes);
        let items = items(&contents);
        self.before.push_back(Before {
            id,
            size_bytes,
            items,
        });
    }

    /// Returns how many items go.
    fn push_out(&mut self, source: &Source, most_bytes: u64) -> u64 {
        let active = self.log.active.as_ref().map_or(0, |active| active.offset);
        let mut bytes = active + self.before.iter().map(|before| before.size_bytes).sum::<u64>();
        let mut removed_items = 0;
        while bytes > most_bytes
            && let Some(oldest) = self.before.pop_front()
        {
            bytes -= oldest.size_bytes;
            let path = self.log.path(oldest.id);
            match source.filesystem.remove(&path) {
                Ok(()) => {
                    removed_items += oldest.items;
                    tracing::warn!(
                        path = %path.display(), most_bytes, items = oldest.items,
                        "the oldest dead letters were removed: there are more than are kept"
                    );
                }
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "dead letters could not be removed")
                }
            }
        }
        removed_items
    }
}

fn items(contents: &Contents) -> u64 {
    contents.tally.iter().map(|(_, cost)| cost.items).sum()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use bytes::Bytes;
    use sluice_payload::{Signal, Tenants};

    use super::*;
    use crate::Filesystem;
    use crate::testing::{Fault, ManualClock, Operation, SimulatedDisk};
    use crate::{Stored, Which, export};

    fn letters(disk: &SimulatedDisk) -> DeadLetters {
        let settings = DiskSettings {
            filesystem: Arc::new(disk.clone()),
            clock: Arc::new(ManualClock::at(UNIX_EPOCH)),
            seed: Some(7),
            ..DiskSettings::new("/spool", Tenants::default())
        };
        let letters = DeadLetters::new("logs/1", &settings);
        {
            let mut inside = letters.0.letters.lock();
            inside.segment_bytes = 600;
            inside.most_bytes = 3000;
        }
        letters
    }

    fn payload(text: &str) -> Payload {
        Payload::uncharged(Signal::Logs, Bytes::copy_from_slice(text.as_bytes()), 2)
    }

    fn keep(letters: &DeadLetters, text: &str) -> io::Result<()> {
        let refusal = Refusal {
            exporter: "otlphttp/x".to_owned(),
            reason: format!("HTTP 400: {text}"),
        };
        letters.keep(&payload(text), &refusal)
    }

    fn read(disk: &SimulatedDisk) -> Vec<Stored> {
        let mut all = Vec::new();
        let directory = std::path::Path::new("/spool/logs%2F1.dead");
        export(disk, directory, &Which::Waiting, &mut |stored| {
            all.push(stored);
            Ok(())
        })
        .unwrap();
        all
    }

    /// Scenario: letters come; one meets a disk that fails; the machine crashes; more come than are kept.
    /// Guarantees: what was kept is there after the crash, with its reason, what failed is told and not there, and the
    /// oldest go first, and are counted, those of the process before as well.
    #[test]
    fn letters_are_kept_with_their_reason_until_there_are_too_many() {
        let disk = SimulatedDisk::default();
        let kept = letters(&disk);
        assert!(
            !disk
                .list(std::path::Path::new("/"))
                .unwrap()
                .contains(&"spool".into()),
            "nothing is made in vain"
        );
        keep(&kept, "one").unwrap();
        disk.fail(Operation::Sync, Fault::Io, 1);
        keep(&kept, "two").unwrap_err();
        keep(&kept, "three").unwrap();
        drop(kept);
        disk.crash();
        let found = read(&disk);
        let texts: Vec<_> = found.iter().map(|stored| &stored.body[..]).collect();
        assert_eq!(texts, [&b"one"[..], b"three"]);
        let refusal = found[1].refusal.clone().unwrap();
        assert_eq!(
            (refusal.exporter.as_str(), refusal.reason.as_str()),
            ("otlphttp/x", "HTTP 400: three")
        );
        assert_eq!((found[1].items, found[1].signal), (2, Signal::Logs));

        let again = letters(&disk);
        for n in 0..50 {
            keep(&again, &format!("more {n}")).unwrap();
        }
        let found = read(&disk);
        assert_eq!(found.last().unwrap().body, "more 49");
        assert!((10..40).contains(&found.len()), "{}", found.len());
        let removed = 2 + 50 - found.len() as u64;
        assert_eq!(again.removed_items(), 2 * removed);
    }
}
