//! Bodies made of bodies: the same series as the other message, or some of them.
//!
//! Rare, and so it is simple: a body that a destination refuses is cut in two, and one in a version that it does not
//! read is written in the other.

use std::collections::HashMap;

use bytes::Bytes;
use sluice_wire::Fields;

use crate::body::{Body, Format, Written};
use crate::decode::{Series, Version, each_series};
use crate::protobuf::{put_delimited, put_double, put_uint, put_varint, unzigzag};
use crate::{v1, v2};

/// The schema of native histograms with custom buckets, which 1.0 does not have.
pub(crate) const CUSTOM_BUCKETS: i64 = -53;

/// A body cut in two: so many series as `first` says of all of them, and the others. `None` when it has fewer than two.
pub(crate) fn cut_after(body: &Body, first: impl FnOnce(usize) -> usize) -> Option<(Body, Body)> {
    let plain = body.plain().ok()?;
    let is_series = |number| number == series_field(body.format.version());
    let series = Fields::of(&plain).filter(|field| is_series(field.number)).count();
    if series < 2 {
        return None;
    }
    let first = first(series);
    if body.format.version() == Version::V2 {
        let part = |wanted: &dyn Fn(usize) -> bool| rewritten(&plain, body.format, body.format, wanted);
        return Some((part(&|index| index < first)?, part(&|index| index >= first)?));
    }
    let mut seen = 0;
    let mut first_bytes = 0;
    for field in Fields::of(&plain) {
        if is_series(field.number) {
            if seen == first {
                break;
            }
            seen += 1;
        }
        first_bytes += field.framed.len();
    }
    let (first, second) = plain.split_at(first_bytes);
    let part = |plain: &[u8]| Body::compress(plain, counted(plain), body.format);
    Some((part(first), part(second)))
}

/// `Histogram.timestamp`, in both versions.
const HISTOGRAM_TIME: u32 = 15;

/// The same series in another format. Histograms with custom buckets are left out of 1.0: the difference is in what is
/// written. `None` when the body cannot be read, which those of our encoders can.
pub(crate) fn converted(body: &Body, format: Format) -> Option<Body> {
    let plain = body.plain().ok()?;
    if body.format.version() == format.version() {
        return Some(Body::compress(&plain, body.written, format));
    }
    rewritten(&plain, body.format, format, |_| true)
}

/// Where the samples of a body are.
#[derive(Debug)]
pub(crate) struct Samples {
    /// For each series, in the order of their first ones, their numbers in the body. A series that comes again is the same one.
    pub of_series: Vec<Vec<usize>>,
    /// Of each, by its number.
    pub times_ms: Vec<i64>,
}

/// `None` when the body cannot be read, which those of our encoders can.
pub(crate) fn samples(body: &Body) -> Option<Samples> {
    let plain = body.plain().ok()?;
    let (mut places, mut of_series, mut times_ms) = (HashMap::new(), Vec::new(), Vec::new());
    let read = each_series(body.format.version(), &plain, |series| {
        let place = *places.entry(series.labels.clone()).or_insert(of_series.len());
        if place == of_series.len() {
            of_series.push(Vec::new());
        }
        let first = times_ms.len();
        times_ms.extend(series.samples.iter().map(|sample| sample.timestamp_ms));
        times_ms.extend(series.histograms.iter().map(|histogram| time_of(histogram)));
        of_series[place].extend(first..times_ms.len());
        Ok(())
    });
    read.ok().map(|()| Samples { of_series, times_ms })
}

/// The time of a `Histogram` message, in milliseconds.
fn time_of(histogram: &[u8]) -> i64 {
    let times = Fields::of(histogram).filter(|field| field.number == HISTOGRAM_TIME);
    times.last().and_then(|field| field.varint()).unwrap_or(0) as i64
}

/// Some of the samples of a body, by their numbers in it, and what has none if that is `wanted_without`. Metadata of 1.0 is left out: it comes again with its metrics.
/// `None` where nothing is left.
pub(crate) fn with_samples(
    body: &Body,
    wanted_without: bool,
    wanted: impl Fn(usize) -> bool,
) -> Option<Body> {
    part_of(body, |_, first, points| match points {
        0 => wanted_without.then(Vec::new),
        _ => Some((first..first + points).map(&wanted).collect()),
    })
}

