//! The labels of a data point.

use sluice_wire::{Fields, KeyValue, Value};

use super::blocks::Blocks;
use crate::labels::{Extra, METRIC_NAME, NameId, Names, Plan};
use crate::point_labels::{PointLabels, Sought, Unknown};
use crate::text::{is_ascii, put_value};

/// Makes labels of the attributes of data points.
#[derive(Debug, Default)]
pub(super) struct PointReader {
    labels: PointLabels,
    written: String,
    /// The name of each attribute of the point being read, as far as they are regular.
    names: Vec<NameId>,
    /// The names of a point before.
    before: Vec<NameId>,
    /// An attribute has no value, or cannot be a label by itself.
    is_irregular: bool,
    /// The plan of a point that shares it with no other, or is too large to be kept.
    irregular: Plan,
}

/// Attributes before those that are looked for together: one that tells a series from all others mostly comes first, where there is one.
const BEFORE_TAIL: usize = 1;

/// The attributes of the point being read; lives as long as the request's bytes.
#[derive(Debug, Default)]
pub(super) struct Attributes<'a> {
    raw: Vec<&'a [u8]>,
    /// Fields of the point that come after those: attributes that are known together.
    tail: &'a [u8],
    /// What was looked for and may be kept.
    sought: Option<Sought<'a>>,
}

/// Where the plan of a point is.
#[derive(Debug, Clone, Copy)]
pub(super) enum PlanAt {
    Kept(usize),
    Irregular,
}

/// A key that leaves nothing to make a label from.
#[derive(Debug)]
pub(super) struct NoName;

impl<'a> Attributes<'a> {
    /// Begins a point.
    #[inline]
    pub fn clear(&mut self, reader: &mut PointReader) {
        self.raw.clear();
        self.tail = &[];
        self.sought = None;
        reader.begin();
    }

    /// Adds all attributes from here to the end of the point where they are known together; false where they have to be added one by one.
    #[inline]
    pub fn ends_as_known(&mut self, rest: &'a [u8], reader: &mut PointReader) -> bool {
        self.raw.len() == BEFORE_TAIL && self.find_tail(rest, reader)
    }

    fn find_tail(&mut self, rest: &'a [u8], reader: &mut PointReader) -> bool {
        match reader.labels.add_tail(rest, &mut reader.names) {
            Ok(()) => self.tail = rest,
            Err(sought) => self.sought = sought,
        }
        !self.tail.is_empty()
    }

    /// Ends the attributes of a point of which all fields were read one by one, the last of them of less than 128 bytes.
    #[inline]
    pub fn end(&mut self, reader: &mut PointReader) {
        if let Some(sought) = self.sought {
            self.keep_tail(&sought, reader);
        }
    }

    fn keep_tail(&mut self, sought: &Sought<'_>, reader: &mut PointReader) {
        // Key and length are a byte each: where that is all, there is nothing else between.
        let attributes = self.raw[BEFORE_TAIL..].iter();
        let bytes: usize = attributes.map(|raw| raw.len() + 2).sum();
        if bytes == sought.len() && !reader.is_irregular {
            reader.labels.keep_tail(sought, &reader.names[BEFORE_TAIL..]);
        }
    }

    /// Each as a `KeyValue` message.
    fn each(&self) -> impl Iterator<Item = &'a [u8]> {
        let tail = Fields::of(self.tail).filter_map(|field| field.bytes());
        self.raw.iter().copied().chain(tail)
    }

    /// Adds the attribute that a `KeyValue` message is.
    #[inline]
    pub fn push(&mut self, raw: &'a [u8], names: &mut Names, reader: &mut PointReader) {
        self.raw.push(raw);
        if !reader.push(raw, names) {
            self.sought = None;
        }
    }
}

fn id_of(key: &str, names: &mut Names) -> Option<NameId> {
    match key {
        METRIC_NAME => None,
        key => names.of(key),
    }
}

/// A value that is read without looking for it.
enum Plain<'a> {
    Text(&'a [u8]),
    Int(i64),
}

