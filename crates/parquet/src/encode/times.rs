//! The time of a row, twice: as a timestamp for people and engines, exactly for the round trip.

use super::column::Columns;
use super::number::{Longs, NumberType};

#[derive(Debug, Default)]
pub(crate) struct Times {
    /// Microseconds: Spark refuses nanoseconds.
    timestamps: Longs,
    exact: Longs,
}

impl Times {
    /// `shown` makes the timestamp, `exact` is kept as it is. Nanoseconds from 2262 on wrap, and read back the same as
    /// unsigned numbers.
    #[inline]
    pub fn push(&mut self, shown: u64, exact: u64) {
        self.timestamps.push((shown / 1000) as i64);
        self.exact.push(exact as i64);
    }

    pub fn finish(&mut self, columns: &mut Columns) {
        columns.put(1, "timestamp", self.timestamps.finish_as(NumberType::Time));
        columns.put(2, "time_unix_nano", self.exact.finish());
    }
}
