//! A request on its way through a guarded service.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tower_service::Service;

use super::{Classify, Parts, Reserve};
use crate::{Guard, Origin, Outcome, Refusal, Ticket};

/// What a [`Guarded`](super::Guarded) service answers with.
pub struct GuardedFuture<S: Service<Request>, Request, M, A, C, P: Reserve<Request>> {
    pub(super) parts: Arc<Parts<M, A, C, P>>,
    pub(super) state: State<S, Request, P>,
}

impl<S: Service<Request>, Request, M, A, C, P: Reserve<Request>> fmt::Debug
    for GuardedFuture<S, Request, M, A, C, P>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Refused(_) => "refused",
            State::Waits { .. } => "waits",
            State::UnderWay { .. } => "under way",
        };
        f.debug_tuple("GuardedFuture").field(&state).finish()
    }
}

pub(super) enum State<S: Service<Request>, Request, P: Reserve<Request>> {
    /// The answer to a request that was refused.
    Refused(Option<S::Response>),
    /// For its permit.
    Waits {
        wait: P::Wait,
        /// The service, which was ready, and what it is to be called with.
        held: Option<(S, Request, UnderWay)>,
    },
    /// The service is at it.
    UnderWay {
        response: Pin<Box<S::Future>>,
        under_way: UnderWay,
        /// Given back when the response is there, or the future is dropped.
        permit: Option<P::Permit>,
    },
}

/// A ticket of the guard. Dropped before the request has ended, it counts as abandoned after as long as it took; before the service was
/// called, as never worked on.
#[derive(Debug)]
pub(super) struct UnderWay {
    guard: Arc<Guard>,
    origin: Origin,
    ticket: Option<Ticket>,
    /// When the service was called.
    begun: Option<u64>,
}

impl UnderWay {
    pub(super) fn new(guard: Arc<Guard>, origin: Origin, ticket: Ticket) -> Self {
        Self {
            guard,
            origin,
            ticket: Some(ticket),
            begun: None,
        }
    }

    /// The service is called now: what the request waited for before is not the service's doing.
    pub(super) fn begin(&mut self) {
        self.begun = Some(self.origin.now());
    }

    /// There is no permit for it.
    pub(super) fn refuse(mut self, refusal: &Refusal) {
        if let Some(ticket) = self.ticket.take() {
            self.guard.turn_away(ticket, refusal, self.origin.now());
        }
    }

    fn end(&mut self, outcome: Outcome) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        let now = self.origin.now();
        match self.begun {
            Some(begun) => self.guard.settle(ticket, outcome, now.saturating_sub(begun), now),
            None => self.guard.abandon(ticket, now),
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.end(Outcome::Abandoned);
    }
}

// The service's future is boxed, a wait is `Unpin`, and nothing else is ever pinned.
impl<S: Service<Request>, Request, M, A, C, P: Reserve<Request>> Unpin
    for GuardedFuture<S, Request, M, A, C, P>
{
}

impl<S, Request, M, A, C, P> Future for GuardedFuture<S, Request, M, A, C, P>
where
    S: Service<Request>,
    A: Fn(&Refusal) -> S::Response,
    C: Classify<S::Response>,
    P: Reserve<Request>,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { parts, state } = self.get_mut();
        loop {
            match state {
                State::Refused(answer) => {
                    let answer = answer
                        .take()
                        .expect("a future is not polled after it has resolved");
                    return Poll::Ready(Ok(answer));
                }
                State::Waits { wait, held } => {
                    let granted = ready!(Pin::new(wait).poll(context));
                    let (mut service, request, under_way) = held.take().expect("a wait ends once");
                    *state = match granted {
                        Ok(permit) => State::call(&mut service, request, under_way, permit),
                        Err(refusal) => {
                            under_way.refuse(&refusal);
                            State::Refused(Some((parts.answer)(&refusal)))
                        }
                    };
                }
                State::UnderWay {
                    response,
                    under_way,
                    permit,
                } => {
                    let result = ready!(response.as_mut().poll(context));
                    permit.take();
                    under_way.end(match &result {
                        Ok(response) => parts.classify.outcome(response),
                        Err(_) => Outcome::Failure,
                    });
                    return Poll::Ready(result);
                }
            }
        }
    }
}

impl<S: Service<Request>, Request, P: Reserve<Request>> State<S, Request, P> {
    /// Calls a service that is ready.
    pub(super) fn call(
        service: &mut S,
        request: Request,
        mut under_way: UnderWay,
        permit: P::Permit,
    ) -> Self {
        under_way.begin();
        Self::UnderWay {
            response: Box::pin(service.call(request)),
            under_way,
            permit: Some(permit),
        }
    }
}
