//! Parquet tables: the id of every row, made an item again that the walk of ids takes.

use std::fs::File;
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use sluice_loadgen::{Signal, Tallies};

use super::SignalRead;

/// The attribute that has the id of a log record or data point.
const ID: &str = "sluice.id";

/// The tables of a signal.
fn tables(signal: Signal) -> &'static [&'static str] {
    match signal {
        Signal::Logs => &["logs"],
        Signal::Traces => &["spans"],
        Signal::Metrics => &[
            "metrics_number",
            "metrics_histogram",
            "metrics_exp_histogram",
            "metrics_summary",
        ],
    }
}

/// Reads all files of the signal's tables below `root`; a table counts as one file.
pub(super) fn read(root: &Path, read: &mut SignalRead, tallies: &mut Tallies) {
    for table in tables(read.signal) {
        let directory = root.join(table);
        let mut paths = Vec::new();
        find(&directory, &mut paths);
        if paths.is_empty() {
            continue;
        }
        let mut size = 0;
        for path in paths {
            match read_file(&path, read, tallies) {
                Ok(bytes) => size += bytes,
                Err(problem) => read.problems.push(format!("{}: {problem}", path.display())),
            }
        }
        read.files.push((directory, size));
    }
}

fn find(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            find(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "parquet") {
            found.push(path);
        }
    }
}

fn read_file(path: &Path, read: &mut SignalRead, tallies: &mut Tallies) -> Result<u64, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .and_then(ParquetRecordBatchReaderBuilder::build)
        .map_err(|error| error.to_string())?;
    for batch in reader {
        let batch = batch.map_err(|error| error.to_string())?;
        read.records += batch.num_rows() as u64;
        for row in 0..batch.num_rows() {
            let item = item(read.signal, &batch, row).ok_or("a column is missing, or of another type")?;
            tallies
                .of(read.signal)
                .delivered_body(read.signal, &request(item))
                .map_err(|error| error.to_string())?;
        }
    }
    Ok(length)
}

/// A row's item, with nothing but its id; with nothing, if there is none.
fn item(signal: Signal, batch: &RecordBatch, row: usize) -> Option<Vec<u8>> {
    if signal == Signal::Traces {
        let id = batch
            .column_by_name("span_id")?
            .as_string_opt::<i32>()?
            .value(row);
        let digits = |at: usize| u8::from_str_radix(id.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..id.len()).step_by(2).map(digits).collect();
        return Some(field(2, &bytes?));
    }
    let entries = batch.column_by_name("attributes")?.as_map_opt()?.value(row);
    let (keys, values) = (
        entries.column(0).as_string_opt::<i32>()?,
        entries.column(1).as_string_opt::<i32>()?,
    );
    let Some(at) = (0..keys.len()).find(|at| keys.value(*at) == ID) else {
        return Some(Vec::new());
    };
    let mut id = vec![3 << 3];
    varint(&mut id, values.value(at).parse::<i64>().ok()? as u64);
    let attribute = [field(1, ID.as_bytes()), field(2, &id)].concat();
    Some(match signal {
        // A point of a gauge, whatever it was.
        Signal::Metrics => field(5, &field(1, &field(7, &attribute))),
        _ => field(6, &attribute),
    })
}

/// A request of one resource and scope with this item.
fn request(item: Vec<u8>) -> Vec<u8> {
    field(1, &field(2, &field(2, &item)))
}

/// A delimited field of a protobuf message.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    varint(&mut out, value.len() as u64);
    out.extend_from_slice(value);
    out
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
