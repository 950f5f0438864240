//! The writer's side.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sluice_payload::{Encoding, Payload};
use sluice_telemetry::Account;
use tokio::sync::{Notify, oneshot};

use crate::cursor::Cursor;
use crate::disk::{self, DiskSide, Pending};
use crate::state::{Released, State};
use crate::{
    Confirm, Cost, CursorSpec, Depth, DiskReport, DiskSettings, Durability, Full, NotInOrder, NotPersisted,
    OpenError, Recovered, Strain,
};

/// What waits for an exporter that keeps up stays far below this: a few batches. It is still in the processor's cache when it
/// is sent, which what waits in a long queue is not.
pub const EASED_BYTES: u64 = 4 << 20;

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
    /// Somebody may go on who waits for the backlog to ease.
    eased: Notify,
    waiting_for_ease: AtomicUsize,
    /// The journal was closed.
    closing: Notify,
    /// Of a journal on disk.
    pub(crate) disk: Option<DiskSide>,
}

impl Shared {
    fn new(pipeline: &str, state: State, disk: Option<DiskSide>) -> Arc<Self> {
        Arc::new(Shared {
            pipeline: pipeline.to_owned(),
            readable: (0..state.cursor_count()).map(|_| Notify::new()).collect(),
            state: Mutex::new(state),
            room: Notify::new(),
            waiting_for_room: AtomicUsize::new(0),
            settled: Notify::new(),
            eased: Notify::new(),
            waiting_for_ease: AtomicUsize::new(0),
            closing: Notify::new(),
            disk,
        })
    }

    /// After `payloads` were settled, in whole or in part, by some cursor.
    pub(crate) fn after_settle(&self, payloads: usize) {
        self.after_release();
        if self.waiting_for_ease.load(Ordering::Acquire) > 0 {
            let backlog = self.state.lock().backlog_bytes();
            if backlog <= EASED_BYTES / 2 {
                self.eased.notify_waiters();
            } else if backlog <= EASED_BYTES {
                // One comes for each that left.
                (0..payloads).for_each(|_| self.eased.notify_one());
            }
        }
        self.settled.notify_waiters();
    }

    /// There is something to read.
    pub(crate) fn wake_cursors(&self) {
        self.readable.iter().for_each(Notify::notify_one);
    }

    /// After space was given back.
    fn after_release(&self) {
        if self.waiting_for_room.load(Ordering::Acquire) > 0 {
            self.room.notify_waiters();
        }
    }

    pub(crate) async fn closed(&self) {
        let closing = self.closing.notified();
        tokio::pin!(closing);
        closing.as_mut().enable();
        if !self.state.lock().closed {
            closing.await;
        }
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
        Self::with_cursors(Shared::new(pipeline, State::new(specs), None))
    }

    fn with_cursors(shared: Arc<Shared>) -> (Journal, Vec<Cursor>) {
        let cursors = (0..shared.readable.len())
            .map(|index| Cursor::new(shared.clone(), index))
            .collect();
        (Journal(shared), cursors)
    }

    /// A journal on disk for `pipeline`, with what an earlier process left in it. Blocks while it looks.
    ///
    /// # Errors
    /// [`OpenError`]: the directory cannot be used. Damage in it is no error.
    pub fn disk(
        pipeline: &str,
        specs: Vec<CursorSpec>,
        settings: DiskSettings,
    ) -> Result<(Journal, Vec<Cursor>, Recovered), OpenError> {
        let directory = settings.directory.clone();
        let (state, side, recovered) = disk::open(pipeline, specs, settings)?;
        let shared = Shared::new(pipeline, state, Some(side));
        if let Some(disk) = &shared.disk {
            disk.attend(&shared).map_err(|error| OpenError::Io {
                path: directory,
                error,
            })?;
        }
        let (journal, cursors) = Self::with_cursors(shared);
        Ok((journal, cursors, recovered))
    }

    /// Whether payloads are kept on disk.
    pub fn is_durable(&self) -> bool {
        self.0.disk.is_some()
    }

    /// Whether a payload's compressed frame is stored as it came, if it has one of this encoding.
    pub fn stores_frames(&self, encoding: Encoding) -> bool {
        self.is_durable() && disk::is_storable(encoding)
    }

