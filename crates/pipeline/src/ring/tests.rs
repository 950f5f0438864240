//! Endpoints that leave and come back, and their keys.

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
