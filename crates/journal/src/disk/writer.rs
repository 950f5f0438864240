//! The single writer: takes everything that waits, writes and syncs it at once, then answers.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::body::Codec;
use super::log::{Entry, Log, Written};
use super::position::PositionFile;
use super::queue::Pending;
use super::reader::Reader;
use super::segment::{Contents, HEADER_BYTES};
use super::short::Watch;
use super::spill::Segment;
use super::unreadable::Unreadable;
use super::{NotPersisted, SyncPolicy};
use crate::Durability;
use crate::journal::Shared;
use crate::state::Released;

/// A crash of the machine may bring back what was settled in this time, and no more.
const POSITION_SYNC: Duration = Duration::from_secs(1);

/// After a write that failed, payloads are refused for so long before the next one tries again; it doubles up to the
/// second figure. Short, for a client that is refused comes back after a second at the earliest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Damaged segments that are kept for inspection.
const KEPT_DAMAGED: usize = 8;

/// The disk does not take anything.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    pub reason: String,
    pub until: Instant,
    pause: Duration,
}

/// The writer of one journal.
pub(crate) struct Writer {
    pub log: Log,
    pub positions: Vec<PositionFile>,
    pub codec: Codec,
    pub sync: SyncPolicy,
    pub synced_at: Instant,
    pub positions_synced_at: Instant,
    /// Segments that nobody needs any more, to be removed once the positions on the disk say so too.
    pub done: Vec<Segment>,
    /// Finds what exporters that are cut loose have to drop.
    pub droppers: Vec<Option<Reader>>,
    pub new_dropper: Box<dyn Fn() -> Reader + Send>,
    /// What is free on the disk.
    pub watch: Watch,
}

impl Writer {
    /// How long it may sleep when nothing happens.
    pub fn sleeps(&self) -> Option<Duration> {
        match self.sync {
            SyncPolicy::Interval(interval) => Some(interval.min(POSITION_SYNC)),
            SyncPolicy::Group => Some(POSITION_SYNC),
            SyncPolicy::Off => None,
        }
    }

    /// One turn: writes `group`, then whatever else is due.
    pub fn turn(&mut self, shared: &Shared, group: Vec<Pending>) {
        if !group.is_empty() {
            self.commit(shared, group);
            self.cut_loose(shared);
        }
        self.spare_disk(shared);
        let Some(disk) = &shared.disk else { return };
        let now = disk.clock.now();
        if let SyncPolicy::Interval(interval) = self.sync
            && now.saturating_duration_since(self.synced_at) >= interval
        {
            self.synced_at = now;
            self.sync_behind(shared);
        }
        let mut said = self.write_positions(shared);
        let is_due = now.saturating_duration_since(self.positions_synced_at) >= POSITION_SYNC;
        if self.sync != SyncPolicy::Off && (is_due || !self.done.is_empty()) {
            self.positions_synced_at = now;
            said &= self.sync_positions(shared);
        }
        if said {
            self.remove(shared);
        }
    }

    /// Ends orderly: everything is on the disk, and the next start has nothing to scan.
    pub fn finish(&mut self, shared: &Shared) {
        self.seal(shared);
        let mut said = self.write_positions(shared);
        if self.sync != SyncPolicy::Off {
            said &= self.sync_positions(shared);
        }
        if said {
            self.remove(shared);
        }
    }

    fn commit(&mut self, shared: &Shared, mut group: Vec<Pending>) {
        let stored: Vec<_> = group.iter().map(|one| self.codec.stored(&one.payload)).collect();
        let entries: Vec<_> = (group.iter().zip(stored))
            .map(|(one, (encoding, stored))| Entry {
                payload: &one.payload,
                encoding,
                stored,
                refusal: None,
            })
            .collect();
        let written = self
            .ready(shared)
            .and_then(|sound_bytes| Ok((self.log.write(&entries)?, sound_bytes)));
        let lengths: Vec<u64> = entries.iter().map(|entry| entry.stored.len() as u64).collect();
        drop(entries);
        let (written, sound_bytes) = match written {
            Ok(written) => written,
            Err(error) => {
                self.close_failed(shared);
                self.make_room(shared, &error);
                return fail(shared, group, &error);
            }
        };
        // Who wants no more than this is answered; the sync is for the others.
        for one in group
            .iter_mut()
            .filter(|one| one.durability == Durability::Written)
        {
            answer(one, Ok(()));
        }
        if self.sync == SyncPolicy::Group
            && let Err(error) = self.log.sync(sound_bytes)
        {
            self.close_failed(shared);
            let (told, waiting): (Vec<_>, Vec<_>) = group.into_iter().partition(|one| one.done.is_none());
            fail(shared, waiting, &error);
            // These were taken: they are written again, elsewhere.
            if let Some(disk) = &shared.disk {
                disk.queue.put_back(told.into_iter());
            }
            return;
        }
        self.take_in(shared, group, &written, &lengths);
    }

