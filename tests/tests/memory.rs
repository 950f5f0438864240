//! The memory budget of the running process: what it plans with, and how it follows what it cannot see coming.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests; these print their figures"
)]

use std::net::SocketAddr;

use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use http::{Method, Request};
use sluice_tests::{Answer, Cgroup, Config, Gateway, Kind, Sink, eventually, post, sample, skipped};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

const MIB: f64 = (1 << 20) as f64;

/// Connections that do nothing but be there, and the requests on each that have begun and not gone on.
const CONNECTIONS: usize = 2000;
const STREAMS: usize = 8;

/// A connection and its requests, which stay open until it is dropped.
struct Open {
    _client: SendRequest<bytes::Bytes>,
    _requests: Vec<(ResponseFuture, SendStream<bytes::Bytes>)>,
    connection: JoinHandle<()>,
}

impl Open {
    async fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        let connection = tokio::spawn(async move {
            // It ends when the test drops it.
            let _ = connection.await;
        });
        let mut client = client.ready().await.unwrap();
        let mut requests = Vec::new();
        for _ in 0..STREAMS {
            let request = Request::builder()
                .method(Method::POST)
                .uri(format!("http://{address}{}", Kind::Logs.grpc_path()))
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .body(())
                .unwrap();
            requests.push(client.send_request(request, false).unwrap());
            client = client.ready().await.unwrap();
        }
        Self {
            _client: client,
            _requests: requests,
            connection,
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Scenario: a gateway limited to 256 MiB, to which 2,000 HTTP/2 connections are made with eight requests each that
/// begin and do not go on: memory that no permit explains. Then they are closed.
/// Guarantees: the capacity of the budget falls by what they hold, said once with its cause; small requests are taken all the
/// while; when the connections are gone it comes back, said once.
#[tokio::test(flavor = "multi_thread")]
async fn the_budget_makes_room_for_connections() {
    let sink = Sink::start().await;
    let config = Config::to(&sink).processor("memory_limiter", "check_interval: 1s, limit_mib: 256");
    let gateway = Gateway::start(&config).await;
    let capacity = || async {
        let metrics = gateway.metrics().await;
        (
            metrics.sum("sluice_memory_budget_bytes", &[]),
            metrics.sum("sluice_memory_budget_ceiling_bytes", &[]),
            metrics.sum("sluice_memory_untracked_bytes", &[]),
        )
    };
    let body = sample(Kind::Logs, 1);
    let take = || async {
        let reply = post(
            gateway.http(),
            "/v1/logs",
            &[("content-type", "application/x-protobuf")],
            body.clone(),
        );
        assert_eq!(reply.await.status, 200);
    };
    take().await;
    let (idle, ceiling, idle_untracked) = capacity().await;
    assert_eq!((ceiling / MIB).floor(), 200.0);

    let mut open = tokio::task::JoinSet::new();
    for _ in 0..CONNECTIONS {
        open.spawn(Open::to(gateway.grpc()));
    }
    let open = open.join_all().await;
    let (low, untracked) = eventually("the capacity falls", || async {
        let (capacity, _, untracked) = capacity().await;
        (capacity < idle - 32.0 * MIB).then_some((capacity, untracked))
    })
    .await;
    take().await;
    gateway.says("the memory budget is lowered").await;
    println!(
        "idle: capacity {:.0} MiB with {:.0} MiB untracked; {} connections: {:.0} MiB with {:.0} MiB untracked",
        idle / MIB,
        idle_untracked / MIB,
        open.len(),
        low / MIB,
        untracked / MIB
    );
    drop(open);
    let began = std::time::Instant::now();
    gateway.says("the memory budget is back").await;
    let (back, ceiling, untracked) = capacity().await;
    println!(
        "after {:?}: {:.0} MiB with {:.0} MiB untracked",
        began.elapsed(),
        back / MIB,
        untracked / MIB
    );
    assert!(back > ceiling * 0.9);
    assert_eq!(
        gateway.log().matches("the memory budget is").count(),
        2,
        "{}",
        gateway.log()
    );
    take().await;
    gateway.stop().await;
}

/// Scenario: two hundred clients send 200 KB each over HTTP/1.1, keep their connections and say nothing more.
/// Guarantees: a quiet connection holds little of the memory that its request needed, and serves the next request.
#[tokio::test(flavor = "multi_thread")]
async fn quiet_connections_hold_little() {
    const CLIENTS: usize = 200;
    const BODY_BYTES: usize = 200_000;
    /// What a connection may hold for good: its task, and nothing of the size of a body.
    const MOST_BYTES: f64 = 32.0 * 1024.0;
    let sink = Sink::start().await;
    let gateway = Gateway::start(&Config::to(&sink)).await;
    let allocated = || async {
        let metrics = gateway.metrics().await;
        metrics.sum("sluice_memory_allocated_bytes", &[])
    };
    // Requests are repeated fields: one after the other is one.
    let body: bytes::Bytes = sample(Kind::Logs, 1)
        .repeat(BODY_BYTES / sample(Kind::Logs, 1).len())
        .into();
    let idle = allocated().await;
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(send_all_but_one_byte(gateway.http(), body.clone()));
    }
    let clients = clients.join_all().await;
    eventually("what the requests hold is seen", || async {
        let held = allocated().await - idle;
        (held > (BODY_BYTES * CLIENTS / 2) as f64).then_some(())
    })
    .await;
    let mut quiet = Vec::new();
    for mut client in clients {
        client.write_all(&body[body.len() - 1..]).await.unwrap();
        accepted(&mut client).await;
        quiet.push(client);
    }
    let held = eventually("connections give their buffers back", || async {
        let held = allocated().await - idle;
        (held < MOST_BYTES * CLIENTS as f64).then_some(held)
    })
    .await;
    println!("{:.1} KB a connection", held / CLIENTS as f64 / 1e3);
    for mut client in quiet {
        client.write_all(&head(body.len())).await.unwrap();
        client.write_all(&body).await.unwrap();
        accepted(&mut client).await;
    }
    gateway.stop().await;
}

fn head(body_len: usize) -> Vec<u8> {
    format!(
        "POST /v1/logs HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-protobuf\r\ncontent-length: {body_len}\r\n\r\n"
    )
    .into()
}

async fn send_all_but_one_byte(address: SocketAddr, body: bytes::Bytes) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&head(body.len())).await.unwrap();
    stream.write_all(&body[..body.len() - 1]).await.unwrap();
    stream
}

