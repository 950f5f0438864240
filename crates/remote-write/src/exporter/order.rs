//! Whose turn it is in each lane.
//!
//! A batch may be sent in a lane when no batch before it has anything left there. So a lane goes on with the next batches while others are held up by
//! an earlier one, and in no lane anything passes what came before it. A batch that is not encoded yet may have something in any lane, and so may
//! one whose pieces come one by one, until all of it has ended.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use sluice_pipeline::{Ending, Turn};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The batches of all deliveries that have not ended.
#[derive(Debug, Default)]
pub(super) struct Order {
    places: Mutex<BTreeMap<Turn, Place>>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Place {
    is_encoded: bool,
    /// What it has something left in, by lane; `None`: it may be any.
    open: Option<Vec<bool>>,
    /// Its pieces come one by one: what one of them has not, the next one may have.
    in_pieces: bool,
    is_left: bool,
    /// For how long its last attempt waited for others.
    waited: Duration,
}

impl Order {
    /// Takes the place of this turn, if nobody has yet.
    pub fn enter(&self, turn: Turn) {
        self.places.lock().entry(turn).or_default();
    }

    /// Comes when something ends that others may wait for, from now on.
    pub fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Whether it is the oldest of its delivery.
    pub fn is_first(&self, turn: Turn) -> bool {
        before(&self.places.lock(), turn).next().is_none()
    }

    /// Whether everything before it has been encoded: totals are added up in the order of batches.
    pub fn may_encode(&self, turn: Turn) -> bool {
        before(&self.places.lock(), turn).all(|place| place.is_encoded)
    }

    /// Whether something before it stays for the next process: what waits for that waits in vain.
    pub fn is_left_before(&self, turn: Turn) -> bool {
        before(&self.places.lock(), turn).any(|place| place.is_left)
    }

    /// In which of so many lanes something comes before it.
    pub fn taken_before(&self, turn: Turn, lanes: usize) -> Vec<bool> {
        let mut taken = vec![false; lanes];
        for place in before(&self.places.lock(), turn) {
            match &place.open {
                None => taken.fill(true),
                Some(open) => taken
                    .iter_mut()
                    .zip(open)
                    .for_each(|(taken, open)| *taken |= open),
            }
        }
        taken
    }

    /// It has something in these lanes, and in no other.
    pub fn encoded(&self, turn: Turn, open: Vec<bool>) {
        self.change(turn, |place| {
            place.is_encoded = true;
            if !place.in_pieces {
                place.open = Some(open);
            }
        });
    }

    /// It has nothing left in this lane.
    pub fn done_in(&self, turn: Turn, lane: usize) {
        self.change(turn, |place| {
            if let Some(open) = &mut place.open {
                open[lane] = false;
            }
        });
    }

    /// What was encoded is gone: it will be encoded once more, as a whole or in pieces.
    pub fn comes_again(&self, turn: Turn, in_pieces: bool) {
        self.change(turn, |place| {
            place.open = None;
            place.in_pieces |= in_pieces;
        });
    }

    /// Nothing more comes of it in this process.
    pub fn ends(&self, turn: Turn, ending: Ending) {
        match ending {
            Ending::Left => self.change(turn, |place| place.is_left = true),
            Ending::Settled => {
                self.places.lock().remove(&turn);
                self.changed.notify_waiters();
            }
        }
    }

    pub fn set_waited(&self, turn: Turn, waited: Duration) {
        if let Some(place) = self.places.lock().get_mut(&turn) {
            place.waited = waited;
        }
    }

    /// For how long its last attempt waited for others.
    pub fn waited(&self, turn: Turn) -> Duration {
        self.places
            .lock()
            .get(&turn)
            .map_or(Duration::ZERO, |place| place.waited)
    }

    fn change(&self, turn: Turn, change: impl FnOnce(&mut Place)) {
        if let Some(place) = self.places.lock().get_mut(&turn) {
            change(place);
        }
        self.changed.notify_waiters();
    }
}

/// What is before it in its delivery.
fn before(places: &BTreeMap<Turn, Place>, turn: Turn) -> impl Iterator<Item = &Place> {
    let first = Turn { number: 0, ..turn };
    places.range(first..turn).map(|(_, place)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: three batches over three lanes, of which the first is taken apart; another delivery's beside them.
    /// Guarantees: a lane is free when nothing before has something left in it, and not before it is known what that is; pieces hold all lanes until
    /// the last of them has ended; what is left for the next process is never passed. Deliveries do not know each other.
    #[test]
    fn lanes_are_free_when_nothing_is_left_in_them() {
        let order = Order::default();
        let one = Turn::first();
        let (two, three) = (one.next(), one.next().next());
        let other = Turn::first();
        for turn in [one, two, three, other] {
            order.enter(turn);
        }
        let taken = |turn| order.taken_before(turn, 3);
        let (none, all) = ([false; 3], [true; 3]);
        assert_eq!((taken(one), taken(other)), (none.to_vec(), none.to_vec()));
        assert_eq!(taken(two), all);
        assert!(order.may_encode(one) && !order.may_encode(two) && order.is_first(other));
        order.encoded(one, vec![true, true, false]);
        assert!(order.may_encode(two) && !order.may_encode(three));
        order.encoded(two, vec![false, true, true]);
        assert_eq!(taken(two), [true, true, false]);
        assert_eq!(taken(three), all);
        order.done_in(one, 0);
        assert_eq!(taken(two), [false, true, false]);
        assert_eq!(taken(three), [false, true, true]);
        order.comes_again(one, true);
        order.encoded(one, vec![true, false, false]);
        order.done_in(one, 0);
        assert_eq!(taken(two), all);
        order.ends(one, Ending::Settled);
        assert_eq!(taken(two), none);
        assert!(order.is_first(two) && !order.is_first(three));
        order.done_in(two, 1);
        order.ends(two, Ending::Left);
        assert!(order.is_left_before(three) && !order.is_left_before(two) && !order.is_left_before(other));
        assert_eq!(taken(three), [false, false, true]);
    }
}
