//! The queue and its accounts, as one plain data structure behind the journal's lock.
//!
//! Sans-IO: no clock, no channel, no task. Payloads to free are handed out, so that the caller can
//! free them after the lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use sluice_admission::DrainRate;
use sluice_payload::{Payload, TenantId};
use sluice_telemetry::{Account, DropReason};

use crate::disk::{Place, Spill};
use crate::pace::Pace;
use crate::{Confirm, Cost, CursorSpec, Depth, Full, OnFull, Strain};

/// What came of some items of one payload at one cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// The payload's sequence number.
    pub seq: u64,
    /// Items the destination confirmed.
    pub delivered: u64,
    /// Items given up, and why.
    pub dropped: Option<(DropReason, u64)>,
}

impl Settled {
    fn items(&self) -> u64 {
        self.delivered + self.dropped.map_or(0, |(_, items)| items)
    }
}

/// Of two reasons, the one a waiting client should hear: what may work on a retry outweighs what never will.
pub(crate) fn worse(a: DropReason, b: DropReason) -> DropReason {
    use DropReason::{DeadLetter, PartialSuccess, PayloadFault};
    let final_ = |reason| matches!(reason, PayloadFault | DeadLetter | PartialSuccess);
    if final_(a) { b } else { a }
}

pub(crate) struct State {
    /// What some cursor has not settled, by sequence number. A settled slot goes at once, whatever
    /// stands before it: one dead exporter holds its own backlog here, and nothing else.
    ///
    /// A journal on disk keeps only those here that are being sent, or near the end: see [`Spill`].
    pub(crate) slots: BTreeMap<u64, Slot>,
    /// The sequence number of the next payload.
    pub(crate) end: u64,
    pub(crate) cursors: Vec<CursorState>,
    reserved: Cost,
    pub(crate) closed: bool,
    /// What a journal on disk knows beside.
    pub(crate) spill: Option<Box<Spill>>,
}

pub(crate) struct Slot {
    /// `None` when it is on the disk alone.
    pub payload: Option<Arc<Payload>>,
    pub confirm: Option<Confirm>,
    pub cost: Cost,
    pub tenant: TenantId,
    pub received_at: Instant,
    /// Where it is on the disk.
    pub place: Place,
    /// Items not settled yet, by cursor.
    pub remaining: Box<[u64]>,
    /// Items given up by cursor and the last reason, if somebody waits for the confirmation.
    pub dropped: Vec<Option<(DropReason, u64)>>,
}

pub(crate) struct CursorState {
    pub spec: CursorSpec,
    /// Sequence number of the next payload to hand out.
    pub next: u64,
    pub backlog: Cost,
    pace: Pace,
    /// What leaves; `None` before anything has, or anybody has asked.
    drain: Option<DrainRate>,
    /// Indexed by tenant.
    accounts: Vec<Account>,
}

impl CursorState {
    fn full(&mut self, now: Instant) -> Full {
        let Cost {
            requests,
            items,
            bytes,
        } = self.backlog;
        let drain = self.drain.get_or_insert_with(|| DrainRate::new(now));
        Full::Now {
            exporter: self.spec.exporter.clone(),
            requests,
            items,
            bytes,
            drains_in: drain.time_for(bytes, now),
        }
    }

    pub(crate) fn account(&mut self, tenant: TenantId) -> &mut Account {
        let index = tenant.index();
        if index >= self.accounts.len() {
            self.accounts.resize(index + 1, Account::default());
        }
        &mut self.accounts[index]
    }
}

/// Freed by the caller once the lock is gone.
pub(crate) type Released = Vec<Arc<Payload>>;

impl State {
    pub(crate) fn new(specs: Vec<CursorSpec>) -> Self {
        let cursors = specs
            .into_iter()
            .map(|spec| CursorState {
                spec,
                next: 0,
                backlog: Cost::default(),
                pace: Pace::default(),
                drain: None,
                accounts: Vec::new(),
            })
            .collect();
        Self {
            slots: BTreeMap::new(),
            end: 0,
            cursors,
            reserved: Cost::default(),
            closed: false,
            spill: None,
        }
    }

