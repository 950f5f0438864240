//! Metric requests.

use crate::proto::Writer;
use crate::random::{Random, mix};
use crate::resource::{write_attributes, write_request};
use crate::spec::{Shape, Spec};

/// How long before the first request the cumulative series began.
const SERIES_AGE_NANOS: u64 = 3_600_000_000_000;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Gauge,
    IntGauge,
    Counter,
    UpDownCounter,
    Histogram,
    ExponentialHistogram,
    Summary,
}

/// Name, unit, description and kind of the metrics of a mixed request.
const CATALOGUE: [(&str, &str, &str, Kind); 9] = [
    (
        "http.server.request.duration",
        "s",
        "Duration of HTTP server requests.",
        Kind::Histogram,
    ),
    (
        "process.cpu.utilization",
        "1",
        "Share of CPU time in use.",
        Kind::Gauge,
    ),
    (
        "http.server.requests",
        "{request}",
        "Requests served.",
        Kind::Counter,
    ),
    (
        "system.memory.usage",
        "By",
        "Memory in use by state.",
        Kind::IntGauge,
    ),
    (
        "rpc.client.duration",
        "ms",
        "Duration of outbound calls.",
        Kind::ExponentialHistogram,
    ),
    (
        "shop.cart.items",
        "{item}",
        "Items in open carts.",
        Kind::UpDownCounter,
    ),
    (
        "db.client.operation.duration",
        "s",
        "Duration of database operations.",
        Kind::Histogram,
    ),
    ("gc.pause", "s", "Pauses of the garbage collector.", Kind::Summary),
    ("network.io", "By", "Bytes sent and received.", Kind::Counter),
];

const BOUNDS: [f64; 14] = [
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
];

pub(crate) fn write(writer: &mut Writer, spec: &Spec, random: &mut Random) {
    let points_per_metric = spec.points_per_metric.max(1);
    let start_nanos = spec.start_unix_nanos.saturating_sub(SERIES_AGE_NANOS);
    write_request(writer, spec, random, |w, random, service, range| {
        let mut first = range.start;
        while first < range.end {
            let points = first..range.end.min(first + points_per_metric);
            let number = (first - range.start) / points_per_metric;
            w.message(2, |w| match spec.shape {
                Shape::Uniform => {
                    w.string(1, &format!("shop.{}.gauge_{number:03}", service.name));
                    w.string(2, "Current value of a gauge");
                    w.string(3, "1");
                    w.message(5, |w| {
                        for item in points.clone() {
                            w.message(1, |w| {
                                write_number(w, spec, random, item, Kind::Gauge, start_nanos)
                            });
                        }
                    });
                }
                Shape::Mixed => {
                    let (name, unit, description, kind) =
                        CATALOGUE[(first / points_per_metric) as usize % CATALOGUE.len()];
                    w.string(1, name);
                    w.string(2, description);
                    w.string(3, unit);
                    write_data(w, spec, random, points.clone(), kind, start_nanos);
                }
            });
            first = points.end;
        }
    });
}

fn write_data(
    w: &mut Writer,
    spec: &Spec,
    random: &mut Random,
    points: std::ops::Range<u32>,
    kind: Kind,
    start_nanos: u64,
) {
    const CUMULATIVE: u64 = 2;
    const DELTA: u64 = 1;
    let data_field = match kind {
        Kind::Gauge | Kind::IntGauge => 5,
        Kind::Counter | Kind::UpDownCounter => 7,
        Kind::Histogram => 9,
        Kind::ExponentialHistogram => 10,
        Kind::Summary => 11,
    };
    w.message(data_field, |w| {
        for item in points {
            w.message(1, |w| match kind {
                Kind::Histogram => write_histogram(w, spec, random, item),
                Kind::ExponentialHistogram => write_exponential(w, spec, random, item),
                Kind::Summary => write_summary(w, spec, random, item, start_nanos),
                _ => write_number(w, spec, random, item, kind, start_nanos),
            });
        }
        match kind {
            Kind::Counter | Kind::UpDownCounter => w.uint(2, CUMULATIVE),
            // Histograms repeat their counts with each use of a template, which only deltas may do.
            Kind::Histogram | Kind::ExponentialHistogram => w.uint(2, DELTA),
            _ => {}
        }
        if matches!(kind, Kind::Counter) {
            w.uint(3, 1);
        }
    });
}

