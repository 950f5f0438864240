//! Who waits, and how they hear of it.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::{Denied, Share, Visitor};
use crate::sync::Mutex;

/// Everybody in line.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Requests that hold bytes, oldest first.
    pub growing: BTreeMap<u64, Waiter>,
    /// Requests that hold nothing yet, in the order they asked.
    pub new: VecDeque<Waiter>,
    /// Small ones that hold nothing yet, in the order they asked.
    pub express: VecDeque<Waiter>,
}

impl Line {
    /// Refuses who would not fit into a general lane of `capacity` bytes if everybody else let go of everything.
    pub fn turn_away(&mut self, capacity: u64) {
        let fits = |waiter: &Waiter| {
            let fits = waiter.held.saturating_add(waiter.bytes) <= capacity;
            if !fits {
                waiter.slot.refuse(Denied::Shrunk);
            }
            fits
        };
        self.growing.retain(|_, waiter| fits(waiter));
        self.new.retain(fits);
        self.express.retain(fits);
    }

    /// What the requests of each tenant hold that wait for more.
    pub fn held_in_line(&self) -> BTreeMap<usize, u64> {
        let mut held = BTreeMap::new();
        for waiter in self.growing.values().filter(|waiter| waiter.slot.is_waiting()) {
            *held.entry(waiter.tenant).or_default() += waiter.held;
        }
        held
    }
}

/// One in line.
#[derive(Debug)]
pub(super) struct Waiter {
    pub bytes: u64,
    pub tenant: usize,
    /// Bytes it holds already.
    pub held: u64,
    /// Whether the whole request is small enough for the express lane.
    pub express: bool,
    pub slot: Arc<Slot>,
}

/// Where a waiter and whoever serves it meet.
#[derive(Debug, Default)]
pub(super) struct Slot(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Waiting,
    Watched(Waker),
    Granted(Share),
    Refused(Denied),
    Left,
}

impl Slot {
    pub fn is_waiting(&self) -> bool {
        matches!(*self.0.lock(), State::Waiting | State::Watched(_))
    }

    /// Hands over `share`, or gives it back when nobody waits for it any more.
    pub fn grant(&self, share: Share) -> Result<(), Share> {
        match self.settle(State::Granted(share)) {
            true => Ok(()),
            false => Err(share),
        }
    }

    /// Tells the waiter to let go; whether it still waited.
    pub fn refuse(&self, why: Denied) -> bool {
        self.settle(State::Refused(why))
    }

    fn settle(&self, outcome: State) -> bool {
        let mut state = self.0.lock();
        let watcher = match &mut *state {
            State::Waiting => None,
            State::Watched(waker) => Some(waker.clone()),
            State::Granted(_) | State::Refused(_) | State::Left => return false,
        };
        *state = outcome;
        drop(state);
        if let Some(waker) = watcher {
            waker.wake();
        }
        true
    }
}

/// A place in line. Dropping it leaves the line, and gives back what crossed with that.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    visitor: &'a Visitor,
    bytes: u64,
    slot: Arc<Slot>,
}

impl<'a> Waiting<'a> {
    pub fn new(visitor: &'a Visitor, bytes: u64, slot: Arc<Slot>) -> Self {
        Self { visitor, bytes, slot }
    }
}

impl Future for Waiting<'_> {
    type Output = Result<Share, Denied>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Share, Denied>> {
        let mut state = self.slot.0.lock();
        match &mut *state {
            State::Granted(share) => {
                let share = std::mem::take(share);
                *state = State::Left;
                Poll::Ready(Ok(share))
            }
            State::Refused(why) => Poll::Ready(Err(*why)),
            // Polled again after its end, which nobody does: refused in the way that asks for nothing.
            State::Left => Poll::Ready(Err(Denied::GaveWay)),
            State::Waiting | State::Watched(_) => {
                *state = State::Watched(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let unclaimed = match std::mem::replace(&mut *self.slot.0.lock(), State::Left) {
            State::Granted(share) => Some(share),
            _ => None,
        };
        self.visitor.leave(self.bytes, unclaimed);
    }
}
