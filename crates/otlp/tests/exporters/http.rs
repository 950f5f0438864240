//! OTLP over HTTP.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use sluice_client::{Auth, Compression, EgressPool, Protocol, inflate};
use sluice_otlp::exporter::{BodyEncoding, HttpExporter, HttpExporterOptions, MAX_REQUEST_BYTES};

use super::support::h1::{Reply, Server, Step};
use super::support::h2;
use super::*;

fn options(url: &str) -> HttpExporterOptions {
    HttpExporterOptions {
        endpoint: Some(url.into()),
        compression: Compression::None,
        ..Default::default()
    }
}

fn ok() -> Step {
    Step::Answer(Reply::status(200).body("application/x-protobuf", ""))
}

/// The verdict on one answer.
async fn verdict_on(step: Step) -> Verdict {
    let server = Server::start([], step).await;
    let exporter = HttpExporter::new(options(&server.url())).unwrap();
    export(&exporter, &traces(3).0).await
}

/// Scenario: each signal to a base endpoint with a path.
/// Guarantees: POST to the signal's path, as protobuf, with our User-Agent (C8), and the bytes of the
/// parts laid end to end.
#[tokio::test]
async fn c8_every_signal_has_its_path_and_says_who_sends() {
    let mut server = Server::start([], ok()).await;
    let exporter = HttpExporter::new(options(&format!("{}/otlp/", server.url()))).unwrap();
    for (signal, path) in [
        (Signal::Metrics, "/otlp/v1/metrics"),
        (Signal::Logs, "/otlp/v1/logs"),
        (Signal::Traces, "/otlp/v1/traces"),
        (Signal::Profiles, "/otlp/v1development/profiles"),
    ] {
        let batch = Batch {
            signal,
            parts: vec![part(b"one".to_vec(), 1), part(b"two".to_vec(), 1)],
        };
        assert_eq!(export(&exporter, &batch).await, delivered());
        let seen = server.seen.recv().await.unwrap();
        assert_eq!(seen.path, path);
        assert_eq!(seen.header("content-type"), Some("application/x-protobuf"));
        assert_eq!(seen.header("content-encoding"), None);
        let agent = seen.header("user-agent").unwrap();
        assert!(
            agent.starts_with("sluice/") && agent.len() > "sluice/".len(),
            "{agent}"
        );
        assert_eq!(seen.body, b"onetwo");
    }
}

/// Scenario: a batch of several parts, in every compression, over HTTP/1.1 and over h2.
/// Guarantees: what arrives inflates to the tree that was sent.
#[tokio::test]
async fn every_compression_arrives_as_the_same_tree() {
    let (batch, tree) = traces(50);
    for compression in [
        Compression::None,
        Compression::Gzip,
        Compression::Zstd,
        Compression::Deflate,
        Compression::Snappy,
        Compression::SnappyFramed,
        Compression::Lz4,
    ] {
        let mut server = Server::start([], ok()).await;
        let reply = h2::Reply {
            status: 200,
            ..Default::default()
        };
        let mut h2_server = h2::Server::start([], h2::Step::Answer(reply)).await;
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let url = if protocol == Protocol::Http1 {
                server.url()
            } else {
                h2_server.url()
            };
            let exporter = HttpExporter::new(HttpExporterOptions {
                compression,
                protocol,
                ..options(&url)
            })
            .unwrap();
            assert_eq!(export(&exporter, &batch).await, delivered());
            let seen = match protocol {
                Protocol::Http1 => server.seen.recv().await.unwrap(),
                Protocol::Http2 => h2_server.seen.recv().await.unwrap(),
            };
            assert_eq!(seen.header("content-encoding"), compression.content_encoding());
            let body = inflate(compression, &seen.body, 1 << 24).unwrap();
            assert_eq!(
                ExportTraceServiceRequest::decode(body).unwrap(),
                tree,
                "{compression:?}, {protocol:?}"
            );
        }
    }
}

