//! A loaded document, understood: typed settings for the assembly.
//!
//! [`Settings::from_document`] decodes every component, follows every reference, and reports everything it finds
//! wrong at once. What comes out holds only what is used: components that some pipeline (or, for extensions,
//! `service.extensions`) names. Key names and meanings are the Collector's; where a key is absent, the default is ours.
//!
//! One file per subject: `receivers`, `processors`, `exporters` (OTLP), `loadbalancing`, `outputs` (file, debug), `queue`,
//! `remote_write` (Prometheus), `parquet`, `extensions`, `network` (TLS, headers, addresses), `endpoint` (where exporters send), `tenant`,
//! `admission`, `service` (our own telemetry), `pipelines` (references), `spellings` (of older and newer Collectors),
//! `catalogue` (which components there are, and advice on those that are not).

mod admission;
mod catalogue;
mod endpoint;
mod exporters;
mod extensions;
mod htpasswd;
mod id;
mod loadbalancing;
mod network;
mod outputs;
mod parquet;
mod pipelines;
mod processors;
mod queue;
mod receivers;
mod redact;
mod remote_write;
mod scope;
mod service;
mod spellings;
mod tenant;

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_config::{Document, Node, Problem, Problems, Report, nearest};
use sluice_payload::Signal;

pub use admission::{Admission, AdmissionMode, AdmissionPreset};
pub use catalogue::{ComponentInfo, Kind, Stability, components};
pub use exporters::{
    Balance, BodyEncoding, ClientKeepalive, Exporter, HttpProtocol, OtlpGrpcExporter, OtlpHttpExporter,
    RoutingKey,
};
pub use extensions::{
    BasicAuth, BasicClient, BearerTokenAuth, Extension, FileStorage, HealthBodies, HealthCheck, SigV4Auth,
    Zpages,
};
pub use htpasswd::Htpasswd;
pub use id::ComponentId;
pub use network::{
    Auth, ClientTls, Compression, CompressionParams, Headers, ListenAddress, Passthrough, ServerTls,
    TlsVersion,
};
pub use outputs::{DebugExporter, FileCompression, FileExporter, FileFormat, Rotation, Verbosity};
#[cfg(feature = "parquet")]
pub(crate) use parquet::MIN_OPEN_BYTES;
pub use parquet::{
    Azure, AzureAuth, AzureAuthType, Gcs, ParquetExporter, PartitionBy, Promote, PromoteFrom, PromoteType,
    S3Uploader,
};
pub use pipelines::{Ack, Pipeline};
pub use processors::{Batch, MemoryLimiter, Processor};
pub use queue::{Batching, QueueBatch, Retry, SendingQueue, Sizer};
pub use receivers::{
    Cors, GrpcServer, HttpServer, JsonMode, KeepaliveParameters, KeepalivePolicy, OtlpReceiver, Receiver,
    ServerKeepalive, Transport, Validation,
};
pub use redact::{is_secret, print_config};
pub use remote_write::{
    DeltaToCumulative, ProtobufMessage, RemoteWriteExporter, RemoteWriteQueue, RemoteWriteReceiver,
    ResourceToTelemetry, Switch, TranslationStrategy,
};
pub use service::{LogEncoding, LogLevel, Logs, Metrics, Telemetry};
pub use sluice_memory::MemoryLimit;
pub use tenant::TenantFrom;

/// Everything the assembly needs to know, checked.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The receivers that pipelines use.
    pub receivers: BTreeMap<ComponentId, Receiver>,
    /// The processors that pipelines use.
    pub processors: BTreeMap<ComponentId, Processor>,
    /// The exporters that pipelines use.
    pub exporters: BTreeMap<ComponentId, Exporter>,
    /// The extensions that `service.extensions` names.
    pub extensions: BTreeMap<ComponentId, Extension>,
    /// The pipelines, in the order written.
    pub pipelines: Vec<Pipeline>,
    /// The memory budget that `memory_limiter` asks for (the smallest, of several); `None`: ours.
    pub memory: Option<MemoryLimit>,
    /// How often that one wants memory to be measured.
    pub memory_check_interval: Option<Duration>,
    /// When the gateway is under pressure, and what it does then.
    pub admission: Admission,
    /// How sluice speaks about itself.
    pub telemetry: Telemetry,
    /// What the operator should know: for `validate` to print and the log to say at start.
    pub warnings: Vec<Problem>,
}

