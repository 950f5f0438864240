//! Who sent what, and what arrived of it: sent, delivered, duplicated, lost, reordered, by item id.

use std::collections::HashMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use sluice_loadgen::{FIRST_ID, Found, Outline, RemoteWrite, Signal, Tally, Written, for_each_sample};

/// Bits of an id that count within its lane (see [`sluice_loadgen::LANES`]).
const LANE_BITS: u32 = 32;

/// Runs of lost ids that a report names.
const NAMED_RUNS: usize = 5;

/// What a load tells the account when it is done.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SentIds {
    /// Name of the signal.
    pub signal: String,
    /// First id and number of ids that were accepted, and so must arrive.
    pub accepted: Vec<(u64, u64)>,
    /// First id and number of ids that may arrive or not: refused, unanswered, or in a partly rejected
    /// request.
    pub unsure: Vec<(u64, u64)>,
    /// Accepted items of requests that were sent more than once: they can be counted, not told apart.
    pub repeated: u64,
}

/// How the resources of a load look from outside, as it is told to the sink; see [`Outline`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outlines {
    /// Name of the signal.
    pub signal: String,
    /// Length, place of the first id, place of the last id, items.
    pub resources: Vec<(usize, usize, usize, u32)>,
}

impl Outlines {
    /// For the wire.
    pub fn new(signal: Signal, outlines: &[Outline]) -> Outlines {
        let row = |outline: &Outline| (outline.len, outline.id_at, outline.last_id_at, outline.items);
        Outlines {
            signal: signal.to_string(),
            resources: outlines.iter().map(row).collect(),
        }
    }

    /// From the wire.
    pub fn read(&self) -> Result<(Signal, Vec<Outline>), String> {
        let outline = |&(len, id_at, last_id_at, items): &(usize, usize, usize, u32)| Outline {
            len,
            id_at,
            last_id_at,
            items,
        };
        Ok((self.signal.parse()?, self.resources.iter().map(outline).collect()))
    }
}

/// What became of the items of one signal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountReport {
    /// Whether ids were told apart; otherwise items were counted, and lost and duplicated ones may cancel
    /// out.
    pub by_id: bool,
    /// Items that were accepted from the load.
    pub sent: u64,
    /// Of these, items that arrived at least once.
    pub delivered: u64,
    /// Of these, items that never arrived.
    pub lost: u64,
    /// Arrivals of an item that had arrived before.
    pub duplicated: u64,
    /// First arrivals of an item after a later item of the same sender.
    pub reordered: u64,
    /// Items that arrived though they were refused or not answered.
    pub unsure_delivered: u64,
    /// Items that arrived and were never sent.
    pub unknown: u64,
    /// Items that arrived without an id.
    pub unmarked: u64,
    /// Samples of remote write that belong to no item, such as `target_info`: they are no loss.
    #[serde(default)]
    pub beside: u64,
    /// The first runs of lost ids: first id and number.
    pub lost_runs: Vec<(u64, u64)>,
}

impl AccountReport {
    /// Whether everything that was accepted arrived exactly once, and nothing arrived that was never sent.
    /// Order is not part of it: batches in flight side by side may overtake each other.
    pub fn is_exact(&self) -> bool {
        self.delivered == self.sent && self.lost + self.duplicated + self.unknown + self.unmarked == 0
    }
}

/// The account of one signal.
#[derive(Debug, Default)]
pub struct Account {
    tally: Tally,
    unsure: Vec<Range<u64>>,
    repeated: u64,
    items: u64,
    unmarked: u64,
    beside: u64,
    reordered: u64,
    /// The highest id that has arrived, by lane.
    highest: HashMap<u64, u64>,
}

impl Account {
    /// Notes what a load sent.
    pub fn sent(&mut self, sent: &SentIds) {
        for (first, items) in &sent.accepted {
            self.tally.sent(*first, *items);
        }
        let ranges = sent.unsure.iter().map(|(first, items)| *first..first + items);
        self.unsure.extend(ranges);
        self.repeated += sent.repeated;
    }

    /// Notes the arrival of consecutive ids.
    pub fn delivered(&mut self, ids: Range<u64>) {
        self.items += ids.end.saturating_sub(ids.start);
        let lane = ids.start.saturating_sub(FIRST_ID) >> LANE_BITS;
        let highest = self.highest.entry(lane).or_default();
        for id in ids {
            if self.tally.delivered(id) {
                self.reordered += u64::from(id < *highest);
            }
            *highest = id.max(*highest);
        }
    }

    /// Notes the arrival of items without an id.
    pub fn unmarked(&mut self, items: u64) {
        self.items += items;
        self.unmarked += items;
    }

    /// Notes the arrival of samples that belong to no item.
    pub fn beside(&mut self, samples: u64) {
        self.beside += samples;
    }

    /// Items that have arrived, however often.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// The account as it stands.
    pub fn report(&self) -> AccountReport {
        let tally = self.tally.report();
        if self.repeated > 0 {
            let sent = self.repeated + tally.sent;
            return AccountReport {
                sent,
                delivered: self.items.min(sent),
                lost: sent.saturating_sub(self.items),
                duplicated: self.items.saturating_sub(sent),
                unmarked: self.unmarked,
                beside: self.beside,
                ..AccountReport::default()
            };
        }
        let unsure_delivered = self
            .unsure
            .iter()
            .map(|ids| self.tally.arrived_within(ids.clone()))
            .sum();
        let run = |run: Range<u64>| (run.start, run.end - run.start);
        AccountReport {
            by_id: true,
            sent: tally.sent,
            delivered: tally.sent - tally.lost,
            lost: tally.lost,
            duplicated: tally.duplicated,
            reordered: self.reordered,
            unsure_delivered,
            unknown: tally.unknown.saturating_sub(unsure_delivered),
            unmarked: self.unmarked,
            beside: self.beside,
            lost_runs: self.tally.lost(NAMED_RUNS).into_iter().map(run).collect(),
        }
    }
}