/// Scenario: the JSON encoding.
/// Guarantees: the content type says so, and the JSON reads back as the same tree.
#[tokio::test]
async fn json_is_the_same_tree() {
    let mut server = Server::start(
        [],
        Step::Answer(Reply::status(200).body("application/json", "{}")),
    )
    .await;
    let options = HttpExporterOptions {
        encoding: BodyEncoding::Json,
        ..options(&server.url())
    };
    let exporter = HttpExporter::new(options).unwrap();
    let (batch, tree) = traces(3);
    assert_eq!(export(&exporter, &batch).await, delivered());
    let seen = server.seen.recv().await.unwrap();
    assert_eq!(seen.header("content-type"), Some("application/json"));
    assert_eq!(
        serde_json::from_slice::<ExportTraceServiceRequest>(&seen.body).unwrap(),
        tree
    );
}

/// Scenario: 429, 502, 503 and 504 with Retry-After in seconds, as a date, and without.
/// Guarantees: retried, after the time the destination asked for.
#[tokio::test]
async fn c2_c3_retryable_statuses_and_retry_after() {
    for status in [429, 502, 503, 504] {
        let plain = verdict_on(Step::Answer(Reply::status(status).body("text/plain", "busy"))).await;
        assert!(
            matches!(plain, Verdict::Retry { after: None, .. }),
            "{status}: {plain:?}"
        );
        assert!(reason(&plain).contains("busy"), "{plain:?}");
        let seconds = verdict_on(Step::Answer(Reply::status(status).header("retry-after", "17"))).await;
        assert!(
            matches!(seconds, Verdict::Retry { after: Some(after), .. } if after == Duration::from_secs(17)),
            "{status}: {seconds:?}"
        );
    }
    let date = httpdate::fmt_http_date(std::time::SystemTime::now() + Duration::from_secs(100));
    let dated = verdict_on(Step::Answer(Reply::status(503).header("retry-after", date))).await;
    let Verdict::Retry {
        after: Some(after), ..
    } = dated
    else {
        panic!("{dated:?}")
    };
    assert!((90..=100).contains(&after.as_secs()), "{after:?}");
}

/// Scenario: the connection is refused, cut within the request, before and within the answer; the answer stalls.
/// Guarantees: each is retried, and a stall ends at the time-out.
#[tokio::test(start_paused = true)]
async fn c2_disconnects_and_timeouts_are_retried() {
    for step in [
        Step::CutInRequest,
        Step::CutBeforeAnswer,
        Step::CutInAnswer,
        Step::Stall,
    ] {
        let before = tokio::time::Instant::now();
        let verdict = verdict_on(step.clone()).await;
        assert!(
            matches!(verdict, Verdict::Retry { after: None, .. }),
            "{step:?}: {verdict:?}"
        );
        assert!(before.elapsed() <= Duration::from_secs(31), "{step:?}");
    }
    let address = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let exporter = HttpExporter::new(options(&format!("http://{address}"))).unwrap();
    let verdict = export(&exporter, &traces(1).0).await;
    assert!(matches!(verdict, Verdict::Retry { .. }), "{verdict:?}");
}

/// Scenario: answers other than a success whose body breaks off, or stops coming.
/// Guarantees: the head decides: 400 is not retried, 413 is halved, and the time of `Retry-After` is kept; a body
/// that stops coming does not hold the request until its time-out.
#[tokio::test(start_paused = true)]
async fn c2_the_head_of_a_refusal_is_enough() {
    for how in [Step::CutBody, Step::StallBody] {
        let answer = |status| Reply::status(status).body("text/plain", "sorry, span 7 is too long");
        let before = tokio::time::Instant::now();
        let verdict = verdict_on(how(answer(400))).await;
        assert!(matches!(verdict, Verdict::PayloadFault { .. }), "{verdict:?}");
        assert!(reason(&verdict).contains("sorry"), "{verdict:?}");
        let verdict = verdict_on(how(answer(413))).await;
        assert!(matches!(verdict, Verdict::TooLarge { .. }), "{verdict:?}");
        let verdict = verdict_on(how(answer(503).header("retry-after", "7"))).await;
        assert!(
            matches!(verdict, Verdict::Retry { after: Some(after), .. } if after == Duration::from_secs(7)),
            "{verdict:?}"
        );
        assert!(
            before.elapsed() < Duration::from_secs(10),
            "{:?}",
            before.elapsed()
        );
        let verdict = verdict_on(how(answer(200))).await;
        assert!(
            matches!(verdict, Verdict::Retry { after: None, .. }),
            "{verdict:?}"
        );
    }
}

