//! Which rows of which payload are at the destination, and telling the journal so.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;

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
    /// What is not settled, by number.
    open: BTreeMap<u64, Open>,
    /// The last number that was laid out.
    laid: Option<u64>,
    /// Files of an earlier process that are being sent: by partition, the last number in each, and the rows that have been
    /// read again since.
    resumed: HashMap<Partition, BTreeMap<u64, Vec<Share>>>,
}

/// A payload that is not settled.
#[derive(Debug)]
struct Open {
    /// Items that are not settled.
    left: u64,
    /// Those of them that are in files on their way.
    sent: u64,
    received_at: Instant,
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

    /// A payload has been read for the first time.
    pub fn taken(&self, number: u64, items: u64, received_at: Instant) {
        let open = Open {
            left: items,
            sent: 0,
            received_at,
        };
        self.state.lock().open.insert(number, open);
    }

    /// A payload has been laid out: `rows` of its `items`, of which some are `known` to be in earlier files. Nothing happens where
    /// it was before: all of that is accounted for.
    pub fn laid(&self, number: u64, items: u64, rows: u64, known: &[(Partition, u64)]) {
        {
            let mut state = self.state.lock();
            if state.laid.is_some_and(|laid| number <= laid) {
                return;
            }
            state.laid = Some(number);
            if items == 0 {
                state.open.remove(&number);
            }
        }
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
            self.drop(number, unreadable, DropReason::PayloadFault);
        }
        for (partition, rows) in known {
            let share = Share { number, rows: *rows };
            let waits = {
                let mut state = self.state.lock();
                let files = state.resumed.get_mut(partition);
                let file = files.and_then(|files| files.range_mut(number..).next());
                let waits = file.map(|(_, shares)| shares.push(share)).is_some();
                if let Some(open) = state.open.get_mut(&number).filter(|_| waits) {
                    open.sent += rows;
                }
                waits
            };
            if !waits {
                self.settle(&[share], None);
            }
        }
    }

    /// A file has been cut with these rows, and is about to be sent.
    pub fn cut(&self, shares: &[Share]) {
        let mut state = self.state.lock();
        for share in shares {
            if let Some(open) = state.open.get_mut(&share.number) {
                open.sent += share.rows;
            }
        }
    }

    /// A file is at the destination, or given up.
    pub fn arrived(&self, file: &ReadyFile, dropped: Option<DropReason>) {
        let mut shares = file.shares.clone();
        {
            let mut state = self.state.lock();
            if shares.is_empty() {
                let files = state.resumed.get_mut(&file.finished.partition);
                let file = files.and_then(|files| files.remove(&file.finished.cut.last));
                shares.extend(file.into_iter().flatten());
            }
            for share in &shares {
                if let Some(open) = state.open.get_mut(&share.number) {
                    open.sent = open.sent.saturating_sub(share.rows);
                }
            }
        }
        self.settle(&shares, dropped);
    }

    /// The numbers of which something is in no file that is on its way, in order: what is to be laid out again where open files
    /// are lost.
    pub fn unwritten(&self) -> VecDeque<u64> {
        let state = self.state.lock();
        let unwritten = |(number, open): (&u64, &Open)| {
            (open.left > open.sent || state.laid.is_none_or(|laid| *number > laid)).then_some(*number)
        };
        state.open.iter().filter_map(unwritten).collect()
    }

    /// A payload goes into no file any more: what is in none that is on its way is lost.
    pub fn lost(&self, number: u64, reason: DropReason) {
        let lost = {
            let mut state = self.state.lock();
            state.laid = state.laid.max(Some(number));
            state
                .open
                .get(&number)
                .map_or(0, |open| open.left.saturating_sub(open.sent))
        };
        self.drop(number, lost, reason);
    }

    fn drop(&self, number: u64, rows: u64, reason: DropReason) {
        self.settle(&[Share { number, rows }], Some(reason));
    }

    fn settle(&self, shares: &[Share], dropped: Option<DropReason>) {
        let mut settled = Vec::with_capacity(shares.len());
        {
            let mut state = self.state.lock();
            for share in shares {
                let Some(open) = state.open.get_mut(&share.number) else {
                    continue;
                };
                let rows = share.rows.min(open.left);
                open.left -= rows;
                if open.left == 0 {
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

    /// When the first payload was received that is not settled.
    pub fn oldest(&self) -> Option<Instant> {
        let state = self.state.lock();
        state.open.values().next().map(|open| open.received_at)
    }

    /// The lowest number that is not settled.
    pub fn floor(&self) -> u64 {
        self.state.lock().open.keys().next().copied().unwrap_or_default()
    }
}
