//! Exporters that send OTLP: `otlp` (`otlp_grpc`) and `otlphttp` (`otlp_http`).

use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use sluice_config::{ByteSize, Node, Report};
use sluice_payload::Signal;

use super::endpoint::{check_endpoint, warn_of_signal_path};
use super::network::{
    Auth, ClientTls, Compression, CompressionParams, Headers, Passthrough, check_level, check_passthrough,
};
use super::outputs::{DebugExporter, FileExporter};
use super::parquet::ParquetExporter;
use super::queue::{Retry, SendingQueue};
use super::remote_write::RemoteWriteExporter;
use super::scope::Scope;
use super::spellings::{HttpClientKeepalive, gather_tls};

/// An exporter's settings.
#[derive(Clone, Debug, PartialEq)]
pub enum Exporter {
    /// OTLP over gRPC.
    OtlpGrpc(OtlpGrpcExporter),
    /// OTLP over HTTP.
    OtlpHttp(OtlpHttpExporter),
    /// Prometheus remote write.
    RemoteWrite(RemoteWriteExporter),
    /// Tables.
    Parquet(Box<ParquetExporter>),
    /// OTLP into files.
    File(FileExporter),
    /// Summaries for people.
    Debug(DebugExporter),
    /// Drops everything, on purpose.
    Nop,
}

impl Exporter {
    /// The exporter's queue, if it is of the kind that has one.
    pub fn queue(&self) -> Option<&SendingQueue> {
        match self {
            Exporter::OtlpGrpc(exporter) => Some(&exporter.sending_queue),
            Exporter::OtlpHttp(exporter) => Some(&exporter.sending_queue),
            Exporter::RemoteWrite(exporter) => Some(&exporter.sending_queue),
            Exporter::Parquet(exporter) => Some(&exporter.sending_queue),
            Exporter::File(_) | Exporter::Debug(_) | Exporter::Nop => None,
        }
    }

    /// The authentication of the exporter's requests, if it has any.
    pub fn auth(&self) -> Option<&Auth> {
        match self {
            Exporter::OtlpGrpc(exporter) => exporter.auth.as_ref(),
            Exporter::OtlpHttp(exporter) => exporter.auth.as_ref(),
            Exporter::RemoteWrite(exporter) => exporter.auth.as_ref(),
            Exporter::Parquet(_) | Exporter::File(_) | Exporter::Debug(_) | Exporter::Nop => None,
        }
    }
}

/// The `otlp` (`otlp_grpc`) exporter.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct OtlpGrpcExporter {
    /// `host:port`, `http://host:port`, `https://host:port` or `dns:///host:port`.
    pub endpoint: String,
    /// TLS; a bare `host:port` uses it unless `insecure` is set.
    pub tls: ClientTls,
    /// Metadata of every request.
    pub headers: Headers,
    /// The extension that signs requests.
    pub auth: Option<Auth>,
    /// How requests are compressed; absent: gzip.
    pub compression: Compression,
    /// The compression level.
    pub compression_params: CompressionParams,
    /// Whether compressed requests are sent on as they came; absent: never. Our own key.
    pub passthrough: Passthrough,
    /// How long one attempt may take; absent: 5s. Zero: as long as it likes.
    pub timeout: Duration,
    /// What happens after a retryable failure.
    pub retry_on_failure: Retry,
    /// The queue before this exporter.
    pub sending_queue: SendingQueue,
    /// Pings on quiet connections.
    pub keepalive: Option<ClientKeepalive>,
    /// The `:authority` of requests, instead of the endpoint's host.
    pub authority: Option<String>,
    /// Further endpoints, as good as `endpoint`. Our own key.
    pub more_endpoints: Vec<String>,
    /// Which of several endpoints has the next request. Our own key.
    pub balance: Balance,
    /// What belongs together, for `balance: consistent_hash`; absent: spans by trace, everything else by service. Our own key.
    pub routing_key: Option<RoutingKey>,
    /// For `balance: consistent_hash`: each address of the endpoints' names is an endpoint, and they are looked up this often; absent: a name is
    /// one endpoint. Our own key.
    pub resolve_interval: Option<Duration>,
    /// How many connections to spread requests over; absent: our default. Our own key.
    pub connections: Option<usize>,
    /// What requests say of their sender, instead of sluice and its version; `headers` may say it too, and win.
    user_agent: Option<String>,
    balancer_name: Option<IgnoredAny>,
    read_buffer_size: Option<ByteSize>,
    write_buffer_size: Option<ByteSize>,
    wait_for_ready: Option<bool>,
    middlewares: Option<IgnoredAny>,
    /// Of 2020.
    reconnection_delay: Option<IgnoredAny>,
}

