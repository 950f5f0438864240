//! Every interleaving of a release, an arrival and a change of the capacity. The command is in docs/building.md.

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

/// Scenario: the capacity grows while somebody asks for what only the larger one has, and gets in line.
/// Guarantees: whoever is in line is served by the growth, in every interleaving.
#[test]
fn growth_is_seen_by_who_gets_in_line() {
    loom::model(|| {
        let budget = Budget::with_tenants(CAPACITY, 1);
        let held = budget.try_reserve(10).expect("it is free");
        budget.set_capacity(12);
        let growing = budget.clone();
        let growing = thread::spawn(move || growing.set_capacity(CAPACITY));
        let visitor = budget.visit(0);
        let mut waiting = Box::pin(visitor.reserve(5, 0));
        let mut cx = Context::from_waker(Waker::noop());
        let first = waiting.as_mut().poll(&mut cx);
        growing.join().expect("it does not panic");
        let granted = match first {
            Poll::Ready(granted) => granted,
            Poll::Pending => match waiting.as_mut().poll(&mut cx) {
                Poll::Ready(granted) => granted,
                Poll::Pending => panic!("the growth was not seen"),
            },
        };
        assert!(granted.is_ok());
        drop(waiting);
        drop((granted, held));
        assert_eq!((budget.usage().used, budget.usage().waiting), (0, 0));
    });
}

/// Scenario: the capacity is lowered while somebody asks for more than will be left, and somebody else lets go.
/// Guarantees: in every interleaving who asks is granted from the old capacity or refused for now, and never waits for
/// what cannot come; nothing is granted from the old capacity afterwards; nothing stays behind.
#[test]
fn a_lowered_capacity_leaves_nobody_waiting_in_vain() {
    loom::model(|| {
        let budget = Budget::with_tenants(CAPACITY, 1);
        let held = budget.try_reserve(6).expect("it is free");
        let lowered = budget.clone();
        let lowering = thread::spawn(move || {
            lowered.set_capacity(8);
            drop(held);
        });
        let visitor = budget.visit(0);
        let mut waiting = Box::pin(visitor.reserve(10, 0));
        let mut cx = Context::from_waker(Waker::noop());
        let first = waiting.as_mut().poll(&mut cx);
        lowering.join().expect("it does not panic");
        let outcome = match first {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => match waiting.as_mut().poll(&mut cx) {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => panic!("it waits for what cannot come"),
            },
        };
        assert!(matches!(outcome, Ok(_) | Err(Denied::Shrunk)));
        drop(waiting);
        drop(outcome);
        assert!(budget.try_reserve(9).is_none() && budget.try_reserve(8).is_some());
        assert_eq!((budget.usage().used, budget.usage().waiting), (0, 0));
    });
}

/// Scenario: what one tenant holds goes over to another while somebody of the first asks for more than its share, and gets in line.
/// Guarantees: whoever is in line is served by that, in every interleaving, though no byte comes free; nothing stays behind.
#[test]
fn a_move_is_seen_by_who_gets_in_line() {
    loom::model(|| {
        let budget = Budget::with_tenants(CAPACITY, 3);
        budget.keep_room_for_tenants();
        let mut held = budget.visit(1).try_reserve(12, 0).expect("it is free");
        let moving = thread::spawn(move || {
            held.move_to(2).expect("it holds nothing");
            held
        });
        let visitor = budget.visit(1);
        let mut waiting = Box::pin(visitor.reserve(3, 0));
        let mut cx = Context::from_waker(Waker::noop());
        let first = waiting.as_mut().poll(&mut cx);
        let held = moving.join().expect("it does not panic");
        let granted = match first {
            Poll::Ready(granted) => granted,
            Poll::Pending => match waiting.as_mut().poll(&mut cx) {
                Poll::Ready(granted) => granted,
                Poll::Pending => panic!("the move was not seen"),
            },
        };
        assert!(granted.is_ok());
        drop(waiting);
        drop((granted, held));
        assert_eq!((budget.usage().used, budget.usage().waiting), (0, 0));
    });
}

/// Scenario: nothing is free; two permits of what has not been read go over to the same tenant at the same time, which has room for one.
/// Guarantees: one goes over and one does not, in every interleaving; each byte is counted once, and nothing stays behind.
#[test]
fn two_that_move_do_not_take_the_same_room() {
    loom::model(|| {
        let budget = Budget::with_tenants(CAPACITY, TENANTS_LOOKED_AT + 4);
        budget.keep_room_for_tenants();
        let [one, two, three] = [1, 2, 3].map(|n| TENANTS_LOOKED_AT + n);
        let reserve = |tenant, bytes| budget.visit(tenant).try_reserve(bytes, 0).expect("it is free");
        let others = (reserve(three, 10), reserve(two, TENANT_FACTOR - 1));
        let (mut first, mut second) = (reserve(one, 1), reserve(one, 1));
        let moving = thread::spawn(move || (first.move_to(two).is_ok(), first));
        let second_is_over = second.move_to(two).is_ok();
        let (first_is_over, first) = moving.join().expect("it does not panic");
        assert!(first_is_over != second_is_over);
        assert_eq!((budget.used_by(one), budget.used_by(two)), (1, TENANT_FACTOR));
        drop((first, second, others));
        assert_eq!(
            (budget.usage().used, budget.used_by(one), budget.used_by(two)),
            (0, 0, 0)
        );
        assert_eq!(budget.0.active_tenants(), 0);
    });
}

/// Scenario: one thread gives back what it holds and takes something else, while another reads what is used, and takes what fits beside either.
/// Guarantees: it reads what was used in one moment, never the sum of both; it is granted in every interleaving; nothing stays behind.
#[test]
fn what_is_used_is_that_of_one_moment() {
    loom::model(|| {
        let budget = Budget::with_tenants(CAPACITY, 1);
        let held = budget.try_reserve(10).expect("it is free");
        let others = budget.clone();
        let changing = thread::spawn(move || {
            drop(held);
            others.try_reserve(12).expect("with the other's there are 15")
        });
        let used = budget.usage().used;
        assert!([0, 10, 12].contains(&used), "{used}");
        let own = budget.try_reserve(3).expect("it fits beside either");
        let other = changing.join().expect("it does not panic");
        assert_eq!(budget.usage().used, 15);
        drop((own, other));
        assert_eq!((budget.usage().used, budget.usage().waiting), (0, 0));
    });
}
