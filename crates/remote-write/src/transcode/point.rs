//! The labels of a data point.

use sluice_wire::{KeyValue, Value};

use super::blocks::Blocks;
use crate::labels::{Extra, METRIC_NAME, NameId, Names, Plan, PointLabels};
use crate::text::put_value;

/// A value as text: as it is on the wire, or written here.
#[derive(Debug, Clone, Copy)]
enum Text<'a> {
    Wire(&'a [u8]),
    Written(usize, usize),
}

/// Gathers the attributes of a data point and makes labels of them.
#[derive(Debug, Default)]
pub(super) struct PointReader {
    written: String,
    labels: PointLabels,
    /// The plan of a point that shares it with no other.
    irregular: Plan,
}

/// The attributes of the point being read; lives as long as the request's bytes.
#[derive(Debug, Default)]
pub(super) struct Attributes<'a> {
    keys: Vec<&'a [u8]>,
    values: Vec<Text<'a>>,
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
    #[inline]
    pub fn clear(&mut self, reader: &mut PointReader) {
        self.keys.clear();
        self.values.clear();
        reader.written.clear();
    }

    /// Adds the attribute that a `KeyValue` message is.
    #[inline]
    pub fn push(&mut self, raw: &'a [u8], reader: &mut PointReader) {
        if let Some((key, value)) = short_text(raw) {
            self.keys.push(key);
            self.values.push(Text::Wire(value));
        } else {
            self.push_any(raw, reader);
        }
    }

    #[cold]
    fn push_any(&mut self, raw: &'a [u8], reader: &mut PointReader) {
        let attribute = KeyValue::parse(raw);
        self.keys.push(attribute.key().as_bytes());
        self.values.push(match attribute.value() {
            Some(Value::String(text)) => Text::Wire(text.as_bytes()),
            value => {
                let start = reader.written.len();
                put_value(&mut reader.written, value);
                Text::Written(start, reader.written.len())
            }
        });
    }
}

/// Key and value of an attribute that is text, both below 128 bytes: nearly all of them.
#[inline]
fn short_text(raw: &[u8]) -> Option<(&[u8], &[u8])> {
    let [0x0a, key_len, rest @ ..] = raw else {
        return None;
    };
    let (key, rest) = rest.split_at_checked(usize::from(*key_len))?;
    let [0x12, any_len, 0x0a, len, value @ ..] = rest else {
        return None;
    };
    let fits = *key_len < 0x80 && *len < 0x80 && usize::from(*len) == value.len() && *any_len == *len + 2;
    (fits && is_text(value)).then_some((key, value))
}

#[inline]
fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok()
}

impl PointReader {
    pub fn labels(&self) -> &PointLabels {
        &self.labels
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
        self.labels.clear();
        let whole = |text: &Text<'_>| match text {
            Text::Wire(bytes) => !bytes.is_empty(),
            Text::Written(start, end) => start < end,
        };
        if attributes.values.iter().all(whole)
            && let Some(found) = blocks.get_mut(block).find_plan(&attributes.keys, extra)
        {
            for (index, name) in &blocks.get(block).plan(found).point {
                let value = match attributes.values[*index as usize] {
                    Text::Wire(bytes) => bytes,
                    Text::Written(start, end) => &self.written.as_bytes()[start..end],
                };
                self.labels.push(names.get(*name), value);
            }
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
        let mut sorted: Vec<(&str, &str, u32)> = Vec::new();
        for (index, (key, value)) in attributes.keys.iter().zip(&attributes.values).enumerate() {
            let key = std::str::from_utf8(key).unwrap_or_default();
            let value = match value {
                Text::Wire(bytes) => std::str::from_utf8(bytes).unwrap_or_default(),
                Text::Written(start, end) => &self.written[*start..*end],
            };
            if key != METRIC_NAME {
                sorted.push((key, value, index as u32));
            }
        }
        sorted.sort_by_key(|(key, ..)| *key);
        let mut regular = true;
        let mut made: Vec<(NameId, String, u32)> = Vec::new();
        for (key, value, index) in sorted {
            let name = names.of(key).ok_or(NoName)?;
            let text = &names.get(name).text;
            let same = made
                .iter_mut()
                .find(|(other, ..)| *names.get(*other).text == **text);
            match same {
                Some((_, joined, _)) => {
                    regular = false;
                    if joined.is_empty() {
                        value.clone_into(joined);
                    } else {
                        *collisions += 1;
                        joined.push(';');
                        joined.push_str(value);
                    }
                }
                None => {
                    regular &= !value.is_empty();
                    made.push((name, value.to_owned(), index));
                }
            }
        }
        if regular {
            let labels: Vec<(u32, NameId)> = made.iter().map(|(name, _, index)| (*index, *name)).collect();
            let plan = Plan::new(blocks.get(block), names, &attributes.keys, &labels, extra);
            for (index, name) in &plan.point {
                let value = made.iter().find(|(.., at)| at == index);
                let value = value.map_or("", |(_, value, _)| value);
                self.labels.push(names.get(*name), value.as_bytes());
            }
            return Ok(PlanAt::Kept(blocks.get_mut(block).keep_plan(plan)));
        }
        made.retain(|(_, value, _)| !value.is_empty());
        let labels: Vec<(u32, NameId)> = (0..).zip(&made).map(|(at, (name, ..))| (at, *name)).collect();
        let plan = Plan::new(blocks.get(block), names, &[], &labels, extra);
        for (at, name) in &plan.point {
            self.labels
                .push(names.get(*name), made[*at as usize].1.as_bytes());
        }
        self.irregular = plan;
        Ok(PlanAt::Irregular)
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
