//! What a cursor gets: from memory where it is there, else as its reader finds it on the disk.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::DiskSide;
use super::reader::CursorReader;
use super::spill::{Look, ReadFrom};
use crate::Entry;
use crate::journal::Shared;
use crate::state::Released;

/// How long a reader waits before it tries again what failed.
const READ_PAUSE: Duration = Duration::from_secs(1);

/// What a cursor gets when it asks.
pub(crate) enum Next {
    Ready(Entry),
    Wait,
    Retry,
    Closed,
}

impl DiskSide {
    /// The next payload for a cursor. `Wait` means: until [`Shared::readable`] says so.
    pub fn next(&self, shared: &Arc<Shared>, index: usize) -> Next {
        let mine = &self.readers[index];
        if mine.filling.load(Ordering::Acquire) {
            return Next::Wait;
        }
        let next = self.next_of(mine, shared, index);
        mine.let_go_of_removed();
        next
    }

    fn next_of(&self, mine: &CursorReader, shared: &Arc<Shared>, index: usize) -> Next {
        let mut released = Released::new();
        loop {
            let from = match shared.state.lock().look(index, &mut released) {
                Look::Ready(entry) => return Next::Ready(entry),
                Look::Wait => return Next::Wait,
                Look::Closed => return Next::Closed,
                Look::Read(from) => from,
            };
            let mut reader = mine.reader.lock();
            while let Some(record) = reader.ahead.pop_front() {
                let mut state = shared.state.lock();
                let handed = state.hand_out(index, &record.passing, &mut released);
                if let Some(payload) = record.payload.filter(|_| handed) {
                    return Next::Ready(Entry {
                        seq: record.passing.seq,
                        payload,
                        full: state.is_full(index),
                    });
                }
            }
            if let Some(until) = reader.until.take() {
                shared.state.lock().caught_up(index, until, &mut released);
                continue;
            }
            if self.inline {
                match reader.fill(&from) {
                    Ok(()) => shared
                        .state
                        .lock()
                        .found_damage(std::mem::take(&mut reader.damaged)),
                    Err(_) => return Next::Retry,
                }
                continue;
            }
            drop(reader);
            mine.filling.store(true, Ordering::Release);
            let shared = shared.clone();
            tokio::task::spawn_blocking(move || fill(&shared, index, &from));
            return Next::Wait;
        }
    }

    /// Readers let go of a segment that was removed, those that are reading when they are done.
    pub fn let_go(&self, first: u64) {
        for mine in &self.readers {
            mine.let_go(first);
        }
    }
}

fn fill(shared: &Shared, index: usize, from: &ReadFrom) {
    let Some(disk) = &shared.disk else { return };
    let mine = &disk.readers[index];
    let (filled, damaged) = {
        let mut reader = mine.reader.lock();
        let filled = reader.fill(from);
        (filled, std::mem::take(&mut reader.damaged))
    };
    mine.let_go_of_removed();
    shared.state.lock().found_damage(damaged);
    if let Err(error) = filled {
        tracing::warn!(pipeline = shared.pipeline, %error, "the journal cannot be read; it is tried again");
        std::thread::sleep(READ_PAUSE);
    }
    mine.filling.store(false, Ordering::Release);
    shared.readable[index].notify_one();
}
