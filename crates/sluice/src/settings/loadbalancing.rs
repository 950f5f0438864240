//! The Collector's `loadbalancing` exporter, understood as an `otlp` exporter with `balance: consistent_hash`.

use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use sluice_config::{Node, Report, Span, Value};

use super::exporters::{OtlpGrpcExporter, otlp_grpc};
use super::scope::Scope;

/// The Collector's own defaults.
const PORT: u16 = 4317;
const INTERVAL: &str = "5s";

#[derive(Deserialize, Default)]
#[serde(default)]
struct LoadBalancing {
    protocol: Protocol,
    resolver: Resolver,
    /// Read again as the exporter's own.
    #[serde(rename = "routing_key")]
    _routing_key: Option<IgnoredAny>,
    #[serde(rename = "retry_on_failure")]
    _retry_on_failure: Option<IgnoredAny>,
    #[serde(rename = "sending_queue")]
    _sending_queue: Option<IgnoredAny>,
    #[serde(rename = "timeout")]
    _timeout: Option<IgnoredAny>,
    #[serde(rename = "routing_attributes")]
    _routing_attributes: Option<IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Protocol {
    #[serde(rename = "otlp")]
    _otlp: Option<IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Resolver {
    #[serde(rename = "static")]
    fixed: Option<Static>,
    dns: Option<Dns>,
    k8s: Option<IgnoredAny>,
    aws_cloud_map: Option<IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Static {
    hostnames: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Dns {
    hostname: String,
    port: Option<u16>,
    #[serde(rename = "interval")]
    _interval: Option<Duration>,
    #[serde(rename = "timeout")]
    _timeout: Option<IgnoredAny>,
}

/// Reads a `loadbalancing` exporter.
pub(super) fn read(node: &Node, path: &str, report: &mut Report) -> Option<OtlpGrpcExporter> {
    let mut scope = Scope { node, path, report };
    let read: LoadBalancing = scope.decode()?;
    for (key, given) in [
        ("k8s", read.resolver.k8s.is_some()),
        ("aws_cloud_map", read.resolver.aws_cloud_map.is_some()),
    ] {
        if given {
            scope.error(
                &["resolver", key],
                "is not here; a headless service has its pods as addresses: write dns: {hostname: service.namespace}",
            );
            return None;
        }
    }
    let dns = read.resolver.dns.filter(|dns| !dns.hostname.trim().is_empty());
    let endpoints: Vec<String> = match (&dns, read.resolver.fixed) {
        (Some(_), Some(_)) => {
            scope.error(&["resolver"], "has static and dns; keep one of them");
            return None;
        }
        (Some(dns), None) => vec![format!("{}:{}", dns.hostname.trim(), dns.port.unwrap_or(PORT))],
        (None, fixed) => fixed.unwrap_or_default().hostnames,
    };
    let Some((first, more)) = endpoints.split_first() else {
        scope.error(
            &["resolver"],
            "names no endpoint; write static: {hostnames: [\"a:4317\", \"b:4317\"]}, or dns: {hostname: name}",
        );
        return None;
    };
    scope.without_effect(&[
        (&["timeout"], "write it under protocol.otlp"),
        (
            &["routing_attributes"],
            "the keys of requests are traceID, service and resource",
        ),
        (
            &["resolver", "dns", "timeout"],
            "a resolver has 5s to answer, and the addresses known before are kept meanwhile",
        ),
    ]);
    let otlp = ["protocol", "otlp"];
    let span = node.at(&otlp).map_or(&node.span, |otlp| &otlp.span).clone();
    let mut keys = node
        .at(&otlp)
        .and_then(Node::as_mapping)
        .cloned()
        .unwrap_or_default();
    // The endpoint of the template has no meaning: the resolver's are used.
    keys.remove("endpoint");
    let text = |text: &str| Node::new(Value::String(text.to_owned()), span.clone());
    let mut put = |key: &str, key_span: &Span, value: Node| {
        keys.remove(key);
        keys.insert(key.to_owned(), key_span.clone(), value);
    };
    put("endpoint", &span, text(first));
    let more = more.iter().map(|endpoint| text(endpoint)).collect();
    put(
        "more_endpoints",
        &span,
        Node::new(Value::Sequence(more), span.clone()),
    );
    put("balance", &span, text("consistent_hash"));
    if dns.is_some() {
        let interval = node
            .at(&["resolver", "dns", "interval"])
            .filter(|interval| !interval.is_null());
        let interval = interval.cloned().unwrap_or_else(|| text(INTERVAL));
        put("resolve_interval", &interval.span.clone(), interval);
    }
    // What stands beside the protocol is about all endpoints together, and so is our only queue.
    for key in ["routing_key", "retry_on_failure", "sending_queue"] {
        if let Some(entry) = node.as_mapping().and_then(|mapping| mapping.entry(key)) {
            put(key, &entry.key_span, entry.value.clone());
        }
    }
    let template = Node::new(Value::Mapping(keys), span.clone());
    otlp_grpc(&template, &format!("{path}.protocol.otlp"), scope.report)
}
