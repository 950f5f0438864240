//! Which endpoint has which keys, and which endpoints are out. Sans-IO: time is a parameter.
//!
//! A key belongs to the endpoint whose name hashes highest together with it (rendezvous hashing, Thaler and Ravishankar 1998): every
//! gateway with the same names agrees without a word, the shares are even, and an endpoint that goes or comes moves its own keys and
//! no others. A ring of points would do the same with a few per cent of unevenness, and a table to build.
//!
//! An endpoint that takes nothing for [`LEAVES_AFTER`], asks to be left alone for as long, or says that it refuses everything, is out:
//! its keys have other owners until it takes a request again, of which it is given one batch now and then, never two at once. When all
//! would be out none is: then the fault may be on this side, and every key stays where it belongs. When all say that they refuse
//! everything, one after the other is out, so that a probe finds the one that is mended.

mod owner;

use std::time::Duration;

use sluice_wire::stable_hash;
use tokio::time::Instant;

use crate::refusals::Refusals;
pub(crate) use owner::{Candidate, owner};

/// Failures in between which there is no success make an endpoint leave when they last this long: longer than a restart of a process,
/// and than a few lost packets; short, since its keys wait.
pub(crate) const LEAVES_AFTER: Duration = Duration::from_secs(5);

/// An endpoint that is out has its next batch after this long; each one it does not take doubles it, up to the second figure. It
/// costs the batch a detour.
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(30);

/// An endpoint that asks to be left alone for longer is tried after this long: what exporters honour of a `Retry-After` at most.
const LONGEST_ASKED_REST: Duration = Duration::from_secs(24 * 60 * 60);

/// The endpoints of one exporter; `T` is what sends to one.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    members: Vec<Member<T>>,
    next_id: u64,
    next_trial: u64,
}

#[derive(Debug)]
struct Member<T> {
    /// Never given twice: one that comes back under its old name is another.
    id: u64,
    name: String,
    hash: u64,
    sender: T,
    failing_since: Option<Instant>,
    /// When it last answered like one that works.
    answered_at: Option<Instant>,
    /// When it last took something.
    took_at: Option<Instant>,
    out: Option<Out>,
    /// When it was last out, and the rest it had then: one that leaves again soon goes on from there.
    came_back: Option<(Instant, Duration)>,
    /// The last it said is that it refuses everything.
    refuses: bool,
    /// What it made of single payloads.
    refusals: Refusals,
}

#[derive(Debug)]
struct Out {
    rest: Duration,
    /// It has one batch then.
    tried_at: Instant,
    /// That batch, while it is under way: there is no other.
    trial: Option<u64>,
    /// It did not answer for [`LEAVES_AFTER`]: what is under way to it is not answered either.
    silent: bool,
}

/// A failed attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failure {
    /// The trial it was.
    pub trial: Option<u64>,
    /// When it was sent: since then the endpoint has not taken it.
    pub begun: Instant,
    /// The endpoint says that it takes nothing.
    pub refuses: Option<Refuses>,
    /// It asks to be left alone for this long.
    pub after: Option<Duration>,
}

/// An endpoint that says that it takes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refuses {
    /// Until somebody mends it.
    UntilMended,
    /// For now.
    ForNow,
}

/// What a failure comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The endpoint keeps its keys: the same again, later.
    Stays,
    /// Its keys have another owner.
    Left,
    /// It and all others say that they refuse everything: the backlog is held. Where there are others its keys are theirs, for the
    /// next probe.
    AllRefuse,
}

impl<T: Clone> Ring<T> {
    pub fn new() -> Self {
        Self {
            members: Vec::new(),
            next_id: 0,
            next_trial: 0,
        }
    }

    /// The names, in order.
    pub fn names(&self) -> Vec<String> {
        self.members.iter().map(|member| member.name.clone()).collect()
    }

    /// From now on these are the endpoints; those that were there already are as they were. `sender` makes what sends to a new one; one
    /// it cannot make is left out. What of the old ones is gone.
    pub fn replace(&mut self, names: &[String], mut sender: impl FnMut(&str) -> Option<T>) -> Vec<String> {
        let mut old = std::mem::take(&mut self.members);
        for name in names {
            if self.members.iter().any(|member| member.name == *name) {
                continue;
            }
            if let Some(index) = old.iter().position(|member| member.name == *name) {
                self.members.push(old.swap_remove(index));
            } else if let Some(sender) = sender(name) {
                self.members.push(Member {
                    id: self.next_id,
                    name: name.clone(),
                    hash: stable_hash(name.as_bytes()),
                    sender,
                    failing_since: None,
                    answered_at: None,
                    took_at: None,
                    out: None,
                    came_back: None,
                    refuses: false,
                    refusals: Refusals::default(),
                });
                self.next_id += 1;
            }
        }
        self.one_is_in();
        old.into_iter().map(|member| member.name).collect()
    }