    /// What a payload counts for here: what it retains in memory, or what it inflates to from the disk.
    pub fn cost(&self, payload: &Payload) -> Cost {
        Cost {
            requests: 1,
            items: payload.items,
            bytes: match self.0.disk {
                None => payload.retained_bytes(),
                Some(_) => payload.body.len() as u64,
            },
        }
    }

    /// The files of a journal on disk.
    pub fn disk_report(&self) -> Option<DiskReport> {
        let disk = self.0.disk.as_ref()?;
        Some(disk.report(&mut self.0.state.lock()))
    }

    /// How full the disk is with this journal, from 0 to 1: what its files have, of that and what is free beside them. 0 while nothing
    /// waits for a coupled cursor: files are given back when their space is needed. `None` in memory. Asks the file system, which may
    /// take its time.
    pub fn disk_filled(&self) -> Option<std::io::Result<f64>> {
        let disk = self.0.disk.as_ref()?;
        if self.strain(Instant::now()).age.is_zero() {
            return Some(Ok(0.0));
        }
        let own = self.disk_report()?.bytes;
        let filled = |free: u64| own as f64 / own.saturating_add(free).max(1) as f64;
        Some(disk.free_bytes().map(filled))
    }

    /// One turn of the writer of a journal with a `seed`, which has no thread.
    #[cfg(any(test, feature = "testing"))]
    pub fn turn(&self) {
        if let Some(disk) = &self.0.disk {
            disk.turn(&self.0);
        }
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
    /// [`Full`] names the first cursor without room, or the disk's fault.
    pub fn try_reserve(&self, cost: Cost) -> Result<Space, Full> {
        if let Some(disk) = &self.0.disk {
            disk.check(&self.0.pipeline)?;
        }
        let now = || tokio::time::Instant::now().into_std();
        self.0.state.lock().reserve(cost, now)?;
        Ok(Space {
            journal: self.clone(),
            cost,
        })
    }

    /// Like [`Journal::try_reserve`], but waits for room. The caller bounds the wait; dropping the
    /// future is safe.
    ///
    /// # Errors
    /// [`Full::Closed`] once the journal is closed, [`Full::Disk`] when the disk takes nothing.
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

    /// Appends a payload to the space reserved for it. It is in a journal in memory when this returns; in one on disk, when
    /// what is returned says so.
    pub fn append(
        &self,
        mut space: Space,
        payload: Arc<Payload>,
        confirm: Option<Confirm>,
        durability: Durability,
    ) -> Appended {
        if let Some(disk) = &self.0.disk {
            let (done, waiting) = oneshot::channel();
            disk.queue.push(Pending {
                payload,
                space,
                confirm,
                durability,
                done: Some(done),
            });
            return Appended(Some(OnItsWay {
                answer: waiting,
                journal: self.clone(),
                wakes: durability == Durability::Synced,
            }));
        }
        let mut released = Released::new();
        {
            let mut state = self.0.state.lock();
            let cost = space.consume(&mut state);
            state.append(payload, cost, confirm, &mut released);
        }
        self.0.wake_cursors();
        Appended(None)
    }

    /// Bytes in memory that wait for the cursor that lags most.
    pub fn backlog_bytes(&self) -> u64 {
        self.0.state.lock().backlog_bytes()
    }

    /// Waits until no more than [`EASED_BYTES`] wait for the cursor that lags most, in turn with others who wait for it, and
    /// at most for `longest`. Nobody waits where so much waits, for as slow an exporter, that it would not get short.
    pub async fn eased(&self, longest: Duration) {
        let shared = &self.0;
        let _waiting = Waiting::enter(&shared.waiting_for_ease);
        let eased = shared.eased.notified();
        tokio::pin!(eased);
        eased.as_mut().enable();
        {
            let mut state = shared.state.lock();
            let now = tokio::time::Instant::now().into_std();
            if state.backlog_bytes() <= EASED_BYTES || state.is_far_from_eased(now) {
                return;
            }
        }
        // Who has waited for so long goes on.
        let _ = tokio::time::timeout(longest, eased).await;
    }

    /// How the cursors are doing that receivers are coupled to.
    pub fn strain(&self, now: Instant) -> Strain {
        self.0.state.lock().strain(now)
    }

    /// Whether it takes payloads when it has room for them: it is not closed, and its disk could be written of late.
    pub fn is_writable(&self) -> bool {
        !self.0.state.lock().closed && self.0.disk.as_ref().is_none_or(DiskSide::is_writable)
    }

    /// Takes nothing more; cursors end when they have read what is there.
    pub fn close(&self) {
        self.0.state.lock().closed = true;
        self.0.closing.notify_waiters();
        self.0.wake_cursors();
        self.0.room.notify_waiters();
    }

    /// Gives up what is left, counted as `shutdown`; returns the items given up. A journal on disk gives up nothing: what
    /// is left is there for the next process, for which it is put in order, however long the disk takes.
    pub fn abandon(&self) -> u64 {
        // Without a limit there is no error.
        self.end(None).unwrap_or_default()
    }

    /// The same, until `end` at the latest.
    ///
    /// # Errors
    /// The disk did not answer until then. Somebody may be waiting for it for ever, on a thread that is left to itself.
    pub fn abandon_by(&self, end: Instant) -> Result<u64, NotInOrder> {
        self.end(Some(end))
    }

    fn end(&self, end: Option<Instant>) -> Result<u64, NotInOrder> {
        if let Some(disk) = &self.0.disk {
            self.close();
            disk.finish(&self.0, end)?;
            return Ok(0);
        }
        let left = self
            .reports(Instant::now())
            .iter()
            .map(|r| r.total().queued)
            .sum();
        let mut released = Released::new();
        self.0.state.lock().abandon(&mut released);
        self.0.wake_cursors();
        self.0.room.notify_waiters();
        Ok(left)
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

/// A payload on its way into a journal.
#[derive(Debug)]
#[must_use = "on disk, it is not there before this says so"]
pub struct Appended(Option<OnItsWay>);

/// To a disk.
#[derive(Debug)]
struct OnItsWay {
    answer: oneshot::Receiver<Result<(), NotPersisted>>,
    journal: Journal,
    /// Whoever waits for the answer is woken by it anyway, and wakes the cursors in turn: from a thread of the runtime that costs next to
    /// nothing, from the writer's another wake-up of a core.
    wakes: bool,
}

impl Appended {
    /// What came of it, if that is known by now.
    #[cfg(test)]
    pub(crate) fn outcome(&mut self) -> Option<Result<(), NotPersisted>> {
        match &mut self.0 {
            None => Some(Ok(())),
            Some(on_its_way) => on_its_way.answer.try_recv().ok(),
        }
    }

    /// Waits until it is there, as durably as was asked for. Giving up the wait does not take the payload back.
    ///
    /// # Errors
    /// [`NotPersisted`]: it is not there, and will not be.
    pub async fn persisted(mut self) -> Result<(), NotPersisted> {
        std::future::poll_fn(|cx| self.poll_persisted(cx)).await
    }

    /// The same, for whoever waits for several. Exporters may have it only once this is dropped: no other is to be waited for in between.
    ///
    /// # Errors
    /// As [`persisted`](Self::persisted).
    pub fn poll_persisted(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), NotPersisted>> {
        let Some(on_its_way) = &mut self.0 else {
            return Poll::Ready(Ok(()));
        };
        Pin::new(&mut on_its_way.answer).poll(cx).map(|answer| {
            answer.unwrap_or_else(|_| {
                Err(NotPersisted {
                    pipeline: on_its_way.journal.pipeline().to_owned(),
                    reason: "the gateway, or the journal's writer, stopped".to_owned(),
                })
            })
        })
    }
}

impl Drop for Appended {
    /// Also when the wait was given up: the answer may have been on its way.
    fn drop(&mut self) {
        if let Some(on_its_way) = self.0.as_ref().filter(|on_its_way| on_its_way.wakes) {
            on_its_way.journal.0.wake_cursors();
        }
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

    /// The space is used: what it was.
    pub(crate) fn consume(&mut self, state: &mut State) -> Cost {
        let cost = std::mem::take(&mut self.cost);
        state.unreserve(cost);
        cost
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        if self.cost != Cost::default() {
            self.journal.0.state.lock().unreserve(self.cost);
            self.journal.0.after_release();
        }
    }
}
