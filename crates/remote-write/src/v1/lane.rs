//! One lane's body so far, and where in it stands what comes again.
//!
//! A series is written like one before it: one of the same plan that has the same of those labels that repeat. What is left to
//! write is what differs, which is the metric's name and what no series before had; everything between is one copy of what
//! stands there.

use super::{SAMPLE_KEY, TIMESERIES_KEY, Writer};
use crate::body::{Body, Written};
use crate::labels::{Plan, Run, SeriesLabels, Slot};
use crate::protobuf::varint_len;
use crate::snappy::MAX_OFFSET;
use crate::v2::common_prefix;

/// Plans of which the last series is remembered: a histogram's series are of two, and metrics with several sets of keys take turns.
const LAST: usize = 16;

/// Series that are remembered, by plan and repeated labels: what fits the 64 KiB that a copy reaches back, some hundred bytes each.
const ALIKE: usize = 128;

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
    last: Box<[Last; LAST]>,
    alike: Box<[Series]>,
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
    /// Where its labels begin. They are in one piece.
    position: u64,
    /// Of each slot of its plan that is no run.
    labels: Vec<OwnLabel>,
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

#[derive(Debug, Clone, Copy)]
struct LastSample {
    position: u64,
    value: [u8; 8],
    timestamp: i64,
}

/// Where labels of blocks stand: for runs that are not repeated in one piece, with all that is before them in their series.
#[derive(Debug)]
struct Places {
    slots: Box<[Place]>,
    /// The labels, for comparing.
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Place {
    hash: u64,
    position: u64,
    start: u32,
    end: u32,
}

impl Places {
    /// Labels of a few dozen resources.
    const SLOTS: usize = 512;

    /// When the labels take more than this, all are forgotten: the last one, of at most [`MAX_OFFSET`], may go beyond it.
    const MAX_BYTES: usize = 256 << 10;

    fn clear(&mut self) {
        self.slots.fill(Place::default());
        self.bytes.clear();
    }

