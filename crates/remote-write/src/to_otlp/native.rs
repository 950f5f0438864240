//! Native histograms to the points of exponential histograms, and of histograms with bounds.

use sluice_wire::Field;

use super::{Sort, put_nanos};
use crate::protobuf::{put_delimited, put_double, put_uint, put_varint, unzigzag, zigzag};
use crate::transcode::STALE_NAN;

/// The schema of histograms with custom buckets.
const CUSTOM: i64 = -53;

/// Buckets of one sign, empty ones between others included: OTLP writes each of them. More than 160 or so are of no use.
pub(crate) const MAX_BUCKETS: usize = 16_384;

/// Twice [`MAX_BUCKETS`], each as large as a number gets, and as much again: what is read of it takes some eight times this.
const MAX_HISTOGRAM_BYTES: usize = 1 << 20;

const BROKEN: &str = "a histogram is not protobuf of this message";
const SPANS: &str = "the spans of a histogram do not fit its buckets";
const BELOW_ZERO: &str = "a bucket of a histogram has a count below zero";
const WRONG_COUNT: &str = "the count of a histogram is not that of its buckets";
pub(super) const NOT_WHOLE: &str = "a histogram has counts that are no whole numbers, which OTLP cannot say";

#[derive(Debug, Default)]
struct Histogram {
    count: f64,
    zero_count: f64,
    sum: f64,
    schema: i64,
    zero_threshold: f64,
    is_float: bool,
    exact_count: u64,
    exact_zero_count: u64,
    spans: [Vec<(i64, u64)>; 2],
    deltas: [Vec<i64>; 2],
    counts: [Vec<f64>; 2],
    timestamp_ms: i64,
    start_ms: i64,
    custom: Vec<f64>,
}

pub(super) const UNKNOWN_SCHEMA: &str = "a histogram has a schema that is not known";

/// Indexes of the two signs.
const NEGATIVE: usize = 0;
const POSITIVE: usize = 1;

/// Holds a `Histogram` message to what its buckets have to be. Which schemas there are is for the destination to know.
pub(crate) fn check(message: &[u8]) -> Result<(), &'static str> {
    let histogram = read(message)?;
    if histogram.sum.to_bits() == STALE_NAN {
        return Ok(());
    }
    let mut counted = u128::from(histogram.exact_zero_count);
    for sign in [NEGATIVE, POSITIVE] {
        let buckets = match histogram.is_float {
            true => histogram.counts[sign].len(),
            false => histogram.deltas[sign].len(),
        };
        let spanned = histogram.spans[sign]
            .iter()
            .try_fold(0u64, |sum, (_, length)| sum.checked_add(*length));
        if spanned != Some(buckets as u64) {
            return Err(SPANS);
        }
        for count in absolute(&histogram.deltas[sign]) {
            counted += u128::from(count?);
        }
    }
    check_counted(&histogram, counted)
}

/// Appends the point that a `Histogram` message is, but for its attributes and exemplars.
pub(super) fn put_point(out: &mut Vec<u8>, message: &[u8]) -> Result<Sort, &'static str> {
    let mut histogram = read(message)?;
    let stale = histogram.sum.to_bits() == STALE_NAN;
    if histogram.is_float && !stale {
        histogram.exact_count = whole(histogram.count)?;
        histogram.exact_zero_count = whole(histogram.zero_count)?;
    }
    put_nanos(out, 2, histogram.start_ms)?;
    put_nanos(out, 3, histogram.timestamp_ms)?;
    if histogram.schema == CUSTOM {
        if stale {
            put_uint(out, 10, 1);
            return Ok(Sort::Buckets);
        }
        return put_buckets(out, &histogram);
    }
    if !(-4..=8).contains(&histogram.schema) {
        return Err(UNKNOWN_SCHEMA);
    }
    put_uint(out, 6, zigzag(histogram.schema));
    if stale {
        put_uint(out, 10, 1);
        return Ok(Sort::Exponential);
    }
    put_fixed(out, 4, histogram.exact_count);
    put_double(out, 5, histogram.sum);
    put_fixed(out, 7, histogram.exact_zero_count);
    let both = [
        (8, dense(&histogram, POSITIVE)?),
        (9, dense(&histogram, NEGATIVE)?),
    ];
    check_count(&histogram, both.iter().flat_map(|(_, (_, counts))| counts))?;
    for (number, (first, counts)) in both {
        if counts.is_empty() {
            continue;
        }
        let mut packed = Vec::new();
        counts.iter().for_each(|count| put_varint(&mut packed, *count));
        let mut buckets = Vec::new();
        // Prometheus's bucket 0 ends where OTLP's begins.
        put_uint(&mut buckets, 1, zigzag(first - 1));
        put_delimited(&mut buckets, 2, &packed);
        put_delimited(out, number, &buckets);
    }
    if histogram.zero_threshold > 0.0 {
        put_double(out, 14, histogram.zero_threshold);
    }
    Ok(Sort::Exponential)
}

