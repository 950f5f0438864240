//! The labels of one data point, and those of the points before it.
//!
//! Attributes repeat: of a hundred points most have the region, the method and the route of some other. So what was made of
//! an attribute is kept under its bytes, and an attribute that comes again is neither read, checked nor written again. Each
//! label that is kept has a number of its own, by which others know it without comparing bytes.
//!
//! Others never come again: ids, say. So one that would take the place of another is kept when it comes a second time, before others want that place.

mod tails;

use crate::hash;
use crate::labels::{LabelName, NameId};
pub(crate) use tails::Sought;
use tails::Tail;

/// Labels that are kept: what points have in common at one time, and small enough for a core's own cache. Each has one place.
const RECENT: usize = 1024;

/// Where a label is that one of the last [`NEAR`] points had, of those that come a second time one in so many takes its place: with the label all `tails` go
/// that it is in. And where one is that no point has any more, one in so many of those that come once: two that want the place in turn keep each other from
/// coming a second time.
const PUSHED_OUT_BY: u64 = 8;

/// A longer attribute is rarely one that repeats, and would cost memory a place: it is made again each time.
const MAX_ATTRIBUTE_BYTES: usize = 256;

/// How many points back a label counts as one that repeats: about as many as a snappy copy reaches back over four lanes of
/// series of some hundred bytes.
const NEAR: u64 = 128;

/// Where so many of the first attributes of points were not known, less [`KNOWN_FOR`] for each that was, most of those to come will not be either: an id, say.
/// They had a chance to come again in as many places as there are. From then on one in [`SOUGHT_OF`] is looked for, until it is less.
const UNKNOWN: u32 = RECENT as u32;

/// So many that are looked for in vain cost what one that is known saves: a label is some 380 instructions, a place that is not in the first cache some hundred.
const KNOWN_FOR: u32 = 4;

/// See [`UNKNOWN`].
const SOUGHT_OF: u64 = 8;

/// Room for labels that are not kept that stays between requests: more than usual points need.
const MAX_OWN_BYTES: usize = 64 << 10;

/// The numbers of points' labels begin here, so that they are never those of [`Label`](crate::labels::Label).
const FIRST_SERIAL: u64 = 1 << 63;

/// And those of a second list from here on.
const APART: u64 = 1 << 62;

/// An attribute and the label made of it.
#[derive(Debug, Default)]
struct Recent {
    /// The hash of the attribute that wanted the place last.
    wanted: u64,
    /// The attribute as it came, then the label as a field of a 1.0 `TimeSeries`.
    bytes: Vec<u8>,
    attribute_bytes: usize,
    label: PointLabel,
    /// The point that has it among its labels.
    used_by: u64,
    /// It is in one of the `tails`, or has been.
    is_in_tail: bool,
}

/// An attribute that is not known, by the hash of its bytes; none where it was not looked for, and will not be kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unknown(Option<u64>);

impl Recent {
    /// Notes that a point has it; whether one of the [`NEAR`] points before that had it too.
    #[inline]
    fn use_by(&mut self, point: u64) -> bool {
        point - std::mem::replace(&mut self.used_by, point) <= NEAR
    }
}

/// A label: whose it is and where its bytes are.
#[derive(Debug, Clone, Copy, Default)]
struct PointLabel {
    name: NameId,
    /// Labels of one number are the same; those of number 0 are not known.
    serial: u64,
    hash: u64,
    start: u32,
    value_at: u32,
    end: u32,
}

impl PointLabel {
    #[inline]
    fn len(&self) -> usize {
        (self.end - self.start) as usize
    }
}

/// A label of the point, and what is asked of it most.
#[derive(Debug, Clone, Copy)]
struct Placed {
    serial: u64,
    /// Among the recent ones, or from [`OWN`] on among the point's own. It stays there until the next point begins.
    place: u32,
    len: u32,
}

const OWN: u32 = 1 << 31;

/// The labels of a data point, encoded, in the order of its attributes.
#[derive(Debug, Default)]
pub(crate) struct PointLabels {
    recent: Vec<Recent>,
    /// Of the bytes of each of those, beside each other: where it is another one nothing else is looked at.
    hashes: Vec<u64>,
    tails: Vec<Tail>,
    /// The place of the tail that was found last.
    last_tail: u32,
    /// Labels that are not kept.
    own: Vec<PointLabel>,
    own_bytes: Vec<u8>,
    labels: Vec<Placed>,
    bytes: usize,
    /// Bytes and hash of all labels, while `bytes` and `hash` are those of the labels that the series has.
    whole: Option<(usize, u64)>,
    point: u64,
    serial: u64,
    /// Labels that found their place taken and had to wait for their turn, also those that got it.
    turned_away: u64,
    /// See [`UNKNOWN`], of which it is no more.
    unknown: u32,
    /// Labels of `tails` that are not kept any more.
    gone_from_tails: u64,
    /// The same of `tails`.
    tails_turned_away: u64,
    #[cfg(test)]
    pub(crate) tails_found: u64,
    pub hash: u64,
    /// Hashes of those labels, added up, that one of the last [`NEAR`] points had too: what series that are nearly the same have
    /// in common. What
    /// tells a series from all others is not in it, though it comes again in every request.
    pub repeated: u64,
}

