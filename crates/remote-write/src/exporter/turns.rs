//! Waiting for a turn at an endpoint.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use sluice_telemetry::Gauge;
use tokio::sync::{MutexGuard, Notify};
use tokio::time::Instant;

use super::concurrency::{Came, Concurrency, Request};

/// The turns of one endpoint: lanes wait here while as many requests are under way as [`Concurrency`] has it.
#[derive(Debug)]
pub(super) struct Turns {
    concurrency: Mutex<Concurrency>,
    /// The first of those that wait has it: turns are in the order in which they were asked for.
    first: tokio::sync::Mutex<()>,
    changed: Notify,
    /// The endpoint said no to all requests: the next one is alone until it is answered.
    next_is_alone: AtomicBool,
    limit: Gauge,
}

/// A request under way; it is over when this is dropped.
#[derive(Debug)]
pub(super) struct Turn<'t> {
    turns: &'t Turns,
    request: Request,
    came: Came,
    _alone: Option<MutexGuard<'t, ()>>,
}

impl Turns {
    /// At most `most` at once; `limit` is told how many there may be.
    pub fn new(most: usize, limit: Gauge) -> Self {
        let concurrency = Concurrency::new(most);
        limit.set(concurrency.limit() as i64);
        Self {
            concurrency: Mutex::new(concurrency),
            first: tokio::sync::Mutex::new(()),
            changed: Notify::new(),
            next_is_alone: AtomicBool::new(false),
            limit,
        }
    }

    /// Waits until a request with a body of so many bytes may be sent.
    pub async fn take(&self, bytes: usize) -> Turn<'_> {
        let first = self.first.lock().await;
        loop {
            let changed = self.changed.notified();
            let begun = self.concurrency.lock().begin(bytes, Instant::now());
            if let Some(request) = begun {
                return Turn {
                    turns: self,
                    request,
                    came: Came::Nothing,
                    _alone: self.next_is_alone.load(Ordering::Relaxed).then_some(first),
                };
            }
            changed.await;
        }
    }
}

impl Turn<'_> {
    /// Ends it, and says what came of it; `is_no` says that every request would get the same now.
    pub fn end(mut self, came: Came, is_no: bool) {
        self.came = came;
        self.turns.next_is_alone.store(is_no, Ordering::Relaxed);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        {
            let mut concurrency = self.turns.concurrency.lock();
            concurrency.end(self.request, self.came, Instant::now());
            self.turns.limit.set(concurrency.limit() as i64);
        }
        self.turns.changed.notify_waiters();
    }
}