    /// Reads the clock only where there is no room.
    pub(crate) fn reserve(&mut self, cost: Cost, now: impl Fn() -> Instant) -> Result<(), Full> {
        if self.closed {
            return Err(Full::Closed);
        }
        let mut full = None;
        let mut room = false;
        for cursor in &mut self.cursors {
            let mut after = cursor.backlog;
            after.add(self.reserved);
            // A payload larger than the whole queue is taken when the queue is empty, or it could
            // never be taken at all.
            let empty = after == Cost::default();
            after.add(cost);
            if empty || cursor.spec.limits.allow(after) {
                room = true;
                continue;
            }
            if cursor.spec.on_full == OnFull::Refuse {
                return Err(cursor.full(now()));
            }
            if full.is_none() {
                full = Some(cursor.full(now()));
            }
        }
        if let Some(full) = full.filter(|_| !room) {
            return Err(full);
        }
        self.reserved.add(cost);
        Ok(())
    }

    pub(crate) fn backlog_bytes(&self) -> u64 {
        if let Some(spill) = &self.spill {
            // As long as somebody is far behind there is no less than what may be kept.
            return match self.is_far_behind() {
                true => spill.most_kept_bytes,
                false => spill.kept_bytes,
            };
        }
        let backlogs = self.cursors.iter().map(|cursor| cursor.backlog.bytes);
        backlogs.max().unwrap_or_default()
    }

    /// Whether what waits for the cursor that lags most is more than leaves in a while.
    pub(crate) fn is_far_from_eased(&mut self, now: Instant) -> bool {
        let laggard = self.cursors.iter_mut().max_by_key(|cursor| cursor.backlog.bytes);
        laggard.is_some_and(|cursor| cursor.pace.is_too_slow_for(cursor.backlog.bytes, now))
    }

    pub(crate) fn unreserve(&mut self, cost: Cost) {
        self.reserved.sub(cost);
    }

    /// Takes a payload whose space was reserved (and has been given back by the caller).
    pub(crate) fn append(
        &mut self,
        payload: Arc<Payload>,
        cost: Cost,
        confirm: Option<Confirm>,
        released: &mut Released,
    ) -> u64 {
        let seq = self.end;
        self.insert(seq, Place::default(), payload, cost, confirm);
        for index in 0..self.cursors.len() {
            self.cut_loose(index, released);
        }
        seq
    }

    /// Takes a payload into the account of every cursor, as number `seq`.
    pub(crate) fn insert(
        &mut self,
        seq: u64,
        place: Place,
        payload: Arc<Payload>,
        cost: Cost,
        confirm: Option<Confirm>,
    ) {
        let cursors = self.cursors.len();
        for cursor in &mut self.cursors {
            cursor.backlog.add(cost);
            let account = cursor.account(payload.tenant);
            account.accepted += cost.items;
            account.queued += cost.items;
        }
        let slot = Slot {
            tenant: payload.tenant,
            received_at: payload.received_at,
            payload: Some(payload),
            confirm,
            cost,
            place,
            remaining: vec![cost.items; cursors].into(),
            dropped: Vec::new(),
        };
        self.slots.insert(seq, slot);
        self.end = seq + 1;
    }

    /// Drops the oldest unread payloads of a `drop_oldest` cursor until it is within its limits. One
    /// that is alone is kept, however large: an idle exporter is no laggard.
    fn cut_loose(&mut self, index: usize, released: &mut Released) {
        while self.cursors[index].spec.on_full == OnFull::DropOldest
            && !self.cursors[index].spec.limits.allow(self.cursors[index].backlog)
            && self.cursors[index].backlog.requests > 1
        {
            let next = self.cursors[index].next;
            let Some((&seq, _)) = self.slots.range(next..).next() else {
                return;
            };
            self.cursors[index].next = seq + 1;
            self.give_up(index, seq, DropReason::QueueFull, released);
        }
    }

    pub(crate) fn give_up(&mut self, index: usize, seq: u64, reason: DropReason, released: &mut Released) {
        let Some(slot) = self.slots.get(&seq) else { return };
        let dropped = Some((reason, slot.remaining[index]));
        self.settle_one(
            index,
            Settled {
                seq,
                delivered: 0,
                dropped,
            },
            released,
        );
    }

    /// The next payload for a cursor.
    pub(crate) fn next(&mut self, index: usize) -> Option<(u64, Arc<Payload>)> {
        let (&seq, slot) = self.slots.range(self.cursors[index].next..).next()?;
        let payload = slot.payload.clone()?;
        self.cursors[index].next = seq + 1;
        Some((seq, payload))
    }