/// Scenario: statuses that must not be retried, with bodies as a Status in protobuf and JSON, as text, as a page.
/// Guarantees: payload faults, sizes and endpoint faults are told apart; the destination's words are in
/// the reason, cut.
#[tokio::test]
async fn c2_other_statuses_are_not_retried() {
    let protobuf = answers::status(3, "span 7: trace id is all zeros", None);
    for (status, content_type, body) in [
        (400, "application/x-protobuf", protobuf),
        (
            422,
            "application/json; charset=utf-8",
            br#"{"code":3,"message":"span 7: trace id"}"#.to_vec(),
        ),
        (500, "text/plain", b"span 7\n".to_vec()),
        (
            400,
            "text/html",
            format!("span 7 {}", "<b>".repeat(100_000)).into_bytes(),
        ),
    ] {
        let verdict = verdict_on(Step::Answer(Reply::status(status).body(content_type, body))).await;
        assert!(
            matches!(verdict, Verdict::PayloadFault { .. }),
            "{status}: {verdict:?}"
        );
        let reason = reason(&verdict);
        assert!(
            reason.contains("span 7") && reason.contains(&status.to_string()) && reason.len() < 500,
            "{reason}"
        );
    }
    let verdict = verdict_on(Step::Answer(Reply::status(413))).await;
    assert!(matches!(verdict, Verdict::TooLarge { .. }), "{verdict:?}");
    let verdict = verdict_on(Step::AnswerEarly(Reply::status(413))).await;
    assert!(matches!(verdict, Verdict::TooLarge { .. }), "{verdict:?}");
    for status in [401, 403, 404, 405, 407] {
        let verdict = verdict_on(Step::Answer(Reply::status(status))).await;
        assert!(
            matches!(verdict, Verdict::EndpointFault { .. }),
            "{status}: {verdict:?}"
        );
    }
}

/// Scenario: a redirect.
/// Guarantees: not followed; the fault says where to.
#[tokio::test]
async fn redirects_are_not_followed() {
    let server = Server::start(
        [],
        Step::Answer(Reply::status(307).header("location", "http://elsewhere/")),
    )
    .await;
    let exporter = HttpExporter::new(options(&server.url())).unwrap();
    let verdict = export(&exporter, &traces(1).0).await;
    assert!(
        matches!(verdict, Verdict::EndpointFault { .. }) && reason(&verdict).contains("http://elsewhere/")
    );
    assert_eq!(server.connections(), 1);
}

