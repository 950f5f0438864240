//! Our pages against those of the parquet crate's own writer.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::Encoding;
use parquet::file::metadata::{ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::properties::ReaderProperties;
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::{ReadOptionsBuilder, SerializedFileReader};
use parquet::file::statistics::Statistics;
use proptest::prelude::*;
use prost::Message;
use sluice_loadgen::{Generator, Signal, Spec};

use super::super::file::BATCH_BYTES;
use super::super::tests::{every_type, logs};
use super::super::{ColumnType, Encoder, FileSettings, Level, PageEncoder, Promotion, Repairs, Table};

fn promotions() -> Vec<Promotion> {
    let promotion = |attribute: &str, level, column_type| Promotion {
        attribute: attribute.to_owned(),
        level,
        column_type,
        column: format!("{attribute} {column_type:?}"),
    };
    vec![
        promotion("string", Level::Record, ColumnType::String),
        promotion("service.name", Level::Resource, ColumnType::String),
        promotion("int", Level::Record, ColumnType::Int),
        promotion("double", Level::Record, ColumnType::Double),
        promotion("bool", Level::Record, ColumnType::Bool),
        promotion("string", Level::Record, ColumnType::Int),
    ]
}

fn encode(table: Table, encoder: PageEncoder, requests: &[Vec<u8>]) -> (Vec<u8>, Repairs) {
    let settings = FileSettings {
        encoder,
        promotions: promotions(),
        ..FileSettings::default()
    };
    let mut encoder = Encoder::new(table, &settings, Vec::new()).unwrap();
    for request in requests {
        encoder.push(request).unwrap();
    }
    encoder.finish().unwrap()
}

fn read(file: Vec<u8>) -> (Vec<RecordBatch>, ParquetMetaData) {
    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
    let builder =
        ParquetRecordBatchReaderBuilder::try_new_with_options(bytes::Bytes::from(file), options).unwrap();
    let metadata = builder.metadata().as_ref().clone();
    let reader = builder.with_batch_size(1 << 20).build().unwrap();
    (reader.map(Result::unwrap).collect(), metadata)
}

/// Both encoders' files have the same rows and repairs; returns the rows and our own file's metadata.
fn compare(table: Table, requests: &[Vec<u8>]) -> (Vec<RecordBatch>, ParquetMetaData) {
    let (own, arrow) = (
        encode(table, PageEncoder::Own, requests),
        encode(table, PageEncoder::Arrow, requests),
    );
    assert_eq!(own.1, arrow.1);
    let (own, metadata) = read(own.0);
    let (arrow, _) = read(arrow.0);
    assert_eq!(own.len(), arrow.len());
    for (own, arrow) in own.iter().zip(&arrow) {
        assert_eq!(own.schema(), arrow.schema());
        for (field, (own, arrow)) in own
            .schema()
            .fields()
            .iter()
            .zip(own.columns().iter().zip(arrow.columns()))
        {
            assert_eq!(own, arrow, "{table:?} {}", field.name());
        }
    }
    (own, metadata)
}

/// Scenario: generated requests of all signals, more rows than a row group has in one table.
/// Guarantees: both encoders' files have the same rows.
#[test]
fn both_encoders_write_the_same_rows() {
    for (signal, tables, requests) in [
        (Signal::Logs, &[Table::Logs][..], 1500),
        (Signal::Traces, &[Table::Spans], 100),
        (Signal::Metrics, &Table::ALL[2..], 100),
    ] {
        let requests: Vec<Vec<u8>> = Generator::new(Spec::mixed(signal))
            .take(requests)
            .map(|request| request.body.to_vec())
            .collect();
        for table in tables {
            compare(*table, &requests);
        }
    }
}

/// Scenario: generated requests of all signals, by each encoder, with and without differences.
/// Guarantees: without them nothing is written but what the oldest readers know, and the rows are the same.
#[test]
fn differences_can_be_left_out() {
    const OLD: [Encoding; 3] = [Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY];
    for (signal, tables) in [
        (Signal::Logs, &[Table::Logs][..]),
        (Signal::Traces, &[Table::Spans]),
        (Signal::Metrics, &Table::ALL[2..]),
    ] {
        let requests: Vec<Vec<u8>> = Generator::new(Spec::mixed(signal))
            .take(30)
            .map(|request| request.body.to_vec())
            .collect();
        for (table, encoder) in tables
            .iter()
            .flat_map(|table| [PageEncoder::Own, PageEncoder::Arrow].map(|encoder| (*table, encoder)))
        {
            let encoded = |delta_encodings| {
                let settings = FileSettings {
                    encoder,
                    delta_encodings,
                    ..FileSettings::default()
                };
                let mut encoder = Encoder::new(table, &settings, Vec::new()).unwrap();
                requests.iter().for_each(|request| encoder.push(request).unwrap());
                read(encoder.finish().unwrap().0)
            };
            let newer = |metadata: &ParquetMetaData| {
                let chunks = metadata.row_groups().iter().flat_map(|group| group.columns());
                let newer =
                    |chunk: &&ColumnChunkMetaData| chunk.encodings().any(|encoding| !OLD.contains(&encoding));
                chunks.filter(newer).count()
            };
            let ((with, its), (without, theirs)) = (encoded(true), encoded(false));
            assert!(newer(&its) > 0, "{table:?}");
            assert_eq!(newer(&theirs), 0, "{table:?} {encoder:?}");
            assert_eq!(with, without, "{table:?} {encoder:?}");
        }
    }
}

/// Scenario: generated requests of all signals, which repeat themselves.
/// Guarantees: our files are no larger than 1.1 times those of the parquet crate's writer, in any table.
#[test]
fn files_are_as_small() {
    let sizes = |file: &[u8]| -> Vec<(String, i64)> {
        let (_, metadata) = read(file.to_vec());
        let groups = metadata.row_groups();
        let of = |index: usize| {
            let name = groups[0].column(index).column_path().string();
            let size = groups.iter().map(|group| group.column(index).compressed_size());
            (name, size.sum())
        };
        (0..groups[0].num_columns()).map(of).collect()
    };
    for (signal, tables, requests) in [
        (Signal::Logs, &[Table::Logs][..], 600),
        (Signal::Traces, &[Table::Spans], 200),
        (Signal::Metrics, &Table::ALL[2..], 200),
    ] {
        let requests: Vec<Vec<u8>> = Generator::new(Spec::mixed(signal))
            .take(requests)
            .map(|request| request.body.to_vec())
            .collect();
        for table in tables {
            let (own, _) = encode(*table, PageEncoder::Own, &requests);
            let (arrow, _) = encode(*table, PageEncoder::Arrow, &requests);
            println!("{table:?}: {} {}", own.len(), arrow.len());
            for ((name, own), (_, arrow)) in sizes(&own).iter().zip(sizes(&arrow)) {
                println!("  {name}: {own} {arrow}");
            }
            assert!(own.len() * 10 <= arrow.len() * 11, "{table:?}");
        }
    }
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..Default::default()
    }
}

