//! The `parquet` exporter; the stores it writes to are beside this.

mod azure;
mod gcs;
mod s3;

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use sluice_config::{ByteSize, Node, Report};

use super::endpoint::check_endpoint;
use super::network::ClientTls;
use super::queue::{Retry, SendingQueue};
use super::scope::Scope;
pub use azure::{Azure, AzureAuth, AzureAuthType};
pub use gcs::Gcs;
pub use s3::S3Uploader;

/// Less than this is no file worth its request.
const MIN_TARGET_BYTES: u64 = 64 << 10;

/// Less than a file with a few thousand rows of every table takes: each request would be a file of its own.
pub(crate) const MIN_OPEN_BYTES: u64 = 8 << 20;

/// One conditional PUT takes 5 GB; a file is in memory while it is sent, so far less is sensible.
const MAX_TARGET_BYTES: u64 = 512 << 20;

/// The `parquet` exporter.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct ParquetExporter {
    /// A local directory; or else one of the three stores.
    pub path: PathBuf,
    /// The bucket, in the terms of the Collector's awss3 exporter.
    pub s3uploader: Option<S3Uploader>,
    /// The bucket of Google Cloud Storage.
    pub gcs: Option<Gcs>,
    /// The container of Azure Blob Storage.
    pub azure: Option<Azure>,
    /// Whether the tables of each tenant are below a directory of its own.
    pub tenant_prefix: bool,
    /// How tables are divided into directories.
    pub partition_by: PartitionBy,
    /// A file is sent when it has about this many bytes; absent: 64 MiB.
    pub target_size: ByteSize,
    /// A file is sent when its first row has waited this long; absent: 60s.
    pub max_age: Duration,
    /// Files that are written at once, at most; absent: 64.
    pub max_open_files: usize,
    /// Memory of files that are written, in each pipeline, checked after each request; absent: an equal part of a quarter of the memory
    /// budget, at most 128 MiB.
    pub max_open_memory: Option<ByteSize>,
    /// Attributes that get a column of their own.
    pub promote: Vec<Promote>,
    /// Level of zstd, 1 to 22; absent: 1.
    pub compression_level: i32,
    /// Whether values may be written as differences, which is smaller and which old readers do not know; absent: true.
    pub delta_encodings: bool,
    /// Columns by which the rows of each row group are sorted; absent: rows are in the order in which they came.
    pub sort_by: Vec<String>,
    /// Where files are written before they are sent, when the queue is in memory; absent: below `path`, or in the system's
    /// directory for temporary files.
    pub spool_directory: Option<PathBuf>,
    /// Bytes of files that wait to be sent, at most; absent: 1 GiB.
    pub max_spool_size: ByteSize,
    /// Files sent at once; absent: 2.
    pub num_uploads: usize,
    /// How long one upload may take; absent: 2m.
    pub timeout: Duration,
    /// What happens after a failure.
    pub retry_on_failure: Retry,
    /// The queue before this exporter.
    pub sending_queue: SendingQueue,
    /// TLS of the store.
    pub tls: ClientTls,
    marshaler: Option<IgnoredAny>,
    encoding: Option<IgnoredAny>,
    resource_attrs_to_s3: Option<IgnoredAny>,
}

impl Default for ParquetExporter {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            s3uploader: None,
            gcs: None,
            azure: None,
            tenant_prefix: false,
            partition_by: PartitionBy::Hour,
            target_size: ByteSize(64 << 20),
            max_age: Duration::from_secs(60),
            max_open_files: 64,
            max_open_memory: None,
            promote: Vec::new(),
            compression_level: 1,
            delta_encodings: true,
            sort_by: Vec::new(),
            spool_directory: None,
            max_spool_size: ByteSize(1 << 30),
            num_uploads: 2,
            timeout: Duration::from_secs(120),
            retry_on_failure: Retry::default(),
            sending_queue: SendingQueue::default(),
            tls: ClientTls::default(),
            marshaler: None,
            encoding: None,
            resource_attrs_to_s3: None,
        }
    }
}

/// How tables are divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartitionBy {
    /// `dt=2026-11-21/hour=14/`
    #[default]
    Hour,
    /// `dt=2026-11-21/`
    Day,
    /// Not at all.
    None,
}

