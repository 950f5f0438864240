//! Who waits for a payload's delivery.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use sluice_telemetry::DropReason;
use tokio::sync::oneshot;

use crate::state::worse;

/// What came of a payload at all its cursors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confirmed {
    /// Items given up at the cursor that gave up most of them, and why (a reason to retry outweighs a
    /// final one); `None` when every exporter has them all.
    pub dropped: Option<(DropReason, u64)>,
}

/// Tells one waiting request, once, when every cursor has settled its payload.
#[derive(Debug, Clone)]
pub struct Confirm(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    cursors: AtomicU32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    dropped: Option<(DropReason, u64)>,
    done: Option<oneshot::Sender<Confirmed>>,
}

impl Confirm {
    /// A confirmation that takes `cursors` cursors to settle, and the receiver that waits for it.
    pub fn new(cursors: u32) -> (Self, oneshot::Receiver<Confirmed>) {
        let (done, waiting) = oneshot::channel();
        let inner = Inner {
            cursors: AtomicU32::new(cursors),
            state: Mutex::new(State {
                dropped: None,
                done: Some(done),
            }),
        };
        (Self(Arc::new(inner)), waiting)
    }

    pub(crate) fn cursor_done(&self, dropped: Option<(DropReason, u64)>) {
        let mut state = self.0.state.lock();
        state.dropped = match (state.dropped, dropped) {
            (Some((before, most)), Some((reason, items))) => Some((worse(before, reason), most.max(items))),
            (before, now) => before.or(now),
        };
        if self.0.cursors.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(done) = state.done.take()
        {
            // Nobody listens any more when the client hung up; the payload is settled all the same.
            let _ = done.send(Confirmed {
                dropped: state.dropped,
            });
        }
    }
}
