//! OTLP/JSON to protobuf and back, beside opentelemetry-proto's serde with prost.
//!
//! `cargo bench -p sluice-benches --bench json`; throughput is in bytes of JSON.
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use opentelemetry_proto::tonic::collector::{
    logs::v1::ExportLogsServiceRequest, metrics::v1::ExportMetricsServiceRequest,
    trace::v1::ExportTraceServiceRequest,
};
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_loadgen::{Generator, Signal, Spec};
use sluice_otlp::json::{self, JsonOptions};
use sluice_wire::Kind;

/// JSON -> object -> protobuf.
fn serde_decode<M: Message + DeserializeOwned>(text: &[u8]) -> Vec<u8> {
    serde_json::from_slice::<M>(text)
        .expect("opentelemetry-proto reads it")
        .encode_to_vec()
}

/// Protobuf -> object -> JSON.
fn serde_encode<M: Message + Default + Serialize>(wire: &[u8]) -> Vec<u8> {
    let message = M::decode(wire).expect("prost reads it");
    serde_json::to_vec(&message).expect("opentelemetry-proto writes it")
}

fn codec<M: Message + Default + Serialize + DeserializeOwned>(
    criterion: &mut Criterion,
    name: &str,
    kind: Kind,
    body: &[u8],
) {
    let schema = json::request_schema(kind);
    let mut text = Vec::new();
    json::encode(schema, body, &mut text).expect("loadgen writes valid requests");
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("decode", |bench| {
        bench.iter(|| json::decode(schema, black_box(&text), JsonOptions::default()));
    });
    group.bench_function("serde and prost decode", |bench| {
        bench.iter(|| serde_decode::<M>(black_box(&text)))
    });
    let mut out = Vec::with_capacity(text.len());
    group.bench_function("encode", |bench| {
        bench.iter(|| {
            out.clear();
            json::encode(schema, black_box(body), &mut out)
        });
    });
    group.bench_function("prost and serde encode", |bench| {
        bench.iter(|| serde_encode::<M>(black_box(body)))
    });
    group.finish();
}

fn signals(criterion: &mut Criterion) {
    for (shape, spec) in [
        ("gateway", Spec::gateway as fn(Signal) -> Spec),
        ("mixed", Spec::mixed),
    ] {
        let body = |signal| Generator::new(spec(signal)).next_request().body;
        let (metrics, logs, traces) = (body(Signal::Metrics), body(Signal::Logs), body(Signal::Traces));
        codec::<ExportMetricsServiceRequest>(criterion, &format!("{shape}/metrics"), Kind::Metrics, &metrics);
        codec::<ExportLogsServiceRequest>(criterion, &format!("{shape}/logs"), Kind::Logs, &logs);
        codec::<ExportTraceServiceRequest>(criterion, &format!("{shape}/traces"), Kind::Traces, &traces);
    }
}

criterion_group!(json_codec, signals);
criterion_main!(json_codec);
