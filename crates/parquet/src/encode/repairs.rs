//! Values that no reader would take, or no thread could write: what is done to them, and that it is counted.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, metric,
};
use prost::Message;
use prost::encoding::encode_varint;

use super::json::MAX_LEVELS;
use super::tests::{encoded, logs};
use super::*;

/// A field with these bytes, and before them its key and their length.
pub(crate) fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    encode_varint(bytes.len() as u64, &mut field);
    field.extend_from_slice(bytes);
    field
}

/// The `AnyValue` of so many lists in each other. No text follows what is inside, so it is written from its end.
pub(crate) fn nested_lists(levels: u32) -> Vec<u8> {
    let mut reversed = Vec::new();
    for _ in 0..levels {
        for number in [1, 5] {
            let mut head = vec![number << 3 | 2];
            encode_varint(reversed.len() as u64, &mut head);
            reversed.extend(head.iter().rev());
        }
    }
    reversed.reverse();
    reversed
}

/// What as many of them read as as are written.
pub(crate) fn most_nested() -> String {
    let levels = MAX_LEVELS as usize;
    format!("{}null{}", "[".repeat(levels), "]".repeat(levels))
}

/// Replaces each `?????` by bytes that are not UTF-8.
fn spoil(mut request: Vec<u8>) -> Vec<u8> {
    while let Some(at) = request.windows(5).position(|window| window == b"?????") {
        request[at..at + 5].copy_from_slice(b"ab\xff\xfec");
    }
    request
}

const MENDED: &str = "ab\u{fffd}\u{fffd}c";

/// Scenario: bodies and attributes of lists in each other: as many as are written, one more, and a hundred thousand.
/// Guarantees: the thread's stack is enough; what is below the limit is null, and counted; all else is as it was.
#[test]
fn deep_nesting_ends_in_null() {
    for (levels, repaired) in [(MAX_LEVELS, 0), (MAX_LEVELS + 1, 2), (100_000, 2)] {
        let value = nested_lists(levels);
        let mut pair = field(1, b"key");
        pair.extend(field(2, &value));
        let mut record = field(5, &value);
        record.extend(field(6, &pair));
        let request = field(1, &field(2, &field(2, &record)));
        let (batches, repairs) = encoded(Table::Logs, &FileSettings::default(), &[request]);
        assert_eq!(repairs.deep_values, repaired, "{levels}");
        let body = batches[0].column_by_name("body").unwrap().as_string::<i32>();
        assert_eq!(body.value(0), most_nested());
        let entries = batches[0].column_by_name("attributes").unwrap().as_map().value(0);
        assert_eq!(entries.column(1).as_string::<i32>().value(0), most_nested());
    }
}

/// Scenario: texts and keys that are not UTF-8 within lists and maps, of an attribute and of a body.
/// Guarantees: each is mended, not lost, and each is counted, in the body too.
#[test]
fn texts_within_values_are_mended() {
    let text = || AnyValue {
        value: Some(Any::StringValue("?????".to_owned())),
    };
    let list = AnyValue {
        value: Some(Any::ArrayValue(ArrayValue {
            values: vec![text(), AnyValue::default(), text()],
        })),
    };
    let pair = |key: &str, value| KeyValue {
        key: key.to_owned(),
        value: Some(value),
        ..Default::default()
    };
    let map = AnyValue {
        value: Some(Any::KvlistValue(KeyValueList {
            values: vec![pair("?????", list), pair("$?????", text())],
        })),
    };
    let record = LogRecord {
        attributes: vec![pair("key", map.clone())],
        body: Some(map),
        ..Default::default()
    };
    let request = spoil(logs(vec![record], Vec::new()));
    let (batches, repairs) = encoded(Table::Logs, &FileSettings::default(), &[request]);
    let written = format!("{{\"{MENDED}\":[\"{MENDED}\",null,\"{MENDED}\"],\"$${MENDED}\":\"{MENDED}\"}}");
    let body = batches[0].column_by_name("body").unwrap().as_string::<i32>();
    assert_eq!(body.value(0), written);
    let entries = batches[0].column_by_name("attributes").unwrap().as_map().value(0);
    assert_eq!(entries.column(1).as_string::<i32>().value(0), written);
    assert_eq!(repairs.invalid_texts, 10);
}

/// Scenario: a text that is not UTF-8 in a value whose message comes in two parts, of an attribute and of a body.
/// Guarantees: it is mended and counted.
#[test]
fn texts_of_messages_in_parts_are_mended() {
    let value = [field(2, &[]), field(2, &field(1, b"?????"))].concat();
    let pair = [field(1, b"key"), value].concat();
    let body = [field(5, &[]), field(5, &field(1, b"?????"))].concat();
    let record = [body, field(6, &pair)].concat();
    let request = spoil(field(1, &field(2, &field(2, &record))));
    let (batches, repairs) = encoded(Table::Logs, &FileSettings::default(), &[request]);
    let body = batches[0].column_by_name("body").unwrap().as_string::<i32>();
    assert_eq!(body.value(0), MENDED);
    let entries = batches[0].column_by_name("attributes").unwrap().as_map().value(0);
    assert_eq!(entries.column(1).as_string::<i32>().value(0), MENDED);
    assert_eq!(repairs.invalid_texts, 2);
}

/// Scenario: a metric whose name, description and unit are not UTF-8.
/// Guarantees: they are mended and counted, once for all of its points.
#[test]
fn texts_of_metrics_are_mended() {
    let text = || "?????".to_owned();
    let metric = Metric {
        name: text(),
        description: text(),
        unit: text(),
        data: Some(metric::Data::Gauge(Gauge {
            data_points: vec![NumberDataPoint::default(); 2],
        })),
        ..Default::default()
    };
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            scope_metrics: vec![ScopeMetrics {
                metrics: vec![metric],
                ..Default::default()
            }],
            ..Default::default()
        }],
    };
    let request = spoil(request.encode_to_vec());
    let (batches, repairs) = encoded(Table::MetricsNumber, &FileSettings::default(), &[request]);
    for name in ["metric_name", "metric_description", "metric_unit"] {
        let column = batches[0].column_by_name(name).unwrap().as_string::<i32>();
        assert_eq!((column.value(0), column.len()), (MENDED, 2), "{name}");
    }
    assert_eq!(repairs.invalid_texts, 3);
}