impl Settings {
    /// Understands a document.
    ///
    /// # Errors
    /// Every unknown key, wrong value, undefined reference and missing part, each with its place and what to do.
    pub fn from_document(document: &Document) -> Result<Self, Problems> {
        let mut report = Report {
            warnings: document.warnings.clone(),
            ..Report::default()
        };
        let root = &document.root;
        if let (Some(_), Some(kind)) = (root.get("apiVersion"), root.get("kind")) {
            let message = "this is a Kubernetes object, not a configuration; write what stands in it, under a key of data or under \
                           spec.config, into a file of its own";
            return Err(Problem::at(&kind.span, message).into());
        }
        check_keys(
            root,
            "",
            &[
                "receivers",
                "processors",
                "exporters",
                "connectors",
                "extensions",
                "service",
            ],
            &mut report,
        );
        let mut settings = Settings::default();
        let service = root.get("service");
        if let Some(service) = service {
            check_keys(
                service,
                "service",
                &["admission", "extensions", "pipelines", "telemetry"],
                &mut report,
            );
        }
        if let Some(telemetry) = service.and_then(|service| service.get("telemetry")) {
            settings.telemetry = service::telemetry(telemetry, &mut report);
        }
        let plan = pipelines::read(root, &mut report);
        for kind in Kind::ALL {
            settings.read_section(kind, root, &plan, &mut report);
        }
        if let Some(admission) = service.and_then(|service| service.get("admission")) {
            let has_shares = settings.receivers.values().any(Receiver::has_shares);
            settings.admission = admission::admission(admission, has_shares, &mut report);
        }
        pipelines::connect(&mut settings, root, plan, &mut report);
        settings.warnings = report.finish()?;
        Ok(settings)
    }

    /// How an exporter batches what a pipeline gives it: by its own `sending_queue.batch`, else as the pipeline's
    /// `batch` processor says, else by default.
    pub fn batching(&self, pipeline: &Pipeline, exporter: &ComponentId) -> Batching {
        let own = self
            .exporters
            .get(exporter)
            .and_then(Exporter::queue)
            .and_then(SendingQueue::batching);
        let processor = || {
            pipeline
                .processors
                .iter()
                .find_map(|id| match self.processors.get(id) {
                    Some(Processor::Batch(batch)) => Some(batch.batching()),
                    _ => None,
                })
        };
        own.or_else(processor).unwrap_or_default()
    }

    /// The signals a receiver or an exporter is used for.
    pub fn signals_of(&self, id: &ComponentId) -> Vec<Signal> {
        let uses = |pipeline: &&Pipeline| pipeline.receivers.contains(id) || pipeline.exporters.contains(id);
        let mut signals: Vec<Signal> = self
            .pipelines
            .iter()
            .filter(uses)
            .map(|pipeline| pipeline.signal)
            .collect();
        signals.sort_unstable();
        signals.dedup();
        signals
    }

    /// Decodes every component of a section; keeps those that are used.
    fn read_section(&mut self, kind: Kind, root: &Node, plan: &pipelines::Plan, report: &mut Report) {
        let section = kind.section();
        let Some(node) = root.get(section).filter(|node| !node.is_null()) else {
            return;
        };
        let Some(mapping) = node.as_mapping() else {
            report.error(
                &node.span,
                format!(
                    "{section}: expected a map of ids to settings; found {}",
                    node.value.kind()
                ),
            );
            return;
        };
        for entry in mapping.entries() {
            let path = format!("{section}.{}", entry.key);
            let id = match ComponentId::parse(&entry.key) {
                Ok(id) => id,
                Err(message) => {
                    report.error(&entry.key_span, format!("{section}: {message}"));
                    continue;
                }
            };
            let used = plan.uses(kind, &id);
            let Some(info) = catalogue::find(kind, &id.kind) else {
                let message = unknown_type(kind, &id, &path);
                if used {
                    report.error(&entry.key_span, message);
                } else {
                    report.warn(
                        &entry.key_span,
                        format!("{message} (nothing uses it, so it is left out)"),
                    );
                }
                continue;
            };
            let mut own = Report::default();
            self.read_component(info, &id, &entry.value, &path, used, &mut own);
            if used {
                own.errors
                    .into_iter()
                    .for_each(|problem| report.push_error(problem));
                report.warnings.extend(own.warnings);
            } else {
                // Charts merge in definitions that nobody uses; a mistake in one must not keep the gateway down.
                for mut problem in own.errors {
                    problem
                        .message
                        .push_str(" (nothing uses this component, so it is left out)");
                    report.warnings.push(problem);
                }
            }
        }
    }

