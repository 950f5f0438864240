//! A [`Guard`] as a layer of any tower service: tonic servers and clients, axum routers, hyper.
//!
//! A refused request never reaches the service; its answer is made by a closure, so that it is retryable in the
//! protocol's own terms (`503` with `Retry-After`; `UNAVAILABLE` or `RESOURCE_EXHAUSTED` with `RetryInfo`). An
//! admitted one is timed until its response future resolves, that is until the response's head is there: a response
//! body that streams for long does not count as latency, and permits ([`GuardLayer::with_permits`]) are held until
//! then and no longer. A permit that must outlive the body belongs into the response, put there by the service.
//!
//! The future is boxed: one allocation for each admitted request.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

use crate::{Guard, Origin, Outcome, Priority, Refusal, Ticket};

/// Says how a response counts for the method's breaker. An `Err` of the service always counts as a failure.
pub trait Classify<Response> {
    /// How the request of `response` ended.
    fn outcome(&self, response: &Response) -> Outcome;
}

/// Every response is a success: only errors of the service count as failures.
#[derive(Debug, Clone, Copy, Default)]
pub struct AnyResponse;

impl<Response> Classify<Response> for AnyResponse {
    fn outcome(&self, _: &Response) -> Outcome {
        Outcome::Success
    }
}

impl<Response, F: Fn(&Response) -> Outcome> Classify<Response> for F {
    fn outcome(&self, response: &Response) -> Outcome {
        self(response)
    }
}

/// Reserves what a request will hold, before the service sees it.
pub trait Reserve<Request> {
    /// Held until the response future resolves or is dropped.
    type Permit;

    /// Reserves for `request`.
    ///
    /// # Errors
    /// A refusal, usually with [`Reason::NoRoom`](crate::Reason::NoRoom).
    fn reserve(&self, request: &Request) -> Result<Self::Permit, Refusal>;
}

/// Reserves nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPermits;

impl<Request> Reserve<Request> for NoPermits {
    type Permit = ();

    fn reserve(&self, _: &Request) -> Result<(), Refusal> {
        Ok(())
    }
}

impl<Request, Permit, F: Fn(&Request) -> Result<Permit, Refusal>> Reserve<Request> for F {
    type Permit = Permit;

    fn reserve(&self, request: &Request) -> Result<Permit, Refusal> {
        self(request)
    }
}

/// Puts a [`Guard`] in front of a service. Time is that of [`Origin::process`].
///
/// `examples/guarded_service.rs` has a complete server. With axum, `Router::layer` takes it as it is:
///
/// ```ignore
/// let guard = Arc::new(Guard::new(GuardSettings::default(), NoHooks, 1));
/// let layer = GuardLayer::new(
///     guard,
///     |request: &Request<Body>| request.uri().path(), // better: the route, from MatchedPath
///     |refusal: &Refusal| {
///         let retry_after = [(RETRY_AFTER, refusal.retry_after_seconds().to_string())];
///         (StatusCode::SERVICE_UNAVAILABLE, retry_after).into_response()
///     },
/// );
/// let app = Router::new().route("/orders", post(orders)).layer(layer);
/// ```
///
/// With tonic, `Server::builder().layer(layer)`, and a refusal becomes `Status::unavailable` with `RetryInfo`.
#[derive(Debug)]
pub struct GuardLayer<M, A, C = AnyResponse, P = NoPermits> {
    parts: Arc<Parts<M, A, C, P>>,
}

#[derive(Debug)]
struct Parts<M, A, C, P> {
    guard: Arc<Guard>,
    origin: Origin,
    method: M,
    answer: A,
    classify: C,
    permits: P,
}

impl<M, A, C, P> Clone for GuardLayer<M, A, C, P> {
    fn clone(&self) -> Self {
        Self {
            parts: self.parts.clone(),
        }
    }
}

impl<M, A> GuardLayer<M, A> {
    /// A layer that asks `guard` about each request by the name `method` gives it, from a bounded set, and answers
    /// what is refused with `answer`.
    pub fn new<Request, Response>(guard: Arc<Guard>, method: M, answer: A) -> Self
    where
        M: Fn(&Request) -> &str,
        A: Fn(&Refusal) -> Response,
    {
        Self {
            parts: Arc::new(Parts {
                guard,
                origin: Origin::process(),
                method,
                answer,
                classify: AnyResponse,
                permits: NoPermits,
            }),
        }
    }
}

impl<M: Clone, A: Clone, C: Clone, P: Clone> GuardLayer<M, A, C, P> {
    /// The same, with responses that `classify` calls failures counted as such: those the service is to blame for
    /// (a 5xx), not those the client is (a 4xx).
    pub fn with_outcomes<New>(self, classify: New) -> GuardLayer<M, A, New, P> {
        let parts = &*self.parts;
        GuardLayer {
            parts: Arc::new(Parts {
                guard: parts.guard.clone(),
                origin: parts.origin,
                method: parts.method.clone(),
                answer: parts.answer.clone(),
                classify,
                permits: parts.permits.clone(),
            }),
        }
    }

