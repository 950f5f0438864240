//! Connections that are slow, silent, or old.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use sluice_tests::{
    Answer, Config, Gateway, GrpcConnection, HttpConnection, Kind, RawHttp, Sink, code, frame, post, request,
    sample, within,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::PROTOBUF;

const CONFIRMED: &str = "sending_queue: {wait_for_result: true, batch: {flush_timeout: 5ms, min_size: 1}}";

/// A sink that answers when it is told to.
fn hold(sink: &Sink) -> Arc<Notify> {
    let release = Arc::new(Notify::new());
    let waiting = release.clone();
    sink.answer(move |_| {
        let waiting = waiting.clone();
        let wait = move || -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
            let waiting = waiting.clone();
            Box::pin(async move { waiting.notified().await })
        };
        Answer::After(Arc::new(wait), Box::new(Answer::Take))
    });
    release
}

/// Scenario: `max_connection_age: 1s`; a call that is still under way when the connection comes of age.
/// Guarantees: the client is told to go away (GOAWAY), new calls on it fail at once, the old one is
/// answered, then the connection ends (G6).
#[tokio::test(flavor = "multi_thread")]
async fn g6_max_connection_age_lets_calls_finish() {
    let sink = Sink::start().await;
    let config = Config::new()
        .http_exporter("sink", &sink, CONFIRMED)
        .grpc("keepalive: {server_parameters: {max_connection_age: 1s, max_connection_age_grace: 120s}}");
    let gateway = Gateway::start(&config).await;
    let release = hold(&sink);
    let body = sample(Kind::Traces, 1);
    let mut connection = GrpcConnection::open(gateway.grpc()).await.unwrap();
    let head = connection.head(Kind::Traces.grpc_path(), &[]);
    let mut sender = connection.sender().ready().await.unwrap();
    let (response, mut stream) = sender.send_request(head, false).unwrap();
    stream.send_data(frame(0, &body), true).unwrap();
    sink.until("the call reaches the sink", |sink| sink.refused().pop())
        .await;
    // Once GOAWAY is here, no new call can be started.
    sluice_tests::eventually("the server says GOAWAY", || {
        let sender = sender.clone();
        async move { sender.ready().await.is_err().then_some(()) }
    })
    .await;
    release.notify_one();
    let mut answer = within("the old call is answered", response)
        .await
        .unwrap()
        .into_body();
    while answer.data().await.is_some() {}
    assert_eq!(answer.trailers().await.unwrap().unwrap()["grpc-status"], "0");
    drop((answer, stream, sender));
    // GOAWAY(NO_ERROR) is how a graceful end looks.
    if let Err(error) = connection.closed_by_peer().await {
        assert_eq!(error.reason(), Some(h2::Reason::NO_ERROR), "{error}");
    }
    let reply = sluice_tests::grpc_call(gateway.grpc(), Kind::Traces.grpc_path(), &[], frame(0, &[])).await;
    assert_eq!(reply.code(), code::OK, "new connections are welcome");
    gateway.stop().await;
}

/// Scenario: `max_connection_age_grace: 1s`, and a destination that does not answer.
/// Guarantees: after the grace the connection is cut; the payload is delivered all the same.
#[tokio::test(flavor = "multi_thread")]
async fn g6_the_grace_ends() {
    let sink = Sink::start().await;
    let config = Config::new()
        .http_exporter("sink", &sink, CONFIRMED)
        .grpc("keepalive: {server_parameters: {max_connection_age: 500ms, max_connection_age_grace: 500ms}}");
    let gateway = Gateway::start(&config).await;
    let release = hold(&sink);
    let body = sample(Kind::Traces, 1);
    let mut connection = GrpcConnection::open(gateway.grpc()).await.unwrap();
    let call = connection.call(Kind::Traces.grpc_path(), &[], frame(0, &body));
    assert!(within("the call ends", call).await.is_err());
    release.notify_one();
    sink.wait_for_same(Kind::Traces, &[body]).await;
    gateway.stop().await;
}

