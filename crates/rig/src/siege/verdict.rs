//! What a gateway must do under siege, each judged by itself and in words.

use std::fmt::Write as _;

use super::attack::is_retryable;
use super::phases::{OVERLOAD, UNREFUSED};
use super::report::{Outcome, Seen, refusals, share};

/// Of the rate that 16 clients get without refusals, at least so much is accepted when twice as much is sent.
const OVERLOAD_SHARE: f64 = 0.9;

/// What is resident after the last rest, at most, of what it was after the first phase's.
const REST_GROWTH: f64 = 1.1;

/// What the gateway may have resident, of what its group may have. Beyond, the kernel takes pages of the executable back to make room, and everything
/// becomes slow before anything is killed; the group's own peak says nothing of that, for the kernel never lets it above the limit. (The 80% of
/// the memory limiter in `deploy/compare/siege.yaml` are for what is reserved and what goes with it, not for the executable's pages.)
const RESIDENT_PERCENT: u64 = 95;

/// One thing that a gateway must do.
#[derive(Debug)]
pub(crate) struct Judgement {
    what: &'static str,
    /// Where it did not; `None` where it could not be seen.
    failures: Option<Vec<String>>,
    /// What could not be seen fails.
    must_be_seen: bool,
}

impl Judgement {
    fn failed(&self) -> bool {
        match &self.failures {
            Some(failures) => !failures.is_empty(),
            None => self.must_be_seen,
        }
    }
}

/// Judges all of it. Of a gateway that `must_be_seen` what could not be seen fails, too: a metrics page that does not answer, or a renamed
/// metric, would pass otherwise. Peers need not tell what sluice tells. What was left out by choice is not judged.
pub(crate) fn judge(seen: &Seen, must_be_seen: bool) -> Vec<Judgement> {
    let mut judgements = all(seen);
    judgements.retain(|judgement| judgement.what != AT_TWICE_THE_RATE || has(seen, OVERLOAD));
    for judgement in &mut judgements {
        judgement.must_be_seen = must_be_seen;
    }
    judgements
}

const AT_TWICE_THE_RATE: &str = "at twice the rate it accepts at least 90% of it";

fn has(seen: &Seen, name: &str) -> bool {
    seen.phases.iter().any(|(phase, _)| phase.name == name)
}

fn all(seen: &Seen) -> Vec<Judgement> {
    let each = |what, judge: fn(&Outcome) -> Vec<String>| Judgement {
        must_be_seen: false,
        what,
        failures: Some(
            seen.phases
                .iter()
                .flat_map(|(phase, outcome)| {
                    let name = move |failure| format!("{}: {failure}", phase.name);
                    judge(outcome).into_iter().map(name)
                })
                .collect(),
        ),
    };
    vec![
        each("nobody waits for ever: each phase ends", |outcome| {
            when(outcome.overran, || {
                "clients without an answer, until it was killed and started again".into()
            })
        }),
        lives(seen),
        each("nothing accepted is lost, nothing arrives twice", |outcome| {
            when(outcome.lost + outcome.duplicated > 0, || {
                format!("{} lost, {} twice", outcome.lost, outcome.duplicated)
            })
        }),
        each(
            "what is not accepted may be tried again, and is told when",
            turned_away,
        ),
        each("the bystander is always served", |outcome| {
            let load = &outcome.bystander;
            let due = load.sent_items + load.unsent_items;
            when(load.accepted_items != due, || {
                format!("{} of its items accepted", share(load.accepted_items, due))
            })
        }),
        peak(seen),
        overload(seen),
        permits(seen),
        rest(seen),
    ]
}

fn when(failed: bool, words: impl FnOnce() -> String) -> Vec<String> {
    failed.then(words).into_iter().collect()
}

fn lives(seen: &Seen) -> Judgement {
    let mut failures = Vec::new();
    for (phase, outcome) in &seen.phases {
        if outcome.deaths > 0 || outcome.oom_kills > 0 {
            failures.push(format!(
                "{}: it died {} times, of these {} killed by the kernel",
                phase.name, outcome.deaths, outcome.oom_kills
            ));
        }
    }
    // Between two phases, too.
    let in_phases: u64 = seen.phases.iter().map(|(_, outcome)| outcome.oom_kills).sum();
    if seen.oom_kills > in_phases {
        failures.push(format!(
            "{} killed between the phases",
            seen.oom_kills - in_phases
        ));
    }
    Judgement {
        must_be_seen: false,
        what: "it lives, and nothing is killed for memory",
        failures: Some(failures),
    }
}

