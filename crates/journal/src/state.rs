//! The queue and its accounts, as one plain data structure behind the journal's lock.
//!
//! Sans-IO: no clock, no channel, no task. Payloads to free are handed out, so that the caller can
//! free them after the lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use sluice_payload::{Payload, TenantId};
use sluice_telemetry::{Account, DropReason};

use crate::{Confirm, Cost, CursorSpec, Depth, Full, OnFull};

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

pub(crate) struct State {
    /// Sequence number of the first slot.
    base: u64,
    slots: VecDeque<Slot>,
    /// Items not settled yet, by slot and cursor: `remaining[(seq - base) * cursors + cursor]`.
    remaining: VecDeque<u64>,
    cursors: Vec<CursorState>,
    reserved: Cost,
    pub(crate) closed: bool,
}

struct Slot {
    payload: Option<Arc<Payload>>,
    confirm: Option<Confirm>,
    cost: Cost,
    tenant: TenantId,
    received_at: Instant,
    /// Cursors that have not settled it.
    pending: u32,
    /// Items given up by cursor and the last reason, if somebody waits for the confirmation.
    dropped: Vec<Option<(DropReason, u64)>>,
}

struct CursorState {
    spec: CursorSpec,
    /// Sequence number of the next payload to hand out.
    next: u64,
    backlog: Cost,
    /// Indexed by tenant.
    accounts: Vec<Account>,
}

