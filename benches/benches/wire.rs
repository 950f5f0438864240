//! sluice-wire beside prost, on otlp-wire's benchmark bodies and on gateway-shaped ones.
//!
//! `cargo bench -p sluice-benches --bench wire`; on a busy machine prefer the figures of `examples/wire_cpu.rs`.
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use opentelemetry_proto::tonic::collector::{
    logs::v1::ExportLogsServiceRequest, metrics::v1::ExportMetricsServiceRequest,
    trace::v1::ExportTraceServiceRequest,
};
use prost::Message as _;
use sluice_benches::otlp_wire;
use sluice_loadgen::{Generator, Signal, Spec};
use sluice_wire::{Depth, Kind, Limit, count, split, validate};

fn bodies() -> Vec<(String, Kind, Bytes)> {
    let mut all = Vec::new();
    for (name, kind, signal) in [
        ("metrics", Kind::Metrics, Signal::Metrics),
        ("traces", Kind::Traces, Signal::Traces),
        ("logs", Kind::Logs, Signal::Logs),
    ] {
        all.push((format!("otlp-wire/{name}"), kind, otlp_wire::body(kind)));
        let gateway = Generator::new(Spec::gateway(signal)).next_request().body;
        all.push((format!("gateway/{name}"), kind, gateway));
        let mixed = Generator::new(Spec::mixed(signal)).next_request().body;
        all.push((format!("mixed/{name}"), kind, mixed));
    }
    all
}

fn prost_items(kind: Kind, body: &Bytes) -> usize {
    match kind {
        Kind::Metrics => {
            ExportMetricsServiceRequest::decode(&body[..]).map_or(0, |request| request.resource_metrics.len())
        }
        Kind::Logs => {
            ExportLogsServiceRequest::decode(&body[..]).map_or(0, |request| request.resource_logs.len())
        }
        _ => ExportTraceServiceRequest::decode(&body[..]).map_or(0, |request| request.resource_spans.len()),
    }
}

fn scan(criterion: &mut Criterion) {
    for (name, kind, body) in bodies() {
        let mut group = criterion.benchmark_group(&name);
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function("count", |bench| bench.iter(|| count(kind, black_box(&body))));
        group.bench_function("validate", |bench| {
            bench.iter(|| validate(kind, Depth::Deep, black_box(&body)))
        });
        group.bench_function("prost decode", |bench| {
            bench.iter(|| prost_items(kind, black_box(&body)))
        });
        group.finish();
    }
}

fn cut(criterion: &mut Criterion) {
    for (name, kind, body) in bodies() {
        let mut group = criterion.benchmark_group(&name);
        group.throughput(Throughput::Bytes(body.len() as u64));
        for limit in [Limit::Items(100), Limit::Items(30), Limit::Bytes(8192)] {
            group.bench_with_input(
                BenchmarkId::new("split", format!("{limit:?}")),
                &limit,
                |bench, limit| {
                    bench.iter(|| split(kind, black_box(&body), *limit));
                },
            );
        }
        group.finish();
    }
}

criterion_group!(wire, scan, cut);
criterion_main!(wire);