fn turned_away(outcome: &Outcome) -> Vec<String> {
    let mut failures = Vec::new();
    for (who, load) in [("the load", &outcome.load), ("the bystander", &outcome.bystander)] {
        let final_ones = load
            .statuses
            .iter()
            .filter(|(status, _)| !(**status == 200 || is_retryable(**status)));
        failures.extend(final_ones.map(|(status, count)| format!("{who} was told {status} {count} times")));
        let refused = refusals(load);
        failures.extend(when(load.hinted_requests < refused, || {
            format!(
                "{} of {refused} refusals of {who} without a hint",
                refused - load.hinted_requests
            )
        }));
        failures.extend(when(load.rejected_items > 0, || {
            format!("{} items of {who} rejected for good", load.rejected_items)
        }));
        failures.extend(when(load.unanswered_items > 0, || {
            format!("{} items of {who} without an answer", load.unanswered_items)
        }));
    }
    let answers = &outcome.answers;
    failures.extend(answers.wrong.iter().map(|(status, count)| match status {
        0 => format!("attackers without an answer {count} times"),
        status => format!("attackers were told {status} {count} times"),
    }));
    failures.extend(when(answers.hinted < answers.retryable, || {
        let without = answers.retryable - answers.hinted;
        format!(
            "{without} of {} refusals of attackers without a hint",
            answers.retryable
        )
    }));
    failures
}

fn peak(seen: &Seen) -> Judgement {
    let limit = seen.memory_limit * RESIDENT_PERCENT / 100;
    let largest = seen
        .phases
        .iter()
        .max_by_key(|(_, outcome)| outcome.peak_rss)
        .filter(|(_, outcome)| outcome.peak_rss > 0);
    Judgement {
        must_be_seen: false,
        what: "the largest RSS is within 95% of the group's limit",
        failures: largest.map(|(phase, outcome)| {
            when(outcome.peak_rss > limit, || {
                format!("{}: {} of {limit} bytes", phase.name, outcome.peak_rss)
            })
        }),
    }
}

fn overload(seen: &Seen) -> Judgement {
    let rate = |name| {
        let (_, outcome) = seen.phases.iter().find(|(phase, _)| phase.name == name)?;
        Some(outcome.rate())
    };
    Judgement {
        must_be_seen: false,
        what: AT_TWICE_THE_RATE,
        failures: rate(UNREFUSED).zip(rate(OVERLOAD)).map(|(unrefused, overload)| {
            when(
                !(overload >= unrefused * OVERLOAD_SHARE && overload > 0.0),
                || {
                    let percent = 100.0 * overload / unrefused.max(1.0);
                    format!("{percent:.1}%: {overload:.0} of {unrefused:.0} items/s")
                },
            )
        }),
    }
}

fn permits(seen: &Seen) -> Judgement {
    Judgement {
        must_be_seen: false,
        what: "nothing stays reserved of the memory budget",
        failures: seen
            .started
            .reserved
            .zip(seen.ended.reserved)
            .map(|(started, ended)| {
                when(ended > started, || {
                    format!("{ended:.0} bytes, and {started:.0} at the start")
                })
            }),
    }
}

fn rest(seen: &Seen) -> Judgement {
    let (warm, ended) = (seen.warm.resident.bytes(), seen.ended.resident.bytes());
    Judgement {
        must_be_seen: false,
        what: "resident memory comes back to within 10% of what it was after the first phase",
        // A process that was started on the way has another beginning.
        failures: (seen.is_the_same && warm > 0).then(|| {
            when(ended as f64 > warm as f64 * REST_GROWTH, || {
                format!(
                    "{ended} bytes, {:.0}% of {warm}",
                    100.0 * ended as f64 / warm as f64
                )
            })
        }),
    }
}

/// Number of judgements that failed.
pub(crate) fn failed(judgements: &[Judgement]) -> usize {
    judgements.iter().filter(|judgement| judgement.failed()).count()
}

