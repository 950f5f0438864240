//! Extensions that answer over HTTP: health, and pages for people.

use serde::Deserialize;
use serde::de::IgnoredAny;
use sluice_config::{Node, Report};

use crate::settings::network::{Headers, ListenAddress, ServerTls};
use crate::settings::receivers::{Transport, check_transport};
use crate::settings::scope::Scope;

/// The `health_check` extension.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct HealthCheck {
    /// Where to listen; absent: localhost:13133.
    pub endpoint: ListenAddress,
    /// The path that answers 200 or 503; absent: `/`. `/live` and `/ready` answer always.
    pub path: String,
    /// The body of the answers, instead of our JSON.
    pub response_body: Option<HealthBodies>,
    /// TLS, if wanted.
    pub tls: Option<ServerTls>,
    /// Headers added to every answer.
    pub response_headers: Headers,
    check_collector_pipeline: Option<IgnoredAny>,
    /// Before v0.30: the port on every interface.
    port: Option<u16>,
    auth: Option<IgnoredAny>,
    cors: Option<IgnoredAny>,
    max_request_body_size: Option<IgnoredAny>,
    include_metadata: Option<IgnoredAny>,
    compression_algorithms: Option<IgnoredAny>,
    read_timeout: Option<IgnoredAny>,
    read_header_timeout: Option<IgnoredAny>,
    write_timeout: Option<IgnoredAny>,
    idle_timeout: Option<IgnoredAny>,
    keep_alives_enabled: Option<IgnoredAny>,
    keepalive: Option<IgnoredAny>,
    transport: Transport,
    dialer: Option<IgnoredAny>,
    middlewares: Option<IgnoredAny>,
    use_v2: Option<IgnoredAny>,
    component_health: Option<IgnoredAny>,
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self {
            endpoint: ListenAddress::new("localhost", 13133),
            path: "/".to_owned(),
            response_body: None,
            tls: None,
            response_headers: Headers::default(),
            check_collector_pipeline: None,
            port: None,
            auth: None,
            cors: None,
            max_request_body_size: None,
            include_metadata: None,
            compression_algorithms: None,
            read_timeout: None,
            read_header_timeout: None,
            write_timeout: None,
            idle_timeout: None,
            keep_alives_enabled: None,
            keepalive: None,
            transport: Transport::Tcp,
            dialer: None,
            middlewares: None,
            use_v2: None,
            component_health: None,
        }
    }
}

/// `response_body` of `health_check`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HealthBodies {
    /// The body of 200.
    pub healthy: String,
    /// The body of 503.
    pub unhealthy: String,
}

/// Reads a `health_check` extension.
pub fn health_check(node: &Node, path: &str, report: &mut Report) -> Option<HealthCheck> {
    let mut scope = Scope { node, path, report };
    let mut health: HealthCheck = scope.decode()?;
    if let Some(port) = health.port.take() {
        if !scope.has(&["endpoint"]) {
            health.endpoint = ListenAddress::new("0.0.0.0", port);
        }
        scope.warn(&["port"], "is the old name; write endpoint: host:port");
    }
    if !health.path.starts_with('/') {
        health.path.insert(0, '/');
    }
    if let Some(tls) = &mut health.tls {
        tls.check(&mut scope, &["tls"]);
    }
    check_transport(health.transport, &mut scope, &[]);
    let destinations = "the health of destinations is in the metrics; see docs/operating.md";
    scope.without_effect(&[
        (&["check_collector_pipeline"], destinations),
        (&["component_health"], destinations),
        (&["use_v2"], "there is one version of it"),
        (&["auth"], "health is answered to everyone who can reach the port"),
        (&["cors"], "health is not for web pages"),
    ]);
    Some(health)
}

/// The `zpages` extension.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct Zpages {
    /// Where to listen; absent: localhost:55679.
    pub endpoint: ListenAddress,
    expvar: Option<IgnoredAny>,
    tls: Option<IgnoredAny>,
    auth: Option<IgnoredAny>,
    transport: Transport,
    cors: Option<IgnoredAny>,
    response_headers: Option<IgnoredAny>,
    max_request_body_size: Option<IgnoredAny>,
    include_metadata: Option<IgnoredAny>,
    compression_algorithms: Option<IgnoredAny>,
    read_timeout: Option<IgnoredAny>,
    read_header_timeout: Option<IgnoredAny>,
    write_timeout: Option<IgnoredAny>,
    idle_timeout: Option<IgnoredAny>,
    keep_alives_enabled: Option<IgnoredAny>,
    keepalive: Option<IgnoredAny>,
    dialer: Option<IgnoredAny>,
    middlewares: Option<IgnoredAny>,
}

impl Default for Zpages {
    fn default() -> Self {
        Self {
            endpoint: ListenAddress::new("localhost", 55679),
            expvar: None,
            tls: None,
            auth: None,
            transport: Transport::Tcp,
            cors: None,
            response_headers: None,
            max_request_body_size: None,
            include_metadata: None,
            compression_algorithms: None,
            read_timeout: None,
            read_header_timeout: None,
            write_timeout: None,
            idle_timeout: None,
            keep_alives_enabled: None,
            keepalive: None,
            dialer: None,
            middlewares: None,
        }
    }
}

/// Reads a `zpages` extension.
pub fn zpages(node: &Node, path: &str, report: &mut Report) -> Option<Zpages> {
    let mut scope = Scope { node, path, report };
    let zpages: Zpages = scope.decode()?;
    check_transport(zpages.transport, &mut scope, &[]);
    let plain = "these pages are served in plain text to whoever can reach the port";
    scope.without_effect(&[
        (&["expvar"], "it shows Go's variables"),
        (&["tls"], plain),
        (&["auth"], plain),
        (&["cors"], "these pages are not for other pages"),
        (&["response_headers"], "these pages have no headers of their own"),
        (&["middlewares"], "there are no middleware extensions"),
    ]);
    Some(zpages)
}
