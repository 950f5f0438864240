//! The adaptive in-flight window: how many batches an exporter holds, and how many requests it has under way. Sans-IO.

use std::collections::VecDeque;

/// Each overload shrinks the window to this part of itself (multiplicative decrease).
const DECREASE: f64 = 0.7;

/// Additive increase, multiplicative decrease between 1 and a maximum: a destination that says
/// "overloaded" or stops answering gets fewer requests at once, one that answers gets more.
///
/// A batch keeps its place, one of the maximum, until it is settled. It counts as a request only while it is one: what waits for another attempt, be it
/// for ever, takes nothing from the requests that the destination gets. Nor does it make others wait while it is tried again: one first attempt may be under way
/// beside any number of others.
///
/// Nor do first attempts make it wait: as long as a batch waits to be tried again, what gets free is for who waits longest, and of first attempts there is
/// only that one beside a batch that is tried again. So a retry waits for those before it in line and for the requests that were under way, and at most
/// for one first attempt more for each of those before it.
#[derive(Debug)]
pub(crate) struct Window {
    limit: f64,
    max: usize,
    batches: usize,
    first: usize,
    again: usize,
    /// Who waits to be tried again, in order.
    line: VecDeque<u64>,
    /// Given to those who wait.
    numbers: u64,
}

/// Where a batch waits to be tried again.
#[derive(Debug, Default)]
pub(crate) struct InLine(Option<u64>);

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
            line: VecDeque::new(),
            numbers: 0,
        }
    }

    /// Takes a place, and with it the right to one request, if they are free.
    pub fn try_enter(&mut self) -> bool {
        let its_turn = match self.line.is_empty() {
            true => self.first == 0 || self.has_room(),
            false => self.first == 0 && self.again > 0,
        };
        let free = self.batches < self.max && its_turn;
        self.batches += usize::from(free);
        self.first += usize::from(free);
        free
    }

    /// Takes the right to another request, for who has a place, or a number in line.
    pub fn try_again(&mut self, in_line: &mut InLine) -> bool {
        let number = *in_line.0.get_or_insert_with(|| {
            self.numbers += 1;
            self.line.push_back(self.numbers);
            self.numbers
        });
        let free = self.has_room() && self.line.front() == Some(&number);
        if free {
            self.line.pop_front();
            in_line.0 = None;
            self.again += 1;
        }
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

    /// Gives the place back, and the number, if it was in line.
    pub fn leave(&mut self, in_line: InLine) {
        self.batches -= 1;
        if let Some(number) = in_line.0 {
            self.line.retain(|one| *one != number);
        }
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
    use sluice_journal::testing::Random;

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
        window.leave(InLine::default());
        assert!(window.try_enter());
    }

    /// Scenario: batches that nobody takes are tried for ever, at an exporter that has shrunk to one request at once.
    /// Guarantees: as long as there is a place left, another batch has its first attempt, beside one that is tried again.
    #[test]
    fn who_is_tried_for_ever_leaves_room() {
        let mut window = Window::new(4);
        (0..20).for_each(|_| window.shrank());
        let mut turns = [InLine::default(), InLine::default(), InLine::default()];
        for (stuck, turn) in turns.iter_mut().enumerate() {
            assert!(window.try_enter(), "with {stuck} others");
            assert!(!window.try_again(turn), "the window is one");
            window.ended(Attempt::First);
            assert!(window.try_again(turn));
            if stuck < 2 {
                window.ended(Attempt::Again);
            }
        }
        assert!(window.try_enter(), "beside one that is tried again");
        assert!(!window.try_enter(), "no place");
    }

    /// Scenario: a window of one to three requests that batches enter, fail at and are tried again in, for a long time, in any order; whoever may not begin
    /// waits, and who leaves may have been waiting.
    /// Guarantees: batches are tried again in the order in which they began to wait; from when none before one is tried, no first attempt is begun before it
    /// is; no more are tried at once than the window says; somebody may begin whenever nothing is under way.
    #[test]
    fn first_attempts_do_not_overtake_a_retry_for_ever() {
        for seed in 0..200 {
            let mut random = Random(seed);
            let mut window = Window::new(6);
            (0..20).for_each(|_| window.shrank());
            (0..seed % 4 * 2).for_each(|_| window.grew());
            let mut under_way = Vec::new();
            let mut pausing = 0;
            let mut waiting: VecDeque<InLine> = VecDeque::new();
            for _ in 0..500 {
                match random.below(5) {
                    0 => {
                        let none_before = !waiting.is_empty() && !under_way.contains(&Attempt::Again);
                        let is_full = under_way.len() + pausing + waiting.len() == 6;
                        if window.try_enter() {
                            assert!(
                                !none_before && !is_full,
                                "seed {seed}: a first attempt before its turn"
                            );
                            under_way.push(Attempt::First);
                        } else {
                            let is_first_out = under_way.contains(&Attempt::First);
                            assert!(
                                is_full || none_before || is_first_out,
                                "seed {seed}: it waits for retries alone"
                            );
                        }
                    }
                    1 if pausing > 0 => {
                        pausing -= 1;
                        let mut turn = InLine::default();
                        match window.try_again(&mut turn) {
                            true => {
                                assert!(under_way.len() < window.limit as usize, "seed {seed}: too many");
                                assert!(waiting.is_empty(), "seed {seed}: it passes who waits");
                                under_way.push(Attempt::Again);
                            }
                            false => waiting.push_back(turn),
                        }
                    }
                    2 if !waiting.is_empty() => {
                        let asks = random.below(waiting.len() as u64) as usize;
                        if window.try_again(&mut waiting[asks]) {
                            let limit = window.limit as usize;
                            assert!(under_way.len() < limit, "seed {seed}: too many for {limit}");
                            assert_eq!(asks, 0, "seed {seed}: who has waited longest is first");
                            waiting.pop_front();
                            under_way.push(Attempt::Again);
                        } else {
                            assert!(
                                asks > 0 || !under_way.is_empty(),
                                "seed {seed}: nothing is under way"
                            );
                        }
                    }
                    3 if !under_way.is_empty() => {
                        let ends = random.below(under_way.len() as u64) as usize;
                        window.ended(under_way.swap_remove(ends));
                        match random.one_in(2) {
                            true => window.leave(InLine::default()),
                            false => pausing += 1,
                        }
                    }
                    4 if random.one_in(8) && !waiting.is_empty() => {
                        let leaves = random.below(waiting.len() as u64) as usize;
                        window.leave(waiting.remove(leaves).unwrap());
                    }
                    _ => {}
                }
            }
        }
    }
}
