//! Settings of remote write to its exporter and its receiver.

use std::path::PathBuf;
use std::sync::Arc;

use sluice_aws::{Signer, SignerSettings};
use sluice_client as client;
use sluice_journal::{Disk, SyncPolicy, directory_of, escape};
use sluice_payload::Tenants;
use sluice_pipeline::Exporter;
use sluice_relabel::Rules;
use sluice_remote_write::{
    EncoderSettings, Format, LanesFile, Mapping, Promote, ReceiverSettings, RemoteWriteExporter,
    RemoteWriteExporterOptions, Strategy, TenantHeader, TotalsFile,
};
use sluice_server::{BodyLimits, ConnectionSettings, ServerTls, Shedder, Tenancy};
use sluice_telemetry::Registry;

use super::exporters::{client_tls, credentials, headers, timeout};
use super::receivers::{HTTP_IDLE, authenticator, response_headers, server_tls};
use super::storage::sync_policy;
use crate::settings::{
    self, ComponentId, Extension, FileStorage, ProtobufMessage, Settings, TranslationStrategy,
};

/// The listener of a receiver to be.
pub(super) struct Listening {
    pub tls: Option<ServerTls>,
    pub connection: ConnectionSettings,
    pub service: ReceiverSettings,
}

pub(super) fn listening(
    id: &ComponentId,
    receiver: &settings::RemoteWriteReceiver,
    tenancy: Option<Tenancy>,
    shedder: Option<&Shedder>,
    settings: &Settings,
) -> Result<Listening, String> {
    let defaults = ConnectionSettings::default();
    Ok(Listening {
        tls: receiver
            .tls
            .as_ref()
            .map(|tls| server_tls(tls, &[b"h2", b"http/1.1"]))
            .transpose()?,
        connection: ConnectionSettings {
            header_timeout: receiver.read_header_timeout.unwrap_or(defaults.header_timeout),
            idle_timeout: Some(receiver.idle_timeout.unwrap_or(HTTP_IDLE)),
            ..defaults
        },
        service: ReceiverSettings {
            id: id.to_string(),
            limits: BodyLimits {
                max_bytes: receiver.max_request_body_size.0,
                ..Default::default()
            },
            authenticator: authenticator(receiver.auth.as_ref(), settings)?,
            tenancy,
            shedder: shedder.cloned(),
            response_headers: response_headers(&receiver.response_headers)?,
        },
    })
}

pub(super) fn exporter(
    id: &str,
    exporter: &settings::RemoteWriteExporter,
    settings: &Settings,
    egress: &client::EgressPool,
    tenants: &Tenants,
    registry: &Registry,
) -> Result<Arc<dyn Exporter>, String> {
    let lanes = exporter.remote_write_queue.num_consumers;
    let options = RemoteWriteExporterOptions {
        endpoint: exporter.endpoint.trim().to_owned(),
        shard_endpoints: exporter
            .shard_endpoints
            .iter()
            .map(|endpoint| endpoint.trim().to_owned())
            .collect(),
        tls: client_tls(&exporter.tls),
        headers: headers(&exporter.headers, None),
        tenant_header: exporter.tenant_header.as_ref().map(|name| TenantHeader {
            name: name.clone(),
            default: exporter.default_tenant.clone(),
            tenants: tenants.clone(),
        }),
        auth: credentials(exporter.auth.as_ref(), settings)?,
        signer: signer(exporter.auth.as_ref(), settings)?,
        egress: egress.clone(),
        timeout: timeout(exporter.timeout),
        http1: client::Http1Settings {
            max_connections: lanes,
            idle_timeout: exporter.idle_conn_timeout,
            ..Default::default()
        },
        encoder: EncoderSettings {
            format: match (exporter.protobuf_message, exporter.zstd()) {
                (ProtobufMessage::V2, _) => Format::V2,
                (ProtobufMessage::V1, true) => Format::V1Zstd,
                (ProtobufMessage::V1, false) => Format::V1,
            },
            mapping: mapping(exporter),
            lanes,
            max_body_bytes: exporter.max_batch_size_bytes,
            metadata: exporter.send_metadata,
            max_delta_series: exporter.delta_to_cumulative.map_or(0, |delta| delta.max_streams),
            totals: beside_queue(id, settings, "totals").map(|(path, storage)| TotalsFile {
                path,
                synced: sync_policy(storage) == SyncPolicy::Group,
                filesystem: Arc::new(Disk),
            }),
            relabel: Rules::new(exporter.write_relabel_configs.clone()).map_err(|error| error.to_string())?,
        },
        lanes: beside_queue(id, settings, "lanes").map(|(path, _)| LanesFile {
            path,
            filesystem: Arc::new(Disk),
        }),
        ..Default::default()
    };
    let exporter = RemoteWriteExporter::new(id, options, registry).map_err(|error| error.to_string())?;
    Ok(Arc::new(exporter))
}

