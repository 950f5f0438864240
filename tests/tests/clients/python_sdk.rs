//! The SDK for Python, from PyPI, over gRPC and HTTP.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use sluice_tests::Kind;

use crate::Bench;

/// A virtual environment with the SDK below the target directory: made once, kept for later runs,
/// made anew when the requirements change. Tests and test runs that need it at the same time wait.
fn python() -> PathBuf {
    let requirements = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/requirements.txt");
    let wanted = std::fs::read_to_string(&requirements).unwrap();
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(base).unwrap();
    let lock = File::create(base.join("python-sdk.lock")).unwrap();
    lock.lock().unwrap();
    let venv = base.join("python-sdk");
    let (python, made) = (venv.join("bin/python"), venv.join("requirements-installed.txt"));
    if std::fs::read_to_string(&made).is_ok_and(|installed| installed == wanted) {
        return python;
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv));
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--requirement",
    ];
    run(Command::new(&python).args(pip).arg(&requirements));
    std::fs::write(made, wanted).unwrap();
    python
}

fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?} failed\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

async fn sends(transport: &'static str, compression: &'static str) {
    let bench = Bench::new().await;
    let address = match transport {
        "grpc" => bench.gateway.grpc(),
        _ => bench.gateway.http(),
    };
    let reference = bench.reference.address();
    let send = move || {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/send.py");
        let mut command = Command::new(python());
        // Nothing of the environment may redirect what is sent.
        let settings = std::env::vars_os().filter(|(name, _)| {
            let name = name.to_string_lossy().to_ascii_uppercase();
            name.starts_with("OTEL_") || name.ends_with("_PROXY")
        });
        for (name, _) in settings {
            command.env_remove(name);
        }
        command.arg(script).args([
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
