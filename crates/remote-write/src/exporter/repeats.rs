//! Series that come more than once in a body that was refused. Sans-IO.
//!
//! Prometheus writes nothing of a request of 1.0 that it answers with 400. Mimir, Cortex and Thanos write what is good of it. Asked about the same samples again
//! they take the newest of each series once more and refuse those before it as out of order: a search sample by sample would find all of them at fault. It is the
//! same with any destination when a request comes again whose answer was lost.
//!
//! So before such a body is cut, two of its series are asked about, sample by sample and in their order, which does no harm where nothing was written. Where of both
//! all were refused but the newest, the destination has what is before: then only the newest sample of each series is searched, which may be sent as often as need be.

use std::collections::HashSet;

use crate::body::Body;
use crate::rewrite::{samples, with_samples};

/// Series that have to say so: the samples of one may be too old by themselves.
const HAVE_TO_SAY_SO: usize = 2;

/// Series that are asked about: one may be the one that is at fault, and says nothing.
const ASKED: usize = 3;

/// Samples of a series that is asked about: each takes a request.
const MAX_SAMPLES: usize = 8;

/// What is being found out about a body.
#[derive(Debug)]
pub(super) struct Repeats {
    body: Body,
    /// The numbers of the samples of each series.
    series: Vec<Vec<usize>>,
    /// Which series are asked about, and how far that is.
    asked: Vec<usize>,
    at: usize,
    sample: usize,
    /// Series that were there already.
    there: usize,
    taken: HashSet<usize>,
    /// Samples that were refused, and a newer one of the same series was taken.
    refused: HashSet<usize>,
    takes_one_by_one: bool,
}

/// What was found out.
#[derive(Debug)]
pub(super) enum Found {
    /// Nothing: the body is what it was.
    Nothing(Body),
    /// The destination has not written the body: `rest` was not asked about, `refused` will never be taken.
    NotWritten {
        rest: Option<Body>,
        refused: Option<Body>,
    },
    /// It has what is `older` than the newest sample of each series, or will never take it.
    Written {
        newest: Option<Body>,
        older: Option<Body>,
    },
}

impl Repeats {
    /// `None` where too few of its series come more than once.
    pub fn of(body: &Body) -> Option<Self> {
        let series = samples(body)?.of_series;
        let asked: Vec<usize> = (0..series.len())
            .filter(|at| (2..=MAX_SAMPLES).contains(&series[*at].len()))
            .take(ASKED)
            .collect();
        (asked.len() >= HAVE_TO_SAY_SO).then(|| Self {
            body: body.clone(),
            series,
            asked,
            at: 0,
            sample: 0,
            there: 0,
            taken: HashSet::new(),
            refused: HashSet::new(),
            takes_one_by_one: false,
        })
    }

    /// The sample to ask about next.
    pub fn next(&self) -> Option<Body> {
        if self.takes_one_by_one || self.there == HAVE_TO_SAY_SO {
            return None;
        }
        let number = self.series[*self.asked.get(self.at)?][self.sample];
        with_samples(&self.body, false, |one| one == number)
    }

    /// What came of asking about it.
    pub fn answered(&mut self, taken: bool) {
        let series = &self.series[self.asked[self.at]];
        let (before, is_last) = (&series[..self.sample], self.sample + 1 == series.len());
        if taken {
            self.taken.insert(series[self.sample]);
            self.refused.extend(before);
            self.there += usize::from(is_last);
            self.takes_one_by_one |= !is_last;
        }
        if is_last || taken {
            (self.at, self.sample) = (self.at + 1, 0);
        } else {
            self.sample += 1;
        }
    }

    /// What is known when there is nothing more to ask about, or it was broken off.
    pub fn found(self) -> Found {
        let Self { taken, refused, .. } = self;
        if taken.is_empty() {
            return Found::Nothing(self.body);
        }
        if self.there < HAVE_TO_SAY_SO {
            return Found::NotWritten {
                rest: with_samples(&self.body, true, |one| {
                    !taken.contains(&one) && !refused.contains(&one)
                }),
                refused: match refused.is_empty() {
                    true => None,
                    false => with_samples(&self.body, false, |one| refused.contains(&one)),
                },
            };
        }
        let newest: HashSet<usize> = self.series.iter().filter_map(|of| of.last().copied()).collect();
        Found::Written {
            newest: with_samples(&self.body, true, |one| {
                newest.contains(&one) && !taken.contains(&one)
            }),
            older: with_samples(&self.body, false, |one| !newest.contains(&one)),
        }
    }
}