/// Scenario: `max_connection_idle: 1s`; a connection that serves one call and then nothing.
/// Guarantees: it is closed.
#[tokio::test(flavor = "multi_thread")]
async fn g6_idle_connections_are_closed() {
    let sink = Sink::start().await;
    let config = Config::to(&sink).grpc("keepalive: {server_parameters: {max_connection_idle: 1s}}");
    let gateway = Gateway::start(&config).await;
    let mut connection = GrpcConnection::open(gateway.grpc()).await.unwrap();
    let reply = connection
        .call(Kind::Logs.grpc_path(), &[], frame(0, &[]))
        .await
        .unwrap();
    assert_eq!(reply.code(), code::OK);
    // How it ends is the server's choice; that it ends is what counts.
    drop(connection.closed_by_peer().await);
    gateway.stop().await;
}

/// Scenario: keepalive pings each second; a client that answers them, and one that is silent after the
/// h2 preface while a call is under way.
/// Guarantees: the former goes on, the latter is closed (G6).
#[tokio::test(flavor = "multi_thread")]
async fn g6_keepalive_finds_dead_clients() {
    let sink = Sink::start().await;
    let config = Config::to(&sink).grpc("keepalive: {server_parameters: {time: 1s, timeout: 1s}}");
    let gateway = Gateway::start(&config).await;
    let mut alive = GrpcConnection::open(gateway.grpc()).await.unwrap();
    assert_eq!(
        alive
            .call(Kind::Logs.grpc_path(), &[], frame(0, &[]))
            .await
            .unwrap()
            .code(),
        code::OK
    );

    let mut dead = TcpStream::connect(gateway.grpc()).await.unwrap();
    // The preface and empty SETTINGS, and never an acknowledgement of anything.
    dead.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .unwrap();
    let mut said = Vec::new();
    // A reset is an end as good as any.
    drop(within("the silent client is closed", dead.read_to_end(&mut said)).await);
    assert!(
        said.windows(5).any(|frame| frame == [0, 0, 8, 6, 0]),
        "no PING in {said:?}"
    );
    assert_eq!(
        alive
            .call(Kind::Logs.grpc_path(), &[], frame(0, &[]))
            .await
            .unwrap()
            .code(),
        code::OK
    );
    gateway.stop().await;
}

/// Scenario: a dozen clients that send their request heads a byte at a time and never finish, one that
/// says nothing at all, one that stops in its second request.
/// Guarantees: they are closed once the header time-out is over; others are served meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn slow_heads_are_closed() {
    let sink = Sink::start().await;
    let gateway = Gateway::start(&Config::to(&sink).http("read_header_timeout: 2s")).await;
    let address = gateway.http();
    let mut clients = Vec::new();
    for index in 0..12 {
        clients.push(tokio::spawn(async move {
            let mut raw = RawHttp::connect(address).await;
            if index == 1 {
                assert!(raw.write("POST /v1/logs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}").await);
                assert_eq!(raw.reply().await.unwrap().status, 200);
            }
            if index > 0 {
                for byte in b"POST /v1/logs HTTP/1.1\r\nx-slow: ".iter().chain([b'x'; 1000].iter()) {
                    if !raw.write([*byte]).await {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            raw.closed().await
        }));
    }
    for _ in 0..20 {
        assert_eq!(post(address, "/v1/logs", &[PROTOBUF], "").await.status, 200);
    }
    for client in clients {
        let said = within("a slow client is closed", client).await.unwrap();
        // Nothing, or an answer that says why.
        assert!(
            said.is_empty() || said.starts_with(b"HTTP/1.1 408"),
            "{}",
            String::from_utf8_lossy(&said)
        );
    }
    gateway.stop().await;
}

/// Scenario: clients on both transports that announce a body and stop in the middle of it.
/// Guarantees: they are answered 408 and DEADLINE_EXCEEDED after the body time-out, their memory is free
/// again, and others are served meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn slow_bodies_are_closed() {
    let sink = Sink::start().await;
    let gateway = Gateway::start(&Config::to(&sink)).await;
    let mut raw = RawHttp::connect(gateway.http()).await;
    let head = "POST /v1/logs HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length: 1000000\r\n\r\n";
    assert!(raw.write(head).await);
    assert!(raw.write([0; 1000]).await);
    let connection = GrpcConnection::open(gateway.grpc()).await.unwrap();
    let call = connection.head(Kind::Logs.grpc_path(), &[]);
    let mut sender = connection.sender().ready().await.unwrap();
    let (response, mut stream) = sender.send_request(call, false).unwrap();
    stream
        .send_data([&[0, 0, 0x10, 0, 0][..], &[0; 1000]].concat().into(), false)
        .unwrap();

    let body = sample(Kind::Logs, 1);
    for _ in 0..5 {
        assert_eq!(
            post(gateway.http(), "/v1/logs", &[PROTOBUF], body.clone())
                .await
                .status,
            200
        );
    }
    assert_eq!(raw.reply().await.expect("an answer").status, 408);
    let response = within("an answer", response).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "4", "{response:?}");
    sink.wait_for_same(Kind::Logs, &vec![body; 5]).await;
    sluice_tests::eventually("nothing is reserved", || async {
        (gateway.metrics().await.sum("sluice_memory_reserved_bytes", &[]) == 0.0).then_some(())
    })
    .await;
    gateway.stop().await;
}