/// Where a file of an exporter goes that a restart goes on with: beside the queue that it reads, of the first of its pipelines that has one on a disk. That is locked, and what
/// is in the file goes with it.
fn beside_queue<'s>(id: &str, settings: &'s Settings, extension: &str) -> Option<(PathBuf, &'s FileStorage)> {
    let has_exporter = |pipeline: &&settings::Pipeline| {
        pipeline
            .exporters
            .iter()
            .any(|exporter| exporter.to_string() == id)
    };
    let mut pipelines = settings.pipelines.iter().filter(has_exporter);
    let (pipeline, storage) = pipelines.find_map(|pipeline| Some((pipeline, pipeline.storage.as_ref()?)))?;
    let Some(Extension::FileStorage(storage)) = settings.extensions.get(storage) else {
        return None;
    };
    let queue = directory_of(&storage.directory, &pipeline.id.to_string());
    let file = queue
        .join("remote-write")
        .join(format!("{}.{extension}", escape(id)));
    Some((file, storage))
}

/// What signs the requests, where that is how they are authenticated.
fn signer(
    auth: Option<&settings::Auth>,
    settings: &Settings,
) -> Result<Option<Arc<dyn client::Sign>>, String> {
    let extension = auth.and_then(|auth| settings.extensions.get(&auth.authenticator));
    let Some(Extension::SigV4Auth(sigv4)) = extension else {
        return Ok(None);
    };
    let signer = Signer::new(SignerSettings {
        region: sigv4.region.clone(),
        service: sigv4.service.clone(),
    });
    Ok(Some(Arc::new(
        signer.map_err(|error| format!("sigv4auth: {error}"))?,
    )))
}

fn mapping(exporter: &settings::RemoteWriteExporter) -> Mapping {
    let conversion = exporter.resource_to_telemetry_conversion;
    let promote = if conversion.enabled {
        let service = ["service.name", "service.namespace", "service.instance.id"];
        let excluded = if conversion.exclude_service_attributes {
            &service[..]
        } else {
            &[]
        };
        Promote::AllBut(excluded.iter().map(|key| (*key).to_owned()).collect())
    } else if exporter.promote_resource_attributes.is_empty() {
        Promote::None
    } else {
        Promote::Listed(exporter.promote_resource_attributes.clone())
    };
    Mapping {
        strategy: match exporter.translation_strategy {
            None | Some(TranslationStrategy::UnderscoreEscapingWithSuffixes) => {
                Strategy::UnderscoreEscapingWithSuffixes
            }
            Some(TranslationStrategy::UnderscoreEscapingWithoutSuffixes) => {
                Strategy::UnderscoreEscapingWithoutSuffixes
            }
            Some(TranslationStrategy::NoUtf8EscapingWithSuffixes) => Strategy::NoUtf8EscapingWithSuffixes,
            Some(TranslationStrategy::NoTranslation) => Strategy::NoTranslation,
        },
        namespace: exporter.namespace.clone(),
        external_labels: exporter
            .external_labels
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        promote,
        target_info: exporter.target_info.enabled,
        keep_identifying_attributes: exporter.keep_identifying_resource_attributes,
        scope_labels: !exporter.disable_scope_info,
        custom_buckets: exporter.convert_histograms_to_nhcb,
        delta_to_cumulative: exporter.delta_to_cumulative.is_some(),
        ..Mapping::default()
    }
}
