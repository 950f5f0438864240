//! Labels: names made once, blocks of a resource and scope encoded once, and the plan that lays a series out of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::hash;
use crate::mapping::Mapping;
use crate::names::LabelNames;
use crate::point_labels::PointLabels;
use crate::protobuf::{put_delimited, put_varint, varint_len};

/// The label that holds the metric's name.
pub(crate) const METRIC_NAME: &str = "__name__";

/// Label names kept between requests. A sender that makes up keys costs the time to make names again, not memory.
const MAX_NAMES: usize = 16_384;

/// Bytes of those names, each of which is kept three times.
const MAX_NAME_BYTES: usize = 4 << 20;

/// A label's name, and what it looks like on the wire.
#[derive(Debug)]
pub(crate) struct LabelName {
    pub text: Box<str>,
    /// The name's field and the key of the value's field in a 1.0 `Label`.
    pub head: Box<[u8]>,
    pub hash: u64,
    /// What an attribute that it was made from begins with: the key's field of a `KeyValue`. Empty where there is none.
    pub key: Box<[u8]>,
}

impl LabelName {
    pub fn new(text: &str) -> Self {
        let mut head = Vec::with_capacity(text.len() + 8);
        put_delimited(&mut head, 1, text.as_bytes());
        head.push(0x12);
        Self {
            text: text.into(),
            head: head.into(),
            hash: hash::hash(text.as_bytes(), 0),
            key: Box::default(),
        }
    }

    fn of_key(text: &str, key: &str) -> Self {
        let mut field = Vec::with_capacity(key.len() + 2);
        put_delimited(&mut field, 1, key.as_bytes());
        Self {
            key: field.into(),
            ..Self::new(text)
        }
    }

    /// Appends the label with this name and `value` as a field of a 1.0 `TimeSeries`; where the value starts.
    #[inline]
    pub fn put(&self, out: &mut Vec<u8>, value: &[u8]) -> usize {
        let len = self.head.len() + varint_len(value.len() as u64) + value.len();
        // Nearly all are short, and then both lengths are one byte.
        if len < 0x80 {
            out.extend_from_slice(&[0x0a, len as u8]);
            out.extend_from_slice(&self.head);
            out.push(value.len() as u8);
        } else {
            out.push(0x0a);
            put_varint(out, len as u64);
            out.extend_from_slice(&self.head);
            put_varint(out, value.len() as u64);
        }
        let at = out.len();
        out.extend_from_slice(value);
        at
    }
}

/// An index into [`Names`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct NameId(u32);

impl NameId {
    /// The index.
    pub fn number(self) -> u32 {
        self.0
    }
}

/// The label names made so far, by the keys they were made from.
#[derive(Debug)]
pub(crate) struct Names {
    rule: LabelNames,
    by_key: HashMap<Box<str>, Option<NameId>>,
    names: Vec<LabelName>,
    /// Bytes of the keys.
    bytes: usize,
}

impl Names {
    pub fn new(mapping: &Mapping) -> Self {
        Self {
            rule: LabelNames {
                escapes: mapping.strategy.escapes(),
                keep_multiple_underscores: mapping.keep_multiple_underscores,
                key_before_underscore: mapping.key_before_underscore,
            },
            by_key: HashMap::new(),
            names: Vec::new(),
            bytes: 0,
        }
    }

    /// Names that are their keys.
    pub fn verbatim() -> Self {
        Self {
            rule: LabelNames {
                escapes: false,
                keep_multiple_underscores: false,
                key_before_underscore: false,
            },
            by_key: HashMap::new(),
            names: Vec::new(),
            bytes: 0,
        }
    }

    /// The name for the key of an attribute; `None` when nothing of it can be kept.
    pub fn of(&mut self, key: &str) -> Option<NameId> {
        if let Some(known) = self.by_key.get(key) {
            return *known;
        }
        let id = self.rule.of(key).map(|text| {
            self.names.push(LabelName::of_key(&text, key));
            NameId(self.names.len() as u32 - 1)
        });
        self.bytes += key.len();
        self.by_key.insert(key.into(), id);
        id
    }

