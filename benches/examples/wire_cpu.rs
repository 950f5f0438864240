//! CPU time of the wire passes, for machines too busy for wall clocks: `cargo run --profile bench -p sluice-benches
//! --example wire_cpu [FILTER]`. Each figure is the median of 15 rounds, read from `/proc/thread-self/schedstat`.
#![allow(clippy::print_stdout, reason = "its output is the figures")]

use std::hint::black_box;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::{
    logs::v1::ExportLogsServiceRequest, metrics::v1::ExportMetricsServiceRequest,
    trace::v1::ExportTraceServiceRequest,
};
use prost::Message as _;
use sluice_benches::otlp_wire;
use sluice_loadgen::{Generator, Signal, Spec};
use sluice_wire::{Depth, Kind, Limit, Request, count, split, validate};

/// CPU nanoseconds of this thread.
fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace()
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or(0)
}

/// Median CPU nanoseconds of one call.
fn measure(mut call: impl FnMut()) -> f64 {
    const ROUND_NANOS: u64 = 8_000_000;
    let mut rounds = 1u64;
    loop {
        let start = cpu_nanos();
        (0..rounds).for_each(|_| call());
        if cpu_nanos() - start >= ROUND_NANOS {
            break;
        }
        rounds *= 2;
    }
    let mut figures: Vec<f64> = (0..15)
        .map(|_| {
            let start = cpu_nanos();
            (0..rounds).for_each(|_| call());
            (cpu_nanos() - start) as f64 / rounds as f64
        })
        .collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let report = |name: String, bytes: usize, call: &mut dyn FnMut()| {
        if name.contains(&filter) {
            let nanos = measure(call);
            println!("{name:44} {nanos:12.1} CPU-ns {:8.2} GB/s", bytes as f64 / nanos);
        }
    };
    for (label, kind, signal) in [
        ("metrics", Kind::Metrics, Signal::Metrics),
        ("traces", Kind::Traces, Signal::Traces),
        ("logs", Kind::Logs, Signal::Logs),
    ] {
        for (source, body) in [
            ("otlp-wire", otlp_wire::body(kind)),
            (
                "gateway",
                Generator::new(Spec::gateway(signal)).next_request().body,
            ),
            ("mixed", Generator::new(Spec::mixed(signal)).next_request().body),
        ] {
            let body: Bytes = body;
            let len = body.len();
            let name = |what: &str| format!("{source}/{label}/{what}");
            report(name("count"), len, &mut || {
                let _ = black_box(count(kind, black_box(&body)));
            });
            report(name("validate"), len, &mut || {
                let _ = black_box(validate(kind, Depth::Deep, black_box(&body)));
            });
            report(name("iterate resources"), len, &mut || {
                for resource in Request::new(kind, black_box(&body)).resources() {
                    black_box(resource.raw());
                }
            });
            report(name("re-framed copy per resource"), len, &mut || {
                for resource in Request::new(kind, black_box(&body)).resources() {
                    black_box(resource.framed().to_vec());
                }
            });
            report(name("memcpy"), len, &mut || {
                black_box(black_box(&body).to_vec());
            });
            report(name("split 30 items"), len, &mut || {
                let _ = black_box(split(kind, black_box(&body), Limit::Items(30)));
            });
            report(name("split 30 items + copy"), len, &mut || {
                for piece in split(kind, black_box(&body), Limit::Items(30)).unwrap_or_default() {
                    black_box(piece.chain.to_bytes());
                }
            });
            report(name("prost decode"), len, &mut || match kind {
                Kind::Metrics => drop(black_box(ExportMetricsServiceRequest::decode(&body[..]))),
                Kind::Logs => drop(black_box(ExportLogsServiceRequest::decode(&body[..]))),
                _ => drop(black_box(ExportTraceServiceRequest::decode(&body[..]))),
            });
        }
    }
}
