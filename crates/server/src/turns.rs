//! Turns of large bodies: only so much of them is received and looked through at once.
//!
//! A hundred clients that send some MB each at the same moment do not have their answers sooner when all of them are read side by side, for
//! all share the same cores and the same disk; they only need memory for all of them. So a large body waits for its turn, in the order
//! in which they came, before it is read, and has it until its payload is in the journals.
//!
//! A turn is never a reason to refuse. Who has waited for [`LONGEST_WAIT`], in all the waits of one request together, goes on without one,
//! and the memory budget decides as ever, with all the time that it gives a request. Who waits for memory, or is not here
//! [`LONGEST_READ`] after the turn began, gives its turn back: neither a full budget nor a sender on a slow line keeps the turns from others.
//! And who waits for a turn goes on when its place is needed by one that waits for memory ([`Turns::make_place`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Bodies from this size on have turns. Below, a thousand side by side are what one large request may be.
const LARGE_BYTES: u64 = 1 << 20;

/// So much may have turns for each core: some bodies of a few MB in each stage (being read, looked through, written), and little
/// enough that a burst of them is a small part of any budget.
const BYTES_PER_CORE: u64 = 16 << 20;

/// They take this part of the budget at most: less than the fifth of a lane that a tenant leaves free which floods the gateway. So large bodies that
/// have turns find memory all together, and none of them gives way to another while a loaded machine takes its time.
const BUDGET_PART: u64 = 8;

/// A body counts for no more than this, nor for more than a quarter of what may have turns: however large they are, there are two for each
/// core, and the budget decides whether there is memory for them.
const LARGEST_BYTES: u64 = BYTES_PER_CORE / 2;
const LEAST_AT_ONCE: u64 = 4;

/// How long a body waits for its turn. As long as those before it are dealt with nobody gains by going on; beyond that something else is
/// wrong.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// What comes at the pace of a local network is here by then: 3 MB at 100 Mbit/s.
const LONGEST_READ: Duration = Duration::from_millis(250);

/// What room is counted in.
const UNIT_BYTES: u64 = 1 << 10;

#[derive(Debug)]
pub(crate) struct Turns {
    room: Arc<Semaphore>,
    /// What one body counts for at most.
    largest_bytes: u64,
    waiting: AtomicUsize,
    /// Somebody is to go on without.
    crowded: Notify,
}

/// A large body's turn; dropping it lets the next one begin.
#[derive(Debug)]
pub struct Turn {
    _room: OwnedSemaphorePermit,
    began: Instant,
}

impl Turns {
    /// For a budget of so many bytes.
    pub fn new(budget_bytes: u64) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let bytes = (BYTES_PER_CORE * cores as u64).min(budget_bytes / BUDGET_PART);
        Self::of(bytes)
    }

    fn of(bytes: u64) -> Self {
        let units = usize::try_from(bytes / UNIT_BYTES).unwrap_or(Semaphore::MAX_PERMITS);
        Self {
            room: Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS))),
            largest_bytes: LARGEST_BYTES.min(bytes / LEAST_AT_ONCE),
            waiting: AtomicUsize::new(0),
            crowded: Notify::new(),
        }
    }

    /// Whether a body of this size has turns.
    pub fn has(bytes: u64) -> bool {
        bytes >= LARGE_BYTES
    }

    /// The turn of a body of `bytes`, if nobody is before it.
    pub fn now(&self, bytes: u64) -> Option<Turn> {
        let room = self.room.clone().try_acquire_many_owned(self.units_of(bytes));
        Some(Turn::of(room.ok()?))
    }

    /// The turn of a body of `bytes`, when it comes within `patience` and no more than `places` wait already. `None`: it goes on without.
    pub async fn wait(&self, bytes: u64, patience: Duration, places: usize) -> Option<Turn> {
        let waiting = Waiting::enter(&self.waiting);
        if waiting.before >= places {
            return None;
        }
        let room = self.room.clone().acquire_many_owned(self.units_of(bytes));
        tokio::select! {
            // Never closed.
            room = tokio::time::timeout(patience, room) => Some(Turn::of(room.ok()?.ok()?)),
            () = self.crowded.notified() => None,
        }
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Who has waited longest goes on without, if anybody waits.
    pub fn make_place(&self) {
        // Nobody who comes later is meant.
        if self.waiting() > 0 {
            self.crowded.notify_one();
        }
    }

    fn units_of(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.min(self.largest_bytes) / UNIT_BYTES).unwrap_or(u32::MAX)
    }
}

