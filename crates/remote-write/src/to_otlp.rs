//! Remote write to OTLP metrics.
//!
//! `job` and `instance` become the resource's `service.*` attributes, names and other labels stay as they are, and there are no
//! units. So what the mapping made comes out the same again, and with names that are not translated what anybody made; names
//! of others, such as a counter's without `_total`, are translated as any OTLP. Counters are known by their type (2.0) or by
//! `_total` at the end of the name (1.0, which sends no types with the samples); everything else is a gauge, the series of
//! classic histograms and summaries too, so that each goes out again under its own name. Native histograms become
//! exponential ones, and those with custom buckets become histograms with bounds.

mod native;

pub(crate) use native::{MAX_BUCKETS, check as check_histogram, span};

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use crate::decode::{COUNTER, Exemplar, Invalid, Series, Taken, UNKNOWN, Version, each_series};
use crate::labels::METRIC_NAME;
use crate::protobuf::{put_delimited, put_double, put_uint, put_varint};
use crate::transcode::STALE_NAN;

/// Which sort of metric the points of a series belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Sort {
    Gauge,
    Counter,
    Exponential,
    Buckets,
}

/// A metric being gathered: the fields of its `data`.
#[derive(Debug)]
struct Metric<'a> {
    resource: usize,
    name: &'a str,
    help: &'a str,
    sort: Sort,
    data: Vec<u8>,
}

/// Reads a remote-write request and writes the `ExportMetricsServiceRequest` that says the same.
///
/// Samples of one series stay in order. All that OTLP can say is taken, or nothing: native histograms that it cannot say are left out and
/// counted.
///
/// # Errors
/// When the body is no request of its version, or something in it is not valid.
pub fn to_otlp(version: Version, body: &[u8]) -> Result<(Vec<u8>, Taken), Invalid> {
    let mut gathered = Gathered::default();
    each_series(version, body, |series| gathered.take(series))?;
    Ok((gathered.write(), gathered.taken))
}

#[derive(Debug, Default)]
struct Gathered<'a> {
    /// `job` and `instance`.
    resources: Vec<(&'a str, &'a str)>,
    by_target: HashMap<(&'a str, &'a str), usize>,
    metrics: Vec<Metric<'a>>,
    by_name: HashMap<(usize, &'a str, Sort), usize>,
    taken: Taken,
    point: Vec<u8>,
    scratch: Vec<u8>,
}

impl<'a> Gathered<'a> {
    fn take(&mut self, series: &Series<'a>) -> Result<(), &'static str> {
        // Prometheus sends each exemplar as a series of its own, beside that of the sample.
        if series.samples.is_empty() && series.histograms.is_empty() {
            self.taken.left_out_exemplars += series.exemplars.len() as u64;
            return Ok(());
        }
        let name = series.label(METRIC_NAME);
        let target = (series.label("job"), series.label("instance"));
        let resource = *self.by_target.entry(target).or_insert_with(|| {
            self.resources.push(target);
            self.resources.len() - 1
        });
        let counter = match series.kind {
            COUNTER => true,
            UNKNOWN => name.ends_with("_total"),
            _ => false,
        };
        let sort = if counter { Sort::Counter } else { Sort::Gauge };
        let mut exemplars = &series.exemplars[..];
        for sample in &series.samples {
            let stale = sample.value.to_bits() == STALE_NAN;
            self.point.clear();
            put_nanos(&mut self.point, 2, sample.start_ms)?;
            put_nanos(&mut self.point, 3, sample.timestamp_ms)?;
            if stale {
                put_uint(&mut self.point, 8, 1);
            } else {
                put_double(&mut self.point, 4, sample.value);
            }
            put_attributes(&mut self.point, 7, series, &mut self.scratch);
            // They are the series's, not of any sample of it.
            put_exemplars(&mut self.point, 5, std::mem::take(&mut exemplars))?;
            self.keep(resource, name, series.help, sort);
            self.taken.samples += 1;
        }
        for histogram in &series.histograms {
            self.point.clear();
            let sort = match native::put_point(&mut self.point, histogram) {
                Err(native::NOT_WHOLE | native::UNKNOWN_SCHEMA) => {
                    self.taken.left_out_histograms += 1;
                    continue;
                }
                sort => sort?,
            };
            let (attributes, own) = match sort {
                Sort::Exponential => (1, 11),
                _ => (9, 8),
            };
            put_attributes(&mut self.point, attributes, series, &mut self.scratch);
            put_exemplars(&mut self.point, own, std::mem::take(&mut exemplars))?;
            self.keep(resource, name, series.help, sort);
            self.taken.histograms += 1;
        }
        // Those that no point has taken are left out with it.
        self.taken.exemplars += (series.exemplars.len() - exemplars.len()) as u64;
        self.taken.left_out_exemplars += exemplars.len() as u64;
        Ok(())
    }

    /// Puts the point into its metric.
    fn keep(&mut self, resource: usize, name: &'a str, help: &'a str, sort: Sort) {
        let index = *self.by_name.entry((resource, name, sort)).or_insert_with(|| {
            self.metrics.push(Metric {
                resource,
                name,
                help,
                sort,
                data: Vec::new(),
            });
            self.metrics.len() - 1
        });
        put_delimited(&mut self.metrics[index].data, 1, &self.point);
    }

    fn write(&self) -> Vec<u8> {
        let mut scopes: Vec<Vec<u8>> = vec![Vec::new(); self.resources.len()];
        let mut message = Vec::new();
        for metric in &self.metrics {
            message.clear();
            put_delimited(&mut message, 1, metric.name.as_bytes());
            if !metric.help.is_empty() {
                put_delimited(&mut message, 2, metric.help.as_bytes());
            }
            let number = match metric.sort {
                Sort::Gauge => 5,
                Sort::Counter => 7,
                Sort::Buckets => 9,
                Sort::Exponential => 10,
            };
            // aggregation_temporality: cumulative; is_monotonic.
            let more: &[u8] = match metric.sort {
                Sort::Gauge => &[],
                Sort::Counter => &[2 << 3, 2, 3 << 3, 1],
                Sort::Buckets | Sort::Exponential => &[2 << 3, 2],
            };
            put_varint(&mut message, number << 3 | 2);
            put_varint(&mut message, (metric.data.len() + more.len()) as u64);
            message.extend_from_slice(&metric.data);
            message.extend_from_slice(more);
            put_delimited(&mut scopes[metric.resource], 2, &message);
        }
        let mut out = Vec::new();
        for ((job, instance), scope) in self.resources.iter().zip(&scopes) {
            message.clear();
            let mut resource = Vec::new();
            // A part that is empty would be no attribute, and its slash would be gone.
            let parts = job.split_once('/');
            let parts = parts.filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty());
            let (namespace, name) = parts.unwrap_or(("", job));
            for (key, value) in [
                ("service.namespace", namespace),
                ("service.name", name),
                ("service.instance.id", instance),
            ] {
                if !value.is_empty() {
                    put_attribute(&mut resource, 1, key, value, &mut self.scratch.clone());
                }
            }
            put_delimited(&mut message, 1, &resource);
            put_delimited(&mut message, 2, scope);
            put_delimited(&mut out, 1, &message);
        }
        out
    }
}

