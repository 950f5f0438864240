//! Requests that are passed on as they came: held to what every receiver has to hold them to, and otherwise left alone.

use sluice_wire::{Field, Fields};

use crate::decode::{Invalid, Taken, Version, each_series, v2};
use crate::protobuf::varint_len;
use crate::to_otlp::{MAX_BUCKETS, check_histogram, span};

/// What a sample, a histogram or an exemplar takes beside its labels, at least, in whatever it is written as: keys, lengths, value and time.
const ITEM_BYTES: u64 = 64;

/// What a reference to a text becomes beside the text: its key and its length, and half of those of the label.
const REFERENCE_BYTES: u64 = 4;

/// Checks a request, and says what is in it.
///
/// # Errors
/// When the body is no request of its version, or no receiver may take it.
pub fn check(version: Version, body: &[u8]) -> Result<Taken, Invalid> {
    let mut taken = Taken::default();
    each_series(version, body, |series| {
        for histogram in &series.histograms {
            check_histogram(histogram)?;
        }
        taken.samples += series.samples.len() as u64;
        taken.histograms += series.histograms.len() as u64;
        taken.exemplars += series.exemplars.len() as u64;
        Ok(())
    })?;
    Ok(taken)
}

/// Bytes that a request has when its texts are written out wherever it means them, as OTLP does: labels for each sample, those of
/// exemplars, help and unit for each series, and the empty buckets of histograms. A sender can make that as large as it likes: it
/// refers to a long text often (2.0), or puts many samples into a series of long labels. `u64::MAX` when it has too many texts to tell.
///
/// It looks at lengths only and keeps four bytes a text, so that it can go before anything that takes more; a body that is no request
/// has none worth mentioning.
#[must_use]
pub fn written_out(version: Version, body: &[u8]) -> u64 {
    match version {
        Version::V1 => series_of(body, 1)
            .map(written_out_v1)
            .fold(0, u64::saturating_add),
        Version::V2 => {
            // As 32 bits: a request is never larger, and there are few of them in any case.
            let mut lengths: Vec<u32> = Vec::new();
            for field in Fields::of(body).filter(|field| field.number == 4) {
                if lengths.len() == v2::MAX_SYMBOLS {
                    return u64::MAX;
                }
                lengths.push(field.value.len() as u32);
            }
            let each = series_of(body, 5).map(|series| written_out_v2(series, &lengths));
            each.fold(0, u64::saturating_add)
        }
    }
}

fn series_of(body: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    let is_series = move |field: &Field<'_>| field.number == number;
    Fields::of(body).filter(is_series).map(|field| field.value)
}

/// What a series comes to.
#[derive(Debug, Default)]
struct Size {
    /// Written out for each item.
    labels: u64,
    /// Samples and histograms.
    items: u64,
    /// Written out once.
    once: u64,
}

impl Size {
    /// A series without items costs its labels all the same: they are read.
    fn written_out(&self) -> u64 {
        let each = self.labels.saturating_add(ITEM_BYTES);
        each.saturating_mul(self.items.max(1)).saturating_add(self.once)
    }
}

fn written_out_v1(series: &[u8]) -> u64 {
    let mut size = Size::default();
    for field in Fields::of(series) {
        match field.number {
            1 => size.labels += field.framed.len() as u64,
            2 => size.items += 1,
            3 => size.once += ITEM_BYTES + field.framed.len() as u64,
            4 => {
                size.items += 1;
                size.once += histogram_bytes(field.value);
            }
            _ => {}
        }
    }
    size.written_out()
}

fn written_out_v2(series: &[u8], lengths: &[u32]) -> u64 {
    let mut size = Size::default();
    for field in Fields::of(series) {
        match field.number {
            1 => size.labels += referred(field.value, lengths),
            2 => size.items += 1,
            3 => {
                size.items += 1;
                size.once += histogram_bytes(field.value);
            }
            4 => {
                let references = Fields::of(field.value).filter(|field| field.number == 1);
                let texts: u64 = references.map(|field| referred(field.value, lengths)).sum();
                size.once += ITEM_BYTES + texts;
            }
            // Its help and its unit.
            5 => {
                let references = Fields::of(field.value).filter(|field| matches!(field.number, 3 | 4));
                size.once += references
                    .map(|field| referred(field.value, lengths))
                    .sum::<u64>();
            }
            _ => {}
        }
    }
    size.written_out()
}

/// What the texts come to that these varints refer to.
fn referred(varints: &[u8], lengths: &[u32]) -> u64 {
    let (mut bytes, mut reference, mut shift) = (0u64, 0u64, 0);
    for byte in varints {
        reference |= u64::from(byte & 0x7f) << (shift % 64);
        shift += 7;
        if *byte < 0x80 {
            let length = usize::try_from(reference).ok().and_then(|at| lengths.get(at));
            bytes += REFERENCE_BYTES + length.map_or(0, |length| u64::from(*length));
            (reference, shift) = (0, 0);
        }
    }
    bytes
}

/// What a histogram comes to at most: OTLP writes the buckets between spans, which are empty, and counts where this has differences.
fn histogram_bytes(message: &[u8]) -> u64 {
    let (mut bytes, mut buckets, mut count) = (0u64, 0u64, 0u64);
    // Of each sign; `None` before its first span, whose offset is no gap.
    let mut gaps: [Option<u64>; 2] = [None; 2];
    for field in Fields::of(message) {
        bytes += field.framed.len() as u64;
        match field.number {
            1 => count = field.varint().unwrap_or_default(),
            8 | 11 => {
                let gaps = &mut gaps[usize::from(field.number == 11)];
                let (offset, _) = span(field.value).unwrap_or_default();
                *gaps = Some(gaps.map_or(0, |sum| sum.saturating_add_signed(offset.max(0))));
            }
            9 | 12 => buckets += field.value.iter().filter(|byte| **byte < 0x80).count() as u64,
            // Each bound of custom buckets comes with a count of eight bytes.
            16 => bytes += field.framed.len() as u64,
            _ => {}
        }
    }
    // No bucket has more than the histogram.
    let counts = buckets * varint_len(count) as u64;
    let most = MAX_BUCKETS as u64;
    let gaps: u64 = gaps.into_iter().flatten().map(|gaps| gaps.min(most)).sum();
    bytes + counts + gaps
}

