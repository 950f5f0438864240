//! Requests as a Prometheus would send what it scraped: one sample for each series.

use std::collections::HashMap;

use super::{ID_LABEL, RemoteWrite};
use crate::proto::Writer;
use crate::random::{Random, mix};
use crate::resource::{SERVICES, Service, attribute, instance};
use crate::spec::{Shape, Spec};

/// Types of `Metadata`, in both versions the same.
const COUNTER: u64 = 1;
const GAUGE: u64 = 2;

/// Name, help and type of the metrics of a mixed request.
const CATALOGUE: [(&str, &str, u64); 5] = [
    (
        "process_cpu_utilization_ratio",
        "Share of CPU time in use.",
        GAUGE,
    ),
    ("http_server_requests_total", "Requests served.", COUNTER),
    ("system_memory_usage_bytes", "Memory in use by state.", GAUGE),
    ("shop_cart_items", "Items in open carts.", GAUGE),
    ("network_io_bytes_total", "Bytes sent and received.", COUNTER),
];

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Text {
    Fixed(String),
    /// The id of an item.
    Id(u32),
    /// The series of an item.
    Series(u32),
}

impl Text {
    fn write(&self, w: &mut Writer, field: u32) {
        match self {
            Text::Fixed(text) => w.string(field, text),
            Text::Id(item) => w.id_digits(field, *item),
            Text::Series(item) => w.series_digits(field, *item),
        }
    }
}

enum Value {
    Gauge(f64),
    Counter { base: u64, step: u64 },
}

struct Series {
    /// Sorted by name.
    labels: Vec<(String, Text)>,
    help: &'static str,
    value: Value,
    /// From the request's time to the sample's.
    offset_nanos: i64,
}

/// Writes a whole request.
pub(crate) fn write(writer: &mut Writer, spec: &Spec, random: &mut Random, version: RemoteWrite) {
    let series = series(spec, random);
    match version {
        RemoteWrite::V1 => write_v1(writer, &series),
        RemoteWrite::V2 => write_v2(writer, &series),
    }
}

/// Without metadata, which senders of 1.0 put into requests of their own, once a minute.
fn write_v1(writer: &mut Writer, series: &[Series]) {
    for series in series {
        writer.message(1, |w| {
            for (name, value) in &series.labels {
                w.message(1, |w| {
                    w.string(1, name);
                    value.write(w, 2);
                });
            }
            write_sample(w, series);
        });
    }
}

fn write_v2(writer: &mut Writer, series: &[Series]) {
    let mut symbols = Symbols::default();
    symbols.reference(&Text::Fixed(String::new()));
    let mut references = Vec::new();
    for series in series {
        let mut labels = Vec::new();
        for (name, value) in &series.labels {
            labels.push(symbols.reference(&Text::Fixed(name.clone())));
            labels.push(symbols.reference(value));
        }
        references.push((labels, symbols.reference(&Text::Fixed(series.help.into()))));
    }
    for symbol in &symbols.table {
        symbol.write(writer, 4);
    }
    for (series, (labels, help)) in series.iter().zip(references) {
        writer.message(5, |w| {
            w.packed_uint(1, labels);
            write_sample(w, series);
            w.message(5, |w| {
                w.uint(
                    1,
                    match series.value {
                        Value::Gauge(_) => GAUGE,
                        Value::Counter { .. } => COUNTER,
                    },
                );
                w.uint(3, help);
            });
        });
    }
}

/// A `Sample`, and where a series has it: the same in both versions.
fn write_sample(w: &mut Writer, series: &Series) {
    w.message(2, |w| {
        match series.value {
            Value::Gauge(value) => w.double(1, value),
            Value::Counter { base, step } => w.float_counter(1, base, step),
        }
        w.millis(2, series.offset_nanos);
    });
}

#[derive(Default)]
struct Symbols {
    table: Vec<Text>,
    known: HashMap<Text, u64>,
}

impl Symbols {
    fn reference(&mut self, text: &Text) -> u64 {
        if let Some(reference) = self.known.get(text) {
            return *reference;
        }
        let reference = self.table.len() as u64;
        self.table.push(text.clone());
        self.known.insert(text.clone(), reference);
        reference
    }
}

/// The series of a request, shared out among services and metrics as the points of an OTLP request are.
fn series(spec: &Spec, random: &mut Random) -> Vec<Series> {
    let resources = spec.resources.clamp(1, spec.items_per_request);
    let points_per_metric = spec.points_per_metric.max(1);
    let share = |resource: u32| {
        (u64::from(spec.items_per_request) * u64::from(resource) / u64::from(resources)) as u32
    };
    let mut all = Vec::new();
    for resource in 0..resources {
        let service = SERVICES[resource as usize % SERVICES.len()];
        let (_, instance) = instance(spec, service);
        let range = share(resource)..share(resource + 1);
        for item in range.clone() {
            let metric = match spec.shape {
                Shape::Uniform => (item - range.start) / points_per_metric,
                Shape::Mixed => item / points_per_metric,
            };
            all.push(one(spec, random, service, &instance, metric, item));
        }
    }
    all
}

fn one(spec: &Spec, random: &mut Random, service: Service, instance: &str, metric: u32, item: u32) -> Series {
    let (name, help, kind) = match spec.shape {
        Shape::Uniform => (
            format!("shop_{}_gauge_{metric:03}", service.name),
            "Current value of a gauge",
            GAUGE,
        ),
        Shape::Mixed => {
            let (name, help, kind) = CATALOGUE[metric as usize % CATALOGUE.len()];
            (name.to_string(), help, kind)
        }
    };
    let alike = spec.shape == Shape::Uniform && !spec.varied;
    let offset_nanos = if alike {
        0
    } else {
        // Up to a second: less than a millisecond would not show.
        -(random.below(1_000_000_000) as i64)
    };
    let value = match kind {
        COUNTER => Value::Counter {
            base: random.below(100_000),
            step: 1 + random.below(50),
        },
        _ => Value::Gauge((random.unit() * 1e6).round() / 1e4),
    };
    let fixed = |name: &str, value: &str| (name.to_string(), Text::Fixed(value.to_string()));
    let mut labels = vec![
        fixed("__name__", &name),
        fixed("job", &format!("shop/{}", service.name)),
        fixed("instance", instance),
        (ID_LABEL.to_string(), Text::Id(item)),
    ];
    let mut attributes = spec.attributes_per_item.saturating_sub(1);
    if spec.series > 0 {
        labels.push(("shop_series".into(), Text::Series(item)));
        attributes = attributes.saturating_sub(1);
    }
    // Like an SDK, a scrape finds the same labels under each metric.
    let mut place = Random::new(mix(spec.seed) ^ u64::from(item % spec.points_per_metric.max(1)));
    let random = if alike { &mut place } else { random };
    for at in 0..attributes {
        let (key, value) = attribute(random, at);
        labels.push(fixed(&key.replace('.', "_"), &value.to_string()));
    }
    labels.sort_by(|(one, _), (other, _)| one.cmp(other));
    Series {
        labels,
        help,
        value,
        offset_nanos,
    }
}