const TIME: &str = "a time is before 1677 or after 2262, which OTLP cannot say; times are in milliseconds";

/// Milliseconds as a fixed64 of nanoseconds; 0 is left out.
fn put_nanos(out: &mut Vec<u8>, number: u32, milliseconds: i64) -> Result<(), &'static str> {
    if milliseconds != 0 {
        let nanos = milliseconds.checked_mul(1_000_000).ok_or(TIME)?;
        put_varint(out, u64::from(number << 3 | 1));
        out.extend_from_slice(&nanos.to_le_bytes());
    }
    Ok(())
}

fn put_attribute(out: &mut Vec<u8>, number: u32, key: &str, value: &str, scratch: &mut Vec<u8>) {
    scratch.clear();
    put_delimited(scratch, 1, key.as_bytes());
    put_varint(scratch, 2 << 3 | 2);
    let value_len = 1 + crate::protobuf::varint_len(value.len() as u64) + value.len();
    put_varint(scratch, value_len as u64);
    put_delimited(scratch, 1, value.as_bytes());
    put_delimited(out, number, scratch);
}

/// The labels that are neither the name nor the target.
fn put_attributes(out: &mut Vec<u8>, number: u32, series: &Series<'_>, scratch: &mut Vec<u8>) {
    for (name, value) in &series.labels {
        if !matches!(*name, METRIC_NAME | "job" | "instance") {
            put_attribute(out, number, name, value, scratch);
        }
    }
}

fn put_exemplars(out: &mut Vec<u8>, number: u32, exemplars: &[Exemplar<'_>]) -> Result<(), &'static str> {
    let mut message = Vec::new();
    let mut scratch = Vec::new();
    for exemplar in exemplars {
        message.clear();
        put_nanos(&mut message, 2, exemplar.timestamp_ms)?;
        put_double(&mut message, 3, exemplar.value);
        for (name, value) in &exemplar.labels {
            match (*name, bytes_of(value)) {
                ("trace_id", Some(id)) if id.len() == 16 => put_delimited(&mut message, 5, &id),
                ("span_id", Some(id)) if id.len() == 8 => put_delimited(&mut message, 4, &id),
                _ => put_attribute(&mut message, 7, name, value, &mut scratch),
            }
        }
        put_delimited(out, number, &message);
    }
    Ok(())
}

/// The bytes that hexadecimal digits stand for.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    if !odd.is_empty() {
        return None;
    }
    let digit = |byte: u8| (byte as char).to_digit(16).filter(|_| !byte.is_ascii_uppercase());
    pairs
        .iter()
        .map(|[high, low]| Some((digit(*high)? << 4 | digit(*low)?) as u8))
        .collect()
}
