//! The attributes that points end with, as they came together before.
//!
//! Attributes do not only repeat one by one: what a point ends with, or has in all, is mostly what some point before it had. So the labels that were
//! known for the end of a point are kept under all of its bytes, and one comparison finds them together. Nothing is added to a point after them.

use super::{NEAR, Placed, PointLabels};
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

/// Labels that are found together are told at so many points that they are in use, and not at each. So a label by itself counts as one that repeats half
/// as far back at least.
const TOLD_FOR: u64 = NEAR / 2;

/// Labels that came one after the other up to a point's end.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// The fields of the point as they came.
    bytes: Vec<u8>,
    labels: Vec<Placed>,
    names: Vec<NameId>,
    /// Of the labels, added up.
    len: usize,
    hash: u64,
    /// The place of the tail that was found after this one the last time: points mostly come in the order they came in before.
    next: u32,
    /// The point at which its labels were told that they are in use, and how many had gone from tails by then.
    told_at: u64,
    gone: u64,
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
        let last = self.last_tail as usize;
        let expected = self.tails.get(last).map_or(0, |tail| tail.next as usize);
        let is_expected = self.tails.get(expected).is_some_and(|tail| tail.bytes == bytes);
        let place = match is_expected {
            true => expected,
            false => hash::place(bytes) as usize % TAILS,
        };
        let Some(tail) = (self.tails.get_mut(place)).filter(|tail| is_expected || tail.bytes == bytes) else {
            return Err(Some(Sought { bytes, place }));
        };
        if tail.gone == self.gone_from_tails && self.point - tail.told_at <= TOLD_FOR {
            self.repeated = self.repeated.wrapping_add(tail.hash);
        } else {
            // Another label may have taken the place of one of them.
            let recent = &mut self.recent;
            let is_kept = |label: &Placed| recent[label.place as usize].label.serial == label.serial;
            if !tail.labels.iter().all(is_kept) {
                return Err(Some(Sought { bytes, place }));
            }
            for label in &tail.labels {
                let recent = &mut recent[label.place as usize];
                if recent.use_by(self.point) {
                    self.repeated = self.repeated.wrapping_add(recent.label.hash);
                }
            }
            (tail.told_at, tail.gone) = (self.point, self.gone_from_tails);
        }
        self.bytes += tail.len;
        self.hash = self.hash.wrapping_add(tail.hash);
        self.labels.extend_from_slice(&tail.labels);
        names.extend_from_slice(&tail.names);
        self.last_tail = place as u32;
        if !is_expected {
            self.tails[last].next = place as u32;
        }
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
        let labels = &self.labels[self.labels.len() - names.len()..];
        tail.labels.clear();
        tail.labels.extend_from_slice(labels);
        tail.names.clear();
        tail.names.extend_from_slice(names);
        (tail.len, tail.hash) = (0, 0);
        for label in labels {
            let recent = &mut self.recent[label.place as usize];
            recent.is_in_tail = true;
            tail.len += label.len as usize;
            tail.hash = tail.hash.wrapping_add(recent.label.hash);
        }
        (tail.told_at, tail.gone) = (self.point, self.gone_from_tails);
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
                Ok(known) => names.push(known),
                Err(unknown) => {
                    all_known = false;
                    labels.add_new(attribute, unknown, NameId::default(), &name, attribute);
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

    /// Scenario: a point comes again and again; then thousands of others, twice each; then it again.
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
        for n in (1..20_000).flat_map(|n| [n; 2]) {
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

    /// Scenario: four points whose attributes, taken together, want the same place, in turn.
    /// Guarantees: of those that find the place taken one in four gets it, whichever comes then: each is found together sooner or later; between two that
    /// get it the one that has it is found every time.
    #[test]
    fn one_in_four_takes_the_place_of_another() {
        let (mut labels, mut names) = (PointLabels::default(), Vec::new());
        let place_of = |point: &Vec<String>| hash::place(point.concat().as_bytes()) as usize % TAILS;
        // Attributes of their own would want each other's places as well.
        let attributes: Vec<String> = (0..24).map(|n| format!("attribute {n}")).collect();
        let mut by_place: Vec<Vec<Vec<String>>> = vec![Vec::new(); TAILS];
        let triples =
            (0..24 * 24 * 24).map(|n| [n % 24, n / 24 % 24, n / 576].map(|at: usize| attributes[at].clone()));
        let points = triples
            .map(Vec::from)
            .find_map(|point| {
                let same = &mut by_place[place_of(&point)];
                same.push(point);
                (same.len() == 4).then(|| same.clone())
            })
            .unwrap();
        // Attributes are kept when they come for the first time or the second, and this is not about them.
        for attribute in attributes.iter().flat_map(|attribute| [attribute; 3]) {
            read(&mut labels, &mut names, std::slice::from_ref(attribute));
        }
        let mut found = [0; 4];
        let (mut in_place, mut turned_away) = (None, 0);
        for n in 0..400 {
            let which = n * 7 % 4;
            let is_found = read(&mut labels, &mut names, &points[which]);
            assert_eq!(is_found, in_place == Some(which), "{n}");
            if is_found {
                found[which] += 1;
                continue;
            }
            turned_away += u64::from(in_place.is_some());
            if in_place.is_none() || turned_away.is_multiple_of(KEPT_OF) {
                in_place = Some(which);
            }
        }
        assert!(found.iter().all(|found| *found > 10), "{found:?}");
    }

    /// Scenario: a point comes five times, then three points with one attribute, which wants the place of one of its labels; and so on, with ever other attributes.
    /// Guarantees: the point has its own labels at all times, found together or not; they are found together again after one of them was made anew.
    #[test]
    fn labels_that_are_gone_are_not_found_together() {
        let name = LabelName::new("route");
        let (mut labels, mut names) = (PointLabels::default(), Vec::new());
        let same = point(0);
        let place_of = |attribute: &str| hash::place(attribute.as_bytes()) as usize % super::super::RECENT;
        let rivals: Vec<String> = (0..100_000)
            .map(|n| format!("rival {n}"))
            .filter(|rival| place_of(rival) == place_of(&same[2]))
            .take(20)
            .collect();
        let (mut together, mut anew) = (0, 0);
        let mut serial = None;
        for n in 0..4000 {
            if n % 8 < 3 {
                labels.begin();
                let rival = rivals[n / 8 % rivals.len()].as_bytes();
                if let Err(unknown) = labels.add_known(rival) {
                    labels.add_new(rival, unknown, NameId::default(), &name, rival);
                }
                continue;
            }
            together += u32::from(read(&mut labels, &mut names, &same));
            let now: Vec<_> = (0..4).map(|index| labels.value(index).to_owned()).collect();
            assert!(now == same, "{n}: {now:?}");
            let now = labels.serial_and_len(2).0;
            anew += u32::from(serial.replace(now) != Some(now));
        }
        println!("{together} together, {anew} anew");
        assert!(together > 1000 && anew > 100, "{together} {anew}");
    }
}
