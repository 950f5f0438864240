//! Who polls an h2 connection: the task of the request that is alone on it, else a task of its own.
//!
//! In tasks of their own a connection, each request's part of it and whoever waits for the answer wake each other, contend for
//! h2's lock, and have the scheduler wake another thread to share the load: on a gateway that is mostly idle that costs more than
//! sending the request (docs/decisions.md). Who is alone has nobody to share with, and polls everything itself. With a second request
//! the connection's own task takes over, so that one who is slow to poll holds up no other; and it has the connection whenever
//! nobody waits, so that pings are answered and GOAWAY and the end are seen.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use hyper::rt::Executor;
use parking_lot::Mutex;

type Part = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Polls in a row before the scheduler decides who is next: what keeps waking itself must not keep its thread.
const MAX_POLLS: u32 = 4;

/// Somebody polls, and looks at the other bits before it stops.
const POLLED: u8 = 1;
/// There is something to do for the connection; who polls it has been woken, unless it does.
const CONNECTION: u8 = 2;
/// The same for the answer of the lone request.
const ANSWER: u8 = 4;

/// What wakes whoever polls the connection, and counts as polled already while it is.
struct Bell {
    state: AtomicU8,
    pollers: Mutex<Pollers>,
}

struct Pollers {
    own: Waker,
    /// The task of a lone request, which polls in the place of the connection's own.
    guest: Option<Waker>,
}

impl Bell {
    fn ring(&self, what: u8) {
        let before = self.state.fetch_or(what, Ordering::AcqRel);
        if before & (POLLED | what) == 0 {
            let pollers = self.pollers.lock();
            pollers.guest.as_ref().unwrap_or(&pollers.own).wake_by_ref();
        }
    }

    /// Takes what has been rung for.
    fn begin(&self) -> u8 {
        self.state.swap(POLLED, Ordering::AcqRel)
    }

    /// Whether nothing was rung for since [`begin`](Self::begin); nobody polls from then on.
    fn rests(&self) -> bool {
        let rests = self
            .state
            .compare_exchange(POLLED, 0, Ordering::AcqRel, Ordering::Acquire);
        rests.is_ok()
    }

    /// Stops polling with something left to do, for whose turn it is now.
    fn leave(&self) {
        self.state.fetch_and(!POLLED, Ordering::AcqRel);
        let pollers = self.pollers.lock();
        pollers.guest.as_ref().unwrap_or(&pollers.own).wake_by_ref();
    }

    /// The connection's own task polls from here on. What was rung for and not looked at is its business.
    fn hand_back(&self) -> Option<Waker> {
        let mut pollers = self.pollers.lock();
        let guest = pollers.guest.take();
        if guest.is_some() && self.state.load(Ordering::Acquire) & CONNECTION != 0 {
            pollers.own.wake_by_ref();
        }
        guest
    }
}

struct OfConnection(Arc<Bell>);

impl Wake for OfConnection {
    fn wake(self: Arc<Self>) {
        self.0.ring(CONNECTION);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.ring(CONNECTION);
    }
}

struct OfAnswer(Arc<Bell>);

impl Wake for OfAnswer {
    fn wake(self: Arc<Self>) {
        self.0.ring(ANSWER);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.ring(ANSWER);
    }
}

/// What hyper gives the parts of a connection to.
#[derive(Clone)]
pub(crate) struct Parts(Arc<Mutex<NewParts>>);

struct NewParts {
    /// To be polled with the connection.
    parts: Vec<Part>,
    /// Parts of many requests are in tasks of their own, which all cores share.
    in_tasks: bool,
}

impl Parts {
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(NewParts {
            parts: Vec::new(),
            in_tasks: false,
        })))
    }
}

impl<F> Executor<F> for Parts
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, part: F) {
        let mut new = self.0.lock();
        if new.in_tasks {
            drop(new);
            tokio::spawn(part);
        } else {
            new.parts.push(Box::pin(part));
        }
    }
}

/// A connection and the parts of it that are polled with it.
struct Connection {
    main: Option<Part>,
    parts: Vec<Part>,
}

