//! The time of a row, twice: as a timestamp for people and engines, exactly for the round trip.

use std::sync::Arc;

use arrow_array::PrimitiveArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_buffer::ScalarBuffer;

use super::column::{Columns, Data, Longs};

#[derive(Debug, Default)]
pub(crate) struct Times {
    /// Microseconds: Spark refuses nanoseconds.
    timestamps: Vec<i64>,
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
        let timestamps = ScalarBuffer::from(std::mem::take(&mut self.timestamps));
        let timestamps = PrimitiveArray::<TimestampMicrosecondType>::new(timestamps, None);
        columns.put(1, "timestamp", Data::Array(Arc::new(timestamps.with_timezone("UTC"))));
        columns.put(2, "time_unix_nano", self.exact.finish());
    }
}