    pub fn get(&self, id: NameId) -> &LabelName {
        &self.names[id.0 as usize]
    }

    /// Whether it has grown beyond its limit and is to be cleared, with all plans that refer to it.
    pub fn is_full(&self) -> bool {
        self.by_key.len() > MAX_NAMES || self.bytes > MAX_NAME_BYTES
    }

    pub fn clear(&mut self) {
        self.by_key.clear();
        self.names.clear();
        self.bytes = 0;
    }
}

/// A label with its value, encoded: metric names, buckets, quantiles.
#[derive(Debug)]
pub(crate) struct Label {
    /// As a field of a 1.0 `TimeSeries`.
    pub encoded: Box<[u8]>,
    pub value: Box<str>,
    pub hash: u64,
    /// Labels of one number are the same; 0 says nothing.
    pub serial: u64,
}

impl Label {
    /// None at all: where a plan has no place for it.
    pub fn none() -> Self {
        Self {
            encoded: Box::default(),
            value: Box::default(),
            hash: 0,
            serial: 0,
        }
    }

    pub fn new(name: &LabelName, value: &str) -> Self {
        let mut encoded = Vec::new();
        name.put(&mut encoded, value.as_bytes());
        Self {
            encoded: encoded.into(),
            value: value.into(),
            hash: hash::label(name.hash, value.as_bytes()),
            serial: next_id(),
        }
    }
}

/// A label of a block while it is put together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockLabel {
    pub name: String,
    pub value: String,
    /// Whether it takes the place of a data point's label by the same name; else that takes its place.
    pub wins: bool,
}

#[derive(Debug)]
struct Entry {
    label: BlockLabel,
    start: u32,
    end: u32,
    hash: u64,
}

/// The labels that all series of a resource and scope share, sorted and encoded, and the plans made for them so far.
#[derive(Debug)]
pub(crate) struct Block {
    entries: Vec<Entry>,
    /// The labels as fields of a 1.0 `TimeSeries`, end to end.
    encoded: Vec<u8>,
    plans: Vec<Plan>,
    /// The size of all of them.
    plans_size: usize,
    last_plan: usize,
    /// Labels that another one of the same name took the place of.
    pub collisions: u64,
}

/// Plans kept a block: sets of attribute keys in use there at once.
const MAX_PLANS: usize = 64;

/// A larger plan, of more than 128 attributes, is not kept: points of so many are rarely alike.
const MAX_PLAN_SIZE: usize = 512;

/// Plans kept a block are at most so large together: a label of a point counts 4 and takes 40 bytes, and one of the block's may be before it, which
/// counts 1 and takes 20. So it is some 48 KiB, and 16 for the plans by themselves: what they are in use with usual keys.
const MAX_PLANS_SIZE: usize = 4096;

impl Block {
    /// Of several labels with one name the last one counts; those without a value count as absent.
    pub fn new(mut labels: Vec<BlockLabel>) -> Self {
        labels.reverse();
        labels.sort_by(|a, b| a.name.cmp(&b.name));
        let mut collisions = 0;
        labels.dedup_by(|displaced, last| {
            let is_same = displaced.name == last.name;
            collisions += u64::from(is_same && !displaced.value.is_empty());
            is_same
        });
        let mut encoded = Vec::new();
        let entries = labels
            .into_iter()
            .filter(|label| !label.value.is_empty() && !label.name.is_empty())
            .map(|label| {
                let start = encoded.len() as u32;
                let name = LabelName::new(&label.name);
                name.put(&mut encoded, label.value.as_bytes());
                Entry {
                    start,
                    end: encoded.len() as u32,
                    hash: hash::label(name.hash, label.value.as_bytes()),
                    label,
                }
            })
            .collect();
        Self {
            entries,
            encoded,
            plans: Vec::new(),
            plans_size: 0,
            last_plan: 0,
            collisions,
        }
    }

