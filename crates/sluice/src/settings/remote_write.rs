//! The `prometheusremotewrite` exporter and receiver.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use sluice_config::{ByteSize, Node, Report};
use sluice_relabel::{RuleConfig, Rules};

use super::endpoint::check_endpoint;
use super::network::{Auth, ClientTls, Headers, ListenAddress, ServerTls};
use super::queue::{Retry, SendingQueue};
use super::receivers::{DEFAULT_MAX_REQUEST_BYTES, NO_DIALER, NO_METADATA, Transport, check_transport};
use super::scope::Scope;
use super::spellings::{HttpClientKeepalive, HttpServerKeepalive, gather_tls};
use super::tenant::{TenantFrom, check_tenant_header};

/// The `prometheusremotewrite` exporter.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct RemoteWriteExporter {
    /// The whole URL, path included.
    pub endpoint: String,
    /// More URLs: a series always goes to the same one, by its labels. Our own key.
    pub shard_endpoints: Vec<String>,
    /// TLS of `https://` endpoints.
    pub tls: ClientTls,
    /// Headers of every request; those of the protocol cannot be changed.
    pub headers: Headers,
    /// The header that says whose the data is; a request is of one tenant then. Our own key.
    pub tenant_header: Option<String>,
    /// What it says of data that names no tenant. Our own key.
    pub default_tenant: String,
    /// The extension that signs requests.
    pub auth: Option<Auth>,
    /// How long one attempt may take; absent: 30s. Zero: as long as it likes.
    pub timeout: Duration,
    /// What happens after a retryable failure.
    pub retry_on_failure: Retry,
    /// Lanes, and how much waits for them.
    pub remote_write_queue: RemoteWriteQueue,
    /// The queue before this exporter, in sluice's own terms: batching above all.
    pub sending_queue: SendingQueue,
    /// Put before every metric name.
    pub namespace: String,
    /// Labels of every series.
    pub external_labels: BTreeMap<String, String>,
    /// The older way to choose between two of the strategies.
    pub add_metric_suffixes: Option<bool>,
    /// How names are translated; absent: escaped, with suffixes.
    pub translation_strategy: Option<TranslationStrategy>,
    /// All resource attributes as labels.
    pub resource_to_telemetry_conversion: ResourceToTelemetry,
    /// These resource attributes as labels. Prometheus's key.
    pub promote_resource_attributes: Vec<String>,
    /// `target_info` has the attributes that make `job` and `instance` too. Prometheus's key.
    pub keep_identifying_resource_attributes: bool,
    /// The `target_info` series.
    pub target_info: Switch,
    /// No `otel_scope_*` labels.
    pub disable_scope_info: bool,
    /// Whether types, units and help texts are sent.
    pub send_metadata: bool,
    /// A request is cut below this many bytes before compression.
    pub max_batch_size_bytes: usize,
    /// Rules for the labels of every series, external ones included. Prometheus's key.
    pub write_relabel_configs: Vec<RuleConfig>,
    /// Which version of the protocol.
    pub protobuf_message: ProtobufMessage,
    /// Histograms with explicit bounds are sent as native ones with custom buckets. Prometheus's key.
    pub convert_histograms_to_nhcb: bool,
    /// Sums and histograms of delta temporality are added up; absent: they are dropped. Our own key.
    pub delta_to_cumulative: Option<DeltaToCumulative>,
    /// Close a connection that has had no request for this long; absent: 90s. Zero: never.
    pub idle_conn_timeout: Duration,
    compression: Option<String>,
    max_batch_request_parallelism: Option<usize>,
    wal: Option<IgnoredAny>,
    scope_info: Option<IgnoredAny>,
    export_created_metric: Option<Switch>,
    read_buffer_size: Option<IgnoredAny>,
    write_buffer_size: Option<IgnoredAny>,
    max_idle_conns: Option<IgnoredAny>,
    max_idle_conns_per_host: Option<IgnoredAny>,
    max_conns_per_host: Option<IgnoredAny>,
    disable_keep_alives: Option<IgnoredAny>,
    http2_read_idle_timeout: Option<IgnoredAny>,
    http2_ping_timeout: Option<IgnoredAny>,
    proxy_url: Option<String>,
    keepalive: Option<HttpClientKeepalive>,
    compression_params: Option<IgnoredAny>,
    cookies: Option<IgnoredAny>,
    force_attempt_http2: Option<IgnoredAny>,
    middlewares: Option<IgnoredAny>,
}

