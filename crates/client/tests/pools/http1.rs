//! HTTP/1.1.

use sluice_client::{MAX_ANSWER_BYTES, Phase};

use super::support::h1::{Reply, Server, Step};
use super::*;

fn ok() -> Step {
    Step::Answer(Reply::status(200).body("text/plain", "fine"))
}

/// Scenario: three requests, one after the other, then a body of many slices.
/// Guarantees: one connection serves them all; Host, User-Agent and Content-Length are right; the
/// bytes of the slices arrive in order.
#[tokio::test]
async fn one_connection_is_reused() {
    let mut server = Server::start([], ok()).await;
    let client = client(&server.url(), Protocol::Http1);
    for body in ["one", "two", "three"] {
        let answer = post(&client, body).await.unwrap();
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, &b"fine"[..]));
        let seen = server.seen.recv().await.unwrap();
        assert_eq!(seen.body, body.as_bytes());
        assert_eq!(seen.header("host"), Some(server.addr.to_string().as_str()));
        assert_eq!(seen.header("user-agent"), Some(sluice_client::AGENT));
        assert_eq!(
            seen.header("content-length"),
            Some(body.len().to_string().as_str())
        );
        assert_eq!(seen.header("transfer-encoding"), None);
    }
    let parts: Vec<Bytes> = (0..100u8)
        .map(|n| Bytes::from(vec![n; 1000 + usize::from(n) * 10]))
        .collect();
    let whole: Vec<u8> = parts.iter().flatten().copied().collect();
    let path = PathAndQuery::from_static("/");
    client
        .post(&path, HeaderMap::new(), &Slices::new(parts), AMPLE)
        .await
        .unwrap();
    assert!(server.seen.recv().await.unwrap().body == whole);
    assert_eq!(server.connections(), 1);
}

/// Scenario: the server answers and closes without having said so; another request follows.
/// Guarantees: nobody sees an error: the request goes out once more on a new connection.
#[tokio::test]
async fn a_stale_connection_is_replaced_unseen() {
    let mut server = Server::start(
        [
            Step::AnswerThenClose(Reply::status(200)),
            ok(),
            Step::CutBeforeAnswer,
        ],
        ok(),
    )
    .await;
    let client = client(&server.url(), Protocol::Http1);
    post(&client, "one").await.unwrap();
    assert_eq!(post(&client, "two").await.unwrap().status, 200);
    // And when the peer closes as it reads the next request:
    assert_eq!(post(&client, "three").await.unwrap().status, 200);
    let mut bodies = Vec::new();
    while let Ok(seen) = server.seen.try_recv() {
        bodies.push(String::from_utf8(seen.body).unwrap());
    }
    assert_eq!(bodies, ["one", "two", "three", "three"]);
    assert_eq!(server.connections(), 3);
}

/// Scenario: the first connection ever is cut before an answer, within the request, within the answer.
/// Guarantees: each is an error at once, since nothing says a second time would go better.
#[tokio::test]
async fn a_cut_new_connection_is_an_error() {
    for step in [Step::CutBeforeAnswer, Step::CutInRequest, Step::CutInAnswer] {
        let server = Server::start([step.clone()], ok()).await;
        let client = client(&server.url(), Protocol::Http1);
        let error = post(&client, vec![0u8; 4 << 20]).await.unwrap_err();
        assert!(matches!(error, SendError::Lost(_)), "{step:?}: {error:?}");
        assert_eq!(server.connections(), 1, "{step:?}");
    }
}

/// Scenario: the server answers 413 after the head of a large request, reads no more than it must, closes.
/// Guarantees: the answer is heard, and the connection is not used again.
#[tokio::test]
async fn an_early_answer_is_heard() {
    let server = Server::start(
        [Step::AnswerEarly(
            Reply::status(413).body("text/plain", "too big"),
        )],
        ok(),
    )
    .await;
    let client = client(&server.url(), Protocol::Http1);
    let answer = post(&client, vec![0u8; 16 << 20]).await.unwrap();
    assert_eq!((answer.status.as_u16(), &answer.body[..]), (413, &b"too big"[..]));
    assert_eq!(post(&client, "next").await.unwrap().status, 200);
    assert_eq!(server.connections(), 2);
}

