//! Settings of the `parquet` exporter to the exporter, and to its place in each pipeline.

use std::path::PathBuf;

use sluice_config::Secret;
use sluice_journal::{Cursor, Limits, directory_of, escape};
use sluice_memory::Plan;
use sluice_parquet::{
    AzureIdentity, AzureSettings, ColumnType, Delivery, Feed, FileSettings, GcsSettings, LayoutSettings,
    Level, ParquetExporter, ParquetExporterOptions, PartitionBy, Promotion, S3Settings, Target,
};
use sluice_payload::Tenants;
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

/// Where nothing else is said, the files that are written have this part of the memory budget at most, all pipelines together.
const OPEN_PART: u64 = 4;

/// And those of a pipeline so much: more makes row groups no larger.
const MAX_OPEN_BYTES: u64 = 128 << 20;

/// How much memory the files that are written may take: no permit accounts for it, so it is not the receivers'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenFiles {
    /// In each pipeline, for an exporter that does not say.
    default_bytes: u64,
    /// In all pipelines.
    reserved_bytes: u64,
}

impl OpenFiles {
    /// Of a budget of so many bytes.
    pub fn of(budget_bytes: u64, settings: &Settings) -> Self {
        let ids = settings.pipelines.iter().flat_map(|pipeline| &pipeline.exporters);
        let said: Vec<Option<u64>> = ids
            .filter_map(|id| match settings.exporters.get(id) {
                Some(settings::Exporter::Parquet(exporter)) => {
                    Some(exporter.max_open_memory.map(|bytes| bytes.0))
                }
                _ => None,
            })
            .collect();
        let silent = said.iter().filter(|bytes| bytes.is_none()).count() as u64;
        let default_bytes =
            (budget_bytes / OPEN_PART / silent.max(1)).clamp(settings::MIN_OPEN_BYTES, MAX_OPEN_BYTES);
        let bytes = |said: &Option<u64>| said.unwrap_or(default_bytes);
        Self {
            default_bytes,
            reserved_bytes: said.iter().map(bytes).fold(0, u64::saturating_add),
        }
    }

    /// Leaves the receivers the rest, and no less than the least that they have.
    pub fn take_from(self, plan: &mut Plan) {
        let least = plan.floor.min(plan.ceiling);
        let rest = plan.ceiling.saturating_sub(self.reserved_bytes);
        if rest < least {
            tracing::warn!(
                "the files that parquet exporters write may take {} bytes together (max_open_memory, in each pipeline), and the memory limit leaves \
                 {} for them and for requests: raise it (memory_limiter.limit_mib) or lower max_open_memory",
                self.reserved_bytes,
                plan.ceiling
            );
        }
        plan.ceiling = rest.max(least);
    }
}

