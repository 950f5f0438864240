//! What exporters are made from, and what can be wrong with it.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use sluice_client::{
    Auth, ClientTls, Compression, ConnectSettings, Credentials, EgressPool, Http1Settings, Http2Settings,
    InvalidEndpoint, Protocol, SendError, TlsError,
};

use super::pass_through::PassThroughMode;

/// No request is larger than this before compression, whatever is configured: the OTLP
/// specification's limit for servers, and so the most a client may send (C5).
pub const MAX_REQUEST_BYTES: usize = 64 * 1024 * 1024;

/// Default request size over gRPC, before compression. grpc-go, and with it the Collector's
/// receiver, takes 4 MiB unless told otherwise, counted after decompression; 64 KiB below it leave
/// room for headers repeated when a payload is split.
pub const GRPC_REQUEST_BYTES: usize = 4 * 1024 * 1024 - 64 * 1024;

/// Default request size over HTTP, before compression: below the 20 MiB of the Collector's receiver.
pub const HTTP_REQUEST_BYTES: usize = 20 * 1024 * 1024 - 64 * 1024;

/// Settings no exporter can be made from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExporterError {
    /// An endpoint cannot be read.
    #[error(transparent)]
    Endpoint(#[from] InvalidEndpoint),
    /// There is no endpoint at all.
    #[error("no endpoint is configured; set endpoint, or one per signal")]
    NoEndpoint,
    /// A configured header cannot be sent.
    #[error("header {name:?}: {reason}")]
    Header {
        /// Its name.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// TLS settings or files cannot be used.
    #[error("tls: {0}")]
    Tls(#[from] TlsError),
    /// Credentials cannot be used.
    #[error("auth: {0}")]
    Auth(SendError),
    /// A compression the protocol has no name for.
    #[error("compression {0:?} does not exist on gRPC; use none, gzip, zstd or snappy")]
    Compression(Compression),
}

/// How an HTTP request body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BodyEncoding {
    /// `application/x-protobuf`: the received bytes, passed on.
    #[default]
    Protobuf,
    /// `application/json`: rewritten, at many times the cost.
    Json,
}

/// What an [`HttpExporter`](super::HttpExporter) is made from.
#[derive(Debug, Clone)]
pub struct HttpExporterOptions {
    /// The base: `/v1/metrics`, `/v1/logs`, `/v1/traces` or `/v1development/profiles` is appended.
    pub endpoint: Option<String>,
    /// Used as written, for metrics, instead of `endpoint`.
    pub metrics_endpoint: Option<String>,
    /// Used as written, for logs.
    pub logs_endpoint: Option<String>,
    /// Used as written, for traces.
    pub traces_endpoint: Option<String>,
    /// Used as written, for profiles.
    pub profiles_endpoint: Option<String>,
    /// TLS, for `https` endpoints.
    pub tls: ClientTls,
    /// Sent with every request; `Host` and `User-Agent` replace ours.
    pub headers: Vec<(String, String)>,
    /// Credentials.
    pub auth: Auth,
    /// How bodies are compressed.
    pub compression: Compression,
    /// The level, where the compression has levels; ours if absent.
    pub compression_level: Option<i32>,
    /// Whether compressed frames are sent on as they came.
    pub pass_through: PassThroughMode,
    /// The memory that bodies are compressed into.
    pub egress: EgressPool,
    /// How bodies are written.
    pub encoding: BodyEncoding,
    /// The HTTP version.
    pub protocol: Protocol,
    /// Everything one request does, connecting included.
    pub timeout: Duration,
    /// Making connections.
    pub connect: ConnectSettings,
    /// The HTTP/1.1 pool.
    pub http1: Http1Settings,
    /// The HTTP/2 pool.
    pub http2: Http2Settings,
    /// Batches are cut below this many bytes before compression; at most [`MAX_REQUEST_BYTES`].
    pub max_request_bytes: usize,
}

impl Default for HttpExporterOptions {
    fn default() -> Self {
        Self {
            endpoint: None,
            metrics_endpoint: None,
            logs_endpoint: None,
            traces_endpoint: None,
            profiles_endpoint: None,
            tls: ClientTls::default(),
            headers: Vec::new(),
            auth: Auth::None,
            // The one compression every OTLP server must read; zstd costs less where it is known to be read.
            compression: Compression::Gzip,
            compression_level: None,
            pass_through: PassThroughMode::Never,
            egress: EgressPool::default(),
            encoding: BodyEncoding::Protobuf,
            protocol: Protocol::Http1,
            // The Collector's. Large bodies over slow links need it, and a retry costs the whole body again.
            timeout: Duration::from_secs(30),
            connect: ConnectSettings::default(),
            http1: Http1Settings::default(),
            http2: Http2Settings::default(),
            max_request_bytes: HTTP_REQUEST_BYTES,
        }
    }
}

/// What a [`GrpcExporter`](super::GrpcExporter) is made from.
#[derive(Debug, Clone)]
pub struct GrpcExporterOptions {
    /// `host:port` (TLS unless `tls.insecure`), `http://host:port` (none) or `https://host:port`.
    pub endpoint: String,
    /// TLS.
    pub tls: ClientTls,
    /// Sent with every call as metadata; `:authority` and `user-agent` replace ours.
    pub headers: Vec<(String, String)>,
    /// Credentials.
    pub auth: Auth,
    /// How messages are compressed: none, gzip, zstd or snappy.
    pub compression: Compression,
    /// The level, where the compression has levels; ours if absent.
    pub compression_level: Option<i32>,
    /// Whether compressed frames are sent on as they came.
    pub pass_through: PassThroughMode,
    /// The memory that bodies are compressed into.
    pub egress: EgressPool,
    /// Everything one call does, connecting included.
    pub timeout: Duration,
    /// Making connections.
    pub connect: ConnectSettings,
    /// The pool.
    pub http2: Http2Settings,
    /// Batches are cut below this many bytes before compression; at most [`MAX_REQUEST_BYTES`].
    pub max_request_bytes: usize,
}

impl Default for GrpcExporterOptions {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            tls: ClientTls::default(),
            headers: Vec::new(),
            auth: Auth::None,
            // The one compression every OTLP server must read; zstd costs less where it is known to be read.
            compression: Compression::Gzip,
            compression_level: None,
            pass_through: PassThroughMode::Never,
            egress: EgressPool::default(),
            // Twice the Collector's: its 5 s include no first connection, and a call that is given
            // up late is cheaper than one that is sent twice.
            timeout: Duration::from_secs(10),
            connect: ConnectSettings::default(),
            http2: Http2Settings::default(),
            max_request_bytes: GRPC_REQUEST_BYTES,
        }
    }
}

