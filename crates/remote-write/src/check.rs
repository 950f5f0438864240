//! Requests that are passed on as they came: held to what every receiver has to hold them to, and otherwise left alone.

use sluice_wire::{Field, Fields};

use crate::decode::{Invalid, Taken, Version, each_series, v2};
use crate::to_otlp::check_histogram;

/// What an item takes beside its labels, at least, in whatever it is written as: keys, lengths, value and time.
const ITEM_BYTES: u64 = 64;

/// What a label takes beside its texts: keys and lengths.
const LABEL_BYTES: usize = 8;

/// Checks a request, and says what is in it, and what it comes to [written out](written_out).
///
/// # Errors
/// When the body is no request of its version, or no receiver may take it.
pub fn check(version: Version, body: &[u8]) -> Result<(Taken, u64), Invalid> {
    let mut taken = Taken::default();
    let mut written_out = 0u64;
    each_series(version, body, |series| {
        for histogram in &series.histograms {
            check_histogram(histogram)?;
        }
        taken.samples += series.samples.len() as u64;
        taken.histograms += series.histograms.len() as u64;
        taken.exemplars += series.exemplars.len() as u64;
        let labels = series
            .labels
            .iter()
            .map(|(name, value)| name.len() + value.len() + LABEL_BYTES);
        let items = series.samples.len() + series.histograms.len() + series.exemplars.len();
        let one = labels.sum::<usize>() as u64 + ITEM_BYTES;
        written_out = written_out.saturating_add(one.saturating_mul(items as u64));
        Ok(())
    })?;
    Ok((taken, written_out))
}

/// Bytes that the labels of a request have when they are written out for each of its samples, as OTLP does, and with them what a
/// sample takes. A sender can make that as large as it likes: it refers to a long text often (2.0), or puts many
/// samples into a series of long labels. `u64::MAX` when it has too many texts to tell.
///
/// It looks at lengths only; a body that is no request has none worth mentioning.
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

/// Fields 2 to 4 are samples, native histograms and exemplars, in both versions.
fn written_out_v1(series: &[u8]) -> u64 {
    let (mut labels, mut items) = (0, 0);
    for field in Fields::of(series) {
        match field.number {
            1 => labels += field.framed.len() as u64,
            2..=4 => items += 1,
            _ => {}
        }
    }
    (labels + ITEM_BYTES).saturating_mul(items)
}

fn written_out_v2(series: &[u8], lengths: &[u32]) -> u64 {
    let (mut labels, mut items) = (0, 0);
    for field in Fields::of(series) {
        if field.number != 1 {
            items += u64::from((2..=4).contains(&field.number));
            continue;
        }
        let mut reference = 0u64;
        let mut shift = 0;
        for byte in field.value {
            reference |= u64::from(byte & 0x7f) << (shift % 64);
            shift += 7;
            if *byte < 0x80 {
                let length = usize::try_from(reference).ok().and_then(|at| lengths.get(at));
                // A text, its key and its length, and half of those of the label.
                labels += 4 + length.map_or(0, |length| u64::from(*length));
                (reference, shift) = (0, 0);
            }
        }
    }
    (labels + ITEM_BYTES).saturating_mul(items)
}

#[cfg(test)]
mod tests {
    use sluice_loadgen::{Generator, RemoteWrite, Signal, Spec};

    use super::*;
    use crate::protobuf::put_delimited;
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
            let (taken, checked) = check(version, &request.body).unwrap();
            assert_eq!(taken.points(), u64::from(request.items));
            let (otlp, _) = to_otlp(version, &request.body).unwrap();
            let expected = written_out(version, &request.body);
            assert!(
                checked.abs_diff(expected) < expected / 3,
                "{checked} and {expected}"
            );
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
}
