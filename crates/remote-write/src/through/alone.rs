//! Exemplars in series of their own, as Prometheus sends them, on their way to a destination of 2.0: there a series has to have a sample or a
//! histogram. So they go with those of the same labels in the request.

use std::collections::HashMap;

use sluice_wire::Fields;

use super::{SAMPLES, from};
use crate::decode::Version;

/// Series of one request that have exemplars and nothing else.
#[derive(Debug, Default)]
pub(super) struct Alone<'a> {
    /// By the fields of their labels: the fields after them.
    by_labels: HashMap<&'a [u8], Vec<&'a [u8]>>,
    /// Exemplars that go with nothing.
    left: u64,
}

/// Numbers of the fields of a `TimeSeries`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    /// Of the series in the request.
    series: u32,
    pub histograms: u32,
    pub exemplars: u32,
}

impl Numbers {
    pub fn of(version: Version) -> Self {
        match version {
            Version::V1 => Self {
                series: 1,
                histograms: 4,
                exemplars: 3,
            },
            Version::V2 => Self {
                series: 5,
                histograms: 3,
                exemplars: 4,
            },
        }
    }

    fn has_items(self, fields: &[u8]) -> bool {
        Fields::of(fields).any(|field| field.number == SAMPLES || field.number == self.histograms)
    }

    fn exemplars_in(self, fields: &[u8]) -> u64 {
        let is_one = |number: u32| number == self.exemplars;
        Fields::of(fields).filter(|field| is_one(field.number)).count() as u64
    }
}

/// Whether none of the labels comes after another field: only then the labels are known by what comes before that.
fn come_after_labels(fields: &[u8]) -> bool {
    Fields::of(fields).all(|field| field.number != 1)
}

impl<'a> Alone<'a> {
    pub fn of(body: &'a [u8], numbers: Numbers) -> Self {
        let mut alone = Self::default();
        for message in
            Fields::of(body).filter_map(|field| field.bytes().filter(|_| field.number == numbers.series))
        {
            let rest = Fields::of(message).find(|field| field.number != 1);
            // Nearly every series has a sample there.
            if rest.as_ref().is_none_or(|field| field.number == SAMPLES) {
                continue;
            }
            let fields = from(message, rest.map(|field| field.framed));
            if numbers.has_items(fields) {
                continue;
            }
            if come_after_labels(fields) {
                let labels = &message[..message.len() - fields.len()];
                alone.by_labels.entry(labels).or_default().push(fields);
            } else {
                alone.left += numbers.exemplars_in(fields);
            }
        }
        alone
    }

    /// Takes the series with the labels of this one, if this one has something to go with.
    #[inline]
    pub fn take(&mut self, message: &[u8], fields: &[u8], numbers: Numbers) -> Vec<&'a [u8]> {
        if self.by_labels.is_empty() {
            return Vec::new();
        }
        let labels = &message[..message.len() - fields.len()];
        if !self.by_labels.contains_key(labels) || !numbers.has_items(fields) || !come_after_labels(fields) {
            return Vec::new();
        }
        self.by_labels.remove(labels).unwrap_or_default()
    }

    /// How many exemplars nothing has been found for.
    pub fn left(&self, numbers: Numbers) -> u64 {
        let series = self.by_labels.values().flatten();
        self.left + series.map(|fields| numbers.exemplars_in(fields)).sum::<u64>()
    }
}