impl Connection {
    fn poll(&mut self, new: &Parts, cx: &mut Context<'_>) -> Poll<()> {
        if self
            .main
            .as_mut()
            .is_some_and(|main| main.as_mut().poll(cx).is_ready())
        {
            self.main = None;
        }
        // Only the connection itself hands parts over, in the poll above.
        self.parts.append(&mut new.0.lock().parts);
        self.parts.retain_mut(|part| part.as_mut().poll(cx).is_pending());
        match self.main.is_none() && self.parts.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

/// A connection that is polled by whoever waits for it alone, or by a task of its own.
pub(crate) struct Driven(Arc<Shared>);

struct Shared {
    /// `None` once it has ended.
    connection: Mutex<Option<Connection>>,
    new: Parts,
    bell: Arc<Bell>,
    of_connection: Waker,
    of_answer: Waker,
}

impl Shared {
    fn poll_connection(&self) -> Poll<()> {
        let mut place = self.connection.lock();
        // Gone if it panics: who has a request on it hears of that.
        let Some(mut connection) = place.take() else {
            return Poll::Ready(());
        };
        if connection
            .poll(&self.new, &mut Context::from_waker(&self.of_connection))
            .is_ready()
        {
            return Poll::Ready(());
        }
        *place = Some(connection);
        Poll::Pending
    }

    /// In the connection's own task.
    fn poll_own(&self, cx: &Context<'_>) -> Poll<()> {
        let has_guest = {
            let mut pollers = self.bell.pollers.lock();
            pollers.own.clone_from(cx.waker());
            pollers.guest.is_some()
        };
        if has_guest {
            return match self.connection.lock().is_none() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            };
        }
        let mut rests = false;
        for _ in 0..MAX_POLLS {
            self.bell.begin();
            if self.poll_connection().is_ready() {
                self.bell.leave();
                return Poll::Ready(());
            }
            rests = self.bell.rests();
            if rests {
                break;
            }
        }
        if !rests {
            self.bell.leave();
        }
        // A guest that came meanwhile may have been rung for while this polled.
        if let Some(guest) = &self.bell.pollers.lock().guest {
            guest.wake_by_ref();
        }
        Poll::Pending
    }

    /// In the task of a lone request: the connection, then its answer. `None`: it is no guest any more, and polls only the answer.
    fn poll_as_guest<T>(
        &self,
        cx: &Context<'_>,
        answer: &mut Pin<&mut impl Future<Output = T>>,
    ) -> Option<Poll<T>> {
        {
            let mut pollers = self.bell.pollers.lock();
            pollers.guest.as_mut()?.clone_from(cx.waker());
        }
        let mut has_ended = false;
        let mut rests = false;
        let mut polled = Poll::Pending;
        for _ in 0..MAX_POLLS {
            self.bell.begin();
            has_ended = self.poll_connection().is_ready();
            if polled.is_pending() {
                polled = answer.as_mut().poll(&mut Context::from_waker(&self.of_answer));
            }
            rests = self.bell.rests();
            if rests {
                break;
            }
        }
        if !rests {
            self.bell.leave();
        }
        if has_ended {
            // Its own task ends with it.
            self.bell.pollers.lock().own.wake_by_ref();
        }
        Some(polled)
    }
}

impl Driven {
    /// Has `connection`, which gives its parts to `new`, polled until it ends.
    pub fn begin(connection: impl Future<Output = ()> + Send + 'static, new: Parts) -> Self {
        let bell = Arc::new(Bell {
            state: AtomicU8::new(CONNECTION),
            pollers: Mutex::new(Pollers {
                own: Waker::noop().clone(),
                guest: None,
            }),
        });
        let shared = Arc::new(Shared {
            connection: Mutex::new(Some(Connection {
                main: Some(Box::pin(connection)),
                parts: Vec::new(),
            })),
            new,
            of_connection: Arc::new(OfConnection(bell.clone())).into(),
            of_answer: Arc::new(OfAnswer(bell.clone())).into(),
            bell,
        });
        let polled = shared.clone();
        tokio::spawn(poll_fn(move |cx| polled.poll_own(cx)));
        Self(shared)
    }

    /// For a request that comes while there is none on the connection. There is one guest at most.
    pub fn alone(&self) -> Guest {
        self.0.new.0.lock().in_tasks = false;
        self.0.bell.pollers.lock().guest = Some(Waker::noop().clone());
        Guest(self.0.clone())
    }

    /// For a request that comes while there is another: the connection's own task polls.
    pub fn together(&self) {
        self.0.new.0.lock().in_tasks = true;
        if let Some(guest) = self.0.bell.hand_back() {
            // It waits for its answer by itself.
            guest.wake();
        }
    }
}

/// The right of a lone request to poll its connection.
pub(crate) struct Guest(Arc<Shared>);

impl Guest {
    /// Waits for `answer`, which comes over the connection.
    pub async fn wait<T>(&self, answer: impl Future<Output = T>) -> T {
        let mut answer = pin!(answer);
        poll_fn(|cx| {
            let polled = self.0.poll_as_guest(cx, &mut answer);
            polled.unwrap_or_else(|| answer.as_mut().poll(cx))
        })
        .await
    }
}

impl Drop for Guest {
    /// Also when nobody waits for the answer any more: the connection goes on.
    fn drop(&mut self) {
        self.0.bell.hand_back();
    }
}

#[cfg(test)]
mod tests;
