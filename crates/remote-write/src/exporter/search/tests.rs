use std::collections::HashMap;
use std::ops::Range;

use super::*;

impl Divisible for Range<usize> {
    fn cut_after(&self, first: impl FnOnce(usize) -> usize) -> Option<(Self, Self)> {
        if self.is_single() {
            return None;
        }
        let middle = self.start + first(self.len());
        assert!(self.start < middle && middle < self.end, "a part is empty");
        Some((self.start..middle, middle..self.end))
    }

    fn is_single(&self) -> bool {
        self.len() < 2
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Answer {
    Taken,
    Refused,
    /// By an endpoint that has taken nothing.
    RefusedUntried,
    TooLarge,
    Busy,
}

/// What came of `n` series.
#[derive(Debug, Default, PartialEq)]
struct Found {
    requests: usize,
    taken: Vec<Range<usize>>,
    given_up: Vec<usize>,
}

impl Found {
    /// Requests beside the one that all of it would have taken.
    fn extra(&self) -> usize {
        self.requests - 1
    }

    /// Each series was taken once, in order, or given up.
    fn assert_accounts_for(&self, n: usize) {
        assert!(self.taken.is_sorted_by_key(|taken| taken.start), "out of order");
        let given_up = self.given_up.iter().map(|bad| *bad..*bad + 1);
        let mut all: Vec<_> = self.taken.iter().cloned().chain(given_up).collect();
        all.sort_unstable_by_key(|some| some.start);
        let end = all
            .iter()
            .try_fold(0, |end, some| (some.start == end).then_some(some.end));
        assert_eq!(end, Some(n), "a series is missing, or there twice");
    }
}

/// Does with the queue what a lane does.
fn search(n: usize, mut destination: impl FnMut(&Range<usize>) -> Answer) -> Found {
    let mut queue = Queue::new(std::iter::once(0..n));
    let mut found = Found::default();
    while let Some(next) = queue.next() {
        let (body, because) = match next {
            Next::Cut(body, reason) => {
                assert_eq!(reason, "bad");
                (body, Because::Fault)
            }
            Next::Send(body) => {
                found.requests += 1;
                match destination(&body) {
                    Answer::Taken => {
                        found.taken.push(body);
                        continue;
                    }
                    Answer::Busy => {
                        queue.put_back(body);
                        continue;
                    }
                    Answer::Refused => (body, Because::Fault),
                    Answer::RefusedUntried => (body, Because::Doubt),
                    Answer::TooLarge => (body, Because::TooLarge),
                }
            }
        };
        if let Err(single) = queue.cut(body, because, "bad") {
            found.given_up.extend(single);
        }
    }
    found
}

fn refuses<'b>(bad: &'b [usize]) -> impl Fn(&Range<usize>) -> Answer + 'b {
    |asked| match bad.iter().any(|bad| asked.contains(bad)) {
        true => Answer::Refused,
        false => Answer::Taken,
    }
}

/// What one bad series among `n` may cost.
fn bound(n: usize) -> usize {
    (1.44 * (n as f64).log2()) as usize + 2
}

