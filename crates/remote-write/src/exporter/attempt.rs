//! One attempt at a batch: its lanes are sent, each when nothing before it is left there, and what came of them is one verdict.
//!
//! An attempt ends when nothing of it is under way and some lane has to be tried again, or none waits for a batch before this one any more.

use std::sync::Arc;
use std::time::Duration;

use sluice_pipeline::{Batch, FIRST_PROBE, Turn, Verdict};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::lane::{Heard, Lane, LaneEnd, Said};
use super::pending::{Pending, left};
use super::{Inner, refused};

/// That an endpoint took something says for so long that it works: a lane that had to wait longer for its turn asks anew. An endpoint that refuses everything is
/// not asked for as long either.
const EVIDENCE_LASTS: Duration = FIRST_PROBE;

/// The attempt under way.
pub(super) struct Attempt<'e> {
    inner: &'e Arc<Inner>,
    turn: Turn,
    /// Its lanes are those that have ended.
    pending: Pending,
    /// Lanes that go when nothing before this batch is left in them.
    waiting: Vec<Lane>,
    /// Those that go when the others of their endpoint have ended.
    last: Vec<Lane>,
    left_of_first: Vec<usize>,
    under_way: JoinSet<Ended>,
    rounds: Vec<Round>,
    /// All that they have left was refused, and nothing was taken meanwhile.
    hopeless: Vec<(Lane, String, usize)>,
    worst: Option<LaneEnd>,
}

/// Lanes that began together, and what their endpoints said.
struct Round {
    begun: Instant,
    heard: Heard,
}

/// A lane, why it stopped, and the number of its round.
type Ended = (Lane, Option<LaneEnd>, usize);

impl<'e> Attempt<'e> {
    pub fn new(inner: &'e Arc<Inner>, turn: Turn, mut pending: Pending) -> Self {
        let (done, lanes) = std::mem::take(&mut pending.lanes)
            .into_iter()
            .partition(Lane::is_done);
        pending.lanes = done;
        let (waiting, last) = inner.in_order_of_noes(lanes);
        let mut left_of_first = vec![0; inner.shards.len()];
        for lane in &waiting {
            left_of_first[inner.shard_of(lane.number())] += 1;
        }
        Self {
            inner,
            turn,
            pending,
            waiting,
            last,
            left_of_first,
            under_way: JoinSet::new(),
            rounds: Vec::new(),
            hopeless: Vec::new(),
            worst: None,
        }
    }

    /// Sends what may be sent.
    pub async fn run(mut self, batch: &Batch) -> Verdict {
        let order = &self.inner.order;
        let mut waited = order.waited(self.turn);
        loop {
            let changed = order.changed();
            if self.worst.is_none() || !self.under_way.is_empty() {
                self.start_free();
            }
            if self.under_way.is_empty() {
                self.search_on();
            }
            let is_idle = self.under_way.is_empty();
            if is_idle && (self.worst.is_some() || self.waiting.is_empty() || order.is_left_before(self.turn))
            {
                break;
            }
            let begun = Instant::now();
            tokio::select! {
                Some(ended) = self.under_way.join_next() => match ended {
                    Ok(ended) => self.ended(ended),
                    Err(_) => return self.panicked().await,
                },
                () = changed, if !self.waiting.is_empty() => {}
            }
            if is_idle {
                waited += begun.elapsed();
            }
        }
        order.set_waited(self.turn, waited);
        let turn = self.turn;
        let positions = self.inner.positions.clone();
        let verdict = self.conclude(batch).await;
        if let Some(positions) = positions {
            positions.written(turn).await;
        }
        verdict
    }

    /// Begins what no batch before this one has anything left in. An endpoint that has taken nothing yet is asked by one batch at a time.
    fn start_free(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let inner = self.inner;
        let lanes = inner.lanes;
        let taken = inner.order.taken_before(self.turn, lanes);
        let is_taken = |lane: usize| match inner.shards[inner.shard_of(lane)].untried.is_over() {
            true => taken[lane],
            false => (0..lanes).any(|other| taken[other] && inner.shard_of(other) == inner.shard_of(lane)),
        };
        let free: Vec<Lane> = self
            .waiting
            .extract_if(.., |lane| !is_taken(lane.number()))
            .collect();
        if free.is_empty() {
            return;
        }
        let is_stale = |round: &Round| round.begun.elapsed() > EVIDENCE_LASTS;
        if self.rounds.last().is_none_or(is_stale) {
            self.rounds.push(Round {
                begun: Instant::now(),
                heard: inner.shards.iter().map(|_| Said::default()).collect(),
            });
        }
        free.into_iter()
            .for_each(|lane| self.start(lane, self.rounds.len() - 1));
    }

    fn start(&mut self, lane: Lane, round: usize) {
        let sending = lane.send(self.inner.clone(), self.rounds[round].heard.clone());
        self.under_way.spawn(async move {
            let (lane, end) = sending.await;
            (lane, end, round)
        });
    }

