//! The account of item ids: what was sent, what arrived, how often.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::ids::for_each_id;
use crate::signal::Signal;
use crate::walk::Malformed;

/// Ids in one page. A page costs 16 KiB: 100 million consecutive ids take 25 MB.
const PAGE_IDS: u64 = 1 << 16;
const PAGE_WORDS: usize = (PAGE_IDS / 64) as usize;

#[derive(Clone, Debug)]
struct Page {
    sent: [u64; PAGE_WORDS],
    delivered: [u64; PAGE_WORDS],
}

/// What became of the ids of one signal.
///
/// Ids may be reported as delivered before they are reported as sent: an answer can be slower than the data.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pages: BTreeMap<u64, Box<Page>>,
    duplicates: u64,
    unmarked: u64,
}

/// The state of a [`Tally`], in items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Different ids that were sent.
    pub sent: u64,
    /// Different ids that arrived.
    pub delivered: u64,
    /// Arrivals of an id that had arrived before.
    pub duplicated: u64,
    /// Ids that were sent and have not arrived.
    pub lost: u64,
    /// Ids that arrived and were not sent.
    pub unknown: u64,
    /// Items that arrived without an id, or with one that no generator makes.
    pub unmarked: u64,
}

impl Report {
    /// Whether every id that was sent arrived exactly once, and nothing else did.
    pub fn is_exact(&self) -> bool {
        self.delivered == self.sent && self.lost + self.duplicated + self.unknown + self.unmarked == 0
    }
}

impl Tally {
    /// An empty account.
    pub fn new() -> Self {
        Tally::default()
    }

    fn page(&mut self, id: u64) -> (&mut Page, usize, u32) {
        let page = self.pages.entry(id / PAGE_IDS).or_insert_with(|| {
            Box::new(Page {
                sent: [0; PAGE_WORDS],
                delivered: [0; PAGE_WORDS],
            })
        });
        (page, (id % PAGE_IDS / 64) as usize, (id % 64) as u32)
    }

    /// Notes that the ids from `first_id` on were sent: call it with what a [`crate::Request`] says, once
    /// the request was accepted.
    pub fn sent(&mut self, first_id: u64, items: u64) {
        for id in first_id..first_id.saturating_add(items) {
            let (page, word, bit) = self.page(id);
            page.sent[word] |= 1 << bit;
        }
    }

    /// Notes that an id arrived; false if it had arrived before.
    pub fn delivered(&mut self, id: u64) -> bool {
        let (page, word, bit) = self.page(id);
        let is_new = page.delivered[word] & 1 << bit == 0;
        page.delivered[word] |= 1 << bit;
        self.duplicates += u64::from(!is_new);
        is_new
    }

    /// How many different ids of a range have arrived.
    pub fn arrived_within(&self, ids: Range<u64>) -> u64 {
        let mut arrived = 0;
        let mut at = ids.start;
        while at < ids.end {
            let word_end = (at / 64 + 1) * 64;
            let end = word_end.min(ids.end);
            if let Some(page) = self.pages.get(&(at / PAGE_IDS)) {
                let word = page.delivered[(at % PAGE_IDS / 64) as usize];
                let from = word >> (at % 64);
                let mask = u64::MAX >> (64 - (end - at));
                arrived += u64::from((from & mask).count_ones());
            }
            at = end;
        }
        arrived
    }

    /// Notes the arrival of every item of a decoded body and returns their number.
    pub fn delivered_body(&mut self, signal: Signal, body: &[u8]) -> Result<u64, Malformed> {
        let mut items = 0;
        for_each_id(signal, body, |id| {
            items += 1;
            match id {
                Some(id) => drop(self.delivered(id)),
                None => self.unmarked += 1,
            }
        })?;
        Ok(items)
    }

