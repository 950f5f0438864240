//! Which rows of which payload are at the destination, and telling the journal so.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;
use sluice_journal::{Cursor, Settled};
use sluice_telemetry::DropReason;

use super::layout::{ReadyFile, Share};
use super::partition::Partition;
use super::spool::Finished;

/// The account of one cursor.
#[derive(Debug)]
pub(crate) struct Settlement {
    cursor: Cursor,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Items that are not settled, by number.
    open: BTreeMap<u64, u64>,
    /// Files of an earlier process that are being sent: by partition, the last number in each, and the rows that have been
    /// read again since.
    resumed: HashMap<Partition, BTreeMap<u64, Vec<Share>>>,
}

impl Settlement {
    pub fn new(cursor: Cursor) -> Self {
        Self {
            cursor,
            state: Mutex::default(),
        }
    }

    /// A file of an earlier process is about to be sent.
    pub fn resumed(&self, finished: &Finished) {
        let mut state = self.state.lock();
        let of = state.resumed.entry(finished.partition).or_default();
        of.insert(finished.cut.last, Vec::new());
    }

    /// A payload has been read.
    pub fn taken(&self, number: u64, items: u64) {
        if items > 0 {
            self.state.lock().open.insert(number, items);
        }
    }

    /// A payload has been laid out: `rows` of its `items`, of which some are `known` to be in earlier files.
    pub fn laid(&self, number: u64, items: u64, rows: u64, known: &[(Partition, u64)]) {
        if items == 0 {
            self.cursor.settle(&[Settled {
                seq: number,
                delivered: 0,
                dropped: None,
            }]);
        }
        // Only a body that was let in with shallow validation can hold what is no row.
        let unreadable = items.saturating_sub(rows);
        if unreadable > 0 {
            self.settle(
                &[Share {
                    number,
                    rows: unreadable,
                }],
                Some(DropReason::PayloadFault),
            );
        }
        for (partition, rows) in known {
            let share = Share { number, rows: *rows };
            let waits = {
                let mut state = self.state.lock();
                let files = state.resumed.get_mut(partition);
                let file = files.and_then(|files| files.range_mut(number..).next());
                file.map(|(_, shares)| shares.push(share)).is_some()
            };
            if !waits {
                self.settle(&[share], None);
            }
        }
    }

    /// A file is at the destination, or given up.
    pub fn arrived(&self, file: &ReadyFile, dropped: Option<DropReason>) {
        let mut shares = file.shares.clone();
        if shares.is_empty() {
            let mut state = self.state.lock();
            let files = state.resumed.get_mut(&file.finished.partition);
            shares.extend(
                files
                    .and_then(|files| files.remove(&file.finished.cut.last))
                    .into_iter()
                    .flatten(),
            );
        }
        self.settle(&shares, dropped);
    }

    fn settle(&self, shares: &[Share], dropped: Option<DropReason>) {
        let mut settled = Vec::with_capacity(shares.len());
        {
            let mut state = self.state.lock();
            for share in shares {
                let Some(left) = state.open.get_mut(&share.number) else {
                    continue;
                };
                let rows = share.rows.min(*left);
                *left -= rows;
                if *left == 0 {
                    state.open.remove(&share.number);
                }
                settled.push(Settled {
                    seq: share.number,
                    delivered: if dropped.is_none() { rows } else { 0 },
                    dropped: dropped.map(|reason| (reason, rows)),
                });
            }
        }
        self.cursor.settle(&settled);
    }

    /// The lowest number that is not settled.
    pub fn floor(&self) -> u64 {
        self.state.lock().open.keys().next().copied().unwrap_or_default()
    }
}
