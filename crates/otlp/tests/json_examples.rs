//! The examples of opentelemetry-proto through the JSON codec, beside that crate's own serde decoding.

use opentelemetry_proto::tonic::collector::{
    logs::v1::ExportLogsServiceRequest, metrics::v1::ExportMetricsServiceRequest,
    trace::v1::ExportTraceServiceRequest,
};
use prost::Message;
use serde_json::Value;
use sluice_otlp::json::{self, JsonOptions};
use sluice_wire::Kind;

const STRICT: JsonOptions = JsonOptions {
    strict: true,
    limit_bytes: usize::MAX,
};

fn fixture(name: &str) -> Vec<u8> {
    let path = format!(
        "{}/../../tests/fixtures/otlp-examples/{name}",
        env!("CARGO_MANIFEST_DIR")
    );
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Removes what says nothing in proto3 JSON, and gives numbers and ids one form each.
fn normalise(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, value| {
                normalise(value);
                let is_default = match value {
                    Value::String(text) => text == "0" || text.is_empty(),
                    Value::Number(number) => number.as_f64() == Some(0.0),
                    Value::Bool(value) => !*value,
                    Value::Array(elements) => elements.is_empty(),
                    _ => false,
                };
                // Members of a oneof and `optional` fields say something even when zero.
                let has_presence =
                    name.ends_with("Value") || ["asInt", "asDouble", "min", "max"].contains(&name.as_str());
                has_presence || !is_default
            });
            for name in ["traceId", "spanId", "parentSpanId"] {
                if let Some(Value::String(id)) = members.get_mut(name) {
                    id.make_ascii_lowercase();
                }
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(normalise),
        Value::Number(number) => {
            if let Some(whole) = number.as_f64().filter(|value| value.fract() == 0.0) {
                *value = Value::from(whole);
            }
        }
        _ => {}
    }
}

fn round_trip(kind: Kind, name: &str) -> Vec<u8> {
    let text = fixture(name);
    let schema = json::request_schema(kind);
    let wire = json::decode(schema, &text, STRICT).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut back = Vec::new();
    json::encode(schema, &wire, &mut back).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut original: Value = serde_json::from_slice(&text).expect("the fixture is JSON");
    let mut returned: Value = serde_json::from_slice(&back).expect("the output is JSON");
    normalise(&mut original);
    normalise(&mut returned);
    assert_eq!(returned, original, "{name}");
    assert!(
        wire == json::decode(schema, &back, STRICT).expect("the output is OTLP/JSON"),
        "{name}"
    );
    wire
}

/// Scenario: every example goes JSON -> protobuf -> JSON, reading strictly.
/// Guarantees: nothing is lost or changed but the forms of numbers and ids; prost decodes the protobuf to what
/// opentelemetry-proto's serde makes of the same text.
#[test]
fn examples_round_trip() {
    let logs = round_trip(Kind::Logs, "logs.json");
    let expected: ExportLogsServiceRequest =
        serde_json::from_slice(&fixture("logs.json")).expect("serde reads it");
    assert_eq!(
        ExportLogsServiceRequest::decode(&logs[..]).expect("prost reads it"),
        expected
    );

    let events = round_trip(Kind::Logs, "events.json");
    let expected: ExportLogsServiceRequest =
        serde_json::from_slice(&fixture("events.json")).expect("serde reads it");
    assert_eq!(
        ExportLogsServiceRequest::decode(&events[..]).expect("prost reads it"),
        expected
    );

    let metrics = round_trip(Kind::Metrics, "metrics.json");
    let expected: ExportMetricsServiceRequest =
        serde_json::from_slice(&fixture("metrics.json")).expect("serde reads it");
    assert_eq!(
        ExportMetricsServiceRequest::decode(&metrics[..]).expect("prost reads it"),
        expected
    );

    let traces = round_trip(Kind::Traces, "trace.json");
    let expected: ExportTraceServiceRequest =
        serde_json::from_slice(&fixture("trace.json")).expect("serde reads it");
    assert_eq!(
        ExportTraceServiceRequest::decode(&traces[..]).expect("prost reads it"),
        expected
    );
}