    /// The account as it stands.
    pub fn report(&self) -> Report {
        let mut report = Report {
            duplicated: self.duplicates,
            unmarked: self.unmarked,
            ..Report::default()
        };
        for page in self.pages.values() {
            for (sent, delivered) in page.sent.iter().zip(&page.delivered) {
                report.sent += u64::from(sent.count_ones());
                report.delivered += u64::from(delivered.count_ones());
                report.lost += u64::from((sent & !delivered).count_ones());
                report.unknown += u64::from((delivered & !sent).count_ones());
            }
        }
        report
    }

    /// The first `limit` runs of consecutive ids that were sent and have not arrived.
    pub fn lost(&self, limit: usize) -> Vec<Range<u64>> {
        self.runs(limit, |page, word| page.sent[word] & !page.delivered[word])
    }

    /// The first `limit` runs of consecutive ids that arrived.
    pub fn arrived(&self, limit: usize) -> Vec<Range<u64>> {
        self.runs(limit, |page, word| page.delivered[word])
    }

    fn runs(&self, limit: usize, select: impl Fn(&Page, usize) -> u64) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (number, page) in &self.pages {
            for word in 0..PAGE_WORDS {
                let mut bits = select(page, word);
                while bits != 0 {
                    let id = number * PAGE_IDS + word as u64 * 64 + u64::from(bits.trailing_zeros());
                    bits &= bits - 1;
                    if let Some(run) = runs.last_mut().filter(|run| run.end == id) {
                        run.end += 1;
                    } else if runs.len() == limit {
                        return runs;
                    } else {
                        runs.push(id..id + 1);
                    }
                }
            }
        }
        runs
    }
}

/// One [`Tally`] for each signal.
#[derive(Clone, Debug, Default)]
pub struct Tallies([Tally; 3]);

impl Tallies {
    /// Empty accounts.
    pub fn new() -> Self {
        Tallies::default()
    }

    /// The account of a signal.
    pub fn of(&mut self, signal: Signal) -> &mut Tally {
        &mut self.0[signal.index()]
    }

    /// The state of a signal's account.
    pub fn report(&self, signal: Signal) -> Report {
        self.0[signal.index()].report()
    }

    /// Whether every signal's account is exact.
    pub fn is_exact(&self) -> bool {
        self.0.iter().all(|tally| tally.report().is_exact())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FIRST_ID;

    /// Scenario: of ten ids sent, one is lost, one arrives twice, one that was never sent arrives as well.
    /// Guarantees: each case is counted under its own name, and the lost run is named.
    #[test]
    fn every_outcome_has_its_count() {
        let mut tally = Tally::new();
        tally.sent(FIRST_ID, 10);
        for id in (FIRST_ID..FIRST_ID + 11).filter(|id| *id != FIRST_ID + 4) {
            assert!(tally.delivered(id));
        }
        assert!(!tally.delivered(FIRST_ID));
        let expected = Report {
            sent: 10,
            delivered: 10,
            duplicated: 1,
            lost: 1,
            unknown: 1,
            unmarked: 0,
        };
        assert_eq!(tally.report(), expected);
        assert_eq!(tally.lost(5), vec![FIRST_ID + 4..FIRST_ID + 5; 1]);
        assert!(!tally.report().is_exact());
    }

    /// Scenario: ids of two lanes across page borders arrive before they are reported as sent.
    /// Guarantees: order does not matter, and runs join across words and pages.
    #[test]
    fn order_does_not_matter() {
        let mut tally = Tally::new();
        let (first, other) = (FIRST_ID + PAGE_IDS - 100, FIRST_ID + (3 << 32));
        for id in (first..first + 200).chain(other..other + 3) {
            assert!(tally.delivered(id));
        }
        assert_eq!(tally.report().unknown, 203);
        assert_eq!(tally.arrived(9), [first..first + 200, other..other + 3]);
        assert_eq!(tally.arrived(1), vec![first..first + 200; 1]);
        assert_eq!(tally.arrived_within(first + 1..first + 199), 198);
        assert_eq!(tally.arrived_within(first - 70..first + 270), 200);
        assert_eq!(tally.arrived_within(other + 2..other + 2), 0);
        tally.sent(first, 200);
        tally.sent(other, 3);
        assert!(tally.report().is_exact());
    }
}