    /// Who may have keys of the next batch.
    pub fn candidates(&self, now: Instant) -> Vec<Candidate<T>> {
        let may_have = |member: &&Member<T>| member.out.as_ref().is_none_or(|out| out.is_due(now));
        let candidates = self.members.iter().filter(may_have);
        candidates
            .map(|member| Candidate {
                id: member.id,
                hash: member.hash,
                sender: member.sender.clone(),
                trial: member.out.is_some(),
            })
            .collect()
    }

    /// A batch for an endpoint that is out; `None` when it is not its turn any more. Until it ends ([`Self::works`], [`Self::failed`],
    /// [`Self::end_trial`]) there is no other.
    pub fn begin_trial(&mut self, id: u64, now: Instant) -> Option<u64> {
        let out = self.member(id)?.out.as_mut()?;
        if !out.is_due(now) {
            return None;
        }
        let trial = self.next_trial;
        self.next_trial += 1;
        self.member(id)?.out.as_mut()?.trial = Some(trial);
        Some(trial)
    }

    /// The batch is not for this endpoint any more, or has its answer; without one there is another after a rest.
    pub fn end_trial(&mut self, id: u64, trial: u64, now: Instant) {
        if let Some(out) = self.member(id).and_then(|member| member.out.as_mut())
            && out.trial == Some(trial)
        {
            out.trial = None;
            out.tried_at = now + out.rest;
        }
    }

    /// How many there are, and how many of them are out.
    pub fn count(&self) -> (usize, usize) {
        let out = self.members.iter().filter(|member| member.out.is_some());
        (self.members.len(), out.count())
    }

    /// What sends to each of them.
    pub fn senders(&self) -> Vec<T> {
        self.members.iter().map(|member| member.sender.clone()).collect()
    }

    /// Whether the endpoint is there and has its keys.
    pub fn is_in(&self, id: u64) -> bool {
        self.members
            .iter()
            .any(|member| member.id == id && member.out.is_none())
    }

    /// Whether a batch is to be sent to the endpoint: its keys are its own, or it is its trial.
    pub fn has(&self, id: u64, trial: Option<u64>) -> bool {
        let Some(member) = self.members.iter().find(|member| member.id == id) else {
            return false;
        };
        member
            .out
            .as_ref()
            .is_none_or(|out| trial.is_some() && out.trial == trial)
    }

    /// Whether the endpoint is there and out, and a request to it is not its trial: others have what the request is for.
    pub fn is_out(&self, id: u64, trial: Option<u64>) -> bool {
        self.members.iter().any(|member| member.id == id) && !self.has(id, trial)
    }

    /// Whether the endpoint [is out](Self::is_out) for want of answers, and not for what it said.
    pub fn is_silent(&self, id: u64, trial: Option<u64>) -> bool {
        let mut members = self.members.iter();
        let member = members.find(|member| member.id == id);
        let out = member.and_then(|member| member.out.as_ref());
        out.is_some_and(|out| out.silent) && self.is_out(id, trial)
    }

    /// Whether another endpoint works, as far as is known.
    pub fn others_work(&self, id: u64) -> bool {
        let works = |member: &Member<T>| member.out.is_none() && member.failing_since.is_none();
        self.members.iter().any(|other| other.id != id && works(other))
    }

    /// The endpoint took something, or spoke about one request alone: it works. True when it was out.
    pub fn works(&mut self, id: u64, now: Instant) -> bool {
        let Some(member) = self.member(id) else {
            return false;
        };
        member.failing_since = None;
        member.answered_at = Some(now);
        member.refuses = false;
        member.refusals.works();
        let out = member.out.take();
        if let Some(out) = &out {
            member.came_back = Some((now, out.rest));
        }
        out.is_some()
    }

    /// The endpoint took a batch of so many payloads, or a part of it.
    pub fn took(&mut self, id: u64, payloads: usize, now: Instant) {
        if let Some(member) = self.member(id) {
            member.took_at = Some(now);
            member.refusals.took(payloads);
        }
    }