    pub(crate) fn settle(
        &mut self,
        index: usize,
        settled: &[Settled],
        now: Instant,
        released: &mut Released,
    ) {
        let before = self.cursors[index].backlog.bytes;
        for one in settled {
            self.settle_one(index, *one, released);
        }
        let cursor = &mut self.cursors[index];
        let after = cursor.backlog.bytes;
        cursor.pace.left(before - after, after, now);
        let drain = cursor.drain.get_or_insert_with(|| DrainRate::new(now));
        drain.drained(before - after, now);
    }

    fn settle_one(&mut self, index: usize, settled: Settled, released: &mut Released) {
        // Given up at the shutdown deadline while it was in flight: its account is closed.
        let Some(slot) = self.slots.get_mut(&settled.seq) else {
            return;
        };
        if slot.remaining[index] == 0 {
            return;
        }
        debug_assert!(
            settled.items() <= slot.remaining[index],
            "a cursor settles no more than it was handed"
        );
        slot.remaining[index] -= settled.items();
        let cursor = &mut self.cursors[index];
        cursor.backlog.items -= settled.items();
        let account = cursor.account(slot.tenant);
        account.queued -= settled.items();
        account.delivered += settled.delivered;
        if let Some((reason, items)) = settled.dropped {
            account.drop_items(reason, items);
            if slot.confirm.is_some() {
                slot.dropped.resize(slot.remaining.len(), None);
                slot.dropped[index] = Some(match slot.dropped[index] {
                    Some((before, more)) => (worse(before, reason), more + items),
                    None => (reason, items),
                });
            }
        }
        if slot.remaining[index] > 0 {
            return;
        }
        cursor.backlog.sub(Cost {
            items: 0,
            ..slot.cost
        });
        if let Some(confirm) = &slot.confirm {
            confirm.cursor_done(slot.dropped.get(index).copied().flatten());
        }
        let done = slot.remaining.iter().all(|left| *left == 0);
        if self.spill.is_some() {
            self.settled_on_disk(index, settled.seq, released);
        }
        if done && let Some(slot) = self.slots.remove(&settled.seq) {
            released.extend(slot.payload);
        }
    }

    /// Gives up everything that is left, at the shutdown deadline.
    pub(crate) fn abandon(&mut self, released: &mut Released) {
        self.closed = true;
        let left: Vec<u64> = self.slots.keys().copied().collect();
        for index in 0..self.cursors.len() {
            self.cursors[index].next = self.end;
            for seq in &left {
                if self.slots.get(seq).is_some_and(|slot| slot.remaining[index] > 0) {
                    self.give_up(index, *seq, DropReason::Shutdown, released);
                }
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn cursor_count(&self) -> usize {
        self.cursors.len()
    }

    pub(crate) fn depth(&self, index: usize, now: Instant) -> Depth {
        let oldest = match &self.spill {
            Some(_) => self.age_on_disk(index, now, std::time::SystemTime::now()),
            None => (self.slots.values())
                .find(|slot| slot.remaining[index] > 0)
                .map(|slot| now.saturating_duration_since(slot.received_at)),
        };
        Depth {
            backlog: self.cursors[index].backlog,
            age: oldest.unwrap_or_default(),
        }
    }

    pub(crate) fn strain(&self, now: Instant) -> Strain {
        let coupled = |index: usize| self.cursors[index].spec.on_full == OnFull::Refuse;
        let age = match &self.spill {
            Some(_) => (0..self.cursors.len())
                .filter(|index| coupled(*index))
                .map(|index| self.depth(index, now).age)
                .max(),
            None => {
                let waits =
                    |slot: &&Slot| (0..self.cursors.len()).any(|i| coupled(i) && slot.remaining[i] > 0);
                (self.slots.values().find(waits)).map(|slot| now.saturating_duration_since(slot.received_at))
            }
        };
        let filled = (0..self.cursors.len())
            .filter(|index| coupled(*index))
            .map(|index| {
                let CursorState { spec, backlog, .. } = &self.cursors[index];
                spec.limits.filled(*backlog)
            });
        Strain {
            filled: filled.fold(0.0, f64::max),
            age: age.unwrap_or_default(),
        }
    }

    pub(crate) fn exporter(&self, index: usize) -> &str {
        &self.cursors[index].spec.exporter
    }

    pub(crate) fn accounts(&self, index: usize) -> &[Account] {
        &self.cursors[index].accounts
    }
}