/// Records whose columns change their nature from page to page: absent, constant, distinct, long, and back.
fn fickle(count: u64) -> Vec<LogRecord> {
    let record = |n: u64| {
        let mut attributes = Vec::new();
        match n / 5000 % 4 {
            0 => {}
            1 => attributes.push(attribute("string", Value::StringValue("the same".to_owned()))),
            2 => attributes.push(attribute("string", Value::StringValue(format!("{n:x}")))),
            _ => attributes.push(attribute(
                "string",
                Value::StringValue("é".repeat(n as usize % 50) + &n.to_string()),
            )),
        }
        if n.is_multiple_of(3) {
            let value = [f64::NAN, 0.0, -0.0, n as f64, f64::NEG_INFINITY][n as usize / 3 % 5];
            attributes.push(attribute("double", Value::DoubleValue(value)));
        }
        if n % 100 > 20 {
            attributes.push(attribute(
                "int",
                Value::IntValue((n as i64).wrapping_mul(0x1234_5678_9abc_def1)),
            ));
        }
        if n > 9000 {
            attributes.push(attribute("bool", Value::BoolValue(n.is_multiple_of(7))));
        }
        LogRecord {
            time_unix_nano: 1_700_000_000_000_000_000 + n * 1_000_003,
            trace_id: if n.is_multiple_of(2) {
                n.to_be_bytes().repeat(2)
            } else {
                Vec::new()
            },
            severity_number: (n / 1000) as i32,
            attributes,
            ..Default::default()
        }
    };
    (0..count).map(record).collect()
}

