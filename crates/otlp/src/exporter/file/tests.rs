use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use sluice_journal::testing::{Fault, ManualClock, Operation, SimulatedDisk};
use sluice_payload::{Signal, WireFormat};
use sluice_pipeline::Part;

use super::*;

/// `{"resourceLogs":[{"schemaUrl":"..."}]}` with a URL of so many characters.
fn logs(length: u8) -> Bytes {
    let mut body = vec![0x0a, length + 2, 0x1a, length];
    body.extend(std::iter::repeat_n(b'u', usize::from(length)));
    body.into()
}

fn batch(parts: &[Bytes]) -> Batch {
    let parts = parts
        .iter()
        .map(|body| Part {
            body: body.clone(),
            items: 1,
            wire_format: WireFormat::Otlp,
            frame: None,
        })
        .collect();
    Batch {
        signal: Signal::Logs,
        parts,
    }
}

fn options(path: &Path) -> FileExporterOptions {
    FileExporterOptions {
        path: path.to_owned(),
        format: FileFormat::Json,
        zstd: false,
        rotation: None,
        append: true,
        create_directory: false,
    }
}

fn export(exporter: &FileExporter, parts: &[Bytes]) -> Verdict {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    runtime.block_on(async { exporter.export(&batch(parts)).await })
}

fn is_delivered(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Delivered { rejected: 0, .. })
}

/// Splits a file into what stands after each length.
fn delimited(mut file: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    while !file.is_empty() {
        let (length, rest) = file.split_first_chunk::<LENGTH_BYTES>().expect("a length");
        let (record, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        records.push(record.to_vec());
        file = rest;
    }
    records
}

/// Scenario: two batches, one of two parts, in each format, plain and compressed.
/// Guarantees: each batch is one record in the Collector's framing, and holds the parts as one request.
#[test]
fn a_batch_is_one_record_in_every_format() {
    let directory = tempfile::tempdir().expect("a directory");
    let merged = r#"{"resourceLogs":[{"schemaUrl":"u"},{"schemaUrl":"uu"}]}"#;
    let single = r#"{"resourceLogs":[{"schemaUrl":"uuu"}]}"#;
    let protobuf = [[logs(1), logs(2)].concat(), logs(3).to_vec()];
    for (format, zstd) in [
        (FileFormat::Json, false),
        (FileFormat::Json, true),
        (FileFormat::Proto, false),
        (FileFormat::Proto, true),
    ] {
        let path = directory.path().join(format!("{format:?}-{zstd}"));
        let exporter = FileExporter::open(FileExporterOptions {
            format,
            zstd,
            ..options(&path)
        })
        .expect("a writable path");
        assert!(is_delivered(&export(&exporter, &[logs(1), logs(2)])));
        assert!(is_delivered(&export(&exporter, &[logs(3)])));
        let file = std::fs::read(&path).expect("the file");
        if format == FileFormat::Json && !zstd {
            assert_eq!(String::from_utf8_lossy(&file), format!("{merged}\n{single}\n"));
            continue;
        }
        let mut records = delimited(&file);
        if zstd {
            for record in &mut records {
                *record = zstd::stream::decode_all(&record[..]).expect("a zstd frame");
            }
        }
        match format {
            FileFormat::Json => assert_eq!(records, [merged.as_bytes(), single.as_bytes()]),
            FileFormat::Proto => assert_eq!(records, protobuf),
        }
    }
}

/// Scenario: a file with content is opened to append, to truncate, and with rotation; a directory is missing.
/// Guarantees: only truncation without rotation empties the file; directories are made only when asked.
#[test]
fn files_are_gone_on_with_unless_told_otherwise() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("logs.json");
    let rotation = Some(Rotation {
        max_bytes: 1000,
        max_days: 0,
        max_backups: 0,
    });
    for (append, rotation, kept) in [(true, None, true), (false, rotation, true), (false, None, false)] {
        std::fs::write(&path, "before\n").expect("a file");
        let exporter = FileExporter::open(FileExporterOptions {
            append,
            rotation,
            ..options(&path)
        })
        .expect("a writable path");
        assert!(is_delivered(&export(&exporter, &[logs(1)])));
        let file = std::fs::read_to_string(&path).expect("the file");
        assert_eq!(file.starts_with("before\n"), kept);
        assert!(file.ends_with("{\"resourceLogs\":[{\"schemaUrl\":\"u\"}]}\n"));
    }
    let path = directory.path().join("a/b/logs.json");
    assert!(FileExporter::open(options(&path)).is_err());
    let created = FileExporter::open(FileExporterOptions {
        create_directory: true,
        ..options(&path)
    });
    assert!(is_delivered(&export(
        &created.expect("directories are made"),
        &[logs(1)]
    )));
}