/// Key and value of an attribute that is text or a whole number, both below 128 bytes, and nothing else: nearly all of them.
#[inline]
fn plain(raw: &[u8]) -> Option<(&[u8], Plain<'_>)> {
    let [0x0a, key_len @ ..0x80, rest @ ..] = raw else {
        return None;
    };
    let (key, rest) = rest.split_at_checked(usize::from(*key_len))?;
    let [0x12, any_len @ ..0x80, any @ ..] = rest else {
        return None;
    };
    if usize::from(*any_len) != any.len() {
        return None;
    }
    match any {
        [0x0a, len @ ..0x80, text @ ..] => {
            let is_text = || is_ascii(text) || std::str::from_utf8(text).is_ok();
            let fits = usize::from(*len) == text.len() && is_text();
            fits.then_some((key, Plain::Text(text)))
        }
        [0x18, varint @ ..] if varint.len() <= 9 => {
            let (last, before) = varint.split_last()?;
            let (mut number, mut shift, mut all) = (0, 0, 0x80);
            for byte in before {
                number |= i64::from(byte & 0x7f) << shift;
                shift += 7;
                all &= byte;
            }
            (*last < 0x80 && all == 0x80).then_some((key, Plain::Int(number | i64::from(*last) << shift)))
        }
        _ => None,
    }
}

/// Appends the value of an attribute as text.
fn put_text(out: &mut String, attribute: &KeyValue<'_>) {
    match attribute.value() {
        Some(Value::String(text)) => out.push_str(text),
        value => put_value(out, value),
    }
}

impl PointReader {
    #[inline]
    fn begin(&mut self) {
        if !self.is_irregular {
            std::mem::swap(&mut self.names, &mut self.before);
        }
        self.names.clear();
        self.is_irregular = false;
        self.labels.begin();
    }

    /// Adds the label of an attribute; whether that was known.
    // As `add_known`, which is most of it.
    #[inline(always)]
    fn push(&mut self, raw: &[u8], names: &mut Names) -> bool {
        let known = self.labels.add_known(raw);
        match known.or_else(|unknown| self.make_label(raw, unknown, names).ok_or(unknown)) {
            Ok(name) => self.names.push(name),
            Err(_) => self.is_irregular = true,
        }
        known.is_ok()
    }

    /// Makes and adds the label for an attribute, and says its name; `None` where it does not make one by itself.
    #[inline(never)]
    fn make_label(&mut self, raw: &[u8], unknown: Unknown, names: &mut Names) -> Option<NameId> {
        let (written, mut digits) = (&mut self.written, itoa::Buffer::new());
        let (id, value) = match plain(raw) {
            Some((key, value)) => {
                // Points come one after another with the same keys.
                let guess = self.before.get(self.names.len());
                let id = match guess {
                    Some(guess) if raw.starts_with(&names.get(*guess).key) => *guess,
                    _ => id_of(std::str::from_utf8(key).ok()?, names)?,
                };
                let value = match value {
                    Plain::Text(text) => text,
                    Plain::Int(number) => digits.format(number).as_bytes(),
                };
                (id, value)
            }
            None => {
                written.clear();
                let attribute = KeyValue::parse(raw);
                put_text(written, &attribute);
                (id_of(attribute.key(), names)?, written.as_bytes())
            }
        };
        if value.is_empty() {
            return None;
        }
        self.labels.add_new(raw, unknown, id, names.get(id), value);
        Some(id)
    }

    pub fn labels(&self) -> &PointLabels {
        &self.labels
    }

    /// Ends a request.
    pub fn make_room(&mut self) {
        self.labels.make_room();
        self.irregular = Plan::default();
    }

    /// Forgets what it has made: names have got other ids.
    pub fn forget(&mut self) {
        self.labels.forget();
        self.names.clear();
        self.before.clear();
    }

