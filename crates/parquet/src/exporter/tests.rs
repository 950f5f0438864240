use std::path::Path;
use std::time::{Duration, Instant};

use arrow_array::Array;
use arrow_array::cast::AsArray;
use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use prost::Message;
use sluice_payload::{Payload, Signal, TenantId, Tenants, WireFormat};

use super::layout::{Laid, Layout, LayoutSettings, MAX_PARTITIONS_OF_REQUEST, ReadyFile};
use super::partition::PartitionBy;
use super::spool::{Spool, SpoolError};
use crate::{ColumnType, EncodeError, FileSettings, Level, Promotion};

const HOUR: u64 = 3_600_000_000_000;

/// 2025-11-21T21:00:00Z.
pub(super) const TIME: u64 = 1_763_758_800_000_000_000;

/// Of a journal that has lost nothing: every number is below.
pub(super) const ALL: Option<u64> = Some(u64::MAX);

/// Payload `number`: a record in each of `hours` hours, its body `number.hour`.
pub(super) fn payload(number: u64, hours: u64) -> Payload {
    let record = |hour: u64| LogRecord {
        time_unix_nano: TIME + hour * HOUR,
        body: Some(AnyValue {
            value: Some(Value::StringValue(format!("{number}.{hour}"))),
        }),
        ..LogRecord::default()
    };
    of_records((0..hours).map(record).collect())
}

fn of_records(log_records: Vec<LogRecord>) -> Payload {
    let items = log_records.len() as u64;
    let request = ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            scope_logs: vec![ScopeLogs {
                log_records,
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        }],
    };
    Payload {
        signal: Signal::Logs,
        body: Bytes::from(request.encode_to_vec()),
        wire_format: WireFormat::Otlp,
        frame: None,
        items,
        tenant: TenantId::DEFAULT,
        received_at: Instant::now(),
        permit: None,
    }
}

pub(super) fn open(directory: &Path, numbers_go_on: bool) -> (Layout, Vec<super::spool::Finished>) {
    open_by(directory, numbers_go_on, PartitionBy::Hour)
}

fn open_by(directory: &Path, numbers_go_on: bool, by: PartitionBy) -> (Layout, Vec<super::spool::Finished>) {
    let (spool, waiting) = Spool::open(
        directory,
        if numbers_go_on { ALL } else { None },
        &Tenants::default(),
    )
    .unwrap();
    let settings = LayoutSettings {
        partition_by: by,
        ..LayoutSettings::default()
    };
    (Layout::new(settings, spool), waiting)
}

pub(super) fn bodies(path: &Path) -> Vec<String> {
    let file = std::fs::File::open(path).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .unwrap()
        .build()
        .unwrap();
    reader
        .flat_map(|batch| {
            let batch = batch.unwrap();
            let bodies = batch.column_by_name("body").unwrap().as_string::<i32>().clone();
            (0..bodies.len())
                .map(move |row| bodies.value(row).to_owned())
                .collect::<Vec<_>>()
        })
        .collect()
}

pub(super) fn all(ready: &[ReadyFile]) -> Vec<String> {
    let mut rows: Vec<_> = ready
        .iter()
        .flat_map(|file| bodies(&file.finished.path))
        .collect();
    rows.sort();
    rows
}

impl Layout {
    /// Lays a payload out, and cuts files that are full by it.
    pub(super) fn push(
        &mut self,
        number: u64,
        payload: &Payload,
        floor: u64,
        now: Instant,
        ready: &mut Vec<ReadyFile>,
    ) -> Result<Laid, EncodeError> {
        let laid = self.lay(number, payload, now)?;
        self.cut_full(number, floor, ready)?;
        Ok(laid)
    }
}

