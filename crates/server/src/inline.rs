//! A future that wakes itself while it is polled is polled again at once, not rescheduled.
//!
//! hyper's HTTP/1.1 connection hands each piece of a body to its own service through a channel, and so
//! wakes the very task it runs in. The scheduler cannot know that the piece is already consumed: it queues
//! the task once more and wakes another thread to share the load, for every request. On a gateway that is
//! mostly idle those wake-ups cost as much as validating the request (docs/decisions.md).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

/// Polls in a row before the scheduler decides who is next: a future that keeps waking itself must not
/// keep its thread.
const MAX_POLLS: u32 = 4;

const IDLE: u8 = 0;
const POLLED: u8 = 1;
const WOKEN: u8 = 2;

struct Shared {
    state: AtomicU8,
    task: Mutex<Waker>,
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Whoever polls sees the change before it goes idle.
        let polled = self
            .state
            .compare_exchange(POLLED, WOKEN, Ordering::AcqRel, Ordering::Acquire);
        if polled == Err(IDLE) {
            self.task.lock().wake_by_ref();
        }
    }
}

/// See the module's documentation.
pub(crate) struct Inline<F> {
    future: F,
    shared: Arc<Shared>,
    waker: Waker,
    /// A copy of what `shared` holds, to compare without the lock.
    task: Waker,
}

impl<F: Future + Unpin> Inline<F> {
    pub fn new(future: F) -> Self {
        let shared = Arc::new(Shared {
            state: AtomicU8::new(IDLE),
            task: Mutex::new(Waker::noop().clone()),
        });
        Self {
            future,
            waker: shared.clone().into(),
            shared,
            task: Waker::noop().clone(),
        }
    }

    /// The future itself.
    pub fn get_mut(&mut self) -> &mut F {
        &mut self.future
    }
}

impl<F: Future + Unpin> Future for Inline<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        if !this.task.will_wake(cx.waker()) {
            this.task.clone_from(cx.waker());
            *this.shared.task.lock() = this.task.clone();
        }
        let state = &this.shared.state;
        for _ in 0..MAX_POLLS {
            state.store(POLLED, Ordering::Release);
            if let Poll::Ready(output) =
                Pin::new(&mut this.future).poll(&mut Context::from_waker(&this.waker))
            {
                return Poll::Ready(output);
            }
            let undisturbed = state.compare_exchange(POLLED, IDLE, Ordering::AcqRel, Ordering::Acquire);
            if undisturbed.is_ok() {
                return Poll::Pending;
            }
        }
        state.store(IDLE, Ordering::Release);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Scenario: a future that wakes itself once and is then ready; one that always wakes itself; one that
    /// is woken from outside after it went idle.
    /// Guarantees: the first is finished without waking its task; the second gives its thread back and is
    /// woken for more; the third wakes its task once for each wake.
    #[test]
    fn who_wakes_itself_is_polled_again() {
        let woken = Arc::new(Counted::default());
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);

        let mut polls = 0;
        let mut once = Inline::new(poll_fn(|cx| {
            polls += 1;
            cx.waker().wake_by_ref();
            if polls == 2 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }));
        assert!(Pin::new(&mut once).poll(&mut cx).is_ready());
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);

        let mut polls = 0;
        let mut always = Inline::new(poll_fn(|cx| {
            polls += 1;
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        }));
        assert!(Pin::new(&mut always).poll(&mut cx).is_pending());
        drop(always);
        assert_eq!((polls, woken.0.load(Ordering::Relaxed)), (MAX_POLLS, 1));

        let mut kept = None;
        let mut outside = Inline::new(poll_fn(|cx| {
            kept = Some(cx.waker().clone());
            Poll::<()>::Pending
        }));
        assert!(Pin::new(&mut outside).poll(&mut cx).is_pending());
        assert!(Pin::new(&mut outside).poll(&mut cx).is_pending());
        drop(outside);
        let kept = kept.unwrap();
        kept.wake_by_ref();
        kept.wake();
        assert_eq!(woken.0.load(Ordering::Relaxed), 3);
    }

    /// Scenario: one thread polls until the other has woken the future many times, each wake once the
    /// last was seen.
    /// Guarantees: no wake is lost between the last look and going idle.
    #[test]
    fn no_wake_is_lost() {
        const ROUNDS: usize = 20_000;
        let seen = Arc::new(AtomicUsize::new(0));
        let given = Arc::new(AtomicUsize::new(0));
        let slot: Arc<Mutex<Option<Waker>>> = Arc::default();
        let other = std::thread::spawn({
            let (seen, given, slot) = (seen.clone(), given.clone(), slot.clone());
            move || {
                for round in 1..=ROUNDS {
                    given.store(round, Ordering::Release);
                    if let Some(waker) = slot.lock().clone() {
                        waker.wake();
                    }
                    while seen.load(Ordering::Acquire) < round {
                        std::thread::yield_now();
                    }
                }
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(Inline::new(poll_fn(|cx| {
            *slot.lock() = Some(cx.waker().clone());
            let now = given.load(Ordering::Acquire);
            seen.store(now, Ordering::Release);
            if now == ROUNDS {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })));
        other.join().unwrap();
    }
}
