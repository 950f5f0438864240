//! The byte budget: a lock-free fast path, a first-in-first-out queue when it is full.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The express lane is one part in this many of the capacity: enough to keep ordinary SDK
/// requests (a few hundred KiB) flowing while the general lane is full of huge bodies.
pub const EXPRESS_SHARE: u64 = 16;

/// No request above this size uses the express lane, however large the budget is.
pub const EXPRESS_MAX_BYTES: u64 = 1 << 20;

/// One request may take at most this part of the express lane, so that several fit side by side.
const EXPRESS_REQUEST_SHARE: u64 = 4;

/// The reservation is larger than the lane it would have to come from: waiting cannot help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeverFits {
    /// Bytes asked for.
    pub asked: u64,
    /// The largest reservation this budget can ever grant, in bytes.
    pub largest: u64,
}

impl std::fmt::Display for NeverFits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} bytes can never fit: the memory budget grants at most {} bytes to one request",
            self.asked, self.largest
        )
    }
}

impl std::error::Error for NeverFits {}

/// What a budget holds right now, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Capacity of both lanes together.
    pub capacity: u64,
    /// Bytes held by live permits.
    pub used: u64,
    /// Bytes asked for by requests that wait.
    pub waiting_bytes: u64,
    /// Requests that wait.
    pub waiting: usize,
    /// Bytes released since the start; its rate is the drain rate.
    pub released: u64,
}

/// A budget of bytes. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Lane {
    capacity: u64,
    used: AtomicU64,
}

impl Lane {
    fn try_take(&self, bytes: u64) -> bool {
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let Some(next) = used.checked_add(bytes).filter(|n| *n <= self.capacity) else {
                return false;
            };
            match self
                .used
                .compare_exchange_weak(used, next, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(seen) => used = seen,
            }
        }
    }
}

#[derive(Debug)]
struct Inner {
    general: Lane,
    express: Lane,
    /// Waiters in both queues; read without the lock by the fast path.
    waiting: AtomicUsize,
    waiting_bytes: AtomicU64,
    released: AtomicU64,
    queues: Mutex<Queues>,
}

#[derive(Debug, Default)]
struct Queues {
    general: VecDeque<Waiter>,
    express: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    bytes: u64,
    grant: oneshot::Sender<Permit>,
}

impl Budget {
    /// A budget of `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        let express = capacity / EXPRESS_SHARE;
        Self(Arc::new(Inner {
            general: Lane {
                capacity: capacity - express,
                used: AtomicU64::new(0),
            },
            express: Lane {
                capacity: express,
                used: AtomicU64::new(0),
            },
            waiting: AtomicUsize::new(0),
            waiting_bytes: AtomicU64::new(0),
            released: AtomicU64::new(0),
            queues: Mutex::new(Queues::default()),
        }))
    }

    /// The largest reservation that can ever be granted, in bytes.
    pub fn largest(&self) -> u64 {
        self.0.general.capacity
    }

    /// What the budget holds now.
    pub fn usage(&self) -> Usage {
        let inner = &self.0;
        Usage {
            capacity: inner.general.capacity + inner.express.capacity,
            used: inner.general.used.load(Ordering::Relaxed) + inner.express.used.load(Ordering::Relaxed),
            waiting_bytes: inner.waiting_bytes.load(Ordering::Relaxed),
            waiting: inner.waiting.load(Ordering::Relaxed),
            released: inner.released.load(Ordering::Relaxed),
        }
    }

    /// Reserves `bytes` now, or returns `None` when they are not free or others wait for them.
    pub fn try_reserve(&self, bytes: u64) -> Option<Permit> {
        let inner = &self.0;
        // Whoever waits was here first; only the express lane may be used past them.
        let may_overtake = inner.waiting.load(Ordering::Acquire) == 0;
        if may_overtake && inner.general.try_take(bytes) {
            return Some(self.permit(bytes, 0));
        }
        if bytes <= inner.express_request_max() && inner.express.try_take(bytes) {
            return Some(self.permit(0, bytes));
        }
        None
    }

    /// Reserves `bytes`, waiting in line until they are free. Cancel-safe: dropping the future
    /// leaves the line, and a grant that crosses with the drop is released.
    ///
    /// # Errors
    /// [`NeverFits`] when no amount of waiting can help.
    pub async fn reserve(&self, bytes: u64) -> Result<Permit, NeverFits> {
        if let Some(permit) = self.try_reserve(bytes) {
            return Ok(permit);
        }
        let inner = &self.0;
        if bytes > self.largest() {
            return Err(NeverFits {
                asked: bytes,
                largest: self.largest(),
            });
        }
        let _line = WaitingGuard::enter(self, bytes);
        let granted = {
            let (grant, granted) = oneshot::channel();
            let mut queues = inner.queues.lock();
            let waiter = Waiter { bytes, grant };
            if bytes <= inner.express_request_max() {
                queues.express.push_back(waiter);
            } else {
                queues.general.push_back(waiter);
            }
            // Bytes freed between the failed attempt and this lock would wake nobody: look again.
            self.serve(&mut queues);
            granted
        };
        match granted.await {
            Ok(permit) => Ok(permit),
            // The queues live as long as this budget, and waiters leave them only when granted.
            Err(_) => unreachable!("a waiter is removed only by a grant"),
        }
    }

    fn permit(&self, general: u64, express: u64) -> Permit {
        Permit {
            budget: self.clone(),
            general,
            express,
        }
    }

    /// Grants what fits, in order. A general waiter that does not fit holds back those behind it,
    /// or it would starve; express waiters have their own lane.
    fn serve(&self, queues: &mut Queues) {
        let inner = &self.0;
        queues.general.retain(|w| !w.grant.is_closed());
        queues.express.retain(|w| !w.grant.is_closed());
        while let Some(head) = queues.general.front() {
            if !inner.general.try_take(head.bytes) {
                break;
            }
            if let Some(waiter) = queues.general.pop_front() {
                let permit = self.permit(waiter.bytes, 0);
                give(waiter, permit);
            }
        }
        while let Some(head) = queues.express.front() {
            let bytes = head.bytes;
            let permit = if queues.general.is_empty() && inner.general.try_take(bytes) {
                self.permit(bytes, 0)
            } else if inner.express.try_take(bytes) {
                self.permit(0, bytes)
            } else {
                break;
            };
            match queues.express.pop_front() {
                Some(waiter) => give(waiter, permit),
                None => forget(permit),
            }
        }
    }
}

