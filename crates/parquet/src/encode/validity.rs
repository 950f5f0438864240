//! Which rows of a column have a value.

use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};

/// Words that are added at once: those of 4,096 rows.
const ROOM: usize = 64;

/// Grows row by row; costs a counter as long as all rows have a value.
#[derive(Debug, Default)]
pub(crate) struct Validity {
    /// A bit for each row; none while all rows have a value. At the end words may be missing, or there for rows to come.
    words: Vec<u64>,
    rows: usize,
    present: usize,
}

impl Validity {
    #[cfg(test)]
    pub fn rows(&self) -> usize {
        self.rows
    }

    #[inline]
    pub fn push_present(&mut self) {
        self.push_present_at(self.rows);
    }

    /// The rows from here up to `rows` have no value.
    #[inline]
    pub fn pad(&mut self, rows: usize) {
        if self.present == self.rows && self.rows < rows {
            self.begin();
        }
        self.rows = rows;
    }

    /// Row `row` has a value, and those from here up to it have none.
    #[inline]
    pub fn push_present_at(&mut self, row: usize) {
        if self.present < row {
            if self.present == self.rows {
                self.begin();
            }
            let word = row / 64;
            if word >= self.words.len() {
                self.words.resize(word + ROOM, 0);
            }
            self.words[word] |= 1 << (row % 64);
        }
        self.present += 1;
        self.rows = row + 1;
    }

    /// A row has no value for the first time.
    #[cold]
    fn begin(&mut self) {
        self.words.resize(self.rows / 64, u64::MAX);
        self.words.push((1 << (self.rows % 64)) - 1);
    }

    #[inline]
    pub fn push_absent(&mut self) {
        self.pad(self.rows + 1);
    }

    /// What is null, if anything is; no rows are left.
    pub fn finish(&mut self) -> Option<NullBuffer> {
        let Self {
            mut words,
            rows,
            present,
        } = std::mem::take(self);
        if present == rows {
            return None;
        }
        words.resize(rows.div_ceil(64), 0);
        Some(NullBuffer::new(BooleanBuffer::new(
            Buffer::from_vec(words),
            0,
            rows,
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: rows in runs of every length with and without a value, each kind first.
    /// Guarantees: bits say which.
    #[test]
    fn bits_are_rows() {
        for first in [false, true] {
            for run in [1, 3, 63, 64, 65, 200] {
                let mut validity = Validity::default();
                let mut expected = Vec::new();
                for round in 0..6usize {
                    let present = (round.is_multiple_of(2)) == first;
                    expected.extend(std::iter::repeat_n(present, run));
                    match present {
                        true => (0..run).for_each(|_| validity.push_present()),
                        false if round < 3 => (0..run).for_each(|_| validity.push_absent()),
                        false => validity.pad(validity.rows() + run),
                    }
                }
                assert_eq!(validity.rows(), expected.len());
                let nulls = validity.finish().unwrap();
                assert!(nulls.iter().eq(expected.iter().copied()), "{first} {run}");
            }
        }
        let mut validity = Validity::default();
        (0..100).for_each(|_| validity.push_present());
        assert!(validity.finish().is_none());
    }
}