/// Scenario: columns that change their nature from page to page, in two row groups, from one resource and from many.
/// Guarantees: both encoders' files have the same rows.
#[test]
fn columns_may_change_their_nature() {
    let records = fickle(140_000);
    let requests: Vec<Vec<u8>> = records
        .chunks(700)
        .enumerate()
        .map(|(index, records)| {
            let resource = match index % 3 {
                0 => every_type(),
                1 => vec![attribute("service.name", Value::StringValue(index.to_string()))],
                _ => Vec::new(),
            };
            logs(records.to_vec(), resource)
        })
        .collect();
    let (_, metadata) = compare(Table::Logs, &requests);
    assert_eq!(metadata.num_row_groups(), 2);
}

/// Scenario: the same columns; the page index of every column that is not in a list.
/// Guarantees: every value of a page is within its bounds, and as many are null as it says.
#[test]
fn pages_are_within_their_bounds() {
    let requests: Vec<Vec<u8>> = fickle(30_000)
        .chunks(1000)
        .map(|records| logs(records.to_vec(), every_type()))
        .collect();
    let (rows, metadata) = compare(Table::Logs, &requests);
    let page_index = metadata.page_index().unwrap();
    let schema = rows[0].schema();
    let mut checked = 0;
    for (index, chunk) in metadata.row_group(0).columns().iter().enumerate() {
        let [name] = chunk.column_path().parts() else {
            continue;
        };
        let column = rows[0].column(schema.index_of(name).unwrap());
        let pages = page_index.offset_index(0, index).unwrap().page_locations();
        for (page, location) in pages.iter().enumerate() {
            let first = location.first_row_index as usize;
            let end = pages
                .get(page + 1)
                .map_or(column.len(), |next| next.first_row_index as usize);
            let values = column.slice(first, end - first);
            match page_index.column_index(0, index).unwrap() {
                ColumnIndexMetaData::BYTE_ARRAY(bounds) => {
                    assert_eq!(
                        bounds.null_count(page),
                        Some(values.null_count() as i64),
                        "{name}"
                    );
                    assert_eq!(
                        bounds.is_null_page(page),
                        values.null_count() == values.len(),
                        "{name}"
                    );
                    for text in values.as_string::<i32>().iter().flatten() {
                        let text = text.as_bytes();
                        assert!(bounds.min_value(page).unwrap() <= text, "{name}");
                        assert!(text <= bounds.max_value(page).unwrap(), "{name}");
                        checked += 1;
                    }
                }
                ColumnIndexMetaData::INT64(bounds) => {
                    assert_eq!(
                        bounds.null_count(page),
                        Some(values.null_count() as i64),
                        "{name}"
                    );
                    let Some(values) = values.as_primitive_opt::<Int64Type>() else {
                        continue;
                    };
                    for value in values.iter().flatten() {
                        assert!(
                            (*bounds.min_value(page).unwrap()..=*bounds.max_value(page).unwrap())
                                .contains(&value)
                        );
                        checked += 1;
                    }
                }
                ColumnIndexMetaData::DOUBLE(bounds) => {
                    for value in values
                        .as_primitive::<Float64Type>()
                        .iter()
                        .flatten()
                        .filter(|value| !value.is_nan())
                    {
                        assert!(
                            (*bounds.min_value(page).unwrap()..=*bounds.max_value(page).unwrap())
                                .contains(&value)
                        );
                        checked += 1;
                    }
                }
                _ => {}
            }
        }
    }
    assert!(checked > 300_000, "{checked}");
}