    /// When the endpoint last [took](Self::took) something.
    pub fn took_at(&self, id: u64) -> Option<Instant> {
        self.members.iter().find(|member| member.id == id)?.took_at
    }

    /// The endpoint says that something in a request is bad. One that is in answers, at least; false when it is out, for this may be what
    /// is wrong with it.
    pub fn answered(&mut self, id: u64, now: Instant) -> bool {
        let Some(member) = self.member(id).filter(|member| member.out.is_none()) else {
            return false;
        };
        member.failing_since = None;
        member.answered_at = Some(now);
        member.refuses &= member.refusals.are_too_many();
        true
    }

    /// The endpoint refused a payload for good, `new`: another one than last time. True when that is one too many to be the payload's
    /// fault.
    pub fn payload_refused(&mut self, id: u64, new: bool) -> bool {
        let Some(member) = self.member(id) else {
            return false;
        };
        if new {
            member.refusals.refused();
        }
        member.refusals.are_too_many()
    }

    /// The last the endpoint said is that it refuses everything.
    pub fn refuses(&self, id: u64) -> bool {
        self.members
            .iter()
            .any(|member| member.id == id && member.refuses)
    }

    /// The endpoint did not take a request.
    pub fn failed(&mut self, id: u64, failure: Failure, now: Instant) -> Failed {
        let others_in = self
            .members
            .iter()
            .any(|other| other.id != id && other.out.is_none());
        let after = failure.after.unwrap_or_default().min(LONGEST_ASKED_REST);
        let Some(member) = self.member(id) else {
            return Failed::Left;
        };
        member.refuses = failure.refuses.is_some();
        // One that hangs has failed since the request was sent, but for what it answered meanwhile.
        let begun = failure.begun.max(member.answered_at.unwrap_or(failure.begun));
        let spoke = failure.refuses.is_some() || failure.after.is_some();
        let silent = !spoke && now.duration_since(begun) >= LEAVES_AFTER;
        if let Some(out) = &mut member.out {
            out.silent |= silent;
            // What was under way when it left says nothing that is new.
            if failure.trial.is_some() && out.trial == failure.trial {
                out.trial = None;
                out.rest = (out.rest * 2).min(LONGEST_REST);
                out.tried_at = now + out.rest.max(after);
            }
            return Failed::Left;
        }
        let since = member.failing_since.map_or(begun, |since| since.min(begun));
        member.failing_since = Some(since);
        let lasts = failure.refuses == Some(Refuses::UntilMended);
        let waits = (now + after).duration_since(since) < LEAVES_AFTER;
        // Then there is nobody it could wait for: a probe would be taken for the first failure of many.
        let all_refuse = self.members.iter().all(|member| member.refuses);
        if !lasts && !all_refuse && waits {
            return Failed::Stays;
        }
        if !others_in {
            // Nobody would be left.
            self.members.iter_mut().for_each(Member::put_in);
        }
        if others_in || all_refuse && self.members.len() > 1 {
            self.leave(id, after, silent, now);
        }
        match (all_refuse, others_in) {
            (true, _) => Failed::AllRefuse,
            (false, true) => Failed::Left,
            (false, false) => Failed::Stays,
        }
    }

    fn member(&mut self, id: u64) -> Option<&mut Member<T>> {
        self.members.iter_mut().find(|member| member.id == id)
    }

    fn leave(&mut self, id: u64, after: Duration, silent: bool, now: Instant) {
        let Some(member) = self.member(id) else {
            return;
        };
        let rest = match member.came_back {
            Some((back, rest)) if now.duration_since(back) < LONGEST_REST => (rest * 2).min(LONGEST_REST),
            _ => FIRST_REST,
        };
        member.out = Some(Out {
            rest,
            tried_at: now + rest.max(after),
            trial: None,
            silent,
        });
    }

    /// After an endpoint has gone, the others may all be out.
    fn one_is_in(&mut self) {
        if self.members.iter().all(|member| member.out.is_some()) {
            self.members.iter_mut().for_each(Member::put_in);
        }
    }

    /// The name of an endpoint, for the log.
    pub fn name(&self, id: u64) -> Option<&str> {
        let member = self.members.iter().find(|member| member.id == id)?;
        Some(&member.name)
    }
}

impl<T> Member<T> {
    fn put_in(&mut self) {
        self.out = None;
        self.failing_since = None;
    }
}

impl Out {
    fn is_due(&self, now: Instant) -> bool {
        self.trial.is_none() && now >= self.tried_at
    }
}

#[cfg(test)]
mod tests;
