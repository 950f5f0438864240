//! Values that runs of rows share: looked at once, written as often as there are rows.

use arrow_buffer::NullBuffer;
use parquet::basic::Encoding;

use super::levels::Levels;
use super::{Tools, delta, hybrid};
use crate::encode::plain::Plain;

/// Appends texts of these lengths, each behind its own.
pub(crate) fn put_plain(out: &mut Vec<u8>, lengths: &[u32], bytes: &[u8]) {
    let mut rest = bytes;
    for length in lengths {
        let (text, after) = rest.split_at(*length as usize);
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(text);
        rest = after;
    }
}

/// How often the values of a column come.
#[derive(Debug)]
pub(crate) struct Repeats<'a> {
    /// Rows of each run.
    runs: &'a [u32],
    /// Values of each run: those of a list; none where the column is null.
    lengths: Lengths<'a>,
}

#[derive(Debug)]
enum Lengths<'a> {
    One,
    Unless(&'a NullBuffer),
    Lists(&'a [usize]),
}

impl<'a> Repeats<'a> {
    /// Of a column of runs, or of lists of runs; none where each run is one row.
    pub fn new(runs: &'a [u32], levels: Option<&'a Levels>, nulls: Option<&'a NullBuffer>) -> Option<Self> {
        let lengths = match (levels, nulls) {
            (Some(levels), _) => Lengths::Lists(levels.lengths()),
            (None, Some(nulls)) => Lengths::Unless(nulls),
            (None, None) => Lengths::One,
        };
        (!runs.is_empty()).then_some(Self { runs, lengths })
    }

    /// How many values each run has, and how many rows.
    fn iter(&self) -> impl Iterator<Item = (usize, usize)> {
        self.runs.iter().enumerate().map(|(index, rows)| {
            let length = match &self.lengths {
                Lengths::One => 1,
                Lengths::Unless(nulls) => usize::from(nulls.is_valid(index)),
                Lengths::Lists(lengths) => lengths[index],
            };
            (length, *rows as usize)
        })
    }

    /// How many values the rows have.
    pub fn values(&self) -> usize {
        self.iter().map(|(length, rows)| length * rows).sum()
    }

    /// How many values of all rows are such.
    pub fn count<T>(&self, values: &[T], such: impl Fn(&T) -> bool) -> usize {
        let mut values = values.iter();
        let of_run = |(length, rows)| values.by_ref().take(length).filter(|value| such(value)).count() * rows;
        self.iter().map(of_run).sum()
    }

    /// Appends the values of all rows.
    pub fn expand<T: Copy>(&self, values: &[T], out: &mut Vec<T>) {
        out.reserve(self.values());
        let mut at = 0;
        for (length, rows) in self.iter() {
            let of = &values[at..at + length];
            match of {
                [one] => out.resize(out.len() + rows, *one),
                many => (0..rows).for_each(|_| out.extend_from_slice(many)),
            }
            at += length;
        }
    }

    /// Appends the texts of all rows, as a page without a dictionary has them; how.
    pub fn put_texts(&self, tools: &mut Tools, out: &mut Vec<u8>, plain: &Plain) -> Encoding {
        let delta = tools.by.delta;
        if delta {
            tools.repeated.clear();
            self.expand(plain.lengths(), &mut tools.repeated);
            delta::put(out, &tools.repeated);
        }
        let (mut lengths, mut rest) = (plain.lengths(), plain.bytes());
        for (length, rows) in self.iter() {
            let (of, others) = lengths.split_at(length);
            let (bytes, after) = rest.split_at(of.iter().map(|length| *length as usize).sum());
            for _ in 0..rows {
                match delta {
                    true => out.extend_from_slice(bytes),
                    false => put_plain(out, of, bytes),
                }
            }
            (lengths, rest) = (others, after);
        }
        match delta {
            true => Encoding::DELTA_LENGTH_BYTE_ARRAY,
            false => Encoding::PLAIN,
        }
    }

    /// Appends the places of all rows in a dictionary of `values`, as a page has them.
    pub fn put_places(&self, out: &mut Vec<u8>, places: &[u32], values: usize, room: &mut Vec<u32>) {
        room.clear();
        if let Lengths::Lists(_) = self.lengths {
            self.expand(places, room);
            hybrid::put_places(out, room, values);
            return;
        }
        let mut places = places.iter();
        let runs = self.iter().filter(|(length, _)| *length > 0);
        let runs = runs.filter_map(|(_, rows)| Some((*places.next()?, rows)));
        hybrid::put_runs_of_places(out, runs, values, room);
    }
}
