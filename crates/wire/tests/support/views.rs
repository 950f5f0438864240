//! What the views read, compared with what prost decodes.
#![allow(dead_code)]

use opentelemetry_proto::tonic::common::v1 as common;
use opentelemetry_proto::tonic::metrics::v1::{self as metrics, metric::Data, number_data_point};
use sluice_wire::{
    Attributes, Depth, KeyValue, Kind, Metric, MetricKind, Number, Point, Request, Value, range_of, validate,
};

use crate::support::Decoded;

/// On a valid body every view reads what prost holds; on any other nothing panics.
pub fn views_as_prost(kind: Kind, body: &[u8]) {
    let request = Request::new(kind, body);
    if validate(kind, Depth::Deep, body).is_err() {
        read_everything(request);
        return;
    }
    let decoded = Decoded::of(kind, body).expect("valid");
    assert_eq!(request.items(), decoded.items());
    match decoded {
        Decoded::Metrics(decoded) => {
            let mut resources = request.resources();
            for expected in &decoded.resource_metrics {
                let view = resources.next().expect("a resource");
                resource(view, expected.resource.as_ref(), &expected.schema_url);
                let mut scopes = view.scopes();
                for expected in &expected.scope_metrics {
                    let view = scopes.next().expect("a scope");
                    scope(view, expected.scope.as_ref(), &expected.schema_url);
                    let mut views = view.metrics();
                    for expected in &expected.metrics {
                        metric(views.next().expect("a metric"), expected);
                    }
                    assert!(views.next().is_none());
                }
                assert!(scopes.next().is_none());
                assert_eq!(
                    range_of(body, view.framed()).map(|range| &body[range]),
                    Some(view.framed())
                );
            }
            assert!(resources.next().is_none());
        }
        Decoded::Logs(decoded) => {
            let mut resources = request.resources();
            for expected in &decoded.resource_logs {
                let view = resources.next().expect("a resource");
                resource(view, expected.resource.as_ref(), &expected.schema_url);
                let mut scopes = view.scopes();
                for expected in &expected.scope_logs {
                    let view = scopes.next().expect("a scope");
                    scope(view, expected.scope.as_ref(), &expected.schema_url);
                    assert_eq!(view.items(), expected.log_records.len() as u64);
                    let mut records = view.log_records();
                    for expected in &expected.log_records {
                        let view = records.next().expect("a record");
                        assert_eq!(view.time_unix_nano(), expected.time_unix_nano);
                        assert_eq!(view.observed_time_unix_nano(), expected.observed_time_unix_nano);
                        assert_eq!(
                            view.severity(),
                            (expected.severity_number, expected.severity_text.as_str())
                        );
                        assert_eq!(view.severity_number(), expected.severity_number);
                        assert_eq!(view.severity_text(), expected.severity_text);
                        assert_eq!(
                            any(view.body()),
                            expected.body.clone().unwrap_or_default().value.map(same)
                        );
                        attributes(view.attributes(), &expected.attributes);
                        assert_eq!(view.flags(), expected.flags);
                        assert_eq!(view.dropped_attributes_count(), expected.dropped_attributes_count);
                        assert_eq!(view.trace_id().map_or(&[][..], |id| id), expected.trace_id);
                        assert_eq!(view.span_id().map_or(&[][..], |id| id), expected.span_id);
                        assert_eq!(view.event_name(), expected.event_name);
                    }
                    assert!(records.next().is_none());
                }
            }
        }
        Decoded::Traces(decoded) => {
            let mut resources = request.resources();
            for expected in &decoded.resource_spans {
                let view = resources.next().expect("a resource");
                resource(view, expected.resource.as_ref(), &expected.schema_url);
                let mut scopes = view.scopes();
                for expected in &expected.scope_spans {
                    let view = scopes.next().expect("a scope");
                    scope(view, expected.scope.as_ref(), &expected.schema_url);
                    assert_eq!(view.items(), expected.spans.len() as u64);
                    let mut spans = view.spans();
                    for expected in &expected.spans {
                        let view = spans.next().expect("a span");
                        assert_eq!(view.trace_id().map_or(&[][..], |id| id), expected.trace_id);
                        assert_eq!(view.span_id().map_or(&[][..], |id| id), expected.span_id);
                        assert_eq!(
                            view.parent_span_id().map_or(&[][..], |id| id),
                            expected.parent_span_id
                        );
                        assert_eq!(view.trace_state(), expected.trace_state);
                        assert_eq!(view.flags(), expected.flags);
                        assert_eq!(view.name(), expected.name);
                        assert_eq!(view.kind(), expected.kind);
                        assert_eq!(view.start_time_unix_nano(), expected.start_time_unix_nano);
                        assert_eq!(view.end_time_unix_nano(), expected.end_time_unix_nano);
                        attributes(view.attributes(), &expected.attributes);
                        assert_eq!(view.dropped_attributes_count(), expected.dropped_attributes_count);
                        assert_eq!(view.events().count(), expected.events.len());
                        assert_eq!(view.links().count(), expected.links.len());
                        let status = expected.status.clone().unwrap_or_default();
                        assert_eq!(
                            (view.status_code(), view.status_message()),
                            (status.code, status.message.as_str())
                        );
                    }
                    assert!(spans.next().is_none());
                }
            }
        }
        Decoded::Profiles(decoded) => {
            let mut resources = request.resources();
            for expected in &decoded.resource_profiles {
                let view = resources.next().expect("a resource");
                resource(view, expected.resource.as_ref(), &expected.schema_url);
                assert_eq!(view.scopes().count(), expected.scope_profiles.len());
            }
        }
    }
}

