//! How many requests are under way to one endpoint: as many as it answers without keeping them waiting. Sans-IO.
//!
//! While an endpoint has room, an answer takes as long whatever else is under way; beyond that requests queue up there, and one
//! more only makes all of them wait. So what the answers of a round took is compared with what answers take in a **calm** round, in which
//! half as many are under way, and the limit is moved to where the one is [`TOLERATED`] times the other: down at once, up by
//! steps. One round in [`CALM_EVERY`] is calm, and so is every one of a single request at a time; what is calm is thus measured again and again, and
//! an endpoint that has become slower or faster for good is known as such. A failure counts as an answer that took long.
//!
//! This is the gradient that Netflix's limiters follow, with a reference that cannot drift up with the queue it is to show. Order does not
//! depend on it: a lane has one request under way or waits for its turn with it.

use std::time::Duration;

use tokio::time::Instant;

/// Answers may take so many times as long as in a calm round: half of what is under way waits then, which keeps an endpoint busy, and
/// none waits longer than its own work takes.
const TOLERATED: f64 = 1.5;

/// What a failed request counts as. A round of which a quarter fails is then just tolerated.
const FAILED: f64 = 3.0;

/// What a single answer counts as at most: one that was held up is not to decide on a round.
const WORST: f64 = 4.0;

/// The most that a round takes away, as a part of the limit.
const LEAST_LEFT: f64 = 0.5;

/// Between two calm rounds there are so many: at half the limit, one in 33 costs at most a sixtieth of what is sent.
const CALM_EVERY: u32 = 32;

/// A round has at least so many answers: less would be chance.
const LEAST_ANSWERS: u32 = 4;

/// What is calm follows the last answers, some twice as many as this.
const CALM_ANSWERS: u32 = 10;

/// Bodies of some length take longer than shorter ones: they are compared within powers of two of their bytes.
const CLASSES: usize = 32;

/// The limit of one endpoint, and what it is made from.
#[derive(Debug)]
pub(super) struct Concurrency {
    most: f64,
    limit: f64,
    under_way: usize,
    round: Round,
    until_calm: u32,
    calm: [Calm; CLASSES],
}

/// The requests that were begun since the limit was moved.
#[derive(Debug, Default)]
struct Round {
    number: u64,
    is_calm: bool,
    answers: u32,
    /// What they took, in what is calm, added up.
    times: f64,
    /// At some time as many were under way as may be: more could have been.
    was_full: bool,
}

/// What an answer takes in a calm round.
#[derive(Debug, Clone, Copy, Default)]
struct Calm {
    /// Their average; 0: nothing is known.
    seconds: f64,
    /// Of how many; 0: it is a first guess, of a round that was not calm.
    answers: u32,
}

/// A request under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    round: u64,
    begun: Instant,
    class: usize,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    /// An answer that says how busy the endpoint is.
    Answer,
    /// Overload, or no answer.
    Failure,
    /// Nothing that says how busy the endpoint is.
    Nothing,
}

impl Concurrency {
    /// At most `most` requests, and one to begin with.
    pub fn new(most: usize) -> Self {
        Self {
            most: most.max(1) as f64,
            limit: 1.0,
            under_way: 0,
            round: Round::default(),
            until_calm: CALM_EVERY,
            calm: [Calm::default(); CLASSES],
        }
    }

    /// Requests that may be under way now.
    pub fn limit(&self) -> usize {
        let limit = if self.round.is_calm {
            self.limit / 2.0
        } else {
            self.limit
        };
        (limit as usize).max(1)
    }

    /// Begins a request with a body of so many bytes, if there may be one more.
    pub fn begin(&mut self, bytes: usize, now: Instant) -> Option<Request> {
        let limit = self.limit();
        self.round.was_full |= self.under_way + 1 >= limit;
        if self.under_way >= limit {
            return None;
        }
        self.under_way += 1;
        Some(Request {
            round: self.round.number,
            begun: now,
            class: (bytes.max(1).ilog2() as usize).min(CLASSES - 1),
        })
    }

    /// Ends a request.
    pub fn end(&mut self, request: Request, came: Came, now: Instant) {
        self.under_way -= 1;
        if request.round != self.round.number {
            // What it waited for was the limit before this one.
            return;
        }
        let times = match came {
            Came::Nothing => return,
            Came::Failure => FAILED,
            Came::Answer => self.times(request.class, now.saturating_duration_since(request.begun)),
        };
        self.round.answers += 1;
        self.round.times += times;
        if self.round.answers >= LEAST_ANSWERS.max(2 * self.limit() as u32) {
            self.end_round();
        }
    }

    /// What an answer took, in what is calm; where it came in a calm round, that learns from it.
    fn times(&mut self, class: usize, took: Duration) -> f64 {
        let took = took.as_secs_f64().max(1e-6);
        let is_calm = self.round.is_calm || self.limit() == 1;
        let calm = &mut self.calm[class];
        if calm.answers == 0 && (is_calm || calm.seconds == 0.0) {
            *calm = Calm {
                seconds: took,
                answers: u32::from(is_calm),
            };
            return 1.0;
        }
        let times = (took / calm.seconds).min(WORST);
        if is_calm {
            calm.answers = (calm.answers + 1).min(CALM_ANSWERS);
            calm.seconds *= 1.0 + (times - 1.0) / f64::from(calm.answers);
        }
        times
    }

    fn end_round(&mut self) {
        let times = self.round.times / f64::from(self.round.answers);
        let may_grow = self.round.was_full && !self.round.is_calm;
        let most = if may_grow {
            // By about as many as a random queue of so many has; fast while there are few.
            1.0 + self.limit.sqrt().recip().min(0.5)
        } else {
            1.0
        };
        let part = (TOLERATED / times).clamp(LEAST_LEFT, most);
        self.limit = (self.limit * part).clamp(1.0, self.most);
        let is_calm = self.until_calm == 0;
        self.until_calm = if is_calm { CALM_EVERY } else { self.until_calm - 1 };
        self.round = Round {
            number: self.round.number + 1,
            is_calm,
            ..Round::default()
        };
    }
}

#[cfg(test)]
mod tests;
