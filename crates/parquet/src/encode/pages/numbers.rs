//! How the numbers of a column are written: as places in a dictionary, as differences, or as they are.

use parquet::basic::{Encoding, Type};

use super::bounds::Bounds;
use super::repeats::Repeats;
use super::{Tools, delta, hybrid};
use crate::encode::dictionary::Integers;
use crate::encode::interned::{DICTIONARY_BYTES, DictionaryPage, bits};

/// After so many numbers it is looked whether a dictionary pays at all; see the same of texts.
const TRIAL: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plan {
    Dictionary,
    /// Pages that are finished have places, later ones of the row group numbers.
    Ended,
    /// No page of the row group has places.
    Plain,
}

/// The numbers of a column of a row group.
#[derive(Debug)]
pub(crate) struct Numbers {
    physical: Type,
    plan: Plan,
    /// Whether a dictionary is never tried.
    unique: bool,
    dictionary: Integers,
    /// Numbers of rows of finished pages that are in the dictionary.
    looked_up: usize,
}

impl Numbers {
    /// `unique`: they rarely occur twice, so that a dictionary is work for nothing.
    pub fn new(physical: Type, unique: bool) -> Self {
        let unique = unique || physical == Type::BOOLEAN;
        Self {
            physical,
            unique,
            plan: match unique {
                true => Plan::Plain,
                false => Plan::Dictionary,
            },
            dictionary: Integers::default(),
            looked_up: 0,
        }
    }

    /// Appends the numbers of a page; how, and their bounds if they are in rows.
    pub fn put(
        &mut self,
        tools: &mut Tools,
        page: &mut Vec<u8>,
        repeats: Option<&Repeats<'_>>,
        numbers: &[i64],
        bounded: bool,
    ) -> (Encoding, Option<Bounds>) {
        let mut places = std::mem::take(&mut tools.places);
        // A page without numbers refers to no dictionary.
        let found = self.plan == Plan::Dictionary
            && !numbers.is_empty()
            && self.look_up(numbers, repeats, &mut places);
        tools.places = places;
        if found {
            let bounds = bounded.then(|| self.bounds_of_places(tools)).flatten();
            let places = match repeats {
                Some(repeats) => {
                    tools.repeated.clear();
                    repeats.expand(&tools.places, &mut tools.repeated);
                    &tools.repeated
                }
                None => &tools.places,
            };
            hybrid::put_places(page, places, self.dictionary.values().len());
            return (Encoding::RLE_DICTIONARY, bounds);
        }
        let bounds = bounded
            .then(|| Bounds::of_numbers(self.physical, numbers.iter().copied()))
            .flatten();
        let mut repeated = Vec::new();
        let numbers = match repeats {
            Some(repeats) => {
                repeats.expand(numbers, &mut repeated);
                &repeated
            }
            None => numbers,
        };
        if self.physical == Type::INT64 {
            return (put_longs(page, numbers), bounds);
        }
        put_plain(page, self.physical, numbers);
        (Encoding::PLAIN, bounds)
    }

    /// Finds the places of all numbers in the dictionary; false if it turns out that the column had better have none.
    fn look_up(&mut self, numbers: &[i64], repeats: Option<&Repeats<'_>>, places: &mut Vec<u32>) -> bool {
        places.clear();
        let rows = repeats.map_or(numbers.len(), Repeats::values);
        let mut last = (0, None);
        for number in numbers {
            let place = match last {
                (before, Some(place)) if before == *number => place,
                _ => self.dictionary.place(*number),
            };
            last = (*number, Some(place));
            places.push(place);
            if places.len() == TRIAL && repeats.is_none() && self.looked_up == 0 && !self.pays(TRIAL) {
                break;
            }
        }
        if self.looked_up == 0 && (places.len() < numbers.len() || !self.pays(rows)) {
            // Nothing refers to it yet.
            self.dictionary.clear();
            self.plan = Plan::Plain;
            return false;
        }
        self.looked_up += rows;
        if !self.pays(self.looked_up) || self.dictionary.values().len() * 8 > DICTIONARY_BYTES {
            self.plan = Plan::Ended;
        }
        true
    }

    fn pays(&self, looked_up: usize) -> bool {
        self.dictionary.values().len() * 2 <= looked_up
    }

    /// Bounds of a page of the dictionary: each of its numbers is looked at once.
    fn bounds_of_places(&self, tools: &mut Tools) -> Option<Bounds> {
        let (seen, values) = (&mut tools.seen, self.dictionary.values());
        seen.clear();
        seen.resize(values.len().div_ceil(64), 0);
        for place in &tools.places {
            seen[*place as usize / 64] |= 1 << (place % 64);
        }
        Bounds::of_numbers(self.physical, bits(seen).map(|place| values[place as usize]))
    }

    /// Ends the row group: its dictionary page, if it has one.
    pub fn end(&mut self) -> Option<DictionaryPage> {
        if !self.unique {
            self.plan = Plan::Dictionary;
        }
        let mut page = None;
        if std::mem::take(&mut self.looked_up) > 0 {
            let mut bytes = Vec::new();
            put_plain(&mut bytes, self.physical, self.dictionary.values());
            let values = self.dictionary.values().len();
            page = Some(DictionaryPage { bytes, values });
        }
        self.dictionary.clear();
        page
    }

    /// Bytes of the dictionary page.
    pub fn dictionary_bytes(&self) -> usize {
        8 * self.dictionary.values().len()
    }

    /// Bytes of memory it holds.
    pub fn memory_bytes(&self) -> usize {
        self.dictionary.memory_bytes()
    }
}

/// Appends the differences, if they are smaller than the numbers.
fn put_longs(page: &mut Vec<u8>, numbers: &[i64]) -> Encoding {
    let start = page.len();
    delta::put(page, numbers);
    if page.len() - start < numbers.len() * 8 {
        return Encoding::DELTA_BINARY_PACKED;
    }
    page.truncate(start);
    put_plain(page, Type::INT64, numbers);
    Encoding::PLAIN
}

fn put_plain(page: &mut Vec<u8>, physical: Type, numbers: &[i64]) {
    match physical {
        Type::BOOLEAN => {
            for group in numbers.chunks(8) {
                page.push(group.iter().rev().fold(0, |bits, value| bits << 1 | *value as u8));
            }
        }
        Type::INT32 => numbers
            .iter()
            .for_each(|value| page.extend_from_slice(&(*value as i32).to_le_bytes())),
        _ => numbers
            .iter()
            .for_each(|value| page.extend_from_slice(&value.to_le_bytes())),
    }
}
