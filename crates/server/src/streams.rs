//! Where the requests of an h2 connection run: one of them in the task of its connection, the others in tasks of their own.
//!
//! hyper hands each request to an executor. In a task of its own it and its connection wake each other, for each frame and for
//! the answer, and the scheduler wakes another thread to share the load: on a gateway that is mostly idle that costs more than
//! the request (docs/decisions.md). A request that is alone on its connection has nobody to share with. Those that come while
//! one runs there get tasks, so that a connection with many requests is served by all cores.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::runtime::Handle;

type Stream = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The place of the one that runs in the connection's task.
#[derive(Default)]
enum Place {
    #[default]
    Free,
    /// To be taken by the connection's task, which is being polled.
    Handed(Stream),
    Taken,
}

/// What hyper gives the requests of a connection to.
#[derive(Clone, Default)]
pub(crate) struct Streams(Arc<Mutex<Place>>);

impl<F> Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        let mut place = self.0.lock();
        if let Place::Free = *place {
            *place = Place::Handed(Box::pin(async move {
                stream.await;
            }));
        } else {
            drop(place);
            tokio::spawn(stream);
        }
    }
}

thread_local! {
    /// Whether a request is being polled in its connection's task, and wants to leave it.
    static LEAVES: Cell<Option<bool>> = const { Cell::new(None) };
}

/// To be waited for before work that takes long: a request that runs in its connection's task goes on in one of its own, so
/// that the connection's other requests go on as well.
pub(crate) async fn leave_connection() {
    if LEAVES.get().is_none() {
        return;
    }
    let mut has_asked = false;
    poll_fn(|_| match std::mem::replace(&mut has_asked, true) {
        true => Poll::Ready(()),
        // Polled again at once, in its new task.
        false => {
            LEAVES.set(Some(true));
            Poll::Pending
        }
    })
    .await;
}

/// A connection with the one request that runs in its task.
pub(crate) struct WithStream<C> {
    connection: C,
    streams: Streams,
    stream: Option<Stream>,
}

impl<C> WithStream<C> {
    /// `streams` is what `connection` gives its requests to.
    pub fn new(connection: C, streams: Streams) -> Self {
        Self {
            connection,
            streams,
            stream: None,
        }
    }

    pub fn connection(&mut self) -> &mut C {
        &mut self.connection
    }

    fn poll_stream(&mut self, cx: &mut Context<'_>) {
        {
            let mut place = self.streams.0.lock();
            if let Place::Handed(_) = *place
                && let Place::Handed(stream) = std::mem::replace(&mut *place, Place::Taken)
            {
                self.stream = Some(stream);
            }
        }
        let Some(stream) = self.stream.as_mut() else {
            return;
        };
        LEAVES.set(Some(false));
        // A panic costs the request and no other, as in a task of its own.
        let polled = catch_unwind(AssertUnwindSafe(|| stream.as_mut().poll(cx)));
        let leaves = LEAVES.take() == Some(true);
        if matches!(polled, Ok(Poll::Pending)) && !leaves {
            return;
        }
        if let (Some(stream), Ok(Poll::Pending)) = (self.stream.take(), polled) {
            tokio::spawn(stream);
        }
        *self.streams.0.lock() = Place::Free;
    }
}

impl<C: Future + Unpin> Future for WithStream<C> {
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let this = self.get_mut();
        let connection = Pin::new(&mut this.connection).poll(cx);
        if connection.is_pending() {
            this.poll_stream(cx);
        }
        connection
    }
}