fn read_everything(request: Request<'_>) {
    for resource in request.resources() {
        let _ = (
            resource.schema_url(),
            resource.items(),
            resource.resource().attributes().get("k").is_some(),
        );
        for scope in resource.scopes() {
            let _ = (scope.scope().name(), scope.items());
            for metric in scope.metrics() {
                let _ = (metric.name(), metric.kind());
                for point in metric.points() {
                    let _ = (
                        point.value(),
                        point.count(),
                        point.attributes().map(key_value).count(),
                    );
                }
            }
            for record in scope.log_records() {
                let _ = (
                    any(record.body()),
                    record.severity(),
                    record.attributes().map(key_value).count(),
                );
            }
            for span in scope.spans() {
                let _ = (
                    span.trace_id(),
                    span.status_code(),
                    span.attributes().map(key_value).count(),
                );
            }
        }
    }
}

fn resource(
    view: sluice_wire::ResourceItems<'_>,
    expected: Option<&opentelemetry_proto::tonic::resource::v1::Resource>,
    schema_url: &str,
) {
    assert_eq!(view.schema_url(), schema_url);
    assert_eq!(view.resource().is_present(), expected.is_some());
    let expected = expected.cloned().unwrap_or_default();
    attributes(view.resource().attributes(), &expected.attributes);
    assert_eq!(
        view.resource().dropped_attributes_count(),
        expected.dropped_attributes_count
    );
}

fn scope(
    view: sluice_wire::ScopeItems<'_>,
    expected: Option<&common::InstrumentationScope>,
    schema_url: &str,
) {
    assert_eq!(view.schema_url(), schema_url);
    assert_eq!(view.scope().is_present(), expected.is_some());
    let expected = expected.cloned().unwrap_or_default();
    assert_eq!(
        (view.scope().name(), view.scope().version()),
        (expected.name.as_str(), expected.version.as_str())
    );
    attributes(view.scope().attributes(), &expected.attributes);
    assert_eq!(
        view.scope().dropped_attributes_count(),
        expected.dropped_attributes_count
    );
}

fn metric(view: Metric<'_>, expected: &metrics::Metric) {
    assert_eq!(view.name(), expected.name);
    assert_eq!(view.description(), expected.description);
    assert_eq!(view.unit(), expected.unit);
    attributes(view.metadata(), &expected.metadata);
    assert_eq!(view.items(), crate::support::points(expected) as u64);
    assert_eq!(view.points().count(), crate::support::points(expected));
    let Some(data) = view.data() else {
        assert!(expected.data.is_none());
        return;
    };
    assert_eq!(view.kind(), Some(data.kind()));
    let mut points = data.points();
    match expected.data.as_ref().expect("data") {
        Data::Gauge(expected) => {
            assert_eq!(
                (data.kind(), data.temporality(), data.is_monotonic()),
                (MetricKind::Gauge, 0, false)
            );
            expected
                .data_points
                .iter()
                .for_each(|expected| number(points.next().expect("a point"), expected));
        }
        Data::Sum(expected) => {
            assert_eq!(data.kind(), MetricKind::Sum);
            assert_eq!(data.temporality(), expected.aggregation_temporality);
            assert_eq!(data.is_monotonic(), expected.is_monotonic);
            expected
                .data_points
                .iter()
                .for_each(|expected| number(points.next().expect("a point"), expected));
        }
        Data::Histogram(expected) => {
            assert_eq!(
                (data.kind(), data.temporality()),
                (MetricKind::Histogram, expected.aggregation_temporality)
            );
            for expected in &expected.data_points {
                let view = points.next().expect("a point");
                let sum = expected.sum;
                point(
                    view,
                    expected.start_time_unix_nano,
                    expected.time_unix_nano,
                    expected.flags,
                    &expected.attributes,
                );
                assert_eq!(
                    (view.count(), view.sum().map(f64::to_bits)),
                    (Some(expected.count), sum.map(f64::to_bits))
                );
            }
        }
        Data::ExponentialHistogram(expected) => {
            assert_eq!(data.kind(), MetricKind::ExponentialHistogram);
            assert_eq!(data.temporality(), expected.aggregation_temporality);
            for expected in &expected.data_points {
                let view = points.next().expect("a point");
                point(
                    view,
                    expected.start_time_unix_nano,
                    expected.time_unix_nano,
                    expected.flags,
                    &expected.attributes,
                );
                assert_eq!(view.count(), Some(expected.count));
            }
        }
        Data::Summary(expected) => {
            assert_eq!((data.kind(), data.temporality()), (MetricKind::Summary, 0));
            for expected in &expected.data_points {
                let view = points.next().expect("a point");
                point(
                    view,
                    expected.start_time_unix_nano,
                    expected.time_unix_nano,
                    expected.flags,
                    &expected.attributes,
                );
                assert_eq!(view.count(), Some(expected.count));
                assert_eq!(view.sum().unwrap_or_default().to_bits(), expected.sum.to_bits());
            }
        }
    }
    assert!(points.next().is_none());
}

