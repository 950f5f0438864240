//! Receivers: `otlp`, `nop`.

use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use sluice_config::{ByteSize, Report};

use super::network::{Auth, Headers, ListenAddress, ServerTls};
use super::remote_write::RemoteWriteReceiver;
use super::scope::Scope;
use super::spellings::{HttpServerKeepalive, rename_tls};
use super::tenant::TenantFrom;

/// The request limit OTLP recommends (specification, "size limits"); the Collector's 4 MiB on gRPC is its most frequent complaint.
pub(super) const DEFAULT_MAX_REQUEST_BYTES: u64 = 64 << 20;

/// Why `include_metadata` has no effect.
pub(super) const NO_METADATA: &str = "request metadata is not kept with the data yet";

/// Why `dialer` of a listener has no effect.
pub(super) const NO_DIALER: &str = "a listener dials nobody";

/// A receiver's settings.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a handful are made, once")]
pub enum Receiver {
    /// OTLP over gRPC and HTTP.
    Otlp(OtlpReceiver),
    /// Prometheus remote write.
    RemoteWrite(RemoteWriteReceiver),
    /// Receives nothing.
    Nop,
}

impl Receiver {
    /// Whether the tenants of this receiver have shares of the memory budget.
    pub fn has_shares(&self) -> bool {
        self.tenant().is_some()
    }

    /// Whose requests are, if it tells tenants apart.
    pub(super) fn tenant(&self) -> Option<&TenantFrom> {
        match self {
            Self::Otlp(otlp) => otlp.tenant.as_ref(),
            Self::RemoteWrite(receiver) => receiver.tenant.as_ref(),
            Self::Nop => None,
        }
    }
}

/// The `otlp` receiver. At least one protocol is there.
#[derive(Clone, Debug, PartialEq)]
pub struct OtlpReceiver {
    /// OTLP/gRPC, when switched on.
    pub grpc: Option<GrpcServer>,
    /// OTLP/HTTP, when switched on.
    pub http: Option<HttpServer>,
    /// How deeply received protobuf is validated. Our own key.
    pub validation: Validation,
    /// How JSON is read. Our own key.
    pub json: JsonMode,
    /// Whose requests are; `None`: all are of one tenant. Our own key.
    pub tenant: Option<TenantFrom>,
}

/// How deeply received protobuf is validated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Validation {
    /// Framing of every nested message, id lengths, UTF-8: one bad client cannot poison a merged batch.
    #[default]
    Deep,
    /// Only what counting and splitting need: for upstreams that are trusted.
    Shallow,
}

/// How JSON is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JsonMode {
    /// As the Collector: enum names and snake_case are understood too.
    #[default]
    Lenient,
    /// As the specification says.
    Strict,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawOtlp {
    protocols: Protocols,
    validation: Validation,
    json: JsonMode,
    tenant: Option<TenantFrom>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Protocols {
    grpc: Option<GrpcServer>,
    http: Option<HttpServer>,
}

/// `protocols.grpc`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct GrpcServer {
    /// Where to listen; absent: localhost:4317.
    pub endpoint: ListenAddress,
    /// `tcp`, or its `tcp4` and `tcp6` forms.
    pub transport: Transport,
    /// TLS, if wanted.
    pub tls: Option<ServerTls>,
    /// The largest request in MiB, before and after inflation; absent: 64.
    pub max_recv_msg_size_mib: u64,
    /// Concurrent requests on one connection; absent: our default.
    pub max_concurrent_streams: Option<u32>,
    /// Bytes read from a connection at once; read for the Collector's sake.
    pub read_buffer_size: Option<ByteSize>,
    /// Bytes written to a connection at once; read for the Collector's sake.
    pub write_buffer_size: Option<ByteSize>,
    /// Keepalive and connection age.
    pub keepalive: ServerKeepalive,
    /// Who may send.
    pub auth: Option<Auth>,
    /// Keep request metadata with the payload.
    pub include_metadata: bool,
    /// Read for the Collector's sake.
    middlewares: Option<IgnoredAny>,
    dialer: Option<IgnoredAny>,
}

impl Default for GrpcServer {
    fn default() -> Self {
        Self {
            endpoint: ListenAddress::new("localhost", 4317),
            transport: Transport::Tcp,
            tls: None,
            max_recv_msg_size_mib: DEFAULT_MAX_REQUEST_BYTES >> 20,
            max_concurrent_streams: None,
            read_buffer_size: None,
            write_buffer_size: None,
            keepalive: ServerKeepalive::default(),
            auth: None,
            include_metadata: false,
            middlewares: None,
            dialer: None,
        }
    }
}

