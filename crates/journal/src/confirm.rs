//! Who waits for a payload's delivery.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// What came of a payload at all its cursors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confirmed {
    /// Items given up at the cursor that gave up most of them; 0 when every exporter has them all.
    pub dropped: u64,
}

/// Tells one waiting request, once, when every cursor has settled its payload.
#[derive(Debug, Clone)]
pub struct Confirm(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    cursors: AtomicU32,
    dropped: AtomicU64,
    done: Mutex<Option<oneshot::Sender<Confirmed>>>,
}

impl Confirm {
    /// A confirmation that takes `cursors` cursors to settle, and the receiver that waits for it.
    pub fn new(cursors: u32) -> (Self, oneshot::Receiver<Confirmed>) {
        let (done, waiting) = oneshot::channel();
        let inner = Inner {
            cursors: AtomicU32::new(cursors),
            dropped: AtomicU64::new(0),
            done: Mutex::new(Some(done)),
        };
        (Self(Arc::new(inner)), waiting)
    }

    pub(crate) fn cursor_done(&self, dropped: u64) {
        self.0.dropped.fetch_max(dropped, Ordering::AcqRel);
        if self.0.cursors.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(done) = self.0.done.lock().take()
        {
            // Nobody listens any more when the client hung up; the payload is settled all the same.
            let _ = done.send(Confirmed { dropped: self.0.dropped.load(Ordering::Acquire) });
        }
    }
}