impl Default for OtlpGrpcExporter {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            tls: ClientTls::default(),
            headers: Headers::default(),
            auth: None,
            compression: Compression::Gzip,
            compression_params: CompressionParams::default(),
            passthrough: Passthrough::Never,
            timeout: Duration::from_secs(5),
            retry_on_failure: Retry::default(),
            sending_queue: SendingQueue::default(),
            keepalive: None,
            authority: None,
            more_endpoints: Vec::new(),
            balance: Balance::default(),
            routing_key: None,
            resolve_interval: None,
            connections: None,
            user_agent: None,
            balancer_name: None,
            read_buffer_size: None,
            write_buffer_size: None,
            wait_for_ready: None,
            middlewares: None,
            reconnection_delay: None,
        }
    }
}

impl OtlpGrpcExporter {
    /// The same, once for each of its endpoints.
    pub fn by_endpoint(&self) -> Vec<Self> {
        let more = self.more_endpoints.iter().map(|endpoint| Self {
            endpoint: endpoint.clone(),
            ..self.clone()
        });
        std::iter::once(self.clone()).chain(more).collect()
    }
}

/// Which of several endpoints has the next request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// Each in turn.
    #[default]
    RoundRobin,
    /// The one with the fewest requests under way.
    LeastLoaded,
    /// The first that works, in the order they are written.
    Failover,
    /// What belongs together goes to one of them.
    ConsistentHash,
}

/// What belongs together, where endpoints are chosen by consistent hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum RoutingKey {
    /// Spans and log records of one trace.
    #[serde(rename = "traceID")]
    TraceId,
    /// Everything of one `service.name`.
    #[serde(rename = "service")]
    Service,
    /// Everything of one set of resource attributes.
    #[serde(rename = "resource")]
    Resource,
}

/// Each of several endpoints must be one, and the keys that choose among them go together.
fn check_more_endpoints(
    scope: &mut Scope<'_>,
    more: &[String],
    balance: Balance,
    resolve_interval: Option<Duration>,
    bare: bool,
) {
    if more.is_empty() && resolve_interval.is_none() && scope.has(&["balance"]) {
        scope.warn(
            &["balance"],
            "has no effect with one endpoint; add more_endpoints",
        );
    }
    if balance != Balance::ConsistentHash {
        for key in ["routing_key", "resolve_interval"] {
            if scope.has(&[key]) {
                scope.error(
                    &[key],
                    "goes with balance: consistent_hash; add that, or remove it",
                );
            }
        }
    }
    if resolve_interval.is_some_and(|interval| interval.is_zero()) {
        scope.error(
            &["resolve_interval"],
            "must be above zero; write 5s, or remove it where a name is one endpoint",
        );
    }
    for endpoint in more {
        check_endpoint(scope, "more_endpoints", endpoint, bare);
    }
}

/// `keepalive` of a gRPC exporter.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClientKeepalive {
    /// Ping a connection that has been silent for this long; at least 10s.
    pub time: Duration,
    /// Give the connection up when the ping is not answered for this long.
    pub timeout: Duration,
    /// Ping even without a request under way.
    pub permit_without_stream: bool,
}

impl Default for ClientKeepalive {
    /// gRPC's own figures.
    fn default() -> Self {
        Self {
            time: Duration::from_secs(10),
            timeout: Duration::from_secs(20),
            permit_without_stream: false,
        }
    }
}

