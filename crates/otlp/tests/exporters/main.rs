//! The OTLP exporters against scripted servers, one test per statement of the OTLP specification
//! about clients (C1 to C9 in the project's notes), and against tonic.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../../client/tests/support/mod.rs"]
mod support;

mod answers;
mod grpc;
mod http;
mod tonic_server;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use sluice_payload::{Signal, WireFormat};
use sluice_pipeline::{Batch, Exporter, Part, Verdict};

/// One span with attributes, `n` in its id.
fn trace(n: u8) -> ExportTraceServiceRequest {
    let attribute = |key: &str, value: String| KeyValue {
        key: key.into(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(value)),
        }),
        ..Default::default()
    };
    let span = Span {
        trace_id: vec![n; 16],
        span_id: vec![n; 8],
        name: format!("span {n}"),
        attributes: (0..20)
            .map(|k| attribute(&format!("key.{k}"), format!("value {n} {k}")))
            .collect(),
        ..Default::default()
    };
    let scope = ScopeSpans {
        spans: vec![span],
        ..Default::default()
    };
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            scope_spans: vec![scope],
            ..Default::default()
        }],
    }
}

/// `count` spans, one to a part, and the tree they are together.
fn traces(count: u8) -> (Batch, ExportTraceServiceRequest) {
    let requests: Vec<_> = (1..=count).map(trace).collect();
    let parts = requests
        .iter()
        .map(|request| part(request.encode_to_vec(), 1))
        .collect();
    let tree = ExportTraceServiceRequest {
        resource_spans: requests
            .into_iter()
            .flat_map(|request| request.resource_spans)
            .collect(),
    };
    (
        Batch {
            signal: Signal::Traces,
            parts,
        },
        tree,
    )
}

/// Log records whose bodies are `len` bytes together.
fn logs(len: usize) -> Batch {
    let body = AnyValue {
        value: Some(Value::StringValue("x".repeat(len))),
    };
    let record = LogRecord {
        body: Some(body),
        ..Default::default()
    };
    let scope_logs = vec![ScopeLogs {
        log_records: vec![record],
        ..Default::default()
    }];
    let request = ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            scope_logs,
            ..Default::default()
        }],
    };
    Batch {
        signal: Signal::Logs,
        parts: vec![part(request.encode_to_vec(), 1)],
    }
}

fn part(body: Vec<u8>, items: u64) -> Part {
    Part {
        body: Bytes::from(body),
        items,
        wire_format: WireFormat::Otlp,
        frame: None,
    }
}

fn delivered() -> Verdict {
    Verdict::Delivered {
        rejected: 0,
        message: None,
    }
}

/// The words of a verdict.
fn reason(verdict: &Verdict) -> &str {
    match verdict {
        Verdict::Delivered { message, .. } => message.as_deref().unwrap_or_default(),
        Verdict::InPart { refused, .. } => refused.first().map_or("", |one| &one.reason),
        Verdict::Retry { reason, .. }
        | Verdict::TooLarge { reason }
        | Verdict::PayloadFault { reason }
        | Verdict::EndpointFault { reason }
        | Verdict::Exhausted { reason } => reason,
    }
}

async fn export(exporter: &impl Exporter, batch: &Batch) -> Verdict {
    exporter.export(batch).await
}