fn put_buckets(out: &mut Vec<u8>, histogram: &Histogram) -> Result<Sort, &'static str> {
    let (first, counts) = dense(histogram, POSITIVE)?;
    let buckets = histogram.custom.len() + 1;
    let first = usize::try_from(first).map_err(|_| SPANS)?;
    if first + counts.len() > buckets
        || !histogram.deltas[NEGATIVE].is_empty()
        || !histogram.counts[NEGATIVE].is_empty()
    {
        return Err(SPANS);
    }
    check_count(histogram, &counts)?;
    put_fixed(out, 4, histogram.exact_count);
    put_double(out, 5, histogram.sum);
    let mut packed = vec![0; 8 * first];
    counts.iter().for_each(|count| packed.extend(count.to_le_bytes()));
    packed.resize(8 * buckets, 0);
    put_delimited(out, 6, &packed);
    let bounds: Vec<u8> = histogram
        .custom
        .iter()
        .flat_map(|bound| bound.to_le_bytes())
        .collect();
    put_delimited(out, 7, &bounds);
    Ok(Sort::Buckets)
}

/// The count is that of all buckets. Observations of NaN are in none, and make a NaN of the sum. Counts that were floats may
/// have lost a little, and are not looked at: as in Prometheus.
fn check_count<'c>(
    histogram: &Histogram,
    buckets: impl IntoIterator<Item = &'c u64>,
) -> Result<(), &'static str> {
    let counted = buckets.into_iter().map(|count| u128::from(*count)).sum::<u128>()
        + u128::from(histogram.exact_zero_count);
    check_counted(histogram, counted)
}

fn check_counted(histogram: &Histogram, counted: u128) -> Result<(), &'static str> {
    let count = u128::from(histogram.exact_count);
    match histogram.is_float || counted == count || histogram.sum.is_nan() && counted < count {
        true => Ok(()),
        false => Err(WRONG_COUNT),
    }
}

fn put_fixed(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(number << 3 | 1));
    out.extend_from_slice(&value.to_le_bytes());
}

/// The index of the first bucket of a sign, and the counts from there on, empty ones included.
fn dense(histogram: &Histogram, sign: usize) -> Result<(i64, Vec<u64>), &'static str> {
    let mut found = if histogram.is_float {
        let counts = histogram.counts[sign].iter().map(|count| whole(*count));
        counts.collect::<Result<Vec<u64>, _>>()?
    } else {
        absolute(&histogram.deltas[sign]).collect::<Result<Vec<u64>, _>>()?
    }
    .into_iter();
    let mut counts = Vec::new();
    let mut first = None;
    let mut next = 0i64;
    for (offset, length) in &histogram.spans[sign] {
        next += offset;
        if *length == 0 {
            continue;
        }
        let start = *first.get_or_insert(next);
        let at = usize::try_from(next - start).map_err(|_| SPANS)?;
        let end = at.saturating_add(usize::try_from(*length).map_err(|_| SPANS)?);
        if at < counts.len() || end > MAX_BUCKETS {
            return Err(SPANS);
        }
        counts.resize(at, 0);
        for _ in at..end {
            counts.push(found.next().ok_or(SPANS)?);
        }
        next += *length as i64;
    }
    if found.next().is_some() {
        return Err(SPANS);
    }
    Ok((first.unwrap_or(0), counts))
}

