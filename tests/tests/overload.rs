//! Many requests that inflate to 60 MiB each, all at once, against a memory limit of 256 MiB.
//!
//! 256 requests are 15 GiB inflated. Where they consist of many small items, a dev build, whose walks
//! over the bytes are not optimised, sends fewer; the full run, with its figures:
//!
//! ```text
//! cargo test --release -p sluice-tests --test overload -- --nocapture
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests; this one prints its figures"
)]

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value::Value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use prost::Message;
use sluice_loadgen::{Generator, Spec};
use sluice_tests::{Config, Gateway, GrpcConnection, HttpConnection, Kind, code, frame, request};

/// What one request inflates to.
const INFLATED_BYTES: usize = 60 << 20;

/// The limit, and what resident memory may reach: 15% more.
const LIMIT_MIB: u64 = 256;
const RSS_LIMIT_MIB: u64 = LIMIT_MIB * 115 / 100;

/// The bystander's pace.
const BYSTANDER: Duration = Duration::from_millis(50);

/// Clients give up after this long: SDKs and Collectors retry for five minutes; a loaded machine gets more.
const PATIENCE: Duration = Duration::from_secs(900);

/// Length of an id: `id-000123`, `by-000123`.
const ID_BYTES: usize = 9;

const REQUESTS: usize = 256;