    fn read_component(
        &mut self,
        info: &ComponentInfo,
        id: &ComponentId,
        node: &Node,
        path: &str,
        used: bool,
        report: &mut Report,
    ) {
        let nop = |report: &mut Report| check_keys(node, path, &[], report);
        match (info.kind, info.name) {
            (Kind::Receiver, name) => {
                let receiver = match name {
                    "otlp" => receivers::otlp(node, path, report).map(Receiver::Otlp),
                    "prometheusremotewrite" => {
                        remote_write::receiver(node, path, report).map(Receiver::RemoteWrite)
                    }
                    _ => nop(report).then_some(Receiver::Nop),
                };
                keep(&mut self.receivers, id, receiver, used);
            }
            (Kind::Processor, name) => {
                let processor = match name {
                    "batch" => processors::batch(node, path, report).map(Processor::Batch),
                    _ => processors::memory_limiter(node, path, report).map(Processor::MemoryLimiter),
                };
                keep(&mut self.processors, id, processor, used);
            }
            (Kind::Exporter, name) => {
                let exporter = match name {
                    "otlp" => exporters::otlp_grpc(node, path, report).map(Exporter::OtlpGrpc),
                    "loadbalancing" => loadbalancing::read(node, path, report).map(Exporter::OtlpGrpc),
                    "otlphttp" => exporters::otlp_http(node, path, report).map(Exporter::OtlpHttp),
                    "file" => outputs::file(node, path, report).map(Exporter::File),
                    "debug" => outputs::debug(node, path, report).map(Exporter::Debug),
                    "prometheusremotewrite" => {
                        remote_write::exporter(node, path, report).map(Exporter::RemoteWrite)
                    }
                    "parquet" => {
                        parquet::exporter(node, path, report).map(|it| Exporter::Parquet(Box::new(it)))
                    }
                    _ => nop(report).then_some(Exporter::Nop),
                };
                keep(&mut self.exporters, id, exporter, used);
            }
            (Kind::Extension, name) => {
                let extension = match name {
                    "health_check" => {
                        extensions::health_check(node, path, report).map(Extension::HealthCheck)
                    }
                    "zpages" => extensions::zpages(node, path, report).map(Extension::Zpages),
                    "pprof" => extensions::pprof(node, path, report).map(|()| Extension::Pprof),
                    "memory_ballast" => {
                        extensions::memory_ballast(node, path, report);
                        Some(Extension::MemoryBallast)
                    }
                    "basicauth" => extensions::basicauth(node, path, report).map(Extension::BasicAuth),
                    "bearertokenauth" => {
                        extensions::bearertokenauth(node, path, report).map(Extension::BearerTokenAuth)
                    }
                    "sigv4auth" => extensions::sigv4auth(node, path, report).map(Extension::SigV4Auth),
                    _ => extensions::file_storage(node, path, report).map(Extension::FileStorage),
                };
                keep(&mut self.extensions, id, extension, used);
            }
            (Kind::Connector, _) => {}
        }
    }
}

fn keep<T>(map: &mut BTreeMap<ComponentId, T>, id: &ComponentId, component: Option<T>, used: bool) {
    if let Some(component) = component.filter(|_| used) {
        map.insert(id.clone(), component);
    }
}

fn unknown_type(kind: Kind, id: &ComponentId, path: &str) -> String {
    let word = kind.singular();
    let name = &id.kind;
    if let Some(advice) = catalogue::advice(kind, name) {
        return format!("{path}: the {word} {name:?} is not here: {advice}");
    }
    let known: Vec<&str> = catalogue::names(kind).collect();
    let guess = match nearest(name, known.iter().copied()) {
        Some(guess) => format!("did you mean {guess:?}?"),
        None => "use another one, or run a Collector beside sluice for it.".to_owned(),
    };
    format!(
        "{path}: there is no {word} {name:?}; {guess} Known {}: {}",
        kind.section(),
        known.join(", ")
    )
}

/// Notes every key of a map that is not known; true when there was none.
fn check_keys(node: &Node, path: &str, known: &[&str], report: &mut Report) -> bool {
    if node.is_null() {
        return true;
    }
    let place = if path.is_empty() {
        "the configuration"
    } else {
        path
    };
    let Some(mapping) = node.as_mapping() else {
        report.error(
            &node.span,
            format!("{place}: expected a map; found {}", node.value.kind()),
        );
        return false;
    };
    let mut clean = true;
    for entry in mapping
        .entries()
        .iter()
        .filter(|entry| !known.contains(&entry.key.as_str()))
    {
        clean = false;
        let guess = match nearest(&entry.key, known.iter().copied()) {
            Some(guess) => format!("did you mean {guess:?}?"),
            None => "remove it.".to_owned(),
        };
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        };
        report.error(
            &entry.key_span,
            format!(
                "unknown key {:?} in {place}; {guess} Known keys: {known}",
                entry.key
            ),
        );
    }
    clean
}
