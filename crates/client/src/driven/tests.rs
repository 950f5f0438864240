use std::sync::atomic::AtomicUsize;

use tokio::sync::{mpsc, oneshot};
use tokio::task::Id;

use super::*;

/// A connection that answers whatever comes with the task that it is polled in, and counts.
struct Echo {
    requests: mpsc::UnboundedSender<oneshot::Sender<Option<Id>>>,
    served: Arc<AtomicUsize>,
    driven: Driven,
}

impl Echo {
    /// The answers are given by a part that the connection hands over when it is polled first.
    fn begin() -> Self {
        let (requests, mut incoming) = mpsc::unbounded_channel::<oneshot::Sender<Option<Id>>>();
        let (hand_on, mut handed_on) = mpsc::unbounded_channel::<oneshot::Sender<Option<Id>>>();
        let served = Arc::new(AtomicUsize::new(0));
        let (count, new) = (served.clone(), Parts::new());
        let parts = new.clone();
        let connection = async move {
            parts.execute(async move {
                while let Some(request) = handed_on.recv().await {
                    count.fetch_add(1, Ordering::Relaxed);
                    let _ = request.send(tokio::task::try_id());
                }
            });
            while let Some(request) = incoming.recv().await {
                let _ = hand_on.send(request);
            }
        };
        Self {
            requests,
            served,
            driven: Driven::begin(connection, new),
        }
    }

    fn ask(&self) -> oneshot::Receiver<Option<Id>> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(answer).unwrap();
        answered
    }

    async fn until_served(&self, requests: usize) {
        while self.served.load(Ordering::Relaxed) < requests {
            tokio::task::yield_now().await;
        }
    }

    /// Whether the task of the connection has ended: it holds the other reference.
    async fn until_ended(driven: &Driven) {
        while Arc::strong_count(&driven.0) > 1 {
            tokio::task::yield_now().await;
        }
    }
}

/// Scenario: a request alone on its connection; nobody's; two requests, of which the first came alone; another one alone.
/// Guarantees: a lone request's task polls the connection, also after there were two; with two, and with none, the connection's own does.
#[tokio::test]
async fn who_is_alone_polls() {
    let echo = Arc::new(Echo::begin());
    for _ in 0..3 {
        let guest = echo.driven.alone();
        let asking = echo.clone();
        let alone = async move {
            let polled_by = guest.wait(async { asking.ask().await.unwrap() }).await;
            (polled_by, tokio::task::try_id())
        };
        let (polled_by, me) = tokio::spawn(alone).await.unwrap();
        assert!(me.is_some() && polled_by == me);
        let own = echo.ask().await.unwrap();
        assert!(own.is_some() && own != me);

        let guest = echo.driven.alone();
        let (asking, release) = (echo.clone(), Arc::new(tokio::sync::Notify::new()));
        let released = release.clone();
        let first = async move {
            let answer = async {
                released.notified().await;
                asking.ask().await.unwrap()
            };
            guest.wait(answer).await
        };
        let first = tokio::spawn(first);
        tokio::task::yield_now().await;
        echo.driven.together();
        assert_eq!(echo.ask().await.unwrap(), own);
        release.notify_one();
        assert_eq!(first.await.unwrap(), own);
    }
}

/// Scenario: two clients, on two cores, with request after request, on one connection that each is alone on or not, as it happens.
/// Guarantees: every request is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_is_lost() {
    const REQUESTS: usize = 5_000;
    let echo = Arc::new(Echo::begin());
    let under_way = Arc::new(Mutex::new(0));
    let clients = (0..2).map(|_| {
        let (echo, under_way) = (echo.clone(), under_way.clone());
        tokio::spawn(async move {
            for _ in 0..REQUESTS {
                let guest = {
                    let mut under_way = under_way.lock();
                    *under_way += 1;
                    match *under_way {
                        1 => Some(echo.driven.alone()),
                        _ => {
                            echo.driven.together();
                            None
                        }
                    }
                };
                let answer = async { echo.ask().await.unwrap() };
                match &guest {
                    Some(guest) => guest.wait(answer).await,
                    None => answer.await,
                };
                drop(guest);
                *under_way.lock() -= 1;
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    echo.until_served(2 * REQUESTS).await;
}

/// Scenario: a lone request is given up, before it was polled and while it polls the connection; then, while another one waits, the connection ends.
/// Guarantees: what it had sent is served by the connection's own task, as is what comes later; that task ends with the connection.
#[tokio::test]
async fn it_goes_on_without_who_gave_up() {
    let echo = Echo::begin();
    let guest = echo.driven.alone();
    let answer = echo.ask();
    drop(guest);
    assert!(answer.await.unwrap().is_some());

    let guest = echo.driven.alone();
    let mut waiting = Box::pin(guest.wait(std::future::pending::<()>()));
    let polled = poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await;
    assert!(polled);
    let unheard = echo.ask();
    drop(waiting);
    drop(guest);
    echo.until_served(2).await;
    drop(unheard);
    assert!(echo.ask().await.unwrap().is_some());

    let Echo { requests, driven, .. } = echo;
    let guest = driven.alone();
    let mut waiting = Box::pin(guest.wait(std::future::pending::<()>()));
    assert!(poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await);
    drop(requests);
    assert!(poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await);
    drop(waiting);
    drop(guest);
    Echo::until_ended(&driven).await;
}
