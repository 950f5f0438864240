//! Exporters that stay on this machine: `file` and `debug`.

use std::path::PathBuf;
use std::time::Duration;

use serde::de::{self, IgnoredAny};
use serde::{Deserialize, Deserializer};
use sluice_config::{Node, Report};

use super::scope::Scope;

/// The `file` exporter.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct FileExporter {
    /// The file to write; rotated files stand beside it.
    pub path: PathBuf,
    /// OTLP JSON lines, or length-delimited protobuf.
    pub format: FileFormat,
    /// When to begin a new file; absent: never.
    pub rotation: Option<Rotation>,
    /// How records are compressed; absent: not.
    pub compression: FileCompression,
    /// How often what is buffered is written out; absent: 1s.
    pub flush_interval: Duration,
    /// Add to the file that is there, rather than empty it; absent: true. With rotation it is always added to.
    pub append: bool,
    /// Make the directory if it is not there.
    pub create_directory: bool,
    /// Read for the Collector's sake: the mode of that directory, in octal.
    pub directory_permissions: Option<String>,
    encoding: Option<String>,
    group_by: Option<GroupBy>,
    compression_params: Option<IgnoredAny>,
}

impl Default for FileExporter {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            format: FileFormat::Json,
            rotation: None,
            compression: FileCompression::None,
            flush_interval: Duration::from_secs(1),
            // The Collector empties the file at every start, which loses what was delivered.
            append: true,
            create_directory: false,
            directory_permissions: None,
            encoding: None,
            group_by: None,
            compression_params: None,
        }
    }
}

/// What a file holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileFormat {
    /// One OTLP JSON request a line.
    #[default]
    Json,
    /// OTLP protobuf requests, each after its length (4 bytes, big-endian).
    Proto,
}

/// How records of a file are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileCompression {
    /// Not at all.
    #[default]
    #[serde(alias = "")]
    None,
    /// zstd; each record then stands after its length.
    Zstd,
}

/// `rotation` of the `file` exporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Rotation {
    /// Begin a new file at this size.
    pub max_megabytes: u64,
    /// Remove rotated files after this many days; 0: never.
    pub max_days: u32,
    /// Keep this many rotated files; 0: all.
    pub max_backups: u32,
    /// Name rotated files by local time, rather than UTC.
    pub localtime: bool,
}

impl Default for Rotation {
    /// The Collector's figures.
    fn default() -> Self {
        Self {
            max_megabytes: 100,
            max_days: 0,
            max_backups: 100,
            localtime: false,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct GroupBy {
    enabled: bool,
    resource_attribute: Option<IgnoredAny>,
    max_open_files: Option<IgnoredAny>,
}

/// Reads a `file` exporter.
pub(super) fn file(node: &Node, path: &str, report: &mut Report) -> Option<FileExporter> {
    let mut node = node.clone();
    node.bare_as_empty(&["rotation"]);
    let mut scope = Scope {
        node: &node,
        path,
        report,
    };
    let exporter: FileExporter = scope.decode()?;
    if exporter.path.as_os_str().is_empty() {
        scope.error(&["path"], "is required; name the file to write");
    }
    if exporter.encoding.is_some() {
        scope.error(
            &["encoding"],
            "encoding extensions are not supported; use format: json or format: proto",
        );
    }
    if exporter
        .group_by
        .as_ref()
        .is_some_and(|group_by| group_by.enabled)
    {
        scope.error(
            &["group_by"],
            "is not supported yet; remove it, and all data goes into one file",
        );
    }
    if !exporter.append && exporter.rotation.is_none() {
        scope.warn(
            &["append"],
            "the file is emptied at every start; remove this line to go on with what is there",
        );
    }
    if exporter.flush_interval.is_zero() {
        scope.error(&["flush_interval"], "must be longer than 0");
    }
    if exporter
        .rotation
        .is_some_and(|rotation| rotation.max_megabytes == 0)
    {
        scope.error(&["rotation", "max_megabytes"], "must be at least 1");
    }
    scope.without_effect(&[
        (
            &["directory_permissions"],
            "the directory gets the permissions of the umask",
        ),
        (&["compression_params"], "records are compressed at one level"),
        (
            &["rotation", "localtime"],
            "the names of rotated files are in UTC",
        ),
        (
            &["flush_interval"],
            "every batch is written before it counts as delivered",
        ),
    ]);
    Some(exporter)
}

/// The `debug` exporter (`logging` in old files).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct DebugExporter {
    /// How much to say.
    pub verbosity: Verbosity,
    /// How many messages a second are written before sampling begins.
    pub sampling_initial: u64,
    /// After that, every n-th; 0: none.
    pub sampling_thereafter: u64,
    /// Write through our own log, rather than to `output_paths`.
    pub use_internal_logger: bool,
    /// Files to write to; `stdout` and `stderr` are understood.
    pub output_paths: Vec<String>,
    /// Before v0.86: `debug`, `info`, ... instead of verbosity. Keys had no case then, and many wrote `logLevel`.
    #[serde(alias = "logLevel")]
    loglevel: Option<String>,
    /// Before v0.86, and meaningless since.
    logtostderr: Option<IgnoredAny>,
    sending_queue: Option<IgnoredAny>,
}

impl Default for DebugExporter {
    /// The Collector's figures.
    fn default() -> Self {
        Self {
            verbosity: Verbosity::Basic,
            sampling_initial: 2,
            sampling_thereafter: 1,
            use_internal_logger: true,
            output_paths: vec!["stdout".to_owned()],
            loglevel: None,
            logtostderr: None,
            sending_queue: None,
        }
    }
}

/// How much the `debug` exporter says; in whatever case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verbosity {
    /// Counts, one line a batch.
    #[default]
    Basic,
    /// One line an item.
    Normal,
    /// Everything.
    Detailed,
}

impl<'de> Deserialize<'de> for Verbosity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const KNOWN: [&str; 3] = ["basic", "normal", "detailed"];
        let text = String::deserialize(deserializer)?;
        match text.to_ascii_lowercase().as_str() {
            "basic" => Ok(Self::Basic),
            "normal" => Ok(Self::Normal),
            "detailed" => Ok(Self::Detailed),
            _ => Err(de::Error::unknown_variant(&text, &KNOWN)),
        }
    }
}

/// Reads a `debug` or `logging` exporter.
pub(super) fn debug(node: &Node, path: &str, report: &mut Report) -> Option<DebugExporter> {
    let mut scope = Scope { node, path, report };
    let mut exporter: DebugExporter = scope.decode()?;
    if let Some(level) = exporter.loglevel.take() {
        let verbosity = match level.to_ascii_lowercase().as_str() {
            "debug" => Verbosity::Detailed,
            "info" => Verbosity::Normal,
            _ => Verbosity::Basic,
        };
        if !scope.has(&["verbosity"]) {
            exporter.verbosity = verbosity;
        }
        let written = if scope.has(&["loglevel"]) {
            "loglevel"
        } else {
            "logLevel"
        };
        scope.warn(
            &[written],
            "is the old name; write verbosity: basic, normal or detailed",
        );
    }
    scope.without_effect(&[(&["sending_queue"], "the debug exporter writes at once")]);
    Some(exporter)
}
