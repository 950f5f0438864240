//! What cursors pass: records that they are handed, that they settled in an earlier life, and that are not there any more. Sans-IO.

use sluice_telemetry::DropReason;

use super::{Passing, Place, Spill, is_idle};
use crate::disk::segment::Tally;
use crate::state::{Released, Slot, State};
use crate::{Cost, OnFull};

impl State {
    /// Hands a record to a cursor, if it has not passed it and has not settled it in an earlier life.
    pub(crate) fn hand_out(&mut self, index: usize, record: &Passing, released: &mut Released) -> bool {
        if !self.pass(index, record, released) {
            return false;
        }
        let cursors: Vec<u64> = self.cursors.iter().map(|cursor| cursor.next).collect();
        let remaining = |of: usize| match of == index || cursors[of] <= record.seq {
            true => record.cost.items,
            false => 0,
        };
        self.slots.entry(record.seq).or_insert_with(|| Slot {
            payload: None,
            confirm: None,
            cost: record.cost,
            tenant: record.tenant,
            received_at: record.received_at,
            place: record.place,
            remaining: (0..cursors.len()).map(remaining).collect(),
            dropped: Vec::new(),
        });
        let spill = self.spilled();
        spill.lags[index].in_flight.insert(record.seq);
        spill.lags[index].in_flight_bytes += record.cost.bytes;
        // Whoever was handed a payload holds it by itself.
        if cursors.iter().all(|next| *next > record.seq)
            && let Some(payload) = self
                .slots
                .get_mut(&record.seq)
                .and_then(|slot| slot.payload.take())
        {
            self.spilled().kept_bytes -= payload.retained_bytes();
            released.push(payload);
        }
        true
    }

    /// Drops the oldest record a cursor has not passed: see [`OnFull::DropOldest`].
    pub(crate) fn drop_passed(&mut self, index: usize, record: &Passing, released: &mut Released) {
        if self.hand_out(index, record, released) {
            self.give_up(index, record.seq, DropReason::QueueFull, released);
        }
    }

    /// Whether a cursor is to be cut loose. One that is alone with a payload is kept, however large: an idle exporter is no laggard.
    pub(crate) fn is_laggard(&self, index: usize) -> bool {
        let cursor = &self.cursors[index];
        cursor.spec.on_full == OnFull::DropOldest
            && !cursor.spec.limits.allow(cursor.backlog)
            && cursor.backlog.requests > 1
            && cursor.next < self.end
    }

    /// Moves a cursor behind a record. False: it has nothing to do with it.
    fn pass(&mut self, index: usize, record: &Passing, released: &mut Released) -> bool {
        let next = self.cursors[index].next;
        if record.seq < next {
            return false;
        }
        let skipped = next < record.seq;
        self.jump(index, record.seq, released);
        let from = self.spilled().lags[index].place.segment;
        if from < record.place.segment {
            let between: Vec<u64> = self
                .spilled()
                .segments
                .range(from..record.place.segment)
                .map(|(first, _)| *first)
                .collect();
            for segment in between {
                self.settle_missing(index, segment);
            }
        }
        self.cursors[index].next = record.seq + 1;
        let lag = &mut self.spilled().lags[index];
        // What was handed out is not settled: a position says the same as before. What is not there is behind it.
        lag.moved |= skipped;
        if from != record.place.segment {
            lag.passed = Tally::default();
            lag.skipped = false;
        }
        lag.place = record.place;
        lag.passed.add(record.tenant, record.cost);
        lag.skipped |= skipped;
        while lag
            .settled_before
            .front()
            .is_some_and(|range| range.end <= record.seq)
        {
            lag.settled_before.pop_front();
        }
        let is_new = lag
            .settled_before
            .front()
            .is_none_or(|range| range.start > record.seq);
        if !is_new {
            lag.found_settled.remove(&record.seq);
            self.leave(index, record.seq, released);
        }
        self.count_skipped(index, record);
        is_new
    }

    /// At the end of what is in a segment it is known what of it was not found. Nobody may come by here again for long: the segment
    /// may be the one that is being written.
    fn count_skipped(&mut self, index: usize, record: &Passing) {
        let segment = record.place.segment;
        let Spill { segments, lags, .. } = self.spilled();
        let at_end = segments.get(&segment).filter(|of| of.contents.last == record.seq);
        let Some(of) = at_end.filter(|_| lags[index].skipped) else {
            return;
        };
        let all = of.contents.tally.clone();
        self.settle_missing(index, segment);
        let lag = &mut self.spilled().lags[index];
        (lag.passed, lag.skipped) = (all, false);
    }

