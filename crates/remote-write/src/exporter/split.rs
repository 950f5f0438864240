//! Halving an encoded body between its series.

use sluice_wire::Fields;

use crate::encoder::{Body, Written};

/// The two halves of a body, or `None` when it has fewer than two series.
pub(super) fn halves(body: &Body) -> Option<(Body, Body)> {
    let plain = inflated(body)?;
    let is_series = |number| number == 1;
    let series = Fields::of(&plain).filter(|field| is_series(field.number)).count();
    if series < 2 {
        return None;
    }
    let mut seen = 0;
    let mut first_bytes = 0;
    for field in Fields::of(&plain) {
        if is_series(field.number) {
            if seen == series / 2 {
                break;
            }
            seen += 1;
        }
        first_bytes += field.framed.len();
    }
    let (first, second) = plain.split_at(first_bytes);
    let half = |plain: &[u8]| Body::compress(plain, counted(plain));
    Some((half(first), half(second)))
}

fn inflated(body: &Body) -> Option<Vec<u8>> {
    snap::raw::Decoder::new().decompress_vec(&body.bytes).ok()
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

/// The labels of the first series of a body, as PromQL writes them.
pub(super) fn name_of_first(body: &Body) -> String {
    let plain = inflated(body).unwrap_or_default();
    let mut fields = Fields::of(&plain).filter(|field| field.number == 1);
    let Some(series) = fields.next() else {
        return String::new();
    };
    let mut text = String::from("{");
    for label in Fields::of(series.value).filter(|field| field.number == 1) {
        let part = |number| {
            let field = Fields::of(label.value)
                .filter(|field| field.number == number)
                .last();
            field
                .map(|field| String::from_utf8_lossy(field.value))
                .unwrap_or_default()
        };
        if text.len() > 1 {
            text.push_str(", ");
        }
        text.push_str(&format!("{}={:?}", part(1), part(2)));
    }
    text.push('}');
    text
}
