//! One lane: its bodies, one request at a time, and the search for the series that a destination does not take.
//!
//! A body that is refused is cut until those are known (`search.rs` has how). However many there are, nothing but them is given up: where there
//! are many, the search goes on slowly.

mod ask;
mod too_old;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sluice_pipeline::Verdict;
use tokio::time::Instant;

use super::Inner;
use super::classify::Settled;
use super::refused::Kept;
use super::search::{Because, Next, Queue};
use super::tenant::Tenant;
use crate::body::{Body, Written};
use crate::rewrite::{apart, name_of_first};

pub(super) use too_old::TooOld;

/// Cuts that the search for refused series makes in a lane and batch without waiting. One bad series among 100,000 takes up to 24, a dozen of them
/// anywhere up to 192.
const CUTS_AT_ONCE: u32 = 200;

/// How long it waits before each cut after those: some 30 requests a second in a lane, so that a destination which refuses much is not
/// flooded with pieces. What is behind waits in the queue meanwhile.
const CUT_INTERVAL: Duration = Duration::from_millis(50);

/// Cuts after which a destination that has taken nothing at all of the lane is not asked about smaller pieces: down to a
/// single series of a million, and once more.
const MAX_CUTS_IN_VAIN: u32 = 24;

/// Attempts in which all that a lane has left is refused, by an endpoint that takes nothing else meanwhile, but took something else [lately](WORKED_WITHIN), or of
/// this batch: beyond so many it is taken for the fault of what is left, or what is behind would wait for ever. Probes come 5, 10 and 20 s apart.
const MAX_HOLDS: u32 = 3;

/// The same for an endpoint of which nothing shows that it works: some ten minutes of probes, for somebody to mend it. Only what is so little that each series was
/// refused by itself in one attempt is given up then: an endpoint that refuses whatever comes is not to lose much.
const MAX_HOLDS_IN_DOUBT: u32 = 12;

/// What an endpoint took so long before it first refused all that a lane has left says that it works: longer than most destinations are without a batch.
const WORKED_WITHIN: Duration = Duration::from_secs(60);

/// How often a destination is asked in a lane and batch whether it has written what it refused, where that says nothing: it may refuse everything just then.
const MAX_ASKS: u32 = 3;

/// What a lane has to send of a batch.
#[derive(Debug)]
pub(super) struct Lane {
    number: usize,
    /// Whose it is, where the destination is told.
    tenant: Option<Tenant>,
    work: Queue,
    cuts: u32,
    /// Series that were refused.
    refused: Kept,
    /// Samples that the destination says it has not written.
    unwritten: u64,
    /// In this attempt or one before: the whole batch must not be sent again.
    took_any: bool,
    /// How often a request of it was answered with what holds for all requests.
    noes: u32,
    /// Series refused while nothing has been taken yet: what is wrong may not be with them.
    suspects: Vec<(Body, String)>,
    /// How often all that is left was refused in an attempt, and since when.
    holds: u32,
    refused_since: Option<Instant>,
    /// What is refused is at fault itself, whatever else the endpoint takes.
    is_at_fault: bool,
    /// How often it may still be asked whether it has written what it refused.
    asks_left: u32,
    /// Samples of refused bodies that the destination has, or will never take, for it took newer ones of their series.
    older: Vec<Body>,
}

/// What each endpoint said in the attempt under way.
pub(super) type Heard = Arc<[Said]>;

/// What an endpoint said in one attempt. While it has taken nothing, a no holds for all requests: no lane sends it more in that attempt. Where it takes
/// others, the no is about one request.
#[derive(Debug, Default)]
pub(super) struct Said {
    took: AtomicBool,
    no: OnceLock<LaneEnd>,
}

impl Said {
    fn takes(&self) {
        self.took.store(true, Ordering::Relaxed);
    }

    /// Whether it took anything in this attempt.
    pub fn took(&self) -> bool {
        self.took.load(Ordering::Relaxed)
    }

    /// Whether that holds for all requests.
    fn says_no(&self, reason: &str) -> bool {
        self.no.get_or_init(|| LaneEnd::Hold {
            reason: reason.to_owned(),
        });
        self.no().is_some()
    }

    /// What holds for all requests.
    fn no(&self) -> Option<&LaneEnd> {
        self.no.get().filter(|_| !self.took())
    }
}

/// Why a lane stopped before it was done.
#[derive(Debug, Clone)]
pub(super) enum LaneEnd {
    Retry {
        after: Option<Duration>,
        reason: String,
    },
    Hold {
        reason: String,
    },
    /// The search came to its limit and nothing was ever taken.
    Hopeless(String),
}

