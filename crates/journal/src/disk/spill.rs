//! What the state of a journal on disk has beside that of one in memory: which segments there are, what of them each
//! cursor has passed, and which payloads are kept in memory. Sans-IO.
//!
//! A slot exists for a payload that a cursor is sending, or that is kept near the end because a cursor will want it
//! soon. Of everything else only sums are known: what a cursor has not passed yet is its backlog, and what it has passed
//! and is not sending is settled.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use sluice_payload::{Payload, TenantId};

use super::log::Written;
use super::segment::{Contents, SegmentId, Tally, time};
use super::unreadable::Unreadable;
use crate::state::{CursorState, Released, Slot, State};
use crate::{Confirm, Cost, Entry};

mod done;
mod pass;

/// Where a record is: its segment, by first sequence number, and its offset there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub segment: u64,
    pub offset: u64,
}

/// A segment that some cursor still needs, or that is being written.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub id: SegmentId,
    pub contents: Contents,
    /// Where the records that may be read end.
    pub end: u64,
    /// Bytes of the file.
    pub size_bytes: u64,
    /// Nothing is written to it any more.
    pub closed: bool,
    /// Something in it could not be read, or is not there.
    pub damaged: bool,
    /// Where it could not be read.
    pub unreadable: Unreadable,
}

/// What one cursor has passed.
#[derive(Debug, Default)]
pub(crate) struct Lag {
    /// Where to look for the next record: there, or behind it.
    pub place: Place,
    /// What it has passed of the segment of `place`.
    pub passed: Tally,
    /// It has passed over numbers of that segment, be it only the one that every segment leaves out.
    pub skipped: bool,
    /// What it has been handed and not settled.
    pub in_flight: BTreeSet<u64>,
    pub in_flight_bytes: u64,
    /// Its own limit of that, for a reader that does not keep in memory what it was handed.
    pub most_in_flight_bytes: Option<u64>,
    /// Settled by an earlier process, ahead of `next`.
    pub settled_before: VecDeque<Range<u64>>,
    /// Those of them that were there at the start, and were not passed yet: what they are when they cannot be read any more.
    pub found_settled: BTreeMap<u64, (TenantId, Cost)>,
    /// Segments of which an earlier process settled all. Nobody has read them, and nobody will for this cursor.
    pub settled_segments: BTreeSet<u64>,
    /// Its position has changed since it was last written.
    pub moved: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Spill {
    pub segments: BTreeMap<u64, Segment>,
    pub lags: Vec<Lag>,
    /// Bytes of payloads that are in slots.
    pub kept_bytes: u64,
    pub most_kept_bytes: u64,
    /// No slot below this number has a payload.
    pub kept_from: u64,
    /// Bytes one cursor may be sending at once; a single larger payload is sent all the same.
    pub most_in_flight_bytes: u64,
    /// Records, or runs of bytes, that could not be read.
    pub damaged: u64,
    /// Records that a cursor waited for and that are not there, once for each such cursor.
    pub lost: u64,
    /// The number behind the last record that is there, or was taken in.
    pub stored_until: u64,
}

/// A record as a reader found it.
#[derive(Debug)]
pub(crate) struct Passing {
    pub seq: u64,
    pub place: Place,
    pub tenant: TenantId,
    pub cost: Cost,
    pub received_at: Instant,
}

/// What a cursor finds at its place.
#[derive(Debug)]
pub(crate) enum Look {
    /// The next payload, which was in memory.
    Ready(Entry),
    /// The next payload is on the disk.
    Read(ReadFrom),
    /// There is nothing for it now.
    Wait,
    /// Nor will there be.
    Closed,
}

/// Where to read.
#[derive(Debug)]
pub(crate) struct ReadFrom {
    pub place: Place,
    /// Records with lower numbers have been passed.
    pub next: u64,
    /// The segments from there on, each with where its records end.
    pub segments: Vec<(SegmentId, u64)>,
    /// The number behind the last record of these segments.
    pub until: u64,
}

/// Segments named to a reader at once.
const SEGMENTS_AHEAD: usize = 8;

/// A cursor with so many times in front of it what may be kept in memory reads from the disk for a while yet: what comes now would be
/// dropped again before it is there.
const FAR_BEHIND: u64 = 4;

impl Spill {
    /// Segments in which there may be something for a cursor, from its place on.
    fn ahead_of(&self, index: usize) -> impl Iterator<Item = &Segment> {
        let lag = &self.lags[index];
        let ahead = self.segments.range(lag.place.segment..);
        let ahead = ahead.filter(|(first, _)| !lag.settled_segments.contains(first));
        ahead.map(|(_, segment)| segment)
    }
}

impl State {
    /// The disk side of a state that has one.
    pub(crate) fn spilled(&mut self) -> &mut Spill {
        self.spill.get_or_insert_default()
    }

