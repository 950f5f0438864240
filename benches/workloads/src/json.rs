//! OTLP/JSON to protobuf and back.

use std::hint::black_box;

use sluice_loadgen::{Signal, Spec};
use sluice_otlp::json::{self, JsonOptions};
use sluice_workloads::{kind, request};

use crate::{Entry, Workload, each_request};

pub fn entries(entries: &mut Vec<Entry>) {
    each_request(entries, "json-decode", decode);
    each_request(entries, "json-encode", encode);
}

fn decode(signal: Signal, spec: Spec) -> Workload {
    let (schema, request) = (json::request_schema(kind(signal)), request(spec));
    let mut text = Vec::new();
    json::encode(schema, &request.body, &mut text).expect("loadgen writes valid requests");
    Workload::new(request.items.into(), move || {
        let wire = json::decode(schema, black_box(&text), JsonOptions::default());
        black_box(wire.expect("the text was just written"));
    })
}

fn encode(signal: Signal, spec: Spec) -> Workload {
    let (schema, request) = (json::request_schema(kind(signal)), request(spec));
    Workload::new(request.items.into(), move || {
        let mut text = Vec::new();
        json::encode(schema, black_box(&request.body), &mut text).expect("loadgen writes valid requests");
        black_box(text);
    })
}