/// A line for each.
pub(crate) fn words(judgements: &[Judgement]) -> String {
    let mut text = String::from("\n");
    for Judgement {
        what,
        failures,
        must_be_seen,
    } in judgements
    {
        let _ = match failures.as_deref() {
            None if *must_be_seen => writeln!(text, "- **FAILS**: {what}: not seen"),
            None => writeln!(text, "- not seen: {what}"),
            Some([]) => writeln!(text, "- holds: {what}"),
            Some(failures) => writeln!(text, "- **FAILS**: {what}: {}", failures.join("; ")),
        };
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::group::Resident;
    use super::super::phases::PHASES;
    use super::super::report::Rest;
    use super::*;
    use crate::load::LoadReport;

    /// A load of which all was accepted, in a second.
    fn load(items: u64) -> LoadReport {
        LoadReport {
            seconds: 1.0,
            sent_items: items,
            accepted_items: items,
            statuses: [(200, 1)].into(),
            ..LoadReport::default()
        }
    }

    /// A gateway that does all it must.
    fn good() -> Seen {
        let outcome = || Outcome {
            load: load(1000),
            bystander: load(10),
            peak_rss: 95,
            ..Outcome::default()
        };
        let rest = |anonymous| Rest {
            resident: Resident { anonymous, file: 0 },
            reserved: Some(0.0),
        };
        Seen {
            phases: PHASES[..2].iter().map(|phase| (*phase, outcome())).collect(),
            memory_limit: 100,
            memory_peak: Some(100),
            oom_kills: 0,
            started: rest(50),
            warm: rest(100),
            ended: rest(110),
            is_the_same: true,
        }
    }

    /// Scenario: a siege in which all is well, with refusals that say when to come again, and then the same with one thing wrong, each in turn.
    /// Guarantees: nothing fails, and then exactly that one, with the phase and the figure.
    #[test]
    fn each_failure_is_told() {
        let mut all_well = good();
        all_well.phases[1].1.load.statuses.insert(503, 4);
        all_well.phases[1].1.load.hinted_requests = 4;
        let judgements = judge(&all_well, true);
        assert_eq!(failed(&judgements), 0, "{}", words(&judgements));
        assert!(!words(&judgements).contains("not seen"), "{}", words(&judgements));

        type Wrong = fn(&mut Seen);
        let cases: [(Wrong, &str); 17] = [
            (
                |seen| seen.phases[1].1.overran = true,
                "overload: clients without an answer",
            ),
            (|seen| seen.phases[1].1.deaths = 1, "overload: it died 1 times"),
            (|seen| seen.oom_kills = 1, "1 killed between the phases"),
            (|seen| seen.phases[1].1.lost = 7, "overload: 7 lost, 0 twice"),
            (
                |seen| seen.phases[1].1.duplicated = 7,
                "overload: 0 lost, 7 twice",
            ),
            (
                |seen| {
                    seen.phases[1].1.load.statuses.insert(400, 3);
                },
                "the load was told 400 3 times",
            ),
            (
                |seen| {
                    seen.phases[1].1.bystander.statuses.insert(503, 3);
                },
                "3 of 3 refusals of the bystander without",
            ),
            (
                |seen| seen.phases[1].1.load.rejected_items = 3,
                "3 items of the load rejected",
            ),
            (
                |seen| seen.phases[1].1.load.unanswered_items = 3,
                "3 items of the load without",
            ),
            (
                |seen| {
                    seen.phases[1].1.answers.wrong.insert(0, 3);
                },
                "attackers without an answer 3 times",
            ),
            (
                |seen| seen.phases[1].1.answers.retryable = 3,
                "3 of 3 refusals of attackers without",
            ),
            (
                |seen| seen.phases[1].1.bystander.unsent_items = 10,
                "overload: 50.00% of its items",
            ),
            (|seen| seen.phases[1].1.peak_rss = 96, "overload: 96 of 95 bytes"),
            (
                |seen| seen.phases[1].1.load.accepted_items = 899,
                "89.9%: 899 of 1000 items/s",
            ),
            (
                |seen| seen.ended.reserved = Some(1.0),
                "1 bytes, and 0 at the start",
            ),
            (
                |seen| seen.ended.resident.anonymous = 111,
                "111 bytes, 111% of 100",
            ),
            (|seen| seen.ended.resident.file = 2, "112 bytes, 112% of 100"),
        ];
        for (wrong, expected) in cases {
            let mut seen = good();
            wrong(&mut seen);
            let judgements = judge(&seen, true);
            let words = words(&judgements);
            assert!(words.contains(expected), "{expected}: {words}");
            assert_eq!(failed(&judgements), 1, "{words}");
        }
    }

    /// Scenario: a gateway that tells nothing of permits, whose RSS nobody could read, without the overload, started anew on the way.
    /// Guarantees: what could not be seen is said so, and fails the gateway itself but no peer; what was left out is not mentioned.
    #[test]
    fn what_was_not_seen_is_told() {
        let mut seen = good();
        seen.phases.truncate(1);
        seen.phases[0].1.peak_rss = 0;
        seen.started.reserved = None;
        seen.is_the_same = false;
        for (must_be_seen, failures) in [(false, 0), (true, 3)] {
            let judgements = judge(&seen, must_be_seen);
            let words = words(&judgements);
            assert_eq!(failed(&judgements), failures, "{words}");
            assert_eq!(words.matches("FAILS").count(), failures, "{words}");
            assert_eq!(words.matches("not seen").count(), 3, "{words}");
            assert!(!words.contains(AT_TWICE_THE_RATE), "{words}");
        }
    }
}
