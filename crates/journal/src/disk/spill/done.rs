//! What is settled for good: positions, and segments that nobody needs any more. Sans-IO.

use std::ops::Range;

use super::{Place, Segment};
use crate::disk::position::Position;
use crate::disk::segment::{HEADER_BYTES, Tally};
use crate::state::State;

impl State {
    /// Positions that have changed since they were last asked for.
    pub(crate) fn moved_positions(&mut self) -> Vec<(usize, Position)> {
        let mut moved = Vec::new();
        for index in 0..self.cursors.len() {
            if std::mem::take(&mut self.spilled().lags[index].moved) {
                moved.push((index, self.position(index)));
            }
        }
        moved
    }

    /// The positions could not be written: they have to be written another time.
    pub(crate) fn position_not_written(&mut self, index: usize) {
        self.spilled().lags[index].moved = true;
    }

    fn position(&mut self, index: usize) -> Position {
        let next = self.cursors[index].next;
        let spill = self.spilled();
        let (lag, end) = (&spill.lags[index], spill.stored_until);
        let mut settled: Vec<Range<u64>> = Vec::new();
        let floor = lag.in_flight.first().copied().unwrap_or(next);
        let mut from = floor;
        for seq in &lag.in_flight {
            if from < *seq {
                settled.push(from..*seq);
            }
            from = seq + 1;
        }
        if from < next {
            settled.push(from..next);
        }
        for range in lag.settled_before.iter().filter(|range| range.end > next) {
            // `next` may be in the midst of the first of them.
            match settled.last_mut().filter(|last| range.start <= last.end) {
                Some(last) => last.end = range.end,
                None => settled.push(range.clone()),
            }
        }
        Position { floor, settled, end }
    }

    /// Segments that no cursor needs any more; they are forgotten here. Those behind one that is needed are looked for when a position has
    /// `moved`.
    pub(crate) fn done_with(&mut self, moved: bool) -> Vec<Segment> {
        let mut done = Vec::new();
        while let Some((&first, segment)) = self.spilled().segments.first_key_value() {
            if !segment.closed || !self.is_settled(first) {
                break;
            }
            done.extend(self.forget(first));
        }
        if moved {
            for first in self.settled_ahead() {
                done.extend(self.forget(first));
            }
        }
        done
    }

    /// Segments that all cursors have settled, behind one that they have not: a payload that is tried for ever keeps its own segment, and
    /// not all that came after it. Positions have to say so: what is missing and not settled counts as lost at the next start.
    fn settled_ahead(&mut self) -> Vec<u64> {
        let passed = self.cursors.iter().map(|cursor| cursor.next).min();
        let mut settled: Vec<_> = (self.spilled().segments.range(..passed.unwrap_or(0)))
            .filter(|(_, segment)| segment.closed && !segment.contents.is_empty())
            .map(|(first, segment)| *first..segment.contents.last + 1)
            .collect();
        settled.retain(|numbers| self.is_settled(numbers.start));
        if !settled.is_empty() {
            let positions: Vec<_> = (0..self.cursors.len())
                .map(|index| self.position(index))
                .collect();
            settled.retain(|numbers| positions.iter().all(|position| position.keeps(numbers)));
        }
        settled.into_iter().map(|numbers| numbers.start).collect()
    }

    fn forget(&mut self, first: u64) -> Option<Segment> {
        for index in 0..self.cursors.len() {
            let lag = &self.spilled().lags[index];
            if lag.place.segment <= first {
                self.settle_missing(index, first);
                let spill = self.spilled();
                let after = spill.segments.range(first + 1..).next().map(|(after, _)| *after);
                spill.lags[index].place = Place {
                    segment: after.unwrap_or(first + 1),
                    offset: HEADER_BYTES,
                };
                spill.lags[index].passed = Tally::default();
            }
            self.spilled().lags[index].settled_segments.remove(&first);
        }
        self.spilled().segments.remove(&first)
    }

    /// Whether all cursors have settled what is in the segment that begins with `first`.
    pub(crate) fn is_settled(&self, first: u64) -> bool {
        let Some(spill) = self.spill.as_deref() else {
            return false;
        };
        let records = spill.segments.get(&first).map(|segment| &segment.contents);
        let Some(contents) = records.filter(|contents| !contents.is_empty()) else {
            return true;
        };
        let mut cursors = spill.lags.iter().zip(&self.cursors);
        cursors.all(|(lag, cursor)| {
            let in_flight = lag.in_flight.range(first..).next();
            contents.last < cursor.next && in_flight.is_none_or(|seq| contents.last < *seq)
        })
    }
}
