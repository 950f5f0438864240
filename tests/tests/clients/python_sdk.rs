//! The SDK for Python, from PyPI, over gRPC and HTTP.

use std::path::PathBuf;
use std::process::Command;

use sluice_tests::{Kind, python, run, script};

use crate::Bench;

pub fn sdk() -> PathBuf {
    python(env!("CARGO_TARGET_TMPDIR"), "requirements.txt")
}

async fn sends(transport: &'static str, compression: &'static str) {
    let bench = Bench::new().await;
    let address = match transport {
        "grpc" => bench.gateway.grpc(),
        _ => bench.gateway.http(),
    };
    let reference = bench.reference.address();
    let send = move || {
        let mut command = Command::new(sdk());
        // Nothing of the environment may redirect what is sent.
        let settings = std::env::vars_os().filter(|(name, _)| {
            let name = name.to_string_lossy().to_ascii_uppercase();
            name.starts_with("OTEL_") || name.ends_with("_PROXY")
        });
        for (name, _) in settings {
            command.env_remove(name);
        }
        command.arg(script("send.py")).args([
            transport,
            compression,
            &address.to_string(),
            &reference.to_string(),
        ]);
        run(&mut command);
    };
    tokio::task::spawn_blocking(send).await.unwrap();
    bench
        .assert_equal(&[(Kind::Traces, 31), (Kind::Logs, 40), (Kind::Metrics, 100)])
        .await;
}

/// Scenario: the Python SDK sends spans, metrics and log records with attributes of every type over gRPC.
/// Guarantees: every item arrives once, equal to what a destination without a gateway receives.
#[tokio::test(flavor = "multi_thread")]
async fn python_over_grpc() {
    sends("grpc", "none").await;
}

/// Scenario: the same with gzip.
/// Guarantees: as above.
#[tokio::test(flavor = "multi_thread")]
async fn python_over_grpc_with_gzip() {
    sends("grpc", "gzip").await;
}

/// Scenario: the same over HTTP.
/// Guarantees: as above.
#[tokio::test(flavor = "multi_thread")]
async fn python_over_http() {
    sends("http", "none").await;
}

/// Scenario: the same over HTTP with gzip.
/// Guarantees: as above.
#[tokio::test(flavor = "multi_thread")]
async fn python_over_http_with_gzip() {
    sends("http", "gzip").await;
}
