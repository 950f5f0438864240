//! Receiver settings to listeners and services.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use sluice_otlp::receiver::{Cors, HttpPaths, ReceiverSettings, Transport};
use sluice_payload::Tenants;
use sluice_server::{
    Authenticator, BasicAuth, BearerAuth, BodyLimits, ConnectionSettings, Pem, ServerTls, Shedder, Tenancy,
    TenantSource, TokenFile, Verify, aside,
};
use sluice_telemetry::Registry;
use sluice_wire::Depth;

use crate::settings::{
    self, ComponentId, Extension, Htpasswd, JsonMode, OtlpReceiver, Settings, TenantFrom, TlsVersion,
    Validation,
};

/// An HTTP connection without requests is kept this long: longer than the 60 s at which SDKs send
/// metrics, or every such request would open a connection.
pub(super) const HTTP_IDLE: Duration = Duration::from_secs(180);

/// One listener to be.
pub(super) struct Listening {
    pub endpoint: String,
    pub tls: Option<ServerTls>,
    pub connection: ConnectionSettings,
    pub service: ReceiverSettings,
}

/// How a receiver tells tenants apart, if it does.
pub(super) fn tenancy(
    id: &ComponentId,
    tenant: Option<&TenantFrom>,
    tenants: &Tenants,
    registry: &Registry,
) -> Result<Option<Tenancy>, String> {
    let Some(tenant) = tenant else { return Ok(None) };
    let header = tenant.from_header.as_ref().map(|name| {
        name.parse()
            .map_err(|_| format!("tenant.from_header: {name:?} is not a header name"))
    });
    let source = TenantSource {
        header: header.transpose()?,
        identity: tenant.from_auth,
        resource_attribute: tenant.from_resource_attribute.clone(),
    };
    Ok(Some(Tenancy::new(
        &id.to_string(),
        source,
        tenants.clone(),
        registry,
    )))
}

/// The listeners of an `otlp` receiver, by name.
pub(super) fn listeners(
    id: &ComponentId,
    otlp: &OtlpReceiver,
    tenancy: Option<&Tenancy>,
    shedder: Option<&Shedder>,
    settings: &Settings,
) -> Result<Vec<(String, Listening)>, String> {
    let service = |transport, max_bytes, auth| -> Result<ReceiverSettings, String> {
        Ok(ReceiverSettings {
            id: id.to_string(),
            transport,
            limits: BodyLimits {
                max_bytes,
                ..Default::default()
            },
            validation: match otlp.validation {
                Validation::Deep => Depth::Deep,
                Validation::Shallow => Depth::Shallow,
            },
            json_strict: otlp.json == JsonMode::Strict,
            paths: HttpPaths::default(),
            cors: None,
            authenticator: authenticator(auth, settings)?,
            tenancy: tenancy.cloned(),
            shedder: shedder.cloned(),
            response_headers: Vec::new(),
        })
    };
    let mut listeners = Vec::new();
    if let Some(grpc) = &otlp.grpc {
        let keepalive = grpc.keepalive.server_parameters;
        let defaults = ConnectionSettings::default();
        let connection = ConnectionSettings {
            http1: false,
            idle_timeout: keepalive.max_connection_idle,
            max_age: keepalive.max_connection_age,
            max_age_grace: keepalive.max_connection_age_grace,
            keepalive_time: keepalive.time.or(defaults.keepalive_time),
            keepalive_timeout: keepalive.timeout.unwrap_or(defaults.keepalive_timeout),
            max_concurrent_streams: grpc
                .max_concurrent_streams
                .unwrap_or(defaults.max_concurrent_streams),
            ..defaults
        };
        let listening = Listening {
            endpoint: grpc.endpoint.to_string(),
            tls: grpc
                .tls
                .as_ref()
                .map(|tls| server_tls(tls, &[b"h2"]))
                .transpose()?,
            connection,
            service: service(Transport::Grpc, grpc.max_request_bytes(), grpc.auth.as_ref())?,
        };
        listeners.push((format!("receivers.{id}.protocols.grpc"), listening));
    }
    if let Some(http) = &otlp.http {
        let mut service = service(Transport::Http, http.max_request_bytes(), http.auth.as_ref())?;
        service.paths = HttpPaths {
            by_signal: [
                &http.metrics_url_path,
                &http.logs_url_path,
                &http.traces_url_path,
                &http.profiles_url_path,
            ]
            .map(String::clone),
        };
        service.cors = http.cors.as_ref().map(|cors| Cors {
            allowed_origins: cors.allowed_origins.clone(),
            allowed_headers: cors.allowed_headers.clone(),
            max_age: cors.max_age,
        });
        service.response_headers = response_headers(&http.response_headers)?;
        let defaults = ConnectionSettings::default();
        let given = |time: Option<Duration>| time.filter(|time| !time.is_zero());
        let connection = ConnectionSettings {
            header_timeout: given(http.read_header_timeout).unwrap_or(defaults.header_timeout),
            idle_timeout: Some(given(http.idle_timeout).unwrap_or(HTTP_IDLE)),
            ..defaults
        };
        let listening = Listening {
            endpoint: http.endpoint.to_string(),
            tls: http
                .tls
                .as_ref()
                .map(|tls| server_tls(tls, &[b"h2", b"http/1.1"]))
                .transpose()?,
            connection,
            service,
        };
        listeners.push((format!("receivers.{id}.protocols.http"), listening));
    }
    Ok(listeners)
}

