//! Every interleaving of a release and an arrival. The command is in docs/building.md.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use loom::thread;

use super::*;

/// Express requests stay out of the way: the lane of this budget is too small for any.
const CAPACITY: u64 = 16;

/// Scenario: one thread lets go of the whole lane while another asks for it and gets in line.
/// Guarantees: whoever is in line is served by the release, in every interleaving; nothing stays behind.
#[test]
fn a_release_is_seen_by_who_gets_in_line() {
    loom::model(|| {
        let budget = Budget::with_tenants(CAPACITY, 1);
        let held = budget.try_reserve(15).expect("it is free");
        let releasing = thread::spawn(move || drop(held));
        let visitor = budget.visit(0);
        let mut waiting = Box::pin(visitor.reserve(15, 0));
        let mut cx = Context::from_waker(Waker::noop());
        let first = waiting.as_mut().poll(&mut cx);
        releasing.join().expect("it does not panic");
        let granted = match first {
            Poll::Ready(granted) => granted,
            Poll::Pending => match waiting.as_mut().poll(&mut cx) {
                Poll::Ready(granted) => granted,
                Poll::Pending => panic!("the release was not seen"),
            },
        };
        drop(waiting);
        drop(granted);
        assert_eq!((budget.usage().used, budget.usage().waiting), (0, 0));
    });
}

/// Scenario: a release crosses with a waiter that leaves.
/// Guarantees: the bytes are free afterwards, in every interleaving.
#[test]
fn a_grant_that_crosses_with_leaving_comes_back() {
    loom::model(|| {
        let budget = Budget::with_tenants(CAPACITY, 1);
        let held = budget.try_reserve(15).expect("it is free");
        let releasing = thread::spawn(move || drop(held));
        {
            let visitor = budget.visit(0);
            let mut waiting = pin!(visitor.reserve(15, 0));
            let _ = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        releasing.join().expect("it does not panic");
        assert_eq!((budget.usage().used, budget.usage().waiting), (0, 0));
    });
}