/// An attribute with a column of its own.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Promote {
    /// The attribute's key.
    pub attribute: String,
    /// Where it is looked for; absent: the resource.
    pub from: PromoteFrom,
    /// What the column holds; absent: strings.
    #[serde(rename = "type")]
    pub column_type: PromoteType,
    /// The column's name; absent: the key, with `_` for what is no letter or digit.
    pub column: Option<String>,
}

impl Promote {
    /// The name of its column.
    pub fn column_name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        match &self.column {
            Some(column) => column.clone(),
            None => self.attribute.chars().map(plain).collect(),
        }
    }
}

/// Where a promoted attribute is looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PromoteFrom {
    /// The resource.
    #[default]
    Resource,
    /// The instrumentation scope.
    Scope,
    /// The log record, span or data point.
    #[serde(alias = "attributes")]
    Record,
}

/// What a promoted column holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PromoteType {
    /// Strings.
    #[default]
    String,
    /// 64-bit integers.
    Int,
    /// Doubles.
    Double,
    /// Booleans.
    Bool,
}

/// Reads a `parquet` exporter.
pub(super) fn exporter(node: &Node, path: &str, report: &mut Report) -> Option<ParquetExporter> {
    let mut node = node.clone();
    node.bare_as_empty(&["sending_queue"]);
    let mut scope = Scope {
        node: &node,
        path,
        report,
    };
    let mut exporter: ParquetExporter = scope.decode()?;
    check_target(&mut exporter, &mut scope);
    exporter.tls.check(&mut scope, &["tls"]);
    exporter.retry_on_failure.check(&mut scope);
    exporter.sending_queue.check(&mut scope);
    check_files(&exporter, &mut scope);
    check_promoted(&exporter, &mut scope);
    check_sorted(&exporter, &mut scope);
    let format = "files are Parquet";
    scope.without_effect(&[
        (&["marshaler"], format),
        (&["encoding"], format),
        (
            &["sending_queue", "batch"],
            "files are cut by target_size and max_age",
        ),
        (
            &["sending_queue", "num_consumers"],
            "uploads under way are set by num_uploads",
        ),
    ]);
    Some(exporter)
}

fn check_target(exporter: &mut ParquetExporter, scope: &mut Scope<'_>) {
    let places = [
        ("path", !exporter.path.as_os_str().is_empty()),
        ("s3uploader", exporter.s3uploader.is_some()),
        ("gcs", exporter.gcs.is_some()),
        ("azure", exporter.azure.is_some()),
    ];
    let written: Vec<&str> = places
        .iter()
        .filter_map(|(key, is_written)| is_written.then_some(*key))
        .collect();
    match written[..] {
        [] => scope.error(
            &[],
            "says nowhere to write to; write path: DIRECTORY, s3uploader: {region: REGION, s3_bucket: BUCKET}, gcs: {bucket: BUCKET} or \
             azure: {account: ACCOUNT, container: CONTAINER}",
        ),
        [first, .., last] => scope.error(
            &[first],
            format!("files go to one place; remove {first} or {last}"),
        ),
        [_] => {}
    }
    if let Some(s3) = &mut exporter.s3uploader {
        s3.check(scope);
    }
    if let Some(gcs) = &mut exporter.gcs {
        gcs.check(scope);
    }
    if let Some(azure) = &mut exporter.azure {
        azure.check(scope);
    }
    scope.without_effect(&[(&["resource_attrs_to_s3"], "resource attributes are columns")]);
}

/// The URL of a store, with its scheme; `None` where none is written.
fn endpoint(written: &mut Option<String>, disable_ssl: bool, key: &str, scope: &mut Scope<'_>) {
    let Some(endpoint) = written.take().filter(|endpoint| !endpoint.trim().is_empty()) else {
        return;
    };
    let endpoint = match (endpoint.contains("://"), disable_ssl) {
        (true, _) => endpoint,
        (false, true) => format!("http://{endpoint}"),
        (false, false) => format!("https://{endpoint}"),
    };
    check_endpoint(scope, key, &endpoint, false);
    *written = Some(endpoint);
}

/// What uploaders of other exporters compress whole objects with.
fn check_compression(name: Option<&str>, key: &str, scope: &mut Scope<'_>) {
    if !matches!(name, None | Some("" | "none")) {
        scope.error(
            &[key, "compression"],
            "the pages of Parquet files are zstd already; remove it",
        );
    }
}

