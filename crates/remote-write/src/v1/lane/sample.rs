//! The sample that a lane has written last.

use crate::v1::{SAMPLE_KEY, sample_len};

/// Where in the field of a sample its value begins, and where the field of its time does.
pub(super) const VALUE: usize = 3;
pub(super) const TIME: usize = VALUE + 8;

/// The last sample of the body.
#[derive(Debug)]
pub(super) struct LastSample {
    pub position: u64,
    pub timestamp_ms: i64,
    /// The field of a series that it is.
    pub field: [u8; TIME + 11],
    pub len: usize,
}

impl LastSample {
    pub fn new(position: u64, timestamp_ms: i64) -> Self {
        let mut field = [0; TIME + 11];
        field[..VALUE].copy_from_slice(&[SAMPLE_KEY, sample_len(timestamp_ms) as u8, 0x09]);
        field[TIME] = 0x10;
        let mut left = timestamp_ms as u64;
        let mut len = TIME + 1;
        while left >= 0x80 {
            field[len] = left as u8 | 0x80;
            left >>= 7;
            len += 1;
        }
        field[len] = left as u8;
        Self {
            position,
            timestamp_ms,
            field,
            len: len + 1,
        }
    }
}
