//! The `parquet` exporter with a real S3 server (moto) and the engines that read what it writes, all from PyPI.
//!
//! CI kills a few times. `SLUICE_KILLS=200 cargo test --release -p sluice-tests --test parquet -- --nocapture` does it as often as one
//! likes, and prints what was lost and what came twice.

#![allow(clippy::unwrap_used, reason = "tests")]

mod hostile;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use prost::Message;
use sluice_tests::{
    Config, Gateway, HttpConnection, Kind, PythonServer, python, request, run, script, within,
};
use tokio::task::JoinSet;

/// Kills of a run in CI.
const KILLS: u64 = 6;

const SENDERS: u64 = 4;
const ITEMS: u64 = 10;
const BUCKET: &str = "telemetry";

/// 2025-11-21T21:00:00.123456789Z.
const TIME: u64 = 1_763_758_800_123_456_789;
const HOUR: u64 = 3_600_000_000_000;

fn engines() -> PathBuf {
    python(env!("CARGO_TARGET_TMPDIR"), "requirements-tables.txt")
}

fn s3_server() -> PythonServer {
    PythonServer::start(Command::new(engines()).arg(script("s3_server.py")).arg(BUCKET))
}

fn to_directory(directory: &std::path::Path, more: &str) -> String {
    format!("path: {}, max_age: 200ms, {more}", directory.display())
}

fn to_s3(port: u16, prefix: &str, more: &str) -> String {
    format!(
        "s3uploader: {{region: us-east-1, s3_bucket: {BUCKET}, s3_prefix: {prefix}, endpoint: \"http://127.0.0.1:{port}\", \
         s3_force_path_style: true, access_key_id: key, secret_access_key: secret}}, max_age: 300ms, timeout: 10s, \
         retry_on_failure: {{initial_interval: 20ms, max_interval: 100ms}}, {more}"
    )
}

/// Scenario: attributes of every type, nested in each other, on resources, scopes, records, events, links and exemplars, in
/// every table; written to a directory and to S3.
/// Guarantees: DuckDB, pyarrow, Polars and DataFusion read all rows, sum them up right, and every attribute comes back
/// exactly.
#[tokio::test(flavor = "multi_thread")]
async fn engines_read_every_type_back() {
    let s3 = tokio::task::spawn_blocking(s3_server).await.unwrap();
    let out = tempfile::tempdir().unwrap();
    let config = Config::new()
        .signals(&["logs", "metrics", "traces"])
        .exporter("parquet/directory", &to_directory(out.path(), ""))
        .exporter("parquet/s3", &to_s3(s3.port, "types", ""));
    let gateway = Gateway::start(&config).await;
    let mut command = Command::new(engines());
    command
        .arg(script("tables.py"))
        .arg(gateway.http().to_string())
        .arg(out.path())
        .arg(format!("http://127.0.0.1:{}", s3.port))
        .args([BUCKET, "types"]);
    println!(
        "{}",
        tokio::task::spawn_blocking(move || run(&mut command))
            .await
            .unwrap()
    );
    gateway.stop().await;
}

/// A request of log records whose bodies number them, in as many hours as there are records.
fn logs(id: u64) -> Vec<u8> {
    let record = |n: u64| LogRecord {
        time_unix_nano: TIME + n * HOUR,
        body: Some(AnyValue {
            value: Some(Value::StringValue((id * ITEMS + n).to_string())),
        }),
        ..LogRecord::default()
    };
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            scope_logs: vec![ScopeLogs {
                log_records: (0..ITEMS).map(record).collect(),
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        }],
    }
    .encode_to_vec()
}

/// Sends until the gateway is gone; returns the requests that were acknowledged.
async fn send(address: std::net::SocketAddr, next: Arc<AtomicU64>) -> Vec<u64> {
    let mut acked = Vec::new();
    let Ok(mut connection) = HttpConnection::http1(address).await else {
        return acked;
    };
    loop {
        let id = next.fetch_add(1, Ordering::Relaxed);
        let headers = [("content-type", "application/x-protobuf")];
        let request = request(
            http::Method::POST,
            address,
            Kind::Logs.http_path(),
            &headers,
            logs(id),
        );
        match connection.send(request).await {
            Ok(reply) if reply.status == 200 => acked.push(id),
            Ok(reply) => assert_eq!(reply.status, 503, "{reply:?}"),
            Err(_) => return acked,
        }
    }
}

/// Scenario: senders without a pause, rows in ten hours; SIGKILL after a random time, again and again; the S3 server answers half of
/// all PUTs with 503, 409, 403 or 500, or cuts the connection, before or after the object was stored.
/// Guarantees: every row of an acknowledged request is in exactly one file, in the directory and on S3; nothing is left in the
/// spools, and no multipart upload.
#[tokio::test(flavor = "multi_thread")]
async fn every_acknowledged_row_arrives_once_over_sigkill_and_faults_of_s3() {
    let kills = std::env::var("SLUICE_KILLS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(KILLS);
    let (s3, faults) = tokio::task::spawn_blocking(|| {
        let s3 = s3_server();
        let mut proxy = Command::new(engines());
        proxy
            .arg(script("s3_faults.py"))
            .arg(format!("127.0.0.1:{}", s3.port))
            .arg("7");
        (s3, PythonServer::start(&mut proxy))
    })
    .await
    .unwrap();
    let (out, spool) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let durable = "sending_queue: {storage: file_storage}";
    let config = Config::new()
        .signals(&["logs"])
        .extension("file_storage", &format!("directory: {}", spool.path().display()))
        .exporter("parquet/directory", &to_directory(out.path(), durable))
        .exporter("parquet/s3", &to_s3(faults.port, "kills", durable));
    let next = Arc::new(AtomicU64::new(0));
    let mut acked = BTreeSet::new();
    let mut random: u64 = 0x2545_f491_4f6c_dd1d;
    for _ in 0..kills {
        let gateway = Gateway::start(&config).await;
        let mut senders = JoinSet::new();
        for _ in 0..SENDERS {
            senders.spawn(send(gateway.http(), next.clone()));
        }
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Not to wait for anything: the moment of the kill is what is at random.
        tokio::time::sleep(Duration::from_millis(20 + random % 1000)).await;
        gateway.kill().await;
        while let Some(round) = within("senders notice", senders.join_next()).await {
            acked.extend(round.unwrap());
        }
    }
    let gateway = Gateway::start(&config).await;
    gateway.stop().await;
    assert!(!acked.is_empty());

    let numbers: Vec<String> = (acked.iter())
        .flat_map(|request| request * ITEMS..(request + 1) * ITEMS)
        .map(|row| row.to_string())
        .collect();
    let list = out.path().join("acknowledged");
    std::fs::write(&list, numbers.join("\n")).unwrap();
    let mut command = Command::new(engines());
    command
        .arg(script("rows.py"))
        .arg(list)
        .arg(out.path().join("logs"))
        .arg(format!("http://127.0.0.1:{}", s3.port))
        .args([BUCKET, "kills"]);
    let said = tokio::task::spawn_blocking(move || run(&mut command))
        .await
        .unwrap();
    println!("{kills} kills\n{said}");
    let mut left = Vec::new();
    files(spool.path(), &mut left);
    left.retain(|path| {
        path.extension()
            .is_some_and(|kind| kind == "parquet" || kind == "unfinished")
    });
    assert!(left.is_empty(), "{left:?}");
}

fn files(directory: &std::path::Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, found),
            false => found.push(path),
        }
    }
}
