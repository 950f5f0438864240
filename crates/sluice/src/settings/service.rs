//! `service.telemetry`: how sluice speaks about itself.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use sluice_config::{Node, Report};

use super::network::ListenAddress;
use super::scope::Scope;

/// `service.telemetry`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Telemetry {
    /// Our log.
    pub logs: Logs,
    /// Our metrics.
    pub metrics: Metrics,
    /// Attributes of the resource that our telemetry describes.
    pub resource: BTreeMap<String, String>,
}

/// `service.telemetry.logs`.
#[derive(Clone, Debug, PartialEq)]
pub struct Logs {
    /// The least severe level that is written.
    pub level: LogLevel,
    /// Lines for people, or JSON.
    pub encoding: LogEncoding,
    /// Files to write to; `stderr` and `stdout` are understood.
    pub output_paths: Vec<String>,
}

impl Default for Logs {
    fn default() -> Self {
        Self {
            level: LogLevel::Info,
            encoding: LogEncoding::Console,
            output_paths: vec!["stderr".to_owned()],
        }
    }
}

/// The least severe level that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Everything worth knowing when something is wrong.
    Debug,
    /// What an operator wants to know.
    Info,
    /// What may need attention.
    Warn,
    /// What needs attention.
    Error,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogEncoding {
    /// For people.
    #[default]
    Console,
    /// One JSON object a line.
    Json,
}

