//! Items that say who they are, and what became of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use sluice_journal::testing::Random;
use tokio::time::Instant;

/// Numbers of items that belong to one payload: the payload's number is an item's, less these bits.
const PAYLOAD_BITS: u32 = 3;

/// What stands on both sides of a number in a body; a number has no such byte.
const MARK: [u8; 2] = [0xee; 2];

fn framed(tag: u8, inside: &[u8]) -> Vec<u8> {
    assert!(inside.len() < 128, "lengths here have one byte");
    [&[tag, inside.len() as u8], inside].concat()
}

/// The items of a payload: one to seven.
pub fn items_of(payload: u32) -> std::ops::Range<u32> {
    let first = payload << PAYLOAD_BITS;
    first..first + 1 + Random(u64::from(payload)).below(7) as u32
}

/// A request of log records of one of four services, with the item's number as the time of each.
pub fn request(payload: u32) -> Bytes {
    let record = |item: u32| {
        let digits = [0, 7, 14, 21].map(|shift| (item >> shift) as u8 & 0x7f);
        framed(0x12, &[&[0x09], &MARK[..], &digits, &MARK].concat())
    };
    let records: Vec<u8> = items_of(payload).flat_map(record).collect();
    let service = [b's', b'0' + (payload % 4) as u8];
    let attribute = [
        framed(0x0a, b"service.name"),
        framed(0x12, &framed(0x0a, &service)),
    ];
    let resource = framed(0x0a, &framed(0x0a, &attribute.concat()));
    framed(0x0a, &[resource, framed(0x12, &records)].concat()).into()
}

/// The items in a body.
pub fn items_in(body: &[u8]) -> Vec<u32> {
    let framed = body
        .windows(8)
        .filter(|window| window[..2] == MARK && window[6..] == MARK);
    let number = |window: &[u8]| (0..4).map(|at| u32::from(window[2 + at]) << (7 * at)).sum();
    framed.map(number).collect()
}

/// Whether any request with this item is bad.
pub fn is_poison(item: u32) -> bool {
    Random(u64::from(item) ^ 0xbad).one_in(40)
}

/// Whether a destination takes the rest of a request and not this item.
pub fn is_rejected(item: u32) -> bool {
    Random(u64::from(item) ^ 0xdead).one_in(60)
}

/// What became of the items, as clients and the destination know it.
#[derive(Debug, Default)]
pub struct Items {
    /// Clients were told that they are kept.
    pub acked: BTreeSet<u32>,
    /// How often the destination took each.
    pub taken: BTreeMap<u32, u32>,
    /// The gateway was told that they were taken, or rejected for good.
    pub answered: BTreeSet<u32>,
    /// Of those that a process may still read again: when the last one that was told so was.
    told: BTreeMap<u32, Instant>,
    /// Those that were rejected, and the rest of their request taken.
    pub rejected: BTreeSet<u32>,
    /// How often each may have come beyond once.
    may_repeat: BTreeMap<u32, u32>,
    /// Those that a process found waiting, though there was time to write that they were settled.
    read_again: BTreeSet<u32>,
    /// Of this process: items of which it was told that they were taken.
    pub delivered: u64,
    /// Of this process: items that were ever in one request with one that nobody takes.
    pub stuck_with: BTreeSet<u32>,
}

impl Items {
    /// These may come once more: nobody was told that they were taken.
    pub fn may_repeat(&mut self, items: &[u32]) {
        for item in items {
            *self.may_repeat.entry(*item).or_default() += 1;
        }
    }

    /// The gateway is told, and settles them at once.
    pub fn answer(&mut self, items: impl IntoIterator<Item = u32>) {
        let now = Instant::now();
        for item in items {
            self.answered.insert(item);
            self.told.insert(item, now);
        }
    }

    /// The process is gone, and the next one reads what is `waiting`. Of that may come once more what was answered, since its payload may not have been settled
    /// whole, or the position that says so was written after `kept_until` and is not on the disk: nothing else may wait.
    ///
    /// An answer counts until its payload is read again: from then on each item of it is sent, and settled, anew. What does not wait may wait after
    /// the machine has crashed, as long as none has: a position that outlives its process need not outlive the machine.
    pub fn crashed(&mut self, kept_until: Instant, power_failed: bool, waiting: &BTreeSet<u32>) {
        let is_settled = |item: u32| self.told.get(&item).is_some_and(|at| *at <= kept_until);
        let is_whole = |item: &u32| items_of(item >> PAYLOAD_BITS).all(is_settled);
        self.read_again
            .extend(waiting.iter().filter(|item| is_whole(item)));
        let (again, done): (BTreeMap<u32, Instant>, _) = std::mem::take(&mut self.told)
            .into_iter()
            .partition(|(item, _)| waiting.contains(item));
        if !power_failed {
            self.told = done;
        }
        self.may_repeat(&again.into_keys().collect::<Vec<_>>());
        self.delivered = 0;
        self.stuck_with.clear();
    }

    /// Nothing came more often than it may have.
    pub fn assert_repeats_explained(&self) {
        let most = |item| 1 + self.may_repeat.get(item).copied().unwrap_or_default();
        let more: Vec<_> = (self.taken.iter())
            .filter(|(item, times)| **times > most(item))
            .map(|(item, times)| (item, times, most(item)))
            .collect();
        assert!(more.is_empty(), "(item, times taken, at most): {more:?}");
        let again = &self.read_again;
        assert!(again.is_empty(), "settled in time, and read once more: {again:?}");
    }
}

/// Up to so long, in milliseconds that are seldom the same for two: what is at one moment is in any order.
pub fn up_to(random: &mut Random, most: Duration) -> Duration {
    Duration::from_millis(1 + random.below(most.as_millis() as u64))
}