impl Default for RemoteWriteExporter {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            shard_endpoints: Vec::new(),
            tls: ClientTls::default(),
            headers: Headers::default(),
            tenant_header: None,
            // As in the ledger.
            default_tenant: "default".to_owned(),
            auth: None,
            // Prometheus's remote_timeout.
            timeout: Duration::from_secs(30),
            retry_on_failure: Retry::default(),
            remote_write_queue: RemoteWriteQueue::default(),
            sending_queue: SendingQueue::default(),
            namespace: String::new(),
            external_labels: BTreeMap::new(),
            add_metric_suffixes: None,
            translation_strategy: None,
            resource_to_telemetry_conversion: ResourceToTelemetry::default(),
            promote_resource_attributes: Vec::new(),
            keep_identifying_resource_attributes: false,
            target_info: Switch { enabled: true },
            disable_scope_info: false,
            send_metadata: false,
            // The Collector's.
            max_batch_size_bytes: 3_000_000,
            write_relabel_configs: Vec::new(),
            protobuf_message: ProtobufMessage::V1,
            convert_histograms_to_nhcb: false,
            delta_to_cumulative: None,
            idle_conn_timeout: Duration::from_secs(90),
            compression: None,
            max_batch_request_parallelism: None,
            wal: None,
            scope_info: None,
            export_created_metric: None,
            read_buffer_size: None,
            write_buffer_size: None,
            max_idle_conns: None,
            max_idle_conns_per_host: None,
            max_conns_per_host: None,
            disable_keep_alives: None,
            http2_read_idle_timeout: None,
            http2_ping_timeout: None,
            proxy_url: None,
            keepalive: None,
            compression_params: None,
            cookies: None,
            force_attempt_http2: None,
            middlewares: None,
        }
    }
}

impl RemoteWriteExporter {
    /// Whether bodies are sent under zstd.
    pub fn zstd(&self) -> bool {
        self.compression.as_deref() == Some("zstd")
    }
}

/// `remote_write_queue`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct RemoteWriteQueue {
    /// False: a request is acknowledged only when delivered.
    pub enabled: bool,
    /// How many received requests may wait; absent: what the memory budget allows.
    pub queue_size: Option<u64>,
    /// Lanes: requests under way at once. A series is always in the same one, so that its samples stay in order.
    pub num_consumers: usize,
}

impl Default for RemoteWriteQueue {
    fn default() -> Self {
        Self {
            enabled: true,
            queue_size: None,
            // The Collector's.
            num_consumers: 5,
        }
    }
}

/// `delta_to_cumulative`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct DeltaToCumulative {
    /// Series whose totals are kept; those that come when there are so many are dropped, and counted.
    pub max_streams: usize,
}

impl Default for DeltaToCumulative {
    fn default() -> Self {
        Self {
            // Some 6 MiB: a total takes about 64 bytes.
            max_streams: 100_000,
        }
    }
}

/// `resource_to_telemetry_conversion`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ResourceToTelemetry {
    /// All resource attributes are labels of every series.
    pub enabled: bool,
    /// But those that make `job` and `instance`.
    pub exclude_service_attributes: bool,
}

/// Something that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct Switch {
    /// On.
    pub enabled: bool,
}

impl Default for Switch {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// How names are translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum TranslationStrategy {
    /// Escaped to legacy names, units and types appended.
    UnderscoreEscapingWithSuffixes,
    /// Escaped to legacy names.
    UnderscoreEscapingWithoutSuffixes,
    /// UTF-8 names, units and types appended.
    #[serde(rename = "NoUTF8EscapingWithSuffixes")]
    NoUtf8EscapingWithSuffixes,
    /// Names as they are.
    NoTranslation,
}

/// Which version of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum ProtobufMessage {
    /// 1.0.
    #[default]
    #[serde(rename = "prometheus.WriteRequest", alias = "")]
    V1,
    /// 2.0.
    #[serde(rename = "io.prometheus.write.v2.Request")]
    V2,
}

