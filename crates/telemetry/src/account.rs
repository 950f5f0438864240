//! The account of items by outcome: one per exporter cursor and tenant.

use serde::Serialize;

/// Why items were given up. Each is counted apart; none is silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DropReason {
    /// The destination refused the payload for good (400, 413 on a single item, 422, INVALID_ARGUMENT), and it was not kept.
    PayloadFault,
    /// The same, and it is kept as a dead letter.
    DeadLetter,
    /// The destination accepted the request and rejected some of its items (`partial_success`).
    PartialSuccess,
    /// The retry time configured by `max_elapsed_time` ran out, or retries are disabled.
    RetryExhausted,
    /// The queue was full and its `on_full` is `drop_oldest`.
    QueueFull,
    /// Still queued in memory at the stop: the deadline passed, or the destination refuses everything.
    Shutdown,
    /// It was in a journal on disk and could not be read from there.
    Damaged,
}

impl DropReason {
    /// All of them, in the order of their index.
    pub const ALL: [DropReason; 7] = [
        DropReason::PayloadFault,
        DropReason::DeadLetter,
        DropReason::PartialSuccess,
        DropReason::RetryExhausted,
        DropReason::QueueFull,
        DropReason::Shutdown,
        DropReason::Damaged,
    ];

    /// The value of the `reason` label.
    pub fn as_str(self) -> &'static str {
        match self {
            DropReason::PayloadFault => "payload_fault",
            DropReason::DeadLetter => "dead_letter",
            DropReason::PartialSuccess => "partial_success",
            DropReason::RetryExhausted => "retry_exhausted",
            DropReason::QueueFull => "queue_full",
            DropReason::Shutdown => "shutdown",
            DropReason::Damaged => "damaged",
        }
    }
}

/// Items by outcome. Kept by the journal under its own lock, so that a copy is always consistent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// Taken in from receivers.
    pub accepted: u64,
    /// Found in a durable journal at start.
    pub recovered: u64,
    /// Confirmed by the destination.
    pub delivered: u64,
    /// Given up, by [`DropReason`] index.
    pub dropped: [u64; DropReason::ALL.len()],
    /// In the journal, neither delivered nor dropped.
    pub queued: u64,
}

impl Account {
    /// Adds `items` given up for `reason`.
    pub fn drop_items(&mut self, reason: DropReason, items: u64) {
        self.dropped[reason as usize] += items;
    }

    /// Items given up, all reasons together.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// The promise: what came in equals what went out, was given up, or is still here.
    pub fn balanced(&self) -> bool {
        self.accepted + self.recovered == self.delivered + self.dropped_total() + self.queued
    }

    /// Adds another account to this one.
    pub fn add(&mut self, other: &Account) {
        self.accepted += other.accepted;
        self.recovered += other.recovered;
        self.delivered += other.delivered;
        self.queued += other.queued;
        for (mine, theirs) in self.dropped.iter_mut().zip(other.dropped) {
            *mine += theirs;
        }
    }
}

impl Serialize for Account {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(Some(6))?;
        map.serialize_entry("accepted", &self.accepted)?;
        map.serialize_entry("recovered", &self.recovered)?;
        map.serialize_entry("delivered", &self.delivered)?;
        let dropped: std::collections::BTreeMap<_, _> = DropReason::ALL
            .iter()
            .map(|r| (r.as_str(), self.dropped[*r as usize]))
            .collect();
        map.serialize_entry("dropped", &dropped)?;
        map.serialize_entry("queued", &self.queued)?;
        map.serialize_entry("balanced", &self.balanced())?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: items come in and leave by every door; then one is lost behind the account's back.
    /// Guarantees: the account balances as long as nothing is silent, and says so when it does not.
    #[test]
    fn account_balances() {
        let mut account = Account {
            accepted: 4 + DropReason::ALL.len() as u64,
            recovered: 2,
            delivered: 5,
            queued: 1,
            ..Default::default()
        };
        for reason in DropReason::ALL {
            account.drop_items(reason, 1);
        }
        assert!(account.balanced());
        account.delivered -= 1;
        assert!(!account.balanced());
        let json = serde_json::to_value(account).unwrap();
        assert_eq!(json["dropped"]["queue_full"], 1);
        assert_eq!(json["balanced"], false);
    }
}