impl GrpcServer {
    /// The largest request in bytes, before and after inflation. 0 in the file means the default.
    pub fn max_request_bytes(&self) -> u64 {
        if self.max_recv_msg_size_mib == 0 {
            DEFAULT_MAX_REQUEST_BYTES
        } else {
            self.max_recv_msg_size_mib << 20
        }
    }
}

/// What a listener listens on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// TCP over whatever the host resolves to.
    #[default]
    Tcp,
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// A Unix socket; read, and refused by the check.
    Unix,
}

/// `keepalive` of a gRPC listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ServerKeepalive {
    /// Pings and connection age.
    pub server_parameters: KeepaliveParameters,
    /// How often clients may ping.
    pub enforcement_policy: KeepalivePolicy,
}

/// `keepalive.server_parameters`. Absent (and 0): gRPC's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct KeepaliveParameters {
    /// Close a connection that has had no request for this long; absent: never.
    pub max_connection_idle: Option<Duration>,
    /// Ask a client to reconnect after this long, so that load spreads; absent: never.
    pub max_connection_age: Option<Duration>,
    /// How long requests may go on after that; absent: until they end.
    pub max_connection_age_grace: Option<Duration>,
    /// Ping a silent client after this long; absent: 2h.
    pub time: Option<Duration>,
    /// Close the connection when the ping is not answered for this long; absent: 20s.
    pub timeout: Option<Duration>,
}

/// `keepalive.enforcement_policy`. Absent (and 0): gRPC's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct KeepalivePolicy {
    /// Clients that ping more often are sent away; absent: 5m.
    pub min_time: Option<Duration>,
    /// Whether clients may ping without a request under way.
    pub permit_without_stream: bool,
}

/// `protocols.http`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct HttpServer {
    /// Where to listen; absent: localhost:4318.
    pub endpoint: ListenAddress,
    /// `tcp`, or its `tcp4` and `tcp6` forms.
    pub transport: Transport,
    /// TLS, if wanted.
    pub tls: Option<ServerTls>,
    /// Which web pages may send.
    pub cors: Option<Cors>,
    /// Who may send.
    pub auth: Option<Auth>,
    /// The largest request in bytes, before and after inflation; absent or 0: 64 MiB.
    pub max_request_body_size: ByteSize,
    /// Keep request headers with the payload.
    pub include_metadata: bool,
    /// Headers added to every answer.
    pub response_headers: Headers,
    /// Content encodings to read; absent: all we know.
    pub compression_algorithms: Option<Vec<String>>,
    /// A whole request must arrive within this; absent or 0: our default.
    pub read_timeout: Option<Duration>,
    /// The headers must arrive within this; absent or 0: our default.
    pub read_header_timeout: Option<Duration>,
    /// An answer must be taken within this; absent or 0: our default.
    pub write_timeout: Option<Duration>,
    /// Close a connection that has had no request for this long; absent or 0: our default.
    pub idle_timeout: Option<Duration>,
    /// Whether connections are kept for further requests.
    pub keep_alives_enabled: bool,
    /// The path of traces.
    pub traces_url_path: String,
    /// The path of metrics.
    pub metrics_url_path: String,
    /// The path of logs.
    pub logs_url_path: String,
    /// The path of profiles.
    pub profiles_url_path: String,
    /// Read for the Collector's sake.
    middlewares: Option<IgnoredAny>,
    dialer: Option<IgnoredAny>,
    /// Before v0.50: the origins of `cors`.
    cors_allowed_origins: Option<Vec<String>>,
    /// Before v0.50: the headers of `cors`.
    cors_allowed_headers: Option<Vec<String>>,
    keepalive: Option<HttpServerKeepalive>,
}

impl Default for HttpServer {
    fn default() -> Self {
        Self {
            endpoint: ListenAddress::new("localhost", 4318),
            transport: Transport::Tcp,
            tls: None,
            cors: None,
            auth: None,
            max_request_body_size: ByteSize(DEFAULT_MAX_REQUEST_BYTES),
            include_metadata: false,
            response_headers: Headers::default(),
            compression_algorithms: None,
            read_timeout: None,
            read_header_timeout: None,
            write_timeout: None,
            idle_timeout: None,
            keep_alives_enabled: true,
            traces_url_path: "/v1/traces".to_owned(),
            metrics_url_path: "/v1/metrics".to_owned(),
            logs_url_path: "/v1/logs".to_owned(),
            profiles_url_path: "/v1development/profiles".to_owned(),
            middlewares: None,
            dialer: None,
            cors_allowed_origins: None,
            cors_allowed_headers: None,
            keepalive: None,
        }
    }
}