/// Scenario: batches to a device without space, and JSON of bytes that are no protobuf.
/// Guarantees: the first is retried with the cause and a remedy, the second is a fault of the payload.
#[test]
fn failures_are_retried_and_bad_payloads_told_apart() {
    let exporter = FileExporter::open(options(Path::new("/dev/full"))).expect("a device");
    match export(&exporter, &[logs(1)]) {
        Verdict::Retry { reason, .. } => {
            assert!(reason.contains("/dev/full") && reason.contains("free some space"))
        }
        other => panic!("retried, not {other:?}"),
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("logs.json");
    let exporter = FileExporter::open(options(&path)).expect("a writable path");
    let verdict = export(&exporter, &[Bytes::from_static(b"\x0a\x05")]);
    assert!(matches!(verdict, Verdict::PayloadFault { .. }), "{verdict:?}");
    assert_eq!(std::fs::read(&path).expect("the file"), b"");
}

fn pipe_with_reader(directory: &tempfile::TempDir) -> (PathBuf, BufReader<std::fs::File>) {
    let path = directory.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.expect("mkfifo is there").success());
    let reader = reader_of(&path);
    (path, reader)
}

/// For reading and writing: that waits for nobody on Linux, and counts as a reader.
fn reader_of(pipe: &Path) -> BufReader<std::fs::File> {
    let both = std::fs::File::options().read(true).write(true).open(pipe);
    BufReader::new(both.expect("a reader"))
}

fn read_lines(reader: &mut impl BufRead, count: usize) -> String {
    let mut text = String::new();
    for _ in 0..count {
        reader.read_line(&mut text).expect("a line");
    }
    text
}

/// Scenario: the path is a named pipe without a reader; then with one, which goes away.
/// Guarantees: the start fails at once and says why; a record reaches the reader; without the reader it is retried
/// with a remedy.
#[test]
fn a_pipe_needs_its_reader() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, reader) = pipe_with_reader(&directory);
    drop(reader);
    let error = FileExporter::open(options(&path)).err().expect("nobody reads");
    assert_eq!(error.kind(), io::ErrorKind::NotConnected, "{error}");

    let mut reader = reader_of(&path);
    let exporter = FileExporter::open(options(&path)).expect("somebody reads");
    assert!(is_delivered(&export(&exporter, &[logs(1)])));
    assert_eq!(read_lines(&mut reader, 1), line(1));
    drop(reader);
    assert_retry(&export(&exporter, &[logs(1)]), "start the pipe's reader again");
}

/// Scenario: records beyond the limit of a rotation go to a named pipe; the exporter shuts down.
/// Guarantees: the pipe is where it was, nothing is beside it, and the reader gets every record.
#[test]
fn a_pipe_is_not_put_aside() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, mut reader) = pipe_with_reader(&directory);
    let exporter = FileExporter::open(FileExporterOptions {
        rotation: Some(Rotation {
            max_bytes: 10,
            max_days: 1,
            max_backups: 1,
        }),
        ..options(&path)
    })
    .expect("somebody reads");
    for length in 1..=2 {
        assert!(is_delivered(&export(&exporter, &[logs(length)])));
    }
    let entries = std::fs::read_dir(directory.path()).expect("the directory");
    let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["pipe"]);
    assert_eq!(read_lines(&mut reader, 2), line(1) + &line(2));
    exporter.shared.file.lock().sync().expect("nothing to sync");
}

