//! OTLP bytes to a Parquet file of the table `logs`, zstd 1, one thread, on the 40-column data set in both shapes, with its maps
//! of attributes and as a flat table, and on sparse data of 60 and 1000 columns, by both page encoders.
//!
//! `cargo bench -p sluice-benches --bench parquet`; throughput is in rows, wall clock: on a busy machine compare with the walk
//! alone, which runs beside it. `SLUICE_PARQUET_ROWS=10000,25000,50000,100000,200000,400000` chooses the sizes. Bytes a row and
//! rows per CPU second of the best of three passes are printed first. `SLUICE_PARQUET_CASE="1 a resource, flat, Own"` prints only what
//! contains these words, as often as `SLUICE_PARQUET_PASSES` says, and ends: for profilers. `benches/parquet.sh` makes a table of all
//! of it.
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

/// Encoders, in the order of the table.
const ENCODERS: [PageEncoder; 2] = [PageEncoder::Own, PageEncoder::Arrow];

impl Cases {
    fn has(&self, case: &str) -> bool {
        self.only.as_ref().is_none_or(|only| case.contains(only.as_str()))
    }

    fn measure(&self, case: &str, rows: usize, requests: &[Vec<u8>], settings: &FileSettings) {
        if !self.has(case) {
            return;
        }
        let (mut best, mut file) = (f64::MAX, 0);
        for _ in 0..self.passes {
            let began = cpu_seconds();
            file = encode(requests, settings);
            best = best.min(cpu_seconds() - began);
        }
        let input: usize = requests.iter().map(Vec::len).sum();
        let (from, to) = (input / rows, file as f64 / rows as f64);
        let speed = rows as f64 / best;
        if in_table() {
            // Of this process, which has done nothing else: what it is itself, and the file, are in it.
            let memory = (status("VmHWM") * 1024).saturating_sub(input as u64) >> 20;
            eprintln!("| {rows} | {case} | {from} | {to:.1} | {speed:.0} | {memory} |");
            return;
        }
        eprintln!(
            "{rows} rows, {case}: {from} B/row of OTLP, {to:.1} B/row of Parquet, {speed:.0} rows per CPU second"
        );
    }
}

/// Whether what is measured is a line of a table.
fn in_table() -> bool {
    std::env::var_os("SLUICE_PARQUET_LINE").is_some()
}

/// Sets of attributes of which each has a column and a record has few, as the number of columns and how many percent of them: 60 as
/// the real data had, and 1000.
const SPARSE: [(usize, u64); 2] = [(60, 15), (1000, 2)];

fn sparse_case(columns: usize, encoder: PageEncoder) -> String {
    format!("{columns} sparse columns, {encoder:?}")
}

fn sparse(cases: &Cases) {
    for (columns, percent) in SPARSE {
        if !ENCODERS
            .iter()
            .any(|encoder| cases.has(&sparse_case(columns, *encoder)))
        {
            continue;
        }
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
        for encoder in ENCODERS {
            let settings = FileSettings {
                promotions: (0..columns).map(column).collect(),
                maps: false,
                encoder,
                ..FileSettings::default()
            };
            cases.measure(&sparse_case(columns, encoder), sparse::ROWS, &requests, &settings);
        }
    }
}

/// Records of a resource.
const SHAPES: [usize; 2] = [1, 100];

const SCHEMAS: [&str; 2] = ["shipped", "flat"];

fn case(per_resource: usize, schema: &str, encoder: PageEncoder) -> String {
    format!("{per_resource} a resource, {schema}, {encoder:?}")
}

/// Every case in a process of its own, so that memory is that of the case. Flat tables stay in a directory, for other writers.
fn table(sizes: &[usize], directory: &str) {
    eprintln!(
        "| rows | case | OTLP, B/row | Parquet, B/row | rows per CPU second | peak beyond the input, MiB |"
    );
    eprintln!("|---|---|---|---|---|---|");
    let line = |rows: usize, case: &str| {
        let own = std::env::current_exe().expect("it runs");
        let status = std::process::Command::new(own)
            .args(["--bench", "none"])
            .env_remove("SLUICE_PARQUET_TABLE")
            .env("SLUICE_PARQUET_LINE", directory)
            .env("SLUICE_PARQUET_ROWS", rows.to_string())
            .env("SLUICE_PARQUET_CASE", case)
            .stdout(std::process::Stdio::null())
            .status();
        assert!(status.expect("it runs").success(), "{case}");
    };
    for (columns, _) in SPARSE {
        for encoder in ENCODERS {
            line(sparse::ROWS, &sparse_case(columns, encoder));
        }
    }
    for per_resource in SHAPES {
        for schema in SCHEMAS {
            for encoder in ENCODERS {
                for rows in sizes {
                    line(*rows, &case(per_resource, schema, encoder));
                }
            }
        }
    }
}

/// Keeps the file of a line of the table that another writer is to write again.
fn keep(directory: &str, rows: usize, per_resource: usize, requests: &[Vec<u8>]) {
    let path = std::path::Path::new(directory).join(format!("{per_resource}-{rows}.parquet"));
    let out = std::fs::File::create(path).expect("the directory is there");
    let mut encoder = Encoder::new(Table::Logs, &flat(), out).expect("a file");
    for request in requests {
        encoder.push(request).expect("a file");
    }
    encoder.finish().expect("a file");
}

fn tables(criterion: &mut Criterion) {
    let sizes = std::env::var("SLUICE_PARQUET_ROWS").unwrap_or_else(|_| "10000".to_owned());
    let sizes: Vec<usize> = sizes
        .split(',')
        .map(|rows| rows.parse().expect("a number of rows"))
        .collect();
    if let Ok(directory) = std::env::var("SLUICE_PARQUET_TABLE") {
        return table(&sizes, &directory);
    }
    let cases = Cases {
        only: std::env::var("SLUICE_PARQUET_CASE").ok(),
        passes: std::env::var("SLUICE_PARQUET_PASSES").map_or(3, |n| n.parse().expect("a number of passes")),
    };
    sparse(&cases);
    let mut group = criterion.benchmark_group("parquet");
    group.sample_size(10);
    for rows in sizes {
        for per_resource in SHAPES {
            let all = SCHEMAS
                .iter()
                .flat_map(|schema| ENCODERS.map(|encoder| case(per_resource, schema, encoder)));
            let wanted: Vec<String> = all.filter(|case| cases.has(case)).collect();
            if wanted.is_empty() {
                continue;
            }
            let requests = logs(rows, per_resource);
            for (schema, settings) in SCHEMAS.into_iter().zip([FileSettings::default(), flat()]) {
                for encoder in ENCODERS {
                    let settings = FileSettings {
                        encoder,
                        ..settings.clone()
                    };
                    cases.measure(&case(per_resource, schema, encoder), rows, &requests, &settings);
                }
            }
            if let Ok(directory) = std::env::var("SLUICE_PARQUET_LINE")
                && wanted.contains(&case(per_resource, "flat", PageEncoder::Own))
            {
                keep(&directory, rows, per_resource, &requests);
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
