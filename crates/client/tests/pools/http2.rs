//! HTTP/2.

use h2::Reason;
use sluice_client::{MAX_ANSWER_BYTES, Phase};

use super::support::h2::{Order, Reply, Server, Step};
use super::*;

fn reply(status: u16, body: &str) -> Reply {
    Reply {
        status,
        body: body.into(),
        ..Reply::default()
    }
}

fn ok() -> Step {
    Step::Answer(reply(200, "fine"))
}

/// Scenario: requests one after the other, one of many slices; the answer has trailers.
/// Guarantees: one connection serves them, bytes arrive in order, trailers come back.
#[tokio::test]
async fn one_connection_serves_one_after_the_other() {
    let trailers = HeaderMap::from_iter([(
        http::HeaderName::from_static("grpc-status"),
        http::HeaderValue::from_static("0"),
    )]);
    let answer = Reply {
        trailers: Some(trailers),
        ..reply(200, "fine")
    };
    let mut server = Server::start([], Step::Answer(answer)).await;
    let client = client(&server.url(), Protocol::Http2);
    let parts: Vec<Bytes> = (0..200u8)
        .map(|n| Bytes::from(vec![n; 2000 + usize::from(n) * 100]))
        .collect();
    let whole: Vec<u8> = parts.iter().flatten().copied().collect();
    for _ in 0..3 {
        let path = PathAndQuery::from_static("/x?y=1");
        let answer = client
            .post(&path, HeaderMap::new(), &Slices::new(parts.clone()), AMPLE)
            .await
            .unwrap();
        assert_eq!(&answer.body[..], b"fine");
        assert_eq!(answer.trailers.unwrap()["grpc-status"], "0");
        let seen = server.seen.recv().await.unwrap();
        assert!(seen.body == whole);
        assert_eq!(seen.path, "/x?y=1");
        assert_eq!(seen.header("user-agent"), Some(sluice_client::AGENT));
    }
    assert_eq!(server.connections(), 1);
}

/// Scenario: requests that stay in flight, then more of them than connections.
/// Guarantees: connections are opened as they are needed, up to the limit, and each carries its share.
#[tokio::test]
async fn connections_grow_with_concurrency() {
    let mut server = Server::start([], Step::Stall).await;
    let mut settings = settings(&server.url(), Protocol::Http2);
    settings.http2.connections = 3;
    let client = Arc::new(Client::new(settings).unwrap());
    let mut per_connection = [0; 3];
    for sent in 0.. {
        assert!(sent < 100, "{per_connection:?}");
        let client = client.clone();
        tokio::spawn(async move { post(&client, "x").await });
        per_connection[server.seen.recv().await.unwrap().connection] += 1;
        if per_connection.iter().all(|n| *n >= 3) {
            break;
        }
    }
    assert_eq!(server.connections(), 3);
    let (least, most) = (per_connection.iter().min(), per_connection.iter().max());
    assert!(most.unwrap() - least.unwrap() <= 6, "{per_connection:?}");
}

/// Scenario: GOAWAY while a request is in flight; then more requests.
/// Guarantees: the one in flight is answered, the others go to a new connection, nobody sees an error.
#[tokio::test]
async fn goaway_drains_and_replaces() {
    let mut server = Server::start([], ok()).await;
    let client = client(&server.url(), Protocol::Http2);
    for round in 0..20 {
        let body = vec![0u8; 200_000];
        let (one, two) = (client.clone(), client.clone());
        let (body_one, body_two) = (body.clone(), body);
        let first = tokio::spawn(async move { post(&one, body_one).await });
        let second = tokio::spawn(async move { post(&two, body_two).await });
        server.seen.recv().await.unwrap();
        server.order(Order::GoAway);
        for request in [first, second] {
            assert_eq!(request.await.unwrap().unwrap().status, 200, "round {round}");
        }
        while server.seen.try_recv().is_ok() {}
    }
    assert!(server.connections() > 1);
}

/// Scenario: the server refuses a stream it has not looked at, twice; another resets it for good.
/// Guarantees: REFUSED_STREAM is sent again at once, an internal error is left to the caller's retry.
#[tokio::test]
async fn refused_streams_are_sent_again() {
    let refused = Step::Reset(Reason::REFUSED_STREAM);
    let server = Server::start([refused.clone(), refused], ok()).await;
    let client = client(&server.url(), Protocol::Http2);
    assert_eq!(post(&client, "x").await.unwrap().status, 200);
    let server_error = {
        let server = Server::start([Step::Reset(Reason::INTERNAL_ERROR)], ok()).await;
        let client = super::client(&server.url(), Protocol::Http2);
        post(&client, "x").await.unwrap_err()
    };
    assert!(matches!(server_error, SendError::Lost(_)), "{server_error:?}");
}

