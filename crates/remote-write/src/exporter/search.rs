//! The search for the series that a destination does not take. Sans-IO.
//!
//! A body that is refused is cut in two, and the first part is sent. Where that is taken, the fault is in the second, which is cut
//! again without being sent. So a fault in the first part costs two requests, for that part and then for the second, and a
//! fault in the second only one. The first part is therefore the smaller one, by the golden section: one bad series among n is found with
//! at most 1.44 log2(n) + 2 requests more, 20 for 10,000.
//!
//! What follows from answers to other parts only says what need not be sent: a series is given up when it was refused by itself.

use std::collections::VecDeque;

use crate::body::Body;
use crate::rewrite::cut_after;

/// The part of the series that goes first where a fault is looked for: what is left of the golden section. With x of n in the first part both
/// ways are equally long when x^(1/2) = 1 - x.
const FIRST_PART: f64 = 0.381_966;

/// Why a body is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Because {
    /// It is too large; what is in it may be good.
    TooLarge,
    /// Something in it is bad.
    Fault,
    /// It was refused for what is in it, by an endpoint that may refuse whatever comes.
    Doubt,
}

/// What can be cut between its series.
pub(super) trait Divisible: Sized {
    /// The first series, as many as `first` says of all, and the others; `None` when there are fewer than two.
    fn cut_after(&self, first: impl FnOnce(usize) -> usize) -> Option<(Self, Self)>;

    /// Whether there is nothing to cut.
    fn is_single(&self) -> bool;
}

impl Divisible for Body {
    fn cut_after(&self, first: impl FnOnce(usize) -> usize) -> Option<(Self, Self)> {
        cut_after(self, first)
    }

    fn is_single(&self) -> bool {
        self.written.series < 2
    }
}

/// What is next.
#[derive(Debug)]
pub(super) enum Next<B> {
    Send(B),
    /// There is a fault in it, as the destination said of a body that it was a part of: it is cut without being sent.
    Cut(B, String),
}

/// The bodies of a lane that are not settled, in order.
#[derive(Debug)]
pub(super) struct Queue<B = Body>(VecDeque<Work<B>>);

#[derive(Debug)]
struct Work<B> {
    body: B,
    /// What the destination said of a body of which this is the rest. There is a fault in it if all that is before it, up to where it
    /// was cut, is taken. One at most has it: cutting forgets the one before.
    at_fault: Option<String>,
}

impl<B: Divisible> Queue<B> {
    pub fn new(bodies: impl IntoIterator<Item = B>) -> Self {
        Self(bodies.into_iter().map(Work::of).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn next(&mut self) -> Option<Next<B>> {
        let Work { body, at_fault } = self.0.pop_front()?;
        Some(match at_fault {
            // A single series is asked about by itself before it is given up.
            Some(reason) if !body.is_single() => Next::Cut(body, reason),
            _ => Next::Send(body),
        })
    }

    /// The body is sent before everything else.
    pub fn put_back(&mut self, body: B) {
        self.0.push_front(Work::of(body));
    }

    /// Not all of what was sent last has been taken: where the fault is does not follow from it any more.
    pub fn infer_nothing(&mut self) {
        for work in &mut self.0 {
            work.at_fault = None;
        }
    }

    /// The parts of a body come before everything else. The body itself comes back when it is a single series.
    pub fn cut(&mut self, body: B, because: Because, reason: &str) -> Result<(), B> {
        let first = |series| match because {
            Because::TooLarge => series / 2,
            Because::Fault | Because::Doubt => first_part(series),
        };
        let parts = body.cut_after(first);
        if because != Because::TooLarge || parts.is_none() {
            self.infer_nothing();
        }
        let Some((first, rest)) = parts else {
            return Err(body);
        };
        self.0.push_front(Work {
            body: rest,
            at_fault: (because == Because::Fault).then(|| reason.to_owned()),
        });
        self.put_back(first);
        Ok(())
    }
}

impl<B> Work<B> {
    fn of(body: B) -> Self {
        Self { body, at_fault: None }
    }
}

/// How many of two or more series go first.
fn first_part(series: usize) -> usize {
    ((series as f64 * FIRST_PART).round() as usize).max(1)
}

#[cfg(test)]
mod tests;
