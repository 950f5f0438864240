//! The adaptive in-flight window: how many batches an exporter holds, and how many requests it has under way. Sans-IO.

/// Each overload shrinks the window to this part of itself (multiplicative decrease).
const DECREASE: f64 = 0.7;

/// Additive increase, multiplicative decrease between 1 and a maximum: a destination that says
/// "overloaded" or stops answering gets fewer requests at once, one that answers gets more.
///
/// A batch keeps its place, one of the maximum, until it is settled. It counts as a request only while it is one: what waits for another attempt, be it
/// for ever, takes nothing from the requests that the destination gets. Nor does it make others wait while it is tried again: one first attempt may be under way
/// beside any number of others.
#[derive(Debug)]
pub(crate) struct Window {
    limit: f64,
    max: usize,
    batches: usize,
    first: usize,
    again: usize,
}

/// Which request of its batch one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    First,
    Again,
}

impl Window {
    pub fn new(max: usize) -> Self {
        let max = max.max(1);
        Self {
            limit: max as f64,
            max,
            batches: 0,
            first: 0,
            again: 0,
        }
    }

    /// Takes a place, and with it the right to one request, if they are free.
    pub fn try_enter(&mut self) -> bool {
        let free = self.batches < self.max && (self.first == 0 || self.has_room());
        self.batches += usize::from(free);
        self.first += usize::from(free);
        free
    }

    /// Takes the right to another request, for who has a place.
    pub fn try_again(&mut self) -> bool {
        let free = self.has_room();
        self.again += usize::from(free);
        free
    }

    fn has_room(&self) -> bool {
        ((self.first + self.again) as f64) < self.limit.floor()
    }

    /// Gives back the right to a request.
    pub fn ended(&mut self, attempt: Attempt) {
        match attempt {
            Attempt::First => self.first -= 1,
            Attempt::Again => self.again -= 1,
        }
    }

    /// Gives the place back.
    pub fn leave(&mut self) {
        self.batches -= 1;
    }

    /// The destination answered in time.
    pub fn grew(&mut self) {
        self.limit = (self.limit + 1.0 / self.limit).min(self.max as f64);
    }

    /// The destination is overloaded or does not answer.
    pub fn shrank(&mut self) {
        self.limit = (self.limit * DECREASE).max(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: overload, then recovery.
    /// Guarantees: the window falls to one at the least, never to none, and grows back to its maximum.
    #[test]
    fn window_follows_the_destination() {
        let mut window = Window::new(10);
        for _ in 0..20 {
            window.shrank();
        }
        assert!(window.try_enter());
        assert!(!window.try_enter());
        for _ in 0..100 {
            window.grew();
        }
        for _ in 0..9 {
            assert!(window.try_enter());
        }
        assert!(!window.try_enter(), "ten in flight");
        window.ended(Attempt::First);
        assert!(!window.try_enter(), "ten batches");
        window.leave();
        assert!(window.try_enter());
    }

    /// Scenario: batches that nobody takes are tried for ever, at an exporter that has shrunk to one request at once.
    /// Guarantees: as long as there is a place left, another batch has its first attempt, whether they wait or are under way; one of them at a time is tried
    /// again.
    #[test]
    fn who_is_tried_for_ever_leaves_room() {
        let mut window = Window::new(4);
        (0..20).for_each(|_| window.shrank());
        for stuck in 0..3 {
            assert!(window.try_enter(), "with {stuck} others");
            assert!(!window.try_again(), "the window is one");
            window.ended(Attempt::First);
            assert!(window.try_again());
            assert!(!window.try_again());
            if stuck < 2 {
                window.ended(Attempt::Again);
            }
        }
        assert!(window.try_enter(), "beside one that is tried again");
        assert!(!window.try_enter(), "no place");
    }
}