pub(super) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Scenario: payloads with rows in three hours. One file is cut and arrives, one is cut and does not, one is being written; a file
/// was finished and not yet noted. Crash. The journal hands everything out again.
/// Guarantees: what was cut waits to be sent under its old name; what was not is gone; rows of both cut files are not written
/// again, all others are, once.
#[test]
fn after_a_crash_rows_that_were_cut_are_not_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let (mut layout, waiting) = open(directory.path(), true);
    assert!(waiting.is_empty());
    let mut ready = Vec::new();
    let now = Instant::now();
    layout.push(5, &payload(5, 2), 5, now, &mut ready).unwrap();
    assert!(ready.is_empty());
    layout.cut_all(5, &mut ready).unwrap();
    layout.push(6, &payload(6, 3), 5, now, &mut ready).unwrap();
    assert_eq!(ready.len(), 2);
    let (arrived, kept) = (ready.remove(0), ready.remove(0));
    std::fs::remove_file(&arrived.finished.path).unwrap();
    std::fs::write(directory.path().join("logs~dt=2025-11-21~hour=21~x.parquet"), "").unwrap();
    // A line that was not written whole.
    let cuts = directory.path().join("cuts");
    let mut text = std::fs::read_to_string(&cuts).unwrap();
    text.push_str("{\"table\":\"logs\"");
    std::fs::write(&cuts, text).unwrap();
    drop(layout);

    let (mut layout, waiting) = open(directory.path(), true);
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].cut, kept.finished.cut);
    assert_eq!(names(directory.path()).len(), 3, "{:?}", names(directory.path()));
    let mut ready = Vec::new();
    let laid = layout.push(5, &payload(5, 2), 5, now, &mut ready).unwrap();
    assert_eq!((laid.rows, laid.known.len()), (2, 2));
    let laid = layout.push(6, &payload(6, 3), 5, now, &mut ready).unwrap();
    assert_eq!((laid.rows, laid.known.len()), (3, 0));
    layout.cut_all(5, &mut ready).unwrap();
    assert_eq!(all(&ready), ["6.0", "6.1", "6.2"]);
}

/// Scenario: files are cut by hours; then the configuration divides by days, and the journal hands the same payloads out again.
/// Guarantees: rows that are in a file are not written again.
#[test]
fn another_division_does_not_write_rows_again() {
    let directory = tempfile::tempdir().unwrap();
    let (mut layout, _) = open(directory.path(), true);
    let (mut ready, now) = (Vec::new(), Instant::now());
    layout.push(1, &payload(1, 2), 1, now, &mut ready).unwrap();
    layout.cut_all(1, &mut ready).unwrap();
    drop(layout);
    let (mut layout, _) = open_by(directory.path(), true, PartitionBy::Day);
    let laid = layout.push(1, &payload(1, 2), 1, now, &mut Vec::new()).unwrap();
    assert_eq!(laid.known.iter().map(|(_, rows)| rows).sum::<u64>(), 2);
}

/// Scenario: a journal in memory, whose numbers begin anew with each process.
/// Guarantees: what was cut is sent, and the same numbers mean other rows, in files of other names.
#[test]
fn numbers_of_another_process_mean_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (mut layout, _) = open(directory.path(), false);
    let (mut ready, now) = (Vec::new(), Instant::now());
    layout.push(0, &payload(0, 1), 0, now, &mut ready).unwrap();
    layout.cut_all(0, &mut ready).unwrap();
    drop(layout);
    let (mut layout, waiting) = open(directory.path(), false);
    assert_eq!(waiting[0].cut, ready[0].finished.cut);
    let mut again = Vec::new();
    let laid = layout.push(0, &payload(0, 1), 0, now, &mut again).unwrap();
    assert_eq!(laid.known, []);
    layout.cut_all(0, &mut again).unwrap();
    assert_ne!(again[0].finished.cut.name, ready[0].finished.cut.name);
}

/// Scenario: two processes with the same configuration, queues in memory; then two that claim the same journal on disk.
/// Guarantees: neither touches the other's files; a journal has one owner.
#[test]
fn processes_do_not_share_a_spool() {
    let directory = tempfile::tempdir().unwrap();
    let (mut one, _) = open(directory.path(), false);
    let (mut ready, now) = (Vec::new(), Instant::now());
    one.push(0, &payload(0, 1), 0, now, &mut ready).unwrap();
    let (mut other, waiting) = open(directory.path(), false);
    assert!(waiting.is_empty());
    other.push(0, &payload(0, 1), 0, now, &mut ready).unwrap();
    one.cut_all(0, &mut ready).unwrap();
    other.cut_all(0, &mut ready).unwrap();
    assert_eq!(all(&ready), ["0.0", "0.0"]);
    let durable = tempfile::tempdir().unwrap();
    let _owner = open(durable.path(), true);
    assert!(matches!(
        Spool::open(durable.path(), ALL, &Tenants::default()),
        Err(SpoolError::Locked(_))
    ));
}

