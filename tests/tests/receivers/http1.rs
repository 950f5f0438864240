//! HTTP/1.1 and 1.0 as RFC 9110 and 9112 have them, byte by byte.

use sluice_tests::{Config, Gateway, Kind, RawHttp, Sink, sample};

use crate::pair;

const HEAD: &str = "POST /v1/traces HTTP/1.1\r\nhost: sluice\r\ncontent-type: application/x-protobuf\r\n";

fn chunked(body: &[u8], size: usize, extension: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in body.chunks(size) {
        out.extend_from_slice(format!("{:X}{extension}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n");
    out
}

/// Scenario: chunked bodies in chunks of every size, with extensions, with trailers.
/// Guarantees: they arrive as if they had come in one piece, on one connection.
#[tokio::test(flavor = "multi_thread")]
async fn chunked_bodies() {
    let (sink, gateway) = pair().await;
    let mut raw = RawHttp::connect(gateway.http()).await;
    let mut sent = Vec::new();
    for (seed, (size, extension, trailers)) in [
        (1, "", ""),
        (97, ";name=value", ""),
        (100, ";quoted=\"a b\"", "x-checksum: 1\r\n"),
        (1 << 20, "", ""),
    ]
    .into_iter()
    .enumerate()
    {
        let body = sample(Kind::Traces, seed as u64);
        let mut request = format!("{HEAD}transfer-encoding: chunked\r\n\r\n").into_bytes();
        request.extend(chunked(&body, size, extension));
        request.extend(format!("{trailers}\r\n").as_bytes());
        assert!(raw.write(request).await);
        let reply = raw.reply().await.unwrap();
        assert_eq!(reply.status, 200, "chunks of {size}: {reply:?}");
        sent.push(body);
    }
    sink.wait_for_same(Kind::Traces, &sent).await;
    gateway.stop().await;
}

/// Scenario: a client that waits for `100 Continue`; one whose request is refused by its head alone; one
/// with an expectation nobody knows.
/// Guarantees: the first is told to go on and served; the second is refused without its body being asked
/// for; the third gets 417 (RFC 9110, 10.1.1).
#[tokio::test(flavor = "multi_thread")]
async fn expect_100_continue() {
    let (sink, gateway) = pair().await;
    let body = sample(Kind::Traces, 1);
    let mut raw = RawHttp::connect(gateway.http()).await;
    assert!(
        raw.write(format!(
            "{HEAD}expect: 100-continue\r\ncontent-length: {}\r\n\r\n",
            body.len()
        ))
        .await
    );
    assert_eq!(raw.reply().await.unwrap().status, 100);
    assert!(raw.write(&body).await);
    assert_eq!(raw.reply().await.unwrap().status, 200);
    sink.wait_for_same(Kind::Traces, &[body]).await;

    for (head, status) in [
        (
            format!("{HEAD}expect: 100-continue\r\ncontent-length: 99999999999\r\n\r\n"),
            413,
        ),
        (
            format!("{HEAD}expect: 100-continue\r\ncontent-encoding: br\r\ncontent-length: 5\r\n\r\n"),
            415,
        ),
        (
            HEAD.replace("traces", "nothing") + "expect: 100-continue\r\ncontent-length: 5\r\n\r\n",
            404,
        ),
        (
            format!("{HEAD}expect: the-unexpected\r\ncontent-length: 5\r\n\r\n"),
            417,
        ),
    ] {
        let mut raw = RawHttp::connect(gateway.http()).await;
        assert!(raw.write(&head).await);
        assert_eq!(raw.reply().await.unwrap().status, status, "{head}");
    }
    gateway.stop().await;
}

/// Scenario: HTTP/1.0 requests: with a length; with keep-alive.
/// Guarantees: served in HTTP/1.x; the connection ends after the answer unless it was asked to stay.
#[tokio::test(flavor = "multi_thread")]
async fn http_1_0() {
    let (sink, gateway) = pair().await;
    let body = sample(Kind::Traces, 1);
    let request = |more: &str| {
        let head = format!(
            "POST /v1/traces HTTP/1.0\r\ncontent-type: application/x-protobuf\r\n{more}content-length: {}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), &body].concat()
    };
    let mut raw = RawHttp::connect(gateway.http()).await;
    assert!(raw.write(request("")).await);
    assert_eq!(raw.reply().await.unwrap().status, 200);
    assert!(raw.closed().await.is_empty());

    let mut raw = RawHttp::connect(gateway.http()).await;
    for _ in 0..2 {
        assert!(raw.write(request("connection: keep-alive\r\n")).await);
        assert_eq!(raw.reply().await.unwrap().status, 200);
    }
    sink.wait_for_same(Kind::Traces, &[body.clone(), body.clone(), body.clone()])
        .await;
    gateway.stop().await;
}

/// Scenario: five requests written at once, good and bad, the last with `Connection: close`.
/// Guarantees: five answers in order, then the end.
#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests() {
    let (sink, gateway) = pair().await;
    let body = sample(Kind::Traces, 1);
    let request = |path: &str, more: &str| {
        let head = HEAD.replace("/v1/traces", path);
        [
            format!("{head}{more}content-length: {}\r\n\r\n", body.len()).as_bytes(),
            &body,
        ]
        .concat()
    };
    let mut raw = RawHttp::connect(gateway.http()).await;
    let all = [
        request("/v1/traces", ""),
        request("/nowhere", ""),
        request("/v1/traces", ""),
        request("/v1/traces", "content-encoding: br\r\n"),
        request("/v1/traces", "connection: close\r\n"),
    ];
    assert!(raw.write(all.concat()).await);
    for status in [200, 404, 200, 415, 200] {
        assert_eq!(raw.reply().await.unwrap().status, status);
    }
    assert!(raw.closed().await.is_empty());
    sink.wait_for_same(Kind::Traces, &[body.clone(), body.clone(), body.clone()])
        .await;
    gateway.stop().await;
}

/// Scenario: GET, HEAD and a method nobody knows.
/// Guarantees: 405 with Allow; the answer to HEAD has no body; the connection goes on.
#[tokio::test(flavor = "multi_thread")]
async fn other_methods() {
    let (_sink, gateway) = pair().await;
    let mut raw = RawHttp::connect(gateway.http()).await;
    for method in ["GET", "HEAD", "BREW"] {
        assert!(
            raw.write(format!("{method} /v1/traces HTTP/1.1\r\nhost: x\r\n\r\n"))
                .await
        );
        let reply = raw.reply_to(method).await.unwrap();
        assert_eq!(
            (reply.status, reply.header("allow")),
            (405, Some("POST")),
            "{method}: {reply:?}"
        );
        assert!(reply.header("date").is_some(), "RFC 9110, 6.6.1: {reply:?}");
    }
    assert!(raw.write(format!("{HEAD}content-length: 0\r\n\r\n")).await);
    assert_eq!(raw.reply().await.unwrap().status, 200);
    gateway.stop().await;
}

/// Scenario: requests whose head is malformed in ways that let two servers disagree on where a request
/// ends (RFC 9112, 3.2, 5.1, 6.1, 6.3), or that are no HTTP at all.
/// Guarantees: 400 (or another 4xx or 501), and the connection is closed; nothing of the body is served.
#[tokio::test(flavor = "multi_thread")]
async fn malformed_heads() {
    let (sink, gateway) = pair().await;
    let post = "POST /v1/traces HTTP/1.1\r\n";
    let media = "content-type: application/x-protobuf\r\n";
    for (what, head) in [
        ("no host", format!("{post}{media}content-length: 0\r\n\r\n")),
        (
            "two hosts",
            format!("{post}host: a\r\nhost: b\r\n{media}content-length: 0\r\n\r\n"),
        ),
        (
            "lengths that differ",
            format!("{HEAD}content-length: 5\r\ncontent-length: 6\r\n\r\nhello"),
        ),
        (
            "a length that is no number",
            format!("{HEAD}content-length: five\r\n\r\nhello"),
        ),
        (
            "a signed length",
            format!("{HEAD}content-length: +5\r\n\r\nhello"),
        ),
        (
            "a negative length",
            format!("{HEAD}content-length: -5\r\n\r\nhello"),
        ),
        (
            "a coding behind chunked",
            format!("{HEAD}transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n"),
        ),
        (
            "a space before the colon",
            format!("{HEAD}content-length : 0\r\n\r\n"),
        ),
        ("no version", "POST /v1/traces\r\n\r\n".to_owned()),
        (
            "a version that is none",
            "POST /v1/traces HTTQ/1.1\r\nhost: x\r\n\r\n".to_owned(),
        ),
        (
            "a space in the target",
            "POST /v1/ traces HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
        ),
        ("noise", "\u{1}\u{2}\u{3}\u{4} this is no HTTP\r\n\r\n".to_owned()),
        ("a header without a colon", format!("{HEAD}nonsense\r\n\r\n")),
        (
            "a control character in a value",
            format!("{HEAD}x: a\u{0}b\r\n\r\n"),
        ),
    ] {
        let mut raw = RawHttp::connect(gateway.http()).await;
        assert!(raw.write(&head).await);
        let reply = raw
            .reply()
            .await
            .unwrap_or_else(|| panic!("{what}: closed without an answer"));
        assert!(
            (400..500).contains(&reply.status) || reply.status == 501,
            "{what}: {reply:?}"
        );
        raw.closed().await;
    }
    assert!(sink.taken().is_empty());
    gateway.stop().await;
}

/// Scenario: a `Host` with white space, a path, user information or a port that is none in it (RFC 9112, 3.2);
/// transfer codings that nobody here reads, and `chunked` twice (6.1), with bodies that would be requests if
/// they were read as `chunked` alone.
/// Guarantees: 400 and 501, each a Status in the request's encoding, and the end of the connection; nothing is taken.
#[tokio::test(flavor = "multi_thread")]
async fn heads_that_two_servers_read_differently() {
    let (sink, gateway) = pair().await;
    let body = chunked(&sample(Kind::Traces, 1), 1 << 20, "");
    let plain = "transfer-encoding: chunked\r\n";
    for (status, code, host, coding) in [
        (400, 3, "a b", plain),
        (400, 3, "a/b", plain),
        (400, 3, "user@a", plain),
        (400, 3, "a:http", plain),
        (400, 3, "a, b", plain),
        (501, 12, "a", "transfer-encoding: gzip, chunked\r\n"),
        (501, 12, "a", "transfer-encoding: chunked, chunked\r\n"),
        (
            501,
            12,
            "a",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        ),
        (
            501,
            12,
            "a",
            "transfer-encoding: x\r\ntransfer-encoding: chunked\r\n",
        ),
    ] {
        let head = HEAD.replace("host: sluice", &format!("host: {host}"));
        let mut raw = RawHttp::connect(gateway.http()).await;
        assert!(
            raw.write([format!("{head}{coding}\r\n").as_bytes(), &body, b"\r\n"].concat())
                .await
        );
        let reply = raw.reply().await.unwrap();
        assert_eq!(reply.status, status, "{host} {coding}: {reply:?}");
        assert_eq!(reply.header("content-type"), Some("application/x-protobuf"));
        assert_eq!(
            reply.header("connection"),
            Some("close"),
            "{host} {coding}: {reply:?}"
        );
        assert_eq!(reply.body[..2], [0x08, code], "{host} {coding}: {reply:?}");
        assert!(raw.closed().await.is_empty());
    }
    assert!(sink.taken().is_empty());
    gateway.stop().await;
}

/// Scenario: both a length and chunked coding; a bad chunk size; a body that ends before its length; a
/// chunked body that ends without the last chunk.
/// Guarantees: the body is never taken for a whole one.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_without_an_end() {
    let (sink, gateway) = pair().await;
    let body = sample(Kind::Traces, 1);
    let mut size = format!("{:x}\r\n", body.len()).into_bytes();
    size.extend(&body);
    for (what, head, body) in [
        (
            "a length that is too long",
            format!("content-length: {}", body.len() + 1),
            body.clone(),
        ),
        (
            "no last chunk",
            "transfer-encoding: chunked".to_owned(),
            [&size[..], b"\r\n"].concat(),
        ),
        (
            "no end of the chunk",
            "transfer-encoding: chunked".to_owned(),
            size.clone(),
        ),
        (
            "a chunk size that is no number",
            "transfer-encoding: chunked".to_owned(),
            b"zz\r\n".to_vec(),
        ),
        (
            "a chunk size of 20 digits",
            "transfer-encoding: chunked".to_owned(),
            b"fffffffffffffffffffff\r\n".to_vec(),
        ),
    ] {
        let mut raw = RawHttp::connect(gateway.http()).await;
        assert!(
            raw.write([format!("{HEAD}{head}\r\n\r\n").as_bytes(), &body].concat())
                .await
        );
        raw.finish_writing().await;
        if let Some(reply) = raw.reply().await {
            assert_eq!(reply.status, 400, "{what}: {reply:?}");
        }
    }
    let mut raw = RawHttp::connect(gateway.http()).await;
    let both = format!("{HEAD}content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n");
    assert!(raw.write(both).await);
    // RFC 9112, 6.3: refuse, or serve as chunked and close.
    let status = raw.reply().await.unwrap().status;
    assert!(status == 400 || status == 200, "{status}");
    assert!(sink.taken().is_empty());
    gateway.stop().await;
}

/// Scenario: a request target in absolute form, one with percent-encoded letters, a `Host` with an address, header names in any case, values with white space around
/// them, an `Upgrade: h2c` nobody has to follow, empty lines before the request.
/// Guarantees: served as usual.
#[tokio::test(flavor = "multi_thread")]
async fn unusual_but_right() {
    let (_sink, gateway) = pair().await;
    let media = "CONTENT-TYPE:application/x-protobuf  \r\nContent-Length:   0\r\n";
    for head in [
        format!("POST http://sluice/v1/traces HTTP/1.1\r\nHost: sluice\r\n{media}\r\n"),
        format!("POST /v1/traces HTTP/1.1\r\nhOST:sluice\r\n{media}\r\n"),
        format!("POST /v1/traces HTTP/1.1\r\nHost:\r\n{media}\r\n"),
        format!("POST /v1/traces HTTP/1.1\r\nHost: [::1]:4318\r\n{media}\r\n"),
        format!("POST /v1/%74race%73 HTTP/1.1\r\nHost: sluice\r\n{media}\r\n"),
        format!("\r\n\r\nPOST /v1/traces HTTP/1.1\r\nHost: sluice\r\n{media}\r\n"),
        format!(
            "POST /v1/traces HTTP/1.1\r\nHost: sluice\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
             HTTP2-Settings: AAMAAABkAAQAAP__\r\n{media}\r\n"
        ),
    ] {
        let mut raw = RawHttp::connect(gateway.http()).await;
        assert!(raw.write(&head).await);
        assert_eq!(raw.reply().await.unwrap().status, 200, "{head}");
    }
    gateway.stop().await;
}

/// Scenario: a refused request whose body of 4 MiB is still on its way; a head of 1 MiB.
/// Guarantees: the client reads the answer and not a reset; the head is 431.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_read_by_clients_that_are_still_sending() {
    let sink = Sink::start().await;
    let gateway = Gateway::start(&Config::to(&sink).http("max_request_body_size: 65536")).await;
    let body = vec![0; 4 << 20];
    for head in [
        format!("{HEAD}content-length: {}\r\n\r\n", body.len()),
        HEAD.replace("traces", "nothing") + &format!("content-length: {}\r\n\r\n", body.len()),
    ] {
        let mut raw = RawHttp::connect(gateway.http()).await;
        assert!(raw.write(&head).await);
        // The server may stop reading after its answer; what counts is that the answer is there.
        raw.write(&body).await;
        let status = raw.reply().await.expect("an answer").status;
        assert!(status == 413 || status == 404, "{status}");
    }
    let mut raw = RawHttp::connect(gateway.http()).await;
    raw.write(format!("{HEAD}x: {}\r\n\r\n", "x".repeat(1 << 20)))
        .await;
    assert_eq!(raw.reply().await.expect("an answer").status, 431);
    gateway.stop().await;
}