/// The series of a body that the first one of `single` is, and the others.
pub(crate) fn apart(body: &Body, single: &Body) -> (Option<Body>, Option<Body>) {
    let plain = single.plain().unwrap_or_default();
    let mut labels = Vec::new();
    // The first one is all there is to read: stop at it.
    let _ = each_series(single.format.version(), &plain, |series| {
        labels.clone_from(&series.labels);
        Err("enough")
    });
    let part = |wanted: bool| {
        part_of(body, |series, _, points| {
            ((series.labels == labels) == wanted).then(|| vec![true; points])
        })
    };
    (part(true), part(false))
}

/// What is kept of each series: which of its samples, or none of it at all. It is told the number of its first sample and how many it has.
fn part_of(body: &Body, keep: impl Fn(&Series<'_>, usize, usize) -> Option<Vec<bool>>) -> Option<Body> {
    let plain = body.plain().ok()?;
    let version = body.format.version();
    let (mut message, mut number) = (Message::default(), 0);
    let read = each_series(version, &plain, |series| {
        let points = series.points();
        let kept = keep(series, number, points);
        number += points;
        if let Some(kept) = kept
            && (points == 0 || kept.contains(&true))
        {
            let series = series.only(|at| kept[at]);
            match version {
                Version::V1 => message.put_v1(&series),
                Version::V2 => message.put_v2(&series),
            }
        }
        Ok(())
    });
    read.ok()?;
    let written = message.written;
    (written.series > 0).then(|| Body::compress(&message.finish(version), written, body.format))
}

/// Bodies of one version as one message, not compressed, as many of them as fit some bytes, and what is in it. `None` when one
/// cannot be read, which those of our encoders can.
pub(crate) fn joined<'b>(
    version: Version,
    bodies: impl Iterator<Item = &'b Body>,
    most_bytes: usize,
) -> Option<(Bytes, u64)> {
    let mut message = Message::default();
    let mut items = 0;
    for body in bodies {
        // Of 2.0 nearly all is in the table of texts.
        if message.plain.len() + message.symbols.encoded().len() >= most_bytes {
            break;
        }
        items += body.written.points();
        let plain = body.plain().ok()?;
        match version {
            Version::V1 => message.plain.extend_from_slice(&plain),
            Version::V2 => {
                let read = each_series(version, &plain, |series| {
                    message.put_v2(series);
                    Ok(())
                });
                read.ok()?;
            }
        }
    }
    Some((message.finish(version).into(), items))
}

/// The labels of the first series of a body, as PromQL writes them.
pub(crate) fn name_of_first(body: &Body) -> String {
    let plain = body.plain().unwrap_or_default();
    let mut text = String::new();
    // The first one is all there is to read: stop at it.
    let _ = each_series(body.format.version(), &plain, |series| {
        text = String::from("{");
        for (name, value) in &series.labels {
            if text.len() > 1 {
                text.push_str(", ");
            }
            text.push_str(&format!("{name}={value:?}"));
        }
        text.push('}');
        Err("enough")
    });
    text
}

fn series_field(version: Version) -> u32 {
    match version {
        Version::V1 => 1,
        Version::V2 => 5,
    }
}

fn counted(plain: &[u8]) -> Written {
    let mut written = Written::default();
    for series in Fields::of(plain).filter(|field| field.number == 1) {
        written.series += 1;
        for field in Fields::of(series.value) {
            match field.number {
                2 => written.samples += 1,
                3 => written.exemplars += 1,
                4 => written.histograms += 1,
                _ => {}
            }
        }
    }
    written
}

/// The series of a message that are wanted, by their index, as a body of `format`.
fn rewritten(plain: &[u8], from: Format, format: Format, wanted: impl Fn(usize) -> bool) -> Option<Body> {
    let mut message = Message::default();
    let mut index = 0;
    let read = each_series(from.version(), plain, |series| {
        if wanted(index) {
            match format.version() {
                Version::V1 => message.put_v1(series),
                Version::V2 => message.put_v2(series),
            }
        }
        index += 1;
        Ok(())
    });
    read.ok()?;
    let written = message.written;
    Some(Body::compress(&message.finish(format.version()), written, format))
}

/// A message being put together of series.
#[derive(Default)]
struct Message {
    plain: Vec<u8>,
    symbols: v2::Symbols,
    written: Written,
    series: Vec<u8>,
}

impl Message {
    fn finish(mut self, version: Version) -> Vec<u8> {
        if version == Version::V2 {
            // The table first: there are readers that resolve references as they come.
            self.plain.splice(0..0, self.symbols.encoded().iter().copied());
        }
        self.plain
    }

