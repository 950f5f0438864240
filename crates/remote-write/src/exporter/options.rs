//! What an exporter is made from, and what can be wrong with it.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use sluice_client::{
    Auth, ClientTls, ConnectSettings, EgressPool, Http1Settings, InvalidEndpoint, SendError, Sign, TlsError,
};

use super::positions::LanesFile;
use super::tenant::TenantHeader;
use crate::encoder::EncoderSettings;

/// Batches are cut below this many bytes of OTLP. One byte of OTLP becomes some eight of remote write before
/// compression, and so a request for each of a handful of lanes.
pub(crate) const REQUEST_BYTES: usize = 4 << 20;

/// Settings no exporter can be made from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExporterError {
    /// The endpoint cannot be read.
    #[error(transparent)]
    Endpoint(#[from] InvalidEndpoint),
    /// The endpoint's path cannot be read.
    #[error("the endpoint's path: {0}")]
    Path(String),
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
    /// A label or the namespace cannot be used.
    #[error("{0}")]
    Name(String),
}

/// What a [`RemoteWriteExporter`](super::RemoteWriteExporter) is made from.
#[derive(Debug, Clone)]
pub struct RemoteWriteExporterOptions {
    /// The whole URL, path included.
    pub endpoint: String,
    /// More URLs: series are shared out among all of them by their labels.
    pub shard_endpoints: Vec<String>,
    /// TLS, for `https`.
    pub tls: ClientTls,
    /// Sent with every request; those of the protocol cannot be changed.
    pub headers: Vec<(String, String)>,
    /// A header that says whose the data is: a request is of one tenant then.
    pub tenant_header: Option<TenantHeader>,
    /// Credentials.
    pub auth: Auth,
    /// Signs every request.
    pub signer: Option<Arc<dyn Sign>>,
    /// Memory for the bodies, until they are taken.
    pub egress: EgressPool,
    /// Everything one request does, connecting included.
    pub timeout: Duration,
    /// Making connections.
    pub connect: ConnectSettings,
    /// The pool.
    pub http1: Http1Settings,
    /// How bodies are made.
    pub encoder: EncoderSettings,
    /// Where it is kept over a restart what each lane has delivered; without it what was under way is sent again in all lanes.
    pub lanes: Option<LanesFile>,
    /// Batches are cut below this many bytes of OTLP.
    pub max_request_bytes: usize,
}

impl Default for RemoteWriteExporterOptions {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            shard_endpoints: Vec::new(),
            tls: ClientTls::default(),
            headers: Vec::new(),
            tenant_header: None,
            auth: Auth::None,
            signer: None,
            egress: EgressPool::default(),
            // Prometheus's own remote_timeout.
            timeout: Duration::from_secs(30),
            connect: ConnectSettings::default(),
            http1: Http1Settings::default(),
            encoder: EncoderSettings::default(),
            lanes: None,
            max_request_bytes: REQUEST_BYTES,
        }
    }
}

impl RemoteWriteExporterOptions {
    /// All that decides what payloads become, in which lane it is and where that goes. For hashing only: a token is in it.
    pub(super) fn deciding(&self) -> String {
        let encoder = EncoderSettings {
            totals: None,
            ..self.encoder.clone()
        };
        let tenants = self.tenant_header.as_ref();
        let tenants = tenants.map(|header| (&header.name, &header.default));
        let user = match &self.auth {
            Auth::Basic { username, .. } => username,
            // It may be the account. One in a file is not: it is renewed, for the same account.
            Auth::Bearer { token, .. } => token,
            _ => "",
        };
        let version = env!("CARGO_PKG_VERSION");
        let Self {
            endpoint,
            shard_endpoints,
            headers,
            ..
        } = self;
        format!("{version} {encoder:?} {endpoint} {shard_endpoints:?} {headers:?} {tenants:?} {user}")
    }

    /// External labels and the namespace, which go into every series as they are, have to be names.
    pub(super) fn check_labels(&self) -> Result<(), ExporterError> {
        let mapping = &self.encoder.mapping;
        let escapes = mapping.strategy.escapes();
        for (name, value) in &mapping.external_labels {
            let legacy = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if name.is_empty() || escapes && !legacy {
                let message =
                    format!("external_labels: {name:?} is not a label name; use letters, digits and _");
                return Err(ExporterError::Name(message));
            }
            if name == crate::labels::METRIC_NAME {
                return Err(ExporterError::Name(
                    "external_labels: __name__ is the name of the metric; remove it".to_owned(),
                ));
            }
            if value.is_empty() {
                let message = format!("external_labels: {name} has no value; remove it or give it one");
                return Err(ExporterError::Name(message));
            }
        }
        let legacy = mapping
            .namespace
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
            && !mapping.namespace.starts_with(|c: char| c.is_ascii_digit());
        if escapes && !legacy {
            let message = format!(
                "namespace: {:?} is not a part of a metric name; use letters, digits, _ and :",
                mapping.namespace
            );
            return Err(ExporterError::Name(message));
        }
        Ok(())
    }
}

/// Headers that belong to HTTP; configuring one would break requests rather than change them.
const OURS: [&str; 7] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// The header by this name, if it may be set.
pub(super) fn header_name(name: &str) -> Result<HeaderName, ExporterError> {
    let invalid = |reason: &str| ExporterError::Header {
        name: name.to_owned(),
        reason: reason.to_owned(),
    };
    let header: HeaderName = name
        .to_ascii_lowercase()
        .parse()
        .map_err(|_| invalid("is not a header name"))?;
    match OURS.contains(&header.as_str()) {
        true => Err(invalid("is set by the protocol; remove it")),
        false => Ok(header),
    }
}

/// The configured headers, and the authority they set, if any. Those of the protocol are set over them.
pub(super) fn static_headers(
    headers: &[(String, String)],
) -> Result<(HeaderMap, Option<String>), ExporterError> {
    let mut map = HeaderMap::with_capacity(headers.len() + 8);
    let mut authority = None;
    for (name, value) in headers {
        let invalid = |reason: &str| ExporterError::Header {
            name: name.clone(),
            reason: reason.to_owned(),
        };
        if name.eq_ignore_ascii_case("host") {
            authority = Some(value.clone());
            continue;
        }
        let header = header_name(name)?;
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| invalid("its value holds characters that a header cannot"))?;
        // Tokens are commonly passed this way; none of them belongs into a log.
        value.set_sensitive(true);
        map.append(header, value);
    }
    Ok((map, authority))
}