fn number(view: Point<'_>, expected: &metrics::NumberDataPoint) {
    point(
        view,
        expected.start_time_unix_nano,
        expected.time_unix_nano,
        expected.flags,
        &expected.attributes,
    );
    match (view.value(), &expected.value) {
        (None, None) => {}
        (Some(Number::Int(found)), Some(number_data_point::Value::AsInt(expected))) => {
            assert_eq!(found, *expected)
        }
        (Some(Number::Double(found)), Some(number_data_point::Value::AsDouble(expected))) => {
            assert_eq!(found.to_bits(), expected.to_bits());
        }
        other => panic!("{other:?}"),
    }
}

fn point(view: Point<'_>, start: u64, time: u64, flags: u32, expected: &[common::KeyValue]) {
    assert_eq!(
        (view.start_time_unix_nano(), view.time_unix_nano(), view.flags()),
        (start, time, flags)
    );
    attributes(view.attributes(), expected);
}

fn attributes(view: Attributes<'_>, expected: &[common::KeyValue]) {
    let found: Vec<_> = view.clone().map(key_value).collect();
    let expected: Vec<_> = expected
        .iter()
        .map(|pair| {
            (
                pair.key.clone(),
                pair.value.clone().and_then(|any| any.value).map(same),
            )
        })
        .collect();
    assert_eq!(found, expected);
    if let Some((key, value)) = expected.first() {
        assert_eq!(any(view.get(key)), *value);
    }
}

fn key_value(view: KeyValue<'_>) -> (String, Option<String>) {
    (view.key().to_owned(), any(view.value()))
}

/// A value written out, so that NaN equals itself.
fn any(value: Option<Value<'_>>) -> Option<String> {
    Some(match value? {
        Value::String(text) => format!("s{text}"),
        Value::Bool(value) => format!("b{value}"),
        Value::Int(value) => format!("i{value}"),
        Value::Double(value) => format!("d{}", value.to_bits()),
        Value::Array(array) => format!("a{}", list(array.values().map(any))),
        Value::Map(map) => format!("m{}", pairs(map.pairs().map(key_value))),
        Value::Bytes(bytes) => format!("y{bytes:?}"),
        Value::StringIndex(index) => format!("x{index}"),
        // Only where prost refuses the message.
        Value::InvalidText(bytes) => format!("u{bytes:?}"),
        other => panic!("{other:?}"),
    })
}

/// Each with its length: quoting would double its escapes with every level.
fn list(values: impl Iterator<Item = Option<String>>) -> String {
    values
        .map(|value| value.map_or_else(|| "-".to_owned(), |text| format!("{}:{text}", text.len())))
        .collect()
}

fn pairs(pairs: impl Iterator<Item = (String, Option<String>)>) -> String {
    list(pairs.flat_map(|(key, value)| [Some(key), value]))
}

fn same(value: common::any_value::Value) -> String {
    use common::any_value::Value;
    match value {
        Value::StringValue(text) => format!("s{text}"),
        Value::BoolValue(value) => format!("b{value}"),
        Value::IntValue(value) => format!("i{value}"),
        Value::DoubleValue(value) => format!("d{}", value.to_bits()),
        Value::ArrayValue(array) => {
            let values = array.values.into_iter().map(|any| any.value.map(same));
            format!("a{}", list(values))
        }
        Value::KvlistValue(map) => {
            let entries = map.values.into_iter();
            let entries = entries.map(|pair| (pair.key, pair.value.and_then(|any| any.value).map(same)));
            format!("m{}", pairs(entries))
        }
        Value::BytesValue(bytes) => format!("y{bytes:?}"),
        Value::StringValueStrindex(index) => format!("x{index}"),
    }
}
