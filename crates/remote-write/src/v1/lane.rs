//! One lane's body so far, and where in it stands what comes again.
//!
//! A series is written like one before it: one of the same plan that has the same of those labels that repeat. What is left to
//! write is what differs, which is the metric's name and what no series before had; everything between is one copy of what
//! stands there. Where what is around the labels is the same too, a copy goes on over it: the time of the sample before, key and length of
//! the series, and what its sample begins with.

mod places;
mod sample;

use super::{TIMESERIES_KEY, Writer};
use crate::body::{Body, Written};
use crate::labels::{Plan, Run, SeriesLabels, Slot};
use crate::protobuf::varint_len;
use crate::snappy::MAX_OFFSET;
use crate::v2::common_prefix;
use places::Places;
use sample::{LastSample, TIME, VALUE};

/// Plans of which the last series is remembered: a histogram's series are of two, and metrics with several sets of keys take turns.
const LAST: usize = 16;

/// Series that are remembered, by plan and repeated labels: what fits the 64 KiB that a copy reaches back, some hundred bytes each.
const ALIKE: usize = 128;

/// So many places further each lane begins to remember its series than the one before: they are in the same place otherwise, and what is as far from the beginning of a
/// page in sixteen lanes is too much for the first cache, which keeps eight of it. Seven is no divisor of [`ALIKE`], so that all places are in use.
const LANES_APART: usize = 7;

/// Labels of which the last place is remembered, by their number.
const SEEN: usize = 1024;

/// A plan of more slots is not remembered, nor are its series: each of them is kept [`ALIKE`] times, at 16 bytes a slot, and points
/// of so many attributes are rarely alike.
const MAX_SLOTS: usize = 256;

/// Of a label this much is kept, for the next one that begins alike: [`LAST`] times [`MAX_SLOTS`] of them are 4 MiB, and labels
/// that have more than this in common but are not the same are rare.
const MAX_PREFIX_BYTES: usize = 1024;

#[derive(Debug)]
pub(super) struct Lane<W> {
    pub body: W,
    /// Bytes of the bodies before this one: positions that are remembered count from the first body, so that those of bodies
    /// that are finished are never taken for one in this.
    base: u64,
    pub written: Written,
    finished: Vec<Body>,
    last_sample: Option<LastSample>,
    /// Where the series that the last one is written like has a sample of the same length: what begins with the same bytes.
    like: Option<u64>,
    last: Box<[Last; LAST]>,
    alike: Box<[Series]>,
    /// Where the first of those is.
    first_alike: usize,
    seen: Box<[Seen]>,
    places: Places,
}

/// A series that has been written.
#[derive(Debug, Default)]
struct Series {
    /// 0: there is none.
    plan: u64,
    /// [`PointLabels::repeated`](crate::point_labels::PointLabels::repeated).
    repeated: u64,
    stands: Stands,
    /// Of each slot of its plan that is no run.
    labels: Vec<OwnLabel>,
}

/// Where a series stands, and what is around it.
#[derive(Debug, Clone, Copy, Default)]
struct Stands {
    /// Where its labels begin. They are in one piece.
    labels: u64,
    shape: Shape,
    /// The time of the sample that ends right before it, where one does.
    after: Option<i64>,
}

/// The lengths that are written in front of labels and of what comes behind them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shape {
    /// Bytes of the series.
    pub len: usize,
    /// Bytes of its sample as a message, which is what comes first behind the labels; 0: it has none.
    pub sample_len: usize,
}

/// A label that a series has.
#[derive(Debug, Clone, Copy)]
struct OwnLabel {
    serial: u64,
    len: usize,
}

/// The last series of a plan.
#[derive(Debug, Default)]
struct Last {
    /// Of its plan; 0: there is none.
    plan: u64,
    /// Where it is remembered.
    at: usize,
    /// Of each slot that is no run a label that stands in the body: the last one that was written byte by byte, or that of the first series.
    new: Vec<New>,
}