impl PointLabels {
    /// Like the default one, with other numbers for its labels than that has.
    pub fn apart() -> Self {
        Self {
            serial: APART,
            ..Self::default()
        }
    }

    /// Begins the next point.
    #[inline]
    pub fn begin(&mut self) {
        self.point += 1;
        self.own.clear();
        self.own_bytes.clear();
        self.clear();
    }

    /// Begins the labels of the same point again.
    #[inline]
    pub fn clear(&mut self) {
        self.labels.clear();
        self.bytes = 0;
        self.hash = 0;
        self.repeated = 0;
        self.whole = None;
    }

    /// Ends a request: gives back the room that a large point has taken.
    pub fn make_room(&mut self) {
        self.begin();
        self.own_bytes.shrink_to(MAX_OWN_BYTES);
        self.own.shrink_to(MAX_OWN_BYTES / size_of::<PointLabel>());
        self.labels.shrink_to(MAX_OWN_BYTES / size_of::<Placed>());
    }

    /// Forgets all labels that are kept: names have got other ids.
    pub fn forget(&mut self) {
        self.recent.clear();
        self.hashes.clear();
        self.tails.clear();
    }

    /// Adds the label that was made of an attribute with these bytes before, and says its name.
    ///
    /// # Errors
    /// When it is not known: it may be [new](Self::add_new).
    // For each attribute of each point: as a call it would take a quarter more.
    #[inline(always)]
    pub fn add_known(&mut self, attribute: &[u8]) -> Result<NameId, Unknown> {
        let is_first = self.labels.is_empty();
        if is_first && self.is_passed_over() {
            return Err(Unknown(None));
        }
        let hash = hash::place(attribute);
        let place = hash as usize % RECENT;
        let is_there = self.hashes.get(place) == Some(&hash);
        let recent = is_there.then(|| &mut self.recent[place]);
        let known = recent.filter(|recent| recent.bytes[..recent.attribute_bytes] == *attribute);
        let Some(recent) = known.filter(|recent| recent.label.serial != 0) else {
            self.unknown = UNKNOWN.min(self.unknown + u32::from(is_first));
            return Err(Unknown(Some(hash)));
        };
        if is_first {
            self.unknown = self.unknown.saturating_sub(KNOWN_FOR);
        }
        let is_near = recent.use_by(self.point);
        let PointLabel {
            name, hash, serial, ..
        } = recent.label;
        let len = recent.label.len();
        self.bytes += len;
        self.hash = self.hash.wrapping_add(hash);
        if is_near {
            self.repeated = self.repeated.wrapping_add(hash);
        }
        self.labels.push(Placed {
            serial,
            place: place as u32,
            len: len as u32,
        });
        Ok(name)
    }

    /// Whether the first attribute of this point is not even looked for.
    #[inline]
    fn is_passed_over(&self) -> bool {
        self.unknown == UNKNOWN && !self.point.is_multiple_of(SOUGHT_OF)
    }

    /// Makes a label of an attribute with these bytes, which say `value`, adds it, and keeps it where there is a place for it.
    pub fn add_new(
        &mut self,
        attribute: &[u8],
        Unknown(hash): Unknown,
        id: NameId,
        name: &LabelName,
        value: &[u8],
    ) {
        let Some(hash) = hash else {
            return self.push(id, name, value);
        };
        if self.recent.is_empty() {
            self.recent.resize_with(RECENT, Recent::default);
            self.hashes.resize(RECENT, 0);
        }
        let place = hash as usize % RECENT;
        let recent = &mut self.recent[place];
        let comes_again = std::mem::replace(&mut recent.wanted, hash) == hash;
        let is_free = recent.label.serial == 0;
        let in_use = self.point - recent.used_by <= NEAR;
        if attribute.len() > MAX_ATTRIBUTE_BYTES
            || !is_free && in_use && (!comes_again || recent.used_by == self.point)
        {
            return self.push(id, name, value);
        }
        if !is_free && in_use == comes_again {
            // Not by the point's number: the points of a request may come in the same places each time.
            self.turned_away += 1;
            if !self.turned_away.is_multiple_of(PUSHED_OUT_BY) {
                return self.push(id, name, value);
            }
        }
        self.gone_from_tails += u64::from(std::mem::take(&mut recent.is_in_tail));
        recent.bytes.clear();
        recent.bytes.extend_from_slice(attribute);
        let value_at = name.put(&mut recent.bytes, value);
        self.serial += 1;
        self.hashes[place] = hash;
        recent.attribute_bytes = attribute.len();
        recent.used_by = self.point;
        recent.label = PointLabel {
            name: id,
            serial: FIRST_SERIAL | self.serial,
            hash: hash::label(name.hash, value),
            start: attribute.len() as u32,
            value_at: value_at as u32,
            end: recent.bytes.len() as u32,
        };
        let label = recent.label;
        self.place(&label, place as u32);
    }

