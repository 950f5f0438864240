//! The adaptive in-flight window: how many requests an exporter has under way. Sans-IO.

/// Each overload shrinks the window to this part of itself (multiplicative decrease).
const DECREASE: f64 = 0.7;

/// Additive increase, multiplicative decrease between 1 and a maximum: a destination that says
/// "overloaded" or stops answering gets fewer requests at once, one that answers gets more.
#[derive(Debug)]
pub(crate) struct Window {
    limit: f64,
    max: f64,
    in_flight: usize,
}

impl Window {
    pub fn new(max: usize) -> Self {
        let max = max.max(1) as f64;
        Self {
            limit: max,
            max,
            in_flight: 0,
        }
    }

    /// Takes a place if one is free.
    pub fn try_enter(&mut self) -> bool {
        let free = (self.in_flight as f64) < self.limit.floor().max(1.0);
        self.in_flight += usize::from(free);
        free
    }

    /// Gives the place back.
    pub fn leave(&mut self) {
        self.in_flight -= 1;
    }

    /// The destination answered in time.
    pub fn grew(&mut self) {
        self.limit = (self.limit + 1.0 / self.limit).min(self.max);
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
        window.leave();
        assert!(window.try_enter());
    }
}
