//! SIGKILL at random moments: what was acknowledged as persisted is delivered after all.
//!
//! CI kills a few times. `SLUICE_KILLS=1000 cargo test --release -p sluice-tests --test crash -- --nocapture` does it as
//! often as one likes, and prints what was lost and what came twice.

#![allow(clippy::unwrap_used, reason = "tests")]

mod routing;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use prost::Message;
use sluice_tests::{
    Answer, Config, Gateway, GrpcConnection, HttpConnection, Kind, Sink, frame, gzipped, request, within,
};
use tokio::task::JoinSet;

/// Kills of a run in CI.
const KILLS: u64 = 6;

/// Every other kill comes this soon after a start at the latest: during recovery or replay.
const AT_START: Duration = Duration::from_millis(150);

const SENDERS: u64 = 8;
const ITEMS: u64 = 10;

/// What the exporter may have under way: `num_consumers` times `max_size`.
const CONSUMERS: u64 = 4;
const BATCH: u64 = 200;

/// A request of log records that say who they are, with as much text as makes them worth compressing.
fn logs(id: u64) -> Vec<u8> {
    let record = |n: u64| LogRecord {
        body: Some(AnyValue {
            value: Some(Value::StringValue(format!(
                "{} {}",
                id * ITEMS + n,
                "text ".repeat(40)
            ))),
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

fn ids(body: &[u8]) -> Vec<u64> {
    let request = ExportLogsServiceRequest::decode(body).unwrap();
    let records = request
        .resource_logs
        .into_iter()
        .flat_map(|resource| resource.scope_logs);
    let records = records.flat_map(|scope| scope.log_records);
    let text = records.map(|record| match record.body.unwrap().value.unwrap() {
        Value::StringValue(text) => text,
        other => panic!("{other:?}"),
    });
    text.map(|text| text.split(' ').next().unwrap().parse().unwrap())
        .collect()
}

fn config(sink: &Sink, spool: &Path) -> Config {
    let queue = format!(
        "retry_on_failure: {{initial_interval: 20ms, max_interval: 100ms}}, sending_queue: {{storage: file_storage, \
         num_consumers: {CONSUMERS}, batch: {{flush_timeout: 5ms, min_size: {BATCH}, max_size: {BATCH}}}}}"
    );
    Config::new()
        .signals(&["logs"])
        .extension("file_storage", &format!("directory: {}", spool.display()))
        .http_exporter("sink", sink, &queue)
}

/// Every item the sink took, and how often.
fn counting(sink: &Sink) -> (Arc<Mutex<HashMap<u64, u32>>>, Arc<AtomicU64>) {
    let taken: Arc<Mutex<HashMap<u64, u32>>> = Arc::default();
    let refuses = Arc::new(AtomicU64::new(0));
    let (count, refusing) = (taken.clone(), refuses.clone());
    sink.answer(move |arrived| {
        if refusing.load(Ordering::Relaxed) > 0 {
            return Answer::Http(503, None);
        }
        let mut taken = count.lock().unwrap();
        for id in ids(&arrived.body) {
            *taken.entry(id).or_default() += 1;
        }
        Answer::Take
    });
    (taken, refuses)
}

/// What senders send: the bodies of one kind, by number.
type Bodies = (Kind, fn(u64) -> Vec<u8>);

const LOGS: Bodies = (Kind::Logs, logs);

/// The senders of one round.
fn start_senders(gateway: &Gateway, bodies: Bodies, next: &Arc<AtomicU64>) -> JoinSet<Vec<u64>> {
    let addresses = Arc::new((gateway.http(), gateway.grpc()));
    let mut senders = JoinSet::new();
    for sender in 0..SENDERS {
        senders.spawn(send(addresses.clone(), sender, bodies, next.clone()));
    }
    senders
}

/// Sends until the gateway is gone; returns the requests that were acknowledged.
async fn send(
    gateway: Arc<(std::net::SocketAddr, std::net::SocketAddr)>,
    sender: u64,
    (kind, body): Bodies,
    next: Arc<AtomicU64>,
) -> Vec<u64> {
    let (http, grpc) = *gateway;
    let mut acked = Vec::new();
    if sender.is_multiple_of(2) {
        let Ok(mut connection) = HttpConnection::http1(http).await else {
            return acked;
        };
        loop {
            let id = next.fetch_add(1, Ordering::Relaxed);
            let gzip = sender.is_multiple_of(4);
            let mut headers = vec![("content-type", "application/x-protobuf")];
            headers.extend(gzip.then_some(("content-encoding", "gzip")));
            let body = if gzip { gzipped(&body(id)) } else { body(id) };
            let request = request(http::Method::POST, http, kind.http_path(), &headers, body);
            match connection.send(request).await {
                Ok(reply) if reply.status == 200 => acked.push(id),
                Ok(reply) => assert_eq!(reply.status, 503, "{reply:?}"),
                Err(_) => return acked,
            }
        }
    }
    let Ok(mut connection) = GrpcConnection::open(grpc).await else {
        return acked;
    };
    loop {
        let id = next.fetch_add(1, Ordering::Relaxed);
        let head = connection.head(kind.grpc_path(), &[]);
        match connection.send(head, &[frame(0, &body(id))]).await {
            Ok(reply) if reply.trailer("grpc-status") == Some("0") => acked.push(id),
            Ok(reply) if reply.trailer("grpc-status") == Some("14") => {}
            Ok(reply) => assert_eq!(reply.trailer("grpc-status"), None, "{reply:?}"),
            Err(_) => return acked,
        }
    }
}

fn kills() -> u64 {
    let given = std::env::var("SLUICE_KILLS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(KILLS)
}

/// Moments that look random (xorshift), the same in every run.
struct Moments(u64);

impl Moments {
    fn below(&mut self, most: Duration) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Duration::from_micros(self.0 % most.as_micros() as u64)
    }
}

/// Scenario: senders over HTTP and gRPC, compressed and not; SIGKILL after a random time, again and again, every other time
/// within 150 ms of a start; in some rounds the destination refuses everything.
/// Guarantees: every item of a request that was acknowledged is delivered; no more comes twice than was under way.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_sigkill() {
    let kills = kills();
    let sink = Sink::start().await;
    let (taken, refuses) = counting(&sink);
    let spool = tempfile::tempdir().unwrap();
    let config = config(&sink, spool.path());
    let next = Arc::new(AtomicU64::new(0));
    let mut acked: Vec<u64> = Vec::new();
    let mut moments = Moments(0x2545_f491_4f6c_dd1d);
    for kill in 0..kills {
        if kill % 2 == 1 {
            refuses.store(0, Ordering::Relaxed);
            Gateway::kill_at_start(&config, moments.below(AT_START)).await;
            continue;
        }
        refuses.store(u64::from(kill % 3 == 1), Ordering::Relaxed);
        let gateway = Gateway::start(&config).await;
        let mut senders = start_senders(&gateway, LOGS, &next);
        // Not to wait for anything: the moment of the kill is what is at random.
        tokio::time::sleep(moments.below(Duration::from_millis(400))).await;
        gateway.kill().await;
        while let Some(round) = within("senders notice", senders.join_next()).await {
            acked.extend(round.unwrap());
        }
        sink.clear();
    }
    refuses.store(0, Ordering::Relaxed);
    let gateway = Gateway::start(&config).await;
    gateway.settled().await;
    let recovered = gateway.account("otlphttp/sink").await.recovered;
    gateway.stop().await;

    let taken = taken.lock().unwrap();
    let lost: Vec<u64> = (acked.iter())
        .flat_map(|request| request * ITEMS..(request + 1) * ITEMS)
        .filter(|item| !taken.contains_key(item))
        .collect();
    let twice: u64 = taken.values().map(|times| u64::from(*times - 1)).sum();
    let most = kills * CONSUMERS * BATCH;
    println!(
        "{kills} kills: {} items acknowledged, {} lost, {twice} delivered twice (at most {most}), {recovered} recovered at last",
        acked.len() as u64 * ITEMS,
        lost.len(),
    );
    assert!(!acked.is_empty());
    assert!(
        lost.is_empty(),
        "{} lost: {:?} …",
        lost.len(),
        &lost[..lost.len().min(20)]
    );
    assert!(twice <= most, "{twice} delivered twice");
}

/// Scenario: clients are answered when their data is delivered; the destination dies and comes back, then the gateway is
/// killed, again and again.
/// Guarantees: every item of a request that was acknowledged is at the destination; no more comes twice than was under way each time the
/// destination died.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_as_delivered_was() {
    let kills = kills();
    let sink = Sink::start().await;
    let (taken, _) = counting(&sink);
    let queue = format!(
        "sending_queue: {{wait_for_result: true, num_consumers: {CONSUMERS}, batch: {{flush_timeout: 5ms, min_size: {BATCH}}}}}"
    );
    let config = Config::new()
        .signals(&["logs"])
        .http_exporter("sink", &sink, &queue);
    let next = Arc::new(AtomicU64::new(0));
    let mut acked: Vec<u64> = Vec::new();
    let mut moments = Moments(0x9e37_79b9_7f4a_7c15);
    for _ in 0..kills {
        let gateway = Gateway::start(&config).await;
        let mut senders = start_senders(&gateway, LOGS, &next);
        // Not to wait for anything: these moments are what is at random.
        tokio::time::sleep(moments.below(Duration::from_millis(200))).await;
        sink.stop().await;
        tokio::time::sleep(moments.below(Duration::from_millis(50))).await;
        sink.up().await;
        tokio::time::sleep(moments.below(Duration::from_millis(200))).await;
        gateway.kill().await;
        while let Some(round) = within("senders notice", senders.join_next()).await {
            acked.extend(round.unwrap());
        }
        sink.clear();
    }
    let taken = taken.lock().unwrap();
    let items = acked
        .iter()
        .flat_map(|request| request * ITEMS..(request + 1) * ITEMS);
    let lost = items.filter(|item| !taken.contains_key(item)).count();
    let twice: u64 = taken.values().map(|times| u64::from(*times - 1)).sum();
    // A sender that waits for delivery has one request under way; what the gateway had in memory is gone with it.
    let most = kills * SENDERS * ITEMS;
    println!(
        "{kills} kills of gateway and destination: {} items acknowledged as delivered, {lost} lost, {twice} delivered twice (at most {most})",
        acked.len() as u64 * ITEMS
    );
    assert!(!acked.is_empty());
    assert_eq!(lost, 0);
    assert!(twice <= most, "{twice} delivered twice");
}

/// Scenario: a destination that is down while data comes in; SIGTERM; a start with the destination up.
/// Guarantees: the process ends in order with exit code 0, long before its deadline, says that nothing is lost, and the next
/// one delivers everything once.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_at_sigterm_is_delivered_by_the_next_process() {
    let sink = Sink::start().await;
    let (taken, refuses) = counting(&sink);
    refuses.store(1, Ordering::Relaxed);
    let spool = tempfile::tempdir().unwrap();
    let config = config(&sink, spool.path());
    // Longer than any test may take.
    let gateway = Gateway::start_with(&config, &["--shutdown-timeout", "1h"]).await;
    let mut connection = HttpConnection::http1(gateway.http()).await.unwrap();
    for id in 0..50 {
        let headers = [("content-type", "application/x-protobuf")];
        let request = request(
            http::Method::POST,
            gateway.http(),
            Kind::Logs.http_path(),
            &headers,
            logs(id),
        );
        assert_eq!(connection.send(request).await.unwrap().status, 200);
    }
    drop(connection);
    gateway.terminate();
    let exit = gateway.ended().await;
    assert_eq!(exit.code, Some(0), "{}", exit.log);
    assert!(
        exit.log.contains("nothing was lost") && exit.log.contains("items=500"),
        "{}",
        exit.log
    );
    refuses.store(0, Ordering::Relaxed);
    let gateway = Gateway::start(&config).await;
    gateway.settled().await;
    let account = gateway.account("otlphttp/sink").await;
    assert_eq!(
        (account.recovered, account.accepted, account.delivered),
        (500, 0, 500)
    );
    gateway.stop().await;
    let taken = taken.lock().unwrap();
    assert!((0..500).all(|item| taken.get(&item) == Some(&1)), "{taken:?}");
}
