//! Every id that is in the files, found by a walk that shares no code with the gateway's.

#[cfg(feature = "parquet")]
mod tables;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use sluice_loadgen::{Report, Signal, Tallies};
use sluice_otlp::json::{self, JsonOptions};
use sluice_pipeline::kind;

use super::plan::{Form, SignalFile, signal_of};

/// Large enough that reading is sequential.
const READ_BYTES: usize = 1 << 20;

/// How many gaps are named.
const GAPS_SHOWN: usize = 3;

/// What the files of one signal hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SignalRead {
    pub signal: Signal,
    /// The files and their sizes, in order of their names.
    pub files: Vec<(PathBuf, u64)>,
    /// Records: lines, or rows.
    pub records: u64,
    /// The account of ids.
    pub report: Report,
    /// What could not be read, and the first ids that are missing.
    pub problems: Vec<String>,
}

/// Reads the files of every signal and checks their ids against those that were sent.
pub(super) fn read(files: &[SignalFile], mut tallies: Tallies) -> Vec<SignalRead> {
    let read_one = |file: &SignalFile| {
        let mut read = SignalRead {
            signal: file.signal,
            files: Vec::new(),
            records: 0,
            report: Report::default(),
            problems: Vec::new(),
        };
        #[cfg(feature = "parquet")]
        if file.form == Form::Tables {
            tables::read(&file.path, &mut read, &mut tallies);
        }
        let lines = match file.form {
            Form::Lines => with_rotated(&file.path),
            Form::Tables => Vec::new(),
        };
        for path in lines {
            if let Err(problem) = read_file(&path, &mut read, &mut tallies) {
                read.problems.push(format!("{}: {problem}", path.display()));
            }
        }
        let tally = tallies.of(file.signal);
        read.report = tally.report();
        for gap in tally.lost(GAPS_SHOWN) {
            read.problems.push(format!(
                "{}: ids {} to {} were sent and are in no file",
                file.signal,
                gap.start,
                gap.end - 1
            ));
        }
        read
    };
    files.iter().map(read_one).collect()
}

/// The file and those put aside from it: `traces.jsonl`, `traces-2026-01-02T03-04-05.678.jsonl`.
fn with_rotated(path: &Path) -> Vec<PathBuf> {
    let stem = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let rotated = format!("{stem}-");
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|found| {
            let found_stem = found.file_stem().unwrap_or_default().to_string_lossy();
            found.extension() == path.extension() && (found_stem == stem || found_stem.starts_with(&rotated))
        })
        .collect();
    paths.sort();
    paths
}

fn read_file(path: &Path, read: &mut SignalRead, tallies: &mut Tallies) -> Result<(), String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    read.files.push((path.to_owned(), length));
    let schema = json::request_schema(kind(signal_of(read.signal)));
    let mut reader = BufReader::with_capacity(READ_BYTES, file);
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        if reader
            .read_until(b'\n', &mut line)
            .map_err(|error| error.to_string())?
            == 0
        {
            break;
        }
        if line.pop() != Some(b'\n') {
            return Err(format!("line {number} was not finished"));
        }
        let body = json::decode(
            schema,
            &line,
            JsonOptions {
                strict: true,
                ..Default::default()
            },
        )
        .map_err(|error| format!("line {number}: {error}"))?;
        tallies
            .of(read.signal)
            .delivered_body(read.signal, &body)
            .map_err(|error| format!("line {number}: {error}"))?;
        read.records += 1;
    }
    Ok(())
}