/// Scenario: partial success in protobuf and in JSON; a warning; 200 with a body nobody can read; 202 with none.
/// Guarantees: always delivered, never retried (C4); rejected items and message are told.
#[tokio::test]
async fn c4_partial_success_is_delivered() {
    let partial = |rejected_spans, error_message: &str| {
        let partial_success = Some(ExportTracePartialSuccess {
            rejected_spans,
            error_message: error_message.into(),
        });
        ExportTraceServiceResponse { partial_success }.encode_to_vec()
    };
    let json = br#"{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old"}}"#.to_vec();
    for (content_type, body, rejected, message) in [
        (
            "application/x-protobuf",
            partial(2, "too old"),
            2,
            Some("too old"),
        ),
        ("application/json", json, 2, Some("too old")),
        (
            "application/x-protobuf",
            partial(0, "deprecated"),
            0,
            Some("deprecated"),
        ),
        ("application/x-protobuf", partial(0, ""), 0, None),
        // More than the batch holds.
        ("application/x-protobuf", partial(99, ""), 3, None),
    ] {
        let verdict = verdict_on(Step::Answer(Reply::status(200).body(content_type, body))).await;
        let message = message.map(str::to_owned);
        assert_eq!(
            verdict,
            Verdict::Delivered { rejected, message },
            "{content_type}"
        );
    }
    let verdict = verdict_on(Step::Answer(
        Reply::status(200).body("application/x-protobuf", "\x0a\x7f"),
    ))
    .await;
    assert!(
        matches!(
            &verdict,
            Verdict::Delivered {
                rejected: 0,
                message: Some(_)
            }
        ),
        "{verdict:?}"
    );
    assert_eq!(verdict_on(Step::Answer(Reply::status(202))).await, delivered());
}

/// Scenario: a 200 whose body is longer than 4 MiB; a batch above 64 MiB.
/// Guarantees: delivered with a warning, the rest unread; the batch is never sent (C5).
#[tokio::test]
async fn c5_sizes_are_bounded() {
    let long = Reply::status(200).body("application/x-protobuf", vec![0x0a; (4 << 20) + 1]);
    let verdict = verdict_on(Step::Answer(long)).await;
    assert!(
        matches!(
            &verdict,
            Verdict::Delivered {
                rejected: 0,
                message: Some(_)
            }
        ),
        "{verdict:?}"
    );

    let mut server = Server::start([], ok()).await;
    let exporter = HttpExporter::new(HttpExporterOptions {
        max_request_bytes: usize::MAX,
        ..options(&server.url())
    })
    .unwrap();
    assert_eq!(exporter.max_request_bytes(), MAX_REQUEST_BYTES);
    let verdict = export(&exporter, &logs(MAX_REQUEST_BYTES)).await;
    assert!(matches!(verdict, Verdict::TooLarge { .. }), "{verdict:?}");
    assert!(server.seen.try_recv().is_err());
    let default = HttpExporter::new(options(&server.url()))
        .unwrap()
        .max_request_bytes();
    assert!(default < 20 << 20);
}

/// Scenario: sixteen batches at once to a server that answers none until all have come.
/// Guarantees: requests are concurrent (C6).
#[tokio::test(start_paused = true)]
async fn c6_requests_are_concurrent() {
    let mut server = Server::start([], Step::Stall).await;
    let exporter = std::sync::Arc::new(HttpExporter::new(options(&server.url())).unwrap());
    for _ in 0..16 {
        let exporter = exporter.clone();
        tokio::spawn(async move { export(&*exporter, &traces(1).0).await });
    }
    for _ in 0..16 {
        server.seen.recv().await.unwrap();
    }
}

/// Scenario: a pool for compressed bodies that one body fills, and two destinations that answer nothing.
/// Guarantees: what is sent is charged until it is answered for; each destination has one body more than the pool
/// holds, and no more than that.
#[tokio::test(start_paused = true)]
async fn bodies_wait_for_the_egress_pool_but_destinations_not_for_each_other() {
    let (batch, _) = traces(1);
    for (encoding, compression) in [
        (BodyEncoding::Protobuf, Compression::Gzip),
        (BodyEncoding::Json, Compression::None),
        (BodyEncoding::Json, Compression::Zstd),
    ] {
        let pool = EgressPool::new(1 << 10);
        let mut servers = [
            Server::start([], Step::Stall).await,
            Server::start([], Step::Stall).await,
        ];
        let mut under_way = tokio::task::JoinSet::new();
        for server in &servers {
            let exporter = std::sync::Arc::new(
                HttpExporter::new(HttpExporterOptions {
                    encoding,
                    compression,
                    egress: pool.clone(),
                    ..options(&server.url())
                })
                .unwrap(),
            );
            for _ in 0..4 {
                let (exporter, batch) = (exporter.clone(), batch.clone());
                under_way.spawn(async move { export(&*exporter, &batch).await });
            }
        }
        let mut seen = 0;
        for server in &mut servers {
            server.seen.recv().await.unwrap();
            seen += 1;
            while let Ok(Some(_)) = tokio::time::timeout(Duration::from_secs(1), server.seen.recv()).await {
                seen += 1;
            }
        }
        let in_pool = usize::from(pool.used() > 0);
        assert_eq!(seen, servers.len() + in_pool, "{encoding:?} {compression:?}");
        under_way.shutdown().await;
        assert_eq!(pool.used(), 0);
    }
}

