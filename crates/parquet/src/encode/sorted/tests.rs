use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{RecordBatch, UInt64Array};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use bytes::Bytes;
use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Type;
use parquet::file::metadata::ParquetMetaData;
use sluice_loadgen::{Generator, Signal, Spec};

use super::super::tests::logs;
use super::super::{Encoder, FileSettings, PageEncoder, Table};
use super::WAITING_BYTES;

fn encode(table: Table, settings: &FileSettings, requests: &[Vec<u8>]) -> Vec<u8> {
    let mut encoder = Encoder::new(table, settings, Vec::new()).unwrap();
    for request in requests {
        encoder.push(request).unwrap();
    }
    encoder.finish().unwrap().0
}

fn sorted() -> FileSettings {
    FileSettings {
        sort_by: vec!["service_name".to_owned(), "timestamp".to_owned()],
        ..FileSettings::default()
    }
}

/// The row groups of a file.
fn row_groups(file: Vec<u8>) -> (Vec<RecordBatch>, ParquetMetaData) {
    let file = Bytes::from(file);
    let open = || ParquetRecordBatchReaderBuilder::try_new(file.clone()).unwrap();
    let metadata = open().metadata().as_ref().clone();
    let groups = (0..metadata.num_row_groups()).map(|group| {
        let reader = open().with_row_groups(vec![group]).build().unwrap();
        let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
        concat_batches(&batches[0].schema(), &batches).unwrap()
    });
    (groups.collect(), metadata)
}

/// Rows by service and time, the ones without a service last, by another way than the encoder's.
fn by_hand(rows: &RecordBatch) -> RecordBatch {
    let services = rows.column_by_name("service_name").unwrap().as_string::<i32>();
    let times = rows
        .column_by_name("timestamp")
        .unwrap()
        .as_primitive::<TimestampMicrosecondType>();
    let mut keys: Vec<_> = services
        .iter()
        .zip(times)
        .enumerate()
        .map(|(row, (service, time))| (service.is_none(), service, time.is_none(), time, row))
        .collect();
    keys.sort();
    let order: UInt64Array = keys.iter().map(|key| key.4 as u64).collect();
    take_record_batch(rows, &order).unwrap()
}

fn requests(signal: Signal, count: usize) -> Vec<Vec<u8>> {
    Generator::new(Spec::mixed(signal))
        .take(count)
        .map(|request| request.body.to_vec())
        .collect()
}

/// Scenario: generated requests of all signals, more rows than a row group has in one table; sorted by service and time, and not.
/// Guarantees: each row group has the rows that came, in their order; the file says by which columns; a second file of the same is the same.
#[test]
fn row_groups_are_sorted() {
    for (signal, tables, count) in [
        (Signal::Logs, &[Table::Logs][..], 800),
        (Signal::Traces, &[Table::Spans], 100),
        (Signal::Metrics, &Table::ALL[2..], 100),
    ] {
        let requests = requests(signal, count);
        for table in tables {
            let as_it_came = FileSettings {
                encoder: PageEncoder::Arrow,
                ..FileSettings::default()
            };
            let (unsorted, _) = row_groups(encode(*table, &as_it_came, &requests));
            let file = encode(*table, &sorted(), &requests);
            assert!(file == encode(*table, &sorted(), &requests));
            let (sorted, metadata) = row_groups(file);
            let unsorted = concat_batches(&unsorted[0].schema(), &unsorted).unwrap();
            assert_eq!(*table == Table::Logs, sorted.len() > 1);
            let mut before = 0;
            for sorted in &sorted {
                let came = unsorted.slice(before, sorted.num_rows());
                assert_eq!(*sorted, by_hand(&came), "{table:?}");
                before += sorted.num_rows();
            }
            assert_eq!(before, unsorted.num_rows());
            for group in metadata.row_groups() {
                let names: Vec<String> = group
                    .sorting_columns()
                    .unwrap()
                    .iter()
                    .map(|by| group.column(by.column_idx as usize).column_path().string())
                    .collect();
                assert_eq!(names, ["service_name", "timestamp"]);
            }
        }
    }
}

/// Scenario: rows are sorted by a column that no row of the table has, beside one that it has.
/// Guarantees: the one that it has counts.
#[test]
fn a_column_of_another_table_is_left_out() {
    let settings = FileSettings {
        sort_by: ["metric_name", "service_name", "timestamp"]
            .map(str::to_owned)
            .into(),
        ..FileSettings::default()
    };
    let requests = requests(Signal::Logs, 20);
    assert!(encode(Table::Logs, &settings, &requests) == encode(Table::Logs, &sorted(), &requests));
}

/// Scenario: logs of 100 KB each, twice as much as may wait to be sorted.
/// Guarantees: they are two row groups at least; what waits is bounded, and counted.
#[test]
fn wide_rows_make_smaller_row_groups() {
    let record = LogRecord {
        body: Some(AnyValue {
            value: Some(Value::StringValue("x".repeat(100_000))),
        }),
        ..Default::default()
    };
    let request = logs(vec![record], Vec::new());
    let mut encoder = Encoder::new(Table::Logs, &sorted(), Vec::new()).unwrap();
    let mut most = 0;
    for _ in 0..2 * WAITING_BYTES / 100_000 {
        encoder.push(&request).unwrap();
        most = most.max(encoder.file.file.memory_bytes());
    }
    assert!((WAITING_BYTES / 2..2 * WAITING_BYTES).contains(&most), "{most}");
    let (groups, _) = row_groups(encoder.finish().unwrap().0);
    assert!(groups.len() >= 2, "{}", groups.len());
}

/// Scenario: numbers, with NaN among them or not, in sorted files.
/// Guarantees: columns of doubles have no bounds; others do.
#[test]
fn doubles_have_no_bounds() {
    let requests = requests(Signal::Metrics, 5);
    let (_, metadata) = row_groups(encode(Table::MetricsNumber, &sorted(), &requests));
    let (mut doubles, mut others) = (0, 0);
    for column in metadata.row_group(0).columns() {
        let has_bounds = column
            .statistics()
            .is_some_and(|said| said.min_bytes_opt().is_some());
        match column.column_type() {
            Type::DOUBLE if column.column_path().parts().len() == 1 => {
                assert!(!has_bounds, "{}", column.column_path());
                doubles += 1;
            }
            _ => others += usize::from(has_bounds),
        }
    }
    assert!(doubles > 0 && others > 0, "{doubles} {others}");
}