/// A label that stands in the body, for the next one in its slot that begins alike.
#[derive(Debug, Default)]
struct New {
    position: u64,
    /// The first [`MAX_PREFIX_BYTES`] of it.
    bytes: Vec<u8>,
}

impl New {
    #[inline]
    fn note(&mut self, bytes: &[u8], position: u64) {
        self.position = position;
        self.bytes.clear();
        self.bytes
            .extend_from_slice(&bytes[..bytes.len().min(MAX_PREFIX_BYTES)]);
    }
}

/// A label, and where it stood last.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    serial: u64,
    position: u64,
}

impl<W: Writer> Lane<W> {
    /// The lane with this number.
    pub fn new(number: usize) -> Self {
        Self {
            body: W::default(),
            // Positions before it are those of nothing.
            base: 1,
            written: Written::default(),
            finished: Vec::new(),
            last_sample: None,
            like: None,
            last: Box::default(),
            alike: std::iter::repeat_with(Series::default).take(ALIKE).collect(),
            first_alike: number * LANES_APART,
            seen: vec![Seen::default(); SEEN].into(),
            places: Places::default(),
        }
    }

    /// The bodies that are finished.
    pub fn take(&mut self) -> Vec<Body> {
        self.finish();
        std::mem::take(&mut self.finished)
    }

    /// Ends the body, unless there is nothing in it.
    pub fn finish(&mut self) {
        if self.body.position() == 0 {
            return;
        }
        self.base += self.body.position();
        self.finished.push(Body {
            bytes: self.body.finish(),
            written: std::mem::take(&mut self.written),
            format: W::FORMAT,
        });
        self.last_sample = None;
        self.last.iter_mut().for_each(|last| last.plan = 0);
        self.alike.iter_mut().for_each(|series| series.plan = 0);
        self.places.clear();
    }

    /// Writes key and length of a series of `len` bytes.
    #[inline]
    fn put_head(&mut self, len: usize) {
        let (mut head, mut head_len) = ([TIMESERIES_KEY; 11], 1);
        let mut left = len;
        while left >= 0x80 {
            head[head_len] = left as u8 | 0x80;
            left >>= 7;
            head_len += 1;
        }
        head[head_len] = left as u8;
        self.body.put(&head[..=head_len]);
    }

    /// The time that the body ends with, if it ends with a sample, and the bytes of that.
    #[inline]
    fn time_at_end(&self) -> Option<(i64, usize)> {
        let last = self.last_sample.as_ref()?;
        let is_at_end = last.position + last.len as u64 == self.body.position();
        is_at_end.then_some((last.timestamp_ms, last.len - TIME))
    }

    /// Writes key and length of a series, and its labels.
    #[inline]
    pub fn put_labels(&mut self, labels: &SeriesLabels<'_>, shape: Shape) {
        let (plan, repeated) = (labels.plan.id, labels.point.repeated);
        let at = (self.first_alike + place_of(plan, repeated)) % ALIKE;
        let last = &mut self.last[last_of(labels.plan)];
        if last.plan != plan {
            return self.put_anew(labels, shape, at);
        }
        let last_at = std::mem::replace(&mut last.at, at);
        let position = self.body.position();
        let alike = &self.alike[at];
        let same_plan = alike.plan == plan;
        if !same_plan || alike.repeated != repeated || position - alike.stands.labels > MAX_OFFSET {
            // Like the last one, then, with which it has less in common.
            match self.alike.get_disjoint_mut([at, last_at]) {
                Ok([alike, last]) if last.plan == plan => {
                    alike.stands = last.stands;
                    alike.labels.clone_from(&last.labels);
                }
                Err(_) if same_plan => {}
                _ => return self.put_anew(labels, shape, at),
            }
            let alike = &mut self.alike[at];
            (alike.plan, alike.repeated) = (plan, repeated);
        }
        self.put_like(labels, shape, at);
    }

