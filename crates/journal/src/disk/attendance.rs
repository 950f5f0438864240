//! The thread that writes, and what a journal says when that thread hangs or has ended.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{DiskSide, writer};
use crate::journal::Shared;

/// A turn that takes longer than this counts as a disk that does not answer: the SDKs' exporters wait for ten seconds, so whoever waits for
/// it has given up, and what comes meanwhile is better told than kept.
const STALLED: Duration = Duration::from_secs(10);

const ENDED: &str =
    "its writer panicked: the message is in the log, please report it; restart the gateway to write again";

/// What the writer is at.
#[derive(Debug, Default)]
pub(super) struct Attendance {
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Since when it is at the turn that it is at.
    busy_since: Mutex<Option<Instant>>,
    /// It panicked. What it left half done is as after a crash, so nothing is written any more: the next start looks.
    has_ended: AtomicBool,
}

impl DiskSide {
    /// Starts the thread that writes.
    pub fn attend(&self, shared: &Arc<Shared>) -> io::Result<()> {
        if self.inline {
            return Ok(());
        }
        let sleeps = self.writer.lock().sleeps();
        let (queue, shared) = (self.queue.clone(), Arc::downgrade(shared));
        let name = "sluice-journal".to_owned();
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            while let Some(group) = queue.wait(sleeps) {
                let Some(shared) = shared.upgrade() else { return };
                let Some(disk) = &shared.disk else { return };
                if disk.has_ended() {
                    writer::refuse(&shared, group, ENDED);
                    continue;
                }
                *disk.attendance.busy_since.lock() = Some(disk.clock.now());
                let turn = catch_unwind(AssertUnwindSafe(|| disk.writer.lock().turn(&shared, group)));
                disk.turn_ends(&shared, turn.is_err());
                let trouble = disk.trouble.lock().as_ref().map(|trouble| trouble.until);
                if let Some(until) = trouble {
                    std::thread::sleep(until.saturating_duration_since(disk.clock.now()));
                }
            }
        })?;
        *self.attendance.thread.lock() = Some(thread);
        Ok(())
    }

    fn turn_ends(&self, shared: &Shared, panicked: bool) {
        if panicked {
            tracing::error!(
                pipeline = shared.pipeline,
                "the journal's writer panicked: payloads are refused until the gateway is started again; what is in it is delivered"
            );
            self.attendance.has_ended.store(true, Ordering::Release);
        }
        let since = self.attendance.busy_since.lock().take();
        let took = since.map(|since| self.clock.now().saturating_duration_since(since));
        if let Some(took) = took.filter(|took| *took >= STALLED) {
            tracing::warn!(
                pipeline = shared.pipeline,
                seconds = took.as_secs(),
                "the disk did not answer the journal for so long; payloads were refused meanwhile"
            );
        }
    }

    /// Whether nothing is written any more.
    pub(super) fn has_ended(&self) -> bool {
        self.attendance.has_ended.load(Ordering::Acquire)
    }

    /// Why nothing that comes now would be written, for all that the disk has said.
    pub(super) fn absence(&self) -> Option<String> {
        if self.has_ended() {
            return Some(ENDED.to_owned());
        }
        let since = (*self.attendance.busy_since.lock())?;
        let took = self.clock.now().saturating_duration_since(since);
        (took >= STALLED).then(|| format!("the disk has not answered for {} s", took.as_secs()))
    }

    /// Ends the writer, and leaves everything as the next process likes it best.
    pub fn finish(&self, shared: &Shared) {
        self.queue.stop();
        if let Some(thread) = self.attendance.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!(
                pipeline = shared.pipeline,
                "the journal's thread panicked; please report the panic message above"
            );
        }
        if !self.has_ended() {
            self.writer.lock().finish(shared);
        }
    }
}

#[cfg(test)]
mod tests;