/// The counts that deltas from bucket to bucket add up to.
fn absolute(deltas: &[i64]) -> impl Iterator<Item = Result<u64, &'static str>> {
    let counts = deltas.iter().scan(0i64, |before, delta| {
        *before = before.wrapping_add(*delta);
        Some(*before)
    });
    counts.map(|count| u64::try_from(count).map_err(|_| BELOW_ZERO))
}

/// A count that floats hold exactly.
fn whole(count: f64) -> Result<u64, &'static str> {
    // 2^53: up to there every whole number is a double.
    if count.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&count) {
        Ok(count as u64)
    } else {
        Err(NOT_WHOLE)
    }
}

fn read(message: &[u8]) -> Result<Histogram, &'static str> {
    if message.len() > MAX_HISTOGRAM_BYTES {
        return Err("a histogram has more than 1,048,576 bytes");
    }
    let mut read = Histogram::default();
    let mut len = 0;
    for field in sluice_wire::Fields::of(message) {
        len += field.framed.len();
        read_field(&field, &mut read).ok_or(BROKEN)?;
    }
    if len != message.len() {
        return Err(BROKEN);
    }
    Ok(read)
}

/// `None` when a field has the wire type of another.
fn read_field(field: &Field<'_>, read: &mut Histogram) -> Option<()> {
    match field.number {
        1 => {
            read.exact_count = field.varint()?;
            read.is_float = false;
        }
        2 => {
            read.count = f64::from_bits(field.fixed64()?);
            read.is_float = true;
        }
        3 => read.sum = f64::from_bits(field.fixed64()?),
        4 => read.schema = unzigzag(field.varint()?),
        5 => read.zero_threshold = f64::from_bits(field.fixed64()?),
        6 => read.exact_zero_count = field.varint()?,
        7 => read.zero_count = f64::from_bits(field.fixed64()?),
        8 => read.spans[NEGATIVE].push(span(field.bytes()?)?),
        9 => deltas(field, &mut read.deltas[NEGATIVE])?,
        10 => doubles(field, &mut read.counts[NEGATIVE])?,
        11 => read.spans[POSITIVE].push(span(field.bytes()?)?),
        12 => deltas(field, &mut read.deltas[POSITIVE])?,
        13 => doubles(field, &mut read.counts[POSITIVE])?,
        15 => read.timestamp_ms = field.varint()? as i64,
        16 => doubles(field, &mut read.custom)?,
        17 => read.start_ms = field.varint()? as i64,
        _ => {}
    }
    Some(())
}

/// Offset and length of a `BucketSpan`.
pub(crate) fn span(message: &[u8]) -> Option<(i64, u64)> {
    let mut span = (0, 0);
    for field in sluice_wire::Fields::of(message) {
        match field.number {
            1 => span.0 = i64::from(unzigzag(field.varint()?) as i32),
            2 => span.1 = field.varint()?,
            _ => {}
        }
    }
    Some(span)
}

fn doubles(field: &Field<'_>, out: &mut Vec<f64>) -> Option<()> {
    match field.bytes() {
        Some(packed) => {
            let (values, odd) = packed.as_chunks::<8>();
            out.extend(values.iter().map(|value| f64::from_le_bytes(*value)));
            odd.is_empty().then_some(())
        }
        None => {
            out.push(f64::from_bits(field.fixed64()?));
            Some(())
        }
    }
}

fn deltas(field: &Field<'_>, out: &mut Vec<i64>) -> Option<()> {
    let mut read = Vec::new();
    if field.bytes().is_none() && field.varint().is_none() {
        return None;
    }
    crate::transcode::varints(field, &mut read);
    out.extend(read.into_iter().map(unzigzag));
    Some(())
}
