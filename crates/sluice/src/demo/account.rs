//! What is known at one moment, and the rates between two.

use std::collections::VecDeque;
use std::time::Duration;

use sluice_loadgen::Signal;

use crate::ledger::LedgerLine;

/// The span that rates are taken over: long enough to be steady, short enough to be live.
const RATE_WINDOW: Duration = Duration::from_secs(1);

/// Items of one signal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Flow {
    /// Acknowledged to the senders.
    pub sent: u64,
    /// Taken in, says the ledger.
    pub accepted: u64,
    /// Written, says the ledger.
    pub delivered: u64,
    /// Given up, says the ledger.
    pub dropped: u64,
    /// Waiting, says the ledger.
    pub queued: u64,
}

/// What is known at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Snapshot {
    /// Since the load began.
    pub elapsed: Duration,
    /// By [`Signal::index`].
    pub flows: [Flow; 3],
    /// Whether every account of the ledger balances.
    pub balanced: bool,
    /// Requests that were refused, and retried.
    pub refused: u64,
    /// What the queues retain.
    pub queue_bytes: u64,
    /// The age of the oldest request in a queue.
    pub queue_age_seconds: f64,
    /// Reserved bytes of the memory budget.
    pub budget_used: u64,
    /// The memory budget.
    pub budget_capacity: u64,
    /// Resident memory of the process, load generator included.
    pub resident_bytes: Option<u64>,
    /// CPU time of the process, load generator included.
    pub cpu_seconds: Option<f64>,
    /// Size of the files.
    pub disk_bytes: u64,
}

impl Snapshot {
    /// What the ledger says; the rest is zero.
    pub fn of_ledger(lines: &[LedgerLine]) -> Self {
        let mut snapshot = Snapshot {
            balanced: lines.iter().all(|line| line.total.balanced()),
            ..Default::default()
        };
        for line in lines {
            snapshot.queue_bytes += line.queued_bytes;
            snapshot.queue_age_seconds = snapshot.queue_age_seconds.max(line.queue_age_seconds);
            let Ok(signal) = line.signal.parse::<Signal>() else {
                continue;
            };
            let flow = &mut snapshot.flows[signal.index()];
            flow.accepted += line.total.accepted;
            flow.delivered += line.total.delivered;
            flow.dropped += line.total.dropped_total();
            flow.queued += line.total.queued;
        }
        snapshot
    }

    /// All signals together.
    pub fn total(&self) -> Flow {
        self.flows.iter().fold(Flow::default(), |sum, flow| Flow {
            sent: sum.sent + flow.sent,
            accepted: sum.accepted + flow.accepted,
            delivered: sum.delivered + flow.delivered,
            dropped: sum.dropped + flow.dropped,
            queued: sum.queued + flow.queued,
        })
    }
}

/// What happened over the last second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Rates {
    /// Items a second acknowledged to the senders, by [`Signal::index`].
    pub sent: [f64; 3],
    /// Items a second written.
    pub delivered: [f64; 3],
    /// Cores in use.
    pub cores: Option<f64>,
}

/// The first snapshot, and those of the last second.
#[derive(Debug, Default)]
pub(super) struct History {
    first: Option<Snapshot>,
    recent: VecDeque<Snapshot>,
}

impl History {
    /// Adds what is known now.
    pub fn push(&mut self, snapshot: Snapshot) {
        self.first.get_or_insert_with(|| snapshot.clone());
        self.recent.push_back(snapshot);
        let Some(now) = self.recent.back().map(|last| last.elapsed) else {
            return;
        };
        // One snapshot from before the window stays, to measure from.
        while self
            .recent
            .get(1)
            .is_some_and(|second| now - second.elapsed >= RATE_WINDOW)
        {
            self.recent.pop_front();
        }
    }

    /// The first snapshot.
    pub fn first(&self) -> Option<&Snapshot> {
        self.first.as_ref()
    }

    /// The latest snapshot.
    pub fn last(&self) -> Option<&Snapshot> {
        self.recent.back()
    }

    /// The rates over the window; zero until there are two snapshots.
    pub fn rates(&self) -> Rates {
        let (Some(old), Some(new)) = (self.recent.front(), self.recent.back()) else {
            return Rates::default();
        };
        let seconds = (new.elapsed - old.elapsed).as_secs_f64();
        if seconds <= 0.0 {
            return Rates::default();
        }
        let per_second = |count: fn(&Flow) -> u64| {
            [0, 1, 2].map(|signal: usize| {
                count(&new.flows[signal]).saturating_sub(count(&old.flows[signal])) as f64 / seconds
            })
        };
        Rates {
            sent: per_second(|flow| flow.sent),
            delivered: per_second(|flow| flow.delivered),
            cores: new
                .cpu_seconds
                .zip(old.cpu_seconds)
                .map(|(new, old)| (new - old) / seconds),
        }
    }
}