/// Reads the answer, which has to be 200.
async fn accepted(stream: &mut TcpStream) {
    let mut answer = [0; 1024];
    let read = stream.read(&mut answer).await.unwrap();
    assert!(
        answer[..read].starts_with(b"HTTP/1.1 200"),
        "{:?}",
        String::from_utf8_lossy(&answer[..read])
    );
}

/// Scenario: a gateway with `limit_percentage: 80` in a cgroup of 256 MiB inside one of 128 MiB; a destination that takes
/// nothing, and requests of 4 MiB until one is refused.
/// Guarantees: 80% of the lesser cgroup are planned with, not of the greater nor of the machine; the gateway
/// refuses, retryably, and is not killed; what was charged stays within the cgroup; the backlog is delivered afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_cgroup_is_planned_with() {
    const OUTER: u64 = 128 << 20;
    let cgroup = match Cgroup::nested(OUTER, 256 << 20) {
        Ok(cgroup) => cgroup,
        Err(reason) => return skipped("a cgroup with a limit", &reason),
    };
    let sink = Sink::start().await;
    sink.answer(|_| Answer::Http(503, None));
    let config = Config::to(&sink).processor("memory_limiter", "check_interval: 1s, limit_percentage: 80");
    let gateway = Gateway::start_in(&config, &cgroup).await;
    let metrics = gateway.metrics().await;
    let planned = (OUTER / 100 * 80) as f64;
    assert_eq!(metrics.sum("sluice_memory_limit_bytes", &[]), planned);
    assert_eq!(metrics.sum("sluice_memory_cgroup_limit_bytes", &[]), OUTER as f64);
    let charged = metrics.sum("sluice_memory_cgroup_bytes", &[]);
    assert!(charged > MIB && charged < planned, "{charged}");

    let body: Vec<u8> = std::iter::repeat_with(|| sample(Kind::Logs, 1))
        .take(280)
        .flatten()
        .collect();
    let mut taken = 0;
    let refused = loop {
        let headers = [("content-type", "application/x-protobuf")];
        let reply = post(gateway.http(), "/v1/logs", &headers, body.clone()).await;
        match reply.status {
            200 => taken += 1,
            _ => break reply,
        }
        assert!(taken < 1000, "it never refuses");
    };
    assert_eq!(refused.status, 503);
    assert!(refused.header("retry-after").is_some());
    let bytes = taken as f64 * body.len() as f64;
    let peak = cgroup.peak().unwrap_or(0);
    println!(
        "{taken} requests of {:.1} MiB taken before the first refusal: {:.0} of {:.0} MiB planned; cgroup peak {:.0} MiB",
        body.len() as f64 / MIB,
        bytes / MIB,
        planned / MIB,
        peak as f64 / MIB
    );
    assert!(bytes > planned / 3.0 && bytes < planned, "{taken}");
    assert!(peak <= OUTER);
    sink.answer(|_| Answer::Take);
    gateway.settled().await;
    gateway.stop().await;
}
