//! A change as bytes. All numbers are little endian.
//!
//! A tag (0 ended, 1 a number, 2 a histogram), the key (16 bytes) and the time (8); unless it ended the start (8); then the number (8), or of the
//! histogram scale (4), count (8), sum (8), zero count (8), zero threshold (8), and of each sign, the positive first, offset (4), number of
//! buckets (4) and their counts as varints.

use std::sync::Arc;

use super::total::{Amount, Change, Key, Total};
use crate::protobuf::put_varint;
use crate::transcode::{Buckets, Exponential};

const ENDED: u8 = 0;
const FLOAT: u8 = 1;
const HISTOGRAM: u8 = 2;

pub(super) fn put(out: &mut Vec<u8>, change: &Change) {
    let (tag, key, at_ms) = match change {
        Change::Ended(key, at_ms) => (ENDED, key, at_ms),
        Change::Added(key, total) => match total.amount {
            Amount::Float(_) => (FLOAT, key, &total.last_ms),
            Amount::Histogram(_) => (HISTOGRAM, key, &total.last_ms),
        },
    };
    out.push(tag);
    out.extend_from_slice(&key.0.to_le_bytes());
    out.extend_from_slice(&key.1.to_le_bytes());
    out.extend_from_slice(&at_ms.to_le_bytes());
    let Change::Added(_, total) = change else { return };
    out.extend_from_slice(&total.start_ms.to_le_bytes());
    match &total.amount {
        Amount::Float(value) => out.extend_from_slice(&value.to_le_bytes()),
        Amount::Histogram(histogram) => put_histogram(out, histogram),
    }
}

fn put_histogram(out: &mut Vec<u8>, histogram: &Exponential) {
    out.extend_from_slice(&histogram.scale.to_le_bytes());
    out.extend_from_slice(&histogram.count.to_le_bytes());
    out.extend_from_slice(&histogram.sum.to_le_bytes());
    out.extend_from_slice(&histogram.zero_count.to_le_bytes());
    out.extend_from_slice(&histogram.zero_threshold.to_le_bytes());
    for buckets in [&histogram.positive, &histogram.negative] {
        out.extend_from_slice(&buckets.offset.to_le_bytes());
        out.extend_from_slice(&(buckets.counts.len() as u32).to_le_bytes());
        buckets.counts.iter().for_each(|count| put_varint(out, *count));
    }
}

/// The change that `bytes` begin with, which is taken off them; `None` when there is none.
pub(super) fn take(bytes: &mut &[u8]) -> Option<Change> {
    let [tag] = fixed(bytes)?;
    let key = Key(
        u64::from_le_bytes(fixed(bytes)?),
        u64::from_le_bytes(fixed(bytes)?),
    );
    let last_ms = i64::from_le_bytes(fixed(bytes)?);
    if tag == ENDED {
        return Some(Change::Ended(key, last_ms));
    }
    let start_ms = i64::from_le_bytes(fixed(bytes)?);
    let amount = match tag {
        FLOAT => Amount::Float(f64::from_le_bytes(fixed(bytes)?)),
        HISTOGRAM => Amount::Histogram(Arc::new(take_histogram(bytes)?)),
        _ => return None,
    };
    let total = Total {
        amount,
        start_ms,
        last_ms,
    };
    Some(Change::Added(key, total))
}

fn take_histogram(bytes: &mut &[u8]) -> Option<Exponential> {
    Some(Exponential {
        scale: i32::from_le_bytes(fixed(bytes)?),
        count: u64::from_le_bytes(fixed(bytes)?),
        sum: f64::from_le_bytes(fixed(bytes)?),
        zero_count: u64::from_le_bytes(fixed(bytes)?),
        zero_threshold: f64::from_le_bytes(fixed(bytes)?),
        positive: take_buckets(bytes)?,
        negative: take_buckets(bytes)?,
    })
}

fn take_buckets(bytes: &mut &[u8]) -> Option<Buckets> {
    let offset = i32::from_le_bytes(fixed(bytes)?);
    let buckets = u32::from_le_bytes(fixed(bytes)?) as usize;
    // Each has a byte at least.
    let mut counts = Vec::with_capacity(buckets.min(bytes.len()));
    for _ in 0..buckets {
        counts.push(varint(bytes)?);
    }
    Some(Buckets { offset, counts })
}

fn fixed<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let [byte] = fixed(bytes)?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}