impl LaneEnd {
    /// The one of two that decides on the batch.
    pub fn worse(a: Option<LaneEnd>, b: Option<LaneEnd>) -> Option<LaneEnd> {
        let rank = |end: &Option<LaneEnd>| match end {
            None => 0,
            Some(LaneEnd::Hopeless(_)) => 1,
            Some(LaneEnd::Retry { .. }) => 2,
            Some(LaneEnd::Hold { .. }) => 3,
        };
        match (a, b) {
            (Some(LaneEnd::Retry { after: first, reason }), Some(LaneEnd::Retry { after: second, .. })) => {
                Some(LaneEnd::Retry {
                    after: first.max(second),
                    reason,
                })
            }
            (a, b) if rank(&a) >= rank(&b) => a,
            (_, b) => b,
        }
    }

    pub fn verdict(self) -> Verdict {
        match self {
            LaneEnd::Retry { after, reason } => Verdict::Retry { after, reason },
            LaneEnd::Hold { reason } => Verdict::EndpointFault { reason },
            LaneEnd::Hopeless(reason) => Verdict::PayloadFault { reason },
        }
    }
}

impl Lane {
    pub fn new(number: usize, tenant: Option<Tenant>, bodies: Vec<Body>) -> Self {
        Self {
            number,
            tenant,
            work: Queue::new(bodies),
            cuts: 0,
            refused: Kept::default(),
            unwritten: 0,
            took_any: false,
            noes: 0,
            suspects: Vec::new(),
            holds: 0,
            refused_since: None,
            is_at_fault: false,
            asks_left: MAX_ASKS,
            older: Vec::new(),
        }
    }

    /// All that is left was refused in this attempt. The endpoint `took` something of this batch, or of any `at` some time. Held, and once that happened often
    /// enough searched for what is at fault.
    pub fn is_refused(&mut self, took: bool, at: Option<Instant>, inner: &Inner) {
        self.holds += 1;
        let since = *self.refused_since.get_or_insert_with(Instant::now);
        let works = took || at.is_some_and(|at| at + WORKED_WITHIN > since);
        let in_doubt = self.work.is_empty() && self.holds > MAX_HOLDS_IN_DOUBT;
        self.is_at_fault = works && self.holds > MAX_HOLDS || in_doubt;
        match self.is_at_fault {
            true => self.took(inner),
            false => self.take_back(),
        }
    }

    /// Samples that have not been taken, and never will be.
    pub fn rejected(&self) -> u64 {
        self.refused.points() + self.unwritten
    }

    /// Series that the destination refuses for good.
    pub fn refused(&self) -> &Kept {
        &self.refused
    }

    pub fn number(&self) -> usize {
        self.number
    }

    pub fn took_any(&self) -> bool {
        self.took_any
    }

    /// How often a request of it was answered with what holds for all requests: where others were not, it may be about this lane's alone.
    pub fn noes(&self) -> u32 {
        self.noes
    }

    /// Whether there is nothing left to send.
    pub fn is_done(&self) -> bool {
        self.work.is_empty() && self.suspects.is_empty()
    }

    /// Sends what there is until it is done or something has to be waited for.
    pub async fn send(mut self, inner: Arc<Inner>, heard: Heard) -> (Self, Option<LaneEnd>) {
        // What an endpoint refused while it took nothing is at fault only if it does so again beside what it takes.
        self.take_back_suspects();
        let untried = &inner.shards[inner.shard_of(self.number)].untried;
        let mut alone = match self.work.is_empty() {
            true => None,
            false => untried.alone().await,
        };
        while let Some(next) = self.work.next() {
            if untried.is_over() {
                drop(alone.take());
            }
            let end = match next {
                Next::Cut(body, reason) => self.cut(body, reason, Because::Fault, &inner, &heard).await,
                Next::Send(body) => self.post(body, &inner, &heard).await,
            };
            if end.is_some() {
                return (self, end);
            }
        }
        if self.suspects.is_empty() {
            self.leave_older(&inner);
            return (self, None);
        }
        let reason = self.suspects[0].1.clone();
        (self, Some(LaneEnd::Hopeless(reason)))
    }

    /// Puts everything that was refused in vain back to be sent, in its order, and lets the search begin anew: a destination that
    /// took nothing at all has said nothing about these series.
    fn take_back(&mut self) {
        self.take_back_suspects();
        self.work.infer_nothing();
        self.cuts = 0;
    }

    fn take_back_suspects(&mut self) {
        for (body, _) in std::mem::take(&mut self.suspects).into_iter().rev() {
            self.work.put_back(body);
        }
    }