/// Reads a `prometheusremotewrite` exporter.
pub(super) fn exporter(node: &Node, path: &str, report: &mut Report) -> Option<RemoteWriteExporter> {
    let mut node = node.clone();
    node.bare_as_empty(&["sending_queue", "batch"]);
    node.bare_as_empty(&["delta_to_cumulative"]);
    gather_tls(&mut node, path, report);
    let mut scope = Scope {
        node: &node,
        path,
        report,
    };
    let mut exporter: RemoteWriteExporter = scope.decode()?;
    match scope.has(&["endpoint"]) {
        true => check_endpoint(&mut scope, "endpoint", &exporter.endpoint, false),
        false => scope.error(
            &[],
            "the key \"endpoint\" is required; write endpoint: http://prometheus:9090/api/v1/write",
        ),
    }
    for endpoint in &exporter.shard_endpoints {
        check_endpoint(&mut scope, "shard_endpoints", endpoint, false);
    }
    if let Some(keepalive) = exporter.keepalive.take() {
        keepalive.apply(&mut scope, &mut exporter.idle_conn_timeout, None);
    }
    exporter.tls.check(&mut scope, &["tls"]);
    exporter.headers.check(&mut scope, &["headers"]);
    let name = exporter.tenant_header.as_deref();
    check_tenant_header(&mut scope, name, &exporter.default_tenant, &exporter.headers);
    exporter.retry_on_failure.check(&mut scope);
    check_queue(&mut exporter, &mut scope);
    check_names(&mut exporter, &mut scope);
    if let Err(error) = Rules::new(exporter.write_relabel_configs.clone()) {
        scope.error(&["write_relabel_configs"], error.to_string());
    }
    if exporter.max_batch_size_bytes == 0 {
        scope.error(
            &["max_batch_size_bytes"],
            "must be at least 1; remove it to use 3000000",
        );
    }
    if exporter
        .compression
        .as_deref()
        .is_some_and(|name| !matches!(name, "" | "snappy" | "zstd"))
    {
        scope.error(
            &["compression"],
            "remote write is snappy, or zstd to VictoriaMetrics; remove it to use snappy",
        );
    }
    if exporter.zstd() && exporter.protobuf_message == ProtobufMessage::V2 {
        scope.error(
            &["compression"],
            "remote write 2.0 is always snappy, and zstd is for 1.0 to VictoriaMetrics; remove it or protobuf_message",
        );
    }
    if scope.has(&["wal"]) {
        scope.error(
            &["wal"],
            "there is no write-ahead log of its own; the queue before the exporter keeps what is not delivered",
        );
    }
    if exporter.convert_histograms_to_nhcb && exporter.protobuf_message == ProtobufMessage::V1 {
        scope.error(
            &["convert_histograms_to_nhcb"],
            "remote write 1.0 has no custom buckets; add protobuf_message: io.prometheus.write.v2.Request, or remove it",
        );
    }
    if exporter
        .delta_to_cumulative
        .is_some_and(|delta| delta.max_streams == 0)
    {
        scope.error(
            &["delta_to_cumulative", "max_streams"],
            "must be at least 1; remove it to use 100000",
        );
    }
    if exporter
        .export_created_metric
        .is_some_and(|created| created.enabled)
    {
        scope.error(
            &["export_created_metric"],
            "_created series are not sent; remove it",
        );
    }
    if exporter.proxy_url.as_deref().is_some_and(|url| !url.is_empty()) {
        scope.error(
            &["proxy_url"],
            "proxies are not supported; remove it and give sluice a direct way to the destination",
        );
    }
    let buffers = "buffers follow the traffic";
    let connections = "there is one connection for each of remote_write_queue.num_consumers, and it is kept";
    scope.without_effect(&[
        (
            &["max_batch_request_parallelism"],
            "requests under way at once are set by remote_write_queue.num_consumers",
        ),
        (&["scope_info"], "scopes are labels of every series"),
        (&["read_buffer_size"], buffers),
        (&["write_buffer_size"], buffers),
        (&["max_idle_conns"], connections),
        (&["max_idle_conns_per_host"], connections),
        (&["max_conns_per_host"], connections),
        (&["disable_keep_alives"], connections),
        (&["http2_read_idle_timeout"], "requests go over HTTP/1.1"),
        (&["http2_ping_timeout"], "requests go over HTTP/1.1"),
        (&["force_attempt_http2"], "requests go over HTTP/1.1"),
        (&["compression_params"], "bodies are compressed at one level"),
        (&["cookies"], "answers to remote write set no cookies"),
        (&["middlewares"], "there are no middleware extensions"),
    ]);
    Some(exporter)
}

fn check_queue(exporter: &mut RemoteWriteExporter, scope: &mut Scope<'_>) {
    let queue = exporter.remote_write_queue;
    if queue.num_consumers == 0 {
        scope.error(
            &["remote_write_queue", "num_consumers"],
            "must be at least 1; remove it to use 5",
        );
    }
    if queue.enabled && queue.queue_size == Some(0) {
        scope.error(
            &["remote_write_queue", "queue_size"],
            "must be at least 1; remove it to use what the memory budget allows",
        );
    }
    if scope.has(&["sending_queue", "num_consumers"]) {
        scope.error(
            &["sending_queue", "num_consumers"],
            "how many batches are under way is not to be set, since samples stay in order; set remote_write_queue.num_consumers, the lanes of a batch",
        );
    }
    let own = &mut exporter.sending_queue;
    own.enabled &= queue.enabled;
    own.queue_size = own.queue_size.or(queue.queue_size);
    own.check(scope);
    own.num_consumers = Some(1);
}