    /// Takes a payload that was just written; its segment may be read up to `end`.
    pub(crate) fn written(
        &mut self,
        at: Written,
        end: u64,
        payload: Arc<Payload>,
        cost: Cost,
        confirm: Option<Confirm>,
        released: &mut Released,
    ) {
        let Written {
            seq,
            place,
            received_at_nanos,
        } = at;
        let (tenant, retained) = (payload.tenant, payload.retained_bytes());
        self.insert(seq, place, payload, cost, confirm);
        let spill = self.spilled();
        spill.stored_until = seq + 1;
        spill.kept_bytes += retained;
        if let Some(segment) = spill.segments.get_mut(&place.segment) {
            segment.contents.add(seq, received_at_nanos, tenant, cost);
            segment.end = end;
            segment.size_bytes = end;
        }
        self.keep_less(released);
    }

    /// Whether all cursors are too far behind for payloads to be kept.
    pub(crate) fn is_far_behind(&self) -> bool {
        let Some(spill) = self.spill.as_deref() else {
            return false;
        };
        let far_bytes = spill.most_kept_bytes.saturating_mul(FAR_BEHIND);
        let is_far = |cursor: &CursorState| cursor.next < spill.kept_from && cursor.backlog.bytes > far_bytes;
        self.cursors.iter().all(is_far)
    }

    /// Lets go of the oldest payloads in memory until the rest is within its limit, and of all while nobody will be where they are before
    /// they are the oldest.
    fn keep_less(&mut self, released: &mut Released) {
        let cursors: Vec<u64> = self.cursors.iter().map(|cursor| cursor.next).collect();
        let is_far_behind = self.is_far_behind();
        let Some(spill) = self.spill.as_deref_mut() else {
            return;
        };
        let most_bytes = match is_far_behind {
            true => 0,
            false => spill.most_kept_bytes,
        };
        let mut empty = Vec::new();
        for (seq, slot) in self.slots.range_mut(spill.kept_from..) {
            if spill.kept_bytes <= most_bytes {
                break;
            }
            spill.kept_from = seq + 1;
            let Some(payload) = slot.payload.take() else {
                continue;
            };
            spill.kept_bytes -= payload.retained_bytes();
            released.push(payload);
            if is_idle(*seq, slot, &cursors) {
                empty.push(*seq);
            }
        }
        for seq in empty {
            self.slots.remove(&seq);
        }
    }

    /// What the cursor finds where it is; a payload that is in memory is handed out.
    pub(crate) fn look(&mut self, index: usize, released: &mut Released) -> Look {
        if self.closed {
            // What is not sent yet stays on the disk for the next process.
            return Look::Closed;
        }
        let (next, end) = (self.cursors[index].next, self.end);
        if next >= end || self.is_full(index) {
            return Look::Wait;
        }
        let lag = &self.spilled().lags[index];
        let skips = lag
            .settled_before
            .front()
            .is_some_and(|range| range.start <= next);
        if let Some(slot) = self.slots.get(&next).filter(|_| !skips)
            && let Some(payload) = slot.payload.clone()
        {
            let passing = Passing {
                seq: next,
                place: slot.place,
                tenant: slot.tenant,
                cost: slot.cost,
                received_at: slot.received_at,
            };
            self.hand_out(index, &passing, released);
            return Look::Ready(Entry {
                seq: next,
                payload,
                full: self.is_full(index),
            });
        }
        Look::Read(self.where_to_read(index))
    }

