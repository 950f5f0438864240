//! What a destination does wrong, as a script that can change while it runs.
//!
//! A script is a list of rules, one a line or separated by `;`. A rule is `CONDITION, … : EFFECT, …`, or
//! effects alone for every request; `#` begins a comment. All conditions of a rule must hold; all rules that
//! hold apply, later ones winning where they contradict.
//!
//! | condition | holds for |
//! |---|---|
//! | `every 10` | every tenth of the requests that the rule's other conditions hold for |
//! | `first 100`, `skip 100` | the first hundred of them; all but these |
//! | `share 5%` | so many of them, at random (seeded: the same at every run) |
//! | `after 5s`, `until 20s` | requests that come so long after the script was set |
//! | `metrics`, `logs`, `traces`, `http`, `grpc` | requests of that signal or transport |
//!
//! | effect | what happens |
//! |---|---|
//! | `delay 50ms`, `delay 10ms..90ms` | the answer waits, for a time drawn evenly |
//! | `stall 5s` | nothing of the body is read for so long |
//! | `bandwidth 1MB/s` | the body is read at this rate |
//! | `status 503`, `grpc 14` | refused, with the other transport's equivalent; nothing is counted as delivered |
//! | `retry-after 2s` | a refusal says when to come again: `Retry-After`, `RetryInfo` |
//! | `partial 10` | success, but the first so many items are rejected and not counted (remote write: 400 with the number written) |
//! | `reset` | the connection (gRPC: the stream) is reset without an answer; nothing is counted |
//! | `lose-answer` | the same, but the items are counted: a sender that tries again duplicates them |
//!
//! ```text
//! every 10: status 503, retry-after 2s
//! after 5s, until 10s, share 20%: reset
//! logs: delay 10ms..90ms
//! ```

use std::str::FromStr;
use std::time::Duration;

use sluice_loadgen::Signal;

use crate::random::Random;
use crate::units;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Condition {
    Every(u64),
    First(u64),
    Skip(u64),
    Share(f64),
    After(Duration),
    Until(Duration),
    Signal(Signal),
    Transport(Transport),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Effect {
    Delay(Duration, Duration),
    Stall(Duration),
    Bandwidth(u64),
    Status(u16),
    Grpc(u16),
    RetryAfter(Duration),
    Partial(u64),
    Reset,
    LoseAnswer,
}

/// How a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// HTTP/1.1.
    Http,
    /// gRPC.
    Grpc,
}

#[derive(Clone, Debug, PartialEq)]
struct Rule {
    conditions: Vec<Condition>,
    effects: Vec<Effect>,
}

/// A parsed script.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script(Vec<Rule>);

/// What is done to one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Treatment {
    /// Wait before the answer.
    pub delay: Duration,
    /// Wait before the body is read.
    pub stall: Duration,
    /// Bytes per second at which the body is read.
    pub bandwidth: Option<u64>,
    /// HTTP status and gRPC code of a refusal.
    pub refusal: Option<(u16, u16)>,
    /// When a refused sender may come again.
    pub retry_after: Option<Duration>,
    /// Items to reject of an accepted request.
    pub partial: u64,
    /// Reset in place of an answer.
    pub reset: bool,
    /// Whether the items of a reset request are counted.
    pub count_anyway: bool,
}

impl Treatment {
    /// Whether the items of the request are counted as delivered.
    pub fn counts(&self) -> bool {
        self.refusal.is_none() && (!self.reset || self.count_anyway)
    }
}

impl FromStr for Script {
    type Err = String;

    fn from_str(text: &str) -> Result<Script, String> {
        let mut rules = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let code = line.split('#').next().unwrap_or_default();
            for rule in code.split(';').map(str::trim).filter(|rule| !rule.is_empty()) {
                rules.push(
                    rule.parse()
                        .map_err(|error| format!("faults, line {number}: {error}"))?,
                );
            }
        }
        Ok(Script(rules))
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Rule, String> {
        let (conditions, effects) = match text.split_once(':') {
            Some((conditions, effects)) => (conditions, effects),
            None => ("", text),
        };
        let parts = |list: &str| -> Vec<String> {
            let parts = list.split(',').map(|part| part.trim().to_string());
            parts.filter(|part| !part.is_empty()).collect()
        };
        let rule = Rule {
            conditions: parts(conditions)
                .iter()
                .map(|part| part.parse())
                .collect::<Result<_, _>>()?,
            effects: parts(effects)
                .iter()
                .map(|part| part.parse())
                .collect::<Result<_, _>>()?,
        };
        if rule.effects.is_empty() {
            return Err(format!(
                "{text:?} does nothing: write an effect after the colon, such as status 503"
            ));
        }
        Ok(rule)
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not a number that fits here"))
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Condition, String> {
        let (name, value) = text.split_once(' ').unwrap_or((text, ""));
        let value = value.trim();
        Ok(match name {
            "every" => match number(value)? {
                0 => return Err("every 0 never holds: write every 1 or more".into()),
                every => Condition::Every(every),
            },
            "first" => Condition::First(number(value)?),
            "skip" => Condition::Skip(number(value)?),
            "share" => {
                let percent: f64 = number(value.trim_end_matches('%'))?;
                if !(0.0..=100.0).contains(&percent) {
                    return Err(format!("share {value} is not between 0% and 100%"));
                }
                Condition::Share(percent / 100.0)
            }
            "after" => Condition::After(units::duration(value)?),
            "until" => Condition::Until(units::duration(value)?),
            "http" => Condition::Transport(Transport::Http),
            "grpc" => Condition::Transport(Transport::Grpc),
            signal => Condition::Signal(signal.parse().map_err(|_| {
                format!(
                    "unknown condition {text:?}: use every, first, skip, share, after, until, metrics, logs, traces, \
                     http or grpc"
                )
            })?),
        })
    }
}

impl FromStr for Effect {
    type Err = String;

