//! Exemplars.

use sluice_wire::{Fields, KeyValue};

use super::{Context, milliseconds};
use crate::labels::Names;
use crate::text::put_value;

/// Characters that the labels of an exemplar may have together (OpenMetrics 1.0).
const MAX_CHARACTERS: usize = 128;

/// An example of a value that went into a sample.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Exemplar {
    /// Sorted, each name once, none empty.
    pub labels: Vec<(String, String)>,
    pub value: f64,
    pub timestamp_ms: i64,
}

impl Exemplar {
    /// Names and values of the labels.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl Context<'_> {
    /// Reads exemplars; those without a value are none, and counted. Where names are escaped, theirs are too.
    #[inline]
    pub(super) fn exemplars(&mut self, raw: &[&[u8]]) -> Vec<Exemplar> {
        if raw.is_empty() {
            return Vec::new();
        }
        let read = (raw.iter()).filter_map(|raw| exemplar(raw, self.sanitizes_exemplars, self.names));
        let read: Vec<_> = read.collect();
        self.outcome.dropped_exemplars += (raw.len() - read.len()) as u64;
        read
    }
}

fn exemplar(raw: &[u8], escapes: bool, names: &mut Names) -> Option<Exemplar> {
    let (mut value, mut time) = (None, 0);
    let (mut trace, mut span): (&[u8], &[u8]) = (&[], &[]);
    let mut filtered: Vec<(String, String)> = Vec::new();
    for field in Fields::of(raw) {
        match field.number {
            2 => time = field.fixed64().unwrap_or(0),
            3 => value = field.fixed64().map(f64::from_bits).or(value),
            6 => value = field.fixed64().map(|bits| bits as i64 as f64).or(value),
            4 => span = field.bytes().unwrap_or_default(),
            5 => trace = field.bytes().unwrap_or_default(),
            7 => {
                let attribute = KeyValue::parse(field.bytes().unwrap_or_default());
                let mut text = String::new();
                put_value(&mut text, attribute.value());
                filtered.push((attribute.key().to_owned(), text));
            }
            _ => {}
        }
    }
    let mut labels = Vec::new();
    for (name, id) in [("trace_id", trace), ("span_id", span)] {
        if id.iter().any(|byte| *byte != 0) {
            labels.push((name.to_owned(), hexadecimal(id)));
        }
    }
    let characters = |labels: &[(String, String)]| -> usize {
        let count = |(name, value): &(String, String)| name.chars().count() + value.chars().count();
        labels.iter().map(count).sum()
    };
    if characters(&labels) + characters(&filtered) <= MAX_CHARACTERS {
        for (key, value) in filtered {
            let name = if escapes {
                names.of(&key).map(|id| names.get(id).text.to_string())
            } else {
                Some(key).filter(|key| !key.is_empty())
            };
            // The ids come first, and so they are the ones that stay.
            if let Some(name) = name
                && !value.is_empty()
                && !labels.iter().any(|(other, _)| *other == name)
            {
                labels.push((name, value));
            }
        }
    }
    labels.sort();
    Some(Exemplar {
        labels,
        value: value?,
        timestamp_ms: milliseconds(time),
    })
}

fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes
        .iter()
        .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    digits.map(char::from).collect()
}