    /// Makes the labels of a point, and finds or makes the plan that says where they go.
    #[inline]
    pub fn make(
        &mut self,
        attributes: &Attributes<'_>,
        extra: Extra,
        block: usize,
        blocks: &mut Blocks,
        names: &mut Names,
        collisions: &mut u64,
    ) -> Result<PlanAt, NoName> {
        if !self.is_irregular
            && let Some(found) = blocks.get_mut(block).find_plan(&self.names, extra)
        {
            self.leave_out(blocks.get(block).plan(found), collisions);
            return Ok(PlanAt::Kept(found));
        }
        self.make_slowly(attributes, extra, block, blocks, names, collisions)
    }

    #[cold]
    fn make_slowly(
        &mut self,
        attributes: &Attributes<'_>,
        extra: Extra,
        block: usize,
        blocks: &mut Blocks,
        names: &mut Names,
        collisions: &mut u64,
    ) -> Result<PlanAt, NoName> {
        // By key, so that values which come together do so in the same order whatever order they were sent in.
        let mut sorted: Vec<(&str, String, u32)> = Vec::new();
        for (index, raw) in attributes.each().enumerate() {
            let attribute = KeyValue::parse(raw);
            let mut value = String::new();
            put_text(&mut value, &attribute);
            if attribute.key() == METRIC_NAME {
                *collisions += u64::from(!value.is_empty());
            } else {
                sorted.push((attribute.key(), value, index as u32));
            }
        }
        sorted.sort_by_key(|(key, ..)| *key);
        let mut made: Vec<(NameId, String, u32)> = Vec::with_capacity(sorted.len());
        for (key, value, index) in sorted {
            made.push((names.of(key).ok_or(NoName)?, value, index));
        }
        // By name, which is nearly the order they are in; keys of one name stay in theirs.
        made.sort_by(|(a, ..), (b, ..)| names.get(*a).text.cmp(&names.get(*b).text));
        let mut regular = !self.is_irregular;
        made.dedup_by(|(name, value, _), (before, joined, _)| {
            let is_same = names.get(*name).text == names.get(*before).text;
            if is_same {
                regular = false;
                if joined.is_empty() {
                    *joined = std::mem::take(value);
                } else {
                    *collisions += 1;
                    joined.push(';');
                    joined.push_str(value);
                }
            }
            is_same
        });
        if regular {
            let labels: Vec<(u32, NameId)> = made.iter().map(|(name, _, index)| (*index, *name)).collect();
            let plan = Plan::new(blocks.get(block), names, &self.names, &labels, extra);
            self.leave_out(&plan, collisions);
            return Ok(match blocks.get_mut(block).keep_plan(plan) {
                Ok(kept) => PlanAt::Kept(kept),
                Err(plan) => {
                    self.irregular = plan;
                    PlanAt::Irregular
                }
            });
        }
        self.labels.clear();
        made.retain(|(_, value, _)| !value.is_empty());
        let labels: Vec<(u32, NameId)> = (0..).zip(&made).map(|(at, (name, ..))| (at, *name)).collect();
        let plan = Plan::new(blocks.get(block), names, &[], &labels, extra);
        for (name, value, _) in &made {
            self.labels.push(*name, names.get(*name), value.as_bytes());
        }
        self.labels.only(plan.point.iter().copied());
        *collisions += (labels.len() - plan.point.len()) as u64;
        self.irregular = plan;
        Ok(PlanAt::Irregular)
    }

    /// Of an attribute whose label the block has instead, or whose name is `le` or the like, there is nothing in the series.
    #[inline]
    fn leave_out(&mut self, plan: &Plan, collisions: &mut u64) {
        match plan.takes_all() {
            true => self.labels.all(),
            false => {
                *collisions += plan.displaced() as u64;
                self.labels.only(plan.point.iter().copied());
            }
        }
    }

    /// The plan of the point made last.
    #[inline]
    pub fn plan<'p>(&'p self, at: PlanAt, blocks: &'p Blocks, block: usize) -> &'p Plan {
        match at {
            PlanAt::Kept(index) => blocks.get(block).plan(index),
            PlanAt::Irregular => &self.irregular,
        }
    }
}
