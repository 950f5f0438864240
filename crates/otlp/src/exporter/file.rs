//! The file exporter: one request a record, as OTLP/JSON lines or as length-delimited protobuf.
//!
//! | `format` | `compression` | a record is |
//! |---|---|---|
//! | `json` | none | the request as OTLP/JSON on one line, and a newline |
//! | `proto` | none | 4 bytes of length, big-endian, and the request as protobuf |
//! | either | `zstd` | 4 bytes of length, big-endian, and one zstd frame that holds the request |
//!
//! These are the Collector's formats. A batch is delivered when `write(2)` has taken its whole record; there is no
//! buffer in between, so nothing waits for a flush interval. When a write fails half-way the file is cut back to its
//! last whole record; where that is impossible (a pipe, a device) the next JSON record starts on a fresh line and a
//! length-delimited file takes no more until it can be cut. Failures are retried by the pipeline, never swallowed.

mod record_file;

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use sluice_client::{Compression, compress};
use sluice_journal::{Clock, Disk, Filesystem, SystemClock};
use sluice_pipeline::{Batch, Export, Exporter, Verdict, kind};

use super::MAX_REQUEST_BYTES;
use crate::json;
use record_file::{Framing, RecordFile};

/// What the Collector compresses with.
const ZSTD_LEVEL: i32 = 3;

/// The length before a record.
const LENGTH_BYTES: usize = 4;

/// Where and how the file exporter writes.
#[derive(Debug, Clone)]
pub struct FileExporterOptions {
    /// The file.
    pub path: PathBuf,
    /// How a request is written.
    pub format: FileFormat,
    /// Whether records are zstd frames.
    pub zstd: bool,
    /// When to put the file aside and start a new one; `None`: never.
    pub rotation: Option<Rotation>,
    /// Whether to go on with a file that exists; `false` empties it at the start, as the Collector does. With
    /// rotation a file that exists is always gone on with.
    pub append: bool,
    /// Whether to make the directories of `path`.
    pub create_directory: bool,
}

/// How a request is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileFormat {
    /// OTLP/JSON.
    #[default]
    Json,
    /// Protobuf.
    Proto,
}

/// When the file is put aside, as `name-2006-01-02T15-04-05.000.ext` in UTC beside it, and what becomes of those.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// A record that would take the file beyond this size goes into a new one; a larger record has a file to itself.
    pub max_bytes: u64,
    /// Files put aside longer than so many days ago are removed; 0: none for its age.
    pub max_days: u32,
    /// Of the files put aside, the newest so many are kept; 0: all.
    pub max_backups: u32,
}

/// Writes every batch as one record of a file.
pub struct FileExporter {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    format: FileFormat,
    zstd: bool,
    clock: Arc<dyn Clock>,
    file: Mutex<RecordFile>,
}

impl FileExporter {
    /// Opens the file, so that a path that cannot be written is found at the start.
    ///
    /// # Errors
    /// When the directory cannot be made or the file cannot be opened for writing; `NotConnected` when it is a pipe
    /// that nobody reads.
    pub fn open(options: FileExporterOptions) -> io::Result<Self> {
        Self::open_on(Arc::new(Disk), Arc::new(SystemClock), options)
    }

    /// As [`open`](Self::open), on this file system; the clock stamps the names of files put aside and tells their age.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on(
        filesystem: Arc<dyn Filesystem>,
        clock: Arc<dyn Clock>,
        options: FileExporterOptions,
    ) -> io::Result<Self> {
        let FileExporterOptions {
            path,
            format,
            zstd,
            rotation,
            append,
            create_directory,
        } = options;
        let framing = if format == FileFormat::Json && !zstd {
            Framing::Lines
        } else {
            Framing::Lengths
        };
        if create_directory
            && let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty())
        {
            filesystem.create_directories(directory)?;
        }
        let file = RecordFile::open(filesystem, path.clone(), framing, rotation, append, clock.wall())?;
        Ok(Self {
            shared: Arc::new(Shared {
                path,
                format,
                zstd,
                clock,
                file: Mutex::new(file),
            }),
        })
    }
}