/// Scenario: records with trace ids, every other one, in two row groups; a service for each half of the requests.
/// Guarantees: the filters of a row group have all of its ids and services, and next to none of the other's.
#[test]
fn filters_say_what_a_row_group_has() {
    let requests: Vec<Vec<u8>> = fickle(140_000)
        .chunks(1000)
        .map(|records| {
            let service = if records[0].severity_number < 120 {
                "a"
            } else {
                "b"
            };
            logs(
                records.to_vec(),
                vec![attribute("service.name", Value::StringValue(service.to_owned()))],
            )
        })
        .collect();
    let (file, _) = encode(Table::Logs, PageEncoder::Own, &requests);
    let properties = ReaderProperties::builder().set_read_bloom_filter(true).build();
    let options = ReadOptionsBuilder::new()
        .with_reader_properties(properties)
        .build();
    let reader = SerializedFileReader::new_with_options(bytes::Bytes::from(file), options).unwrap();
    let columns = reader.metadata().file_metadata().schema_descr().columns();
    let of = |group, name: &str| {
        let column = columns.iter().position(|column| column.path().string() == name);
        let group = reader.get_row_group(group).unwrap();
        group.get_column_bloom_filter(column.unwrap()).unwrap().clone()
    };
    let id = |n: u64| format!("{n:016x}").repeat(2);
    let known = |group: usize, from: u64| {
        let filter = of(group, "trace_id");
        (from..from + 8000)
            .step_by(2)
            .filter(|n| filter.check(id(*n).as_str()))
            .count()
    };
    assert_eq!((known(0, 100_000), known(1, 132_000)), (4000, 4000));
    // Of 4000 some 40 may be taken for others.
    assert!(known(0, 132_000) < 120 && known(1, 100_000) < 120);
    assert!(of(0, "service_name").check("a") && of(0, "service_name").check("b"));
    assert!(of(1, "service_name").check("b") && !of(1, "service_name").check("a"));
}

/// Scenario: a batch of long bodies that are all different, and trace ids; then one more row.
/// Guarantees: what the file says that it holds has the room that the bodies left, pages and filters; what files share gave its back.
#[test]
fn what_a_batch_leaves_is_counted() {
    const BODY: usize = 16 << 10;
    let record = |n: usize| LogRecord {
        body: Some(AnyValue {
            value: Some(Value::StringValue(format!("{n:08}").repeat(BODY / 8))),
        }),
        trace_id: (n as u128).to_be_bytes().to_vec(),
        ..Default::default()
    };
    let records = (0..=BATCH_BYTES / BODY).map(record).collect();
    let mut encoder = Encoder::new(Table::Logs, &FileSettings::default(), Vec::new()).unwrap();
    encoder.push(&logs(records, Vec::new())).unwrap();
    let before = encoder.file.file.memory_bytes();
    assert!(before >= BATCH_BYTES - BODY, "{before}");
    let filter = 128 << 10;
    encoder.push(&logs(vec![record(0)], Vec::new())).unwrap();
    let held = encoder.file.file.memory_bytes();
    assert!(held >= BATCH_BYTES - 2 * BODY + filter, "{held}");
    super::TOOLS.with_borrow(|tools| {
        assert!(
            tools.page.capacity() <= super::KEPT_BYTES && tools.compressed.capacity() <= super::KEPT_BYTES
        );
    });
}

/// Scenario: a row group of bodies and doubles that are all different, then one in which they are the same; all of one resource.
/// Guarantees: the second one has dictionaries, and what the resource has is in one in both; texts without one are written with their lengths
/// before them all.
#[test]
fn each_row_group_tries_a_dictionary() {
    let requests: Vec<Vec<u8>> = (0..260u32)
        .map(|n| {
            let record = |row| {
                let value = if n < 130 { n * 1000 + row } else { 1 };
                LogRecord {
                    body: Some(AnyValue {
                        value: Some(Value::StringValue(value.to_string())),
                    }),
                    attributes: vec![attribute("double", Value::DoubleValue(value.into()))],
                    ..Default::default()
                }
            };
            logs((0..1000).map(record).collect(), every_type())
        })
        .collect();
    let (_, metadata) = compare(Table::Logs, &requests);
    let column = |group: usize, name: &str| {
        let mut columns = metadata.row_group(group).columns().iter();
        let column = columns.find(|column| column.column_path().string() == name);
        column.unwrap()
    };
    let has_dictionary = |group, name: &str| column(group, name).dictionary_page_offset().is_some();
    for name in ["body", "double Double"] {
        assert!(!has_dictionary(0, name) && has_dictionary(1, name), "{name}");
    }
    for name in ["resource_attr_types", "resource_dropped_attributes_count"] {
        assert!(has_dictionary(0, name) && has_dictionary(1, name), "{name}");
    }
    let mut encodings = column(0, "body").encodings();
    assert!(encodings.any(|encoding| encoding == Encoding::DELTA_LENGTH_BYTE_ARRAY));
}