/// Scenario: a server that takes the request and says nothing.
/// Guarantees: the deadline ends it, the error says where the time went, and the next request
/// gets its own connection.
#[tokio::test(start_paused = true)]
async fn a_stalled_answer_ends_at_the_deadline() {
    let server = Server::start([Step::Stall], ok()).await;
    let client = client(&server.url(), Protocol::Http1);
    let before = tokio::time::Instant::now();
    let timeout = Duration::from_secs(7);
    let error = post_within(&client, "x", timeout).await.unwrap_err();
    assert_eq!(
        error,
        SendError::Timeout {
            after: timeout,
            phase: Phase::Waiting
        }
    );
    assert!(before.elapsed() < Duration::from_secs(8));
    assert_eq!(post(&client, "next").await.unwrap().status, 200);
    assert_eq!(server.connections(), 2);
}

/// Scenario: an answer of exactly 4 MiB, and one of a byte more.
/// Guarantees: the first is whole, of the second no more than 4 MiB is read and it says so (C5).
#[tokio::test]
async fn c5_answers_are_read_up_to_4_mib() {
    let whole = Reply::status(200).body("text/plain", vec![b'a'; MAX_ANSWER_BYTES]);
    let longer = Reply::status(200).body("text/plain", vec![b'a'; MAX_ANSWER_BYTES + 1]);
    let server = Server::start([Step::Answer(whole), Step::Answer(longer)], ok()).await;
    let client = client(&server.url(), Protocol::Http1);
    let answer = post(&client, "x").await.unwrap();
    assert_eq!((answer.body.len(), answer.cut), (MAX_ANSWER_BYTES, false));
    let answer = post(&client, "x").await.unwrap();
    assert_eq!((answer.body.len(), answer.cut), (MAX_ANSWER_BYTES, true));
    // The rest of it is not read by the next request.
    assert_eq!(&post(&client, "x").await.unwrap().body[..], b"fine");
}

/// Scenario: more requests at once than connections are allowed.
/// Guarantees: the limit holds, and all requests are answered.
#[tokio::test]
async fn connections_are_limited() {
    let server = Server::start([], ok()).await;
    let mut settings = settings(&server.url(), Protocol::Http1);
    settings.http1.max_connections = 2;
    let client = Arc::new(Client::new(settings).unwrap());
    let requests: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { post(&client, vec![0u8; 100_000]).await })
        })
        .collect();
    for request in requests {
        assert_eq!(request.await.unwrap().unwrap().status, 200);
    }
    assert!(server.connections() <= 2, "{}", server.connections());
}

/// Scenario: a connection lies idle past the idle time-out; another is used past the age limit.
/// Guarantees: each makes way for a new one.
#[tokio::test(start_paused = true)]
async fn idle_and_old_connections_are_not_used() {
    let server = Server::start([], ok()).await;
    let mut settings = settings(&server.url(), Protocol::Http1);
    settings.connect.max_connection_age = Duration::from_secs(600);
    settings.http1.idle_timeout = Duration::from_secs(50);
    let client = Client::new(settings).unwrap();
    post(&client, "a").await.unwrap();
    tokio::time::advance(Duration::from_secs(49)).await;
    post(&client, "b").await.unwrap();
    assert_eq!(server.connections(), 1);
    tokio::time::advance(Duration::from_secs(50)).await;
    post(&client, "c").await.unwrap();
    assert_eq!(server.connections(), 2);
    for _ in 0..13 {
        tokio::time::advance(Duration::from_secs(49)).await;
        post(&client, "d").await.unwrap();
    }
    assert_eq!(server.connections(), 3);
}

/// Scenario: nobody listens.
/// Guarantees: the error names the destination and the address, and is not one to be mended.
#[tokio::test]
async fn a_refused_connection_says_where() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let client = client(&format!("http://{address}"), protocol);
        let error = post(&client, "x").await.unwrap_err();
        assert!(
            matches!(error, SendError::Connect { .. }) && !error.needs_mending(),
            "{error:?}"
        );
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}