/// Scenario: the same payloads, twice.
/// Guarantees: the same bytes in the same files.
#[test]
fn files_depend_on_their_rows_alone() {
    let files = || {
        let directory = tempfile::tempdir().unwrap();
        let (mut layout, _) = open(directory.path(), true);
        let mut ready = Vec::new();
        for number in 0..50 {
            layout
                .push(number, &payload(number, 3), 0, Instant::now(), &mut ready)
                .unwrap();
        }
        layout.cut_all(0, &mut ready).unwrap();
        let file = |ready: &ReadyFile| {
            (
                ready.finished.cut.first,
                ready.finished.cut.last,
                std::fs::read(&ready.finished.path).unwrap(),
            )
        };
        ready.iter().map(file).collect::<Vec<_>>()
    };
    assert!(files() == files());
}

/// Scenario: requests with records of any of fifty hours that are long past, each body of its own; little memory.
/// Guarantees: after each request open files and their memory are within the limits, and no row is lost.
#[test]
fn late_data_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let (spool, _) = Spool::open(directory.path(), ALL, &Tenants::default()).unwrap();
    let settings = LayoutSettings {
        max_open_files: 20,
        max_open_bytes: 256 << 10,
        ..LayoutSettings::default()
    };
    let mut layout = Layout::new(settings, spool);
    let (mut ready, now) = (Vec::new(), Instant::now());
    for number in 0..400 {
        layout
            .push(number, &payload(number, 50), 0, now, &mut ready)
            .unwrap();
        assert!(layout.open_files() <= 20 && layout.memory_bytes() <= 256 << 10);
    }
    layout.cut_all(0, &mut ready).unwrap();
    let rows: u64 = ready.iter().map(|file| file.finished.cut.rows).sum();
    assert_eq!(rows, 400 * 50);
}

/// Scenario: a request with rows in fifty hours; and files that grow old.
/// Guarantees: open files stay bounded, every row is in one, and all of them are cut when they are old.
#[test]
fn open_files_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let (spool, _) = Spool::open(directory.path(), ALL, &Tenants::default()).unwrap();
    let settings = LayoutSettings {
        max_open_files: 10,
        ..LayoutSettings::default()
    };
    let max_age = settings.max_age;
    let mut layout = Layout::new(settings, spool);
    let (mut ready, now) = (Vec::new(), Instant::now());
    layout.push(1, &payload(1, 50), 0, now, &mut ready).unwrap();
    assert_eq!(layout.open_files(), 10);
    // Thirty-two, and the one for all the others.
    assert_eq!(ready.len(), MAX_PARTITIONS_OF_REQUEST + 1 - 10);
    layout
        .cut_aged(0, now + max_age - Duration::from_millis(1), &mut ready)
        .unwrap();
    assert_eq!(layout.open_files(), 10);
    layout.cut_aged(0, now + max_age, &mut ready).unwrap();
    assert_eq!((layout.open_files(), layout.deadline()), (0, None));
    assert_eq!(all(&ready).len(), 50);
}

/// A record of an hour with a body of so many random hexadecimal digits.
fn random_record(random: &mut u64, hour: u64, digits: usize) -> LogRecord {
    let body: String = std::iter::repeat_with(|| {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from_digit((*random >> 60) as u32, 16).unwrap()
    })
    .take(digits)
    .collect();
    LogRecord {
        time_unix_nano: TIME + hour * HOUR,
        body: Some(AnyValue {
            value: Some(Value::StringValue(body)),
        }),
        ..LogRecord::default()
    }
}

