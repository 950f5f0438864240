//! What a request holds while it is worked on: granted at once, after a bounded wait, or not at all.

use std::future::{Future, Ready, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::{Budget, Denied, NeverFits, Permit, Reason, Refusal, RetryHint};

/// Requests that wait for a [`Budgeted`] at once, at most: each holds a connection or a stream, and what the client has sent already.
/// Who comes beyond is refused at once.
pub const LONGEST_LINE: usize = 1_024;

/// The three outcomes of asking for a permit.
#[derive(Debug)]
pub enum Reserved<Permit, Wait> {
    /// Here it is.
    Granted(Permit),
    /// It may come soon.
    Waits(Wait),
    /// It does not.
    Refused(Refusal),
}

/// Reserves what a request will hold, before the service sees it.
pub trait Reserve<Request> {
    /// Held until the response future resolves or is dropped.
    type Permit;

    /// What a request waits for. It has to end by itself, within the time that a client waits; dropping it leaves the line.
    type Wait: Future<Output = Result<Self::Permit, Refusal>> + Unpin;

    /// Reserves for `request`. A refusal is usually with [`Reason::NoRoom`].
    fn reserve(&self, request: &Request) -> Reserved<Self::Permit, Self::Wait>;
}

/// Reserves nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPermits;

impl<Request> Reserve<Request> for NoPermits {
    type Permit = ();
    type Wait = Ready<Result<(), Refusal>>;

    fn reserve(&self, _: &Request) -> Reserved<(), Self::Wait> {
        Reserved::Granted(())
    }
}

/// Grants or refuses at once.
impl<Request, Permit, F: Fn(&Request) -> Result<Permit, Refusal>> Reserve<Request> for F {
    type Permit = Permit;
    type Wait = Ready<Result<Permit, Refusal>>;

    fn reserve(&self, request: &Request) -> Reserved<Permit, Self::Wait> {
        match self(request) {
            Ok(permit) => Reserved::Granted(permit),
            Err(refusal) => Reserved::Refused(refusal),
        }
    }
}

/// Reserves bytes of a [`Budget`], and waits for them in line, for a bounded time.
#[derive(Debug, Clone)]
pub struct Budgeted<B, T> {
    budget: Budget,
    bytes: B,
    patience: Duration,
    timer: T,
    hint: Arc<RetryHint>,
}

impl<B, T> Budgeted<B, T> {
    /// Reserves for each request what `bytes` says it will hold; one that finds no room waits for `patience` at most. `timer` makes a future
    /// that ends after the time it is given, such as `tokio::time::sleep`: no clock is read here but for the delays told to
    /// who is refused, which `seed` spreads.
    pub fn new(budget: Budget, bytes: B, patience: Duration, timer: T, seed: u64) -> Self {
        Self {
            budget,
            bytes,
            patience,
            timer,
            hint: Arc::new(RetryHint::new(Instant::now(), seed)),
        }
    }
}

impl<Request, B, T, Timer> Reserve<Request> for Budgeted<B, T>
where
    B: Fn(&Request) -> u64,
    T: Fn(Duration) -> Timer,
    Timer: Future<Output = ()> + Send + 'static,
{
    type Permit = Permit;
    type Wait = Pin<Box<dyn Future<Output = Result<Permit, Refusal>> + Send>>;

    fn reserve(&self, request: &Request) -> Reserved<Permit, Self::Wait> {
        let bytes = (self.bytes)(request);
        let visitor = self.budget.visit(0);
        if let Some(permit) = visitor.try_reserve(bytes, 0) {
            permit.counts_as_drained();
            return Reserved::Granted(permit);
        }
        let largest = self.budget.largest();
        if bytes > largest {
            let asked = bytes;
            return Reserved::Refused(Refusal::never(NeverFits { asked, largest }));
        }
        let usage = self.budget.usage();
        if self.patience.is_zero() || usage.waiting >= LONGEST_LINE {
            return Reserved::Refused(no_room(&self.hint, &self.budget, bytes));
        }
        let (budget, hint) = (self.budget.clone(), self.hint.clone());
        let over = (self.timer)(self.patience);
        Reserved::Waits(Box::pin(async move {
            let (mut granted, mut over) = (pin!(visitor.reserve(bytes, 0)), pin!(over));
            let granted = poll_fn(|context| match granted.as_mut().poll(context) {
                Poll::Ready(granted) => Poll::Ready(Some(granted)),
                Poll::Pending => over.as_mut().poll(context).map(|()| None),
            });
            match granted.await {
                Some(Ok(permit)) => {
                    permit.counts_as_drained();
                    Ok(permit)
                }
                Some(Err(Denied::NeverFits(never))) => Err(Refusal::never(never)),
                Some(Err(Denied::GaveWay | Denied::Shrunk)) | None => Err(no_room(&hint, &budget, bytes)),
            }
        }))
    }
}

fn no_room(hint: &RetryHint, budget: &Budget, bytes: u64) -> Refusal {
    Refusal {
        reason: Reason::NoRoom,
        retry_after: Some(hint.delay(Instant::now(), budget.usage(), bytes)),
    }
}