    /// Makes a label, which is not kept, and adds it.
    pub fn push(&mut self, id: NameId, name: &LabelName, value: &[u8]) {
        let start = self.own_bytes.len() as u32;
        let value_at = name.put(&mut self.own_bytes, value) as u32;
        let label = PointLabel {
            name: id,
            serial: 0,
            hash: hash::label(name.hash, value),
            start,
            value_at,
            end: self.own_bytes.len() as u32,
        };
        self.place(&label, OWN | self.own.len() as u32);
        self.own.push(label);
    }

    fn place(&mut self, label: &PointLabel, place: u32) {
        self.bytes += label.len();
        self.hash = self.hash.wrapping_add(label.hash);
        self.labels.push(Placed {
            serial: label.serial,
            place,
            len: label.len() as u32,
        });
    }

    /// Of the labels only these are in the series; the others keep their indexes.
    pub fn only(&mut self, indexes: impl Iterator<Item = u32>) {
        let (mut bytes, mut hash) = (0, 0u64);
        for index in indexes {
            let label = self.label(index);
            bytes += label.len();
            hash = hash.wrapping_add(label.hash);
        }
        self.whole.get_or_insert((self.bytes, self.hash));
        (self.bytes, self.hash) = (bytes, hash);
    }

    /// All labels are in the series.
    #[inline]
    pub fn all(&mut self) {
        if let Some(whole) = self.whole.take() {
            (self.bytes, self.hash) = whole;
        }
    }