/// Two bursts at once would be another scenario.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A request of one log record, whose last bytes are `text`.
fn record(text: String) -> Vec<u8> {
    let body = Some(AnyValue {
        value: Some(Value::StringValue(text)),
    });
    let scope_logs = vec![ScopeLogs {
        log_records: vec![LogRecord {
            body,
            ..Default::default()
        }],
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

/// 60 MiB that all requests have in common, compressed once, so that 256 clients cost little.
struct Common {
    deflated: Vec<u8>,
    crc: flate2::Crc,
    zstd: Vec<u8>,
}

impl Common {
    /// `one` request over and over.
    fn new(one: &[u8]) -> Self {
        let plain = one.repeat(INFLATED_BYTES / one.len());
        let mut crc = flate2::Crc::new();
        crc.update(&plain);
        // Ended by a full flush, another deflate stream can follow: both are one gzip member.
        let mut deflate = flate2::Compress::new(flate2::Compression::fast(), false);
        let mut deflated = Vec::with_capacity(INFLATED_BYTES);
        deflate
            .compress_vec(&plain, &mut deflated, flate2::FlushCompress::Full)
            .unwrap();
        assert_eq!(deflate.total_in(), plain.len() as u64);
        Self {
            deflated,
            crc,
            zstd: sluice_tests::zstd(&plain),
        }
    }

    fn gzip(&self, own: &[u8]) -> Bytes {
        let mut crc = flate2::Crc::new();
        crc.update(own);
        let mut whole = flate2::Crc::new();
        whole.combine(&self.crc);
        whole.combine(&crc);
        let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
        out.extend_from_slice(&self.deflated);
        out.extend_from_slice(&sluice_tests::deflated(own));
        out.extend_from_slice(&whole.sum().to_le_bytes());
        out.extend_from_slice(&whole.amount().to_le_bytes());
        out.into()
    }

    fn zstd(&self, own: &[u8]) -> Bytes {
        [&self.zstd[..], &sluice_tests::zstd(own)].concat().into()
    }
}

/// What the sink counts: every id, and all bytes.
#[derive(Default)]
struct Counted {
    ids: Mutex<HashMap<String, u32>>,
    bytes: AtomicU64,
}

/// A destination that walks over the top-level fields as they come and keeps their last bytes only.
async fn sink() -> (SocketAddr, Arc<Counted>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let counted = Arc::new(Counted::default());
    let counts = counted.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let counts = counts.clone();
            tokio::spawn(async move {
                let service = service_fn(|request| take(request, counts.clone()));
                let mut builder = auto::Builder::new(TokioExecutor::new());
                builder.http1().max_buf_size(1 << 20);
                // A connection that breaks is the other side's business.
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (address, counted)
}

async fn take(
    request: Request<Incoming>,
    counted: Arc<Counted>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let gzip = request.headers().contains_key("content-encoding");
    let mut body = request.into_body();
    let mut inflater = flate2::write::MultiGzDecoder::new(Vec::new());
    let (mut header, mut left, mut last) = (Vec::new(), 0, Vec::new());
    let mut ids = Vec::new();
    while let Some(piece) = body.frame().await {
        let Ok(piece) = piece else {
            return Ok(Response::default());
        };
        let Ok(data) = piece.into_data() else { continue };
        let inflated = match gzip {
            true => {
                inflater.write_all(&data).and_then(|()| inflater.flush()).unwrap();
                std::mem::take(inflater.get_mut()).into()
            }
            false => data,
        };
        let mut data = &inflated[..];
        counted.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        while !data.is_empty() {
            if left == 0 {
                // Tag and length of the next field, a byte at a time.
                header.push(data[0]);
                data = &data[1..];
                if header.len() > 1 && header[header.len() - 1] < 0x80 {
                    assert_eq!(header[0], 0x0a);
                    left = prost::encoding::decode_varint(&mut &header[1..]).unwrap() as usize;
                    header.clear();
                    last.clear();
                }
                continue;
            }
            let here = left.min(data.len());
            last.extend_from_slice(&data[here.saturating_sub(ID_BYTES)..here]);
            last.drain(..last.len().saturating_sub(ID_BYTES));
            left -= here;
            data = &data[here..];
            if left == 0 && (last.starts_with(b"id-") || last.starts_with(b"by-")) {
                ids.push(String::from_utf8(last.clone()).unwrap());
            }
        }
    }
    assert_eq!((left, header.len()), (0, 0), "a request that ends within a field");
    let mut known = counted.ids.lock().unwrap();
    for id in ids {
        *known.entry(id).or_default() += 1;
    }
    let mut response = Response::default();
    response.headers_mut().insert(
        "content-type",
        http::HeaderValue::from_static("application/x-protobuf"),
    );
    Ok(response)
}

/// Sends until it is taken, as its protocol's hints say; returns the number of refusals.
async fn send(gateway: (SocketAddr, SocketAddr), number: usize, common: Arc<Common>) -> u32 {
    let own = record(format!("id-{number:06}"));
    let (http, grpc) = gateway;
    let (encoding, body) = match number % 2 {
        0 => ("gzip", common.gzip(&own)),
        _ => ("zstd", common.zstd(&own)),
    };
    let mut refusals = 0;
    loop {
        let hint = match number % 4 {
            0 | 1 => {
                let headers = [
                    ("content-type", "application/x-protobuf"),
                    ("content-encoding", encoding),
                ];
                let request = request(Method::POST, http, "/v1/logs", &headers, body.clone());
                let reply = HttpConnection::http1(http)
                    .await
                    .unwrap()
                    .send(request)
                    .await
                    .unwrap();
                match reply.status {
                    200 => return refusals,
                    503 => Duration::from_secs(
                        reply.header("retry-after").expect("Retry-After").parse().unwrap(),
                    ),
                    _ => panic!("{reply:?} is not retryable"),
                }
            }
            _ => {
                let mut connection = GrpcConnection::open(grpc).await.unwrap();
                let headers = [("grpc-encoding", encoding)];
                let reply = connection
                    .call(Kind::Logs.grpc_path(), &headers, frame(1, &body))
                    .await
                    .unwrap();
                match reply.code() {
                    code::OK => return refusals,
                    code::UNAVAILABLE => reply.retry_delay().expect("RetryInfo"),
                    _ => panic!("{reply:?} is not retryable"),
                }
            }
        };
        refusals += 1;
        tokio::time::sleep(hint).await;
    }
}

/// Sends a small request 20 times a second, each of which must be taken at the first attempt; returns
/// how many, and the longest wait for an answer.
async fn bystand(http: SocketAddr, stop: Arc<AtomicBool>) -> (usize, Duration) {
    let slowest = Arc::new(AtomicU64::new(0));
    let mut under_way = tokio::task::JoinSet::new();
    let mut pace = tokio::time::interval(BYSTANDER);
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        pace.tick().await;
        let body = record(format!("by-{sent:06}"));
        let slowest = slowest.clone();
        under_way.spawn(async move {
            let started = Instant::now();
            let reply = sluice_tests::post(
                http,
                "/v1/logs",
                &[("content-type", "application/x-protobuf")],
                body,
            )
            .await;
            assert_eq!(
                reply.status,
                200,
                "a bystander was turned away: {}",
                String::from_utf8_lossy(&reply.body)
            );
            slowest.fetch_max(started.elapsed().as_millis() as u64, Ordering::Relaxed);
        });
        sent += 1;
    }
    while let Some(done) = under_way.join_next().await {
        done.unwrap();
    }
    (sent, Duration::from_millis(slowest.load(Ordering::Relaxed)))
}

/// `VmHWM` in MiB: the most that was ever resident.
fn peak_rss_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        .div_ceil(1024)
}

/// Scenario: 256 clients, half of them with gzip and half with zstd, half on HTTP and half on gRPC, send a
/// request that inflates to 60 MiB from a few hundred KiB, all at once, to a gateway limited to 256 MiB;
/// a bystander sends 20 small requests a second.
/// Guarantees: resident memory stays within the limit and 15%; every refusal is retryable and says when;
/// all requests are taken within their clients' patience and delivered, each once; the bystander is
/// never turned away.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_bodies_far_above_the_budget() {
    let one = record("all work and no play makes jack a dull boy; ".repeat(1500));
    burst("66 KB log records, compression none", REQUESTS, &one, "none").await;
}

/// Scenario: the same with what gateways receive: log records of 200 bytes, a quarter of a million in each
/// request, a few MiB compressed, and an exporter that compresses with gzip, as it does by default.
/// Guarantees: as above.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_ordinary_bodies() {
    let requests = if cfg!(debug_assertions) { 12 } else { REQUESTS };
    let spec = Spec {
        variants: 1,
        ..Spec::gateway(sluice_loadgen::Signal::Logs)
    };
    let one = Generator::new(spec).next_request().body;
    burst("ordinary log records, compression gzip", requests, &one, "gzip").await;
}

async fn burst(what: &str, requests: usize, one: &[u8], compression: &str) {
    let _alone = ONE_AT_A_TIME.lock().await;
    let common = Arc::new(Common::new(one));
    let (destination, counted) = sink().await;
    let queue = format!(
        "compression: {compression}, sending_queue: {{batch: {{flush_timeout: 5ms, min_size: 1}}}}, timeout: 60s"
    );
    let config = Config::new()
        .exporter(
            "otlphttp/sink",
            &format!("endpoint: http://{destination}, {queue}"),
        )
        .processor(
            "memory_limiter",
            &format!("check_interval: 1s, limit_mib: {LIMIT_MIB}"),
        );
    let gateway = Gateway::start(&config).await;
    let addresses = (gateway.http(), gateway.grpc());
    let stop = Arc::new(AtomicBool::new(false));
    let bystander = tokio::spawn(bystand(gateway.http(), stop.clone()));

    let started = Instant::now();
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..requests {
        clients.spawn(send(addresses, number, common.clone()));
    }
    let mut refusals = Vec::new();
    let all = async {
        while let Some(client) = clients.join_next().await {
            refusals.push(client.unwrap());
        }
    };
    let patient = tokio::time::timeout(PATIENCE, all).await;
    assert!(
        patient.is_ok(),
        "only {} of {requests} were taken",
        refusals.len()
    );
    let accepted = started.elapsed();
    gateway.settled().await;
    let delivered = started.elapsed();
    stop.store(true, Ordering::Relaxed);
    let (bystanders, slowest) = bystander.await.unwrap();
    let ledger = gateway.settled().await;
    let peak = peak_rss_mib(gateway.pid());
    println!(
        "{what}: {requests} requests of 60 MiB: accepted in {accepted:.1?}, delivered in {delivered:.1?}; peak RSS {peak} MiB of \
         {RSS_LIMIT_MIB} allowed; {} refusals, at most {} for one client; bystander: {bystanders} of {bystanders} \
         served, slowest {slowest:.1?}",
        refusals.iter().sum::<u32>(),
        refusals.iter().max().unwrap(),
    );
    assert!(peak <= RSS_LIMIT_MIB, "peak RSS {peak} MiB");

    let known = counted.ids.lock().unwrap().clone();
    for number in 0..requests {
        assert_eq!(known.get(&format!("id-{number:06}")), Some(&1));
    }
    for number in 0..bystanders {
        assert_eq!(known.get(&format!("by-{number:06}")), Some(&1));
    }
    assert_eq!(known.len(), requests + bystanders);
    assert!(counted.bytes.load(Ordering::Relaxed) >= (requests * (INFLATED_BYTES - (1 << 20))) as u64);
    let account = ledger.iter().find(|line| line.pipeline == "logs").unwrap();
    assert_eq!(
        (account.accepted, account.dropped.len()),
        (account.delivered, 0),
        "{account:?}"
    );
    gateway.stop().await;
}