fn check_files(exporter: &ParquetExporter, scope: &mut Scope<'_>) {
    let target = exporter.target_size.0;
    if !(MIN_TARGET_BYTES..=MAX_TARGET_BYTES).contains(&target) {
        scope.error(
            &["target_size"],
            "must be from 64KiB to 512MiB; remove it to use 64MiB",
        );
    }
    if exporter.max_spool_size.0 < target.saturating_mul(2) {
        scope.error(&["max_spool_size"], "must be at least twice target_size");
    }
    if exporter
        .max_open_memory
        .is_some_and(|bytes| bytes.0 < MIN_OPEN_BYTES)
    {
        scope.error(
            &["max_open_memory"],
            "must be at least 8MiB; remove it to use a part of the memory limit",
        );
    }
    if exporter.max_age.is_zero() {
        scope.error(&["max_age"], "must be longer than 0; remove it to use 60s");
    }
    for (key, value) in [
        ("max_open_files", exporter.max_open_files),
        ("num_uploads", exporter.num_uploads),
    ] {
        if value == 0 {
            scope.error(&[key], "must be at least 1");
        }
    }
    if !(1..=22).contains(&exporter.compression_level) {
        scope.error(
            &["compression_level"],
            "must be from 1 to 22; 1 is right for telemetry",
        );
    }
    if exporter.spool_directory.is_some() && exporter.sending_queue.durable().is_some() {
        scope.error(
            &["spool_directory"],
            "files wait in the directory of the queue, which sending_queue.storage names; remove one of the two",
        );
    }
}

fn check_promoted(exporter: &ParquetExporter, scope: &mut Scope<'_>) {
    // Most engines take names that differ in case for the same.
    let directories = [
        ("tenant", exporter.tenant_prefix),
        ("dt", exporter.partition_by != PartitionBy::None),
        ("hour", exporter.partition_by == PartitionBy::Hour),
    ];
    let mut names: Vec<String> = Vec::new();
    for promote in &exporter.promote {
        let name = promote.column_name();
        if promote.attribute.is_empty() || name.is_empty() {
            scope.error(&["promote"], "every entry needs attribute: KEY");
        } else if let Some(other) = names.iter().find(|other| other.eq_ignore_ascii_case(&name)) {
            let both = match *other == name {
                true => format!("two columns are called {name}"),
                false => format!("{other} and {name} are one name to most engines"),
            };
            scope.error(
                &["promote"],
                format!("{both}; give one of them another name with column: NAME"),
            );
        } else if directories
            .iter()
            .any(|(directory, is_there)| *is_there && directory.eq_ignore_ascii_case(&name))
        {
            scope.error(
                &["promote"],
                format!(
                    "engines read the column {name} from the names of directories, in the place of this one; give it another name with \
                     column: NAME"
                ),
            );
        }
        names.push(name);
    }
    #[cfg(feature = "parquet")]
    for table in sluice_parquet::Table::ALL {
        let schema = table.schema(&sluice_parquet::FileSettings::default());
        for field in schema.fields() {
            if let Some(name) = names.iter().find(|name| name.eq_ignore_ascii_case(field.name())) {
                scope.error(
                    &["promote"],
                    format!(
                        "{name} is a column of the table {} already; give the promoted one another name with column: NAME",
                        table.name()
                    ),
                );
                return;
            }
        }
    }
}

/// What rows are sorted by is a column of some table, and one whose values have an order.
fn check_sorted(exporter: &ParquetExporter, scope: &mut Scope<'_>) {
    #[cfg(feature = "parquet")]
    {
        let promoted: Vec<String> = exporter.promote.iter().map(Promote::column_name).collect();
        let sortable: Vec<String> = sluice_parquet::Table::ALL
            .into_iter()
            .flat_map(sluice_parquet::Table::sortable_columns)
            .chain(promoted)
            .collect();
        if let Some(unknown) = exporter.sort_by.iter().find(|name| !sortable.contains(name)) {
            scope.error(
                &["sort_by"],
                format!(
                    "{unknown} is no column of single values in any table; name such a column of docs/parquet-schema.md, or a promoted one, as in sort_by: \
                     [service_name, timestamp]"
                ),
            );
        }
    }
    let has_twice = |(at, name): (usize, &String)| exporter.sort_by[..at].contains(name);
    if exporter.sort_by.iter().enumerate().any(has_twice) {
        scope.error(&["sort_by"], "names a column twice; remove one of them");
    }
}