    fn put_v1(&mut self, series: &Series<'_>) {
        let out = &mut self.series;
        out.clear();
        for (name, value) in &series.labels {
            v1::put_label(out, name, value);
        }
        for sample in &series.samples {
            let mut message = Vec::with_capacity(20);
            put_double(&mut message, 1, sample.value);
            put_uint(&mut message, 2, sample.timestamp_ms as u64);
            put_delimited(out, 2, &message);
        }
        for exemplar in &series.exemplars {
            let labels = exemplar.labels.iter().copied();
            v1::put_exemplar(out, labels, exemplar.value, exemplar.timestamp_ms);
        }
        let mut histograms = 0;
        for histogram in &series.histograms {
            let field = |number| Fields::of(histogram).filter(move |field| field.number == number);
            let schema = field(4)
                .last()
                .and_then(|field| field.varint())
                .map_or(0, unzigzag);
            if schema == CUSTOM_BUCKETS {
                continue;
            }
            let known = Fields::of(histogram).filter(|field| field.number != v2::HISTOGRAM_START);
            let message: Vec<u8> = known.flat_map(|field| field.framed).copied().collect();
            put_delimited(out, 4, &message);
            histograms += 1;
        }
        let only_exemplars = series.histograms.is_empty() && !series.exemplars.is_empty();
        if series.samples.is_empty() && histograms == 0 && !only_exemplars {
            return;
        }
        put_delimited(&mut self.plain, 1, out);
        self.count(series, histograms);
    }

    fn put_v2(&mut self, series: &Series<'_>) {
        let (out, symbols) = (&mut self.series, &mut self.symbols);
        out.clear();
        let mut refs = Vec::new();
        for (name, value) in &series.labels {
            put_varint(&mut refs, u64::from(symbols.of(name.as_bytes())));
            put_varint(&mut refs, u64::from(symbols.of(value.as_bytes())));
        }
        put_delimited(out, v2::LABELS_REFS, &refs);
        for sample in &series.samples {
            v2::put_sample(out, sample.value, sample.timestamp_ms, sample.start_ms);
        }
        for histogram in &series.histograms {
            put_delimited(out, v2::HISTOGRAMS, histogram);
        }
        for exemplar in &series.exemplars {
            let labels = exemplar.labels.iter().copied();
            v2::put_exemplar(out, symbols, labels, exemplar.value, exemplar.timestamp_ms);
        }
        let (help, unit) = (
            symbols.of(series.help.as_bytes()),
            symbols.of(series.unit.as_bytes()),
        );
        v2::put_metadata(out, series.kind, help, unit);
        put_delimited(&mut self.plain, series_field(Version::V2), out);
        self.count(series, series.histograms.len() as u64);
    }

    fn count(&mut self, series: &Series<'_>, histograms: u64) {
        self.written.series += 1;
        self.written.samples += series.samples.len() as u64;
        self.written.histograms += histograms;
        self.written.exemplars += series.exemplars.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// Scenario: 64 series with a label of 100 KB each are joined within 1 MiB, in each version.
    /// Guarantees: the message is no longer than that and one series more.
    #[test]
    fn long_texts_count_in_both_versions() {
        const LABEL_BYTES: usize = 100_000;
        const MOST_BYTES: usize = 1 << 20;
        let body = |n: u32| {
            let (mut series, mut sample, mut plain) = (Vec::new(), Vec::new(), Vec::new());
            v1::put_label(&mut series, "__name__", "m");
            v1::put_label(&mut series, "a", &format!("{n}{}", "x".repeat(LABEL_BYTES)));
            put_double(&mut sample, 1, 1.0);
            put_delimited(&mut series, 2, &sample);
            put_delimited(&mut plain, 1, &series);
            Body::compress(&plain, counted(&plain), Format::V1)
        };
        for format in [Format::V1, Format::V2] {
            let bodies: Vec<Body> = (0..64).map(|n| converted(&body(n), format).unwrap()).collect();
            let (message, items) = joined(format.version(), bodies.iter(), MOST_BYTES).unwrap();
            assert!(message.len() >= MOST_BYTES, "{format:?}: {}", message.len());
            assert!(
                message.len() < MOST_BYTES + 2 * LABEL_BYTES,
                "{format:?}: {}",
                message.len()
            );
            assert_eq!(items as usize, message.len() / LABEL_BYTES, "{format:?}");
        }
    }
}