pub(super) fn exporter(
    id: &ComponentId,
    exporter: &settings::ParquetExporter,
    open_files: OpenFiles,
    registry: &Registry,
) -> Result<ParquetExporter, String> {
    let open_bytes = exporter
        .max_open_memory
        .map_or(open_files.default_bytes, |bytes| bytes.0);
    let options = ParquetExporterOptions {
        target: target(exporter),
        layout: LayoutSettings {
            by_tenant: exporter.tenant_prefix,
            partition_by: match exporter.partition_by {
                settings::PartitionBy::Hour => PartitionBy::Hour,
                settings::PartitionBy::Day => PartitionBy::Day,
                settings::PartitionBy::None => PartitionBy::None,
            },
            target_bytes: exporter.target_size.0,
            max_age: exporter.max_age,
            max_open_files: exporter.max_open_files,
            max_open_bytes: usize::try_from(open_bytes).unwrap_or(usize::MAX),
            file: FileSettings {
                promotions: exporter.promote.iter().map(promotion).collect(),
                zstd_level: exporter.compression_level,
                delta_encodings: exporter.delta_encodings,
                sort_by: exporter.sort_by.clone(),
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
    let (timeout, tls) = (timeout(exporter.timeout), client_tls(&exporter.tls));
    if let Some(s3) = &exporter.s3uploader {
        return Target::S3(Box::new(S3Settings {
            region: s3.region.clone(),
            bucket: s3.s3_bucket.clone(),
            prefix: s3.s3_prefix.clone(),
            endpoint: s3.endpoint.clone(),
            force_path_style: s3.s3_force_path_style,
            access_key_id: exposed(&s3.access_key_id),
            secret_access_key: exposed(&s3.secret_access_key),
            session_token: exposed(&s3.session_token),
            role_arn: s3.role_arn.clone(),
            storage_class: s3.storage_class.clone(),
            timeout,
            tls,
        }));
    }
    if let Some(gcs) = &exporter.gcs {
        return Target::Gcs(Box::new(GcsSettings {
            bucket: gcs.bucket.clone(),
            prefix: gcs.prefix.clone(),
            endpoint: gcs.endpoint.clone(),
            credentials_file: gcs.credentials_file.clone(),
            timeout,
            tls,
        }));
    }
    if let Some(azure) = &exporter.azure {
        return Target::Azure(Box::new(AzureSettings {
            account: azure.account.clone(),
            container: azure.container.clone(),
            prefix: azure.prefix.clone(),
            endpoint: azure.url.clone(),
            identity: identity(&azure.auth),
            timeout,
            tls,
        }));
    }
    Target::Directory(exporter.path.clone())
}

fn exposed(secret: &Option<Secret>) -> Option<String> {
    secret.as_ref().map(|secret| secret.expose().to_owned())
}

/// As whom Azure is used. What the type needs is there: see `AzureAuth::check`.
fn identity(auth: &settings::AzureAuth) -> AzureIdentity {
    use settings::AzureAuthType;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let secret = |secret: &Option<Secret>| exposed(secret).unwrap_or_default();
    match auth.kind {
        // A connection string has become one of the next two.
        None | Some(AzureAuthType::ConnectionString) => AzureIdentity::Environment,
        Some(AzureAuthType::AccountKey) => AzureIdentity::AccountKey(secret(&auth.account_key)),
        Some(AzureAuthType::SasToken) => AzureIdentity::SasToken(secret(&auth.sas_token)),
        Some(AzureAuthType::ServicePrincipal) => AzureIdentity::ServicePrincipal {
            tenant_id: text(&auth.tenant_id),
            client_id: text(&auth.client_id),
            client_secret: secret(&auth.client_secret),
        },
        Some(AzureAuthType::SystemManagedIdentity) => AzureIdentity::ManagedIdentity { client_id: None },
        Some(AzureAuthType::UserManagedIdentity) => AzureIdentity::ManagedIdentity {
            client_id: auth.client_id.clone(),
        },
        Some(AzureAuthType::WorkloadIdentity) => AzureIdentity::WorkloadIdentity {
            tenant_id: auth.tenant_id.clone(),
            client_id: auth.client_id.clone(),
            federated_token_file: auth.federated_token_file.clone(),
        },
    }
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
    (cursor, tenants, registry): (Cursor, &Tenants, &Registry),
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
            tenants: tenants.clone(),
            numbers_go_on: true,
            max_bytes: half(limits.bytes, DURABLE_BYTES),
            max_items: half(limits.items, u64::MAX),
            max_requests: half(limits.requests, DURABLE_REQUESTS),
        },
        _ => Feed {
            spool: spool_in(exporter)
                .join(escape(&id.to_string()))
                .join(escape(&name)),
            tenants: tenants.clone(),
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
        None if !exporter.path.as_os_str().is_empty() => exporter.path.join(".spool"),
        // Any gateway of this machine may have files there.
        None => std::env::temp_dir()
            .join("sluice-spool")
            .join(target(exporter).digits()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use sluice_config::Loader;
    use sluice_memory::{Machine, MemoryLimit};

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Settings with these pipelines of logs.
    fn settings(pipelines: &[&str]) -> Settings {
        let pipelines: Vec<_> = (pipelines.iter().enumerate())
            .map(|(number, exporters)| {
                format!("logs/{number}: {{receivers: [otlp], exporters: [{exporters}]}}")
            })
            .collect();
        let yaml = format!(
            "receivers: {{otlp: {{protocols: {{http: }}}}}}\n\
             exporters:\n  \
               parquet: {{path: /tables}}\n  \
               parquet/more: {{path: /more, max_open_memory: 300MiB}}\n  \
               debug:\n\
             service: {{pipelines: {{{}}}}}\n",
            pipelines.join(", ")
        );
        let document = Loader::new().text("test.yaml", yaml).load().unwrap();
        Settings::from_document(&document).unwrap()
    }

    /// Scenario: tables in one pipeline, in two, beside an exporter that says how much it may take, and in none; a budget of 200 MiB, a
    /// large one, and the smallest.
    /// Guarantees: who does not say gets an equal part of a quarter of the budget, 128 MiB at most and 8 MiB at least; who says gets that;
    /// all of it is taken out of the budget, for each pipeline.
    #[test]
    fn open_files_have_a_part_of_the_budget() {
        for (pipelines, budget_mib, expected_mib) in [
            (&["debug"][..], 200, (50, 0)),
            (&["parquet"], 200, (50, 50)),
            (&["parquet", "parquet, debug"], 200, (25, 50)),
            (&["parquet, parquet/more"], 200, (50, 350)),
            (&["parquet", "parquet/more", "parquet/more"], 200, (50, 650)),
            (&["parquet", "parquet"], 16 << 10, (128, 256)),
            (&["parquet", "parquet"], 8, (8, 16)),
        ] {
            let found = OpenFiles::of(budget_mib * MIB, &settings(pipelines));
            let (default_bytes, reserved_bytes) = (expected_mib.0 * MIB, expected_mib.1 * MIB);
            let expected = OpenFiles {
                default_bytes,
                reserved_bytes,
            };
            assert_eq!(found, expected, "{pipelines:?}");
        }
    }

    /// Scenario: exporters to buckets, that differ in what they write and in where; and to a directory.
    /// Guarantees: in the system's directory for temporary files none finds what another one left for another bucket; one that goes to the
    /// same place does. The directory's spool is in it.
    #[test]
    fn what_was_left_for_a_bucket_goes_to_no_other() {
        let spool = |exporter: &str| {
            let yaml = format!(
                "receivers: {{otlp: {{protocols: {{http: }}}}}}\n\
                 exporters: {{parquet: {{{exporter}}}}}\n\
                 service: {{pipelines: {{logs: {{receivers: [otlp], exporters: [parquet]}}}}}}\n"
            );
            let document = Loader::new().text("test.yaml", yaml).load().unwrap();
            let settings = Settings::from_document(&document).unwrap();
            let Some(settings::Exporter::Parquet(exporter)) = settings.exporters.into_values().next() else {
                panic!("a parquet exporter")
            };
            spool_in(&exporter)
        };
        let one = spool("s3uploader: {s3_bucket: a, s3_prefix: x}");
        assert!(one.starts_with(std::env::temp_dir()));
        assert_eq!(
            one,
            spool("s3uploader: {s3_bucket: a, s3_prefix: x}, max_age: 5s, partition_by: day")
        );
        for other in [
            "s3uploader: {s3_bucket: b, s3_prefix: x}",
            "s3uploader: {s3_bucket: a, s3_prefix: y}",
            "s3uploader: {s3_bucket: a, s3_prefix: x, endpoint: \"http://127.0.0.1:1\"}",
            "gcs: {bucket: a, prefix: x}",
            "azure: {account: a, container: a, prefix: x}",
            "azure: {account: b, container: a, prefix: x}",
        ] {
            assert_ne!(one, spool(other), "{other}");
        }
        assert_eq!(spool("path: /tables"), PathBuf::from("/tables/.spool"));
    }

    /// Scenario: `limit_mib: 256` with one exporter of tables, and with one that is to take more than there is.
    /// Guarantees: budget and open files together stay within the limit; receivers keep the least that they have, no more.
    #[test]
    fn receivers_have_the_rest_of_the_limit() {
        let limit = MemoryLimit::Bytes {
            limit: 256 * MIB,
            spike: 50 * MIB,
        };
        let machine = Machine {
            total: 4096 * MIB,
            ..Machine::default()
        };
        for (exporter, is_enough) in [("parquet", true), ("parquet/more", false)] {
            let mut plan = Plan::new(Some(limit), &machine, 4);
            let open_files = OpenFiles::of(plan.ceiling, &settings(&[exporter]));
            open_files.take_from(&mut plan);
            let all = plan.ceiling + open_files.reserved_bytes;
            assert_eq!(all < plan.limit, is_enough, "{exporter}: {plan:?}");
            assert_eq!(plan.ceiling > plan.floor, is_enough, "{exporter}: {plan:?}");
        }
    }
}
