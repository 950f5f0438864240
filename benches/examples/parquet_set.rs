//! A set of log tables to run queries on: `cargo run --release -p sluice-benches --example parquet_set -- DIR ROWS SERVICES [COLUMN ...]`.
//!
//! Requests of 1000 records come in the order of their time, each from one of the services, drawn anew for each; a trace has ten
//! records. Files of a million rows, as the exporter would write them; sorted by the columns, if there are any.
#![allow(clippy::expect_used, reason = "an example")]

use std::fs::File;
use std::path::PathBuf;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use sluice_parquet::{Encoder, FileSettings, Table};

/// 2025-01-01T00:00:00Z; records are a millisecond apart.
const START: u64 = 1_735_689_600_000_000_000;
const STEP: u64 = 1_000_000;

const REQUEST: u64 = 1000;
const FILE: u64 = 1_000_000;
const TRACE: u64 = 10;

/// Numbers that look random, of a counter.
fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
    let n = (n ^ n >> 27).wrapping_mul(0x81da_def4_bc2d_d44d);
    n ^ n >> 33
}

fn text(key: &str, text: String) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(text)),
        }),
        ..Default::default()
    }
}

fn request(first: u64, services: u64) -> Vec<u8> {
    let service = mix(first + 1) % services;
    let record = |n: u64| LogRecord {
        time_unix_nano: START + n * STEP,
        severity_number: 9,
        severity_text: "INFO".to_owned(),
        body: text("", format!("request {} took {} ms", n % 1000, mix(n) % 500)).value,
        trace_id: [mix(n / TRACE), mix(n / TRACE + 1)]
            .map(u64::to_be_bytes)
            .concat(),
        span_id: mix(n).to_be_bytes().to_vec(),
        attributes: vec![text("http.route", format!("/api/{}", mix(n) % 50))],
        ..Default::default()
    };
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(Resource {
                attributes: vec![text("service.name", format!("service-{service}"))],
                ..Default::default()
            }),
            scope_logs: vec![ScopeLogs {
                log_records: (first..first + REQUEST).map(record).collect(),
                ..Default::default()
            }],
            ..Default::default()
        }],
    }
    .encode_to_vec()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().expect("DIR ROWS SERVICES [COLUMN ...]"));
    let [rows, services] = [(); 2].map(|()| {
        let number = arguments.next().expect("DIR ROWS SERVICES [COLUMN ...]");
        number.parse::<u64>().expect("a number")
    });
    let settings = FileSettings {
        sort_by: arguments.collect(),
        ..FileSettings::default()
    };
    for start in (0..rows).step_by(FILE as usize) {
        let out = File::create(directory.join(format!("{start:012}.parquet"))).expect("a file");
        let mut encoder = Encoder::new(Table::Logs, &settings, out).expect("a file");
        for first in (start..rows.min(start + FILE)).step_by(REQUEST as usize) {
            encoder.push(&request(first, services)).expect("a file");
        }
        encoder.finish().expect("a file");
    }
}