    /// The bytes of a run.
    #[inline]
    pub fn run(&self, run: Run) -> &[u8] {
        &self.encoded[run.start as usize..run.stop as usize]
    }

    /// Hash and bytes of the labels of a run.
    pub fn encoded_labels(&self, run: Run) -> impl Iterator<Item = (u64, &[u8])> {
        self.entries[run.first as usize..run.end as usize]
            .iter()
            .map(|entry| {
                (
                    entry.hash,
                    &self.encoded[entry.start as usize..entry.end as usize],
                )
            })
    }

    /// Name and value of the labels of a run.
    pub fn labels(&self, run: Run) -> impl Iterator<Item = (&str, &str)> {
        self.entries[run.first as usize..run.end as usize]
            .iter()
            .map(|entry| (&*entry.label.name, &*entry.label.value))
    }

    /// Names and ranks of all labels.
    fn sources(&self) -> impl Iterator<Item = (&str, u8, Source)> {
        let entries = (0..).zip(&self.entries);
        entries.map(|(index, entry)| {
            let rank = if entry.label.wins { 1 } else { 3 };
            (&*entry.label.name, rank, Source::Entry(index))
        })
    }

    /// The plan for data points with these keys; `None` when there is none yet.
    #[inline]
    pub fn find_plan(&mut self, keys: &[NameId], extra: Extra) -> Option<usize> {
        let fits = |plan: &Plan| plan.extra == extra && *plan.keys == *keys;
        if self.plans.get(self.last_plan).is_some_and(fits) {
            return Some(self.last_plan);
        }
        let found = self.plans.iter().position(fits)?;
        self.last_plan = found;
        Some(found)
    }

    pub fn plan(&self, index: usize) -> &Plan {
        &self.plans[index]
    }

    /// Keeps a plan, for [`Block::plan`] and [`Block::find_plan`]; gives back one that is too large for that.
    pub fn keep_plan(&mut self, plan: Plan) -> Result<usize, Plan> {
        let size = plan.size();
        if size > MAX_PLAN_SIZE {
            return Err(plan);
        }
        if self.plans.len() >= MAX_PLANS || self.plans_size + size > MAX_PLANS_SIZE {
            self.plans.clear();
            self.plans_size = 0;
        }
        self.plans_size += size;
        self.plans.push(plan);
        self.last_plan = self.plans.len() - 1;
        Ok(self.last_plan)
    }
}

/// The label a series has beside those of its data point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Extra {
    #[default]
    None,
    /// `le`
    Bucket,
    /// `quantile`
    Quantile,
}

impl Extra {
    pub fn name(self) -> &'static str {
        match self {
            Extra::None => "",
            Extra::Bucket => "le",
            Extra::Quantile => "quantile",
        }
    }
}

/// Entries of a block that follow each other in a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    first: u32,
    end: u32,
    /// Their bytes.
    start: u32,
    stop: u32,
}

impl Run {
    /// Bytes of the labels.
    #[inline]
    pub fn len(self) -> usize {
        (self.stop - self.start) as usize
    }
}

/// What a part of a series is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    Run(Run),
    /// The label with the metric's name.
    Name,
    /// `le` or `quantile`.
    Extra,
    /// The label of the data point's attribute at this index.
    Point(u32),
}

/// Where a label comes from. Of several labels with one name the one of the lowest rank counts.
#[derive(Debug, Clone, Copy)]
enum Source {
    Name,
    Extra,
    Entry(u32),
    Point(u32),
}

/// No attribute's index: there are as many as bytes in a request at most.
const NOT_OF_POINT: u32 = u32::MAX;

/// A slot that is no run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Own {
    /// Its index among the slots.
    pub at: u32,
    /// The index of its attribute; none, as [`NOT_OF_POINT`], for others.
    point: u32,
    /// Bytes of the runs between it and the one before.
    pub run_bytes: u32,
}

