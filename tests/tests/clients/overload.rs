//! Clients that send while the destination takes nothing, and then twice what it takes, with the retries they have by themselves.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::logs::{AnyValue, LogRecord, Logger, LoggerProvider};
use opentelemetry_otlp::{LogExporter, RetryPolicy, WithExportConfig, WithTonicConfig};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::AnyValue as AnyValueMessage;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::{ResourceLogs, ScopeLogs};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{BatchConfigBuilder, BatchLogProcessor, LogBatch, SdkLoggerProvider};
use prost::Message;
use sluice_tests::{Answer, Config, Gateway, Kind, Sink, eventually, post, run, script};
use tokio::sync::{Semaphore, watch};

use crate::python_sdk::sdk;

/// What the destination takes in a second, in requests of [`PER_BATCH`] records.
const CAPACITY: u32 = 10;

/// Records of a batch: the SDKs' default.
const PER_BATCH: usize = 512;

/// Batches of one client.
const BATCHES: usize = 20;

/// How far the batches of one of `clients` are apart: all of them together send at twice the capacity.
fn interval(clients: u32) -> Duration {
    Duration::from_secs(1) * clients / (2 * CAPACITY)
}

/// A gateway with a queue of two requests in front of a destination that takes nothing until it is opened, and then has [`CAPACITY`].
async fn overloaded() -> (Gateway, Sink, watch::Sender<bool>) {
    let sink = Sink::start().await;
    let one_at_a_time = Arc::new(Semaphore::new(1));
    let (open, opened) = watch::channel(false);
    sink.answer(move |_| {
        let (turn, opened) = (one_at_a_time.clone(), opened.clone());
        let done = move || {
            let (turn, mut opened) = (turn.clone(), opened.clone());
            let wait: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
                let _turn = turn.acquire().await;
                drop(opened.wait_for(|open| *open).await);
                // The destination's work, not a wait for anything.
                tokio::time::sleep(Duration::from_secs(1) / CAPACITY).await;
            });
            wait
        };
        Answer::After(Arc::new(done), Box::new(Answer::Take))
    });
    let queue = format!(
        "sending_queue: {{queue_size: 2, num_consumers: 1, batch: {{flush_timeout: 5ms, min_size: 1, max_size: {PER_BATCH}}}}}"
    );
    let config = Config::new()
        .signals(&["logs"])
        .http_exporter("sink", &sink, &queue);
    (Gateway::start(&config).await, sink, open)
}

/// Opens the destination when so many requests have been refused.
async fn open_after(refusals: f64, gateway: &Gateway, open: &watch::Sender<bool>) {
    eventually("clients are refused", || async {
        let metrics = gateway.metrics().await;
        (metrics.sum("sluice_receiver_refused_requests_total", &[]) >= refusals).then_some(())
    })
    .await;
    open.send_replace(true);
}

/// How often each body arrived.
fn arrived(sink: &Sink) -> BTreeMap<String, u32> {
    let mut bodies = BTreeMap::new();
    for arrived in sink.taken() {
        let request = ExportLogsServiceRequest::decode(arrived.body).unwrap();
        let scopes = request
            .resource_logs
            .into_iter()
            .flat_map(|resource| resource.scope_logs);
        for record in scopes.flat_map(|scope| scope.log_records) {
            let Some(Value::StringValue(body)) = record.body.and_then(|body| body.value) else {
                panic!("a body that is no text");
            };
            *bodies.entry(body).or_default() += 1;
        }
    }
    bodies
}

/// Every record of these clients arrived, once.
async fn assert_all(gateway: Gateway, sink: &Sink, clients: &[&str]) {
    gateway.settled().await;
    let arrived = arrived(sink);
    for client in clients {
        for number in 0..BATCHES * PER_BATCH {
            let body = format!("{client}{number}");
            assert_eq!(arrived.get(&body), Some(&1), "{body}");
        }
    }
    assert_eq!(arrived.len(), clients.len() * BATCHES * PER_BATCH);
    gateway.stop().await;
}

fn python(
    sdk: &Path,
    transport: &'static str,
    address: SocketAddr,
    prefix: &'static str,
    interval: Duration,
) {
    run(Command::new(sdk)
        .arg(script("overload.py"))
        .args([transport, &address.to_string(), prefix])
        .args([BATCHES.to_string(), PER_BATCH.to_string()])
        .arg(interval.as_secs_f64().to_string()));
}

/// The SDK's exporter; a batch that it gives up ends the test.
#[derive(Debug)]
struct Watched(LogExporter);

impl opentelemetry_sdk::logs::LogExporter for Watched {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        let result = self.0.export(batch).await;
        assert!(result.is_ok(), "given up: {result:?}");
        result
    }
}

fn rust(exporter: LogExporter, prefix: &'static str, interval: Duration) {
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(BATCHES * PER_BATCH)
        .with_max_export_batch_size(PER_BATCH)
        .build();
    let processor = BatchLogProcessor::builder(Watched(exporter))
        .with_batch_config(batches)
        .build();
    let loggers = SdkLoggerProvider::builder().with_log_processor(processor).build();
    let logger = loggers.logger("overload");
    for number in 0..BATCHES * PER_BATCH {
        let mut record = logger.create_log_record();
        record.set_body(AnyValue::from(format!("{prefix}{number}")));
        logger.emit(record);
        if (number + 1).is_multiple_of(PER_BATCH) {
            // The pace of the load.
            std::thread::sleep(interval);
        }
    }
    loggers.shutdown_with_timeout(sluice_tests::DEADLINE).unwrap();
}

