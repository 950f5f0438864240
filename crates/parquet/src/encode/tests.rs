use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use prost::Message;
use sluice_loadgen::{Generator, Signal, Spec};

use super::*;

pub(super) fn encoded(
    table: Table,
    settings: &FileSettings,
    requests: &[Vec<u8>],
) -> (Vec<RecordBatch>, Repairs) {
    let mut encoder = Encoder::new(table, settings, Vec::new()).unwrap();
    for request in requests {
        encoder.push(request).unwrap();
    }
    let (file, repairs) = encoder.finish().unwrap();
    (read(file), repairs)
}

fn read(file: Vec<u8>) -> Vec<RecordBatch> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(file)).unwrap();
    builder.build().unwrap().map(Result::unwrap).collect()
}

pub(super) fn value(value: Any) -> Option<AnyValue> {
    Some(AnyValue { value: Some(value) })
}

pub(super) fn attribute(key: &str, value: Option<AnyValue>) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value,
        ..Default::default()
    }
}

/// A value of every type, and of those within others.
pub(super) fn every_type() -> Vec<KeyValue> {
    let array = Any::ArrayValue(ArrayValue {
        values: vec![
            AnyValue {
                value: Some(Any::IntValue(1)),
            },
            AnyValue {
                value: Some(Any::DoubleValue(1.0)),
            },
            AnyValue {
                value: Some(Any::DoubleValue(f64::INFINITY)),
            },
            AnyValue {
                value: Some(Any::BytesValue(vec![0, 255])),
            },
            AnyValue { value: None },
            AnyValue {
                value: Some(Any::StringValue("line\n\"quoted\" \\ \u{1} é".to_owned())),
            },
        ],
    });
    let map = Any::KvlistValue(KeyValueList {
        values: vec![
            attribute("$bytes", value(Any::StringValue("no bytes".to_owned()))),
            attribute("list", value(array.clone())),
            attribute("", value(Any::BoolValue(false))),
        ],
    });
    vec![
        attribute("string", value(Any::StringValue("text".to_owned()))),
        attribute("empty string", value(Any::StringValue(String::new()))),
        attribute("bool", value(Any::BoolValue(true))),
        attribute("int", value(Any::IntValue(i64::MIN))),
        attribute("double", value(Any::DoubleValue(1e300))),
        attribute("small double", value(Any::DoubleValue(-0.0))),
        attribute("nan", value(Any::DoubleValue(f64::NAN))),
        attribute("bytes", value(Any::BytesValue(b"\x00\xff\x10".to_vec()))),
        attribute("array", value(array)),
        attribute("map", value(map)),
        attribute("nothing", None),
        attribute("", value(Any::IntValue(0))),
    ]
}

/// What a text of a type was: docs/parquet-schema.md, read the other way.
fn value_of(kind: u8, text: &str) -> Option<AnyValue> {
    value(match kind {
        b's' => Any::StringValue(text.to_owned()),
        b'b' => Any::BoolValue(text == "true"),
        b'i' => Any::IntValue(text.parse().unwrap()),
        b'd' => Any::DoubleValue(text.parse().unwrap()),
        b'y' => Any::BytesValue(STANDARD.decode(text).unwrap()),
        b'a' | b'm' => return of_json(&serde_json::from_str(text).unwrap()),
        b'n' => return None,
        other => panic!("{other}"),
    })
}

fn of_json(json: &serde_json::Value) -> Option<AnyValue> {
    use serde_json::Value;
    value(match json {
        Value::Null => return None,
        Value::Bool(value) => Any::BoolValue(*value),
        Value::Number(number) if number.is_i64() => Any::IntValue(number.as_i64().unwrap()),
        Value::Number(number) => Any::DoubleValue(number.as_f64().unwrap()),
        Value::String(text) => Any::StringValue(text.clone()),
        Value::Array(values) => Any::ArrayValue(ArrayValue {
            values: values
                .iter()
                .map(|value| of_json(value).unwrap_or_default())
                .collect(),
        }),
        Value::Object(map) => {
            if let Some(bytes) = map.get("$bytes").filter(|_| map.len() == 1) {
                Any::BytesValue(STANDARD.decode(bytes.as_str().unwrap()).unwrap())
            } else if let Some(double) = map.get("$double").filter(|_| map.len() == 1) {
                Any::DoubleValue(double.as_str().unwrap().parse().unwrap())
            } else {
                let pair = |(key, value): (&String, &Value)| {
                    attribute(key.strip_prefix('$').unwrap_or(key), of_json(value))
                };
                Any::KvlistValue(KeyValueList {
                    values: map.iter().map(pair).collect(),
                })
            }
        }
    })
}

