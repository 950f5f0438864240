//! Watches how long whoever is the oldest of those that hold bytes waits: what the scheme promises a bound for.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use super::*;

/// Requests that hold bytes and are not complete, by age.
#[derive(Default, Clone)]
pub(super) struct Oldest(Rc<Watch>);

#[derive(Default)]
struct Watch {
    holding: RefCell<BTreeSet<u64>>,
    /// The oldest of them, and since when it is that.
    first: Cell<Option<(u64, Instant)>>,
    longest: Cell<Duration>,
}

impl Oldest {
    pub fn enter(&self, age: u64) -> Among<'_> {
        Among(&self.0, age)
    }

    pub fn longest(&self) -> Duration {
        self.0.longest.get()
    }
}

impl Watch {
    fn look(&self) {
        let first = self.holding.borrow().first().copied();
        if first != self.first.get().map(|(age, _)| age) {
            self.first.set(first.map(|age| (age, Instant::now())));
        }
    }
}

/// A request that is not complete yet. Dropping it: it is, or has let go of everything.
pub(super) struct Among<'a>(&'a Watch, u64);

impl Among<'_> {
    pub fn holds(&self) {
        self.0.holding.borrow_mut().insert(self.1);
        self.0.look();
    }

    /// Its wait, which began at `asked`, is over: what counts of it is when it was the oldest.
    pub fn waited_since(&self, asked: Instant) {
        if let Some((first, since)) = self.0.first.get()
            && first == self.1
        {
            let longest = self.0.longest.get().max(asked.max(since).elapsed());
            self.0.longest.set(longest);
        }
    }
}

impl Drop for Among<'_> {
    fn drop(&mut self) {
        self.0.holding.borrow_mut().remove(&self.1);
        self.0.look();
    }
}