/// Hands the permit to its waiter. A waiter that left gives its bytes back without recursion:
/// the queue lock is held here, so the bytes are returned by hand and the caller's loop goes on.
fn give(waiter: Waiter, permit: Permit) {
    if let Err(permit) = waiter.grant.send(permit) {
        forget(permit);
    }
}

fn forget(mut permit: Permit) {
    let inner = permit.budget.0.clone();
    inner.general.used.fetch_sub(permit.general, Ordering::AcqRel);
    inner.express.used.fetch_sub(permit.express, Ordering::AcqRel);
    permit.general = 0;
    permit.express = 0;
}

impl Inner {
    fn express_request_max(&self) -> u64 {
        (self.express.capacity / EXPRESS_REQUEST_SHARE).min(EXPRESS_MAX_BYTES)
    }
}

/// Counts a waiter while it is in line. Leaving, granted or not, lets those behind it move up.
struct WaitingGuard<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl<'a> WaitingGuard<'a> {
    fn enter(budget: &'a Budget, bytes: u64) -> Self {
        budget.0.waiting.fetch_add(1, Ordering::AcqRel);
        budget.0.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        Self { budget, bytes }
    }
}

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        let inner = &self.budget.0;
        inner.waiting_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        if inner.waiting.fetch_sub(1, Ordering::AcqRel) > 1 {
            self.budget.serve(&mut inner.queues.lock());
        }
    }
}

/// Bytes reserved in a [`Budget`]; dropping it releases them.
#[derive(Debug)]
pub struct Permit {
    budget: Budget,
    general: u64,
    express: u64,
}

