//! A [`Guard`] as a layer of any tower service: tonic servers and clients, axum routers, hyper.
//!
//! A refused request never reaches the service; its answer is made by a closure, so that it is retryable in the
//! protocol's own terms (`503` with `Retry-After`; `UNAVAILABLE` or `RESOURCE_EXHAUSTED` with `RetryInfo`). An
//! admitted one is timed until its response future resolves, that is until the response's head is there: a response
//! body that streams for long does not count as latency, and permits ([`GuardLayer::with_permits`]) are held until
//! then and no longer. A permit that must outlive the body belongs into the response, put there by the service.
//!
//! A permit may be waited for ([`Reserved::Waits`]), for a bounded time, in which the service is not called and the guard's clock does not
//! run: three outcomes, as in the gateway.
//!
//! The future is boxed: one allocation for each admitted request.

mod future;
mod permits;

use std::sync::Arc;
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

use crate::{Guard, Origin, Outcome, Priority, Refusal};
pub use future::GuardedFuture;
use future::{State, UnderWay};
pub use permits::{Budgeted, LONGEST_LINE, NoPermits, Reserve, Reserved};

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

/// Puts a [`Guard`] in front of a service. Time is that of [`Origin::process`].
///
/// A [`Refusal`] says whether and when to come back, and the closure says that in the protocol's words. `examples/axum_server.rs` (503 with
/// `Retry-After`) and `examples/tonic_server.rs` (`UNAVAILABLE` with `RetryInfo`) are complete servers with both, and with a
/// [`Budgeted`] that lets requests wait; `examples/guarded_service.rs` shows a service that becomes slow and recovers.
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
    S: Service<Request> + Clone,
    M: Fn(&Request) -> &str,
    A: Fn(&Refusal) -> S::Response,
    C: Classify<S::Response>,
    P: Reserve<Request>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = GuardedFuture<S, Request, M, A, C, P>;

    /// Ready when the service is. A refused request leaves the readiness it found for the next one.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let parts = self.parts.clone();
        let method = (parts.method)(&request);
        let state = match parts.guard.admit(method, Priority::Normal, parts.origin.now()) {
            Err(refusal) => State::Refused(Some((parts.answer)(&refusal))),
            Ok(ticket) => {
                let under_way = UnderWay::new(parts.guard.clone(), parts.origin, ticket);
                match parts.permits.reserve(&request) {
                    Reserved::Granted(permit) => State::call(&mut self.inner, request, under_way, permit),
                    Reserved::Waits(wait) => {
                        // The one that is ready waits with its request; the next request asks another one whether it is.
                        let next = self.inner.clone();
                        let service = std::mem::replace(&mut self.inner, next);
                        State::Waits {
                            wait,
                            held: Some((service, request, under_way)),
                        }
                    }
                    Reserved::Refused(refusal) => {
                        under_way.refuse(&refusal);
                        State::Refused(Some((parts.answer)(&refusal)))
                    }
                }
            }
        };
        GuardedFuture { parts, state }
    }
}

#[cfg(test)]
mod tests;
