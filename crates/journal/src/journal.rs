//! The writer's side.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use sluice_payload::Payload;
use sluice_telemetry::Account;
use tokio::sync::Notify;

use crate::cursor::Cursor;
use crate::state::{Released, State};
use crate::{Confirm, Cost, CursorSpec, Depth, Full, Strain};

/// The writing end of a journal. Cloning shares it.
#[derive(Clone)]
pub struct Journal(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) pipeline: String,
    pub(crate) state: Mutex<State>,
    /// One per cursor: there is something to read, or the journal closed.
    pub(crate) readable: Vec<Notify>,
    /// A cursor made room.
    room: Notify,
    waiting_for_room: AtomicUsize,
    /// A cursor settled something; for whoever drains.
    settled: Notify,
}

impl Shared {
    pub(crate) fn after_settle(&self) {
        if self.waiting_for_room.load(Ordering::Acquire) > 0 {
            self.room.notify_waiters();
        }
        self.settled.notify_waiters();
    }
}

/// One cursor's account and backlog, as of one moment.
#[derive(Debug, Clone)]
pub struct CursorReport {
    /// The exporter's id.
    pub exporter: String,
    /// Accounts by tenant index; absent tenants have no items.
    pub tenants: Vec<Account>,
    /// How far it lags.
    pub depth: Depth,
}

impl CursorReport {
    /// All tenants together.
    pub fn total(&self) -> Account {
        let mut total = Account::default();
        self.tenants.iter().for_each(|account| total.add(account));
        total
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Journal({})", self.0.pipeline)
    }
}

impl Journal {
    /// An in-memory journal for `pipeline` with one cursor for each of `specs`, in their order.
    pub fn memory(pipeline: &str, specs: Vec<CursorSpec>) -> (Journal, Vec<Cursor>) {
        let count = specs.len();
        let shared = Arc::new(Shared {
            pipeline: pipeline.to_owned(),
            state: Mutex::new(State::new(specs)),
            readable: (0..count).map(|_| Notify::new()).collect(),
            room: Notify::new(),
            waiting_for_room: AtomicUsize::new(0),
            settled: Notify::new(),
        });
        let cursors = (0..count)
            .map(|index| Cursor::new(shared.clone(), index))
            .collect();
        (Journal(shared), cursors)
    }

    /// The pipeline's id.
    pub fn pipeline(&self) -> &str {
        &self.0.pipeline
    }

    /// Cursors of this journal.
    pub fn cursor_count(&self) -> usize {
        self.0.readable.len()
    }

    /// Reserves space in every coupled cursor, or in none.
    ///
    /// # Errors
    /// [`Full`] names the first cursor without room.
    pub fn try_reserve(&self, cost: Cost) -> Result<Space, Full> {
        self.0.state.lock().reserve(cost)?;
        Ok(Space {
            journal: self.clone(),
            cost,
        })
    }

    /// Like [`Journal::try_reserve`], but waits for room. The caller bounds the wait; dropping the
    /// future is safe.
    ///
    /// # Errors
    /// [`Full::Closed`] once the journal is closed.
    pub async fn reserve(&self, cost: Cost) -> Result<Space, Full> {
        let waiting = Waiting::enter(&self.0.waiting_for_room);
        loop {
            let room = self.0.room.notified();
            match self.try_reserve(cost) {
                Err(Full::Now { .. }) => room.await,
                done => {
                    drop(waiting);
                    return done;
                }
            }
        }
    }

    /// Appends a payload to the space reserved for it.
    pub fn append(&self, space: Space, payload: Arc<Payload>, confirm: Option<Confirm>) -> u64 {
        let mut released = Released::new();
        let seq = {
            let mut state = self.0.state.lock();
            let cost = space.cost;
            space.consume(&mut state);
            state.append(payload, cost, confirm, &mut released)
        };
        for readable in &self.0.readable {
            readable.notify_one();
        }
        seq
    }

    /// Bytes that wait for the cursor that lags most.
    pub fn backlog_bytes(&self) -> u64 {
        self.0.state.lock().backlog_bytes()
    }

    /// How the cursors are doing that receivers are coupled to.
    pub fn strain(&self, now: Instant) -> Strain {
        self.0.state.lock().strain(now)
    }

    /// Whether it takes payloads when it has room for them: it is not closed.
    pub fn is_open(&self) -> bool {
        !self.0.state.lock().closed
    }

    /// Takes nothing more; cursors end when they have read what is there.
    pub fn close(&self) {
        self.0.state.lock().closed = true;
        self.0.readable.iter().for_each(Notify::notify_one);
        self.0.room.notify_waiters();
    }

    /// Gives up what is left, counted as `shutdown`; returns the items given up.
    pub fn abandon(&self) -> u64 {
        let left = self
            .reports(Instant::now())
            .iter()
            .map(|r| r.total().queued)
            .sum();
        let mut released = Released::new();
        self.0.state.lock().abandon(&mut released);
        self.0.readable.iter().for_each(Notify::notify_one);
        self.0.room.notify_waiters();
        left
    }

    /// Waits until every cursor has settled everything.
    pub async fn drained(&self) {
        loop {
            let settled = self.0.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            {
                let state = self.0.state.lock();
                let now = Instant::now();
                if (0..state.cursor_count()).all(|i| state.depth(i, now).backlog == Cost::default()) {
                    return;
                }
            }
            settled.await;
        }
    }

    #[cfg(test)]
    pub(crate) fn slots(&self) -> usize {
        self.0.state.lock().slots()
    }

    /// Accounts and backlogs of all cursors at one moment.
    pub fn reports(&self, now: Instant) -> Vec<CursorReport> {
        let state = self.0.state.lock();
        (0..state.cursor_count())
            .map(|index| CursorReport {
                exporter: state.exporter(index).to_owned(),
                tenants: state.accounts(index).to_vec(),
                depth: state.depth(index, now),
            })
            .collect()
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn enter(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Space reserved in a journal; dropping it unused gives it back.
#[derive(Debug)]
pub struct Space {
    journal: Journal,
    cost: Cost,
}

impl Space {
    /// What was reserved.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    fn consume(mut self, state: &mut State) {
        state.unreserve(std::mem::take(&mut self.cost));
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        if self.cost != Cost::default() {
            self.journal.0.state.lock().unreserve(self.cost);
            self.journal.0.after_settle();
        }
    }
}