/// How the labels of a series are laid end to end in order: for one block, one list of attribute keys.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Tells it from every other plan of the process; never 0.
    pub id: u64,
    /// The attributes in the order they come in, by the names made from their keys: each key has its own.
    keys: Box<[NameId]>,
    extra: Extra,
    pub slots: Vec<Slot>,
    /// The slots that are no runs: what series of the plan may differ in.
    pub own: Vec<Own>,
    /// Bytes of the runs after the last of those.
    pub end_bytes: u32,
    /// The attributes of a data point that have a label in the series.
    pub point: Vec<u32>,
    /// Bytes of all runs.
    pub run_bytes: usize,
    /// Hashes of the labels in all runs, added up.
    pub run_hash: u64,
}

impl Plan {
    /// All labels are the point's own, the metric's name too; they come in order.
    pub fn of_point(names: &[NameId]) -> Self {
        let slots = (0..names.len() as u32).map(Slot::Point);
        Self {
            id: next_id(),
            keys: names.into(),
            slots: slots.collect(),
            point: (0..names.len() as u32).collect(),
            ..Self::default()
        }
        .with_own()
    }

    /// Slots, those of its own, attributes and keys.
    fn size(&self) -> usize {
        self.slots.len() + self.own.len() + self.point.len() + self.keys.len()
    }

    /// Finds the slots that are no runs.
    fn with_own(mut self) -> Self {
        let mut run_bytes = 0;
        for (at, slot) in (0..).zip(&self.slots) {
            match slot {
                Slot::Run(run) => run_bytes += run.len() as u32,
                slot => self.own.push(Own {
                    at,
                    point: match slot {
                        Slot::Point(index) => *index,
                        _ => NOT_OF_POINT,
                    },
                    run_bytes: std::mem::take(&mut run_bytes),
                }),
            }
        }
        self.end_bytes = run_bytes;
        self.own.shrink_to_fit();
        self.slots.shrink_to_fit();
        self.point.shrink_to_fit();
        self
    }

    pub fn extra(&self) -> Extra {
        self.extra
    }

    /// Whether it is the one for these keys.
    pub fn is_for(&self, keys: &[NameId]) -> bool {
        *self.keys == *keys
    }

    /// Whether every attribute of a data point has its label in the series.
    #[inline]
    pub fn takes_all(&self) -> bool {
        self.displaced() == 0
    }

    /// Attributes of a data point that another label of the series took the place of.
    #[inline]
    pub fn displaced(&self) -> usize {
        self.keys.len() - self.point.len()
    }

    /// `labels` are the names of the data point's labels, each once, with the index of its attribute.
    pub fn new(
        block: &Block,
        names: &Names,
        keys: &[NameId],
        labels: &[(u32, NameId)],
        extra: Extra,
    ) -> Self {
        let mut sources = vec![(METRIC_NAME, 0, Source::Name)];
        if extra != Extra::None {
            sources.push((extra.name(), 0, Source::Extra));
        }
        sources.extend(block.sources());
        for (index, name) in labels {
            sources.push((&names.get(*name).text, 2, Source::Point(*index)));
        }
        Self::lay(block, keys, extra, sources)
    }

    /// A series whose labels are all its own, by these names in the order they come in, the metric's name too; and those of the
    /// block that it has not got.
    pub fn of_series(block: &Block, names: &Names, keys: &[NameId]) -> Self {
        let own = (0..).zip(keys);
        let own = own.map(|(index, name)| (&*names.get(*name).text, 2, Source::Point(index)));
        Self::lay(block, keys, Extra::None, block.sources().chain(own).collect())
    }

