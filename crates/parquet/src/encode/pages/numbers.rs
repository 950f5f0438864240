//! How the numbers of a column are written: as places in a dictionary, as differences, or as they are.

use parquet::basic::{Encoding, Type};

use super::bounds::Bounds;
use super::repeats::Repeats;
use super::{Tools, delta, hybrid};
use crate::encode::dictionary::Integers;
use crate::encode::interned::DictionaryPage;
use crate::encode::plan::{DICTIONARY_BYTES, Plan, TRIAL};

/// Of so many of a page's numbers it is seen whether their differences are smaller: four blocks of them.
const DELTA_TRIAL: usize = 512;

/// The numbers of a column of a row group.
#[derive(Debug)]
pub(crate) struct Numbers {
    physical: Type,
    plan: Plan,
    dictionary: Integers,
}

impl Numbers {
    /// `unique`: they rarely occur twice, so that a dictionary is work for nothing.
    pub fn new(physical: Type, unique: bool) -> Self {
        Self {
            physical,
            plan: Plan::new(unique || physical == Type::BOOLEAN),
            dictionary: Integers::default(),
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
        // What is the same everywhere is a run.
        let all = [numbers.len() as u32];
        let run = Repeats::new(&all, None, None);
        let (numbers, repeats) = match numbers {
            [first, ..]
                if repeats.is_none()
                    && self.plan.looks_up()
                    && numbers.iter().all(|number| number == first) =>
            {
                (&numbers[..1], run.as_ref())
            }
            _ => (numbers, repeats),
        };
        let mut places = std::mem::take(&mut tools.places);
        // A page without numbers refers to no dictionary.
        let found =
            self.plan.looks_up() && !numbers.is_empty() && self.look_up(numbers, repeats, &mut places);
        tools.places = places;
        if found {
            let values = self.dictionary.values();
            let bounds = bounded.then(|| {
                let distinct = tools.seen.distinct(&tools.places, values.len());
                Bounds::of_numbers(self.physical, distinct.map(|place| values[place as usize]))
            });
            match repeats {
                Some(repeats) => {
                    repeats.put_places(page, &tools.places, values.len(), &mut tools.repeated);
                }
                None => hybrid::put_places(page, &tools.places, values.len()),
            }
            return (Encoding::RLE_DICTIONARY, bounds.flatten());
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
            return (put_longs(page, numbers, tools.by.delta), bounds);
        }
        put_plain(page, self.physical, numbers);
        (Encoding::PLAIN, bounds)
    }

    /// Finds the places of all numbers in the dictionary; false if it turns out that the column had better have none.
    fn look_up(&mut self, numbers: &[i64], repeats: Option<&Repeats<'_>>, places: &mut Vec<u32>) -> bool {
        places.clear();
        let of_rows = repeats.map_or(numbers.len(), Repeats::values);
        // How many rows share a number is known of all of them together.
        let tried = match repeats {
            None => TRIAL.min(numbers.len()),
            Some(_) => numbers.len(),
        };
        let (tried, rest) = numbers.split_at(tried);
        self.find(tried, places);
        let failed = !rest.is_empty() && self.plan.fails(self.distinct(), tried.len());
        if !failed {
            self.find(rest, places);
        }
        if failed || self.plan.fails(self.distinct(), of_rows) {
            // Nothing refers to it yet.
            self.dictionary.clear();
            self.plan.give_up();
            return false;
        }
        let is_large = self.dictionary_bytes() > DICTIONARY_BYTES;
        self.plan.finish_page(self.distinct(), of_rows, is_large);
        true
    }

    /// Appends the places of numbers.
    fn find(&mut self, numbers: &[i64], places: &mut Vec<u32>) {
        let Some(first) = numbers.first() else { return };
        let mut last = (*first, self.dictionary.place(*first));
        places.extend(numbers.iter().map(|number| {
            if *number != last.0 {
                last = (*number, self.dictionary.place(*number));
            }
            last.1
        }));
    }

    fn distinct(&self) -> usize {
        self.dictionary.values().len()
    }

    /// Ends the row group: its dictionary page, if it has one.
    pub fn end(&mut self) -> Option<DictionaryPage> {
        let page = self.plan.end().then(|| {
            let mut bytes = Vec::new();
            put_plain(&mut bytes, self.physical, self.dictionary.values());
            let values = self.distinct();
            DictionaryPage { bytes, values }
        });
        self.dictionary.clear();
        page
    }

    /// Bytes of the dictionary page.
    pub fn dictionary_bytes(&self) -> usize {
        8 * self.distinct()
    }

    /// Bytes of memory it holds.
    pub fn memory_bytes(&self) -> usize {
        self.dictionary.memory_bytes()
    }
}

/// Appends the differences, if they are smaller than the numbers and `delta` lets them be written.
fn put_longs(page: &mut Vec<u8>, numbers: &[i64], delta: bool) -> Encoding {
    let start = page.len();
    let mut are_smaller = |numbers: &[i64]| {
        page.truncate(start);
        delta::put(page, numbers);
        page.len() - start < numbers.len() * 8
    };
    let trial = numbers.len().min(DELTA_TRIAL);
    if delta && are_smaller(&numbers[..trial]) && (trial == numbers.len() || are_smaller(numbers)) {
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