impl Turn {
    fn of(room: OwnedSemaphorePermit) -> Self {
        Self {
            _room: room,
            began: Instant::now(),
        }
    }

    /// Whether a body that is not here yet keeps its turn.
    pub fn lasts(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.began) < LONGEST_READ
    }
}

struct Waiting<'a> {
    count: &'a AtomicUsize,
    before: usize,
}

impl<'a> Waiting<'a> {
    fn enter(count: &'a AtomicUsize) -> Self {
        let before = count.fetch_add(1, Ordering::Relaxed);
        Self { count, before }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use parking_lot::Mutex;
    use tokio::task::JoinSet;

    use super::*;

    const BODY: u64 = 4 << 20;
    const WORK: Duration = Duration::from_millis(10);

    /// Scenario: a hundred bodies come at once, where four may have turns; each is worked on for a while.
    /// Guarantees: never more than four at once, in the order in which they came; all have had their turn when the work of a hundred in four
    /// lines is done.
    #[tokio::test(start_paused = true)]
    async fn a_burst_is_dealt_with_in_order() {
        let turns = Arc::new(Turns::of(4 * BODY + BODY / 2));
        let (order, under_way) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let began = Instant::now();
        let mut bodies = JoinSet::new();
        for body in 0..100 {
            let (turns, order, under_way) = (turns.clone(), order.clone(), under_way.clone());
            bodies.spawn(async move {
                let turn = turns.wait(BODY, LONGEST_WAIT, 1000).await.unwrap();
                order.lock().push(body);
                assert!(under_way.fetch_add(1, Ordering::Relaxed) < 4);
                tokio::time::sleep(WORK).await;
                under_way.fetch_sub(1, Ordering::Relaxed);
                drop(turn);
            });
        }
        bodies.join_all().await;
        assert!(order.lock().is_sorted(), "{order:?}");
        assert_eq!(began.elapsed(), WORK * 25);
    }

    /// Scenario: four bodies, each larger than all that may have turns, have their turns and do not end; others come: some that wait, one more
    /// than may wait, and one that leaves while it waits.
    /// Guarantees: they go on after a while, who has less patience sooner, who is one too many at once; nothing is left behind.
    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever() {
        let turns = Turns::of(BODY);
        let all: Vec<_> = (0..4).map(|_| turns.now(100 * BODY).unwrap()).collect();
        assert!(turns.now(BODY).is_none());
        let began = Instant::now();
        let (first, second, third) = tokio::join!(
            turns.wait(BODY, LONGEST_WAIT, 2),
            turns.wait(BODY, Duration::from_millis(1), 2),
            async {
                let third = turns.wait(BODY, LONGEST_WAIT, 2).await;
                assert_eq!(began.elapsed(), Duration::ZERO, "two wait already");
                third
            }
        );
        assert!(first.is_none() && second.is_none() && third.is_none());
        assert_eq!(began.elapsed(), LONGEST_WAIT);
        assert!(
            tokio::time::timeout(WORK, turns.wait(BODY, LONGEST_WAIT, 2))
                .await
                .is_err()
        );
        let (pushed, ()) = tokio::join!(turns.wait(BODY, LONGEST_WAIT, 2), async { turns.make_place() });
        assert!(pushed.is_none(), "its place is needed");
        assert_eq!(turns.waiting(), 0);
        turns.make_place();
        let later = tokio::time::timeout(WORK, turns.wait(BODY, LONGEST_WAIT, 2)).await;
        assert!(later.is_err(), "nobody who comes later is meant");
        assert_eq!(began.elapsed(), LONGEST_WAIT + 2 * WORK);
        drop(all);
        assert!(turns.now(BODY).is_some());
    }
}
