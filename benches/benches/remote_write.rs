//! OTLP bytes to bodies of remote write: 1.0 under snappy and zstd, 2.0, and what compressing the same bodies alone would take.
//!
//! `cargo bench -p sluice-benches --bench remote_write`; throughput is in data points. All resource attributes are labels of
//! every series, as in vmagent, whose figures are in the project's notes: 541 ns a point at 3 attributes, 1,071 at 12.
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sluice_benches::points::points;
use sluice_remote_write::{Encoder, EncoderSettings, Format, Mapping, Promote, to_otlp};

/// The allocator that ships.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const POINTS: usize = 10_000;

fn encoder(format: Format, lanes: usize) -> Encoder {
    Encoder::new(EncoderSettings {
        format,
        mapping: Mapping {
            promote: Promote::AllBut(Vec::new()),
            ..Mapping::default()
        },
        lanes,
        max_body_bytes: usize::MAX,
        ..EncoderSettings::default()
    })
}

fn transcode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("remote_write");
    group.throughput(Throughput::Elements(POINTS as u64));
    for attributes in [3, 12] {
        let body = points(POINTS, attributes, 0);
        eprintln!(
            "{attributes} resource attributes: OTLP {} B a point",
            body.len() / POINTS
        );
        for (name, format) in [
            ("1.0", Format::V1),
            ("1.0 zstd", Format::V1Zstd),
            ("2.0", Format::V2),
        ] {
            for lanes in [1, 16] {
                let mut encoder = encoder(format, lanes);
                group.bench_function(
                    BenchmarkId::new(format!("{name}, {lanes} lanes"), attributes),
                    |bench| {
                        bench.iter(|| encoder.encode(&[black_box(&body)]));
                    },
                );
            }
            let (lanes, _) = encoder(format, 1).encode(&[&body]);
            let plain = lanes[0][0].plain().expect("it was just written");
            let searched = snap::raw::Encoder::new().compress_vec(&plain).expect("it fits");
            eprintln!(
                "{name}: {} B a point, {} as sent; snappy by search {}",
                plain.len() / POINTS,
                lanes[0][0].bytes.len() / POINTS,
                searched.len() / POINTS
            );
        }
        let (lanes, _) = encoder(Format::V1, 1).encode(&[&body]);
        let plain = lanes[0][0].plain().expect("it was just written");
        group.bench_function(BenchmarkId::new("snappy alone", attributes), |bench| {
            let mut out = vec![0; snap::raw::max_compress_len(plain.len())];
            let mut encoder = snap::raw::Encoder::new();
            bench.iter(|| encoder.compress(black_box(&plain), &mut out));
        });
        group.bench_function(BenchmarkId::new("back to OTLP", attributes), |bench| {
            bench.iter(|| to_otlp(sluice_remote_write::Version::V1, black_box(&plain)));
        });
    }
    group.finish();
}

/// A hundred bodies in turn of which every point is a series of its own: caches of series would not help here.
fn cardinality(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("remote_write/series");
    group.throughput(Throughput::Elements(1000));
    for series in [1_000, 10_000, 100_000] {
        let bodies: Vec<Vec<u8>> = (0..series / 1000).map(|n| points(1000, 3, n * 1000)).collect();
        let mut encoder = encoder(Format::V1, 16);
        let mut turn = 0;
        group.bench_function(BenchmarkId::from_parameter(series), |bench| {
            bench.iter(|| {
                turn = (turn + 1) % bodies.len();
                encoder.encode(&[black_box(&bodies[turn])])
            });
        });
    }
    group.finish();
}

criterion_group!(benches, transcode, cardinality);
criterion_main!(benches);