fn write_point_attributes(w: &mut Writer, spec: &Spec, random: &mut Random, field: u32, item: u32) {
    w.id_attribute(field, item);
    let mut written = 1;
    if spec.series > 0 {
        w.series_attribute(field, item);
        written += 1;
    }
    write_attributes(w, random, field, spec.attributes_per_item.saturating_sub(written));
}

fn write_number(w: &mut Writer, spec: &Spec, random: &mut Random, item: u32, kind: Kind, start_nanos: u64) {
    if matches!(kind, Kind::Counter | Kind::UpDownCounter) {
        w.fixed64(2, start_nanos);
    }
    let alike = spec.shape == Shape::Uniform && !spec.varied;
    w.time(
        3,
        if alike {
            0
        } else {
            -(random.below(1_000_000) as i64)
        },
    );
    match kind {
        Kind::Counter => w.counter(6, random.below(100_000), 1 + random.below(50)),
        Kind::IntGauge => w.fixed64(6, random.below(1 << 34)),
        Kind::UpDownCounter => w.fixed64(6, (random.below(200) as i64 - 100) as u64),
        _ => w.double(4, (random.unit() * 1e6).round() / 1e4),
    }
    if alike {
        let place = u64::from(item % spec.points_per_metric.max(1));
        write_point_attributes(w, spec, &mut Random::new(mix(spec.seed) ^ place), 7, item);
    } else {
        write_point_attributes(w, spec, random, 7, item);
    }
}

fn write_histogram(w: &mut Writer, spec: &Spec, random: &mut Random, item: u32) {
    let buckets: Vec<u64> = (0..=BOUNDS.len()).map(|_| random.below(40)).collect();
    let count: u64 = buckets.iter().sum();
    w.time(2, -60_000_000_000);
    w.time(3, 0);
    w.fixed64(4, count);
    w.double(5, count as f64 * random.unit());
    w.packed_fixed64(6, buckets);
    w.packed_fixed64(7, BOUNDS.map(f64::to_bits));
    if random.chance(30) {
        w.message(8, |w| {
            w.time(2, -1_000_000);
            w.double(3, random.unit());
            w.fixed_span_id(4, random.next_u64() | 1);
            w.fixed_trace_id(5, random.next_u64() | 1);
            w.string_attribute(7, "shop.exemplar", "slow");
        });
    }
    write_point_attributes(w, spec, random, 9, item);
    w.double(11, 0.001);
    w.double(12, 9.5);
}

fn write_exponential(w: &mut Writer, spec: &Spec, random: &mut Random, item: u32) {
    write_point_attributes(w, spec, random, 1, item);
    let positive: Vec<u64> = (0..20).map(|_| random.below(30)).collect();
    let zeros = 1 + random.below(5);
    let count = positive.iter().sum::<u64>() + zeros;
    w.time(2, -60_000_000_000);
    w.time(3, 0);
    w.fixed64(4, count);
    w.double(5, count as f64 * 12.5);
    w.sint(6, 3);
    w.fixed64(7, zeros);
    w.message(8, |w| {
        w.sint(1, -4);
        w.packed_uint(2, positive);
    });
    w.double(14, 0.0001);
}

fn write_summary(w: &mut Writer, spec: &Spec, random: &mut Random, item: u32, start_nanos: u64) {
    w.fixed64(2, start_nanos);
    w.time(3, 0);
    w.counter(4, random.below(1000), 3);
    w.double(5, random.unit() * 50.0);
    for quantile in [0.5, 0.9, 0.99] {
        w.message(6, |w| {
            w.double(1, quantile);
            w.double(2, quantile * random.unit());
        });
    }
    write_point_attributes(w, spec, random, 7, item);
}
