#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;

use super::*;
use crate::discard;
use crate::discard::H2_LINGER;

/// Answers with how many requests it has served, and refuses `/refused` without reading its body first.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicU32>);

impl Serve for Counting {
    async fn serve(&self, request: Request<Incoming>, _: Peer) -> Response<ReplyBody> {
        let number = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        let mut response = Response::new(ReplyBody::data(number.to_string().into()));
        match request.uri().path() {
            "/refused" => {
                let version = request.version();
                discard(request.into_body(), version);
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

/// Sends of a body what goes, until the server says what it thinks of it.
async fn send_until_reset(stream: &mut h2::SendStream<Bytes>) -> (usize, h2::Reason) {
    let mut sent = 0;
    loop {
        stream.reserve_capacity(H2_STREAM_WINDOW as usize);
        let next = poll_fn(|cx| match stream.poll_reset(cx) {
            Poll::Ready(reset) => Poll::Ready(Err(reset.unwrap())),
            Poll::Pending => stream.poll_capacity(cx).map(|some| Ok(some.unwrap().unwrap())),
        });
        match next.await {
            Ok(room) => {
                stream.send_data(vec![0; room].into(), false).unwrap();
                sent += room;
            }
            Err(reason) => return (sent, reason),
        }
    }
}

/// Scenario: an h2 client sends a body that does not end, as fast as it may; the request is refused before a byte of it is read.
/// Guarantees: it has the whole answer at once, then, while it still sends, RST_STREAM(NO_ERROR), soon; it sends two windows at most. The connection serves another
/// request.
#[tokio::test(start_paused = true)]
async fn an_h2_client_that_sends_is_told_to_stop_soon() {
    let client = Client::connect(ConnectionSettings::default());
    let (mut sender, connection) = h2::client::handshake(client.io).await.unwrap();
    tokio::spawn(connection);
    let post = |path| Request::post(format!("http://a{path}")).body(()).unwrap();
    let began = Instant::now();
    let (answer, mut stream) = sender.send_request(post("/refused"), false).unwrap();
    let answered = async {
        let (head, mut body) = answer.await.unwrap().into_parts();
        let said = body.data().await.unwrap().unwrap();
        assert!(body.data().await.is_none(), "it is complete");
        (head.status, said, began.elapsed())
    };
    let ((status, said, answered), (sent, reason)) = tokio::join!(answered, send_until_reset(&mut stream));
    assert_eq!((status, &said[..]), (StatusCode::SERVICE_UNAVAILABLE, &b"1"[..]));
    assert_eq!(answered, Duration::ZERO);
    assert_eq!(reason, h2::Reason::NO_ERROR);
    let lasted = began.elapsed();
    assert!(lasted >= H2_LINGER && lasted < 2 * H2_LINGER, "{lasted:?}");
    assert!(sent <= 2 * H2_STREAM_WINDOW as usize, "{sent} bytes");
    let (answer, _) = sender.send_request(post("/"), true).unwrap();
    assert_eq!(answer.await.unwrap().status(), StatusCode::OK);
}

/// Frames of h2, written and read by hand: a client of h2's stops sending as soon as it may.
struct Frames(DuplexStream);

impl Frames {
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const RESET: u8 = 3;
    const SETTINGS: u8 = 4;
    const GO_AWAY: u8 = 7;
    const CONTINUATION: u8 = 9;
    const END_STREAM: u8 = 1;
    const END_HEADERS: u8 = 4;

    /// Of a client, with what h2 says first.
    async fn connect(io: DuplexStream) -> Frames {
        let mut client = Frames(io);
        client.0.write_all(H2_PREFACE).await.unwrap();
        client.write(Frames::SETTINGS, 0, 0, &[]).await;
        client
    }

    async fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.begin(kind, flags, stream, payload.len(), payload).await;
    }

    /// A frame that says it has `length` bytes, with these of them.
    async fn begin(&mut self, kind: u8, flags: u8, stream: u32, length: usize, payload: &[u8]) {
        let bytes = Frames::frame(kind, flags, stream, length, payload);
        self.0.write_all(&bytes).await.unwrap();
    }

    fn frame(kind: u8, flags: u8, stream: u32, length: usize, payload: &[u8]) -> Vec<u8> {
        let length = (length as u32).to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    /// Kind, flags and payload of the next one.
    async fn read(&mut self) -> (u8, u8, Vec<u8>) {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        self.0.read_exact(&mut payload).await.unwrap();
        (head[3], head[4], payload)
    }
}

/// Scenario: an h2 client sends many requests side by side that are refused, and each answer crosses a part of its body on the way; that happens again and again
/// on one connection.
/// Guarantees: every stream is reset without an error, and the connection is not ended for what came behind the answers.
#[tokio::test(start_paused = true)]
async fn bodies_that_cross_their_refusals_do_not_end_the_connection() {
    const SIDE_BY_SIDE: u32 = 60;
    const PIECES: usize = 30;
    // Literals but for the method and the scheme (RFC 7541, 6).
    let request = [&[0x83, 0x86, 0x04, 8][..], b"/refused", &[0x01, 1, b'a']].concat();
    let served = Client::connect(ConnectionSettings::default());
    let mut client = Frames::connect(served.io).await;
    let mut next_stream = 1;
    for _ in 0..4 {
        let streams: Vec<u32> = (0..SIDE_BY_SIDE).map(|number| next_stream + 2 * number).collect();
        next_stream += 2 * SIDE_BY_SIDE;
        for stream in &streams {
            client
                .write(Frames::HEADERS, Frames::END_HEADERS, *stream, &request)
                .await;
        }
        let (mut answered, mut resets) = (0, 0);
        while resets < SIDE_BY_SIDE {
            let (kind, flags, payload) = client.read().await;
            assert_ne!(kind, Frames::GO_AWAY, "{}", String::from_utf8_lossy(&payload));
            if matches!(kind, Frames::DATA | Frames::HEADERS) && flags & Frames::END_STREAM != 0 {
                answered += 1;
                if answered == SIDE_BY_SIDE {
                    for stream in &streams {
                        for _ in 0..PIECES {
                            client.write(Frames::DATA, 0, *stream, &[0; 1024]).await;
                        }
                    }
                }
            }
            if kind == Frames::RESET {
                assert_eq!(payload, u32::from(h2::Reason::NO_ERROR).to_be_bytes());
                resets += 1;
            }
        }
    }
}

/// Scenario: h2 connections begin a large frame and do not end it, each in another way: a frame that nobody knows, a request head in pieces that has no end, a body behind the
/// refusal of its request, one behind a request that was called off. There are as many as there are places. One of them ends its frame. Then two more come. Beside them, from the beginning, one whose request is under way, one with
/// a small frame, and one with nothing.
/// Guarantees: the first of them that is still at it is closed, and nobody else; a frame that is ended gives its place back.
#[tokio::test(start_paused = true)]
async fn large_frames_without_an_end_are_bounded() {
    const UNKNOWN: u8 = 0x77;
    const LARGE: usize = 60_000;
    let settle = || tokio::time::sleep(Duration::from_millis(500));
    let head = |path: &[u8]| [&[0x83, 0x86, 0x04, path.len() as u8][..], path, &[0x01, 1, b'a']].concat();
    let begun = async |way: usize| {
        let served = Client::connect(ConnectionSettings::default());
        let mut client = Frames::connect(served.io).await;
        // Or it is closed for having no request.
        client
            .write(
                Frames::HEADERS,
                Frames::END_HEADERS | Frames::END_STREAM,
                1,
                &head(b"/"),
            )
            .await;
        settle().await;
        match way % 4 {
            0 => client.begin(UNKNOWN, 0, 0, LARGE, &[0; 50_000]).await,
            1 => {
                client.write(Frames::HEADERS, 0, 3, &[0x84; 6_000]).await;
                client
                    .begin(Frames::CONTINUATION, 0, 3, 6_000, &[0x84; 5_000])
                    .await;
            }
            2 => {
                client
                    .write(Frames::HEADERS, Frames::END_HEADERS, 3, &head(b"/refused"))
                    .await;
                client.begin(Frames::DATA, 0, 3, LARGE, &[0; 50_000]).await;
            }
            _ => {
                client
                    .write(Frames::HEADERS, Frames::END_HEADERS, 3, &head(b"/"))
                    .await;
                settle().await;
                // In one piece: the frame is there before the request is gone.
                let cancelled = Frames::frame(Frames::RESET, 0, 3, 4, &8u32.to_be_bytes());
                let begun = Frames::frame(UNKNOWN, 0, 0, LARGE, &[0; 50_000]);
                client.0.write_all(&[cancelled, begun].concat()).await.unwrap();
            }
        }
        settle().await;
        (client, served.serving)
    };

    let mut beside = Vec::new();
    for (kind, length, sent) in [
        (Frames::DATA, LARGE, 50_000),
        (UNKNOWN, 8_000, 7_000),
        (UNKNOWN, 0, 0),
    ] {
        let served = Client::connect(ConnectionSettings::default());
        let mut client = Frames::connect(served.io).await;
        let is_body = kind == Frames::DATA;
        let ends = if is_body { 0 } else { Frames::END_STREAM };
        client
            .write(Frames::HEADERS, Frames::END_HEADERS | ends, 1, &head(b"/"))
            .await;
        client
            .begin(kind, 0, u32::from(is_body), length, &vec![0; sent])
            .await;
        beside.push((client, served.serving));
    }
    let mut many = Vec::new();
    for way in 0..crate::frames::MOST_UNFINISHED {
        many.push(begun(way).await);
    }
    let ended = |many: &[(Frames, JoinHandle<()>)]| -> Vec<usize> {
        (0..many.len())
            .filter(|number| many[*number].1.is_finished())
            .collect()
    };
    assert!(ended(&many).is_empty(), "{:?}", ended(&many));
    // The oldest.
    let rest = [0; LARGE - 50_000];
    many[0].0.0.write_all(&rest).await.unwrap();
    settle().await;
    many.push(begun(0).await);
    assert!(ended(&many).is_empty(), "{:?}", ended(&many));
    for way in 1..=4 {
        many.push(begun(way).await);
        assert_eq!(ended(&many), (1..=way).collect::<Vec<_>>());
    }
    assert!(beside.iter().all(|(_, serving)| !serving.is_finished()));
}

/// All that a client reads until the connection is closed.
async fn everything(client: &mut Client) -> String {
    let mut text = String::new();
    client.io.read_to_string(&mut text).await.unwrap();
    text
}

/// Scenario: heads of 60,000 bytes in three pieces, one behind the other; one that goes on beyond 64 KiB. Then as many begun and not finished as may come at once, one
/// more, and a short one; then one of the first ends.
/// Guarantees: long heads are served as far as they may be, and hold no place when they are complete; one that is too long is told so, however much comes behind; more at once
/// are told to come back, with a hint; short ones are served beside them.
#[tokio::test(start_paused = true)]
async fn long_heads_are_bounded() {
    let begun = |bytes: usize| format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}", "y".repeat(bytes));
    let mut client = Client::connect(ConnectionSettings::default());
    for number in 1..=2 {
        client.send(&begun(20_000)).await;
        for piece in ["y".repeat(20_000), format!("{}\r\n\r\n", "y".repeat(20_000))] {
            tokio::time::sleep(Duration::from_millis(10)).await;
            client.send(&piece).await;
        }
        assert_eq!(client.answer().await, ("200".into(), number.to_string()));
    }
    client.send(&begun(300_000)).await;
    let told = everything(&mut client).await;
    assert!(
        told.starts_with("HTTP/1.1 431 ") && told.ends_with("longer than 65536 bytes"),
        "{told}"
    );

    let mut many = Vec::new();
    for _ in 0..crate::activity::MOST_LONG_HEADS {
        let mut client = Client::connect(ConnectionSettings::default());
        client.send(&begun(10_000)).await;
        many.push(client);
    }
    tokio::time::sleep(Duration::from_millis(10)).await;
    let mut one_more = Client::connect(ConnectionSettings::default());
    one_more.send(&begun(10_000)).await;
    let told = everything(&mut one_more).await;
    assert!(
        told.starts_with("HTTP/1.1 503 ") && told.contains("\r\nretry-after: 1\r\n"),
        "{told}"
    );
    let mut short = Client::connect(ConnectionSettings::default());
    short.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(short.answer().await.0, "200");

    let ended = many.pop().unwrap();
    drop(ended.io);
    ended.serving.await.unwrap();
    let mut next = Client::connect(ConnectionSettings::default());
    next.send(&format!("{}\r\n\r\n", begun(10_000))).await;
    assert_eq!(next.answer().await.0, "200");
}