    /// The same, with `permits` reserved for each request that the guard admits: bytes of a budget, a place among
    /// the concurrent ones.
    pub fn with_permits<New>(self, permits: New) -> GuardLayer<M, A, C, New> {
        let parts = &*self.parts;
        GuardLayer {
            parts: Arc::new(Parts {
                guard: parts.guard.clone(),
                origin: parts.origin,
                method: parts.method.clone(),
                answer: parts.answer.clone(),
                classify: parts.classify.clone(),
                permits,
            }),
        }
    }
}

impl<S, M, A, C, P> Layer<S> for GuardLayer<M, A, C, P> {
    type Service = Guarded<S, M, A, C, P>;

    fn layer(&self, inner: S) -> Self::Service {
        Guarded {
            inner,
            parts: self.parts.clone(),
        }
    }
}

/// A service behind a [`GuardLayer`].
#[derive(Debug)]
pub struct Guarded<S, M, A, C = AnyResponse, P = NoPermits> {
    inner: S,
    parts: Arc<Parts<M, A, C, P>>,
}

impl<S: Clone, M, A, C, P> Clone for Guarded<S, M, A, C, P> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            parts: self.parts.clone(),
        }
    }
}

impl<Request, S, M, A, C, P> Service<Request> for Guarded<S, M, A, C, P>
where
    S: Service<Request>,
    M: Fn(&Request) -> &str,
    A: Fn(&Refusal) -> S::Response,
    C: Classify<S::Response> + Clone,
    P: Reserve<Request>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = GuardedFuture<S::Future, S::Response, C, P::Permit>;

    /// Ready when the service is. A refused request leaves the readiness it found for the next one.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let parts = &self.parts;
        let begun = parts.origin.now();
        let method = (parts.method)(&request);
        let ticket = match parts.guard.admit(method, Priority::Normal, begun) {
            Ok(ticket) => ticket,
            Err(refusal) => return GuardedFuture::Refused(Some((parts.answer)(&refusal))),
        };
        let permit = match parts.permits.reserve(&request) {
            Ok(permit) => permit,
            Err(refusal) => {
                parts.guard.abandon(ticket, begun);
                return GuardedFuture::Refused(Some((parts.answer)(&refusal)));
            }
        };
        GuardedFuture::UnderWay {
            under_way: UnderWay {
                guard: parts.guard.clone(),
                origin: parts.origin,
                ticket: Some(ticket),
                begun,
            },
            classify: parts.classify.clone(),
            permit: Some(permit),
            response: Box::pin(self.inner.call(request)),
        }
    }
}

/// What a [`Guarded`] service answers with.
#[derive(Debug)]
pub enum GuardedFuture<F, Response, C, Permit> {
    /// The answer to a request that was refused.
    Refused(Option<Response>),
    /// The service is at it.
    UnderWay {
        /// The service's own future.
        response: Pin<Box<F>>,
        /// Tells the guard how it ended.
        under_way: UnderWay,
        /// Says how the response counts.
        classify: C,
        /// Given back when the response is there, or the future is dropped.
        permit: Option<Permit>,
    },
}

/// A request being worked on. Dropped before it has ended, it counts as abandoned after as long as it took.
#[derive(Debug)]
pub struct UnderWay {
    guard: Arc<Guard>,
    origin: Origin,
    ticket: Option<Ticket>,
    begun: u64,
}

