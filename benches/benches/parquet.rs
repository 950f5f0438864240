//! OTLP bytes to a Parquet file of the table `logs`, zstd 1, one thread, on the 40-column data set in both shapes.
//!
//! `cargo bench -p sluice-benches --bench parquet`; throughput is in rows, wall clock: on a busy machine compare with the walk
//! alone, which runs beside it. `SLUICE_PARQUET_ROWS=10000,25000,50000,100000,200000,400000` chooses the sizes. Bytes a row and
//! rows per CPU second of one pass are printed first.
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sluice_benches::forty::logs;
use sluice_parquet::{Encoder, FileSettings, PageEncoder, Table};
use sluice_wire::{Kind, Request};

/// The allocator that ships.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn encode(requests: &[Vec<u8>], encoder: PageEncoder) -> usize {
    let settings = FileSettings {
        encoder,
        ..FileSettings::default()
    };
    let mut encoder = Encoder::new(Table::Logs, &settings, Vec::new()).expect("memory takes everything");
    for request in requests {
        encoder.push(black_box(request)).expect("memory takes everything");
    }
    encoder.finish().expect("memory takes everything").0.len()
}

fn walk(requests: &[Vec<u8>]) -> usize {
    let mut attributes = 0;
    for request in requests {
        for resource in Request::new(Kind::Logs, black_box(request)).resources() {
            attributes += resource.resource().attributes().count();
            for scope in resource.scopes() {
                attributes += scope
                    .log_records()
                    .map(|record| record.attributes().count())
                    .sum::<usize>();
            }
        }
    }
    attributes
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn tables(criterion: &mut Criterion) {
    let sizes = std::env::var("SLUICE_PARQUET_ROWS").unwrap_or_else(|_| "10000".to_owned());
    let mut group = criterion.benchmark_group("parquet");
    group.sample_size(10);
    for rows in sizes
        .split(',')
        .map(|rows| rows.parse::<usize>().expect("a number of rows"))
    {
        for per_resource in [1, 100] {
            let requests = logs(rows, per_resource);
            let input: usize = requests.iter().map(Vec::len).sum();
            for encoder in [PageEncoder::Own, PageEncoder::Arrow] {
                // The best of three: the first one warms the caches.
                let pass = |_| {
                    let began = cpu_seconds();
                    (encode(&requests, encoder), cpu_seconds() - began)
                };
                let passes: Vec<(usize, f64)> = (0..3).map(pass).collect();
                let best = passes.iter().map(|(_, seconds)| *seconds).fold(f64::MAX, f64::min);
                eprintln!(
                    "{rows} rows, {per_resource} a resource, {encoder:?}: {} B/row of OTLP, {:.1} B/row of Parquet, {:.0} rows per CPU second",
                    input / rows,
                    passes[0].0 as f64 / rows as f64,
                    rows as f64 / best
                );
            }
            let began = cpu_seconds();
            black_box(walk(&requests));
            eprintln!("walk alone: {:.0} rows per CPU second", rows as f64 / (cpu_seconds() - began));
            group.throughput(Throughput::Elements(rows as u64));
            let shape = format!("{per_resource} a resource");
            group.bench_function(BenchmarkId::new(format!("logs, {shape}"), rows), |bench| {
                bench.iter(|| encode(&requests, PageEncoder::Own));
            });
            group.bench_function(BenchmarkId::new(format!("walk alone, {shape}"), rows), |bench| {
                bench.iter(|| walk(&requests));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, tables);
criterion_main!(benches);
