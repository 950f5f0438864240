//! Which endpoint has which keys, and which endpoints are out. Sans-IO: time is a parameter.
//!
//! A key belongs to the endpoint whose name hashes highest together with it (rendezvous hashing, Thaler and Ravishankar 1998): every
//! gateway with the same names agrees without a word, the shares are even, and an endpoint that goes or comes moves its own keys and
//! no others. A ring of points would do the same with a few per cent of unevenness, and a table to build.
//!
//! An endpoint that takes nothing for [`LEAVES_AFTER`], or says that it refuses everything, is out: its keys have other owners until
//! it takes a request again, of which it is given one batch now and then. When all would be out none is: then the fault may be
//! on this side, and every key stays where it belongs.

use std::time::Duration;

use sluice_wire::stable_hash;
use tokio::time::Instant;

/// Failures in between which there is no success make an endpoint leave when they last this long: longer than a restart of a process,
/// and than a few lost packets; short, since its keys wait.
pub(crate) const LEAVES_AFTER: Duration = Duration::from_secs(5);

/// An endpoint that is out has its next batch after this long; each one it does not take doubles it, up to the second figure. It
/// costs the batch a detour.
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(30);

/// The endpoints of one exporter; `T` is what sends to one.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    members: Vec<Member<T>>,
    next_id: u64,
}

#[derive(Debug)]
struct Member<T> {
    /// Never given twice: one that comes back under its old name is another.
    id: u64,
    name: String,
    hash: u64,
    sender: T,
    failing_since: Option<Instant>,
    out: Option<Out>,
    /// The last it said is that it refuses everything.
    refuses: bool,
}

#[derive(Debug)]
struct Out {
    rest: Duration,
    /// It has one batch then.
    tried_at: Instant,
}

/// An endpoint that may have keys.
#[derive(Debug, Clone)]
pub(crate) struct Candidate<T> {
    pub id: u64,
    hash: u64,
    pub sender: T,
    /// It is out, and this batch is to show whether it is well again.
    pub trial: bool,
}

/// What a failure comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The endpoint keeps its keys: the same again, later.
    Stays,
    /// Its keys have another owner.
    Left,
    /// It and all others say that they refuse everything.
    AllRefuse,
}