    /// Repeats the series at `at` as far as it is the same, in one piece where nothing else is between.
    fn put_like(&mut self, labels: &SeriesLabels<'_>, shape: Shape, at: usize) {
        let plan = labels.plan;
        let stood = self.alike[at].stands;
        let after = self.put_head_like(shape.len, &stood);
        let series = &mut self.alike[at];
        series.stands = Stands {
            labels: self.body.position(),
            shape,
            after,
        };
        // What is the same begins here in the series before, and is so long.
        let mut from = stood.labels;
        let mut before = std::mem::take(&mut series.labels);
        let (mut same, mut first) = (0, 0);
        for (index, (own, before)) in plan.own.iter().zip(&mut before).enumerate() {
            same += own.run_bytes as usize;
            let (serial, len) = labels.own_serial_and_len(own);
            if serial == before.serial && serial != 0 {
                same += len;
                continue;
            }
            let before = std::mem::replace(before, OwnLabel { serial, len });
            self.put_same(labels, same, from, first..own.at as usize);
            self.put_other(labels, plan.slots[own.at as usize], index, (serial, len));
            from += (same + before.len) as u64;
            (same, first) = (0, own.at as usize + 1);
        }
        same += plan.end_bytes as usize;
        self.put_same(labels, same, from, first..plan.slots.len());
        self.alike[at].labels = before;
        self.like = (stood.shape.sample_len == shape.sample_len).then_some(from + same as u64);
    }

    /// Writes key and length of a series of `len` bytes, as a repeat where they are the same after the same time; says which time that is.
    #[inline]
    fn put_head_like(&mut self, len: usize, stood: &Stands) -> Option<i64> {
        let after = self.time_at_end();
        if let Some((time, time_len)) = after
            && stood.after == Some(time)
            && stood.shape.len == len
        {
            let head_len = 1 + varint_len(len as u64);
            if self
                .body
                .again_after(time_len, head_len, stood.labels - head_len as u64)
            {
                return Some(time);
            }
        }
        self.put_head(len);
        after.map(|(time, _)| time)
    }

    /// Writes these slots as a repeat of the `len` bytes at `from`, as which they are the same.
    #[inline]
    fn put_same(&mut self, labels: &SeriesLabels<'_>, len: usize, from: u64, slots: std::ops::Range<usize>) {
        if len > 0 && !self.body.again(len, from) {
            put_slots(&mut self.body, &mut self.places, labels, slots);
        }
    }

    /// Writes a label that the series it is written like has not got: as a repeat where it stands elsewhere, or as far as the last one
    /// like it begins with the same bytes.
    fn put_other(
        &mut self,
        labels: &SeriesLabels<'_>,
        slot: Slot,
        index: usize,
        (serial, len): (u64, usize),
    ) {
        let position = self.body.position();
        if self.put_seen(serial, len) {
            return;
        }
        let bytes = labels.slot(slot);
        let new = &mut self.last[last_of(labels.plan)].new[index];
        let same = common_prefix(&new.bytes, bytes);
        let repeated = if self.body.again(same, new.position) {
            same
        } else {
            0
        };
        self.body.put(&bytes[repeated..]);
        new.note(bytes, position);
    }

    /// Writes the label with this number as a repeat of where it stood last; false where it did not, or too far back. From now on
    /// it stands here.
    #[inline]
    fn put_seen(&mut self, serial: u64, len: usize) -> bool {
        if serial == 0 {
            return false;
        }
        let now = Seen {
            serial,
            position: self.base + self.body.position(),
        };
        let seen = std::mem::replace(&mut self.seen[serial as usize % SEEN], now);
        let is_there = serial == seen.serial && seen.position >= self.base;
        is_there && self.body.again(len, seen.position - self.base)
    }