/// Reads an `otlp` exporter.
pub(super) fn otlp_grpc(node: &Node, path: &str, report: &mut Report) -> Option<OtlpGrpcExporter> {
    let mut node = node.clone();
    node.bare_as_empty(&["sending_queue", "batch"]);
    gather_tls(&mut node, path, report);
    let mut scope = Scope {
        node: &node,
        path,
        report,
    };
    let mut exporter: OtlpGrpcExporter = scope.decode()?;
    match scope.has(&["endpoint"]) {
        true => check_endpoint(&mut scope, "endpoint", &exporter.endpoint, true),
        false => scope.error(&[], "the key \"endpoint\" is required; write endpoint: host:4317"),
    }
    check_more_endpoints(
        &mut scope,
        &exporter.more_endpoints,
        exporter.balance,
        exporter.resolve_interval,
        true,
    );
    if let Some(agent) = exporter.user_agent.take().filter(|agent| !agent.is_empty()) {
        exporter.headers.add_absent("user-agent", agent);
    }
    exporter.authority = exporter
        .authority
        .take()
        .filter(|authority| !authority.is_empty());
    exporter.tls.check(&mut scope, &["tls"]);
    exporter.headers.check(&mut scope, &["headers"]);
    if matches!(
        exporter.compression,
        Compression::Deflate | Compression::Zlib | Compression::Lz4
    ) {
        scope.error(
            &["compression"],
            "gRPC servers read gzip, zstd, snappy or none; use one of these",
        );
    }
    check_level(&mut scope, exporter.compression, exporter.compression_params);
    check_passthrough(&mut scope, exporter.compression, exporter.passthrough);
    check_connections(&mut scope, exporter.connections);
    exporter.retry_on_failure.check(&mut scope);
    exporter.sending_queue.check(&mut scope);
    let buffers = "buffers follow the traffic";
    scope.without_effect(&[
        (
            &["balancer_name"],
            "requests are always spread over the connections and addresses of the endpoint",
        ),
        (&["read_buffer_size"], buffers),
        (&["write_buffer_size"], buffers),
        (
            &["wait_for_ready"],
            "requests wait in the queue until the destination can be reached",
        ),
        (&["middlewares"], "there are no middleware extensions"),
        (
            &["reconnection_delay"],
            "connections are made again when they are needed",
        ),
    ]);
    Some(exporter)
}

/// The `otlphttp` (`otlp_http`) exporter. At least one endpoint is there.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct OtlpHttpExporter {
    /// The base URL; `/v1/traces` and the like are appended.
    pub endpoint: Option<String>,
    /// The whole URL for traces, instead of one built from `endpoint`.
    pub traces_endpoint: Option<String>,
    /// The whole URL for metrics.
    pub metrics_endpoint: Option<String>,
    /// The whole URL for logs.
    pub logs_endpoint: Option<String>,
    /// The whole URL for profiles.
    pub profiles_endpoint: Option<String>,
    /// TLS of `https://` endpoints.
    pub tls: ClientTls,
    /// Headers of every request.
    pub headers: Headers,
    /// The extension that signs requests.
    pub auth: Option<Auth>,
    /// How requests are compressed; absent: gzip.
    pub compression: Compression,
    /// The compression level.
    pub compression_params: CompressionParams,
    /// Whether compressed requests are sent on as they came; absent: never. Our own key.
    pub passthrough: Passthrough,
    /// How long one attempt may take; absent: 30s. Zero: as long as it likes.
    pub timeout: Duration,
    /// Protobuf or JSON.
    pub encoding: BodyEncoding,
    /// What happens after a retryable failure.
    pub retry_on_failure: Retry,
    /// The queue before this exporter.
    pub sending_queue: SendingQueue,
    /// Most connections in all; absent or 0: no limit.
    pub max_conns_per_host: Option<usize>,
    /// Close a connection that has had no request for this long; absent: 90s. Zero: never.
    pub idle_conn_timeout: Duration,
    /// A new connection for every request.
    pub disable_keep_alives: bool,
    /// Ping an HTTP/2 connection that has been silent for this long; absent or 0: never.
    pub http2_read_idle_timeout: Option<Duration>,
    /// Give an HTTP/2 connection up when the ping is not answered for this long; absent or 0: 15s.
    pub http2_ping_timeout: Option<Duration>,
    /// Further endpoints, as good as `endpoint`. Our own key.
    pub more_endpoints: Vec<String>,
    /// Which of several endpoints has the next request. Our own key.
    pub balance: Balance,
    /// What belongs together, for `balance: consistent_hash`; absent: spans by trace, everything else by service. Our own key.
    pub routing_key: Option<RoutingKey>,
    /// For `balance: consistent_hash`: each address of the endpoints' names is an endpoint, and they are looked up this often; absent: a name is
    /// one endpoint. Our own key.
    pub resolve_interval: Option<Duration>,
    /// How many connections to spread requests over; absent: our default. Our own key.
    pub connections: Option<usize>,
    /// The HTTP version; absent: chosen by ALPN on `https`, HTTP/1.1 on `http`. Our own key.
    pub protocol: Option<HttpProtocol>,
    max_idle_conns: Option<usize>,
    max_idle_conns_per_host: Option<usize>,
    read_buffer_size: Option<ByteSize>,
    write_buffer_size: Option<ByteSize>,
    force_attempt_http2: Option<bool>,
    proxy_url: Option<String>,
    cookies: Option<IgnoredAny>,
    middlewares: Option<IgnoredAny>,
    keepalive: Option<HttpClientKeepalive>,
}