/// Scenario: promoted doubles of records and of their resource, of which some are NaN, in several pages; one page has nothing else.
/// Guarantees: the page index and the chunk say how many, or the column has no page index.
#[test]
fn values_that_are_no_numbers_are_counted() {
    let of = |level| Promotion {
        attribute: "double".to_owned(),
        level,
        column_type: ColumnType::Double,
        column: format!("{level:?}"),
    };
    let settings = FileSettings {
        promotions: vec![of(Level::Record), of(Level::Resource)],
        ..FileSettings::default()
    };
    let double = |value| attribute("double", Value::DoubleValue(value));
    for all_of_first_page in [false, true] {
        let mut encoder = Encoder::new(Table::Logs, &settings, Vec::new()).unwrap();
        for n in 0..60u8 {
            let records = (0..1000).map(|row| LogRecord {
                attributes: match row % 4 {
                    _ if all_of_first_page && n < 20 => vec![double(f64::NAN)],
                    0 => vec![double(f64::NAN)],
                    1 => vec![],
                    _ => vec![double(f64::from(row))],
                },
                ..Default::default()
            });
            let resource = [f64::NAN, f64::from(n)][usize::from(n % 2)];
            encoder
                .push(&logs(records.collect(), vec![double(resource)]))
                .unwrap();
        }
        let (rows, metadata) = read(encoder.finish().unwrap().0);
        for (index, chunk) in metadata.row_group(0).columns().iter().enumerate() {
            let name = chunk.column_path().string();
            if !["Record", "Resource"].contains(&&*name) {
                continue;
            }
            let column = rows[0]
                .column_by_name(&name)
                .unwrap()
                .as_primitive::<Float64Type>();
            let nans = |values: &arrow_array::Float64Array| {
                values.iter().flatten().filter(|value| value.is_nan()).count() as i64
            };
            let Statistics::Double(of_chunk) = chunk.statistics().unwrap() else {
                panic!("{name}")
            };
            assert_eq!(of_chunk.nan_count_opt(), Some(nans(column) as u64), "{name}");
            let page_index = metadata.page_index().unwrap();
            let Some(ColumnIndexMetaData::DOUBLE(bounds)) = page_index.column_index(0, index) else {
                assert!(all_of_first_page && name == "Record");
                continue;
            };
            let pages = page_index.offset_index(0, index).unwrap().page_locations();
            assert!(pages.len() > 2);
            for (page, location) in pages.iter().enumerate() {
                let first = location.first_row_index as usize;
                let next = pages.get(page + 1);
                let end = next.map_or(column.len(), |next| next.first_row_index as usize);
                let expected = nans(&column.slice(first, end - first));
                assert!(expected > 0);
                assert_eq!(bounds.nan_count(page), Some(expected), "{name}");
            }
        }
    }
}

/// The largest page of a file before it is compressed, and the most values that a page of a column has.
fn largest_page(file: Vec<u8>, column: &str) -> (usize, u32) {
    let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
    let columns = reader.metadata().file_metadata().schema_descr().columns();
    let (mut bytes, mut values) = (0, 0);
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group).unwrap();
        for (index, of) in columns.iter().enumerate() {
            for page in group.get_column_page_reader(index).unwrap() {
                let page = page.unwrap();
                bytes = bytes.max(page.buffer().len());
                if of.path().string() == column {
                    values = values.max(page.num_values());
                }
            }
        }
    }
    (bytes, values)
}