/// Scenario: an idle keep-alive connection on the HTTP port with `idle_timeout: 1s`.
/// Guarantees: it is closed, and only then.
#[tokio::test(flavor = "multi_thread")]
async fn idle_http_connections_are_closed() {
    let sink = Sink::start().await;
    let gateway = Gateway::start(&Config::to(&sink).http("idle_timeout: 1s")).await;
    let mut raw = RawHttp::connect(gateway.http()).await;
    assert!(raw.write("POST /v1/logs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}").await);
    assert_eq!(raw.reply().await.unwrap().status, 200);
    assert!(raw.closed().await.is_empty());
    gateway.stop().await;
}

/// Scenario: h2 on the HTTP port: 100 requests at once on one connection.
/// Guarantees: all are answered; everything arrives once.
#[tokio::test(flavor = "multi_thread")]
async fn h2_streams_are_independent() {
    let sink = Sink::start().await;
    let gateway = Gateway::start(&Config::to(&sink)).await;
    let connection = HttpConnection::http2(gateway.http()).await.unwrap();
    let HttpConnection::Http2(sender) = connection else {
        unreachable!("just made")
    };
    let bodies: Vec<_> = (0..100).map(|seed| sample(Kind::Logs, seed)).collect();
    let calls: Vec<_> = bodies
        .iter()
        .map(|body| {
            let request = request(
                Method::POST,
                gateway.http(),
                "/v1/logs",
                &[PROTOBUF],
                body.clone(),
            );
            let mut sender = sender.clone();
            tokio::spawn(async move { sender.send_request(request).await.unwrap().status().as_u16() })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), 200);
    }
    sink.wait_for_same(Kind::Logs, &bodies).await;
    gateway.stop().await;
}

/// Scenario: `max_concurrent_streams` so high that the streams' windows add up to more than HTTP/2 can express.
/// Guarantees: the connection's window stops at the largest there is, and calls are served as ever.
#[tokio::test(flavor = "multi_thread")]
async fn any_number_of_streams_can_be_configured() {
    // 8191 windows of 256 KiB are the last that fit 2^31 - 1 bytes.
    for streams in [8191, 8192, u32::MAX] {
        let sink = Sink::start().await;
        let config = Config::to(&sink).grpc(&format!("max_concurrent_streams: {streams}"));
        let gateway = Gateway::start(&config).await;
        let body = sample(Kind::Logs, 1);
        let reply =
            sluice_tests::grpc_call(gateway.grpc(), Kind::Logs.grpc_path(), &[], frame(0, &body)).await;
        assert_eq!(reply.code(), code::OK, "{streams}: {reply:?}");
        sink.wait_for_same(Kind::Logs, &[body]).await;
        gateway.stop().await;
    }
}