    /// Where this label stands, if it does; from now on it stands at `position`.
    fn note(&mut self, hash: u64, bytes: &[u8], position: u64) -> Option<u64> {
        if bytes.len() as u64 > MAX_OFFSET {
            // No copy reaches back over it.
            return None;
        }
        if self.bytes.len() > Self::MAX_BYTES {
            self.clear();
        }
        let place = &mut self.slots[hash as usize % Self::SLOTS];
        if place.hash == hash && self.bytes[place.start as usize..place.end as usize] == *bytes {
            return Some(std::mem::replace(&mut place.position, position));
        }
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        *place = Place {
            hash,
            position,
            start,
            end: self.bytes.len() as u32,
        };
        None
    }
}

impl Default for Places {
    fn default() -> Self {
        Self {
            slots: vec![Place::default(); Self::SLOTS].into(),
            bytes: Vec::new(),
        }
    }
}

impl<W: Writer> Lane<W> {
    pub fn new() -> Self {
        Self {
            body: W::default(),
            // Positions before it are those of nothing.
            base: 1,
            written: Written::default(),
            finished: Vec::new(),
            last_sample: None,
            last: Box::default(),
            alike: std::iter::repeat_with(Series::default).take(ALIKE).collect(),
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
    pub fn put_head(&mut self, len: usize) {
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

    /// Writes the labels of a series.
    #[inline]
    pub fn put_labels(&mut self, labels: &SeriesLabels<'_>) {
        let (plan, repeated) = (labels.plan.id, labels.point.repeated);
        let at = place_of(plan, repeated);
        let last = &mut self.last[last_of(labels.plan)];
        if last.plan != plan {
            return self.put_anew(labels, at);
        }
        let last_at = std::mem::replace(&mut last.at, at);
        let position = self.body.position();
        let alike = &self.alike[at];
        let same_plan = alike.plan == plan;
        if !same_plan || alike.repeated != repeated || position - alike.position > MAX_OFFSET {
            // Like the last one, then, with which it has less in common.
            match self.alike.get_disjoint_mut([at, last_at]) {
                Ok([alike, last]) if last.plan == plan => {
                    alike.position = last.position;
                    alike.labels.clone_from(&last.labels);
                }
                Err(_) if same_plan => {}
                _ => return self.put_anew(labels, at),
            }
            let alike = &mut self.alike[at];
            (alike.plan, alike.repeated) = (plan, repeated);
        }
        self.put_like(labels, at);
    }

    /// Repeats the series at `at` as far as it is the same, in one piece where nothing else is between.
    fn put_like(&mut self, labels: &SeriesLabels<'_>, at: usize) {
        let plan = labels.plan;
        let begun = self.body.position();
        // What is the same begins here in the series before, and is so long.
        let series = &mut self.alike[at];
        let mut from = std::mem::replace(&mut series.position, begun);
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
        let now = Seen {
            serial,
            position: self.base + self.body.position(),
        };
        let seen = std::mem::replace(&mut self.seen[serial as usize % SEEN], now);
        let is_there = serial != 0 && serial == seen.serial && seen.position >= self.base;
        is_there && self.body.again(len, seen.position - self.base)
    }

    /// Writes the labels of a series like which there is none, and remembers it at `at`.
    #[cold]
    fn put_anew(&mut self, labels: &SeriesLabels<'_>, at: usize) {
        let plan = labels.plan;
        let is_kept = plan.slots.len() <= MAX_SLOTS;
        let last = &mut self.last[last_of(plan)];
        let series = &mut self.alike[at];
        if is_kept {
            (last.plan, last.at) = (plan.id, at);
            last.new.resize_with(plan.own.len(), New::default);
            (series.plan, series.repeated) = (plan.id, labels.point.repeated);
            series.position = self.body.position();
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
        let mut message = [0u8; 32];
        let timestamp_len = varint_len(timestamp_ms as u64);
        message[..3].copy_from_slice(&[SAMPLE_KEY, (10 + timestamp_len) as u8, 0x09]);
        message[3..11].copy_from_slice(&value);
        message[11] = 0x10;
        let mut left = timestamp_ms as u64;
        let mut end = 12;
        while left >= 0x80 {
            message[end] = left as u8 | 0x80;
            left >>= 7;
            end += 1;
        }
        message[end] = left as u8;
        end += 1;
        let position = self.body.position();
        let sample = LastSample {
            position,
            value,
            timestamp: timestamp_ms,
        };
        let mut written = 0;
        if let Some(last) = self.last_sample.replace(sample)
            && last.timestamp == timestamp_ms
        {
            if last.value == value {
                written = if self.body.again(end, last.position) {
                    end
                } else {
                    0
                };
            } else {
                self.body.put(&message[..11]);
                written = match self.body.again(end - 11, last.position + 11) {
                    true => end,
                    false => 11,
                };
            }
        }
        self.body.put(&message[written..end]);
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
mod tests {
    use super::*;
    use crate::labels::{Block, BlockLabel, Extra, Label, LabelName, METRIC_NAME, Names};
    use crate::point_labels::PointLabels;
    use crate::snappy;

    /// Bytes that are kept beside the body.
    fn kept_bytes<W>(lane: &Lane<W>) -> usize {
        let series = lane
            .alike
            .iter()
            .map(|series| size_of::<OwnLabel>() * series.labels.capacity());
        let last = lane.last.iter().map(|last| {
            let new = last.new.iter().map(|new| new.bytes.capacity());
            size_of::<New>() * last.new.capacity() + new.sum::<usize>()
        });
        series.sum::<usize>() + last.sum::<usize>() + lane.places.bytes.capacity()
    }

    /// Writes a series of the point's labels with a plan of its own.
    fn put(lane: &mut Lane<snappy::Block>, values: impl Iterator<Item = String>) {
        let mut point = PointLabels::default();
        let block = Block::new(Vec::new());
        let mut names = Names::verbatim();
        point.begin();
        let mut labels = Vec::new();
        for (index, value) in values.enumerate() {
            let id = names.of(&format!("n{index:05}")).unwrap();
            point.push(id, names.get(id), value.as_bytes());
            labels.push((index as u32, id));
        }
        // Each series is remembered at a place of its own.
        let plan = Plan::new(&block, &names, &[], &labels, Extra::None);
        point.repeated = plan.id;
        lane.put_labels(&SeriesLabels {
            block: &block,
            plan: &plan,
            names: &names,
            name: &Label::new(&LabelName::new(METRIC_NAME), "m"),
            extra: None,
            point: &point,
        });
    }

    /// Scenario: series of 10,000 labels, each of a plan of its own.
    /// Guarantees: nothing of them is kept; of those with few labels it is.
    #[test]
    fn series_of_very_many_labels_are_not_kept() {
        let mut lane = Lane::<snappy::Block>::new();
        for _ in 0..2 * LAST {
            put(&mut lane, (0..10_000).map(|n| n.to_string()));
        }
        assert_eq!(kept_bytes(&lane), 0);
        put(&mut lane, (0..10).map(|n| n.to_string()));
        assert!(kept_bytes(&lane) > 0);
    }

    /// Scenario: series of plans of their own with labels of a megabyte, of points and of a block.
    /// Guarantees: what is kept is a fraction of one of them.
    #[test]
    fn long_labels_are_not_kept() {
        const LONG: usize = 1 << 20;
        let mut lane = Lane::<snappy::Block>::new();
        for n in 0..4 {
            put(
                &mut lane,
                (0..3).map(|label| format!("{}{}", label * (n % 2), "v".repeat(LONG))),
            );
        }
        let long = vec![7; LONG];
        for position in 0..4 {
            assert_eq!(lane.places.note(9, &long, position), None);
        }
        assert!(kept_bytes(&lane) < LONG / 8, "{}", kept_bytes(&lane));
    }

    /// Scenario: series of two resources in turn, each of a plan of its own, with long labels of the resource around one of the point; one of these is
    /// longer than a copy reaches back.
    /// Guarantees: the body says every label of every series, in order; labels of a resource that stand near enough cost a copy each.
    #[test]
    fn labels_of_a_resource_are_repeated_as_they_are() {
        const ROUNDS: usize = 40;
        let label = |name: &str, value: String| BlockLabel {
            name: name.to_owned(),
            value,
            wins: false,
        };
        let blocks = [0, 1].map(|n| {
            Block::new(vec![
                label("a_cluster", "c".repeat(40)),
                label("m_pod", format!("{n}{}", "p".repeat(40))),
                label("z_zone", "z".repeat(40)),
            ])
        });
        let mut names = Names::verbatim();
        let mut lane = Lane::<snappy::Block>::new();
        let mut want = Vec::new();
        let mut of_points = 0;
        for round in 0..ROUNDS {
            let block = &blocks[round % 2];
            let mut point = PointLabels::default();
            point.begin();
            let id = names.of(&format!("n{round:02}")).unwrap();
            let len = if round == ROUNDS / 2 {
                MAX_OFFSET as usize
            } else {
                50
            };
            let value: Vec<u8> = (0..len).map(|n| b'a' + (n * (round + 7) % 23) as u8).collect();
            point.push(id, names.get(id), &value);
            of_points += point.bytes();
            let plan = Plan::new(block, &names, &[], &[(0, id)], Extra::None);
            let labels = SeriesLabels {
                block,
                plan: &plan,
                names: &names,
                name: &Label::new(&LabelName::new(METRIC_NAME), "m"),
                extra: None,
                point: &point,
            };
            assert_eq!(plan.slots.len(), 4, "name, run, point, run");
            lane.put_labels(&labels);
            plan.slots
                .iter()
                .for_each(|slot| want.extend_from_slice(labels.slot(*slot)));
        }
        lane.finish();
        let body = &lane.finished[0];
        assert!(body.plain().unwrap() == want);
        let of_resources = body.bytes.len() - of_points;
        // Each label is there in full twice for each resource: at first, and after the long one.
        assert!(of_resources < 4 * 3 * 60 + ROUNDS * 45, "{of_resources}");
    }
}