    /// Moves a cursor over numbers that are not on the disk. A slot that it jumps over was there once; what was in it
    /// is counted with whatever else is missing from its segment.
    fn jump(&mut self, index: usize, to: u64, released: &mut Released) {
        let from = std::mem::replace(&mut self.cursors[index].next, to);
        let jumped: Vec<u64> = (self.slots.range(from..to))
            .filter(|(_, slot)| slot.remaining[index] > 0)
            .map(|(seq, _)| *seq)
            .collect();
        for seq in jumped {
            if let Some(slot) = self.slots.get(&seq)
                && let Some(confirm) = &slot.confirm
            {
                confirm.cursor_done(Some((DropReason::Damaged, slot.remaining[index])));
            }
            self.leave(index, seq, released);
        }
    }

    /// A cursor has nothing to do with a payload; others may.
    fn leave(&mut self, index: usize, seq: u64, released: &mut Released) {
        let Some(slot) = self.slots.get_mut(&seq) else {
            return;
        };
        slot.remaining[index] = 0;
        let done = slot.remaining.iter().all(|left| *left == 0);
        self.settled_on_disk(index, seq, released);
        if done {
            self.slots.remove(&seq);
        }
    }

    /// The reader came to the end and found nothing more up to number `until`.
    pub(crate) fn caught_up(&mut self, index: usize, until: u64, released: &mut Released) {
        if self.cursors[index].next >= until {
            return;
        }
        self.jump(index, until, released);
        let from = self.spilled().lags[index].place.segment;
        let read: Vec<u64> = (self.spilled().segments.range(from..))
            .filter(|(_, segment)| segment.contents.is_empty() || segment.contents.last < until)
            .map(|(first, _)| *first)
            .collect();
        for segment in read {
            self.settle_missing(index, segment);
            let Spill { segments, lags, .. } = self.spilled();
            let Some(of) = segments.get(&segment) else {
                continue;
            };
            lags[index].place = Place {
                segment,
                offset: of.end,
            };
            lags[index].passed = of.contents.tally.clone();
            lags[index].skipped = false;
            lags[index].moved = true;
        }
    }

    /// Drops from a cursor's account what it should have found in a segment and did not.
    pub(super) fn settle_missing(&mut self, index: usize, segment: u64) {
        let Some(spill) = self.spill.as_deref_mut() else {
            return;
        };
        let Some(of) = spill.segments.get_mut(&segment) else {
            return;
        };
        let lag = &mut spill.lags[index];
        if lag.settled_segments.contains(&segment) {
            return;
        }
        let cursor = &mut self.cursors[index];
        let mut found = match lag.place.segment == segment {
            true => lag.passed.clone(),
            false => Tally::default(),
        };
        // Settled once, whether it can be read now or not.
        let here = segment..=of.contents.last;
        lag.found_settled.retain(|seq, (tenant, cost)| {
            let is_here = here.contains(seq);
            if is_here {
                found.add(*tenant, *cost);
            }
            !is_here
        });
        for (tenant, all) in of.contents.tally.iter() {
            let seen = found.of(tenant);
            let missing = Cost {
                requests: all
                    .requests
                    .saturating_sub(seen.requests)
                    .min(cursor.backlog.requests),
                items: all.items.saturating_sub(seen.items).min(cursor.backlog.items),
                bytes: all.bytes.saturating_sub(seen.bytes).min(cursor.backlog.bytes),
            };
            if missing == Cost::default() {
                continue;
            }
            of.damaged = true;
            spill.lost += missing.requests;
            cursor.backlog.sub(missing);
            let account = cursor.account(tenant);
            let items = missing.items.min(account.queued);
            account.queued -= items;
            account.drop_items(DropReason::Damaged, items);
        }
    }

    /// A cursor has settled all of a record.
    pub(crate) fn settled_on_disk(&mut self, index: usize, seq: u64, released: &mut Released) {
        let cursors: Vec<u64> = self.cursors.iter().map(|cursor| cursor.next).collect();
        let Some(spill) = self.spill.as_deref_mut() else {
            return;
        };
        let Some(slot) = self.slots.get_mut(&seq) else {
            return;
        };
        let lag = &mut spill.lags[index];
        if lag.in_flight.remove(&seq) {
            lag.in_flight_bytes -= slot.cost.bytes;
        }
        lag.moved = true;
        let done = slot.remaining.iter().all(|left| *left == 0);
        if done && let Some(payload) = slot.payload.take() {
            spill.kept_bytes -= payload.retained_bytes();
            released.push(payload);
        }
        if !done && slot.payload.is_none() && is_idle(seq, slot, &cursors) {
            self.slots.remove(&seq);
        }
    }
}
