//! The YAML files that other programs read from this repository.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::fs;
use std::path::Path;

use sluice_config::{Source, parse_yaml};

fn parse_below(directory: &Path) -> usize {
    let mut parsed = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            parsed += parse_below(&path);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            // What the rig puts in is written @SO@, which no plain scalar may begin with.
            let text = fs::read_to_string(&path).unwrap().replace('@', "");
            let source = Source::new(path.display().to_string());
            parse_yaml(&text, &source).unwrap_or_else(|problem| panic!("{problem}"));
            parsed += 1;
        }
    }
    parsed
}

/// Scenario: every YAML file below `deploy`: of the comparison, its containers, Grafana and the alerts.
/// Guarantees: each is YAML without a key that is there twice.
#[test]
fn deploy_is_yaml() {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    assert!(parse_below(&deploy) > 10);
}