/// Scenario: a batch whose parts are empty.
/// Guarantees: nothing is sent (C9).
#[tokio::test]
async fn c9_no_empty_envelope_is_sent() {
    let server = Server::start([], ok()).await;
    let exporter = HttpExporter::new(options(&server.url())).unwrap();
    let batch = Batch {
        signal: Signal::Metrics,
        parts: vec![part(Vec::new(), 0)],
    };
    assert_eq!(export(&exporter, &batch).await, delivered());
    assert_eq!(server.connections(), 0);
}

/// Scenario: configured headers, basic credentials, a Host of its own.
/// Guarantees: they arrive, in place of ours where they are ours.
#[tokio::test]
async fn headers_and_credentials_arrive() {
    let mut server = Server::start([], ok()).await;
    let exporter = HttpExporter::new(HttpExporterOptions {
        headers: vec![
            ("X-Scope-OrgID".into(), "a".into()),
            ("Host".into(), "backend.example".into()),
        ],
        auth: Auth::Basic {
            username: "Aladdin".into(),
            password: "open sesame".into(),
        },
        ..options(&server.url())
    })
    .unwrap();
    assert_eq!(export(&exporter, &traces(1).0).await, delivered());
    let seen = server.seen.recv().await.unwrap();
    assert_eq!(seen.header("x-scope-orgid"), Some("a"));
    assert_eq!(seen.header("host"), Some("backend.example"));
    assert_eq!(
        seen.header("authorization"),
        Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")
    );
}

/// Scenario: a destination that does not read zstd and says so with 415 and Accept-Encoding.
/// Guarantees: the next attempt is gzip, then delivered.
#[tokio::test]
async fn an_unread_compression_falls_back() {
    let refused = Step::Answer(Reply::status(415).header("accept-encoding", "gzip, identity"));
    let mut server = Server::start([refused], ok()).await;
    let exporter = HttpExporter::new(HttpExporterOptions {
        compression: Compression::Zstd,
        ..options(&server.url())
    })
    .unwrap();
    let (batch, _) = traces(2);
    let first = export(&exporter, &batch).await;
    assert!(
        matches!(
            first,
            Verdict::Retry {
                after: Some(Duration::ZERO),
                ..
            }
        ),
        "{first:?}"
    );
    assert_eq!(export(&exporter, &batch).await, delivered());
    server.seen.recv().await.unwrap();
    assert_eq!(
        server.seen.recv().await.unwrap().header("content-encoding"),
        Some("gzip")
    );
}

/// Scenario: a signal without an endpoint.
/// Guarantees: an endpoint fault that names the signal; nothing is lost and nothing is sent.
#[tokio::test]
async fn a_signal_without_endpoint_is_held() {
    let server = Server::start([], ok()).await;
    let exporter = HttpExporter::new(HttpExporterOptions {
        endpoint: None,
        traces_endpoint: Some(format!("{}/custom", server.url())),
        ..Default::default()
    })
    .unwrap();
    let verdict = export(&exporter, &logs(10)).await;
    assert!(matches!(verdict, Verdict::EndpointFault { .. }) && reason(&verdict).contains("logs"));
    assert_eq!(export(&exporter, &traces(1).0).await, delivered());
}
