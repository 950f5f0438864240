//! The files under `config/` load without an error or a warning, and say what their comments promise;
//! `print-config` shows a configuration without its secrets.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;

use sluice::settings::{
    Ack, Exporter, Extension, Kind, MemoryLimit, Receiver, Settings, components, print_config,
};
use sluice_config::{Document, Loader};

fn load(name: &str) -> Document {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../config")
        .join(name);
    Loader::new()
        .text(name, std::fs::read_to_string(path).unwrap())
        .load()
        .unwrap()
}

fn example(name: &str) -> Settings {
    let settings = Settings::from_document(&load(name)).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(settings.warnings, [], "{name}");
    settings
}

/// Scenario: every file under `config/`.
/// Guarantees: none is left untested, and each is valid without a warning.
#[test]
fn every_example_is_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        if name.ends_with(".yaml") {
            example(&name);
            seen += 1;
        }
    }
    assert!(seen >= 3, "{seen}");
}

/// Scenario: what the comparison gives to sluice and to the Collector alike, and to sluice alone.
/// Guarantees: sluice reads each without a warning, so that none of what makes the work equal is silently without effect.
#[test]
fn every_file_of_the_comparison_is_valid() {
    for file in [
        "shapes/minimal",
        "shapes/balanced",
        "collector-http-none",
        "collector-http-zstd",
        "collector-grpc-zstd",
        "sluice-http-zstd-frames",
        "sluice-http-gzip-members",
        "sluice-remote-write-snappy",
        "sluice-remote-write-zstd",
        "sluice-through-snappy",
    ] {
        example(&format!("../deploy/compare/{file}.yaml"));
    }
}

/// Scenario: the configuration that is compiled in.
/// Guarantees: everything listens on localhost at the usual ports, and data goes into tables under ./sluice-data; files.yaml is the same with lines.
#[test]
fn the_default_is_local() {
    let settings = example("default.yaml");
    let Some(Receiver::Otlp(otlp)) = settings.receivers.values().next() else {
        panic!("otlp")
    };
    assert_eq!(otlp.grpc.as_ref().unwrap().endpoint.to_string(), "localhost:4317");
    assert_eq!(otlp.http.as_ref().unwrap().endpoint.to_string(), "localhost:4318");
    let Some(Extension::HealthCheck(health)) = settings.extensions.values().next() else {
        panic!("health_check")
    };
    assert_eq!(health.endpoint.to_string(), "localhost:13133");
    assert_eq!(
        settings.telemetry.metrics.listen.as_ref().unwrap().to_string(),
        "localhost:8888"
    );
    let tables: Vec<_> = settings.exporters.values().collect();
    assert!(matches!(&tables[..], [Exporter::Parquet(tables)] if tables.path.starts_with("./sluice-data")));
    let lines = example("files.yaml");
    assert_eq!(lines.receivers, settings.receivers);
    assert_eq!(lines.exporters.len(), 3);
    for exporter in lines.exporters.values() {
        assert!(matches!(exporter, Exporter::File(file) if file.path.starts_with("./sluice-data")));
    }
}

/// Scenario: the gateway and the edge example.
/// Guarantees: their memory budgets and acknowledgements are what their comments say.
#[test]
fn examples_do_what_they_say() {
    let gateway = example("gateway.yaml");
    assert_eq!(
        gateway.memory,
        Some(MemoryLimit::Percentage { limit: 80, spike: 15 })
    );
    assert!(
        gateway
            .pipelines
            .iter()
            .all(|pipeline| pipeline.ack == Ack::Accepted)
    );
    let edge = example("edge.yaml");
    assert_eq!(
        edge.memory,
        Some(MemoryLimit::Bytes {
            limit: 64 << 20,
            spike: 16 << 20
        })
    );
    assert!(
        edge.pipelines
            .iter()
            .all(|pipeline| pipeline.ack == Ack::Delivered)
    );
}

/// Scenario: a configuration with secrets in headers, passwords, tokens, keys and URLs, in known and unknown components.
/// Guarantees: none of them is printed, everything else is, and what is printed loads again.
#[test]
fn printed_configuration_has_no_secrets() {
    let text = "exporters:\n  otlp: {endpoint: 'https://user:hunter2@h:4317', headers: {authorization: hunter2}, tls: {key_pem: hunter2, key_file: /k.pem}}\n  \
                acme: {api_key: hunter2, nested: [{client_secret: hunter2}], token_url: https://t, password_file: /p, url: 'https://h/c?sv=1&sig=hunter2&Api_Key=hunter2&se=2'}\n\
                extensions:\n  basicauth: {client_auth: {username: ann, password: hunter2}, htpasswd: {inline: 'ann:hunter2'}}\n  \
                bearertokenauth: {token: hunter2, tokens: [hunter2, hunter2]}\n";
    let document = Loader::new().text("t.yaml", text).load().unwrap();
    let printed = print_config(&document);
    assert!(!printed.contains("hunter2"), "{printed}");
    for kept in [
        "https://[REDACTED]@h:4317",
        "/k.pem",
        "username: ann",
        "https://t",
        "/p",
        "authorization",
        "https://h/c?sv=1&sig=[REDACTED]&Api_Key=[REDACTED]&se=2",
    ] {
        assert!(printed.contains(kept), "{kept} not in\n{printed}");
    }
    Loader::new().text("printed.yaml", printed).load().unwrap();
}

/// Scenario: `--set` overrides a value of a file with a misspelt key and with a wrong value.
/// Guarantees: the error names the `--set` by its number.
#[test]
fn errors_from_set_name_the_set() {
    let load = |set: &str| {
        let document = Loader::new()
            .text("a.yaml", include_str!("../../../config/default.yaml"))
            .set(set)
            .load()
            .unwrap();
        Settings::from_document(&document).unwrap_err().to_string()
    };
    let error = load("receivers.otlp.protocols.grpc.endpont=localhost:1");
    assert!(
        error.starts_with("--set #1: unknown key \"endpont\" in receivers.otlp.protocols.grpc"),
        "{error}"
    );
    let error = load("receivers.otlp.protocols.grpc.endpoint=4317");
    assert!(
        error.starts_with("--set #1: receivers.otlp.protocols.grpc.endpoint: expected host:port"),
        "{error}"
    );
}

/// Scenario: the list behind the `components` command.
/// Guarantees: every kind but connectors has components, names and aliases are unique within a kind.
#[test]
fn components_are_listed_once() {
    for kind in Kind::ALL {
        let mut names: Vec<&str> = components()
            .iter()
            .filter(|c| c.kind == kind)
            .flat_map(|c| c.aliases.iter().chain([&c.name]))
            .copied()
            .collect();
        assert_eq!(names.is_empty(), kind == Kind::Connector);
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