#[cfg(test)]
mod tests {
    use sluice_loadgen::{Generator, RemoteWrite, Signal, Spec};

    use super::*;
    use crate::protobuf::{put_delimited, put_uint, put_varint, zigzag};
    use crate::to_otlp::to_otlp;

    fn field(number: u32, value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_delimited(&mut out, number, value);
        out
    }

    /// Scenario: requests as the generator makes them, in both versions.
    /// Guarantees: they are taken, with as many items as they have; written out they are about as much as OTLP takes, which is what
    /// memory is asked for.
    #[test]
    fn usual_requests() {
        for (format, version) in [(RemoteWrite::V1, Version::V1), (RemoteWrite::V2, Version::V2)] {
            let mut generator = Generator::remote_write(Spec::gateway(Signal::Metrics), format);
            let request = generator.next_request();
            let taken = check(version, &request.body).unwrap();
            assert_eq!(taken.points(), u64::from(request.items));
            let (otlp, _) = to_otlp(version, &request.body).unwrap();
            let expected = written_out(version, &request.body);
            let otlp = otlp.len() as u64;
            assert!(
                otlp <= expected && expected <= 2 * otlp,
                "{version:?}: {expected} for {otlp}"
            );
        }
    }

    /// Scenario: 20 KB of 2.0 that refer to a text of 10 KB a thousand times; as much of 1.0 with a thousand samples in a series that has it;
    /// more texts than there may be.
    /// Guarantees: it is told that twenty and ten million bytes come of them, and that there is no telling of the last.
    #[test]
    fn what_a_small_request_can_become() {
        let text = vec![b'a'; 10_000];
        let mut second = [field(4, b""), field(4, &text)].concat();
        let series = field(5, &[field(1, &[1, 1]), field(2, b"")].concat());
        second.extend(series.repeat(1000));
        assert!(second.len() < 30_000);
        let written = written_out(Version::V2, &second);
        assert!((20_000_000..21_000_000).contains(&written), "{written}");

        let label = field(1, &[field(1, b"a"), field(2, &text)].concat());
        let first = field(1, &[label, field(2, b"").repeat(1000)].concat());
        let written = written_out(Version::V1, &first);
        assert!((10_000_000..11_000_000).contains(&written), "{written}");

        let many = field(4, b"").repeat(v2::MAX_SYMBOLS + 1);
        assert_eq!(written_out(Version::V2, &many), u64::MAX);
        assert!(check(Version::V2, &many).is_err());
    }

    /// Scenario: requests of 2.0 of some kilobytes, each with another way to mean a text of a megabyte often, or much of nothing: series without
    /// samples, exemplars, helps, units, and histograms of two buckets far apart.
    /// Guarantees: it is told what each comes to; what OTLP makes of them is no more than that.
    #[test]
    fn every_way_to_be_large() {
        const TEXT: usize = 1 << 20;
        let symbols = [field(4, b""), field(4, &vec![b'a'; TEXT]), field(4, b"__name__")].concat();
        let sample = field(2, b"");
        // A series is named "a…" or by its own number, and has this beside its name.
        let request = |name: u8, more: &[u8], series: usize| {
            let one = field(5, &[&field(1, &[2, name])[..], more].concat());
            [&symbols[..], &field(4, b"m"), &one.repeat(series)].concat()
        };
        let refs = |times: usize| field(1, &[1].repeat(2 * times));
        let histogram = |schema: i64| {
            let mut message = Vec::new();
            put_uint(&mut message, 1, 1 << 60);
            put_uint(&mut message, 4, zigzag(schema));
            put_delimited(&mut message, 11, &[2 << 3, 1]);
            // 16,000 buckets further.
            put_delimited(&mut message, 11, &[1 << 3, 0x80, 0xfa, 0x01, 2 << 3, 1]);
            let mut deltas = Vec::new();
            put_varint(&mut deltas, zigzag(1 << 59));
            put_varint(&mut deltas, 0);
            put_delimited(&mut message, 12, &deltas);
            field(3, &message)
        };
        let texts = |n: usize| (n * TEXT) as u64;
        for (what, body, least) in [
            ("labels of no sample", request(3, &refs(100), 10), texts(2000)),
            (
                "exemplars",
                request(3, &[sample.clone(), field(4, &refs(64)).repeat(10)].concat(), 1),
                texts(1280),
            ),
            (
                "exemplars alone",
                request(3, &field(4, &refs(64)).repeat(10), 1),
                texts(1280),
            ),
            (
                "help and unit",
                request(
                    3,
                    &[sample.clone(), field(5, &[3 << 3, 1, 4 << 3, 1])].concat(),
                    50,
                ),
                texts(100),
            ),
            (
                "gaps of histograms",
                request(3, &histogram(0).repeat(100), 1),
                1_600_000,
            ),
        ] {
            let written = written_out(Version::V2, &body);
            assert!((least..least + least / 8).contains(&written), "{what}: {written}");
            // Two references to one name are no valid labels: those are only looked at.
            if let Ok((otlp, _)) = to_otlp(Version::V2, &body) {
                assert!(
                    otlp.len() as u64 <= written,
                    "{what}: {} of {written}",
                    otlp.len()
                );
            }
        }
    }
}