fn check_names(exporter: &mut RemoteWriteExporter, scope: &mut Scope<'_>) {
    match (exporter.translation_strategy, exporter.add_metric_suffixes.take()) {
        (Some(_), Some(_)) => scope.error(
            &["add_metric_suffixes"],
            "translation_strategy says so already; remove one of the two",
        ),
        (None, Some(false)) => {
            exporter.translation_strategy = Some(TranslationStrategy::UnderscoreEscapingWithoutSuffixes);
        }
        _ => {}
    }
    if exporter.resource_to_telemetry_conversion.enabled && !exporter.promote_resource_attributes.is_empty() {
        scope.error(
            &["promote_resource_attributes"],
            "resource_to_telemetry_conversion makes labels of all attributes; remove one of the two",
        );
    }
}

/// The `prometheusremotewrite` receiver.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct RemoteWriteReceiver {
    /// Where to listen; absent: localhost:9090.
    pub endpoint: ListenAddress,
    /// TLS, if wanted.
    pub tls: Option<ServerTls>,
    /// Who may send.
    pub auth: Option<Auth>,
    /// Whose requests are; `None`: all are of one tenant. Our own key.
    pub tenant: Option<TenantFrom>,
    /// The largest request in bytes, before and after inflation; absent or 0: 64 MiB.
    pub max_request_body_size: ByteSize,
    /// Headers added to every answer.
    pub response_headers: Headers,
    /// The headers must arrive within this; absent or 0: our default.
    pub read_header_timeout: Option<Duration>,
    /// Close a connection that has had no request for this long; absent or 0: our default.
    pub idle_timeout: Option<Duration>,
    read_timeout: Option<IgnoredAny>,
    write_timeout: Option<IgnoredAny>,
    include_metadata: Option<IgnoredAny>,
    keepalive: Option<HttpServerKeepalive>,
    transport: Transport,
    dialer: Option<IgnoredAny>,
    cors: Option<IgnoredAny>,
    compression_algorithms: Option<IgnoredAny>,
    keep_alives_enabled: Option<IgnoredAny>,
    middlewares: Option<IgnoredAny>,
}

impl Default for RemoteWriteReceiver {
    fn default() -> Self {
        Self {
            endpoint: ListenAddress::new("localhost", 9090),
            tls: None,
            auth: None,
            tenant: None,
            max_request_body_size: ByteSize(DEFAULT_MAX_REQUEST_BYTES),
            response_headers: Headers::default(),
            read_header_timeout: None,
            idle_timeout: None,
            read_timeout: None,
            write_timeout: None,
            include_metadata: None,
            keepalive: None,
            transport: Transport::Tcp,
            dialer: None,
            cors: None,
            compression_algorithms: None,
            keep_alives_enabled: None,
            middlewares: None,
        }
    }
}

/// Reads a `prometheusremotewrite` receiver.
pub(super) fn receiver(node: &Node, path: &str, report: &mut Report) -> Option<RemoteWriteReceiver> {
    let mut scope = Scope { node, path, report };
    let mut receiver: RemoteWriteReceiver = scope.decode()?;
    if let Some(tls) = &mut receiver.tls {
        tls.check(&mut scope, &["tls"]);
    }
    receiver.response_headers.check(&mut scope, &["response_headers"]);
    if let Some(tenant) = &receiver.tenant {
        tenant.check(&mut scope);
        if tenant.from_resource_attribute.is_some() {
            scope.error(
                &["tenant", "from_resource_attribute"],
                "remote write has no resource attributes; use from_header or from_auth",
            );
        }
    }
    if receiver.max_request_body_size.0 == 0 {
        receiver.max_request_body_size = ByteSize(DEFAULT_MAX_REQUEST_BYTES);
    }
    if let Some(keepalive) = receiver.keepalive.take() {
        keepalive.apply(&mut scope, &[], &mut receiver.idle_timeout);
    }
    for duration in [&mut receiver.read_header_timeout, &mut receiver.idle_timeout] {
        *duration = duration.filter(|duration| !duration.is_zero());
    }
    check_transport(receiver.transport, &mut scope, &[]);
    let paced = "a body has to keep a minimum rate instead";
    scope.without_effect(&[
        (&["read_timeout"], paced),
        (&["write_timeout"], paced),
        (&["include_metadata"], NO_METADATA),
        (&["dialer"], NO_DIALER),
        (&["cors"], "web pages do not send remote write"),
        (&["compression_algorithms"], "snappy and zstd are read"),
        (
            &["keep_alives_enabled"],
            "connections are kept; use idle_timeout to close idle ones",
        ),
        (&["middlewares"], "there are no middleware extensions"),
    ]);
    Some(receiver)
}