impl Exporter for FileExporter {
    fn export<'a>(&'a self, batch: &'a Batch) -> Export<'a> {
        let shared = Arc::clone(&self.shared);
        let batch = batch.clone();
        Box::pin(async move {
            // Encoding takes milliseconds and a write can wait for the disk: not on a thread that serves connections.
            let written = tokio::task::spawn_blocking(move || shared.write(&batch)).await;
            written.unwrap_or_else(|error| Verdict::Retry {
                after: None,
                reason: format!("file writer: {error}"),
            })
        })
    }

    fn max_request_bytes(&self) -> usize {
        MAX_REQUEST_BYTES
    }

    fn shutdown<'a>(&'a self) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let synced = tokio::task::spawn_blocking(move || shared.file.lock().sync()).await;
            if let Ok(Err(error)) = synced {
                tracing::warn!(path = %self.shared.path.display(), %error, "file exporter: cannot sync at shutdown");
            }
        })
    }
}

impl Shared {
    fn write(&self, batch: &Batch) -> Verdict {
        let record = match self.record(batch) {
            Ok(record) => record,
            Err(verdict) => return verdict,
        };
        match self.file.lock().append(&record, self.clock.wall()) {
            Ok(()) => Verdict::Delivered {
                rejected: 0,
                message: None,
            },
            Err(error) => {
                let remedy = match error.kind() {
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free some space",
                    io::ErrorKind::PermissionDenied => "; allow this user to write there",
                    io::ErrorKind::BrokenPipe => "; start the pipe's reader again",
                    _ => "",
                };
                let reason = format!(
                    "{}: {error}{remedy}; nothing is lost, it is tried again",
                    self.path.display()
                );
                Verdict::Retry { after: None, reason }
            }
        }
    }

    /// The record of a batch, with its length or its newline.
    fn record(&self, batch: &Batch) -> Result<Vec<u8>, Verdict> {
        let parts: Vec<&[u8]> = batch.parts.iter().map(|part| &part.body[..]).collect();
        let mut record = Vec::new();
        match (self.format, self.zstd) {
            (FileFormat::Json, false) => {
                // OTLP/JSON is two to four times as long as its protobuf form.
                record.reserve(3 * batch.bytes());
                self.encode(batch, &parts, &mut record)?;
                record.push(b'\n');
                return Ok(record);
            }
            (FileFormat::Json, true) => {
                let mut text = Vec::with_capacity(3 * batch.bytes());
                self.encode(batch, &parts, &mut text)?;
                self.length_delimited(&[&text], text.len(), &mut record)?;
            }
            (FileFormat::Proto, _) => self.length_delimited(&parts, batch.bytes(), &mut record)?,
        }
        Ok(record)
    }

    fn encode(&self, batch: &Batch, parts: &[&[u8]], text: &mut Vec<u8>) -> Result<(), Verdict> {
        json::encode_parts(json::request_schema(kind(batch.signal)), parts, text).map_err(|error| {
            Verdict::PayloadFault {
                reason: format!("cannot be written as JSON: {error}"),
            }
        })
    }

    fn length_delimited(&self, parts: &[&[u8]], total: usize, record: &mut Vec<u8>) -> Result<(), Verdict> {
        let frame;
        let (parts, total) = if self.zstd {
            frame =
                compress(Compression::Zstd, ZSTD_LEVEL, parts.iter().copied(), total).map_err(|error| {
                    Verdict::Retry {
                        after: None,
                        reason: format!("zstd: {error}"),
                    }
                })?;
            (&[&frame[..]][..], frame.len())
        } else {
            (parts, total)
        };
        let length = u32::try_from(total).map_err(|_| Verdict::TooLarge {
            reason: format!("{total} bytes do not fit a length of {LENGTH_BYTES} bytes"),
        })?;
        record.reserve_exact(LENGTH_BYTES + total);
        record.extend_from_slice(&length.to_be_bytes());
        parts.iter().for_each(|part| record.extend_from_slice(part));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