pub(super) fn attributes_of(batch: &RecordBatch, name: &str, types: &str, row: usize) -> Vec<KeyValue> {
    let entries = batch.column_by_name(name).unwrap().as_map().value(row);
    let types = batch.column_by_name(types).unwrap().as_string::<i32>().value(row);
    let (keys, values) = (
        entries.column(0).as_string::<i32>(),
        entries.column(1).as_string::<i32>(),
    );
    assert_eq!(types.len(), entries.len());
    (0..entries.len())
        .map(|index| {
            attribute(
                keys.value(index),
                value_of(types.as_bytes()[index], values.value(index)),
            )
        })
        .collect()
}

pub(super) fn logs(records: Vec<LogRecord>, resource: Vec<KeyValue>) -> Vec<u8> {
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(Resource {
                attributes: resource,
                ..Default::default()
            }),
            scope_logs: vec![ScopeLogs {
                log_records: records,
                ..Default::default()
            }],
            ..Default::default()
        }],
    }
    .encode_to_vec()
}

/// Scenario: attributes of every type, nested in each other too, on record and resource.
/// Guarantees: what is read back from the file is what was sent: keys, order, types, values.
#[test]
fn every_attribute_comes_back() {
    let record = LogRecord {
        time_unix_nano: 1_700_000_000_123_456_789,
        attributes: every_type(),
        body: value(Any::KvlistValue(KeyValueList { values: every_type() })),
        ..Default::default()
    };
    let (batches, repairs) = encoded(
        Table::Logs,
        &FileSettings::default(),
        &[logs(vec![record; 3], every_type())],
    );
    assert_eq!(repairs, Repairs::default());
    // NaN is not equal to itself, and the order of a map's keys is not kept by the JSON reader of this test.
    let shown = |attributes: &[KeyValue]| {
        attributes
            .iter()
            .filter(|attribute| attribute.key != "map")
            .map(|attribute| format!("{attribute:?}"))
            .collect::<Vec<_>>()
    };
    for row in 0..3 {
        for (name, types) in [
            ("attributes", "attr_types"),
            ("resource_attributes", "resource_attr_types"),
        ] {
            let back = attributes_of(&batches[0], name, types, row);
            assert_eq!(shown(&back), shown(&every_type()));
            let (Some(Any::KvlistValue(sent)), Some(Any::KvlistValue(back))) = (
                every_type()[9].value.clone().unwrap().value,
                back[9].value.clone().unwrap().value,
            ) else {
                panic!("{back:?}")
            };
            assert!(
                sent.values.iter().all(|pair| back.values.contains(pair)),
                "{back:?}"
            );
            assert_eq!(sent.values.len(), back.values.len());
        }
    }
    let times = batches[0].column_by_name("time_unix_nano").unwrap();
    assert_eq!(
        times.as_primitive::<Int64Type>().value(0),
        1_700_000_000_123_456_789
    );
}