/// Headers that belong to the protocol; configuring one would break requests rather than change them.
const OURS: [&str; 13] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "grpc-accept-encoding",
    "grpc-encoding",
    "grpc-timeout",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The configured headers, ready to send, and the authority they set, if any.
pub(crate) fn static_headers(
    headers: &[(String, String)],
) -> Result<(HeaderMap, Option<String>), ExporterError> {
    let mut map = HeaderMap::with_capacity(headers.len() + 8);
    let mut authority = None;
    for (name, value) in headers {
        let invalid = |reason: String| ExporterError::Header {
            name: name.clone(),
            reason,
        };
        if name.eq_ignore_ascii_case("host") || name == ":authority" {
            authority = Some(value.clone());
            continue;
        }
        let header: HeaderName = name
            .to_ascii_lowercase()
            .parse()
            .map_err(|_| invalid("is not a header name".to_owned()))?;
        if OURS.contains(&header.as_str()) {
            return Err(invalid("is set by the protocol; remove it".to_owned()));
        }
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| invalid("its value holds characters that a header cannot".to_owned()))?;
        // Tokens are commonly passed this way; none of them belongs into a log.
        value.set_sensitive(true);
        map.append(header, value);
    }
    Ok((map, authority))
}

pub(crate) fn credentials(auth: &Auth) -> Result<Credentials, ExporterError> {
    Credentials::new(auth.clone()).map_err(ExporterError::Auth)
}
