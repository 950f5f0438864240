//! The attributes that points end with, as they came together before.
//!
//! Attributes do not only repeat one by one: what a point ends with, or has in all, is mostly what some point before it had. So the labels that were
//! known for the end of a point are kept under all of its bytes, and one comparison finds them together.

use super::{Placed, PointLabels};
use crate::hash;
use crate::labels::NameId;

/// Tails that are kept, as many as labels: each has one place.
const TAILS: usize = 1024;

/// A longer tail is rarely one that repeats, and looking for it in vain is to cost little beside making its labels. It bounds what is kept,
/// too: labels take 9 bytes of it at least, so 3 MiB for all; with usual points a quarter of a kilobyte each.
const MAX_TAIL_BYTES: usize = 512;

/// An attribute by itself is found as such.
const LEAST_LABELS: usize = 2;

/// Of the tails that could take the place of another one in so many does: where there are many more than places, keeping each would
/// cost more than is found.
const KEPT_OF: u64 = 4;

/// Labels that came one after the other up to a point's end.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// The fields of the point as they came.
    bytes: Vec<u8>,
    labels: Vec<Placed>,
    names: Vec<NameId>,
}

/// A tail that was looked for and not found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sought<'a> {
    bytes: &'a [u8],
    place: usize,
}

impl Sought<'_> {
    pub fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl PointLabels {
    /// Adds the labels that a point ended with before which had these bytes from some attribute on, and their names to `names`.
    ///
    /// # Errors
    /// When they are not known: what may be [kept](Self::keep_tail) when the point has been read.
    pub fn add_tail<'a>(
        &mut self,
        bytes: &'a [u8],
        names: &mut Vec<NameId>,
    ) -> Result<(), Option<Sought<'a>>> {
        if bytes.len() > MAX_TAIL_BYTES {
            return Err(None);
        }
        let place = hash::place(bytes) as usize % TAILS;
        let known = self.tails.get(place).filter(|tail| tail.bytes == bytes);
        // Another label may have taken the place of one of them.
        let recent = &mut self.recent;
        let is_kept = |label: &Placed| recent[label.place as usize].label.serial == label.serial;
        let Some(tail) = known.filter(|tail| tail.labels.iter().all(is_kept)) else {
            return Err(Some(Sought { bytes, place }));
        };
        for label in &tail.labels {
            let recent = &mut recent[label.place as usize];
            let hash = recent.label.hash;
            self.bytes += label.len as usize;
            self.hash = self.hash.wrapping_add(hash);
            if recent.use_by(self.point) {
                self.repeated = self.repeated.wrapping_add(hash);
            }
        }
        self.labels.extend_from_slice(&tail.labels);
        names.extend_from_slice(&tail.names);
        #[cfg(test)]
        {
            self.tails_found += 1;
        }
        Ok(())
    }

    /// Keeps the last labels, all of them known, with their `names`: those of the tail that was sought.
    pub fn keep_tail(&mut self, sought: &Sought<'_>, names: &[NameId]) {
        if names.len() < LEAST_LABELS {
            return;
        }
        if self.tails.is_empty() {
            self.tails.resize_with(TAILS, Tail::default);
        }
        let tail = &mut self.tails[sought.place];
        let is_new = !tail.bytes.is_empty() && tail.bytes != sought.bytes;
        if is_new {
            self.tails_turned_away += 1;
            if !self.tails_turned_away.is_multiple_of(KEPT_OF) {
                return;
            }
        }
        tail.bytes.clear();
        tail.bytes.extend_from_slice(sought.bytes);
        tail.labels.clear();
        tail.labels
            .extend_from_slice(&self.labels[self.labels.len() - names.len()..]);
        tail.names.clear();
        tail.names.extend_from_slice(names);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::LabelName;

    /// The labels of a point with these attributes, each of which is its own value: looked for together, then one by one, and kept where all were known.
    /// Whether they were found together.
    fn read(labels: &mut PointLabels, names: &mut Vec<NameId>, attributes: &[String]) -> bool {
        let name = LabelName::new("route");
        let bytes = attributes.concat();
        labels.begin();
        names.clear();
        let Err(sought) = labels.add_tail(bytes.as_bytes(), names) else {
            return true;
        };
        let mut all_known = true;
        for attribute in attributes.iter().map(String::as_bytes) {
            match labels.add_known(attribute) {
                Some(known) => names.push(known),
                None => {
                    all_known = false;
                    labels.add_new(attribute, NameId::default(), &name, attribute);
                }
            }
        }
        if let Some(sought) = sought
            && all_known
        {
            labels.keep_tail(&sought, names);
        }
        false
    }

    fn point(n: usize) -> Vec<String> {
        (0..4).map(|at| format!("label {at} of point {n}")).collect()
    }

    /// Scenario: a point comes again and again; then thousands of others, which never do; then it again.
    /// Guarantees: from the third time on its labels are found together, and are those, in number, value, length and hash, that were found one by one;
    /// where the place of one of them was taken they are made anew.
    #[test]
    fn labels_are_found_together() {
        let (mut labels, mut names) = (PointLabels::default(), Vec::new());
        let same = point(0);
        let seen = |labels: &PointLabels| {
            let values: Vec<_> = (0..4).map(|index| labels.value(index).to_owned()).collect();
            let serials: Vec<_> = (0..4).map(|index| labels.serial_and_len(index)).collect();
            (values, serials, labels.bytes(), labels.hash)
        };
        assert!(!read(&mut labels, &mut names, &same));
        let first = seen(&labels);
        assert!(first.0 == same);
        assert!(!read(&mut labels, &mut names, &same));
        for _ in 0..3 {
            assert!(read(&mut labels, &mut names, &same));
            assert!(seen(&labels) == first && names.len() == 4);
            assert_eq!(labels.repeated, labels.hash);
        }
        for n in 1..20_000 {
            assert!(!read(&mut labels, &mut names, &point(n)));
        }
        assert!(!read(&mut labels, &mut names, &same));
        assert!(seen(&labels).0 == same && seen(&labels).1 != first.1);
        labels.forget();
        assert!(!read(&mut labels, &mut names, &same));
    }

    /// Scenario: points of known labels in ever new combinations, of many sizes.
    /// Guarantees: what is kept of them is bounded.
    #[test]
    fn what_is_kept_is_bounded() {
        let (mut labels, mut names) = (PointLabels::default(), Vec::new());
        let known: Vec<String> = (0..200).map(|n| format!("v{n:03}xxxxx")).collect();
        for n in 0..20_000 {
            let len = 1 + n % 70;
            let attributes: Vec<_> = (0..len)
                .map(|at| known[(n / 7 + at * (1 + n % 13)) % known.len()].clone())
                .collect();
            read(&mut labels, &mut names, &attributes);
        }
        let bytes_of = |tail: &Tail| {
            tail.bytes.capacity()
                + tail.labels.capacity() * size_of::<Placed>()
                + tail.names.capacity() * size_of::<NameId>()
        };
        let kept: usize = labels.tails.iter().map(bytes_of).sum();
        assert!(
            labels.tails.len() == TAILS && kept > 0 && kept <= 4 << 20,
            "{kept}"
        );
        assert!(
            labels
                .tails
                .iter()
                .all(|tail| tail.bytes.len() <= MAX_TAIL_BYTES && tail.labels.len() != 1)
        );
    }
}