impl Default for OtlpHttpExporter {
    fn default() -> Self {
        Self {
            endpoint: None,
            traces_endpoint: None,
            metrics_endpoint: None,
            logs_endpoint: None,
            profiles_endpoint: None,
            tls: ClientTls::default(),
            headers: Headers::default(),
            auth: None,
            compression: Compression::Gzip,
            compression_params: CompressionParams::default(),
            passthrough: Passthrough::Never,
            timeout: Duration::from_secs(30),
            encoding: BodyEncoding::Proto,
            retry_on_failure: Retry::default(),
            sending_queue: SendingQueue::default(),
            max_conns_per_host: None,
            idle_conn_timeout: Duration::from_secs(90),
            disable_keep_alives: false,
            http2_read_idle_timeout: None,
            http2_ping_timeout: None,
            more_endpoints: Vec::new(),
            balance: Balance::default(),
            routing_key: None,
            resolve_interval: None,
            connections: None,
            protocol: None,
            max_idle_conns: None,
            max_idle_conns_per_host: None,
            read_buffer_size: None,
            write_buffer_size: None,
            force_attempt_http2: None,
            proxy_url: None,
            cookies: None,
            middlewares: None,
            keepalive: None,
        }
    }
}

impl OtlpHttpExporter {
    /// The same, once for each of its endpoints.
    pub fn by_endpoint(&self) -> Vec<Self> {
        let more = self.more_endpoints.iter().map(|endpoint| Self {
            endpoint: Some(endpoint.clone()),
            ..self.clone()
        });
        std::iter::once(self.clone()).chain(more).collect()
    }

    /// Where requests of this signal go; `None` when the configuration does not say.
    pub fn url(&self, signal: Signal) -> Option<String> {
        let own = match signal {
            Signal::Traces => &self.traces_endpoint,
            Signal::Metrics => &self.metrics_endpoint,
            Signal::Logs => &self.logs_endpoint,
            Signal::Profiles => &self.profiles_endpoint,
        };
        let path = signal_path(signal);
        let base = || {
            self.endpoint
                .as_ref()
                .map(|base| format!("{}{path}", base.trim().trim_end_matches('/')))
        };
        own.as_ref().map(|own| own.trim().to_owned()).or_else(base)
    }
}

/// What the base URL of OTLP/HTTP is followed by (OTLP specification, "OTLP/HTTP request").
pub(super) fn signal_path(signal: Signal) -> &'static str {
    match signal {
        Signal::Traces => "/v1/traces",
        Signal::Metrics => "/v1/metrics",
        Signal::Logs => "/v1/logs",
        Signal::Profiles => "/v1development/profiles",
    }
}

/// The body of OTLP/HTTP requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BodyEncoding {
    /// `application/x-protobuf`.
    #[default]
    Proto,
    /// `application/json`.
    Json,
}

/// The HTTP version of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HttpProtocol {
    /// HTTP/1.1.
    #[serde(alias = "http/1.1", alias = "h1")]
    Http1,
    /// HTTP/2, without asking on plain connections.
    #[serde(alias = "http2")]
    H2,
}

