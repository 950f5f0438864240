//! The labels of one data point, and those of the points before it.
//!
//! Attributes repeat: of a hundred points most have the region, the method and the route of some other. So what was made of
//! an attribute is kept under its bytes, and an attribute that comes again is neither read, checked nor written again. Each
//! label that is kept has a number of its own, by which others know it without comparing bytes.

use crate::hash;
use crate::labels::{LabelName, NameId};

/// Labels that are kept: what points have in common at one time, and small enough for a core's own cache. Each has one place;
/// an attribute that is new takes the place of another.
const RECENT: usize = 1024;

/// A longer attribute is rarely one that repeats, and would cost memory a place: it is made again each time.
const MAX_ATTRIBUTE_BYTES: usize = 256;

/// The numbers of points' labels begin here, so that they are never those of [`Label`](crate::labels::Label).
const FIRST_SERIAL: u64 = 1 << 63;

/// An attribute and the label made of it.
#[derive(Debug, Default)]
struct Recent {
    /// The attribute as it came, then the label as a field of a 1.0 `TimeSeries`.
    bytes: Vec<u8>,
    attribute_bytes: usize,
    label: PointLabel,
    /// The point that has it among its labels.
    used_by: u64,
}

/// Where one label of the point is. It stays there until the next point begins.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PointLabel {
    pub name: NameId,
    /// Labels of one number are the same; those of number 0 are not known.
    serial: u64,
    hash: u64,
    /// In `recent`; [`OWN`]: it is one of the point's own.
    place: u32,
    start: u32,
    value_at: u32,
    end: u32,
}

const OWN: u32 = u32::MAX;

/// The labels of a data point, encoded, in the order of its plan.
#[derive(Debug, Default)]
pub(crate) struct PointLabels {
    recent: Vec<Recent>,
    /// Labels that are not kept.
    own: Vec<u8>,
    labels: Vec<PointLabel>,
    bytes: usize,
    point: u64,
    serial: u64,
    pub hash: u64,
}

impl PointLabels {
    /// Begins the next point.
    #[inline]
    pub fn begin(&mut self) {
        self.point += 1;
        self.own.clear();
        self.clear();
    }

    /// Begins the labels of the same point again.
    #[inline]
    pub fn clear(&mut self) {
        self.labels.clear();
        self.bytes = 0;
        self.hash = 0;
    }

    /// Forgets all labels that are kept: names have got other ids.
    pub fn forget(&mut self) {
        self.recent.clear();
    }

    /// The label that was made of an attribute with these bytes.
    #[inline]
    pub fn find(&mut self, attribute: &[u8]) -> Option<PointLabel> {
        let recent = self.recent.get_mut(place_of(attribute))?;
        if recent.label.serial == 0 || recent.bytes[..recent.attribute_bytes] != *attribute {
            return None;
        }
        recent.used_by = self.point;
        Some(recent.label)
    }

    /// Makes a label of an attribute with these bytes, which say `value`, and keeps it.
    pub fn make(&mut self, attribute: &[u8], id: NameId, name: &LabelName, value: &[u8]) -> PointLabel {
        if self.recent.is_empty() {
            self.recent.resize_with(RECENT, Recent::default);
        }
        let place = place_of(attribute);
        let recent = &mut self.recent[place];
        if attribute.len() > MAX_ATTRIBUTE_BYTES || recent.used_by == self.point {
            return self.make_own(id, name, value);
        }
        recent.bytes.clear();
        recent.bytes.extend_from_slice(attribute);
        let value_at = name.put(&mut recent.bytes, value);
        self.serial += 1;
        recent.attribute_bytes = attribute.len();
        recent.used_by = self.point;
        recent.label = PointLabel {
            name: id,
            serial: FIRST_SERIAL | self.serial,
            hash: hash::label(name.hash, value),
            place: place as u32,
            start: attribute.len() as u32,
            value_at: value_at as u32,
            end: recent.bytes.len() as u32,
        };
        recent.label
    }

    fn make_own(&mut self, id: NameId, name: &LabelName, value: &[u8]) -> PointLabel {
        let start = self.own.len() as u32;
        let value_at = name.put(&mut self.own, value) as u32;
        PointLabel {
            name: id,
            serial: 0,
            hash: hash::label(name.hash, value),
            place: OWN,
            start,
            value_at,
            end: self.own.len() as u32,
        }
    }

    /// Adds a label that was made for this point.
    #[inline]
    pub fn add(&mut self, label: PointLabel) {
        self.bytes += (label.end - label.start) as usize;
        self.hash = self.hash.wrapping_add(label.hash);
        self.labels.push(label);
    }

    /// Makes a label, which is not kept, and adds it.
    pub fn push(&mut self, id: NameId, name: &LabelName, value: &[u8]) {
        let label = self.make_own(id, name, value);
        self.add(label);
    }

    /// Length of all of them.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    fn text(&self, label: &PointLabel, start: u32) -> &[u8] {
        let bytes = match label.place {
            OWN => &self.own,
            place => &self.recent[place as usize].bytes,
        };
        &bytes[start as usize..label.end as usize]
    }

    /// The label as a field of a 1.0 `TimeSeries`.
    #[inline]
    pub fn encoded(&self, index: u32) -> &[u8] {
        let label = &self.labels[index as usize];
        self.text(label, label.start)
    }

    #[inline]
    pub fn value_bytes(&self, index: u32) -> &[u8] {
        let label = &self.labels[index as usize];
        self.text(label, label.value_at)
    }

    pub fn value(&self, index: u32) -> &str {
        // What labels are made of has been text before.
        std::str::from_utf8(self.value_bytes(index)).unwrap_or_default()
    }

    /// Labels of one number are the same; 0 says nothing.
    #[inline]
    pub fn serial(&self, index: u32) -> u64 {
        self.labels[index as usize].serial
    }
}

#[inline]
fn place_of(attribute: &[u8]) -> usize {
    hash::place(attribute) as usize % RECENT
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a point with more attributes than there are places, each with a value of its own, then the same again.
    /// Guarantees: every label is what it was made of, whether it is kept or not; one that is kept is found, with its number.
    #[test]
    fn labels_of_one_point_never_take_each_others_place() {
        let name = LabelName::new("route");
        let id = NameId::default();
        let mut labels = PointLabels::default();
        let values: Vec<String> = (0..2 * RECENT).map(|n| format!("value {n}")).collect();
        let mut found = 0;
        for _ in 0..2 {
            labels.begin();
            for value in &values {
                let label = match labels.find(value.as_bytes()) {
                    Some(label) => label,
                    None => labels.make(value.as_bytes(), id, &name, value.as_bytes()),
                };
                found += u64::from(label.serial != 0);
                labels.add(label);
            }
            for (index, value) in values.iter().enumerate() {
                assert_eq!(labels.value(index as u32), value);
            }
        }
        assert!(found > RECENT as u64, "{found}");
        labels.forget();
        assert!(labels.find(b"value 1").is_none());
    }
}