/// Scenario: steady load of records of fifty hours, each request with some of ten of them, and bodies that hardly shrink; half the
/// memory that row groups of full files would take.
/// Guarantees: of the files that are cut because they are full, 95% are within a fifth of their target, and none is cut for want of
/// memory; after each request open files and their memory are within the limits; no row is lost.
#[test]
fn files_are_as_large_as_they_are_to_be() {
    const HOURS: u64 = 50;
    const REQUESTS: u64 = 3000;
    let directory = tempfile::tempdir().unwrap();
    let (spool, _) = Spool::open(directory.path(), ALL, &Tenants::default()).unwrap();
    let settings = LayoutSettings {
        target_bytes: 96 << 10,
        max_open_bytes: 5 << 20,
        ..LayoutSettings::default()
    };
    let (target, most) = (settings.target_bytes as f64, settings.max_open_bytes);
    let mut layout = Layout::new(settings, spool);
    let (mut ready, now, mut random) = (Vec::new(), Instant::now(), 42);
    let mut rows = 0;
    for number in 0..REQUESTS {
        let hours = (0..10).map(|n| (number * 7 + n * 5) % HOURS);
        let log_records: Vec<LogRecord> = hours
            .flat_map(|hour| [hour; 4])
            .map(|hour| random_record(&mut random, hour, 400))
            .collect();
        rows += log_records.len() as u64;
        let request = of_records(log_records);
        layout.push(number, &request, 0, now, &mut ready).unwrap();
        assert!(layout.open_files() <= HOURS as usize && layout.memory_bytes() <= most);
    }
    let sizes: Vec<f64> = ready
        .iter()
        .map(|file| file.finished.cut.bytes as f64 / target)
        .collect();
    let near = sizes.iter().filter(|size| (0.8..=1.2).contains(*size)).count();
    println!(
        "{near} of {} files are near their target: {sizes:.2?}",
        sizes.len()
    );
    assert!(sizes.len() >= 2 * HOURS as usize, "{}", sizes.len());
    assert!(near * 100 >= sizes.len() * 95, "{near} of {}", sizes.len());
    layout.cut_all(0, &mut ready).unwrap();
    let written: u64 = ready.iter().map(|file| file.finished.cut.rows).sum();
    assert_eq!(written, rows);
}

/// Scenario: a thousand attributes that have a column each, of which a record has twenty; little memory.
/// Guarantees: after each request the memory of open files is within the limit, row groups having ended; no row is lost.
#[test]
fn a_thousand_columns_are_bounded() {
    const COLUMNS: usize = 1000;
    const MOST: usize = 8 << 20;
    let directory = tempfile::tempdir().unwrap();
    let (spool, _) = Spool::open(directory.path(), ALL, &Tenants::default()).unwrap();
    let key = |number: usize| format!("attribute.{number}");
    let promotion = |number| Promotion {
        attribute: key(number),
        level: Level::Record,
        column_type: ColumnType::String,
        column: format!("column_{number}"),
    };
    let settings = LayoutSettings {
        max_open_bytes: MOST,
        file: FileSettings {
            promotions: (0..COLUMNS).map(promotion).collect(),
            ..FileSettings::default()
        },
        ..LayoutSettings::default()
    };
    let mut layout = Layout::new(settings, spool);
    let (mut ready, now) = (Vec::new(), Instant::now());
    let (mut rows, mut most) = (0, 0);
    for number in 0..150 {
        let record = |row: usize| LogRecord {
            attributes: (0..20)
                .map(|n| KeyValue {
                    key: key((row * 37 + n * 53) % COLUMNS),
                    value: Some(AnyValue {
                        value: Some(Value::StringValue(format!("value {number} of row {row} and {n}"))),
                    }),
                    ..KeyValue::default()
                })
                .collect(),
            ..LogRecord::default()
        };
        let request = of_records((0..50).map(record).collect());
        rows += request.items;
        layout.push(number, &request, 0, now, &mut ready).unwrap();
        assert!(layout.memory_bytes() <= MOST, "{}", layout.memory_bytes());
        most = most.max(layout.memory_bytes());
    }
    assert!(most > MOST / 2, "the limit was reached: {most}");
    layout.cut_all(0, &mut ready).unwrap();
    let written: u64 = ready.iter().map(|file| file.finished.cut.rows).sum();
    assert_eq!(written, rows);
}