    /// A segment with room; returns how long it is.
    fn ready(&mut self, shared: &Shared) -> io::Result<u64> {
        if self.log.is_full() {
            self.seal(shared);
        }
        let is_new = self.log.active.is_none();
        let id = self.log.begin()?;
        let offset = self.log.active.as_ref().map_or(0, |active| active.offset);
        if is_new {
            let segment = Segment {
                id,
                contents: Contents::default(),
                end: offset,
                size_bytes: offset,
                closed: false,
                damaged: false,
                unreadable: Unreadable::default(),
            };
            shared.state.lock().spilled().segments.insert(id.first, segment);
        }
        Ok(offset)
    }

    /// Written and, as far as that is asked for, synced: cursors may have it, and clients are answered.
    fn take_in(&mut self, shared: &Shared, mut group: Vec<Pending>, written: &[Written], lengths: &[u64]) {
        let mut released = Released::new();
        self.log.last_seq = written.last().map_or(self.log.last_seq, |last| last.seq);
        {
            let mut state = shared.state.lock();
            let ends = written.iter().skip(1).map(|next| next.place.offset);
            let last = self.log.active.as_ref().map_or(0, |active| active.offset);
            let ends = ends.chain([last]);
            for ((one, at), end) in group.iter_mut().zip(written).zip(ends) {
                let cost = one.space.consume(&mut state);
                state.written(
                    *at,
                    end,
                    one.payload.clone(),
                    cost,
                    one.confirm.take(),
                    &mut released,
                );
            }
        }
        if let Some(disk) = &shared.disk {
            disk.stored_bytes
                .fetch_add(lengths.iter().sum(), Ordering::Relaxed);
            if let Some(trouble) = disk.trouble.lock().take() {
                tracing::info!(
                    pipeline = shared.pipeline,
                    was = trouble.reason,
                    "the journal can be written again"
                );
            }
        }
        let mut told = false;
        for one in &mut group {
            told |= answer(one, Ok(()));
        }
        // Otherwise who was told does it.
        if !told {
            shared.wake_cursors();
        }
        drop((group, released));
    }

    fn cut_loose(&mut self, shared: &Shared) {
        let mut released = Released::new();
        for index in 0..shared.readable.len() {
            while shared.state.lock().is_laggard(index) {
                if !self.drop_oldest(shared, index, &mut released) {
                    break;
                }
            }
        }
        drop(released);
    }

    pub fn drop_oldest(&mut self, shared: &Shared, index: usize, released: &mut Released) -> bool {
        let new_dropper = &self.new_dropper;
        let dropper = self.droppers[index].get_or_insert_with(new_dropper);
        if dropper.ahead.is_empty() {
            let from = shared.state.lock().where_to_read(index);
            if let Err(error) = dropper.fill(&from) {
                tracing::warn!(pipeline = shared.pipeline, %error, "the journal cannot be read; it is tried again");
                return false;
            }
            let mut state = shared.state.lock();
            state.found_damage(std::mem::take(&mut dropper.damaged));
            if let Some(until) = dropper.until.filter(|_| dropper.ahead.is_empty()) {
                state.caught_up(index, until, released);
            }
        }
        let Some(oldest) = dropper.ahead.pop_front() else {
            return false;
        };
        shared.state.lock().drop_passed(index, &oldest.passing, released);
        true
    }

    /// Syncs what nobody waits for.
    fn sync_behind(&mut self, shared: &Shared) {
        let sound_bytes = self.log.active.as_ref().map_or(0, |active| active.offset);
        if let Err(error) = self.log.sync(sound_bytes) {
            tracing::error!(
                pipeline = shared.pipeline, %error,
                "the journal could not be synced: what came since the last time may not survive a crash of the machine"
            );
            self.close_failed(shared);
        }
    }

    /// Seals the segment being written, if there is one.
    fn seal(&mut self, shared: &Shared) {
        let Some(active) = &self.log.active else { return };
        let first = active.id.first;
        let contents = shared
            .state
            .lock()
            .spilled()
            .segments
            .get(&first)
            .map(|of| of.contents.clone());
        let sealed = self
            .log
            .seal(&contents.unwrap_or_default(), self.sync != SyncPolicy::Off);
        if let Err(error) = &sealed {
            tracing::warn!(pipeline = shared.pipeline, %error, "a segment of the journal has no footer; it is scanned at the next start");
        }
        shared.state.lock().close_segment(first, sealed.ok());
    }

