#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::StatusCode;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;

use super::*;
use crate::drain;

/// Answers with how many requests it has served, and refuses `/refused` without reading its body first.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicU32>);

impl Serve for Counting {
    async fn serve(&self, request: Request<Incoming>, _: Peer) -> Response<ReplyBody> {
        let number = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        let mut response = Response::new(ReplyBody::data(number.to_string().into()));
        match request.uri().path() {
            "/refused" => {
                drain(request.into_body());
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            }
            _ => drop(request.into_body().collect().await),
        }
        response
    }
}

struct Client {
    io: DuplexStream,
    service: Counting,
    serving: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Client {
    fn connect(settings: ConnectionSettings) -> Client {
        let (io, server) = tokio::io::duplex(1 << 20);
        let service = Counting::default();
        let (stop, stopping) = watch::channel(false);
        let served = service.clone();
        let serving = tokio::spawn(async move {
            let peer = Peer {
                address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
            };
            converse(server, served, peer, &settings, stopping).await;
        });
        Client {
            io,
            service,
            serving,
            stop,
        }
    }

    async fn send(&mut self, text: &str) {
        self.io.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads an answer: its status line and its one-byte body.
    async fn answer(&mut self) -> (String, String) {
        let mut text = String::new();
        while !text.contains("\r\n\r\n") || text.ends_with("\r\n\r\n") {
            text.push(self.io.read_u8().await.unwrap() as char);
        }
        let status = text.lines().next().unwrap()[9..12].to_owned();
        (status, text.chars().next_back().unwrap().to_string())
    }

    /// Whether hyper has the connection: the test, `converse` and a connection of hyper's each hold the service.
    fn is_attended(&self) -> bool {
        Arc::strong_count(&self.service.0) > 2
    }
}

async fn quiet() {
    tokio::time::sleep(PARK_AFTER * 2).await;
}

/// Scenario: a client connects, waits, sends a request, waits, sends two more with a pause between their bytes, waits, and hangs up.
/// Guarantees: whenever nothing goes on the connection holds nothing of hyper's, and every request is answered all the same.
#[tokio::test(start_paused = true)]
async fn a_quiet_connection_holds_only_its_socket() {
    let mut client = Client::connect(ConnectionSettings::default());
    quiet().await;
    assert!(!client.is_attended());
    for number in ["1", "2", "3"] {
        client.send("POST /a HTTP/1.1\r\nhost: a\r\n").await;
        quiet().await;
        client.send("content-length: 5\r\n\r\nhe").await;
        quiet().await;
        assert!(client.is_attended(), "a request is under way");
        client.send("llo").await;
        assert_eq!(client.answer().await, ("200".into(), number.into()));
        assert!(client.is_attended(), "a client in steady use is not parked");
        quiet().await;
        assert!(!client.is_attended());
    }
    drop(client.io);
    client.serving.await.unwrap();
}

/// Scenario: a client sends a request and the beginning of another in one piece, and the rest seconds later.
/// Guarantees: nothing of the second is lost.
#[tokio::test(start_paused = true)]
async fn a_request_begun_early_is_served() {
    let mut client = Client::connect(ConnectionSettings::default());
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\nGET / HT").await;
    assert_eq!(client.answer().await, ("200".into(), "1".into()));
    quiet().await;
    client.send("TP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(client.answer().await, ("200".into(), "2".into()));
}

/// Scenario: a request is refused before its body came, on a connection that is to stay and on ones that are to be closed; the
/// body comes seconds after the answer, and looks like a request.
/// Guarantees: it is not taken for one, nor for the beginning of one: the connection serves another request a minute later. What was to be closed is,
/// once nobody waits for the body any more.
#[tokio::test(start_paused = true)]
async fn a_late_body_is_no_request() {
    let body = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    for (version, header, stays) in [
        ("1.1", "", true),
        ("1.1", "connection: close\r\n", false),
        ("1.0", "", false),
    ] {
        for pause in [2, 4, 7] {
            let mut client = Client::connect(ConnectionSettings::default());
            let length = body.len();
            client
                .send(&format!(
                    "POST /refused HTTP/{version}\r\nhost: a\r\n{header}content-length: {length}\r\n\r\n"
                ))
                .await;
            assert_eq!(client.answer().await, ("503".into(), "1".into()));
            tokio::time::sleep(Duration::from_secs(pause)).await;
            // Late enough, nobody is there to read it.
            let _ = client.io.write_all(body.as_bytes()).await;
            tokio::time::sleep(Duration::from_secs(60)).await;
            let case = format!("{version} {header:?} {pause}");
            assert_eq!(client.service.0.load(Ordering::Relaxed), 1, "{case}");
            if stays && pause < 5 {
                client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
                assert_eq!(client.answer().await, ("200".into(), "2".into()), "{case}");
            } else {
                assert!(client.serving.is_finished(), "{case}");
            }
        }
    }
}

/// Scenario: a request is refused, its body comes, and behind it the beginning of a head, seconds after the answer; nothing more.
/// Guarantees: the connection is closed in the time that a head has, from when it cannot be the body any more.
#[tokio::test(start_paused = true)]
async fn a_head_behind_a_refused_body_has_its_time() {
    for pause in [0, 3, 6] {
        let mut client = Client::connect(ConnectionSettings::default());
        client
            .send("POST /refused HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nbody")
            .await;
        assert_eq!(client.answer().await, ("503".into(), "1".into()));
        tokio::time::sleep(Duration::from_secs(pause)).await;
        client.send("GET / HT").await;
        let began = Instant::now();
        client.serving.await.unwrap();
        let lasted = began.elapsed();
        let head = ConnectionSettings::default().header_timeout;
        assert!(lasted >= head && lasted <= 2 * head, "{pause}: {lasted:?}");
    }
}

/// Scenario: parked connections: one that is idle for longer than it may be, one that is too old, one when the gateway stops.
/// A connection on which nothing was ever sent.
/// Guarantees: each is closed in time, and not before.
#[tokio::test(start_paused = true)]
async fn a_parked_connection_still_ends() {
    const LIMIT: Duration = Duration::from_secs(60);
    let idle = ConnectionSettings {
        idle_timeout: Some(LIMIT),
        ..ConnectionSettings::default()
    };
    let aged = ConnectionSettings {
        max_age: Some(LIMIT),
        ..ConnectionSettings::default()
    };
    for (settings, least, most) in [
        (idle, LIMIT, LIMIT * 11 / 10),
        (aged, LIMIT - Duration::from_secs(1), LIMIT * 12 / 10),
    ] {
        let mut client = Client::connect(settings);
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        client.answer().await;
        let began = Instant::now();
        client.serving.await.unwrap();
        let lasted = began.elapsed();
        assert!(lasted >= least && lasted <= most, "{lasted:?}");
    }

    let mut client = Client::connect(ConnectionSettings::default());
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    client.answer().await;
    quiet().await;
    assert!(!client.serving.is_finished());
    client.stop.send(true).unwrap();
    client.serving.await.unwrap();

    let silent = Client::connect(ConnectionSettings::default());
    let began = Instant::now();
    silent.serving.await.unwrap();
    assert_eq!(began.elapsed(), ConnectionSettings::default().header_timeout);
}
