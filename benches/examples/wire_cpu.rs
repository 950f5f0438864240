//! Time of the wire passes on machines that are busy with other work: `cargo run --release -p sluice-benches
//! --example wire_cpu [FILTER]`. Each figure is the first decile of 300 rounds of 0.2 ms.
#![allow(clippy::print_stdout, reason = "its output is the figures")]

use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::{
    logs::v1::ExportLogsServiceRequest, metrics::v1::ExportMetricsServiceRequest,
    trace::v1::ExportTraceServiceRequest,
};
use prost::Message as _;
use sluice_benches::otlp_wire;
use sluice_loadgen::{Generator, Signal, Spec};
use sluice_wire::{Depth, Kind, Limit, Request, count, split, validate};

/// Nanoseconds of one call: the first decile of many short rounds.
///
/// The CPU times the kernel keeps of a thread move in steps of a tick (4 ms), too coarse for rounds short enough to lie between
/// two interruptions; of short rounds on the wall clock, the fastest tenth are those nobody has interrupted.
fn measure(mut call: impl FnMut()) -> f64 {
    const ROUND_NANOS: u128 = 200_000;
    const ROUNDS: usize = 300;
    let mut calls = 1u64;
    let mut round = |calls: u64| {
        let start = Instant::now();
        (0..calls).for_each(|_| call());
        start.elapsed().as_nanos()
    };
    while round(calls) < ROUND_NANOS {
        calls *= 2;
    }
    let mut figures: Vec<f64> = (0..ROUNDS).map(|_| round(calls) as f64 / calls as f64).collect();
    figures.sort_by(f64::total_cmp);
    figures[ROUNDS / 10]
}

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let report = |name: String, bytes: usize, call: &mut dyn FnMut()| {
        if name.contains(&filter) {
            let nanos = measure(call);
            println!("{name:44} {nanos:12.1} ns {:8.2} GB/s", bytes as f64 / nanos);
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
            report(name("split 8 KiB + copy"), len, &mut || {
                for piece in split(kind, black_box(&body), Limit::Bytes(8192)).unwrap_or_default() {
                    black_box(piece.chain.to_bytes());
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