    fn from_str(text: &str) -> Result<Effect, String> {
        let (name, value) = text.split_once(' ').unwrap_or((text, ""));
        let value = value.trim();
        Ok(match name {
            "delay" => {
                let (low, high) = value.split_once("..").unwrap_or((value, value));
                let (low, high) = (units::duration(low)?, units::duration(high)?);
                if high < low {
                    return Err(format!("{text:?} ends before it begins"));
                }
                Effect::Delay(low, high)
            }
            "stall" => Effect::Stall(units::duration(value)?),
            "bandwidth" => match units::bytes(value.trim_end_matches("/s"))? {
                0 => return Err("bandwidth 0 never ends: use stall".into()),
                rate => Effect::Bandwidth(rate),
            },
            "status" => match number(value)? {
                status @ 300..=599 => Effect::Status(status),
                status => return Err(format!("status {status} is no refusal: use 300 to 599")),
            },
            "grpc" => match number(value)? {
                code @ 1..=16 => Effect::Grpc(code),
                code => return Err(format!("grpc {code} is no refusal: use a code from 1 to 16")),
            },
            "retry-after" => Effect::RetryAfter(units::duration(value)?),
            "partial" => Effect::Partial(number(value)?),
            "reset" => Effect::Reset,
            "lose-answer" => Effect::LoseAnswer,
            _ => {
                return Err(format!(
                    "unknown effect {text:?}: use delay, stall, bandwidth, status, grpc, retry-after, partial, reset or \
                     lose-answer"
                ));
            }
        })
    }
}

/// The gRPC code that a client makes of an HTTP status (grpc `doc/http-grpc-status-mapping.md`; 429 as OTLP
/// has it).
fn grpc_of(status: u16) -> u16 {
    match status {
        400 => 13,
        401 => 16,
        403 => 7,
        404 => 12,
        429 => 8,
        502..=504 => 14,
        _ => 2,
    }
}

/// The HTTP status that OTLP/HTTP would answer in place of a gRPC code.
fn status_of(code: u16) -> u16 {
    match code {
        3 | 9 | 11 => 400,
        5 | 12 => 404,
        7 => 403,
        8 => 429,
        14 => 503,
        16 => 401,
        _ => 500,
    }
}

/// A script at work: it counts the requests of each rule.
#[derive(Debug)]
pub struct Faults {
    script: Script,
    seen: Vec<u64>,
    random: Random,
}

impl Faults {
    /// Begins a script.
    pub fn new(script: Script) -> Faults {
        Faults {
            seen: vec![0; script.0.len()],
            script,
            random: Random::new(1),
        }
    }