impl HttpServer {
    /// The largest request in bytes, before and after inflation. 0 in the file means the default.
    pub fn max_request_bytes(&self) -> u64 {
        if self.max_request_body_size.0 == 0 {
            DEFAULT_MAX_REQUEST_BYTES
        } else {
            self.max_request_body_size.0
        }
    }
}

/// `cors`: which web pages may send.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Cors {
    /// Origins, each with at most one `*` in it; empty: none.
    pub allowed_origins: Vec<String>,
    /// Request headers beside the safelisted ones; `*` for all.
    pub allowed_headers: Vec<String>,
    /// Answer headers that pages may read.
    pub exposed_headers: Vec<String>,
    /// How many seconds browsers keep the answer to a preflight; 0: their default.
    #[serde(deserialize_with = "seconds")]
    pub max_age: u64,
}

/// The Collector counts `max_age` in whole seconds; a duration is understood too.
fn seconds<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.trim().parse() {
        Ok(seconds) => Ok(seconds),
        Err(_) => sluice_config::parse_duration(text.trim())
            .map(|d| d.as_secs())
            .map_err(serde::de::Error::custom),
    }
}

/// Reads an `otlp` receiver.
pub(super) fn otlp(node: &sluice_config::Node, path: &str, report: &mut Report) -> Option<OtlpReceiver> {
    let mut node = node.clone();
    // Presence alone switches a protocol on: 17 of 95 real files write a bare `grpc:`.
    node.bare_as_empty(&["protocols", "grpc"]);
    node.bare_as_empty(&["protocols", "http"]);
    for protocol in ["grpc", "http"] {
        rename_tls(&mut node, &["protocols", protocol], path, report);
    }
    let mut scope = Scope {
        node: &node,
        path,
        report,
    };
    let RawOtlp {
        protocols: Protocols { mut grpc, mut http },
        validation,
        json,
        tenant,
    } = scope.decode()?;
    if grpc.is_none() && http.is_none() {
        scope.error(
            &["protocols"],
            "no protocol is switched on; add `grpc:` or `http:` (or both) under protocols",
        );
    }
    if let Some(grpc) = &mut grpc {
        check_grpc(grpc, &mut scope);
    }
    if let Some(http) = &mut http {
        check_http(http, &mut scope);
    }
    if let Some(tenant) = &tenant {
        tenant.check(&mut scope);
    }
    Some(OtlpReceiver {
        grpc,
        http,
        validation,
        json,
        tenant,
    })
}

fn check_grpc(grpc: &mut GrpcServer, scope: &mut Scope<'_>) {
    let at = &["protocols", "grpc"];
    check_transport(grpc.transport, scope, at);
    if let Some(tls) = &mut grpc.tls {
        tls.check(scope, &["protocols", "grpc", "tls"]);
    }
    if grpc.max_recv_msg_size_mib > 2047 {
        scope.error(
            &["protocols", "grpc", "max_recv_msg_size_mib"],
            "protobuf messages end at 2 GiB; use at most 2047",
        );
    }
    if grpc.max_concurrent_streams == Some(0) {
        grpc.max_concurrent_streams = None;
    }
    let parameters = &mut grpc.keepalive.server_parameters;
    for duration in [
        &mut parameters.max_connection_idle,
        &mut parameters.max_connection_age,
        &mut parameters.max_connection_age_grace,
        &mut parameters.time,
        &mut parameters.timeout,
        &mut grpc.keepalive.enforcement_policy.min_time,
    ] {
        *duration = duration.filter(|d| !d.is_zero());
    }
    let reason = "buffers follow the traffic";
    scope.without_effect(&[
        (&["protocols", "grpc", "read_buffer_size"], reason),
        (&["protocols", "grpc", "write_buffer_size"], reason),
        (
            &["protocols", "grpc", "middlewares"],
            "there are no middleware extensions",
        ),
        (&["protocols", "grpc", "include_metadata"], NO_METADATA),
        (&["protocols", "grpc", "dialer"], NO_DIALER),
        (
            &["protocols", "grpc", "keepalive", "enforcement_policy"],
            "clients may ping as often as they like: pings are answered and cost next to nothing",
        ),
    ]);
}