/// Scenario: the server answers 413 before the body, then RST_STREAM(NO_ERROR).
/// Guarantees: the answer is heard.
#[tokio::test]
async fn an_early_answer_is_heard() {
    let server = Server::start([Step::AnswerEarly(reply(413, "too big"))], ok()).await;
    let client = client(&server.url(), Protocol::Http2);
    let answer = post(&client, vec![0u8; 8 << 20]).await.unwrap();
    assert_eq!(answer.status, 413);
}

/// Scenario: a connection goes silent with one request on it, while others go on.
/// Guarantees: the others are answered; after the deadline the silent connection takes no request more.
#[tokio::test(start_paused = true)]
async fn a_silent_connection_stalls_nobody_else() {
    let mut server = Server::start([Step::Stall], ok()).await;
    let client = client(&server.url(), Protocol::Http2);
    let timeout = Duration::from_secs(5);
    let stalled = {
        let client = client.clone();
        tokio::spawn(async move { post_within(&client, "stalled", timeout).await })
    };
    let silent = server.seen.recv().await.unwrap().connection;
    for _ in 0..10 {
        post_within(&client, "x", timeout).await.unwrap();
    }
    let error = stalled.await.unwrap().unwrap_err();
    assert_eq!(
        error,
        SendError::Timeout {
            after: timeout,
            phase: Phase::Waiting
        }
    );
    while server.seen.try_recv().is_ok() {}
    for _ in 0..10 {
        post_within(&client, "x", timeout).await.unwrap();
        assert_ne!(server.seen.recv().await.unwrap().connection, silent);
    }
}

/// Scenario: the peer stops answering anything, pings included.
/// Guarantees: the ping finds out and the request fails long before its own deadline.
#[tokio::test(start_paused = true)]
async fn pings_find_a_dead_peer() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        // Takes connections and never reads: the requests lie in the socket buffers.
        let mut held = Vec::new();
        loop {
            held.push(listener.accept().await.unwrap());
        }
    });
    let mut settings = settings(&url, Protocol::Http2);
    settings.http2.keepalive_interval = Some(Duration::from_secs(10));
    settings.http2.keepalive_timeout = Duration::from_secs(5);
    let client = Client::new(settings).unwrap();
    let before = tokio::time::Instant::now();
    let error = post_within(&client, "x", Duration::from_secs(600))
        .await
        .unwrap_err();
    assert!(matches!(error, SendError::Lost(_)), "{error:?}");
    assert!(
        before.elapsed() < Duration::from_secs(20),
        "{:?}",
        before.elapsed()
    );
}

/// Scenario: traffic without a pause past the age of the connections.
/// Guarantees: connections are replaced while requests go on, and no request fails.
#[tokio::test(start_paused = true)]
async fn old_connections_are_replaced_under_traffic() {
    let mut server = Server::start([], ok()).await;
    let mut settings = settings(&server.url(), Protocol::Http2);
    settings.connect.max_connection_age = Duration::from_secs(60);
    let client = Client::new(settings).unwrap();
    let mut last = 0;
    for _ in 0..30 {
        tokio::time::advance(Duration::from_secs(10)).await;
        let (one, two) = tokio::join!(post(&client, "x"), post(&client, "x"));
        one.unwrap();
        two.unwrap();
        last = server.seen.recv().await.unwrap().connection;
        server.seen.recv().await.unwrap();
    }
    assert!(last >= 4, "after five minutes requests are on connection {last}");
}

/// Scenario: all connections are cut between requests.
/// Guarantees: the next request makes a new one and is answered.
#[tokio::test]
async fn cut_connections_are_replaced() {
    let mut server = Server::start([], ok()).await;
    let client = client(&server.url(), Protocol::Http2);
    for _ in 0..20 {
        post(&client, "x").await.unwrap();
        server.seen.recv().await.unwrap();
        server.order(Order::Cut);
    }
}

/// Scenario: an answer that is longer than 4 MiB.
/// Guarantees: no more than that is read (C5), and the connection goes on.
#[tokio::test]
async fn c5_answers_are_read_up_to_4_mib() {
    let long = Reply {
        status: 200,
        body: vec![b'a'; MAX_ANSWER_BYTES + 1],
        ..Reply::default()
    };
    let server = Server::start([Step::Answer(long)], ok()).await;
    let client = client(&server.url(), Protocol::Http2);
    let answer = post(&client, "x").await.unwrap();
    assert_eq!((answer.body.len(), answer.cut), (MAX_ANSWER_BYTES, true));
    assert_eq!(&post(&client, "x").await.unwrap().body[..], b"fine");
}