/// Configured headers, ready to send.
pub(super) fn response_headers(
    headers: &settings::Headers,
) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let header = |(name, value): &(String, sluice_config::Secret)| {
        let header = name
            .parse()
            .map_err(|_| format!("response_headers: {name:?} is not a header name"))?;
        let value = value
            .expose()
            .parse()
            .map_err(|_| format!("response_headers.{name}: not a header value"))?;
        Ok((header, value))
    };
    headers.0.iter().map(header).collect()
}

/// A listener's TLS.
pub(super) fn server_tls(tls: &settings::ServerTls, alpn: &[&[u8]]) -> Result<ServerTls, String> {
    let pem = |file: &Option<std::path::PathBuf>, text: &Option<sluice_config::Secret>| match (file, text) {
        (Some(file), _) => Some(Pem::File(file.clone())),
        (None, Some(text)) => Some(Pem::Inline(text.expose().to_owned())),
        (None, None) => None,
    };
    Ok(ServerTls {
        cert: pem(&tls.cert_file, &tls.cert_pem).ok_or("tls: cert_file or cert_pem is missing")?,
        key: pem(&tls.key_file, &tls.key_pem).ok_or("tls: key_file or key_pem is missing")?,
        client_ca: tls.client_ca_file.clone().map(Pem::File),
        tls13_only: tls.min_version == Some(TlsVersion::V1_3),
        alpn: alpn.iter().map(|protocol| protocol.to_vec()).collect(),
        reload_interval: tls.reload_interval,
    })
}

pub(super) fn authenticator(
    auth: Option<&settings::Auth>,
    settings: &Settings,
) -> Result<Option<Arc<dyn Authenticator>>, String> {
    let Some(auth) = auth else { return Ok(None) };
    match settings.extensions.get(&auth.authenticator) {
        Some(Extension::BasicAuth(settings::BasicAuth::Server { inline, file })) => {
            let mut users = inline.clone();
            if let Some(file) = file {
                users.extend(
                    Htpasswd::parse(&read(file)?).map_err(|error| format!("{}: {error}", file.display()))?,
                );
            }
            Ok(Some(Arc::new(basic(users))))
        }
        Some(Extension::BearerTokenAuth(bearer)) => {
            // A file wins, so that a token rotated there is the only one; an empty token, such as one
            // from a variable that is not set, lets nobody in.
            let file = bearer.filename.as_ref().map(|file| {
                TokenFile::open(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
            });
            let file = file.transpose()?;
            let tokens: Vec<String> = match &file {
                Some(_) => Vec::new(),
                None => (bearer.all_tokens())
                    .map(|token| token.expose().trim().to_owned())
                    .filter(|token| !token.is_empty())
                    .collect(),
            };
            let is_empty = tokens.is_empty() && file.as_ref().is_none_or(TokenFile::is_empty);
            let named = (bearer.named_tokens.iter())
                .map(|(name, token)| (name.clone(), token.expose().trim().to_owned()));
            if is_empty && bearer.named_tokens.is_empty() {
                return Err(format!(
                    "{}: there is no token, so nobody could come in",
                    auth.authenticator
                ));
            }
            let header = bearer
                .header
                .parse()
                .map_err(|_| format!("{:?} is not a header name", bearer.header))?;
            let bearer = BearerAuth::new(header, &bearer.scheme, tokens).with_named(named);
            Ok(Some(Arc::new(match file {
                Some(file) => bearer.with_file(file),
                None => bearer,
            })))
        }
        _ => Err(format!(
            "auth.authenticator: {} cannot authenticate clients",
            auth.authenticator
        )),
    }
}

/// Verifying a bcrypt digest costs tens of milliseconds by design: what passed once is remembered, and
/// the rest is verified one at a time and off the reactor, so that wrong passwords cost one core at most.
fn basic(users: Htpasswd) -> BasicAuth {
    let turn = Arc::new(Mutex::new(()));
    let remember = |verify: Verify| -> Verify {
        let turn = turn.clone();
        let passed: Mutex<Option<String>> = Mutex::new(None);
        Box::new(move |password| {
            if passed.lock().as_deref() == Some(password) {
                return true;
            }
            let right = aside(|| {
                let _turn = turn.lock();
                verify(password)
            });
            if right {
                *passed.lock() = Some(password.to_owned());
            }
            right
        })
    };
    BasicAuth::new(
        users
            .into_verifiers()
            .into_iter()
            .map(|(user, verify)| (user, remember(verify)))
            .collect(),
    )
}

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}
