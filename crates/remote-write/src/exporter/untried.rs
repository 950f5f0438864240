//! An endpoint that has taken nothing yet.
//!
//! When an endpoint refuses the first that it is sent (400, 413), it is more often the wrong address, or a proxy in front of the right
//! one, than a bad series. So until it takes something it is asked by one lane at a time, and a refusal is a no to everything, as 401 is: the
//! backlog is held, and the next probe is with a smaller piece. An endpoint that has taken something is searched at once.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::sync::{Mutex, MutexGuard};

/// Refusals after which an endpoint that has taken nothing is searched all the same: probes come 5, 10 and 20 s after them, and what is looked for may
/// well be in a batch in which everything is bad.
const MAX_REFUSALS: u32 = 3;

/// Whether an endpoint has taken anything since the start.
#[derive(Debug, Default)]
pub(super) struct Untried {
    is_over: AtomicBool,
    refusals: AtomicU32,
    turn: Mutex<()>,
}

impl Untried {
    /// Waits for the other lanes; `None` when there is no need to.
    pub async fn alone(&self) -> Option<MutexGuard<'_, ()>> {
        if self.is_over() {
            return None;
        }
        Some(self.turn.lock().await).filter(|_| !self.is_over())
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// It took something.
    pub fn took(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// It refused something for what is in it. True when that is a no to everything.
    pub fn refused(&self) -> bool {
        if self.is_over() {
            return false;
        }
        let before = self.refusals.fetch_add(1, Ordering::Relaxed);
        if before >= MAX_REFUSALS {
            self.took();
        }
        before < MAX_REFUSALS
    }
}