impl UnderWay {
    fn end(&mut self, outcome: Outcome) {
        if let Some(ticket) = self.ticket.take() {
            let now = self.origin.now();
            self.guard
                .settle(ticket, outcome, now.saturating_sub(self.begun), now);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.end(Outcome::Abandoned);
    }
}

// The service's future is boxed, and nothing else is ever pinned.
impl<F, Response, C, Permit> Unpin for GuardedFuture<F, Response, C, Permit> {}

impl<F, Response, Error, C, Permit> Future for GuardedFuture<F, Response, C, Permit>
where
    F: Future<Output = Result<Response, Error>>,
    C: Classify<Response>,
{
    type Output = Result<Response, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Refused(answer) => {
                let answer = answer
                    .take()
                    .expect("a future is not polled after it has resolved");
                Poll::Ready(Ok(answer))
            }
            Self::UnderWay {
                response,
                under_way,
                classify,
                permit,
            } => response.as_mut().poll(context).map(|result| {
                permit.take();
                under_way.end(match &result {
                    Ok(response) => classify.outcome(response),
                    Err(_) => Outcome::Failure,
                });
                result
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tower::{ServiceExt as _, service_fn};

    use super::*;
    use crate::{GuardSettings, Level, NoHooks, Reason, Signals};

    type Request = http::Request<&'static str>;
    type Response = http::Response<&'static str>;

    fn layer(
        guard: &Arc<Guard>,
    ) -> GuardLayer<impl Fn(&Request) -> &str + Clone, impl Fn(&Refusal) -> Response + Clone> {
        GuardLayer::new(
            guard.clone(),
            |request: &Request| request.uri().path(),
            |refusal: &Refusal| {
                http::Response::builder()
                    .status(503)
                    .header("retry-after", refusal.retry_after_seconds())
                    .body("later")
                    .unwrap()
            },
        )
    }

    fn get(path: &'static str) -> Request {
        http::Request::get(path).body("").unwrap()
    }

    async fn ok(_: Request) -> Result<Response, Infallible> {
        Ok(http::Response::new("done"))
    }

    /// Scenario: a guarded service at normal, then at emergency.
    /// Guarantees: requests reach the service and are counted; refused ones do not reach it, and their answer is the
    /// closure's, with when to come back.
    #[tokio::test]
    async fn admits_and_refuses() {
        let guard = Arc::new(Guard::new(GuardSettings::default(), NoHooks, 1));
        let service = layer(&guard).layer(service_fn(ok));
        assert_eq!(service.clone().oneshot(get("/a")).await.unwrap().status(), 200);
        let now = Origin::process().now();
        assert!(
            guard
                .methods(now)
                .any(|method| method.name == "/a" && method.stats.weight == 1.0)
        );
        guard.observe(
            &Signals {
                disk: 1.0,
                ..Signals::default()
            },
            now,
        );
        assert_eq!(guard.level(), Level::Emergency);
        // The trickle.
        assert_eq!(service.clone().oneshot(get("/a")).await.unwrap().status(), 200);
        let refused = service.oneshot(get("/a")).await.unwrap();
        assert_eq!(
            (refused.status(), *refused.body()),
            (http::StatusCode::SERVICE_UNAVAILABLE, "later")
        );
        let seconds: u64 = refused.headers()["retry-after"]
            .to_str()
            .unwrap()
            .parse()
            .unwrap();
        assert!((8..=13).contains(&seconds), "{seconds}");
    }

    /// Scenario: five responses that the classifier calls failures.
    /// Guarantees: they open the method's breaker, once it was closed for a while.
    #[tokio::test]
    async fn responses_count_as_classified() {
        let mut settings = GuardSettings::default();
        settings.breaker.as_mut().unwrap().min_closed = Duration::ZERO;
        let guard = Arc::new(Guard::new(settings, NoHooks, 1));
        let failed = |response: &Response| {
            if response.status().is_server_error() {
                Outcome::Failure
            } else {
                Outcome::Success
            }
        };
        let service = layer(&guard)
            .with_outcomes(failed)
            .layer(service_fn(async |_: Request| {
                Ok::<_, Infallible>(http::Response::builder().status(500).body("broken").unwrap())
            }));
        let mut statuses = Vec::new();
        // The breaker's clock has steps of a millisecond: it needs to have been closed for one.
        while statuses.last() != Some(&503) {
            statuses.push(
                service
                    .clone()
                    .oneshot(get("/a"))
                    .await
                    .unwrap()
                    .status()
                    .as_u16(),
            );
        }
        assert!(statuses.len() > 3 && statuses[..3] == [500; 3], "{statuses:?}");
        assert_eq!(
            layer(&guard)
                .layer(service_fn(ok))
                .oneshot(get("/b"))
                .await
                .unwrap()
                .status(),
            200
        );
    }

    /// Scenario: one permit; a request under way, a second one; the first is given up, a third one.
    /// Guarantees: the second is refused, the third admitted: a permit is held until the future resolves or is
    /// dropped, and what was given up counts for the latency.
    #[tokio::test]
    async fn permits_are_held_while_under_way() {
        let guard = Arc::new(Guard::new(GuardSettings::default(), NoHooks, 1));
        let free = Arc::new(AtomicUsize::new(1));
        struct Place(Arc<AtomicUsize>);
        impl Drop for Place {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let places = {
            let free = free.clone();
            move |_: &Request| {
                free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(1))
                    .map(|_| Place(free.clone()))
                    .map_err(|_| Refusal {
                        reason: Reason::NoRoom,
                        retry_after: Duration::from_secs(1),
                    })
            }
        };
        let service = layer(&guard)
            .with_permits(places)
            .layer(service_fn(async |request: Request| {
                if request.uri().path() == "/stuck" {
                    std::future::pending::<()>().await;
                }
                ok(request).await
            }));
        let mut stuck = Box::pin(service.clone().oneshot(get("/stuck")));
        assert!(futures_poll(&mut stuck).await.is_pending());
        assert_eq!(free.load(Ordering::Relaxed), 0);
        assert_eq!(service.clone().oneshot(get("/a")).await.unwrap().status(), 503);
        drop(stuck);
        assert_eq!(service.oneshot(get("/a")).await.unwrap().status(), 200);
        assert_eq!(free.load(Ordering::Relaxed), 1);
        let now = Origin::process().now();
        assert!(
            guard
                .methods(now)
                .any(|method| method.name == "/stuck" && method.stats.weight == 1.0)
        );
        assert!(
            guard
                .methods(now)
                .any(|method| method.name == "/a" && method.stats.weight == 1.0)
        );
    }

    /// Polls once.
    async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
        std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context))).await
    }
}