impl<T: Clone> Ring<T> {
    pub fn new() -> Self {
        Self {
            members: Vec::new(),
            next_id: 0,
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
                    out: None,
                    refuses: false,
                });
                self.next_id += 1;
            }
        }
        self.one_is_in();
        old.into_iter().map(|member| member.name).collect()
    }

    /// Who may have keys of the next batch.
    pub fn candidates(&mut self, now: Instant) -> Vec<Candidate<T>> {
        let mut candidates = Vec::with_capacity(self.members.len());
        for member in &mut self.members {
            let trial = member.out.is_some();
            if let Some(out) = &mut member.out {
                if now < out.tried_at {
                    continue;
                }
                out.tried_at = now + out.rest;
            }
            candidates.push(Candidate {
                id: member.id,
                hash: member.hash,
                sender: member.sender.clone(),
                trial,
            });
        }
        candidates
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

    /// The endpoint took something, or spoke about one request alone: it works. True when it was out.
    pub fn works(&mut self, id: u64) -> bool {
        let Some(member) = self.members.iter_mut().find(|member| member.id == id) else {
            return false;
        };
        member.failing_since = None;
        member.refuses = false;
        member.out.take().is_some()
    }

    /// The endpoint did not take a request; `refuses`: and will take none.
    pub fn failed(&mut self, id: u64, refuses: bool, now: Instant) -> Failed {
        let others_in = self
            .members
            .iter()
            .any(|other| other.id != id && other.out.is_none());
        let Some(member) = self.members.iter_mut().find(|member| member.id == id) else {
            return Failed::Left;
        };
        member.refuses = refuses;
        if let Some(out) = &mut member.out {
            out.rest = (out.rest * 2).min(LONGEST_REST);
            out.tried_at = now + out.rest;
            return Failed::Left;
        }
        let since = *member.failing_since.get_or_insert(now);
        if !refuses && now.duration_since(since) < LEAVES_AFTER {
            return Failed::Stays;
        }
        if others_in && !self.members.iter().all(|member| member.refuses) {
            self.leave(id, now);
            return Failed::Left;
        }
        // Nobody is left.
        for member in &mut self.members {
            member.out = None;
            member.failing_since = None;
        }
        match self.members.iter().all(|member| member.refuses) {
            true => Failed::AllRefuse,
            false => Failed::Stays,
        }
    }

    fn leave(&mut self, id: u64, now: Instant) {
        if let Some(member) = self.members.iter_mut().find(|member| member.id == id) {
            member.out = Some(Out {
                rest: FIRST_REST,
                tried_at: now + FIRST_REST,
            });
        }
    }

    /// After an endpoint has gone, the others may all be out.
    fn one_is_in(&mut self) {
        if self.members.iter().all(|member| member.out.is_some()) {
            self.members.iter_mut().for_each(|member| member.out = None);
        }
    }

    /// The name of an endpoint, for the log.
    pub fn name(&self, id: u64) -> Option<&str> {
        let member = self.members.iter().find(|member| member.id == id)?;
        Some(&member.name)
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
    fn owners(ring: &mut Ring<()>, now: Instant) -> Vec<String> {
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
        let before = owners(&mut all, now);
        for name in FIVE {
            let share = before.iter().filter(|owner| *owner == name).count();
            assert!((19_400..20_600).contains(&share), "{name}: {share}");
        }
        let mut turned = FIVE;
        turned.reverse();
        assert_eq!(owners(&mut ring(&turned), now), before);

        assert_eq!(set(&mut all, &FIVE[..4]), ["b:4317"]);
        let after = owners(&mut all, now);
        let mut taken = std::collections::BTreeMap::new();
        for (old, new) in before.iter().zip(&after) {
            match old.as_str() {
                "b:4317" => *taken.entry(new).or_insert(0) += 1,
                _ => assert_eq!(old, new, "only the keys of the one that went move"),
            }
        }
        assert!(taken.values().all(|n| (4_700..5_300).contains(n)), "{taken:?}");
        set(&mut all, &FIVE);
        assert_eq!(owners(&mut all, now), before, "and back");
    }

    /// Scenario: an endpoint fails once, for a while, is tried, and works again.
    /// Guarantees: a short failure moves nothing; a long one moves its keys alone; it is tried ever less often; the first success
    /// brings all its keys back.
    #[test]
    fn a_failing_endpoint_leaves_and_comes_back() {
        let mut now = Instant::now();
        let mut ring = ring(&FIVE);
        let before = owners(&mut ring, now);
        let dead = id(&ring, "b:4317");
        assert_eq!(ring.failed(dead, false, now), Failed::Stays);
        ring.works(dead);
        now += LEAVES_AFTER;
        assert_eq!(
            ring.failed(dead, false, now),
            Failed::Stays,
            "it worked in between"
        );
        now += LEAVES_AFTER;
        assert_eq!(ring.failed(dead, false, now), Failed::Left);
        assert!(!ring.is_in(dead));
        let moved = owners(&mut ring, now);
        assert!(moved.iter().all(|owner| owner != "b:4317"));
        let others = before.iter().zip(&moved).filter(|(old, _)| *old != "b:4317");
        assert!(others.clone().count() > 0 && others.clone().all(|(old, new)| old == new));
        let mut rest = FIRST_REST;
        for _ in 0..8 {
            assert!(ring.candidates(now + rest / 2).iter().all(|one| !one.trial));
            now += rest;
            assert!(ring.candidates(now).iter().any(|one| one.trial && one.id == dead));
            assert!(ring.candidates(now).iter().all(|one| !one.trial), "one batch");
            assert_eq!(ring.failed(dead, false, now), Failed::Left);
            rest = (rest * 2).min(LONGEST_REST);
        }
        assert!(ring.works(dead));
        assert_eq!(owners(&mut ring, now), before);
    }

    /// Scenario: all endpoints fail; all refuse; one of them is mended; one that is well goes.
    /// Guarantees: keys stay where they belong when nobody is left; only when all refuse is the backlog to be held; there is never
    /// a ring on which nobody is in.
    #[test]
    fn when_all_fail_nobody_leaves() {
        let start = Instant::now();
        let late = start + LEAVES_AFTER;
        let mut ring = ring(&["a", "b"]);
        let before = owners(&mut ring, start);
        let (a, b) = (id(&ring, "a"), id(&ring, "b"));
        for one in [a, b] {
            assert_eq!(ring.failed(one, false, start), Failed::Stays);
        }
        assert_eq!(ring.failed(a, false, late), Failed::Left);
        assert_eq!(ring.failed(b, false, late), Failed::Stays, "nobody else is left");
        assert_eq!(owners(&mut ring, late), before);

        assert_eq!(ring.failed(a, true, late), Failed::Left);
        assert_eq!(ring.failed(b, true, late), Failed::AllRefuse);
        assert_eq!(owners(&mut ring, late), before);
        assert_eq!(ring.failed(a, true, late), Failed::AllRefuse);
        ring.works(b);
        assert_eq!(ring.failed(a, true, late), Failed::Left);
        set(&mut ring, &["a"]);
        assert!(ring.is_in(a), "alone, it is in");
        assert_eq!(ring.failed(b, false, late), Failed::Left, "gone");
        assert_eq!(ring.failed(a, true, late), Failed::AllRefuse);
    }
}
