//! Exporters of several endpoints: keys of our own, and the Collector's `loadbalancing`.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::Duration;

use sluice::settings::{Balance, Exporter, OtlpGrpcExporter, RoutingKey, Settings};
use sluice_config::Loader;

fn settings(exporter: &str) -> Result<Settings, String> {
    let id = exporter.split(':').next().unwrap();
    let yaml = format!(
        "receivers: {{otlp: {{protocols: {{grpc: }}}}}}\nexporters:\n  {exporter}\n\
         service: {{pipelines: {{traces: {{receivers: [otlp], exporters: [{id}]}}}}}}\n"
    );
    let document = Loader::new().text("own.yaml", yaml).load().unwrap();
    Settings::from_document(&document).map_err(|problems| problems.to_string())
}

fn grpc(exporter: &str) -> (OtlpGrpcExporter, Vec<String>) {
    let settings = settings(exporter).unwrap_or_else(|problems| panic!("{exporter}: {problems}"));
    let warnings = settings.warnings.iter().map(ToString::to_string).collect();
    let Some(Exporter::OtlpGrpc(grpc)) = settings.exporters.into_values().next() else {
        panic!("an otlp exporter")
    };
    (grpc, warnings)
}

/// Scenario: files of the Collector with a static list and with a name, under both names of the exporter; the queue beside the protocol
/// and in it.
/// Guarantees: endpoints, port, interval and key are what is written or the Collector's defaults; the protocol's own keys hold; the
/// endpoint of the template is not used.
#[test]
fn loadbalancing_is_understood() {
    let (fixed, warnings) = grpc(
        "loadbalancing: {routing_key: service, protocol: {otlp: {endpoint: unused, timeout: 1s, tls: {insecure: true}}}, \
         resolver: {static: {hostnames: [\"a:4317\", b]}}, sending_queue: {queue_size: 7}}",
    );
    assert_eq!(warnings, [""; 0]);
    assert_eq!(
        (fixed.endpoint.as_str(), &fixed.more_endpoints[..]),
        ("a:4317", &["b".to_owned()][..])
    );
    assert_eq!(
        (fixed.balance, fixed.routing_key),
        (Balance::ConsistentHash, Some(RoutingKey::Service))
    );
    assert_eq!(
        (fixed.timeout, fixed.tls.insecure),
        (Duration::from_secs(1), true)
    );
    assert_eq!(fixed.resolve_interval, None);

    let (named, warnings) =
        grpc("load_balancing: {resolver: {dns: {hostname: pods.ns, port: \"5317\", timeout: 1s}}}");
    assert!(
        warnings.len() == 1 && warnings[0].contains("resolver.dns.timeout"),
        "{warnings:?}"
    );
    assert_eq!(
        (named.endpoint.as_str(), named.more_endpoints.len()),
        ("pods.ns:5317", 0)
    );
    assert_eq!(
        (named.routing_key, named.resolve_interval),
        (None, Some(Duration::from_secs(5)))
    );

    let (often, _) = grpc(
        "loadbalancing: {protocol: {otlp: {sending_queue: {num_consumers: 3}}}, resolver: {dns: {hostname: p, interval: 30s}}, \
         retry_on_failure: {initial_interval: 2s}}",
    );
    assert_eq!(
        (often.endpoint.as_str(), often.resolve_interval),
        ("p:4317", Some(Duration::from_secs(30)))
    );
    assert_eq!(often.retry_on_failure.initial_interval, Duration::from_secs(2));
}

/// Scenario: resolvers and keys that are not here, keys that do not go together, and words that are misspelt.
/// Guarantees: each is an error that names the key and says what to do.
#[test]
fn what_does_not_go_together_is_told() {
    for (exporter, expected) in [
        (
            "loadbalancing: {resolver: {k8s: {service: s.ns}}}",
            "resolver.k8s: is not here; a headless service",
        ),
        (
            "loadbalancing: {protocol: {otlp: {}}}",
            "resolver: names no endpoint",
        ),
        (
            "loadbalancing: {resolver: {static: {hostnames: [a]}, dns: {hostname: b}}}",
            "has static and dns",
        ),
        (
            "loadbalancing: {routing_key: metric, resolver: {static: {hostnames: [a, b]}}}",
            "routing_key",
        ),
        (
            "loadbalancing: {resolver: {static: {hostname: [a]}}}",
            "did you mean \"hostnames\"?",
        ),
        (
            "loadbalancing: {protocol: {otlp: {timeuot: 1s}}, resolver: {static: {hostnames: [a, b]}}}",
            "did you mean \"timeout\"?",
        ),
        (
            "otlp: {endpoint: a, more_endpoints: [b], routing_key: traceID}",
            "exporters.otlp.routing_key: goes with balance: consistent_hash",
        ),
        (
            "otlp: {endpoint: a, resolve_interval: 5s}",
            "exporters.otlp.resolve_interval: goes with balance: consistent_hash",
        ),
        (
            "otlp: {endpoint: a, balance: consistent_hash, resolve_interval: 0s}",
            "resolve_interval: must be above zero",
        ),
        (
            "otlphttp: {traces_endpoint: \"http://a/x\", balance: consistent_hash, resolve_interval: 5s}",
            "resolve_interval: goes with `endpoint` alone",
        ),
    ] {
        let error = settings(exporter).expect_err(exporter);
        assert!(error.contains(expected), "{exporter}: {error}");
    }
}

/// Scenario: endpoints with paths, queries, ports of other protocols, addresses, and hosts that are none.
/// Guarantees: what can be reached is taken without a word, what is likely to be a slip with a warning, what is no host is an error.
#[test]
fn endpoints_are_looked_at() {
    let told = |exporter: &str| match settings(exporter) {
        Ok(settings) => settings.warnings.iter().map(ToString::to_string).collect(),
        Err(problems) => format!("error: {problems}"),
    };
    for exporter in [
        "otlphttp: {endpoint: \"https://in-gest.example_1.com/otlp?team=a\"}",
        "otlphttp: {endpoint: \"https://h?k=$a\"}",
        "otlphttp: {endpoint: \"http://[fe80::1%25eth0]:4318/\"}",
        "otlphttp: {endpoint: \"http://bücher.example:8080\"}",
        "otlphttp: {traces_endpoint: \"http://a:4318/v1/traces\"}",
        "otlp: {endpoint: \"dns:///a.b:4317\"}",
        "otlp: {endpoint: \"[::1]:4317\"}",
    ] {
        assert_eq!(told(exporter), "", "{exporter}");
    }
    for (exporter, expected) in [
        (
            "otlp: {endpoint: \"http://a:4317/v1/traces\"}",
            "the path of a gRPC endpoint has no effect",
        ),
        (
            "otlp: {endpoint: \"a:4318\"}",
            "4318 is where most destinations speak OTLP over HTTP",
        ),
        (
            "otlphttp: {traces_endpoint: \"http://a:4317/x\"}",
            "4317 is where most destinations speak OTLP over gRPC",
        ),
        (
            "otlphttp: {endpoint: \"http://a/v1/traces\"}",
            "write traces_endpoint",
        ),
        (
            "otlphttp: {endpoint: \"http://<host>\"}",
            "error: own.yaml:3:14: exporters.otlphttp.endpoint: \"<host>\" is no name of a host",
        ),
        (
            "otlp: {endpoint: \"${HOST\"}",
            "a variable is written ${env:NAME}",
        ),
    ] {
        let told = told(exporter);
        assert!(told.contains(expected), "{exporter}: {told}");
    }
}