    /// Nothing more is written to a segment that is not the log's any more.
    fn close_failed(&mut self, shared: &Shared) {
        let active = self.log.active.as_ref().map(|active| active.id.first);
        shared.state.lock().close_segments_but(active);
    }

    /// On a full disk, a segment that everybody is past goes, even if it has room: it may be all there is to give back.
    fn make_room(&mut self, shared: &Shared, error: &io::Error) {
        let Some(active) = &self.log.active else { return };
        let has_records = active.offset > HEADER_BYTES;
        let first = active.id.first;
        if is_full(error) && has_records && shared.state.lock().is_settled(first) {
            self.seal(shared);
        }
    }

    /// Writes the positions that have moved. True when what is done with may go: the positions say so, or the disk is full, where waiting
    /// for them would keep the space that they need. Then what a crash loses is the account alone: requests that were delivered count
    /// as lost.
    fn write_positions(&mut self, shared: &Shared) -> bool {
        // Both of one moment: a segment that is settled after it is still asked for by a position on the disk, and would count as lost after
        // a SIGKILL.
        let (moved, done) = {
            let mut state = shared.state.lock();
            let moved = state.moved_positions();
            let done = state.done_with(!moved.is_empty());
            (moved, done)
        };
        self.done.extend(done);
        let mut may_go = true;
        for (index, position) in moved {
            if let Err(error) = self.positions[index].write(&position) {
                tracing::debug!(pipeline = shared.pipeline, %error, "a position could not be written; it is tried again");
                shared.state.lock().position_not_written(index);
                may_go &= is_full(&error);
            }
        }
        may_go
    }

    /// The same for syncing them. What a failed sync was to write may be gone: it is written again before the next one.
    fn sync_positions(&mut self, shared: &Shared) -> bool {
        let mut may_go = true;
        for (index, position) in self.positions.iter_mut().enumerate() {
            if let Err(error) = position.sync() {
                tracing::warn!(%error, "a position in the journal could not be synced; it is tried again");
                shared.state.lock().position_not_written(index);
                may_go &= is_full(&error);
            }
        }
        may_go
    }

    fn remove(&mut self, shared: &Shared) {
        let Some(disk) = &shared.disk else { return };
        for segment in self.done.drain(..) {
            let path = self.log.path(segment.id);
            let filesystem = &*disk.filesystem;
            let removed = match segment.damaged {
                true => keep_damaged(filesystem, self.log.directory(), &path),
                false => filesystem.remove(&path),
            };
            if let Err(error) = removed {
                tracing::warn!(path = %path.display(), %error, "a segment that is done with could not be removed");
            }
            disk.let_go(segment.id.first);
            for dropper in self.droppers.iter_mut().flatten() {
                dropper.let_go(segment.id.first);
            }
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Moves a damaged segment out of the way, for somebody to look at, and the oldest such out of the world.
fn keep_damaged(filesystem: &dyn crate::Filesystem, directory: &Path, path: &Path) -> io::Result<()> {
    let damaged = directory.join("damaged");
    filesystem.create_directories(&damaged)?;
    let mut kept = filesystem.list(&damaged)?;
    kept.sort();
    if kept.len() >= KEPT_DAMAGED {
        for oldest in &kept[..=kept.len() - KEPT_DAMAGED] {
            filesystem.remove(&damaged.join(oldest))?;
        }
    }
    filesystem.rename(path, &damaged.join(path.file_name().unwrap_or_default()))
}

/// Whether somebody was told. The client may have hung up; its payload is stored all the same.
fn answer(pending: &mut Pending, result: Result<(), NotPersisted>) -> bool {
    let done = pending.done.take();
    done.is_some_and(|done| done.send(result).is_ok())
}

/// The disk has said why not.
fn fail(shared: &Shared, group: Vec<Pending>, error: &io::Error) {
    let Some(disk) = &shared.disk else { return };
    let reason = error.to_string();
    {
        let mut trouble = disk.trouble.lock();
        let pause = trouble
            .as_ref()
            .map_or(FIRST_PAUSE, |before| (before.pause * 2).min(LONGEST_PAUSE));
        if trouble.is_none() {
            tracing::error!(
                pipeline = shared.pipeline,
                reason,
                "the journal cannot be written: payloads are refused until it can, which is tried all the time; what is in it is delivered"
            );
        }
        *trouble = Some(Trouble {
            reason: reason.clone(),
            until: disk.clock.now() + pause,
            pause,
        });
    }
    refuse(shared, group, &reason);
}

pub(super) fn refuse(shared: &Shared, mut group: Vec<Pending>, reason: &str) {
    for one in &mut group {
        answer(
            one,
            Err(NotPersisted {
                pipeline: shared.pipeline.clone(),
                reason: reason.to_owned(),
            }),
        );
    }
}
