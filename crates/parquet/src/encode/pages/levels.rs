//! Which values of a column belong to which row: Parquet's repetition and definition levels.

use arrow_buffer::{NullBuffer, NullBufferBuilder};

use super::hybrid;

/// The levels of what is in a list, or in a list of one. Lists are never null here, so each of them adds one repetition and
/// one definition level, and a column that may be null adds one definition level more.
#[derive(Debug)]
pub(crate) struct Levels {
    repetition: Vec<u8>,
    definition: Vec<u8>,
    /// Levels of an element of the innermost list: its depth. A lower definition level is an empty list.
    depth: u8,
    /// Both as columns that are never null begin their pages.
    encoded: Vec<u8>,
    lengths: Vec<usize>,
    len: usize,
}

impl Levels {
    /// Of the entries of maps, which are never null and in nothing but rows: one bit each says all, so that the levels need not be
    /// written out first.
    pub fn of_maps(offsets: &[i32], runs: &[u32]) -> Self {
        let each = |index: usize| runs.get(index).map_or(1, |run| *run as usize);
        let lengths: Vec<usize> = offsets
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as usize)
            .collect();
        let (mut rows, mut empty, mut len) = (0, 0, 0);
        for (index, length) in lengths.iter().enumerate() {
            let run = each(index);
            rows += run;
            empty += if *length == 0 { run } else { 0 };
            len += length.max(&1) * run;
        }
        let mut encoded = Vec::with_capacity(len / 4 + 64);
        let words = len.div_ceil(64);
        // An empty map has a slot as well: set bits are entries but the first of their map, then entries.
        let mut bits = |only: Option<u32>, clear: &mut dyn FnMut(&mut [u64])| {
            let start = begin(&mut encoded);
            match only {
                Some(level) => hybrid::put_run(&mut encoded, level, len, 1),
                None => {
                    let mut bits = vec![u64::MAX; words];
                    if len % 64 > 0 {
                        bits[words - 1] = (1 << (len % 64)) - 1;
                    }
                    clear(&mut bits);
                    let bytes: Vec<u8> = bits.iter().flat_map(|word| word.to_le_bytes()).collect();
                    hybrid::put_bitmap(&mut encoded, &bytes, len);
                }
            }
            end(&mut encoded, start);
        };
        let clear_where = |bits: &mut [u64], which: &dyn Fn(usize) -> bool| {
            let mut at = 0;
            for (index, length) in lengths.iter().enumerate() {
                for _ in 0..each(index) {
                    if which(*length) {
                        bits[at / 64] &= !(1 << (at % 64));
                    }
                    at += (*length).max(1);
                }
            }
        };
        bits((len == rows).then_some(0), &mut |bits| {
            clear_where(bits, &|_| true)
        });
        let all = match empty {
            0 => Some(1),
            empty if empty == rows => Some(0),
            _ => None,
        };
        bits(all, &mut |bits| clear_where(bits, &|length| length == 0));
        Self {
            repetition: Vec::new(),
            definition: Vec::new(),
            depth: 1,
            encoded,
            lengths: match runs.is_empty() {
                true => Vec::new(),
                false => lengths,
            },
            len,
        }
    }

    /// Of the elements of lists that end at these places, each of which is in an element of `outer`, or in a row, or, where there
    /// are `runs`, in that many rows.
    pub fn of_lists(outer: Option<&Self>, offsets: &[i32], runs: &[u32]) -> Self {
        let depth = outer.map_or(1, |outer| outer.depth + 1);
        let elements = offsets.last().copied().unwrap_or_default() as usize;
        let slots = elements + outer.map_or(offsets.len(), |outer| outer.definition.len());
        let mut repetition = Vec::with_capacity(slots);
        let mut definition = Vec::with_capacity(slots);
        // Adds a list that begins at a level of repetition, or what stands for one that there is not.
        let mut list = |outer: u8, elements: Option<i32>, absent: u8| {
            let count = elements.unwrap_or_default() as usize;
            repetition.push(outer);
            definition.push(if count == 0 { absent } else { depth });
            if count > 1 {
                repetition.resize(repetition.len() + count - 1, depth);
                definition.resize(definition.len() + count - 1, depth);
            }
        };
        let mut lengths = offsets.windows(2).map(|pair| pair[1] - pair[0]);
        match outer {
            None if runs.is_empty() => lengths.for_each(|length| list(0, Some(length), 0)),
            None => {
                for (length, run) in lengths.zip(runs) {
                    (0..*run).for_each(|_| list(0, Some(length), 0));
                }
            }
            Some(outer) => {
                for (of, defined) in outer.repetition.iter().zip(&outer.definition) {
                    let length = if *defined == outer.depth {
                        lengths.next()
                    } else {
                        None
                    };
                    list(*of, length, *defined);
                }
            }
        }
        let mut encoded = Vec::new();
        put(&mut encoded, &repetition, depth);
        put(&mut encoded, &definition, depth);
        Self {
            len: definition.len(),
            repetition,
            definition,
            depth,
            encoded,
            lengths: match runs.is_empty() {
                true => Vec::new(),
                false => offsets
                    .windows(2)
                    .map(|pair| (pair[1] - pair[0]) as usize)
                    .collect(),
            },
        }
    }

    /// Elements of each list that is in a run of rows.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Values of a column of elements, nulls and empty lists among them.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Appends the levels of a column of elements.
    pub fn put(&self, out: &mut Vec<u8>, nullable: bool, nulls: Option<&NullBuffer>) {
        if !nullable {
            out.extend_from_slice(&self.encoded);
            return;
        }
        put(out, &self.repetition, self.depth);
        let mut definition = self.definition.clone();
        let elements = definition.iter_mut().filter(|level| **level == self.depth);
        for (index, level) in elements.enumerate() {
            *level += u8::from(nulls.is_none_or(|nulls| nulls.is_valid(index)));
        }
        put(out, &definition, self.depth + 1);
    }
}

/// What is null in rows, of which each run has one value.
pub(crate) fn repeated_nulls(nulls: Option<&NullBuffer>, runs: &[u32]) -> Option<NullBuffer> {
    let nulls = nulls?;
    if runs.is_empty() {
        return Some(nulls.clone());
    }
    let mut repeated = NullBufferBuilder::new(0);
    for (valid, run) in nulls.iter().zip(runs) {
        match valid {
            true => repeated.append_n_non_nulls(*run as usize),
            false => repeated.append_n_nulls(*run as usize),
        }
    }
    repeated.finish()
}

/// Appends the definition levels of a column of rows that may be null.
pub(crate) fn put_nulls(out: &mut Vec<u8>, nulls: Option<&NullBuffer>, rows: usize) {
    let start = begin(out);
    match nulls {
        Some(nulls) if nulls.null_count() == rows => hybrid::put_run(out, 0, rows, 1),
        Some(nulls) if nulls.null_count() > 0 => {
            // Buffers of the row builders begin at a byte, at their beginning.
            hybrid::put_bitmap(out, nulls.validity(), rows);
        }
        _ => hybrid::put_run(out, 1, rows, 1),
    }
    end(out, start);
}

fn put(out: &mut Vec<u8>, levels: &[u8], most: u8) {
    let start = begin(out);
    hybrid::put(out, levels, hybrid::width(most.into()));
    end(out, start);
}

/// Levels begin with how many bytes they have.
fn begin(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[0; 4]);
    out.len()
}

fn end(out: &mut [u8], start: usize) {
    let length = (out.len() - start) as u32;
    out[start - 4..start].copy_from_slice(&length.to_le_bytes());
}