/// Scenario: records fill a file several times within one millisecond and over days, with a large one among them.
/// Guarantees: no file exceeds the limit but for a record larger than it; names are lumberjack's and never collide;
/// the newest are kept; only files of this exporter are removed.
#[test]
fn full_files_are_put_aside_and_pruned() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("out.json");
    let bystander = directory.path().join("out-2000-01-01T00-00-00.000.txt");
    std::fs::write(&bystander, "keep").expect("a file");
    let rotation = Rotation {
        max_bytes: 10,
        max_days: 0,
        max_backups: 3,
    };
    let start = UNIX_EPOCH + Duration::from_secs(1_136_214_245);
    let mut file = RecordFile::open(
        Arc::new(Disk),
        path.clone(),
        Framing::Lines,
        Some(rotation),
        false,
        start,
    )
    .expect("writable");
    for record in ["a234\n", "b234\n", "c234\n", "a record that is larger\n", "e\n"] {
        file.append(record.as_bytes(), start).expect("written");
    }
    let names = || {
        let entries = std::fs::read_dir(directory.path()).expect("the directory");
        let mut names: Vec<String> = entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    let stamped = |millis: &str| format!("out-2006-01-02T15-04-05.{millis}.json");
    let bystander_name = "out-2000-01-01T00-00-00.000.txt".to_owned();
    assert_eq!(
        names(),
        [
            bystander_name.clone(),
            stamped("000"),
            stamped("001"),
            stamped("002"),
            "out.json".to_owned()
        ]
    );
    let content = |name: &str| std::fs::read_to_string(directory.path().join(name)).expect("the file");
    assert_eq!(content(&stamped("000")), "a234\nb234\n");
    assert_eq!(content(&stamped("001")), "c234\n");
    assert_eq!(content(&stamped("002")), "a record that is larger\n");
    assert_eq!(content("out.json"), "e\n");
    let later = start + Duration::from_secs(60);
    file.append(b"0123456789\n", later).expect("written");
    assert!(!names().contains(&stamped("000")), "a fourth is one too many");
    drop(file);
    let rotation = Rotation {
        max_bytes: 10,
        max_days: 2,
        max_backups: 0,
    };
    let days = |days: u64| start + Duration::from_secs(days * 86_400);
    RecordFile::open(
        Arc::new(Disk),
        path.clone(),
        Framing::Lines,
        Some(rotation),
        false,
        days(1),
    )
    .expect("writable");
    assert_eq!(names().len(), 5);
    RecordFile::open(
        Arc::new(Disk),
        path,
        Framing::Lines,
        Some(rotation),
        false,
        days(3),
    )
    .expect("writable");
    assert_eq!(names(), [bystander_name, "out.json".to_owned()]);
}

/// 2006-01-02T15:04:05Z.
const START: Duration = Duration::from_secs(1_136_214_245);
const DAY: Duration = Duration::from_secs(86_400);

/// An exporter to `/logs.json` of a simulated disk, with a clock that stands.
fn simulated(options: FileExporterOptions) -> (SimulatedDisk, ManualClock, FileExporter) {
    let (disk, clock) = (SimulatedDisk::default(), ManualClock::at(UNIX_EPOCH + START));
    let exporter = FileExporter::open_on(Arc::new(disk.clone()), Arc::new(clock.clone()), options);
    (disk, clock, exporter.expect("a writable path"))
}

fn line(length: usize) -> String {
    format!(
        "{{\"resourceLogs\":[{{\"schemaUrl\":\"{}\"}}]}}\n",
        "u".repeat(length)
    )
}

fn content(disk: &SimulatedDisk, path: &str) -> String {
    String::from_utf8(disk.content(path).expect("the file")).expect("text")
}

#[track_caller]
fn assert_retry(verdict: &Verdict, says: &str) {
    match verdict {
        Verdict::Retry { reason, .. } => assert!(reason.contains(says), "{reason}"),
        other => panic!("retried, not {other:?}"),
    }
}

/// Scenario: the disk fills up in the middle of the second record, in every format, stays full for two more tries,
/// and has room again.
/// Guarantees: after every failure the file ends with its last whole record and the verdict is a retry that names
/// the remedy; the record is there once when there is room.
#[test]
fn a_full_disk_costs_nothing_but_time() {
    for (format, zstd) in [
        (FileFormat::Json, false),
        (FileFormat::Json, true),
        (FileFormat::Proto, false),
        (FileFormat::Proto, true),
    ] {
        let (disk, _, exporter) = simulated(FileExporterOptions {
            format,
            zstd,
            ..options(Path::new("/logs.json"))
        });
        disk.set_longest_write_bytes(7);
        assert!(is_delivered(&export(&exporter, &[logs(1)])));
        let first = disk.content("/logs.json").expect("the file");
        disk.set_capacity_bytes(first.len() as u64 + 9);
        for _ in 0..3 {
            assert_retry(&export(&exporter, &[logs(2)]), "free some space");
            assert_eq!(disk.content("/logs.json").expect("the file"), first);
        }
        disk.set_capacity_bytes(10_000);
        assert!(is_delivered(&export(&exporter, &[logs(2)])));
        let (whole, _, reference) = simulated(FileExporterOptions {
            format,
            zstd,
            ..options(Path::new("/logs.json"))
        });
        for part in [logs(1), logs(2)] {
            assert!(is_delivered(&export(&reference, &[part])));
        }
        assert_eq!(
            disk.content("/logs.json"),
            whole.content("/logs.json"),
            "{format:?} {zstd}"
        );
    }
}