/// Scenario: a key twice in one record, 40 keys twice in another, a body that is not UTF-8 (shallow validation lets it in).
/// Guarantees: the first of each key is kept, readers take the file, and every repair is counted.
#[test]
fn what_readers_refuse_is_repaired_and_counted() {
    let twice = |n: usize| {
        let keys = (0..n).chain(0..n);
        keys.map(|key| attribute(&format!("key {key}"), value(Any::IntValue(key as i64))))
            .collect::<Vec<_>>()
    };
    let record = |attributes| LogRecord {
        attributes,
        severity_text: "?????".to_owned(),
        ..Default::default()
    };
    let mut request = logs(
        vec![record(twice(1)), record(twice(40))],
        vec![attribute("bad", value(Any::StringValue("!!!!!".to_owned())))],
    );
    for pattern in [b"?????", b"!!!!!"] {
        while let Some(at) = request.windows(5).position(|window| window == pattern) {
            request[at..at + 5].copy_from_slice(b"ab\xff\xfec");
        }
    }
    let (batches, repairs) = encoded(Table::Logs, &FileSettings::default(), &[request]);
    assert_eq!(repairs.duplicate_keys, 41);
    assert_eq!(repairs.invalid_texts, 3);
    assert_eq!(
        attributes_of(&batches[0], "attributes", "attr_types", 1).len(),
        40
    );
    let severity = batches[0]
        .column_by_name("severity_text")
        .unwrap()
        .as_string::<i32>();
    assert_eq!(severity.value(0), "ab\u{fffd}\u{fffd}c");
    let resource = attributes_of(&batches[0], "resource_attributes", "resource_attr_types", 0);
    assert_eq!(
        resource[0].value,
        value(Any::StringValue("ab\u{fffd}\u{fffd}c".to_owned()))
    );
}

/// Scenario: generated requests of all signals and kinds of metrics, more rows than a batch and a row group has.
/// Guarantees: every item is a row of one table.
#[test]
fn every_item_is_a_row() {
    for (signal, tables) in [
        (Signal::Logs, &[Table::Logs][..]),
        (Signal::Traces, &[Table::Spans]),
        (Signal::Metrics, &Table::ALL[2..]),
    ] {
        let requests: Vec<_> = Generator::new(Spec::mixed(signal)).take(100).collect();
        let items: u64 = requests.iter().map(|request| u64::from(request.items)).sum();
        let bodies: Vec<Vec<u8>> = requests.iter().map(|request| request.body.to_vec()).collect();
        let rows = tables.iter().map(|table| {
            let (batches, repairs) = encoded(*table, &FileSettings::default(), &bodies);
            assert_eq!(repairs, Repairs::default());
            batches.iter().map(|batch| batch.num_rows() as u64).sum::<u64>()
        });
        let rows: Vec<u64> = rows.collect();
        assert_eq!(rows.iter().sum::<u64>(), items, "{signal}: {rows:?}");
    }
}

/// Scenario: promoted attributes of each type, some of another type than promised, some missing.
/// Guarantees: the column has the value or nothing; the map has it in any case; field ids do not depend on the order.
#[test]
fn promoted_attributes_have_columns() {
    let promotion = |attribute: &str, level, column_type, column: &str| Promotion {
        attribute: attribute.to_owned(),
        level,
        column_type,
        column: column.to_owned(),
    };
    let settings = FileSettings {
        promotions: vec![
            promotion("string", Level::Resource, ColumnType::String, "s"),
            promotion("int", Level::Record, ColumnType::Int, "i"),
            promotion("double", Level::Record, ColumnType::Double, "d"),
            promotion("bool", Level::Record, ColumnType::Bool, "b"),
            promotion("int", Level::Record, ColumnType::String, "not_s"),
            promotion("absent", Level::Scope, ColumnType::Int, "absent"),
        ],
        ..Default::default()
    };
    let record = LogRecord {
        attributes: every_type(),
        ..Default::default()
    };
    let (batches, _) = encoded(
        Table::Logs,
        &settings,
        &[logs(vec![record, LogRecord::default()], every_type())],
    );
    let column = |name: &str| batches[0].column_by_name(name).unwrap();
    assert_eq!(column("s").as_string::<i32>().value(1), "text");
    assert_eq!(column("i").as_primitive::<Int64Type>().value(0), i64::MIN);
    assert!(column("i").is_null(1));
    assert!(column("b").as_boolean().value(0));
    assert_eq!(column("not_s").null_count(), 2);
    assert_eq!(column("absent").null_count(), 2);
    let mut reversed = settings.clone();
    reversed.promotions.reverse();
    let (one, other) = (Table::Logs.schema(&settings), Table::Logs.schema(&reversed));
    for field in one.fields() {
        assert_eq!(other.field_with_name(field.name()).unwrap(), &**field);
    }
}