    /// Length of all of them.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    fn label(&self, index: u32) -> &PointLabel {
        match self.labels[index as usize].place {
            own @ OWN.. => &self.own[(own - OWN) as usize],
            place => &self.recent[place as usize].label,
        }
    }

    #[inline]
    fn bytes_of(&self, index: u32) -> &[u8] {
        match self.labels[index as usize].place {
            OWN.. => &self.own_bytes,
            place => &self.recent[place as usize].bytes,
        }
    }

    /// The label as a field of a 1.0 `TimeSeries`.
    #[inline]
    pub fn encoded(&self, index: u32) -> &[u8] {
        let label = self.label(index);
        &self.bytes_of(index)[label.start as usize..label.end as usize]
    }

    #[inline]
    pub fn value_bytes(&self, index: u32) -> &[u8] {
        let label = self.label(index);
        &self.bytes_of(index)[label.value_at as usize..label.end as usize]
    }

    pub fn value(&self, index: u32) -> &str {
        // What labels are made of has been text before.
        std::str::from_utf8(self.value_bytes(index)).unwrap_or_default()
    }

    pub fn name(&self, index: u32) -> NameId {
        self.label(index).name
    }

    /// The number of a label, and the length of its bytes. Labels of one number are the same; 0 says nothing.
    #[inline]
    pub fn serial_and_len(&self, index: u32) -> (u64, usize) {
        let label = &self.labels[index as usize];
        (label.serial, label.len as usize)
    }

    /// The same; none where there is no such label.
    #[inline]
    pub fn get(&self, index: u32) -> Option<(u64, usize)> {
        let label = self.labels.get(index as usize)?;
        Some((label.serial, label.len as usize))
    }
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
                if let Err(unknown) = labels.add_known(value.as_bytes()) {
                    labels.add_new(value.as_bytes(), unknown, id, &name, value.as_bytes());
                }
            }
            found += (0..values.len() as u32)
                .filter(|index| labels.serial_and_len(*index).0 != 0)
                .count();
            for (index, value) in values.iter().enumerate() {
                assert_eq!(labels.value(index as u32), value);
            }
        }
        assert!(found > RECENT, "{found}");
        labels.forget();
        assert!(labels.add_known(b"value 1").is_err());
    }

    fn place_of(attribute: &[u8]) -> usize {
        hash::place(attribute) as usize % RECENT
    }

    /// Scenario: thousands of points that begin with an attribute which comes once; then points that begin with 500 others in turn; each ends with one that
    /// all of them have.
    /// Guarantees: of those that come once most are not looked for, and all have their label; of those that come again most are known after
    /// a while, and what all points have always is.
    #[test]
    fn what_never_comes_again_is_hardly_looked_for() {
        let (name, id) = (LabelName::new("route"), NameId::default());
        let mut labels = PointLabels::default();
        let mut add = |first: &str| {
            labels.begin();
            let found = [first, "GET"].map(|attribute| {
                let known = labels.add_known(attribute.as_bytes());
                if let Err(unknown) = known {
                    labels.add_new(attribute.as_bytes(), unknown, id, &name, attribute.as_bytes());
                }
                known
            });
            assert_eq!((labels.value(0), labels.value(1)), (first, "GET"));
            found
        };
        let passed_over = |found: &Result<NameId, Unknown>| matches!(found, Err(Unknown(None)));
        let mut over = 0;
        for n in 0..9000 {
            let [first, last] = add(&format!("once {n}"));
            over += usize::from(passed_over(&first));
            assert!(last.is_ok() || n == 0);
        }
        assert_eq!(over, (9000 - RECENT) / 8 * 7, "{over}");
        let mut unknown = 0;
        for n in 0..20_000 {
            let [first, last] = add(&format!("again {}", n % 500));
            unknown += usize::from(n >= 10_000 && first.is_err());
            assert!(last.is_ok());
        }
        // Two of 500 that want one of 1,024 places keep each other out now and then.
        assert!(unknown < 3000, "{unknown}");
    }

    /// Scenario: two attributes that points have all the time, among thousands of points with an attribute that comes once, and one that comes twice.
    /// Guarantees: those that come again are known nearly always: others take their places only when they come a second time, and then seldom.
    #[test]
    fn what_comes_once_takes_no_place() {
        let (name, id) = (LabelName::new("route"), NameId::default());
        let mut labels = PointLabels::default();
        let add = |labels: &mut PointLabels, attribute: &str| {
            let known = labels.add_known(attribute.as_bytes());
            if let Err(unknown) = known {
                labels.add_new(attribute.as_bytes(), unknown, id, &name, attribute.as_bytes());
            }
            known.is_ok()
        };
        let mut unknown = 0;
        for n in 0..20_000 {
            labels.begin();
            for often in ["GET", "POST"] {
                unknown += u32::from(!add(&mut labels, often));
            }
            assert!(!add(&mut labels, &format!("once {n}")));
            let twice = n / 2;
            add(&mut labels, &format!("twice {twice}"));
        }
        // 20,000 times 2 / 1024 come a second time in one of the two places, half of that, and each is pushed out by one in eight and back after at most as many.
        assert!(unknown < 200, "{unknown}");
    }

    /// Scenario: requests of eight points each, of which the first two have one attribute each that want the same place.
    /// Guarantees: the later one gets it in the end, wherever in the request it comes.
    #[test]
    fn what_comes_at_the_same_point_of_each_request_is_kept_too() {
        let name = LabelName::new("route");
        let values: Vec<String> = (0..=RECENT).map(|n| format!("value {n}")).collect();
        let pairs = values.iter().enumerate().find_map(|(at, first)| {
            let same = |later: &&String| place_of(later.as_bytes()) == place_of(first.as_bytes());
            Some([first, values[at + 1..].iter().find(same)?])
        });
        let pair = pairs.unwrap().map(String::as_bytes);
        let mut labels = PointLabels::default();
        let mut found = [0; 2];
        for _ in 0..10 * PUSHED_OUT_BY {
            for (attribute, found) in pair.into_iter().zip(&mut found) {
                labels.begin();
                match labels.add_known(attribute) {
                    Ok(_) => *found += 1,
                    Err(unknown) => {
                        labels.add_new(attribute, unknown, NameId::default(), &name, attribute);
                    }
                }
            }
            (2..8).for_each(|_| labels.begin());
        }
        assert!(found.iter().all(|found| *found > 0), "{found:?}");
    }

    /// Scenario: a point with a label of a megabyte and a request's end.
    /// Guarantees: its room is given back.
    #[test]
    fn a_large_point_leaves_no_room_behind() {
        let mut labels = PointLabels::default();
        labels.push(NameId::default(), &LabelName::new("n"), &vec![b'v'; 1 << 20]);
        assert!(labels.own_bytes.capacity() > 1 << 20);
        labels.make_room();
        assert!(labels.own_bytes.capacity() <= MAX_OWN_BYTES);
    }
}