fn check_http(http: &mut HttpServer, scope: &mut Scope<'_>) {
    let at = &["protocols", "http"];
    check_transport(http.transport, scope, at);
    if let Some(tls) = &mut http.tls {
        tls.check(scope, &["protocols", "http", "tls"]);
    }
    if http.cors.is_none() && (http.cors_allowed_origins.is_some() || http.cors_allowed_headers.is_some()) {
        http.cors = Some(Cors {
            allowed_origins: http.cors_allowed_origins.take().unwrap_or_default(),
            allowed_headers: http.cors_allowed_headers.take().unwrap_or_default(),
            ..Cors::default()
        });
        for key in ["cors_allowed_origins", "cors_allowed_headers"] {
            if scope.has(&["protocols", "http", key]) {
                scope.warn(
                    &["protocols", "http", key],
                    "is the old name; write cors.allowed_origins and cors.allowed_headers",
                );
            }
        }
    }
    if let Some(cors) = &http.cors {
        for origin in &cors.allowed_origins {
            if origin.matches('*').count() > 1 {
                scope.error(
                    &["protocols", "http", "cors", "allowed_origins"],
                    format!("{origin:?} has more than one `*`; browsers' origins need at most one"),
                );
            }
        }
    }
    http.response_headers
        .check(scope, &["protocols", "http", "response_headers"]);
    if let Some(keepalive) = http.keepalive.take() {
        keepalive.apply(scope, at, &mut http.idle_timeout);
    }
    for duration in [
        &mut http.read_timeout,
        &mut http.read_header_timeout,
        &mut http.write_timeout,
        &mut http.idle_timeout,
    ] {
        *duration = duration.filter(|d| !d.is_zero());
    }
    let mut paths: Vec<(&str, String)> = Vec::new();
    for (key, path) in [
        ("traces_url_path", &mut http.traces_url_path),
        ("metrics_url_path", &mut http.metrics_url_path),
        ("logs_url_path", &mut http.logs_url_path),
        ("profiles_url_path", &mut http.profiles_url_path),
    ] {
        if !path.starts_with('/') {
            path.insert(0, '/');
        }
        if let Some((other, _)) = paths.iter().find(|(_, known)| known == path) {
            scope.error(
                &["protocols", "http", key],
                format!("{path:?} is also the {other}; each signal needs its own"),
            );
        }
        paths.push((key, path.clone()));
    }
    const KNOWN: [&str; 8] = [
        "",
        "gzip",
        "zstd",
        "zlib",
        "snappy",
        "deflate",
        "lz4",
        "x-snappy-framed",
    ];
    for name in http.compression_algorithms.iter().flatten() {
        if !KNOWN.contains(&name.as_str()) {
            scope.error(
                &["protocols", "http", "compression_algorithms"],
                format!(
                    "{name:?} is not known; known are \"\" (none), gzip, zstd, zlib, snappy, deflate, lz4"
                ),
            );
        }
    }
    let timeouts = "a body must keep coming (10 s without a byte end it), and answers are short";
    scope.without_effect(&[
        (
            &["protocols", "http", "middlewares"],
            "there are no middleware extensions",
        ),
        (&["protocols", "http", "include_metadata"], NO_METADATA),
        (&["protocols", "http", "dialer"], NO_DIALER),
        (
            &["protocols", "http", "auth", "request_params"],
            "credentials are read from headers only",
        ),
        (&["protocols", "http", "read_timeout"], timeouts),
        (&["protocols", "http", "write_timeout"], timeouts),
        (
            &["protocols", "http", "keep_alives_enabled"],
            "connections are kept; use idle_timeout to close idle ones",
        ),
        (
            &["protocols", "http", "compression_algorithms"],
            "every encoding is read; the limit on the inflated size holds for all",
        ),
        (
            &["protocols", "http", "cors", "exposed_headers"],
            "answers carry no headers that a page would read",
        ),
    ]);
}

pub(super) fn check_transport(transport: Transport, scope: &mut Scope<'_>, at: &[&str]) {
    if transport == Transport::Unix {
        scope.error(
            &[at, &["transport"]].concat(),
            "Unix sockets are not supported; use tcp and an endpoint on localhost",
        );
    }
}