    /// Whether a cursor is sending as much as it may.
    pub(crate) fn is_full(&mut self, index: usize) -> bool {
        let spill = self.spilled();
        let lag = &spill.lags[index];
        let most = lag.most_in_flight_bytes.unwrap_or(spill.most_in_flight_bytes);
        !lag.in_flight.is_empty() && lag.in_flight_bytes >= most
    }

    /// Where a cursor's next record is, if there is one.
    pub(crate) fn where_to_read(&mut self, index: usize) -> ReadFrom {
        let (next, end) = (self.cursors[index].next, self.end);
        let spill = self.spilled();
        let place = spill.lags[index].place;
        let mut rest = spill.ahead_of(index);
        let ahead = rest.by_ref().take(SEGMENTS_AHEAD);
        let segments: Vec<_> = ahead.map(|segment| (segment.id, segment.end)).collect();
        let until = rest.next().map_or(end, |segment| segment.id.first);
        ReadFrom {
            place,
            next,
            segments,
            until,
        }
    }

    /// A reader met something that cannot be read, at these places. A segment that is not there any more was removed while it was read,
    /// since nobody needs what is in it.
    pub(crate) fn found_damage(&mut self, places: Vec<Place>) {
        let spill = self.spilled();
        for place in places {
            if let Some(segment) = spill.segments.get_mut(&place.segment) {
                segment.damaged = true;
                spill.damaged += u64::from(segment.unreadable.add(place.offset));
            }
        }
    }

    /// Nothing more is written to a segment; its size, if it was sealed. Positions are written with it, so that they say how
    /// far the journal goes even where nothing is delivered.
    pub(crate) fn close_segment(&mut self, first: u64, size_bytes: Option<u64>) {
        let spill = self.spilled();
        spill.lags.iter_mut().for_each(|lag| lag.moved = true);
        if let Some(segment) = spill.segments.get_mut(&first) {
            segment.closed = true;
            segment.size_bytes = size_bytes.unwrap_or(segment.size_bytes);
        }
    }

    /// Nothing more is written to any segment but this.
    pub(crate) fn close_segments_but(&mut self, active: Option<u64>) {
        for (first, segment) in &mut self.spilled().segments {
            segment.closed |= Some(*first) != active;
        }
    }

    /// How long the oldest that a cursor has not settled has been here, as far as it is known without reading.
    pub(crate) fn age_on_disk(&self, index: usize, now: Instant, wall: SystemTime) -> Option<Duration> {
        let lag = &self.spill.as_deref()?.lags[index];
        if let Some(slot) = lag.in_flight.first().and_then(|seq| self.slots.get(seq)) {
            return Some(now.saturating_duration_since(slot.received_at));
        }
        let next = self.cursors[index].next;
        if next >= self.end {
            return None;
        }
        if let Some(slot) = self.slots.get(&next) {
            return Some(now.saturating_duration_since(slot.received_at));
        }
        let segment = self.spill.as_deref()?.ahead_of(index).next()?;
        wall.duration_since(time(segment.contents.oldest_nanos)).ok()
    }
}

/// Whether nobody holds on to a slot without a payload: nobody is sending it, and nobody waits for its confirmation.
fn is_idle(seq: u64, slot: &Slot, nexts: &[u64]) -> bool {
    let sending = nexts
        .iter()
        .zip(&slot.remaining)
        .any(|(next, left)| *left > 0 && seq < *next);
    slot.confirm.is_none() && !sending
}