/// Scenario: 16,384 small records of one resource and scope, one text of which is long: a key, a value, the scope's name or version,
/// or a schema's address.
/// Guarantees: no page is larger than the text and what tells rows apart, and no page has more rows than fit into a batch.
#[test]
fn a_long_text_that_rows_share_makes_small_pages() {
    const LONG: usize = 64 << 10;
    let long = || "x".repeat(LONG);
    let named = |key: String, value: String| attribute(&key, Value::StringValue(value));
    for which in 0..8 {
        let text = |of| if which == of { long() } else { "short".to_owned() };
        let request = ExportLogsServiceRequest {
            resource_logs: vec![ResourceLogs {
                resource: Some(Resource {
                    attributes: vec![named(text(0), text(1))],
                    ..Default::default()
                }),
                schema_url: text(2),
                scope_logs: vec![ScopeLogs {
                    scope: Some(InstrumentationScope {
                        name: text(3),
                        version: text(4),
                        attributes: vec![named(text(5), text(6))],
                        ..Default::default()
                    }),
                    schema_url: text(7),
                    log_records: vec![LogRecord::default(); 16_384],
                }],
            }],
        };
        let (file, _) = encode(Table::Logs, PageEncoder::Own, &[request.encode_to_vec()]);
        let (bytes, rows) = largest_page(file, "flags");
        assert!(bytes < LONG + 4096, "{which}: {bytes}");
        assert!(rows as usize <= BATCH_BYTES / LONG + 1, "{which}: {rows}");
    }
}

/// Scenario: resources of one row, and now and then of two, with texts of their own that are short, long, empty, absent or not UTF-8, more
/// than a page of them.
/// Guarantees: they have no dictionary, and both encoders' files have the same rows.
#[test]
fn texts_that_few_rows_share_are_plain() {
    let requests: Vec<Vec<u8>> = (0..15_000)
        .map(|n: usize| {
            let text = match n % 7 {
                0 => "x".repeat(n % 300),
                1 => format!("\u{e9}{n}"),
                _ => n.to_string(),
            };
            // Two texts of different lengths in the lists that rows share.
            let other = format!("{n}{}", "y".repeat(n % 90));
            let mut resource = [("service.name", text), ("other", other)]
                .map(|(key, text)| attribute(key, Value::StringValue(text)))
                .to_vec();
            resource.truncate((n % 5).min(2));
            let request = logs(
                vec![LogRecord::default(); 1 + usize::from(n.is_multiple_of(4))],
                resource,
            );
            match n % 11 {
                0 => request
                    .iter()
                    .map(|byte| if *byte == b'1' { 0xff } else { *byte })
                    .collect(),
                _ => request,
            }
        })
        .collect();
    let (_, metadata) = compare(Table::Logs, &requests);
    let mut columns = metadata.row_group(0).columns().iter();
    let name = columns.find(|column| column.column_path().string() == "service_name");
    let name = name.unwrap();
    assert!(name.dictionary_page_offset().is_none());
    assert!(
        name.encodings()
            .any(|encoding| encoding == Encoding::DELTA_LENGTH_BYTE_ARRAY)
    );
}

/// Scenario: a resource for each row, each with a text of its own, more than a dictionary is to have.
/// Guarantees: row groups end instead, and every row comes back.
#[test]
fn large_dictionaries_of_shared_texts_end_the_row_group() {
    let requests: Vec<Vec<u8>> = (0..6000)
        .map(|n| {
            let text = format!("{n}").repeat(1500);
            logs(
                vec![LogRecord::default(); 2],
                vec![attribute("service.name", Value::StringValue(text))],
            )
        })
        .collect();
    let (_, metadata) = compare(Table::Logs, &requests);
    assert!(metadata.num_row_groups() > 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Scenario: a generated request of any signal with bytes of it changed, so that it is cut, mixed up, not UTF-8.
    /// Guarantees: both encoders' files have the same rows in every table, and count the same repairs.
    #[test]
    fn both_encoders_make_the_same_of_nonsense(
        signal in 0..3usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..30),
    ) {
        let signal = [Signal::Logs, Signal::Traces, Signal::Metrics][signal];
        let generated = Generator::new(Spec::mixed(signal)).next().unwrap();
        let mut request = generated.body.to_vec();
        request.truncate(20_000);
        for (at, byte) in changes {
            let at = at.index(request.len());
            request[at] = byte;
        }
        for table in Table::ALL {
            compare(table, std::slice::from_ref(&request));
        }
    }
}
