//! What lies around a configuration: things a Collector would heed and sluice does not, and files that are not there.

use std::path::Path;

use sluice_config::{Document, Node, Problem, Value};

use crate::settings::{ComponentId, Exporter, Settings};

/// Keys of files that are read at the start, wherever they stand in a component.
const FILES: [&str; 9] = [
    "ca_file",
    "cert_file",
    "client_ca_file",
    "credentials_file",
    "file",
    "filename",
    "key_file",
    "password_file",
    "username_file",
];

/// What a Collector would heed beside its files, and sluice does not: gates, and proxies from the environment.
pub(super) fn unread(
    settings: &Settings,
    feature_gates: &[String],
    is_set: impl Fn(&str) -> bool,
) -> Vec<Problem> {
    let mut warnings = Vec::new();
    if !feature_gates.is_empty() {
        let message = "--feature-gates has no effect here: the gates are the Collector's; remove it";
        warnings.push(Problem::general(message));
    }
    let over_network = |exporter: &Exporter| match exporter {
        Exporter::OtlpGrpc(_) | Exporter::OtlpHttp(_) | Exporter::RemoteWrite(_) => true,
        Exporter::Parquet(_) | Exporter::File(_) | Exporter::Debug(_) | Exporter::Nop => false,
    };
    let proxy = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"]
        .into_iter()
        .find(|name| is_set(name));
    if let Some(name) = proxy
        && settings.exporters.values().any(over_network)
    {
        warnings.push(Problem::general(format!(
            "the environment variable {name} has no effect here: exporters connect to their destinations directly; give sluice a direct way \
             to them"
        )));
    }
    warnings
}

/// Warnings of files that components in use name and that are not there: most of them keep sluice from starting, and then no line is told.
/// On another machine than the one that is meant they are no mistake.
pub(super) fn absent_files(settings: &Settings, document: &Document) -> Vec<Problem> {
    let mut warnings = Vec::new();
    let used = |section: &str, id: &ComponentId| match section {
        "receivers" => settings.receivers.contains_key(id),
        "exporters" => settings.exporters.contains_key(id),
        _ => settings.extensions.contains_key(id),
    };
    for section in ["receivers", "exporters", "extensions"] {
        let components = document.root.get(section).and_then(Node::as_mapping);
        for entry in components.into_iter().flat_map(|mapping| mapping.entries()) {
            if ComponentId::parse(&entry.key).is_ok_and(|id| used(section, &id)) {
                look_for_files(&entry.value, &format!("{section}.{}", entry.key), &mut warnings);
            }
        }
    }
    warnings
}

fn look_for_files(node: &Node, path: &str, warnings: &mut Vec<Problem>) {
    let Value::Mapping(mapping) = &node.value else {
        return;
    };
    for entry in mapping.entries() {
        let path = format!("{path}.{}", entry.key);
        let named = entry
            .value
            .as_text()
            .filter(|_| FILES.contains(&entry.key.as_str()));
        match named {
            Some(file) if !file.is_empty() && !Path::new(file).exists() => {
                let message = format!("{path}: there is no {file} here; put it there, or mend the path");
                warnings.push(Problem::at(&entry.value.span, message));
            }
            _ => look_for_files(&entry.value, &path, warnings),
        }
    }
}

#[cfg(test)]
mod tests {
    use sluice_config::Loader;

    use super::*;

    const PIPELINE: &str = "service: {pipelines: {logs: {receivers: [otlp], exporters: [otlphttp]}}}\n\
                            receivers: {otlp: {protocols: {grpc: }}}\n";

    fn document(yaml: &str) -> Document {
        Loader::new().text("t.yaml", yaml).load().unwrap()
    }

    /// Scenario: a Collector's --feature-gates, and a proxy in the environment, with an exporter over the network and with none.
    /// Guarantees: the gates are taken, and a warning says of each that it has no effect; a proxy is nobody's business where nothing is sent.
    #[test]
    fn what_a_collector_would_heed_is_told() {
        let exporters = "exporters: {otlphttp: {endpoint: \"http://a:1\"}}\n";
        let over_network = Settings::from_document(&document(&format!("{PIPELINE}{exporters}"))).unwrap();
        let told: Vec<String> = unread(&over_network, &["+a.b".to_owned()], |name| name == "https_proxy")
            .iter()
            .map(ToString::to_string)
            .collect();
        assert!(
            told.len() == 2
                && told[0].starts_with("--feature-gates has no effect")
                && told[1].starts_with("the environment variable https_proxy has no effect"),
            "{told:?}"
        );
        let nowhere = Settings::default();
        assert_eq!(unread(&nowhere, &[], |_| true), []);
        assert_eq!(unread(&over_network, &[], |_| false), []);
    }

    /// Scenario: certificates that are there and that are not, in a component that is used and in one that is not, and a path in a variable
    /// that turned out empty.
    /// Guarantees: what is not there is told with its key, file and line, where it is used.
    #[test]
    fn files_that_are_not_there_are_told() {
        let here = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let document = document(&format!(
            "{PIPELINE}exporters:\n  otlphttp:\n    endpoint: https://a:1\n    tls:\n      ca_file: {here}\n\
             \x20     cert_file: /not/there.pem\n      key_file: /not/there.key\n      \
             server_name_override: /not/a/file\n  otlphttp/unused: {{endpoint: \"https://a:1\", tls: {{ca_file: /not/there}}}}\n"
        ));
        let settings = Settings::from_document(&document).unwrap();
        let told: Vec<String> = absent_files(&settings, &document)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            told,
            [
                "t.yaml:8:18: exporters.otlphttp.tls.cert_file: there is no /not/there.pem here; put it there, or mend the path",
                "t.yaml:9:17: exporters.otlphttp.tls.key_file: there is no /not/there.key here; put it there, or mend the path",
            ]
        );
    }
}
