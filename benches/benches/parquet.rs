//! OTLP bytes to a Parquet file of the table `logs`, zstd 1, one thread, on the 40-column data set in both shapes, with its maps
//! of attributes and as a flat table, and on sparse data of 60 and 1000 columns, by both page encoders.
//!
//! `cargo bench -p sluice-benches --bench parquet`; throughput is in rows, wall clock: on a busy machine compare with the walk
//! alone, which runs beside it. `SLUICE_PARQUET_ROWS=10000,25000,50000,100000,200000,400000` chooses the sizes. Bytes a row and
//! rows per CPU second of the best of three passes are printed first, and how far memory grew in the first one: a lower bound,
//! since what the allocator kept from making the data is used again. `SLUICE_PARQUET_CASE="1 a resource, flat, Own"` prints only what
//! contains these words, as often as `SLUICE_PARQUET_PASSES` says, and ends: for profilers.
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sluice_benches::forty::logs;
use sluice_benches::sparse;
use sluice_parquet::{ColumnType, Encoder, FileSettings, Level, PageEncoder, Promotion, Table};
use sluice_wire::{Kind, Request};

/// The allocator that ships.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A column for each attribute of the data set, and no maps: the flat table of the benchmark, beside the columns that logs
/// always have here.
fn flat() -> FileSettings {
    let of = |level, column_type, keys: &str| -> Vec<Promotion> {
        let column = |key: &str| Promotion {
            attribute: key.to_owned(),
            level,
            column_type,
            column: key.replace('.', "_"),
        };
        keys.split(' ').map(column).collect()
    };
    let mut promotions = of(
        Level::Resource,
        ColumnType::String,
        "service.namespace service.version host.name host.id cloud.provider cloud.region cloud.availability_zone \
         k8s.cluster.name k8s.namespace.name k8s.pod.name k8s.container.name",
    );
    promotions.extend(of(
        Level::Record,
        ColumnType::Int,
        "fingerprint http.status_code db.query_duration_ms duration_ms bytes_sent bytes_received queue.size",
    ));
    promotions.extend(of(
        Level::Record,
        ColumnType::String,
        "http.method http.url http.user_agent db.system db.name db.operation error.type error.message error.stack user.id \
         session.id request.id cache.key queue.name",
    ));
    promotions.extend(of(Level::Record, ColumnType::Bool, "error cache.hit"));
    FileSettings {
        promotions,
        maps: false,
        ..FileSettings::default()
    }
}

fn encode(requests: &[Vec<u8>], settings: &FileSettings) -> usize {
    let mut encoder = Encoder::new(Table::Logs, settings, Vec::new()).expect("memory takes everything");
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

/// A line of `/proc/self/status` in KiB; 0 where there is none.
fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| {
        line.trim_start_matches(':')
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    })
    .unwrap_or(0)
}

/// Which cases are measured before criterion begins, and how often.
struct Cases {
    only: Option<String>,
    passes: usize,
}

impl Cases {
    fn measure(&self, case: &str, rows: usize, requests: &[Vec<u8>], settings: &FileSettings) {
        if self
            .only
            .as_ref()
            .is_some_and(|only| !case.contains(only.as_str()))
        {
            return;
        }
        // The peak of this process begins anew.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        let before = status("VmRSS");
        let (mut best, mut file, mut peak) = (f64::MAX, 0, 0);
        for pass in 0..self.passes {
            let began = cpu_seconds();
            file = encode(requests, settings);
            best = best.min(cpu_seconds() - began);
            if pass == 0 {
                peak = status("VmHWM").saturating_sub(before);
            }
        }
        let input: usize = requests.iter().map(Vec::len).sum();
        eprintln!(
            "{rows} rows, {case}: {} B/row of OTLP, {:.1} B/row of Parquet, {:.0} rows per CPU second, {:.1} MiB more at the peak",
            input / rows,
            file as f64 / rows as f64,
            rows as f64 / best,
            peak as f64 / 1024.0
        );
    }
}

/// Attributes of which each has a column and a record has few: 60 as the real data had, and 1000.
fn sparse(cases: &Cases) {
    for (columns, percent) in [(60, 15), (1000, 2)] {
        let requests = sparse::logs(sparse::ROWS, columns, percent);
        let column = |number: usize| Promotion {
            attribute: sparse::key(number),
            level: Level::Record,
            column_type: match number % 2 {
                0 => ColumnType::String,
                _ => ColumnType::Int,
            },
            column: format!("column_{number}"),
        };
        for encoder in [PageEncoder::Own, PageEncoder::Arrow] {
            let settings = FileSettings {
                promotions: (0..columns).map(column).collect(),
                maps: false,
                encoder,
                ..FileSettings::default()
            };
            let case = format!("{columns} sparse columns, {encoder:?}");
            cases.measure(&case, sparse::ROWS, &requests, &settings);
        }
    }
}

fn tables(criterion: &mut Criterion) {
    let sizes = std::env::var("SLUICE_PARQUET_ROWS").unwrap_or_else(|_| "10000".to_owned());
    let cases = Cases {
        only: std::env::var("SLUICE_PARQUET_CASE").ok(),
        passes: std::env::var("SLUICE_PARQUET_PASSES").map_or(3, |n| n.parse().expect("a number of passes")),
    };
    sparse(&cases);
    let mut group = criterion.benchmark_group("parquet");
    group.sample_size(10);
    for rows in sizes
        .split(',')
        .map(|rows| rows.parse::<usize>().expect("a number of rows"))
    {
        for per_resource in [1, 100] {
            let requests = logs(rows, per_resource);
            for (schema, settings) in [("shipped", FileSettings::default()), ("flat", flat())] {
                for encoder in [PageEncoder::Own, PageEncoder::Arrow] {
                    let settings = FileSettings {
                        encoder,
                        ..settings.clone()
                    };
                    let case = format!("{per_resource} a resource, {schema}, {encoder:?}");
                    cases.measure(&case, rows, &requests, &settings);
                }
            }
            if cases.only.is_some() {
                continue;
            }
            let began = cpu_seconds();
            black_box(walk(&requests));
            eprintln!(
                "walk alone: {:.0} rows per CPU second",
                rows as f64 / (cpu_seconds() - began)
            );
            group.throughput(Throughput::Elements(rows as u64));
            let shape = format!("{per_resource} a resource");
            for (schema, settings) in [("logs", FileSettings::default()), ("flat logs", flat())] {
                group.bench_function(BenchmarkId::new(format!("{schema}, {shape}"), rows), |bench| {
                    bench.iter(|| encode(&requests, &settings));
                });
            }
            group.bench_function(BenchmarkId::new(format!("walk alone, {shape}"), rows), |bench| {
                bench.iter(|| walk(&requests));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, tables);
criterion_main!(benches);