/// Scenario: four records with more bytes of keys than are remembered, made up; then four of another resource with as many others.
/// Guarantees: every row comes back with its own keys.
#[test]
fn forgotten_keys_are_not_taken_for_others() {
    let record = |keys: u32| LogRecord {
        attributes: (0..500)
            .map(|n| {
                let key = format!("{keys} {n} {}", "x".repeat(2200));
                attribute(&key, value(Any::IntValue(n)))
            })
            .collect(),
        ..Default::default()
    };
    let requests: Vec<Vec<u8>> = (0..2)
        .map(|keys| logs(vec![record(keys); 4], Vec::new()))
        .collect();
    let (batches, _) = encoded(Table::Logs, &FileSettings::default(), &requests);
    for row in 0..8 {
        let back = attributes_of(&batches[0], "attributes", "attr_types", row);
        assert!(back == record(row as u32 / 4).attributes, "{row}");
    }
}

/// Scenario: records with twenty thousand keys that are made up, and then, each twice, one whose keys are promoted or not.
/// Guarantees: columns remember no more keys than they are to, and keys that came later have their values and columns as well.
#[test]
fn made_up_keys_are_not_remembered() {
    let text = |n: usize| value(Any::StringValue(format!("value {n}")));
    let made_up = |from: usize| LogRecord {
        attributes: (from..from + 1000)
            .map(|n| attribute(&format!("made up {n}"), text(n)))
            .collect(),
        ..Default::default()
    };
    let late = LogRecord {
        attributes: vec![attribute("late", text(1)), attribute("promoted", text(2))],
        ..Default::default()
    };
    let mut records: Vec<LogRecord> = (0..20).map(|n| made_up(n * 1000)).collect();
    records.extend([late.clone(), late.clone()]);
    let settings = FileSettings {
        promotions: vec![Promotion {
            attribute: "promoted".to_owned(),
            level: Level::Record,
            column_type: ColumnType::String,
            column: "promoted".to_owned(),
        }],
        ..FileSettings::default()
    };
    let mut encoder = Encoder::new(Table::Logs, &settings, Vec::new()).unwrap();
    encoder.push(&logs(records, Vec::new())).unwrap();
    let Rows::Logs(rows) = encoder.file.file.waiting() else {
        panic!("rows of another table")
    };
    assert_eq!(rows.remembered_keys(), super::keys::REMEMBERED);
    let batches = read(encoder.finish().unwrap().0);
    for row in [20, 21] {
        let back = attributes_of(&batches[0], "attributes", "attr_types", row);
        assert_eq!(back, late.attributes);
        let promoted = batches[0].column_by_name("promoted").unwrap().as_string::<i32>();
        assert_eq!(promoted.value(row), "value 2");
    }
    assert_eq!(
        attributes_of(&batches[0], "attributes", "attr_types", 19),
        made_up(19_000).attributes
    );
}

/// Scenario: every table's schema, and all ids in it.
/// Guarantees: no two fields have the same id.
#[test]
fn field_ids_are_unique() {
    fn ids(field: &arrow_schema::Field, found: &mut Vec<String>) {
        found.extend(
            field
                .metadata()
                .get(parquet::arrow::PARQUET_FIELD_ID_META_KEY)
                .cloned(),
        );
        match field.data_type() {
            arrow_schema::DataType::Struct(fields) => fields.iter().for_each(|field| ids(field, found)),
            arrow_schema::DataType::List(field) | arrow_schema::DataType::Map(field, _) => ids(field, found),
            _ => {}
        }
    }
    for table in Table::ALL {
        let mut found = Vec::new();
        for field in table.schema(&FileSettings::default()).fields() {
            ids(field, &mut found);
        }
        let all = found.len();
        found.sort();
        found.dedup();
        assert_eq!(found.len(), all, "{table:?}");
    }
}

/// Scenario: bytes that are no request, cut at every place.
/// Guarantees: no panic, and a file that can be read.
#[test]
fn nonsense_makes_readable_files() {
    let request = logs(
        vec![LogRecord {
            attributes: every_type(),
            ..Default::default()
        }],
        every_type(),
    );
    for end in 0..request.len() {
        encoded(Table::Logs, &FileSettings::default(), &[request[..end].to_vec()]);
    }
}
