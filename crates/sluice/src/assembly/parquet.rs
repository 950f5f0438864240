//! Settings of the `parquet` exporter to the exporter, and to its place in each pipeline.

use std::path::PathBuf;

use sluice_journal::{Cursor, Limits, directory_of, escape};
use sluice_parquet::{
    ColumnType, Delivery, Feed, FileSettings, LayoutSettings, Level, ParquetExporter, ParquetExporterOptions,
    PartitionBy, Promotion, S3Settings, Target,
};
use sluice_telemetry::Registry;

use super::exporters::{client_tls, retry, timeout};
use crate::settings::{self, ComponentId, Extension, Pipeline, Settings};

/// Of a queue in memory, this part may be in files that are not at the destination yet; the rest is for what comes in
/// meanwhile.
const QUEUE_PART: u64 = 2;

/// Without a limit of its own, a queue in memory may hold this part of the memory budget for files.
const BUDGET_PART: u64 = 4;

/// Of a queue on disk, this much may be in files that are not at the destination yet: some 200 MB of Parquet, and what is
/// read again after a crash.
const DURABLE_BYTES: u64 = 4 << 30;

/// And so many requests: the queue remembers some 200 bytes of each.
const DURABLE_REQUESTS: u64 = 200_000;

pub(super) fn exporter(
    id: &ComponentId,
    exporter: &settings::ParquetExporter,
    registry: &Registry,
) -> Result<ParquetExporter, String> {
    let options = ParquetExporterOptions {
        target: target(exporter),
        layout: LayoutSettings {
            partition_by: match exporter.partition_by {
                settings::PartitionBy::Hour => PartitionBy::Hour,
                settings::PartitionBy::Day => PartitionBy::Day,
                settings::PartitionBy::None => PartitionBy::None,
            },
            target_bytes: exporter.target_size.0,
            max_age: exporter.max_age,
            max_open_files: exporter.max_open_files,
            max_open_bytes: usize::try_from(exporter.max_open_memory.0).unwrap_or(usize::MAX),
            file: FileSettings {
                promotions: exporter.promote.iter().map(promotion).collect(),
                zstd_level: exporter.compression_level,
                delta_encodings: exporter.delta_encodings,
                ..Default::default()
            },
        },
        max_uploads: exporter.num_uploads,
        max_spool_bytes: exporter.max_spool_size.0,
        retry: retry(&exporter.retry_on_failure),
    };
    ParquetExporter::new(&id.to_string(), options, registry).map_err(|error| error.to_string())
}

fn target(exporter: &settings::ParquetExporter) -> Target {
    let Some(s3) = &exporter.s3uploader else {
        return Target::Directory(exporter.path.clone());
    };
    let secret =
        |secret: &Option<sluice_config::Secret>| secret.as_ref().map(|secret| secret.expose().to_owned());
    Target::S3(Box::new(S3Settings {
        region: s3.region.clone(),
        bucket: s3.s3_bucket.clone(),
        prefix: s3.s3_prefix.clone(),
        endpoint: s3.endpoint.clone(),
        force_path_style: s3.s3_force_path_style,
        access_key_id: secret(&s3.access_key_id),
        secret_access_key: secret(&s3.secret_access_key),
        session_token: secret(&s3.session_token),
        role_arn: s3.role_arn.clone(),
        storage_class: s3.storage_class.clone(),
        timeout: timeout(exporter.timeout),
        tls: client_tls(&exporter.tls),
    }))
}

fn promotion(promote: &settings::Promote) -> Promotion {
    Promotion {
        attribute: promote.attribute.clone(),
        level: match promote.from {
            settings::PromoteFrom::Resource => Level::Resource,
            settings::PromoteFrom::Scope => Level::Scope,
            settings::PromoteFrom::Record => Level::Record,
        },
        column_type: match promote.column_type {
            settings::PromoteType::String => ColumnType::String,
            settings::PromoteType::Int => ColumnType::Int,
            settings::PromoteType::Double => ColumnType::Double,
            settings::PromoteType::Bool => ColumnType::Bool,
        },
        column: promote.column_name(),
    }
}

/// The exporter's place in a pipeline: its spool, and how much of the queue may be in files.
pub(super) fn open(
    built: &ParquetExporter,
    settings: &Settings,
    pipeline: &Pipeline,
    id: &ComponentId,
    limits: Limits,
    budget_bytes: u64,
    (cursor, registry): (Cursor, &Registry),
) -> Result<Delivery, String> {
    let Some(settings::Exporter::Parquet(exporter)) = settings.exporters.get(id) else {
        return Err(format!("{id} is no parquet exporter"));
    };
    let name = pipeline.id.to_string();
    let storage = pipeline
        .storage
        .as_ref()
        .and_then(|id| settings.extensions.get(id));
    let half =
        |limit: Option<u64>, otherwise: u64| limit.map_or(otherwise, |limit| (limit / QUEUE_PART).max(1));
    let feed = match storage {
        Some(Extension::FileStorage(storage)) => Feed {
            // What is known of the journal's numbers goes where the journal goes.
            spool: directory_of(&storage.directory, &name)
                .join("parquet")
                .join(escape(&id.to_string())),
            numbers_go_on: true,
            max_bytes: half(limits.bytes, DURABLE_BYTES),
            max_items: half(limits.items, u64::MAX),
            max_requests: half(limits.requests, DURABLE_REQUESTS),
        },
        _ => Feed {
            spool: spool_in(exporter)
                .join(escape(&id.to_string()))
                .join(escape(&name)),
            numbers_go_on: false,
            max_bytes: half(limits.bytes, budget_bytes / BUDGET_PART),
            max_items: half(limits.items, u64::MAX),
            max_requests: half(limits.requests, u64::MAX),
        },
    };
    built
        .open(cursor, feed, registry)
        .map_err(|error| error.to_string())
}

/// The directory of spools, when the queue is in memory.
fn spool_in(exporter: &settings::ParquetExporter) -> PathBuf {
    match &exporter.spool_directory {
        Some(directory) => directory.clone(),
        // On the file system of the files, so that they need not be copied; readers look into the tables' directories.
        None if exporter.s3uploader.is_none() => exporter.path.join(".spool"),
        None => std::env::temp_dir().join("sluice-spool"),
    }
}