/// `service.telemetry.metrics`.
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics {
    /// Where `/metrics` is served; `None`: nowhere.
    pub listen: Option<ListenAddress>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            listen: Some(ListenAddress::new("localhost", 8888)),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawTelemetry {
    logs: RawLogs,
    metrics: RawMetrics,
    traces: Option<IgnoredAny>,
    #[serde(rename = "resource")]
    _resource: Option<IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawLogs {
    level: Option<String>,
    encoding: LogEncoding,
    output_paths: Option<Vec<String>>,
    error_output_paths: Option<Vec<String>>,
    development: bool,
    disable_caller: bool,
    disable_stacktrace: bool,
    sampling: Option<IgnoredAny>,
    initial_fields: Option<IgnoredAny>,
    processors: Option<IgnoredAny>,
    disable_zap_resource: Option<IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawMetrics {
    level: Option<String>,
    address: Option<ListenAddress>,
    readers: Option<Vec<RawReader>>,
    #[serde(rename = "views")]
    _views: Option<IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawReader {
    pull: Option<RawPull>,
    periodic: Option<IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawPull {
    exporter: RawPullExporter,
    #[serde(rename = "producers")]
    _producers: Option<IgnoredAny>,
    #[serde(rename = "cardinality_limits")]
    _cardinality_limits: Option<IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawPullExporter {
    prometheus: Option<RawPrometheus>,
    #[serde(rename = "prometheus/development")]
    prometheus_development: Option<RawPrometheus>,
}

#[derive(Deserialize)]
#[serde(default)]
struct RawPrometheus {
    host: String,
    port: u16,
    without_scope_info: Option<IgnoredAny>,
    without_type_suffix: Option<IgnoredAny>,
    without_units: Option<IgnoredAny>,
    with_resource_constant_labels: Option<IgnoredAny>,
    translation_strategy: Option<IgnoredAny>,
}

impl Default for RawPrometheus {
    fn default() -> Self {
        Self {
            host: "localhost".to_owned(),
            port: 8888,
            without_scope_info: None,
            without_type_suffix: None,
            without_units: None,
            with_resource_constant_labels: None,
            translation_strategy: None,
        }
    }
}

/// Reads `service.telemetry`.
pub(super) fn telemetry(node: &Node, report: &mut Report) -> Telemetry {
    let mut scope = Scope {
        node,
        path: "service.telemetry",
        report,
    };
    let Some(raw) = scope.decode::<RawTelemetry>() else {
        return Telemetry::default();
    };
    let level = match raw.logs.level.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None | Some("" | "info") => LogLevel::Info,
        Some("debug" | "trace") => LogLevel::Debug,
        Some("warn" | "warning") => LogLevel::Warn,
        Some("error" | "dpanic" | "panic" | "fatal") => LogLevel::Error,
        Some(other) => {
            scope.error(
                &["logs", "level"],
                format!("{other:?} is not a level; use debug, info, warn or error"),
            );
            LogLevel::Info
        }
    };
    let output_paths = raw.logs.output_paths.filter(|paths| !paths.is_empty());
    let logs = Logs {
        level,
        encoding: raw.logs.encoding,
        output_paths: output_paths.unwrap_or_else(|| Logs::default().output_paths),
    };
    if logs.output_paths.iter().any(|path| path != "stderr") {
        scope.warn(
            &["logs", "output_paths"],
            "has no effect here: the log goes to stderr",
        );
    }
    scope.without_effect(&[
        (&["logs", "error_output_paths"], "our own errors are in the log"),
        (&["logs", "initial_fields"], "log lines have no constant fields"),
        (&["logs", "processors"], "our log is written, not sent"),
        (&["traces"], "sluice makes no traces of itself"),
        (
            &["resource"],
            "our metrics describe this process and carry no resource",
        ),
        (&["metrics", "views"], "all metrics are served as they are"),
    ]);
    Telemetry {
        logs,
        metrics: metrics(raw.metrics, &mut scope),
        resource: resource(node),
    }
}

fn metrics(raw: RawMetrics, scope: &mut Scope<'_>) -> Metrics {
    match raw.level.as_deref().map(str::to_ascii_lowercase).as_deref() {
        Some("none") => return Metrics { listen: None },
        None | Some("" | "basic" | "normal" | "detailed") => {}
        Some(other) => {
            scope.error(
                &["metrics", "level"],
                format!("{other:?} is not a level; use none, basic, normal or detailed"),
            );
        }
    }
    if raw.address.is_some() {
        scope.warn(
            &["metrics", "address"],
            "is the old name; write readers: [{pull: {exporter: {prometheus: {host, port}}}}]",
        );
    }
    let Some(readers) = raw.readers else {
        return Metrics {
            listen: raw.address.or(Metrics::default().listen),
        };
    };
    let mut listen = raw.address;
    let scraped = listen.is_some() || readers.iter().any(|reader| reader.pull.is_some());
    for reader in readers {
        if reader.periodic.is_some() {
            let nowhere = if scraped {
                ""
            } else {
                ", and without a pull reader they are served nowhere; add {pull: {exporter: {prometheus: {host: localhost, port: 8888}}}}"
            };
            scope.warn(
                &["metrics", "readers"],
                format!("a periodic reader has no effect here: metrics are scraped, not sent{nowhere}"),
            );
        }
        let Some(exporter) = reader.pull.map(|pull| pull.exporter) else {
            continue;
        };
        if let Some(prometheus) = exporter.prometheus.or(exporter.prometheus_development) {
            let address = ListenAddress::new(prometheus.host.trim_matches(['[', ']']), prometheus.port);
            if listen.as_ref().is_some_and(|known| *known != address) {
                scope.warn(
                    &["metrics", "readers"],
                    "metrics are served at one address; the last pull reader wins",
                );
            }
            listen = Some(address);
        }
    }
    Metrics { listen }
}

/// `resource` as a map of attributes (a bare one removes ours), or in the newer form with a list `attributes`.
fn resource(node: &Node) -> BTreeMap<String, String> {
    let Some(resource) = node.get("resource") else {
        return BTreeMap::new();
    };
    if let Some(attributes) = resource.get("attributes").and_then(Node::as_sequence) {
        let pair = |attribute: &Node| {
            Some((
                attribute.get("name")?.as_text()?.to_owned(),
                attribute.get("value")?.as_text()?.to_owned(),
            ))
        };
        return attributes.iter().filter_map(pair).collect();
    }
    let entries = resource
        .as_mapping()
        .into_iter()
        .flat_map(|mapping| mapping.entries());
    entries
        .filter_map(|entry| Some((entry.key.clone(), entry.value.as_text()?.to_owned())))
        .collect()
}