impl CursorState {
    fn account(&mut self, tenant: TenantId) -> &mut Account {
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
                accounts: Vec::new(),
            })
            .collect();
        Self {
            base: 0,
            slots: VecDeque::new(),
            remaining: VecDeque::new(),
            cursors,
            reserved: Cost::default(),
            closed: false,
        }
    }

    fn end(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    pub(crate) fn reserve(&mut self, cost: Cost) -> Result<(), Full> {
        if self.closed {
            return Err(Full::Closed);
        }
        let mut full = None;
        let mut room = false;
        for cursor in &self.cursors {
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
            let Cost {
                requests,
                items,
                bytes,
            } = cursor.backlog;
            let exporter = || cursor.spec.exporter.clone();
            if cursor.spec.on_full == OnFull::Refuse {
                return Err(Full::Now {
                    exporter: exporter(),
                    requests,
                    items,
                    bytes,
                });
            }
            full.get_or_insert_with(|| Full::Now {
                exporter: exporter(),
                requests,
                items,
                bytes,
            });
        }
        if let Some(full) = full.filter(|_| !room) {
            return Err(full);
        }
        self.reserved.add(cost);
        Ok(())
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
        let seq = self.end();
        let cursors = self.cursors.len();
        self.remaining.extend(std::iter::repeat_n(cost.items, cursors));
        for cursor in &mut self.cursors {
            cursor.backlog.add(cost);
            let account = cursor.account(payload.tenant);
            account.accepted += cost.items;
            account.queued += cost.items;
        }
        self.slots.push_back(Slot {
            tenant: payload.tenant,
            received_at: payload.received_at,
            payload: Some(payload),
            confirm,
            cost,
            pending: cursors as u32,
            dropped: Vec::new(),
        });
        for index in 0..cursors {
            self.cut_loose(index, released);
        }
        seq
    }

    /// Drops the oldest unread payloads of a `drop_oldest` cursor until it is within its limits.
    fn cut_loose(&mut self, index: usize, released: &mut Released) {
        while self.cursors[index].spec.on_full == OnFull::DropOldest
            && !self.cursors[index].spec.limits.allow(self.cursors[index].backlog)
            && self.cursors[index].next < self.end()
        {
            let seq = self.cursors[index].next;
            self.cursors[index].next += 1;
            self.give_up(index, seq, DropReason::QueueFull, released);
        }
    }

    fn give_up(&mut self, index: usize, seq: u64, reason: DropReason, released: &mut Released) {
        let left = self.remaining[self.cell(index, seq)];
        self.settle_one(
            index,
            Settled {
                seq,
                delivered: 0,
                dropped: Some((reason, left)),
            },
            released,
        );
    }

    fn cell(&self, cursor: usize, seq: u64) -> usize {
        (seq - self.base) as usize * self.cursors.len() + cursor
    }

    /// The next payload for a cursor.
    pub(crate) fn next(&mut self, index: usize) -> Option<(u64, Arc<Payload>)> {
        let seq = self.cursors[index].next;
        let slot = self.slots.get((seq.checked_sub(self.base)?) as usize)?;
        let payload = slot.payload.clone()?;
        self.cursors[index].next += 1;
        Some((seq, payload))
    }

    pub(crate) fn settle(&mut self, index: usize, settled: &[Settled], released: &mut Released) {
        for one in settled {
            self.settle_one(index, *one, released);
        }
    }

    fn settle_one(&mut self, index: usize, settled: Settled, released: &mut Released) {
        // Given up at the shutdown deadline while it was in flight: its account is closed.
        if settled.seq < self.base {
            return;
        }
        let cell = self.cell(index, settled.seq);
        let slot_index = (settled.seq - self.base) as usize;
        if self.remaining[cell] == 0 {
            return;
        }
        debug_assert!(
            settled.items() <= self.remaining[cell],
            "a cursor settles no more than it was handed"
        );
        self.remaining[cell] -= settled.items();
        let complete = self.remaining[cell] == 0;
        let cursors = self.cursors.len();

        let slot = &mut self.slots[slot_index];
        let cursor = &mut self.cursors[index];
        cursor.backlog.items -= settled.items();
        let account = cursor.account(slot.tenant);
        account.queued -= settled.items();
        account.delivered += settled.delivered;
        if let Some((reason, items)) = settled.dropped {
            account.drop_items(reason, items);
            if slot.confirm.is_some() {
                slot.dropped.resize(cursors, None);
                let before = slot.dropped[index].map_or(0, |(_, items)| items);
                slot.dropped[index] = Some((reason, before + items));
            }
        }
        if !complete {
            return;
        }
        cursor.backlog.sub(Cost {
            items: 0,
            ..slot.cost
        });
        slot.pending -= 1;
        if let Some(confirm) = &slot.confirm {
            confirm.cursor_done(slot.dropped.get(index).copied().flatten());
        }
        if slot.pending == 0 {
            slot.confirm = None;
            released.extend(slot.payload.take());
        }
        while self.slots.front().is_some_and(|slot| slot.pending == 0) {
            self.slots.pop_front();
            self.remaining.drain(..cursors);
            self.base += 1;
        }
    }

    /// Gives up everything that is left, at the shutdown deadline.
    pub(crate) fn abandon(&mut self, released: &mut Released) {
        self.closed = true;
        for index in 0..self.cursors.len() {
            self.cursors[index].next = self.end();
            let mut seq = self.base;
            while seq < self.end() {
                // Settling may move the base forward past several slots.
                seq = seq.max(self.base);
                if seq < self.end() && self.remaining[self.cell(index, seq)] > 0 {
                    self.give_up(index, seq, DropReason::Shutdown, released);
                }
                seq += 1;
            }
        }
    }

    pub(crate) fn cursor_count(&self) -> usize {
        self.cursors.len()
    }

    pub(crate) fn depth(&self, index: usize, now: Instant) -> Depth {
        let oldest = (0..self.slots.len())
            .find(|slot| self.remaining[slot * self.cursors.len() + index] > 0)
            .map(|slot| now.saturating_duration_since(self.slots[slot].received_at));
        Depth {
            backlog: self.cursors[index].backlog,
            age: oldest.unwrap_or_default(),
        }
    }

    pub(crate) fn exporter(&self, index: usize) -> &str {
        &self.cursors[index].spec.exporter
    }

    pub(crate) fn accounts(&self, index: usize) -> &[Account] {
        &self.cursors[index].accounts
    }
}
