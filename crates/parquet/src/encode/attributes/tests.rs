//! Attributes as they are written, long ones among them.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;

use crate::encode::tests::{attribute, attributes_of, encoded, logs, value};
use crate::encode::{FileSettings, Table};

/// Scenario: a span and a log record, each with its resource, whose attributes have fields of less than 128 bytes, of more, and of less again.
/// Guarantees: all of them come back in their order.
#[test]
fn long_attributes_are_among_short_ones() {
    let text = |length| value(Any::StringValue("x".repeat(length)));
    let attributes: Vec<KeyValue> = [10, 118, 119, 5000, 20]
        .map(|length| attribute(&format!("{length}"), text(length)))
        .into();
    let record = LogRecord {
        attributes: attributes.clone(),
        ..Default::default()
    };
    let span = Span {
        attributes: attributes.clone(),
        ..Default::default()
    };
    let spans = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource {
                attributes: attributes.clone(),
                ..Default::default()
            }),
            scope_spans: vec![ScopeSpans {
                spans: vec![span],
                ..Default::default()
            }],
            ..Default::default()
        }],
    };
    let logs = logs(vec![record], attributes.clone());
    for (table, request) in [(Table::Logs, logs), (Table::Spans, spans.encode_to_vec())] {
        let (batches, _) = encoded(table, &FileSettings::default(), &[request]);
        for (name, types) in [
            ("attributes", "attr_types"),
            ("resource_attributes", "resource_attr_types"),
        ] {
            assert_eq!(
                attributes_of(&batches[0], name, types, 0),
                attributes,
                "{table:?}"
            );
        }
    }
}