/// Scenario: the SDKs for Python and Rust, over gRPC and HTTP each, with the timeouts and retries they have by default, send to a
/// gateway whose queue holds two requests; its destination takes nothing until two requests have been refused, and then half of what they send.
/// Guarantees: refusals make the SDKs come back in time: none gives up a batch, and every record arrives once.
#[tokio::test(flavor = "multi_thread")]
async fn sdks_lose_nothing() {
    // Made before anybody is refused: it takes longer than the other SDKs try.
    let sdk = tokio::task::spawn_blocking(sdk).await.unwrap();
    let for_http = sdk.clone();
    let (gateway, sink, open) = overloaded().await;
    let (grpc, http) = (gateway.grpc(), gateway.http());
    let interval = interval(4);
    let runtime = tokio::runtime::Handle::current();
    let clients: Vec<Box<dyn FnOnce() + Send>> = vec![
        Box::new(move || python(&sdk, "grpc", grpc, "python-grpc-", interval)),
        Box::new(move || python(&for_http, "http", http, "python-http-", interval)),
        Box::new(move || {
            let _entered = runtime.enter();
            let exporter = LogExporter::builder()
                .with_tonic()
                .with_endpoint(format!("http://{grpc}"))
                .with_retry_policy(RetryPolicy::recommended());
            rust(exporter.build().unwrap(), "rust-grpc-", interval);
        }),
        Box::new(move || {
            let exporter = LogExporter::builder()
                .with_http()
                .with_endpoint(format!("http://{http}/v1/logs"));
            rust(exporter.build().unwrap(), "rust-http-", interval);
        }),
    ];
    let mut running = tokio::task::JoinSet::new();
    for client in clients {
        // The SDKs have threads of their own, and block.
        running.spawn_blocking(move || std::thread::spawn(client).join());
    }
    // Two of them at least have each waited as long as the gateway lets them, whichever of the four began first.
    open_after(2.0, &gateway, &open).await;
    while let Some(client) = running.join_next().await {
        client.unwrap().expect("the SDK sends everything");
    }
    let names = ["python-grpc-", "python-http-", "rust-grpc-", "rust-http-"];
    assert_all(gateway, &sink, &names).await;
}

/// A Collector with the retries and the queue it has by default, in front of a gateway.
struct Collector(Child);

impl Collector {
    async fn start(executable: &str, listen: SocketAddr, gateway: &Gateway) -> Self {
        let config = format!(
            "receivers: {{otlp: {{protocols: {{http: {{endpoint: '{listen}'}}}}}}}}\n\
             exporters: {{otlphttp: {{endpoint: 'http://{}', compression: none}}}}\n\
             service:\n  telemetry: {{metrics: {{level: none}}}}\n  \
             pipelines: {{logs: {{receivers: [otlp], exporters: [otlphttp]}}}}\n",
            gateway.http()
        );
        let file = gateway.dir().join("collector.yaml");
        std::fs::write(&file, config).unwrap();
        let child = Command::new(executable)
            .arg("--config")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{executable}: {error}"));
        let collector = Self(child);
        eventually("the Collector listens", || async {
            tokio::net::TcpStream::connect(listen).await.ok()
        })
        .await;
        collector
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // It may have ended by itself, which the test says better.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Scenario: the same with a Collector (`COLLECTOR=PATH`) and its defaults.
/// Guarantees: every record arrives, once.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Collector: COLLECTOR=PATH"]
async fn a_collector_loses_nothing() {
    let executable = std::env::var("COLLECTOR").expect("COLLECTOR=PATH of an otelcol");
    let (gateway, sink, open) = overloaded().await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = free.local_addr().unwrap();
    drop(free);
    let _collector = Collector::start(&executable, listen, &gateway).await;
    let mut pace = tokio::time::interval(interval(1));
    for batch in 0..BATCHES {
        pace.tick().await;
        let bodies = (0..PER_BATCH).map(|number| format!("collector-{}", batch * PER_BATCH + number));
        let headers = [("content-type", "application/x-protobuf")];
        let reply = post(listen, Kind::Logs.http_path(), &headers, records(bodies)).await;
        assert_eq!(reply.status, 200, "the Collector's own answer");
    }
    open_after(1.0, &gateway, &open).await;
    sink.until("every record arrives", |sink| {
        (arrived(sink).len() == BATCHES * PER_BATCH).then_some(())
    })
    .await;
    assert_all(gateway, &sink, &["collector-"]).await;
}

/// A request of log records with these bodies.
fn records(bodies: impl Iterator<Item = String>) -> Vec<u8> {
    let record = |body| opentelemetry_proto::tonic::logs::v1::LogRecord {
        body: Some(AnyValueMessage {
            value: Some(Value::StringValue(body)),
        }),
        ..Default::default()
    };
    let scope_logs = vec![ScopeLogs {
        log_records: bodies.map(record).collect(),
        ..Default::default()
    }];
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            scope_logs,
            ..Default::default()
        }],
    }
    .encode_to_vec()
}