/// Reads an `otlphttp` exporter.
pub(super) fn otlp_http(node: &Node, path: &str, report: &mut Report) -> Option<OtlpHttpExporter> {
    let mut node = node.clone();
    node.bare_as_empty(&["sending_queue", "batch"]);
    gather_tls(&mut node, path, report);
    let mut scope = Scope {
        node: &node,
        path,
        report,
    };
    let mut exporter: OtlpHttpExporter = scope.decode()?;
    // An optional variable leaves an empty text behind: it counts as absent.
    for endpoint in [
        &mut exporter.endpoint,
        &mut exporter.traces_endpoint,
        &mut exporter.metrics_endpoint,
        &mut exporter.logs_endpoint,
        &mut exporter.profiles_endpoint,
    ] {
        *endpoint = endpoint.take().filter(|text| !text.trim().is_empty());
    }
    let endpoints = [
        ("endpoint", &exporter.endpoint),
        ("traces_endpoint", &exporter.traces_endpoint),
        ("metrics_endpoint", &exporter.metrics_endpoint),
        ("logs_endpoint", &exporter.logs_endpoint),
        ("profiles_endpoint", &exporter.profiles_endpoint),
    ];
    let mut any = false;
    for (key, endpoint) in endpoints {
        if let Some(endpoint) = endpoint {
            any = true;
            check_endpoint(&mut scope, key, endpoint, false);
        } else {
            // A list or map has been reported already, and is not an absence.
            any |= scope
                .node
                .get(key)
                .is_some_and(|node| node.as_mapping().is_some() || node.as_sequence().is_some());
        }
    }
    if !any {
        scope.error(
            &[],
            "the key \"endpoint\" is required; write endpoint: http://host:4318",
        );
    }
    check_more_endpoints(
        &mut scope,
        &exporter.more_endpoints,
        exporter.balance,
        exporter.resolve_interval,
        false,
    );
    let own = [
        "traces_endpoint",
        "metrics_endpoint",
        "logs_endpoint",
        "profiles_endpoint",
    ];
    let own = own.iter().any(|key| scope.has(&[key]));
    for (key, given) in [
        ("more_endpoints", !exporter.more_endpoints.is_empty()),
        ("resolve_interval", exporter.resolve_interval.is_some()),
    ] {
        if given && own {
            scope.error(
                &[key],
                "goes with `endpoint` alone; remove the endpoints of single signals",
            );
        }
    }
    if let Some(endpoint) = &exporter.endpoint {
        warn_of_signal_path(&mut scope, endpoint);
    }
    if let Some(keepalive) = exporter.keepalive.take() {
        keepalive.apply(
            &mut scope,
            &mut exporter.idle_conn_timeout,
            Some(&mut exporter.disable_keep_alives),
        );
    }
    exporter.tls.check(&mut scope, &["tls"]);
    exporter.headers.check(&mut scope, &["headers"]);
    check_level(&mut scope, exporter.compression, exporter.compression_params);
    check_passthrough(&mut scope, exporter.compression, exporter.passthrough);
    check_connections(&mut scope, exporter.connections);
    for duration in [
        &mut exporter.http2_read_idle_timeout,
        &mut exporter.http2_ping_timeout,
    ] {
        *duration = duration.filter(|d| !d.is_zero());
    }
    exporter.max_conns_per_host = exporter.max_conns_per_host.filter(|max| *max > 0);
    exporter.retry_on_failure.check(&mut scope);
    exporter.sending_queue.check(&mut scope);
    if exporter.proxy_url.as_deref().is_some_and(|url| !url.is_empty()) {
        scope.error(
            &["proxy_url"],
            "proxies are not supported; remove it and give sluice a direct way to the destination",
        );
    }
    let buffers = "buffers follow the traffic";
    let connections = "connections are few and kept; use `connections` to set their number";
    scope.without_effect(&[
        (&["max_idle_conns"], connections),
        (&["max_idle_conns_per_host"], connections),
        (&["read_buffer_size"], buffers),
        (&["write_buffer_size"], buffers),
        (
            &["force_attempt_http2"],
            "use `protocol: h2` or `protocol: http1`",
        ),
        (&["cookies"], "answers to OTLP requests set no cookies"),
        (&["middlewares"], "there are no middleware extensions"),
    ]);
    Some(exporter)
}

fn check_connections(scope: &mut Scope<'_>, connections: Option<usize>) {
    if connections == Some(0) {
        scope.error(
            &["connections"],
            "must be at least 1; remove it to use the default",
        );
    }
}