/// The ids of a body, as few runs as their order allows, and its items without an id.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// Consecutive ids in the order they arrived.
    pub runs: Vec<Range<u64>>,
    /// Items without an id.
    pub unmarked: u64,
    /// Samples of remote write that belong to no item.
    pub beside: u64,
}

impl Arrivals {
    /// Finds the ids of a decoded `Export*ServiceRequest`.
    pub fn find(signal: Signal, body: &[u8]) -> Result<Arrivals, String> {
        let mut found = Arrivals::default();
        sluice_loadgen::for_each_id(signal, body, |id| match id {
            Some(id) => found.push(id..id + 1),
            None => found.unmarked += 1,
        })
        .map_err(|error| error.to_string())?;
        Ok(found)
    }

    /// Finds the ids of an inflated request of remote write, and how much it writes.
    pub fn find_remote_write(version: RemoteWrite, body: &[u8]) -> Result<(Arrivals, Written), String> {
        let mut found = Arrivals::default();
        let written = for_each_sample(version, body, |sample| match sample {
            Found::Item(id) => found.push(id..id + 1),
            Found::Part => {}
            Found::Unmarked => found.unmarked += 1,
            Found::Beside => found.beside += 1,
        })
        .map_err(|error| error.to_string())?;
        Ok((found, written))
    }

    /// Adds consecutive ids.
    pub fn push(&mut self, ids: Range<u64>) {
        match self.runs.last_mut() {
            Some(last) if last.end == ids.start => last.end = ids.end,
            _ => self.runs.push(ids),
        }
    }

    /// Leaves out the first items, in the order of the body as far as they have ids.
    pub fn skip(&mut self, mut items: u64) {
        for run in &mut self.runs {
            let skipped = items.min(run.end - run.start);
            run.start += skipped;
            items -= skipped;
        }
        self.runs.retain(|run| !run.is_empty());
        self.unmarked = self.unmarked.saturating_sub(items);
    }

    /// Moves everything into an account.
    pub fn settle(self, account: &mut Account) {
        for run in self.runs {
            account.delivered(run);
        }
        if self.unmarked > 0 {
            account.unmarked(self.unmarked);
        }
        account.beside(self.beside);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(accepted: &[(u64, u64)], unsure: &[(u64, u64)]) -> SentIds {
        SentIds {
            signal: "metrics".into(),
            accepted: accepted.to_vec(),
            unsure: unsure.to_vec(),
            repeated: 0,
        }
    }

    /// Scenario: two senders; one id lost, one twice, one request overtaken by the next, one refused request
    /// that arrived all the same, one id from nowhere.
    /// Guarantees: each has its own count; lanes do not disturb each other's order.
    #[test]
    fn every_fate_has_its_count() {
        let (a, b) = (FIRST_ID, FIRST_ID + (1 << LANE_BITS));
        let mut account = Account::default();
        account.delivered(a..a + 10);
        account.delivered(b..b + 10);
        account.delivered(a + 20..a + 29);
        account.delivered(a + 10..a + 20);
        account.delivered(a + 5..a + 6);
        account.delivered(b + 10..b + 15);
        account.delivered(b + 99..b + 100);
        account.sent(&sent(&[(a, 30), (b, 10)], &[(b + 10, 10)]));
        let expected = AccountReport {
            by_id: true,
            sent: 40,
            delivered: 39,
            lost: 1,
            duplicated: 1,
            reordered: 10,
            unsure_delivered: 5,
            unknown: 1,
            unmarked: 0,
            beside: 0,
            lost_runs: vec![(a + 29, 1)],
        };
        assert_eq!(account.report(), expected);
        assert!(!account.report().is_exact());
    }

    /// Scenario: everything arrives once, in another order.
    /// Guarantees: that is exact, and the reordering is told.
    #[test]
    fn order_is_told_and_not_held_against() {
        let mut account = Account::default();
        account.sent(&sent(&[(FIRST_ID, 20)], &[]));
        account.delivered(FIRST_ID + 10..FIRST_ID + 20);
        account.delivered(FIRST_ID..FIRST_ID + 10);
        let report = account.report();
        assert!(report.is_exact());
        assert_eq!(report.reordered, 10);
    }

    /// Scenario: requests that were sent many times, with the same ids; two items are missing.
    /// Guarantees: they are counted, and the report says that ids were not told apart.
    #[test]
    fn repeated_requests_are_counted() {
        let mut account = Account::default();
        for _ in 0..10 {
            account.delivered(FIRST_ID..FIRST_ID + 100);
        }
        account.sent(&SentIds {
            repeated: 1002,
            ..sent(&[], &[])
        });
        let report = account.report();
        assert!(!report.by_id && !report.is_exact());
        assert_eq!((report.sent, report.delivered, report.lost), (1002, 1000, 2));
    }

    /// Scenario: the ids of a body whose items were split and joined, some of them without an id.
    /// Guarantees: runs follow the order of the body.
    #[test]
    fn arrivals_are_runs() {
        let mut arrivals = Arrivals::default();
        for ids in [5..6, 6..9, 2..3, 9..10] {
            arrivals.push(ids);
        }
        assert_eq!(arrivals.runs, [5..9, 2..3, 9..10]);
        arrivals.skip(5);
        assert_eq!(arrivals.runs, vec![9..10; 1]);
    }
}