    fn ended(&mut self, (lane, end, round): Ended) {
        let inner = self.inner;
        let shard = inner.shard_of(lane.number());
        self.left_of_first[shard] = self.left_of_first[shard].saturating_sub(1);
        if self.left_of_first[shard] == 0 {
            // They were sent before: nothing that comes before them is left.
            let of_shard = |lane: &mut Lane| inner.shard_of(lane.number()) == shard;
            let last: Vec<Lane> = self.last.extract_if(.., of_shard).collect();
            last.into_iter()
                .for_each(|lane| self.start(lane, self.rounds.len() - 1));
        }
        match end {
            Some(LaneEnd::Hopeless(reason)) => self.hopeless.push((lane, reason, round)),
            end => {
                self.put_back(lane);
                self.worst = LaneEnd::worse(self.worst.take(), end);
            }
        }
    }

    fn put_back(&mut self, lane: Lane) {
        let Inner { order, positions, .. } = &**self.inner;
        match positions {
            _ if !lane.is_done() => {}
            None => order.done_in(self.turn, lane.number()),
            Some(positions) if lane.rejected() == 0 => positions.done_in(self.turn, lane.number(), order),
            // What was refused is not kept before the batch is settled: after a kill the lane is sent again, and nothing has passed it.
            Some(_) => {}
        }
        self.pending.lanes.push(lane);
    }

    /// What their endpoint took of others since they began shows that it takes what is good: their search goes on. What it took in
    /// an attempt before says nothing about now.
    fn search_on(&mut self) {
        for (mut lane, reason, round) in std::mem::take(&mut self.hopeless) {
            let shard = self.inner.shard_of(lane.number());
            let took = (round..self.rounds.len()).rfind(|round| self.rounds[*round].heard[shard].took());
            match took {
                Some(round) => {
                    lane.took(self.inner);
                    self.start(lane, round);
                }
                None => self.hopeless.push((lane, reason, round)),
            }
        }
    }

    /// What a lane had not sent is lost with it: the whole batch has to be encoded and sent again.
    async fn panicked(self) -> Verdict {
        self.inner.encode_again(self.pending, self.turn, false).await;
        let reason = "a lane panicked; please report the panic message above".to_owned();
        Verdict::Retry { after: None, reason }
    }

    async fn conclude(mut self, batch: &Batch) -> Verdict {
        let (inner, turn) = (self.inner, self.turn);
        let is_left = self.worst.is_none() && !self.waiting.is_empty();
        let last = std::mem::take(&mut self.last);
        let not_sent = std::mem::take(&mut self.waiting).into_iter().chain(last);
        self.pending.lanes.extend(not_sent);
        let hopeless = self.hopeless.iter().map(|(lane, ..)| lane);
        let took_any = self.pending.lanes.iter().chain(hopeless).any(Lane::took_any);
        let took_any = took_any || !self.pending.delivered.is_empty();
        if let Some((_, reason, _)) = self.hopeless.first()
            && !took_any
            && !is_left
            && self.worst.is_none()
        {
            // That may well be no fault of these series. The pipeline knows what to do then.
            let reason = reason.clone();
            inner.encode_again(self.pending, turn, true).await;
            return Verdict::PayloadFault { reason };
        }
        let before = self.pending.delivered.clone();
        let took_before =
            |shard| (0..inner.lanes).any(|lane| inner.shard_of(lane) == shard && before.contains(lane));
        let took_of_batch =
            |shard: usize, lane: &Lane| inner.shard_of(lane.number()) == shard && lane.took_any();
        for (mut lane, reason, _) in std::mem::take(&mut self.hopeless) {
            let shard = inner.shard_of(lane.number());
            let others = &self.pending.lanes;
            // What other endpoints take says nothing about this one. What it took of this batch before says nothing about now, but not for ever.
            let took =
                lane.took_any() || took_before(shard) || others.iter().any(|lane| took_of_batch(shard, lane));
            lane.is_refused(took, *inner.shards[shard].took_at.lock(), inner);
            if !lane.is_done() {
                self.worst = LaneEnd::worse(self.worst.take(), Some(LaneEnd::Hold { reason }));
            }
            self.put_back(lane);
        }
        let verdict = match self.worst {
            Some(end) => end.verdict(),
            None if is_left => left(),
            None => return delivered(&self.pending, batch),
        };
        inner.keep(self.pending, turn);
        verdict
    }
}

fn delivered(pending: &Pending, batch: &Batch) -> Verdict {
    let not_taken: u64 = pending.lanes.iter().map(Lane::rejected).sum();
    let rejected = (pending.rejected + not_taken).min(batch.items());
    let refused = refused::refused(&pending.lanes);
    match refused.is_empty() {
        true => Verdict::Delivered {
            rejected,
            message: None,
        },
        false => Verdict::InPart { refused, rejected },
    }
}

impl Inner {
    /// The lanes that go first, and those that go when these of their endpoint have ended: the ones that it said no to more often than to others. So one body
    /// that it always says no to is not the one that keeps all others from being sent.
    fn in_order_of_noes(&self, lanes: Vec<Lane>) -> (Vec<Lane>, Vec<Lane>) {
        let mut fewest = vec![u32::MAX; self.shards.len()];
        for lane in &lanes {
            let fewest = &mut fewest[self.shard_of(lane.number())];
            *fewest = lane.noes().min(*fewest);
        }
        let goes_first = |lane: &Lane| lane.noes() <= fewest[self.shard_of(lane.number())];
        lanes.into_iter().partition(goes_first)
    }
}
