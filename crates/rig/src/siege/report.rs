//! What came of the phases, as a table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sluice_loadgen::Signal;

use crate::account::AccountReport;
use crate::load::LoadReport;

use super::attack::{Answers, is_retryable};
use super::group::Resident;
use super::phases::Phase;

const MIB: f64 = 1_048_576.0;

/// What came of a phase.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) load: LoadReport,
    pub(crate) bystander: LoadReport,
    pub(crate) answers: Answers,
    pub(crate) peak_rss: u64,
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
    pub(crate) deaths: u32,
    pub(crate) oom_kills: u64,
    /// It answered some clients never: it was killed, so that the next phase could begin.
    pub(crate) overran: bool,
}

impl Outcome {
    /// Items accepted, a second.
    pub(crate) fn rate(&self) -> f64 {
        self.load.accepted_items as f64 / self.load.seconds.max(0.001)
    }

    /// Notes what was lost of what was accepted, and says how much.
    pub(crate) fn settle(&mut self, accounts: &BTreeMap<String, AccountReport>) -> u64 {
        (self.lost, self.duplicated) = (0, 0);
        for (signal, account) in accounts {
            // The attackers' bodies are sent over and over: they have no ids of their own and are counted. What may have been accepted may come.
            let unsure = match signal == Signal::Logs.name() {
                true if self.answers.accepted_items == 0 => continue,
                true => self.answers.unsure_items,
                false => 0,
            };
            self.lost += account.lost;
            self.duplicated += account.duplicated.saturating_sub(unsure);
        }
        self.lost
    }

    fn first_error(&self) -> &str {
        let errors = [
            &self.load.first_error,
            &self.bystander.first_error,
            &self.answers.first_error,
        ];
        errors
            .into_iter()
            .find_map(|error| error.as_deref())
            .unwrap_or_default()
    }
}

/// A gateway that nobody has sent anything for a while.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rest {
    pub(crate) resident: Resident,
    /// Bytes of the memory budget that are reserved, where the gateway tells (`sluice_memory_reserved_bytes`).
    pub(crate) reserved: Option<f64>,
}

/// A whole siege.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) phases: Vec<(Phase, Outcome)>,
    pub(crate) memory_limit: u64,
    pub(crate) memory_peak: Option<u64>,
    pub(crate) oom_kills: u64,
    /// Before the first request, after the first phase, after the last.
    pub(crate) started: Rest,
    pub(crate) warm: Rest,
    pub(crate) ended: Rest,
    /// The process of the end is the one of the beginning.
    pub(crate) is_the_same: bool,
}

pub(crate) const HEADER: &str = "\
| phase | load: items/s accepted | refused or unanswered | of these with a hint | due and not sent | p99 from due, ms | from sent, ms \
| bystander accepted | p99, ms | attackers' answers | retryable with a hint | peak RSS, MiB | lost | twice | deaths (OOM) | first error |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
";

/// The line of one phase.
pub(crate) fn row(phase: &Phase, outcome: &Outcome) -> String {
    let load = &outcome.load;
    let turned_away = load.refused_items + load.rejected_items + load.unanswered_items;
    let mut statuses: Vec<_> = outcome
        .answers
        .statuses
        .iter()
        .map(|(status, count)| match status {
            0 => format!("none: {count}"),
            status => format!("{status}: {count}"),
        })
        .collect();
    if outcome.answers.closed > 0 {
        statuses.push(format!("closed: {}", outcome.answers.closed));
    }
    statuses.extend(
        load.statuses
            .keys()
            .filter(|status| **status != 200 && !is_retryable(**status))
            .map(|status| format!("load not retryable: {status}")),
    );
    let bystander = &outcome.bystander;
    format!(
        "| {}: {} | {:.0} | {} | {} | {} | {:.0} | {:.0} | {} | {:.0} | {} | {} | {:.0} | {} | {} | {} ({}) | {} |\n",
        phase.name,
        phase.what,
        outcome.rate(),
        share(turned_away, load.sent_items),
        share(load.hinted_requests, refusals(load)),
        share(load.unsent_items, load.sent_items + load.unsent_items),
        load.latency_us.p99 as f64 / 1e3,
        load.from_sent_us.p99 as f64 / 1e3,
        share(
            bystander.accepted_items,
            bystander.sent_items + bystander.unsent_items
        ),
        bystander.latency_us.p99 as f64 / 1e3,
        statuses.join(", "),
        share(outcome.answers.hinted, outcome.answers.retryable),
        outcome.peak_rss as f64 / MIB,
        outcome.lost,
        outcome.duplicated,
        outcome.deaths,
        outcome.oom_kills,
        outcome.first_error().replace('|', "/"),
    )
}

/// Answers that were no success.
pub(crate) fn refusals(load: &LoadReport) -> u64 {
    let refused = load.statuses.iter().filter(|(status, _)| **status != 200);
    refused.map(|(_, count)| count).sum()
}

pub(crate) fn share(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".into(),
        whole => format!("{:.2}%", 100.0 * part as f64 / whole as f64),
    }
}

/// What is said of memory below the table.
pub(crate) fn memory(seen: &Seen) -> String {
    let mut text = format!(
        "\nPeak of the control group {} MiB of {}, {} OOM kills. Left alone:\n\n\
         | | anonymous memory, MiB | pages of files, MiB | reserved of the budget, bytes |\n|---|---|---|---|\n",
        seen.memory_peak.map_or("?".into(), mib),
        mib(seen.memory_limit),
        seen.oom_kills,
    );
    for (when, rest) in [
        ("two seconds after the start", seen.started),
        ("a minute after the first phase", seen.warm),
        ("a minute after the last", seen.ended),
    ] {
        let _ = writeln!(
            text,
            "| {when} | {:.1} | {:.1} | {} |",
            rest.resident.anonymous as f64 / MIB,
            rest.resident.file as f64 / MIB,
            rest.reserved
                .map_or("not told".into(), |bytes| format!("{bytes:.0}")),
        );
    }
    text
}

fn mib(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: attackers were told 200 for ten items and did not read the answer for five; from none to sixteen of them arrived.
    /// Guarantees: what is missing of the ten is lost, what is beyond fifteen came twice; where nothing was accepted nothing is expected.
    #[test]
    fn what_attackers_were_told_is_accepted_has_to_arrive() {
        let signal = Signal::Logs.name().to_string();
        let settled = |accepted_items, arrived: u64| {
            let account = AccountReport {
                lost: 10_u64.saturating_sub(arrived),
                duplicated: arrived.saturating_sub(10),
                ..AccountReport::default()
            };
            let mut outcome = Outcome::default();
            (outcome.answers.accepted_items, outcome.answers.unsure_items) = (accepted_items, 5);
            let lost = outcome.settle(&BTreeMap::from([(signal.clone(), account)]));
            assert_eq!(lost, outcome.lost);
            (outcome.lost, outcome.duplicated)
        };
        assert_eq!(settled(10, 10), (0, 0));
        assert_eq!(settled(10, 7), (3, 0));
        assert_eq!(settled(10, 15), (0, 0));
        assert_eq!(settled(10, 16), (0, 1));
        assert_eq!(settled(0, 16), (0, 0));
    }
}