    fn lay(block: &Block, keys: &[NameId], extra: Extra, mut sources: Vec<(&str, u8, Source)>) -> Self {
        sources.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
        sources.dedup_by(|later, first| later.0 == first.0);
        let mut plan = Plan {
            id: next_id(),
            keys: keys.into(),
            extra,
            ..Plan::default()
        };
        for (_, _, source) in sources {
            match source {
                Source::Name => plan.slots.push(Slot::Name),
                Source::Extra => plan.slots.push(Slot::Extra),
                Source::Entry(index) => {
                    let entry = &block.entries[index as usize];
                    plan.run_bytes += (entry.end - entry.start) as usize;
                    plan.run_hash = plan.run_hash.wrapping_add(entry.hash);
                    match plan.slots.last_mut() {
                        Some(Slot::Run(run)) if run.end == index => {
                            run.end += 1;
                            run.stop = entry.end;
                        }
                        _ => plan.slots.push(Slot::Run(Run {
                            first: index,
                            end: index + 1,
                            start: entry.start,
                            stop: entry.end,
                        })),
                    }
                }
                Source::Point(index) => {
                    plan.slots.push(Slot::Point(index));
                    plan.point.push(index);
                }
            }
        }
        plan.with_own()
    }
}

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The labels of one series, ready to be written.
#[derive(Clone, Copy)]
pub(crate) struct SeriesLabels<'a> {
    pub block: &'a Block,
    pub plan: &'a Plan,
    pub names: &'a Names,
    pub name: &'a Label,
    pub extra: Option<&'a Label>,
    pub point: &'a PointLabels,
}

impl<'a> SeriesLabels<'a> {
    /// Bytes as fields of a 1.0 `TimeSeries`.
    #[inline]
    pub fn encoded_len(&self) -> usize {
        let extra = self.extra.map_or(0, |extra| extra.encoded.len());
        self.plan.run_bytes + self.name.encoded.len() + extra + self.point.bytes()
    }

    #[inline]
    pub fn hash(&self) -> u64 {
        let extra = self.extra.map_or(0, |extra| extra.hash);
        (self.plan.run_hash)
            .wrapping_add(self.name.hash)
            .wrapping_add(extra)
            .wrapping_add(self.point.hash)
    }

    /// The bytes of one slot.
    #[inline]
    pub fn slot(&self, slot: Slot) -> &'a [u8] {
        match slot {
            Slot::Run(run) => self.block.run(run),
            Slot::Name => &self.name.encoded,
            Slot::Extra => self.extra.map_or(&[], |extra| &extra.encoded),
            Slot::Point(index) => self.point.encoded(index),
        }
    }

    /// The number of the label in a slot that is no run, which no other label has (0: it has none), and the length of its bytes.
    #[inline]
    pub fn serial_and_len(&self, slot: Slot) -> (u64, usize) {
        match slot {
            Slot::Run(run) => (0, run.len()),
            Slot::Name => (self.name.serial, self.name.encoded.len()),
            Slot::Extra => self
                .extra
                .map_or((0, 0), |extra| (extra.serial, extra.encoded.len())),
            Slot::Point(index) => self.point.serial_and_len(index),
        }
    }

    /// The same, for one of [`Plan::own`].
    #[inline]
    pub fn own_serial_and_len(&self, own: &Own) -> (u64, usize) {
        match self.point.get(own.point) {
            Some(known) => known,
            None => self.serial_and_len(self.plan.slots[own.at as usize]),
        }
    }

    /// Names and values, in order.
    pub fn each(&self, mut visit: impl FnMut(&'a str, &'a str)) {
        for slot in &self.plan.slots {
            match slot {
                Slot::Run(run) => self
                    .block
                    .labels(*run)
                    .for_each(|(name, value)| visit(name, value)),
                Slot::Name => visit(METRIC_NAME, &self.name.value),
                Slot::Extra => {
                    if let Some(extra) = self.extra {
                        visit(self.plan.extra.name(), &extra.value);
                    }
                }
                Slot::Point(index) => {
                    let name = self.names.get(self.point.name(*index));
                    visit(&name.text, self.point.value(*index));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
