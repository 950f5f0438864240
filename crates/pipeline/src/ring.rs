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

use std::time::Duration;

use sluice_wire::stable_hash;
use tokio::time::Instant;

use crate::gate::MAX_PAYLOAD_FAULTS_IN_A_ROW;

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
    out: Option<Out>,
    /// When it was last out, and the rest it had then: one that leaves again soon goes on from there.
    came_back: Option<(Instant, Duration)>,
    /// The last it said is that it refuses everything.
    refuses: bool,
    /// Payloads it refused for good, with nothing taken in between.
    payload_faults: u32,
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

/// An endpoint that may have keys.
#[derive(Debug, Clone)]
pub(crate) struct Candidate<T> {
    pub id: u64,
    hash: u64,
    pub sender: T,
    /// It is out, and this batch may show whether it is well again: see [`Ring::begin_trial`].
    pub trial: bool,
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
                    out: None,
                    came_back: None,
                    refuses: false,
                    payload_faults: 0,
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
        member.payload_faults = 0;
        let out = member.out.take();
        if let Some(out) = &out {
            member.came_back = Some((now, out.rest));
        }
        out.is_some()
    }

    /// The endpoint says that something in a request is bad. One that is in answers, at least; false when it is out, for this may be what
    /// is wrong with it.
    pub fn answered(&mut self, id: u64, now: Instant) -> bool {
        let Some(member) = self.member(id).filter(|member| member.out.is_none()) else {
            return false;
        };
        member.failing_since = None;
        member.answered_at = Some(now);
        member.refuses &= member.payload_faults > MAX_PAYLOAD_FAULTS_IN_A_ROW;
        true
    }

    /// The endpoint refused a payload for good, `new`: another one than last time. True when that is one too many to be the payload's
    /// fault.
    pub fn payload_refused(&mut self, id: u64, new: bool) -> bool {
        let Some(member) = self.member(id) else {
            return false;
        };
        member.payload_faults = member.payload_faults.saturating_add(u32::from(new));
        member.payload_faults > MAX_PAYLOAD_FAULTS_IN_A_ROW
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

/// Whose the key of this hash is, of `candidates`; 0 when there are none.
pub(crate) fn owner<T>(candidates: &[Candidate<T>], key: u64) -> usize {
    let weight = |candidate: &Candidate<T>| {
        let mut both = [0; 16];
        both[..8].copy_from_slice(&candidate.hash.to_le_bytes());
        both[8..].copy_from_slice(&key.to_le_bytes());
        stable_hash(&both)
    };
    let highest = candidates
        .iter()
        .enumerate()
        .max_by_key(|(_, candidate)| weight(candidate));
    highest.map_or(0, |(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(names: &[&str]) -> Ring<()> {
        let mut ring = Ring::new();
        set(&mut ring, names);
        ring
    }

    fn set(ring: &mut Ring<()>, names: &[&str]) -> Vec<String> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        ring.replace(&names, |_| Some(()))
    }

    /// The names of the owners of 100,000 keys.
    fn owners(ring: &Ring<()>, now: Instant) -> Vec<String> {
        let candidates = ring.candidates(now);
        (0..100_000u64)
            .map(|key| {
                let id = candidates[owner(&candidates, stable_hash(&key.to_le_bytes()))].id;
                ring.name(id).unwrap().to_owned()
            })
            .collect()
    }

    fn id(ring: &Ring<()>, name: &str) -> u64 {
        ring.members.iter().find(|member| member.name == name).unwrap().id
    }

    /// A request that fails as soon as it is sent.
    fn down(now: Instant) -> Failure {
        Failure {
            trial: None,
            begun: now,
            refuses: None,
            after: None,
        }
    }

    fn refuses(now: Instant) -> Failure {
        Failure {
            refuses: Some(Refuses::UntilMended),
            ..down(now)
        }
    }

    fn trial_failed(trial: u64, now: Instant) -> Failure {
        Failure {
            trial: Some(trial),
            ..down(now)
        }
    }

    const FIVE: [&str; 5] = [
        "10.0.0.1:4317",
        "10.0.0.2:4317",
        "10.0.0.3:4317",
        "10.0.0.4:4317",
        "b:4317",
    ];

    /// Scenario: five endpoints and 100,000 keys; one endpoint goes, and one comes.
    /// Guarantees: shares within 3% of a fifth; the order the endpoints are named in does not matter; only the keys of the one
    /// that goes move, evenly to all others; the one that comes takes a fifth of everybody's.
    #[test]
    fn keys_move_only_with_their_endpoint() {
        let now = Instant::now();
        let mut all = ring(&FIVE);
        let before = owners(&all, now);
        for name in FIVE {
            let share = before.iter().filter(|owner| *owner == name).count();
            assert!((19_400..20_600).contains(&share), "{name}: {share}");
        }
        let mut turned = FIVE;
        turned.reverse();
        assert_eq!(owners(&ring(&turned), now), before);

        assert_eq!(set(&mut all, &FIVE[..4]), ["b:4317"]);
        let after = owners(&all, now);
        let mut taken = std::collections::BTreeMap::new();
        for (old, new) in before.iter().zip(&after) {
            match old.as_str() {
                "b:4317" => *taken.entry(new).or_insert(0) += 1,
                _ => assert_eq!(old, new, "only the keys of the one that went move"),
            }
        }
        assert!(taken.values().all(|n| (4_700..5_300).contains(n)), "{taken:?}");
        set(&mut all, &FIVE);
        assert_eq!(owners(&all, now), before, "and back");
    }

    /// Scenario: an endpoint fails once, for a while, is tried, and works again.
    /// Guarantees: a short failure moves nothing; a long one moves its keys alone; it is tried ever less often; the first success
    /// brings all its keys back.
    #[test]
    fn a_failing_endpoint_leaves_and_comes_back() {
        let mut now = Instant::now();
        let mut ring = ring(&FIVE);
        let before = owners(&ring, now);
        let dead = id(&ring, "b:4317");
        assert_eq!(ring.failed(dead, down(now), now), Failed::Stays);
        ring.works(dead, now);
        now += LEAVES_AFTER;
        assert_eq!(
            ring.failed(dead, down(now), now),
            Failed::Stays,
            "it worked in between"
        );
        now += LEAVES_AFTER;
        assert_eq!(ring.failed(dead, down(now), now), Failed::Left);
        assert!(!ring.is_in(dead));
        let moved = owners(&ring, now);
        assert!(moved.iter().all(|owner| owner != "b:4317"));
        let others = before.iter().zip(&moved).filter(|(old, _)| *old != "b:4317");
        assert!(others.clone().count() > 0 && others.clone().all(|(old, new)| old == new));
        assert_eq!(
            ring.failed(dead, down(now), now),
            Failed::Left,
            "it was under way: no longer rest"
        );
        let mut rest = FIRST_REST;
        let mut trial = 0;
        for _ in 0..8 {
            assert!(ring.candidates(now + rest / 2).iter().all(|one| !one.trial));
            now += rest;
            assert!(ring.candidates(now).iter().any(|one| one.trial && one.id == dead));
            trial = ring.begin_trial(dead, now).unwrap();
            assert!(ring.has(dead, Some(trial)) && !ring.has(dead, None));
            let hung = now + LONGEST_REST * 10;
            assert!(
                ring.candidates(hung).iter().all(|one| !one.trial),
                "one batch, until it has its answer"
            );
            assert_eq!(ring.begin_trial(dead, hung), None);
            assert_eq!(ring.failed(dead, trial_failed(trial, now), now), Failed::Left);
            assert!(!ring.has(dead, Some(trial)), "it is over");
            rest = (rest * 2).min(LONGEST_REST);
        }
        now += rest;
        let unanswered = ring.begin_trial(dead, now).unwrap();
        ring.end_trial(dead, trial, now);
        assert!(ring.has(dead, Some(unanswered)), "another one's end");
        ring.end_trial(dead, unanswered, now);
        assert_eq!(ring.begin_trial(dead, now), None);
        now += rest;
        assert!(ring.begin_trial(dead, now).is_some());
        assert!(ring.works(dead, now));
        assert_eq!(owners(&ring, now), before);

        assert_eq!(ring.failed(dead, refuses(now), now), Failed::Left);
        let soon = now + LONGEST_REST / 2;
        assert!(
            ring.candidates(soon).iter().all(|one| !one.trial),
            "one that comes and goes rests as long as before"
        );
        ring.works(dead, now);
        now += LONGEST_REST;
        assert_eq!(ring.failed(dead, refuses(now), now), Failed::Left);
        assert!(ring.begin_trial(dead, now + FIRST_REST).is_some());
    }

    /// Scenario: all endpoints fail; all refuse; one of them is mended; one that is well goes.
    /// Guarantees: keys stay where they belong when nobody is left; only when all refuse is the backlog to be held, and each in turn
    /// is out; there is never a ring on which nobody is in.
    #[test]
    fn when_all_fail_nobody_leaves() {
        let start = Instant::now();
        let late = start + LEAVES_AFTER;
        let mut ring = ring(&["a", "b"]);
        let before = owners(&ring, start);
        let (a, b) = (id(&ring, "a"), id(&ring, "b"));
        for one in [a, b] {
            assert_eq!(ring.failed(one, down(start), start), Failed::Stays);
        }
        assert_eq!(ring.failed(a, down(late), late), Failed::Left);
        assert_eq!(
            ring.failed(b, down(late), late),
            Failed::Stays,
            "nobody else is left"
        );
        assert_eq!(owners(&ring, late), before);

        assert_eq!(ring.failed(a, refuses(late), late), Failed::Left);
        assert_eq!(ring.failed(b, refuses(late), late), Failed::AllRefuse);
        assert!(ring.is_in(a) && !ring.is_in(b), "a probe for b's keys is a's");
        assert_eq!(ring.failed(a, refuses(late), late), Failed::AllRefuse);
        assert!(ring.is_in(b) && !ring.is_in(a));
        ring.works(b, late);
        assert_eq!(ring.failed(a, refuses(late), late), Failed::Left);
        set(&mut ring, &["a"]);
        assert!(ring.is_in(a), "alone, it is in");
        assert_eq!(ring.failed(b, down(late), late), Failed::Left, "gone");
        assert_eq!(ring.failed(a, refuses(late), late), Failed::AllRefuse);
    }

    /// Scenario: three endpoints refuse everything, and probes come one after the other.
    /// Guarantees: each of the three has its turn, whatever the key.
    #[test]
    fn while_all_refuse_each_has_its_turn() {
        let mut now = Instant::now();
        let mut ring = ring(&["a", "b", "c"]);
        for key in 0..50 {
            let mut asked = std::collections::BTreeSet::new();
            for _ in 0..6 {
                // Too soon for trials.
                now += FIRST_REST / 1000;
                let candidates = ring.candidates(now);
                let id = candidates[owner(&candidates, stable_hash(&[key]))].id;
                ring.failed(id, refuses(now), now);
                asked.insert(id);
            }
            assert_eq!(asked.len(), 3);
        }
    }

    /// Scenario: requests to an endpoint hang until their time is up, three seconds and thirty; in between it answers one.
    /// Guarantees: it has failed since the request was sent, or since it last answered: it leaves with the first long silence.
    #[test]
    fn who_hangs_has_failed_all_along() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut ring = ring(&["a", "b"]);
        let a = id(&ring, "a");
        assert_eq!(ring.failed(a, down(at(0)), at(3)), Failed::Stays);
        ring.works(a, at(4));
        assert_eq!(ring.failed(a, down(at(0)), at(6)), Failed::Stays);
        assert!(ring.answered(a, at(7)));
        assert_eq!(ring.failed(a, down(at(1)), at(31)), Failed::Left);
        assert!(ring.is_out(a, None));
    }

    /// Scenario: an endpoint takes nothing for now, once, and then for a while; then the other one as well.
    /// Guarantees: it keeps its keys as long as one that does not answer; when both say so the backlog is held, and stays so.
    #[test]
    fn one_that_is_exhausted_has_time() {
        let start = Instant::now();
        let late = start + LEAVES_AFTER;
        let exhausted = |now| Failure {
            refuses: Some(Refuses::ForNow),
            ..down(now)
        };
        let mut ring = ring(&["a", "b"]);
        let (a, b) = (id(&ring, "a"), id(&ring, "b"));
        assert_eq!(ring.failed(a, exhausted(start), start), Failed::Stays);
        assert!(ring.is_in(a));
        assert_eq!(ring.failed(a, exhausted(late), late), Failed::Left);
        assert_eq!(ring.failed(b, exhausted(start), late), Failed::AllRefuse);
        let probe = ring.failed(a, exhausted(late), late);
        assert_eq!(
            probe,
            Failed::AllRefuse,
            "the hold goes on, without a grace of its own"
        );
    }

    /// Scenario: an endpoint asks to be left alone for an hour; then it is the only one.
    /// Guarantees: it leaves at once, and is tried after the hour; alone it keeps its keys.
    #[test]
    fn one_that_asks_to_be_left_alone_leaves() {
        let now = Instant::now();
        let hour = Duration::from_secs(3600);
        let later = Failure {
            after: Some(hour),
            ..down(now)
        };
        let mut ring = ring(&["a", "b"]);
        let a = id(&ring, "a");
        assert_eq!(ring.failed(a, later, now), Failed::Left);
        assert_eq!(ring.begin_trial(a, now + hour / 2), None);
        assert!(ring.begin_trial(a, now + hour).is_some());
        set(&mut ring, &["a"]);
        assert_eq!(ring.failed(a, later, now), Failed::Stays);
        assert!(ring.is_in(a));
    }
}