impl Permit {
    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.general + self.express
    }

    /// Adds `bytes` if they are free right now; says whether it did.
    pub fn try_grow(&mut self, bytes: u64) -> bool {
        match self.budget.try_reserve(bytes) {
            Some(more) => {
                self.absorb(more);
                true
            }
            None => false,
        }
    }

    /// Joins another permit of the same budget into this one.
    pub fn absorb(&mut self, mut other: Permit) {
        debug_assert!(
            Arc::ptr_eq(&self.budget.0, &other.budget.0),
            "permits of two budgets never mix"
        );
        self.general += std::mem::take(&mut other.general);
        self.express += std::mem::take(&mut other.express);
    }

    /// Gives back all above `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        let surplus = self.bytes().saturating_sub(bytes);
        // The general lane is the contended one: give that back first.
        let general = surplus.min(self.general);
        let express = surplus - general;
        self.general -= general;
        self.express -= express;
        self.release(general, express);
    }

    fn release(&self, general: u64, express: u64) {
        if general + express == 0 {
            return;
        }
        let inner = &self.budget.0;
        inner.general.used.fetch_sub(general, Ordering::AcqRel);
        inner.express.used.fetch_sub(express, Ordering::AcqRel);
        inner.released.fetch_add(general + express, Ordering::Relaxed);
        if inner.waiting.load(Ordering::Acquire) > 0 {
            let mut queues = inner.queues.lock();
            self.budget.serve(&mut queues);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.release(self.general, self.express);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Scenario: reserve, grow, shrink, drop.
    /// Guarantees: used bytes equal the sum of live permits at every step.
    #[test]
    fn used_is_the_sum_of_permits() {
        let budget = Budget::new(16 * MIB);
        let mut a = budget.try_reserve(MIB).unwrap();
        assert_eq!(budget.usage().used, MIB);
        assert!(a.try_grow(2 * MIB));
        assert_eq!(budget.usage().used, 3 * MIB);
        a.shrink_to(MIB / 2);
        assert_eq!(budget.usage().used, MIB / 2);
        drop(a);
        assert_eq!(budget.usage().used, 0);
        assert_eq!(budget.usage().released, 3 * MIB);
    }

    /// Scenario: the general lane is full of huge bodies.
    /// Guarantees: a small request still gets in at once; another huge one does not.
    #[test]
    fn small_requests_pass_when_the_general_lane_is_full() {
        let budget = Budget::new(256 * MIB);
        let _huge: Vec<_> = (0..4).map(|_| budget.try_reserve(60 * MIB).unwrap()).collect();
        assert!(budget.try_reserve(60 * MIB).is_none());
        assert!(budget.try_reserve(100 << 10).is_some());
    }

    /// Scenario: a reservation larger than the general lane.
    /// Guarantees: it fails at once instead of waiting for ever.
    #[tokio::test]
    async fn what_never_fits_is_told_so() {
        let budget = Budget::new(16 * MIB);
        let error = budget.reserve(16 * MIB).await.unwrap_err();
        assert_eq!(
            error,
            NeverFits {
                asked: 16 * MIB,
                largest: 15 * MIB
            }
        );
    }

    /// Scenario: three waiters, the first larger than the rest, bytes freed step by step; one leaves.
    /// Guarantees: grants come in order, a departed waiter neither blocks the line nor keeps bytes.
    #[tokio::test(start_paused = true)]
    async fn waiting_is_first_come_first_served() {
        let budget = Budget::new(16 * MIB);
        let held = budget.try_reserve(15 * MIB).unwrap();
        let spawn = |bytes| {
            let budget = budget.clone();
            tokio::spawn(async move { budget.reserve(bytes).await })
        };
        let first = spawn(10 * MIB);
        tokio::task::yield_now().await;
        let leaver = spawn(3 * MIB);
        tokio::task::yield_now().await;
        let last = spawn(4 * MIB);
        tokio::task::yield_now().await;
        assert_eq!(budget.usage().waiting, 3);
        leaver.abort();
        let _ = leaver.await;
        drop(held);
        let first = first.await.unwrap().unwrap();
        let last = last.await.unwrap().unwrap();
        assert_eq!(budget.usage().used, 14 * MIB);
        drop((first, last));
        assert_eq!(
            budget.usage(),
            Usage {
                used: 0,
                waiting: 0,
                waiting_bytes: 0,
                ..budget.usage()
            }
        );
    }

    /// Scenario: eight threads reserve and release at random against a small budget.
    /// Guarantees: capacity is never exceeded and nothing stays behind.
    #[test]
    fn capacity_holds_under_contention() {
        let budget = Budget::new(MIB);
        std::thread::scope(|scope| {
            for seed in 1..=8u64 {
                let budget = budget.clone();
                scope.spawn(move || {
                    let mut x = seed;
                    for _ in 0..20_000 {
                        x = x
                            .wrapping_mul(6364136223846793005)
                            .wrapping_add(1442695040888963407);
                        if let Some(permit) = budget.try_reserve((x >> 33) % (MIB / 3)) {
                            assert!(budget.usage().used <= MIB);
                            drop(permit);
                        }
                    }
                });
            }
        });
        assert_eq!(budget.usage().used, 0);
    }
}