    async fn post(&mut self, mut body: Body, inner: &Inner, heard: &Heard) -> Option<LaneEnd> {
        let shard = inner.shard_of(self.number);
        let (shard, said) = (&inner.shards[shard], &heard[shard]);
        if let Some(fitting) = shard.formats.fit(&body) {
            self.left_out(body.written, fitting.written, inner);
            if fitting.written.series == 0 {
                return None;
            }
            body = fitting;
        }
        let (settled, is_no) = match self.ask(&body, false, inner, heard).await {
            Ok(asked) => asked,
            Err(end) => {
                self.work.put_back(body);
                return Some(end);
            }
        };
        let end = match settled {
            Settled::Taken => None,
            Settled::InPart {
                written: taken,
                reason,
            } => {
                self.work.infer_nothing();
                let written = body.written;
                let lost = [
                    written.samples.saturating_sub(taken.samples),
                    written.histograms.saturating_sub(taken.histograms),
                    written.exemplars.saturating_sub(taken.exemplars),
                ];
                for (counter, lost) in inner.metrics.unwritten.iter().zip(lost) {
                    counter.add(lost);
                }
                self.unwritten += lost[0] + lost[1];
                let [samples, histograms, exemplars] = lost;
                tracing::error!(
                    exporter = inner.id,
                    samples,
                    histograms,
                    exemplars,
                    reason,
                    "the destination took a request but for a part, which is dropped"
                );
                None
            }
            Settled::OtherFormat { reason } => {
                shard.formats.fall_back(body.format, &inner.id, &reason);
                match shard.formats.fit(&body) {
                    Some(_) => self.work.put_back(body),
                    // Never of a body of ours; but it must not be sent for ever.
                    None => self.refuse(body, reason, inner),
                }
                None
            }
            Settled::Retry { after, reason } => {
                self.work.put_back(body);
                Some(LaneEnd::Retry { after, reason })
            }
            Settled::Hold { reason } => {
                self.work.put_back(body);
                Some(LaneEnd::Hold { reason })
            }
            Settled::TooLarge { reason } => self.cut(body, reason, Because::TooLarge, inner, heard).await,
            Settled::TooOld { reason } => self.pass_too_old(body, reason, inner, heard).await,
            Settled::Refused { reason } => {
                let because = if is_no { Because::Doubt } else { Because::Fault };
                match self.ask_about_repeats(body, &reason, inner, heard).await {
                    Ok(Some(body)) => self.cut(body, reason, because, inner, heard).await,
                    Ok(None) => None,
                    Err(end) => Some(end),
                }
            }
        };
        // What is left has been cut by now: the next attempt is with less.
        end.or_else(|| said.no().filter(|_| is_no).cloned())
    }

    /// The destination takes something, of this lane or of others: so what it refused was at fault itself.
    pub fn took(&mut self, inner: &Inner) {
        self.took_any = true;
        for (body, reason) in std::mem::take(&mut self.suspects) {
            self.refuse(body, reason, inner);
        }
    }

    /// Counts and tells what a body lost when it was written in another format.
    fn left_out(&mut self, before: Written, after: Written, inner: &Inner) {
        let histograms = before.histograms.saturating_sub(after.histograms);
        if histograms > 0 {
            self.unwritten += histograms;
            inner.metrics.unwritten[1].add(histograms);
            tracing::error!(
                exporter = inner.id,
                histograms,
                "dropped histograms with custom buckets: the destination takes remote write 1.0 only, which does not have \
                 them; remove convert_histograms_to_nhcb"
            );
        }
    }

    /// Cuts a body that has a fault in it, or is too large, or gives up a single series.
    async fn cut(
        &mut self,
        body: Body,
        reason: String,
        because: Because,
        inner: &Inner,
        heard: &Heard,
    ) -> Option<LaneEnd> {
        // In this attempt: an endpoint that took something before may be out of order as a whole by now.
        let takes = self.is_at_fault || heard[inner.shard_of(self.number)].took();
        if takes {
            self.took(inner);
        }
        // Where pieces are taken, how often they have to be cut for their size is known: there is an end to it.
        let has_fault = because != Because::TooLarge;
        self.cuts += u32::from(has_fault || !takes);
        if !takes && self.cuts > MAX_CUTS_IN_VAIN {
            self.work.put_back(body);
            self.work.infer_nothing();
            return Some(LaneEnd::Hopeless(reason));
        }
        if has_fault && self.cuts > CUTS_AT_ONCE {
            if self.cuts == CUTS_AT_ONCE + 1 {
                tracing::error!(
                    exporter = inner.id,
                    reason,
                    "the destination refuses so many series of a batch that looking for all of them holds up the queue; those that \
                     it takes are sent"
                );
            }
            tokio::time::sleep(CUT_INTERVAL).await;
        }
        match self.work.cut(body, because, &reason) {
            Ok(()) => {}
            Err(single) if takes => self.refuse(single, reason, inner),
            Err(single) => self.suspects.push((single, reason)),
        }
        None
    }

    /// Gives up a body, which is counted, told, and kept for the dead letters until the batch is done, if there is room.
    fn refuse(&mut self, body: Body, reason: String, inner: &Inner) {
        // What is older of the series was not written either.
        for older in std::mem::take(&mut self.older) {
            let (of_series, others) = apart(&older, &body);
            self.older.extend(others);
            if let Some(of_series) = of_series {
                self.refused.add(of_series, reason.clone(), inner);
            }
        }
        let series = body.written.series;
        inner.metrics.refused_series.add(series);
        tracing::error!(
            exporter = inner.id,
            series,
            first = name_of_first(&body),
            reason,
            "dropped series that the destination refuses for good"
        );
        self.refused.add(body, reason, inner);
    }
}