    /// What is to be done to a request that comes `since_start` after the script was set.
    pub fn treat(
        &mut self,
        since_start: Duration,
        signal: Option<Signal>,
        transport: Transport,
    ) -> Treatment {
        let mut treatment = Treatment::default();
        for (rule, seen) in self.script.0.iter().zip(&mut self.seen) {
            // First the conditions on the request itself, then those that count the requests they hold for.
            let concerns = rule.conditions.iter().all(|condition| match condition {
                Condition::After(time) => since_start >= *time,
                Condition::Until(time) => since_start < *time,
                Condition::Signal(wanted) => signal == Some(*wanted),
                Condition::Transport(wanted) => transport == *wanted,
                _ => true,
            });
            if !concerns {
                continue;
            }
            *seen += 1;
            let number = *seen;
            let random = &mut self.random;
            let holds = rule.conditions.iter().all(|condition| match condition {
                Condition::Every(every) => number.is_multiple_of(*every),
                Condition::First(first) => number <= *first,
                Condition::Skip(skip) => number > *skip,
                Condition::Share(share) => random.unit() < *share,
                _ => true,
            });
            if holds {
                for effect in &rule.effects {
                    apply(&mut treatment, *effect, &mut self.random);
                }
            }
        }
        treatment
    }
}

fn apply(treatment: &mut Treatment, effect: Effect, random: &mut Random) {
    match effect {
        Effect::Delay(low, high) => treatment.delay = low + (high - low).mul_f64(random.unit()),
        Effect::Stall(time) => treatment.stall = time,
        Effect::Bandwidth(rate) => treatment.bandwidth = Some(rate),
        Effect::Status(status) => treatment.refusal = Some((status, grpc_of(status))),
        Effect::Grpc(code) => treatment.refusal = Some((status_of(code), code)),
        Effect::RetryAfter(time) => treatment.retry_after = Some(time),
        Effect::Partial(items) => treatment.partial = items,
        Effect::Reset => (treatment.reset, treatment.count_anyway) = (true, false),
        Effect::LoseAnswer => (treatment.reset, treatment.count_anyway) = (true, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(script: &str) -> Faults {
        Faults::new(script.parse().unwrap())
    }

    fn treat(faults: &mut Faults, seconds: u64) -> Treatment {
        faults.treat(Duration::from_secs(seconds), Some(Signal::Logs), Transport::Http)
    }

    /// Scenario: a refusal of every tenth request with a hint.
    /// Guarantees: exactly these are refused, in both transports' terms, and they are not counted.
    #[test]
    fn every_tenth_is_refused() {
        let mut faults = faults("every 10: status 503, retry-after 2s");
        for number in 1..=40 {
            let treatment = treat(&mut faults, 0);
            assert_eq!(treatment.refusal.is_some(), number % 10 == 0);
            assert_eq!(treatment.counts(), number % 10 != 0);
            if let Some(refusal) = treatment.refusal {
                assert_eq!(refusal, (503, 14));
                assert_eq!(treatment.retry_after, Some(Duration::from_secs(2)));
            }
        }
    }

    /// Scenario: a window of time, a signal and a transport as conditions; rules that contradict each other.
    /// Guarantees: each condition holds where it says; counts are of the requests concerned; the later rule
    /// wins.
    #[test]
    fn conditions_hold_where_they_say() {
        let mut faults =
            faults("after 5s, until 10s, logs, http, first 2: reset # then no more\ndelay 5ms; delay 9ms");
        assert!(!treat(&mut faults, 4).reset);
        assert!(
            !faults
                .treat(Duration::from_secs(6), Some(Signal::Traces), Transport::Http)
                .reset
        );
        assert!(
            !faults
                .treat(Duration::from_secs(6), Some(Signal::Logs), Transport::Grpc)
                .reset
        );
        assert!(treat(&mut faults, 5).reset && treat(&mut faults, 9).reset);
        assert!(!treat(&mut faults, 9).reset);
        assert!(!treat(&mut faults, 10).reset);
        assert_eq!(treat(&mut faults, 0).delay, Duration::from_millis(9));
    }

    /// Scenario: one request in five is hit at random; delays are drawn from a range.
    /// Guarantees: the share is kept, delays stay in their range, and two runs are the same.
    #[test]
    fn chance_is_fair_and_reproducible() {
        let run = || -> Vec<Treatment> {
            let mut faults = faults("share 20%: lose-answer\ndelay 10ms..20ms");
            (0..10_000).map(|_| treat(&mut faults, 0)).collect()
        };
        let treatments = run();
        let hit = treatments.iter().filter(|treatment| treatment.reset).count();
        assert!((1_800..2_200).contains(&hit), "{hit}");
        let range = Duration::from_millis(10)..=Duration::from_millis(20);
        assert!(
            treatments
                .iter()
                .all(|treatment| range.contains(&treatment.delay) && treatment.counts())
        );
        assert_eq!(treatments, run());
    }

    /// Scenario: scripts with a mistake each.
    /// Guarantees: the error names the line, what is wrong, and what can be written instead.
    #[test]
    fn mistakes_are_named() {
        for (script, part) in [
            (
                "\nevery 10: statu 503",
                "line 2: unknown effect \"statu 503\": use delay",
            ),
            ("every ten: reset", "\"ten\" is not a number"),
            ("sometimes: reset", "unknown condition \"sometimes\""),
            ("every 10:", "does nothing"),
            ("status 200", "status 200 is no refusal"),
            ("grpc 0", "grpc 0 is no refusal"),
            ("delay 9ms..1ms", "ends before it begins"),
            ("every 0: reset", "never holds"),
            ("bandwidth 0MB/s", "never ends"),
            ("share 120%: reset", "not between"),
        ] {
            let error = script.parse::<Script>().unwrap_err();
            assert!(error.contains(part), "{script:?}: {error}");
        }
        assert_eq!("# nothing\n".parse::<Script>().unwrap(), Script::default());
    }
}