    /// Writes the labels of a series like which there is none, and remembers it at `at`.
    #[cold]
    fn put_anew(&mut self, labels: &SeriesLabels<'_>, shape: Shape, at: usize) {
        let plan = labels.plan;
        let after = self.time_at_end().map(|(time, _)| time);
        self.put_head(shape.len);
        self.like = None;
        let is_kept = plan.slots.len() <= MAX_SLOTS;
        let last = &mut self.last[last_of(plan)];
        let series = &mut self.alike[at];
        if is_kept {
            (last.plan, last.at) = (plan.id, at);
            last.new.resize_with(plan.own.len(), New::default);
            (series.plan, series.repeated) = (plan.id, labels.point.repeated);
            series.stands = Stands {
                labels: self.body.position(),
                shape,
                after,
            };
            series.labels.clear();
        }
        for slot in &plan.slots {
            if let Slot::Run(run) = slot {
                put_run(&mut self.body, &mut self.places, labels, *run);
                continue;
            }
            let position = self.body.position();
            let (serial, len) = labels.serial_and_len(*slot);
            let bytes = labels.slot(*slot);
            if is_kept {
                let series = &mut self.alike[at];
                self.last[last_of(plan)].new[series.labels.len()].note(bytes, position);
                series.labels.push(OwnLabel { serial, len });
            }
            if !self.put_seen(serial, len) {
                self.body.put(bytes);
            }
        }
    }

    /// Writes a sample; `labels` have just been written.
    #[inline]
    pub fn put_sample(&mut self, value: f64, timestamp_ms: i64) {
        let value = value.to_bits().to_le_bytes();
        let position = self.body.position();
        let (last, stood) = match &mut self.last_sample {
            Some(last) if last.timestamp_ms == timestamp_ms => {
                let stood = std::mem::replace(&mut last.position, position);
                (last, Some(stood))
            }
            last => (last.insert(LastSample::new(position, timestamp_ms)), None),
        };
        if let Some(stood) = stood
            && last.field[VALUE..TIME] == value
        {
            if !self.body.again(last.len, stood) {
                self.body.put(&last.field[..last.len]);
            }
            return;
        }
        last.field[VALUE..TIME].copy_from_slice(&value);
        if self.like.is_some_and(|like| self.body.again(VALUE, like)) {
            self.body.put(&last.field[VALUE..TIME]);
        } else {
            self.body.put(&last.field[..TIME]);
        }
        let stood = stood.map(|stood| stood + TIME as u64);
        if !stood.is_some_and(|stood| self.body.again(last.len - TIME, stood)) {
            self.body.put(&last.field[TIME..last.len]);
        }
    }
}

/// Where the last series of a plan is.
#[inline]
fn last_of(plan: &Plan) -> usize {
    plan.id as usize % LAST
}

/// Where a series of a plan with these repeated labels is remembered.
#[inline]
fn place_of(plan: u64, repeated: u64) -> usize {
    // Fibonacci hashing: the upper bits depend on all of them.
    ((repeated ^ plan).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % ALIKE
}

/// Writes what stands too far back to be repeated.
#[cold]
fn put_slots(
    body: &mut impl Writer,
    places: &mut Places,
    labels: &SeriesLabels<'_>,
    slots: std::ops::Range<usize>,
) {
    for slot in &labels.plan.slots[slots] {
        match slot {
            Slot::Run(run) => put_run(body, places, labels, *run),
            slot => body.put(labels.slot(*slot)),
        }
    }
}

/// Writes the labels of a run, each as a repeat where it stands already.
#[cold]
fn put_run(body: &mut impl Writer, places: &mut Places, labels: &SeriesLabels<'_>, run: Run) {
    for (hash, bytes) in labels.block.encoded_labels(run) {
        let known = places.note(hash, bytes, body.position());
        if !known.is_some_and(|position| body.again(bytes.len(), position)) {
            body.put(bytes);
        }
    }
}

#[cfg(test)]
mod tests;