/// Numbers without a pattern, the same each time.
fn draw(state: &mut u64) -> usize {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

/// Scenario: one of n series is bad, at every place, for every n up to 400 and for 10,000.
/// Guarantees: it is given up and no other, for at most 1.44 log2(n) + 2 requests more; of 10,000, for at most 20.
#[test]
fn one_bad_series_is_found_in_few_requests() {
    let mut most = HashMap::new();
    for n in (1..=400).chain([10_000]) {
        for bad in 0..n {
            let found = search(n, refuses(&[bad]));
            found.assert_accounts_for(n);
            assert_eq!(found.given_up, [bad], "of {n}");
            assert!(found.extra() <= bound(n), "{} for {bad} of {n}", found.extra());
            let most = most.entry(n).or_default();
            *most = found.extra().max(*most);
        }
    }
    assert_eq!([most[&1], most[&2], most[&100], most[&10_000]], [0, 2, 11, 20]);
}

/// Scenario: two of up to 40 series are bad, at all places; ten of 10,000, at random; half of them; all.
/// Guarantees: those are given up and no other, in order, each for no more than it costs alone.
#[test]
fn several_bad_series_are_found() {
    for n in 2..=40 {
        for (first, second) in (0..n).flat_map(|first| (first + 1..n).map(move |second| (first, second))) {
            let found = search(n, refuses(&[first, second]));
            found.assert_accounts_for(n);
            assert_eq!(found.given_up, [first, second], "of {n}");
            assert!(found.extra() <= 2 * bound(n));
        }
    }
    let mut state = 1;
    for _ in 0..200 {
        let mut bad: Vec<usize> = (0..10).map(|_| draw(&mut state) % 10_000).collect();
        bad.sort_unstable();
        bad.dedup();
        let found = search(10_000, refuses(&bad));
        found.assert_accounts_for(10_000);
        assert_eq!(found.given_up, bad);
        assert!(found.extra() <= bad.len() * bound(10_000));
    }
    for every in [1, 2] {
        let bad: Vec<usize> = (0..1000).step_by(every).collect();
        assert_eq!(search(1000, refuses(&bad)).given_up, bad);
    }
}

/// Scenario: at most 100 series are taken at once (413), and one is bad (400).
/// Guarantees: that one is given up and no other.
#[test]
fn what_is_too_large_and_bad_is_found() {
    for bad in 0..1000 {
        let found = search(1000, |asked| match asked.len() {
            101.. => Answer::TooLarge,
            _ => refuses(&[bad])(asked),
        });
        found.assert_accounts_for(1000);
        assert_eq!(found.given_up, [bad]);
    }
}

/// Scenario: the destination refuses what has a certain series in it the first time, or the first few times, and takes it from then on.
/// Guarantees: no other is given up, and this one only if it was refused by itself.
#[test]
fn a_destination_that_changes_its_mind_loses_nothing() {
    for (times, strange) in (1..12).flat_map(|times| (0..100).map(move |strange| (times, strange))) {
        let mut asked_for = 0;
        let mut refused_alone = false;
        let found = search(100, |asked| {
            if !asked.contains(&strange) {
                return Answer::Taken;
            }
            asked_for += 1;
            let answer = match asked_for <= times {
                true => Answer::Refused,
                false => Answer::Taken,
            };
            refused_alone |= asked.len() == 1 && answer == Answer::Refused;
            answer
        });
        found.assert_accounts_for(100);
        assert_eq!(found.given_up == [strange], refused_alone);
        assert_eq!(found.given_up.is_empty(), !refused_alone);
    }
}

/// Scenario: a destination that answers anything at any time.
/// Guarantees: every series is taken once and in order, or was refused by itself, for what is in it or for its size.
#[test]
fn whatever_is_answered_no_series_is_lost() {
    for seed in 0..2000 {
        let mut state = seed;
        let mut refused_alone = Vec::new();
        let found = search(60, |asked| {
            let answer = match draw(&mut state) % 6 {
                0 => Answer::Refused,
                1 => Answer::RefusedUntried,
                2 => Answer::TooLarge,
                3 => Answer::Busy,
                _ => Answer::Taken,
            };
            let is_final = !matches!(answer, Answer::Taken | Answer::Busy);
            if asked.len() == 1 && is_final {
                refused_alone.push(asked.start);
            }
            answer
        });
        found.assert_accounts_for(60);
        assert_eq!(found.given_up, refused_alone, "seed {seed}");
    }
}

/// Scenario: an endpoint refuses the first request as it refuses all, having taken nothing yet, and is mended.
/// Guarantees: nothing follows from that for the rest of the body: it is sent whole.
#[test]
fn an_endpoint_that_took_nothing_says_nothing_about_the_rest() {
    for (answer, requests) in [(Answer::RefusedUntried, 3), (Answer::TooLarge, 3)] {
        let mut is_first = true;
        let found = search(1000, |_| match std::mem::take(&mut is_first) {
            true => answer,
            false => Answer::Taken,
        });
        found.assert_accounts_for(1000);
        assert_eq!((found.requests, found.given_up.len()), (requests, 0));
    }
}

/// Scenario: a body is refused; of its first part one piece is too large even by itself.
/// Guarantees: that may have been the fault: the second part is sent whole.
#[test]
fn what_is_too_large_by_itself_may_be_the_fault() {
    let found = search(3, |asked| match (asked.start, asked.end) {
        (0, 3) => Answer::Refused,
        (0, 1) => Answer::TooLarge,
        _ => Answer::Taken,
    });
    let want = Found {
        requests: 3,
        taken: std::iter::once(1..3).collect(),
        given_up: vec![0],
    };
    assert_eq!(found, want);
}
