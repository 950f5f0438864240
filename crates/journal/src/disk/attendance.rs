//! The thread that writes, and what a journal says when that thread hangs or has ended.

use std::convert::Infallible;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
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
    thread: Mutex<Option<Thread>>,
    /// Since when it is at the turn that it is at.
    busy_since: Mutex<Option<Instant>>,
    /// It panicked. What it left half done is as after a crash, so nothing is written any more: the next start looks.
    has_ended: AtomicBool,
}

#[derive(Debug)]
struct Thread {
    handle: JoinHandle<()>,
    /// Disconnected when it ends.
    ends: Receiver<Infallible>,
}

/// A journal could not be put in order, because its disk did not answer in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the disk under {} does not answer, and is not waited for any longer: what was acknowledged as persisted is there, and the next start \
     looks through the last segment; check the disk", .0.display()
)]
pub struct NotInOrder(PathBuf);

impl DiskSide {
    /// Starts the thread that writes.
    pub fn attend(&self, shared: &Arc<Shared>) -> io::Result<()> {
        if self.inline {
            return Ok(());
        }
        let sleeps = self.writer.lock().sleeps();
        let (queue, shared) = (self.queue.clone(), Arc::downgrade(shared));
        let name = "sluice-journal".to_owned();
        let (tells, ends) = mpsc::channel();
        let handle = std::thread::Builder::new().name(name).spawn(move || {
            let _tells = tells;
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
            // Nobody may be there any more to put it in order for.
            let Some(shared) = shared.upgrade() else { return };
            if let Some(disk) = &shared.disk
                && !disk.has_ended()
            {
                disk.writer.lock().finish(&shared);
            }
        })?;
        *self.attendance.thread.lock() = Some(Thread { handle, ends });
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

    /// Ends the writer, and leaves everything as the next process likes it best; by `end`, if the disk answers until then.
    pub fn finish(&self, shared: &Shared, end: Option<Instant>) -> Result<(), NotInOrder> {
        self.queue.stop();
        if self.inline {
            self.writer.lock().finish(shared);
            return Ok(());
        }
        let Some(Thread { handle, ends }) = self.attendance.thread.lock().take() else {
            return Ok(());
        };
        if let Some(end) = end
            && ends.recv_timeout(end.saturating_duration_since(Instant::now()))
                == Err(RecvTimeoutError::Timeout)
        {
            return Err(NotInOrder(self.directory.clone()));
        }
        if handle.join().is_err() {
            tracing::error!(
                pipeline = shared.pipeline,
                "the journal's thread panicked; please report the panic message above"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
