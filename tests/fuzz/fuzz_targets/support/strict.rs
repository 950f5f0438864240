//! What a strict receiver of remote write holds a request to, in both versions.

use sluice_loadgen::RemoteWrite;
use sluice_wire::{Field, Fields};

/// Panics unless every label set is sorted by name, each name once, none empty, none without a value, with `__name__` among them, in legacy
/// characters, labels' names and metrics', where that is asked for; and, in 2.0, unless the table of symbols comes first, begins with the empty one, has each
/// once, and is what every reference leads into; and those of exemplars are sorted, each once and with a value, too; and each series has samples or histograms, not both, or, in 1.0 alone, nothing but exemplars.
pub fn check(version: RemoteWrite, body: &[u8], legacy: bool) {
    match version {
        RemoteWrite::V1 => {
            for series in of(body, 1) {
                label_messages(series).check(legacy);
                for exemplar in of(series, 3) {
                    label_messages(exemplar).check_sorted();
                }
                let [samples, histograms, exemplars] = [2, 4, 3].map(|number| of(series, number).count());
                assert!(samples == 0 || histograms == 0, "samples and histograms");
                assert!(samples + histograms + exemplars > 0, "nothing");
            }
        }
        RemoteWrite::V2 => second_version(body, legacy),
    }
}

fn second_version(body: &[u8], legacy: bool) {
    let symbols: Vec<&[u8]> = of(body, 4).collect();
    let mut unique = symbols.clone();
    unique.sort_unstable();
    assert!(unique.windows(2).all(|pair| pair[0] < pair[1]), "a symbol twice");
    assert!(symbols.iter().all(|symbol| std::str::from_utf8(symbol).is_ok()));
    let first_series = Fields::of(body).position(|field| field.number == 5);
    if first_series.is_some() {
        assert_eq!(
            symbols.first(),
            Some(&&b""[..]),
            "the first symbol is the empty one"
        );
        assert_eq!(first_series, Some(symbols.len()), "the table comes first");
    }
    let referred = |message| {
        labels(
            pairs(message)
                .into_iter()
                .map(|(name, value)| (symbols[name], symbols[value])),
        )
    };
    for series in of(body, 5) {
        referred(series).check(legacy);
        for exemplar in of(series, 4) {
            referred(exemplar).check_sorted();
        }
        for metadata in of(series, 5) {
            for text in Fields::of(metadata).filter(|field| matches!(field.number, 3 | 4)) {
                assert!((text.varint().expect("a reference") as usize) < symbols.len());
            }
        }
        let [samples, histograms] = [2, 3].map(|number| of(series, number).next().is_some());
        assert!(samples != histograms, "samples or histograms, one of them");
    }
}

/// The labels of 1.0 that a series or an exemplar has.
fn label_messages(message: &[u8]) -> Labels<'_> {
    labels(of(message, 1).map(|label| {
        let mut parts = Fields::of(label).map(|field| field.value);
        let label = (parts.next().expect("a name"), parts.next().expect("a value"));
        assert!(parts.next().is_none());
        label
    }))
}

fn of(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    let is_one = move |field: &Field<'_>| field.number == number;
    Fields::of(message).filter(is_one).map(|field| field.value)
}

/// The references of `labels_refs`, two and two.
fn pairs(message: &[u8]) -> Vec<(usize, usize)> {
    let mut references = Vec::new();
    for packed in of(message, 1) {
        let (mut reference, mut shift) = (0usize, 0);
        for byte in packed {
            reference |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if *byte < 0x80 {
                references.push(reference);
                (reference, shift) = (0, 0);
            }
        }
        assert_eq!(shift, 0, "a reference without an end");
    }
    let (pairs, odd) = references.as_chunks::<2>();
    assert!(odd.is_empty(), "a name without a value");
    pairs.iter().map(|[name, value]| (*name, *value)).collect()
}

struct Labels<'a>(Vec<(&'a [u8], &'a [u8])>);

fn labels<'a>(labels: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Labels<'a> {
    Labels(labels.collect())
}

impl Labels<'_> {
    fn check_sorted(&self) {
        let mut last: &[u8] = &[];
        for (name, value) in &self.0 {
            assert!(*name > last && !value.is_empty());
            assert!(std::str::from_utf8(name).is_ok() && std::str::from_utf8(value).is_ok());
            last = name;
        }
    }

    fn check(&self, legacy: bool) {
        self.check_sorted();
        let metric = self.0.iter().find(|(name, _)| *name == b"__name__");
        let (_, metric) = metric.expect("a metric's name");
        if legacy {
            let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':');
            assert!(
                metric.iter().all(fits) && !metric[0].is_ascii_digit(),
                "{metric:?}"
            );
            for (name, _) in &self.0 {
                let fits = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
                assert!(name.iter().all(fits) && !name[0].is_ascii_digit());
            }
        }
    }
}