impl<C> Drop for WithStream<C> {
    /// What was admitted is brought to its end though nobody waits for the answer, as in a task of its own.
    fn drop(&mut self) {
        let handed = match std::mem::replace(&mut *self.streams.0.lock(), Place::Taken) {
            Place::Handed(stream) => Some(stream),
            Place::Free | Place::Taken => None,
        };
        // Without a runtime everything ends.
        if let (Some(stream), Ok(runtime)) = (self.stream.take().or(handed), Handle::try_current()) {
            runtime.spawn(stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::sync::{mpsc, oneshot};

    use super::*;

    /// What a connection does that gives out `streams` when it is polled first, and ends when it is told to.
    fn connection(
        executor: &Streams,
        streams: Vec<Stream>,
    ) -> (impl Future<Output = ()> + Unpin + use<>, oneshot::Sender<()>) {
        let (end, mut ended) = oneshot::channel();
        let executor = executor.clone();
        let mut streams = Some(streams);
        let connection = poll_fn(move |cx| {
            for stream in streams.take().into_iter().flatten() {
                executor.execute(stream);
            }
            Pin::new(&mut ended).poll(cx).map(|_| ())
        });
        (connection, end)
    }

    /// A stream that says in which task it runs, when it is told to.
    fn stream(said: &mpsc::UnboundedSender<Option<tokio::task::Id>>) -> (Stream, oneshot::Sender<()>) {
        let (go, gone) = oneshot::channel();
        let said = said.clone();
        let stream = Box::pin(async move {
            let _ = gone.await;
            said.send(tokio::task::try_id()).unwrap();
        });
        (stream, go)
    }

    /// Scenario: a connection gives out two requests at once.
    /// Guarantees: the first runs in the connection's task, the second in one of its own; afterwards there is room for the next.
    #[tokio::test]
    async fn one_runs_with_its_connection() {
        let (said, mut heard) = mpsc::unbounded_channel();
        let (first, go_first) = stream(&said);
        let (second, go_second) = stream(&said);
        let streams = Streams::default();
        let (connection, end) = connection(&streams, vec![first, second]);
        let task = tokio::spawn(WithStream::new(connection, streams.clone()));
        go_second.send(()).unwrap();
        let second = heard.recv().await.unwrap();
        assert!(second.is_some() && second != Some(task.id()));
        go_first.send(()).unwrap();
        assert_eq!(heard.recv().await.unwrap(), Some(task.id()));
        while !matches!(*streams.0.lock(), Place::Free) {
            tokio::task::yield_now().await;
        }
        end.send(()).unwrap();
        task.await.unwrap();
    }

    /// Scenario: a request that says in which task it runs, before and after it leaves its connection; then one that panics; then a third.
    /// Guarantees: it goes on in a task of its own; the panic ends neither connection nor what follows, which runs in the connection's task again.
    #[tokio::test]
    async fn a_request_leaves_before_it_holds_up_others() {
        let (said, mut heard) = mpsc::unbounded_channel();
        let (third, go) = stream(&said);
        let leaving: Stream = Box::pin(async move {
            said.send(tokio::task::try_id()).unwrap();
            leave_connection().await;
            said.send(tokio::task::try_id()).unwrap();
        });
        let panicking: Stream = Box::pin(async { panic!("on purpose") });
        let streams = Streams::default();
        let executor = streams.clone();
        let mut waiting = vec![third, panicking, leaving];
        let connection = poll_fn(move |cx| {
            let is_free = matches!(*executor.0.lock(), Place::Free);
            if is_free && let Some(stream) = waiting.pop() {
                executor.execute(stream);
                cx.waker().wake_by_ref();
            }
            Poll::<()>::Pending
        });
        let task = tokio::spawn(WithStream::new(connection, streams));
        let id = Some(task.id());
        assert_eq!(heard.recv().await.unwrap(), id);
        let elsewhere = heard.recv().await.unwrap();
        assert!(elsewhere.is_some() && elsewhere != id);
        go.send(()).unwrap();
        assert_eq!(heard.recv().await.unwrap(), id);
        task.abort();
    }

    /// Scenario: a connection ends while its request waits; another is dropped before it was polled a second time.
    /// Guarantees: the requests are brought to their ends, elsewhere.
    #[tokio::test]
    async fn a_request_outlives_its_connection() {
        let (said, mut heard) = mpsc::unbounded_channel();
        let (waiting, go) = stream(&said);
        let streams = Streams::default();
        let (ended, end) = connection(&streams, vec![waiting]);
        let task = tokio::spawn(WithStream::new(ended, streams.clone()));
        while !matches!(*streams.0.lock(), Place::Taken) {
            tokio::task::yield_now().await;
        }
        end.send(()).unwrap();
        let id = task.id();
        task.await.unwrap();
        go.send(()).unwrap();
        let elsewhere = heard.recv().await.unwrap();
        assert!(elsewhere.is_some() && elsewhere != Some(id));

        let (waiting, go) = stream(&said);
        let streams = Streams::default();
        streams.execute(waiting);
        drop(WithStream::new(std::future::pending::<()>(), streams));
        go.send(()).unwrap();
        assert!(heard.recv().await.unwrap().is_some());
    }
}
