//! What waits for the writer: payloads to be written, and the news that positions have moved.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use sluice_payload::Payload;
use tokio::sync::oneshot;

use super::NotPersisted;
use crate::journal::Space;
use crate::{Confirm, Durability};

/// Bytes of payloads written with one call at most: what comes next should not wait for more than this.
const GROUP_BYTES: u64 = 16 << 20;

/// Payloads written with one call at most.
const GROUP_REQUESTS: usize = 1024;

/// For so long after a group the writer does not hear of what is settled: the next group writes the positions as well, without a wake-up
/// of its own. A SIGKILL repeats what was settled meanwhile.
const POSITION_DELAY: Duration = Duration::from_millis(10);

/// A payload on its way to the disk.
pub(crate) struct Pending {
    pub payload: Arc<Payload>,
    pub space: Space,
    pub confirm: Option<Confirm>,
    pub durability: Durability,
    pub done: Option<oneshot::Sender<Result<(), NotPersisted>>>,
}

#[derive(Default)]
struct Waiting {
    pending: VecDeque<Pending>,
    /// Positions have moved.
    moved: bool,
    /// The writer is to be woken for that.
    listens: bool,
    /// The writer had something to do the last time.
    was_busy: bool,
    stop: bool,
}

impl Waiting {
    /// Whether the writer is waited for.
    fn is_urgent(&self) -> bool {
        self.stop || !self.pending.is_empty()
    }
}

/// What waits for the writer.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    /// Spares those who settle the lock, and the writer a wake-up for each of them.
    moved: AtomicBool,
}

impl Queue {
    pub fn push(&self, pending: Pending) {
        self.waiting.lock().pending.push_back(pending);
        self.wake.notify_one();
    }

    pub fn moved(&self) {
        if self.moved.swap(true, Ordering::AcqRel) {
            return;
        }
        let listens = {
            let mut waiting = self.waiting.lock();
            waiting.moved = true;
            waiting.listens
        };
        if listens {
            self.wake.notify_one();
        }
    }

    pub fn stop(&self) {
        self.waiting.lock().stop = true;
        self.wake.notify_one();
    }

    /// Waits until there is something to do, `timeout` at most; returns what is to be written with one call, empty
    /// when there is something else to do, or nothing. `None`: stop.
    pub fn wait(&self, timeout: Option<Duration>) -> Option<Vec<Pending>> {
        let mut waiting = self.waiting.lock();
        if waiting.was_busy && !waiting.is_urgent() {
            let _ = self.wake.wait_for(&mut waiting, POSITION_DELAY);
        }
        if !waiting.moved && !waiting.is_urgent() {
            waiting.listens = true;
            match timeout {
                Some(timeout) => drop(self.wake.wait_for(&mut waiting, timeout)),
                None => self.wake.wait(&mut waiting),
            }
            waiting.listens = false;
        }
        waiting.was_busy = waiting.moved || waiting.is_urgent();
        self.take_of(waiting)
    }

    /// As [`wait`](Self::wait), without waiting.
    #[cfg(any(test, feature = "testing"))]
    pub fn take(&self) -> Option<Vec<Pending>> {
        self.take_of(self.waiting.lock())
    }

    fn take_of(&self, mut waiting: MutexGuard<'_, Waiting>) -> Option<Vec<Pending>> {
        if waiting.stop && waiting.pending.is_empty() {
            return None;
        }
        waiting.moved = false;
        self.moved.store(false, Ordering::Release);
        let mut bytes = 0;
        let mut group = Vec::new();
        while let Some(next) = waiting.pending.front() {
            bytes += next.payload.body.len() as u64;
            if !group.is_empty() && (bytes > GROUP_BYTES || group.len() == GROUP_REQUESTS) {
                break;
            }
            group.extend(waiting.pending.pop_front());
        }
        Some(group)
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.waiting.lock().pending.is_empty()
    }

    /// Before everything else, in their order.
    pub fn put_back(&self, pending: impl DoubleEndedIterator<Item = Pending>) {
        let mut waiting = self.waiting.lock();
        pending.rev().for_each(|one| waiting.pending.push_front(one));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    /// Longer than any machine needs.
    const LONGEST: Duration = Duration::from_secs(60);

    /// Until the writer waits for whatever comes.
    fn until_it_listens(queue: &Queue) {
        let began = Instant::now();
        while !queue.waiting.lock().listens {
            assert!(began.elapsed() < LONGEST, "it never listens");
            std::thread::yield_now();
        }
    }

    /// Scenario: something is settled while the writer waits for whatever comes, and once more right after; again and again. In the end
    /// there is nothing more to come. There is never a payload, and the writer has no time-out.
    /// Guarantees: the writer hears of it each time, and of the end.
    #[test]
    fn what_is_settled_is_heard_of() {
        let queue = Arc::new(Queue::default());
        let (tell, heard) = mpsc::channel();
        let writer = queue.clone();
        std::thread::spawn(move || {
            while let Some(group) = writer.wait(None) {
                tell.send(group.len()).unwrap();
            }
        });
        for _ in 0..3 {
            until_it_listens(&queue);
            for _ in 0..2 {
                queue.moved();
                assert_eq!(heard.recv_timeout(LONGEST), Ok(0));
            }
        }
        until_it_listens(&queue);
        queue.stop();
        let end = heard.recv_timeout(LONGEST);
        assert_eq!(end, Err(mpsc::RecvTimeoutError::Disconnected));
    }
}