/// Scenario: the device fails after part of a record was written, and cannot even be cut back at once; the disk turns
/// read-only and back.
/// Guarantees: every verdict is a retry with the path; afterwards the file holds each record once and whole.
#[test]
fn a_failing_device_is_tried_again() {
    let (disk, _, exporter) = simulated(options(Path::new("/logs.json")));
    assert!(is_delivered(&export(&exporter, &[logs(1)])));
    disk.set_capacity_bytes(line(1).len() as u64 + 5);
    disk.fail(Operation::Truncate, Fault::Io, 1);
    assert_retry(&export(&exporter, &[logs(2)]), "/logs.json");
    assert_eq!(
        content(&disk, "/logs.json"),
        line(1) + &line(2)[..5],
        "torn for now"
    );
    disk.set_capacity_bytes(10_000);
    disk.fail(Operation::Write, Fault::Io, 2);
    for _ in 0..2 {
        assert_retry(&export(&exporter, &[logs(2)]), "/logs.json");
        assert_eq!(content(&disk, "/logs.json"), line(1));
    }
    disk.set_read_only(true);
    assert_retry(&export(&exporter, &[logs(2)]), "/logs.json");
    disk.set_read_only(false);
    assert!(is_delivered(&export(&exporter, &[logs(2)])));
    assert_eq!(content(&disk, "/logs.json"), line(1) + &line(2));
}

/// Scenario: files fill up with time between them, on a clock that is also set back; a rename and an opening fail.
/// Guarantees: names carry the time of day; the age of files is counted from it; a file that cannot be put aside is
/// gone on with, and no record is lost or written twice.
#[test]
fn rotation_follows_the_clock_and_survives_failures() {
    let rotation = Rotation {
        max_bytes: line(1).len() as u64,
        max_days: 2,
        max_backups: 0,
    };
    let (disk, clock, exporter) = simulated(FileExporterOptions {
        rotation: Some(rotation),
        ..options(Path::new("/logs.json"))
    });
    let names = || {
        let names = disk.list(Path::new("/")).expect("listed");
        names
            .into_iter()
            .filter_map(|name| name.into_string().ok())
            .collect::<Vec<_>>()
    };
    let write = || assert!(is_delivered(&export(&exporter, &[logs(1)])));
    write();
    write();
    assert_eq!(names(), ["logs-2006-01-02T15-04-05.000.json", "logs.json"]);
    clock.advance(DAY);
    write();
    let (first, second) = (
        "logs-2006-01-02T15-04-05.000.json",
        "logs-2006-01-03T15-04-05.000.json",
    );
    assert_eq!(names(), [first, second, "logs.json"]);
    clock.advance(DAY + Duration::from_millis(1));
    disk.fail(Operation::Rename, Fault::Io, 1);
    write();
    assert_eq!(
        names(),
        [first, second, "logs.json"],
        "not put aside, so nothing is pruned"
    );
    assert_eq!(content(&disk, "/logs.json"), line(1) + &line(1));

    disk.fail(Operation::Open, Fault::NoSpace, 1);
    assert_retry(&export(&exporter, &[logs(1)]), "free some space");
    let third = "logs-2006-01-04T15-04-05.001.json";
    assert_eq!(names(), [second, third], "the oldest is too old now");
    write();
    clock.set_wall(UNIX_EPOCH + START + DAY);
    write();
    let fourth = "logs-2006-01-03T15-04-05.001.json";
    assert_eq!(
        names(),
        [second, fourth, third, "logs.json"],
        "no name is taken twice"
    );
    assert_eq!(content(&disk, &format!("/{third}")), line(1) + &line(1));
    assert_eq!(content(&disk, &format!("/{fourth}")), line(1));
}

/// Scenario: records are written, the exporter shuts down, the machine crashes.
/// Guarantees: everything is there, name included.
#[test]
fn what_was_written_survives_a_crash_after_shutdown() {
    let (disk, _, exporter) = simulated(options(Path::new("/logs.json")));
    assert!(is_delivered(&export(&exporter, &[logs(1)])));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    runtime.block_on(exporter.shutdown());
    disk.crash();
    assert_eq!(content(&disk, "/logs.json"), line(1));
}

/// Scenario: a file fills up and is put aside, twice; the second time its sync fails. The machine crashes.
/// Guarantees: the first one is there, whole, under its new name; the failed sync did not hold the rotation up.
#[test]
fn a_file_put_aside_survives_a_crash() {
    let rotation = Rotation {
        max_bytes: line(1).len() as u64,
        max_days: 0,
        max_backups: 0,
    };
    let (disk, _, exporter) = simulated(FileExporterOptions {
        rotation: Some(rotation),
        ..options(Path::new("/logs.json"))
    });
    let (first, second) = (
        "/logs-2006-01-02T15-04-05.000.json",
        "/logs-2006-01-02T15-04-05.001.json",
    );
    for _ in 0..2 {
        assert!(is_delivered(&export(&exporter, &[logs(1)])));
    }
    disk.fail(Operation::Sync, Fault::Io, 1);
    assert!(is_delivered(&export(&exporter, &[logs(1)])));
    assert_eq!(content(&disk, second), line(1));
    disk.crash();
    assert_eq!(content(&disk, first), line(1));
}
