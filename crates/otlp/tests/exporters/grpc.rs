//! OTLP over gRPC.

use std::time::Duration;

use ::h2::Reason;
use ::http::{HeaderMap, HeaderName, HeaderValue};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use sluice_client::{Auth, ClientTls, Compression, Pem, compress, inflate};
use sluice_otlp::exporter::{GrpcExporter, GrpcExporterOptions, MAX_REQUEST_BYTES};

use super::support::h2::{Order, Reply, Server, Step};
use super::support::tls::Authority;
use super::*;

fn map(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_str(value).unwrap(),
            )
        })
        .collect()
}

fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let mut out = vec![flag];
    out.extend_from_slice(&(message.len() as u32).to_be_bytes());
    out.extend_from_slice(message);
    out
}

const GRPC: (&str, &str) = ("content-type", "application/grpc");

/// OK, with this message.
fn answer(message: &[u8]) -> Reply {
    Reply {
        status: 200,
        headers: map(&[GRPC]),
        body: framed(0, message),
        trailers: Some(map(&[("grpc-status", "0")])),
    }
}

fn ok() -> Step {
    Step::Answer(answer(b""))
}

/// A status in the headers, without message or trailers.
fn trailers_only(pairs: &[(&'static str, &str)]) -> Step {
    let mut headers = map(pairs);
    headers.extend(map(&[GRPC]));
    Step::Answer(Reply {
        status: 200,
        headers,
        ..Default::default()
    })
}

fn options(url: &str) -> GrpcExporterOptions {
    GrpcExporterOptions {
        endpoint: url.into(),
        compression: Compression::None,
        ..Default::default()
    }
}

async fn verdict_on(step: Step) -> Verdict {
    let server = Server::start([], step).await;
    let exporter = GrpcExporter::new(options(&server.url())).unwrap();
    export(&exporter, &traces(3).0).await
}

/// Scenario: each signal.
/// Guarantees: the service's path, the headers the gRPC document asks for, our User-Agent (C8), one message.
#[tokio::test]
async fn c8_every_signal_has_its_service_and_says_who_sends() {
    let mut server = Server::start([], ok()).await;
    let exporter = GrpcExporter::new(options(&server.url())).unwrap();
    for (signal, path) in [
        (
            Signal::Metrics,
            "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        ),
        (
            Signal::Logs,
            "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
        ),
        (
            Signal::Traces,
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        ),
        (
            Signal::Profiles,
            "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export",
        ),
    ] {
        let batch = Batch {
            signal,
            parts: vec![part(b"one".to_vec(), 1), part(b"two".to_vec(), 1)],
        };
        assert_eq!(export(&exporter, &batch).await, delivered());
        let seen = server.seen.recv().await.unwrap();
        assert_eq!(seen.path, path);
        assert_eq!(seen.header("content-type"), Some("application/grpc"));
        assert_eq!(seen.header("te"), Some("trailers"));
        assert_eq!(seen.header("grpc-timeout"), Some("10000m"));
        assert_eq!(seen.header("grpc-encoding"), None);
        assert!(seen.header("user-agent").unwrap().starts_with("sluice/"));
        assert_eq!(seen.body, framed(0, b"onetwo"));
    }
    assert_eq!(server.connections(), 1);
}

/// Scenario: a batch of several parts, in every compression gRPC has a name for.
/// Guarantees: what arrives inflates to the tree that was sent; snappy is the framing format, as in Go.
#[tokio::test]
async fn every_compression_arrives_as_the_same_tree() {
    let (batch, tree) = traces(50);
    for (compression, name, wire) in [
        (Compression::Gzip, "gzip", Compression::Gzip),
        (Compression::Zstd, "zstd", Compression::Zstd),
        (Compression::Snappy, "snappy", Compression::SnappyFramed),
    ] {
        let mut server = Server::start([], ok()).await;
        let exporter = GrpcExporter::new(GrpcExporterOptions {
            compression,
            ..options(&server.url())
        })
        .unwrap();
        assert_eq!(export(&exporter, &batch).await, delivered());
        let seen = server.seen.recv().await.unwrap();
        assert_eq!(seen.header("grpc-encoding"), Some(name));
        let (prefix, message) = seen.body.split_at(5);
        assert_eq!(prefix[0], 1);
        assert_eq!(
            u32::from_be_bytes(prefix[1..].try_into().unwrap()) as usize,
            message.len()
        );
        let body = inflate(wire, message, 1 << 24).unwrap();
        assert_eq!(ExportTraceServiceRequest::decode(body).unwrap(), tree, "{name}");
    }
    let lz4 = GrpcExporterOptions {
        compression: Compression::Lz4,
        ..options("http://a")
    };
    assert!(GrpcExporter::new(lz4).is_err());
}

/// Scenario: every gRPC code, in trailers and as trailers only, with a percent-encoded message.
/// Guarantees: exactly C1's codes are retried; the message is decoded into the reason.
#[tokio::test]
async fn c1_codes() {
    for code in 1..=17 {
        let code_text = code.to_string();
        let pairs = [
            ("grpc-status", code_text.as_str()),
            ("grpc-message", "n%C3%B6 way%0Ahere"),
        ];
        let in_trailers = Reply {
            status: 200,
            headers: map(&[GRPC]),
            trailers: Some(map(&pairs)),
            ..Default::default()
        };
        for step in [trailers_only(&pairs), Step::Answer(in_trailers)] {
            let verdict = verdict_on(step).await;
            let expected = match code {
                1 | 4 | 10 | 11 | 14 | 15 => matches!(verdict, Verdict::Retry { after: None, .. }),
                8 => matches!(verdict, Verdict::Exhausted { .. }),
                7 | 12 | 16 => matches!(verdict, Verdict::EndpointFault { .. }),
                _ => matches!(verdict, Verdict::PayloadFault { .. }),
            };
            assert!(expected, "{code}: {verdict:?}");
            assert!(reason(&verdict).contains("nö way here"), "{verdict:?}");
        }
    }
}

/// Scenario: UNAVAILABLE and RESOURCE_EXHAUSTED with a RetryInfo, base64 with and without padding; with
/// otel-arrow's pushback; INVALID_ARGUMENT with a RetryInfo.
/// Guarantees: the delay is obeyed where the code is retryable (C1, C3), and only there.
#[tokio::test]
async fn c1_c3_retry_info() {
    let delay = Duration::from_millis(2500);
    for message in ["a", "ab", "abc"] {
        for code in [8, 14] {
            let details = answers::status(code, message, Some(delay));
            for encoded in [STANDARD.encode(&details), STANDARD_NO_PAD.encode(&details)] {
                let code = code.to_string();
                let verdict = verdict_on(trailers_only(&[
                    ("grpc-status", code.as_str()),
                    ("grpc-status-details-bin", encoded.as_str()),
                ]))
                .await;
                assert!(
                    matches!(verdict, Verdict::Retry { after: Some(after), .. } if after == delay),
                    "{code}: {verdict:?}"
                );
                // There was no grpc-message: the details have the words.
                assert!(reason(&verdict).ends_with(message), "{verdict:?}");
            }
        }
    }
    let pushback = verdict_on(trailers_only(&[
        ("grpc-status", "8"),
        ("grpc-retry-pushback-ms", "700"),
    ]))
    .await;
    assert!(matches!(pushback, Verdict::Retry { after: Some(after), .. } if after.as_millis() == 700));
    let invalid = STANDARD.encode(answers::status(3, "bad", Some(delay)));
    let invalid = verdict_on(trailers_only(&[
        ("grpc-status", "3"),
        ("grpc-status-details-bin", &invalid),
    ]))
    .await;
    assert!(matches!(invalid, Verdict::PayloadFault { .. }), "{invalid:?}");
}

/// Scenario: a receiver whose message limit is below the batch, in grpc-go's words; a proxy with such a limit.
/// Guarantees: a size, to be halved; never "do not retry" and never a hold.
#[tokio::test]
async fn c1_message_too_large() {
    let words = "grpc: received message larger than max (4194400 vs. 4194304)";
    let verdict = verdict_on(trailers_only(&[("grpc-status", "8"), ("grpc-message", words)])).await;
    assert!(matches!(verdict, Verdict::TooLarge { .. }), "{verdict:?}");
    let proxy = Reply {
        status: 413,
        headers: map(&[("content-type", "text/html")]),
        body: b"<html>Request Entity Too Large".to_vec(),
        trailers: None,
    };
    let verdict = verdict_on(Step::Answer(proxy)).await;
    assert!(matches!(verdict, Verdict::TooLarge { .. }), "{verdict:?}");
}

/// Scenario: proxies that answer in plain HTTP; a server that is not gRPC; an answer that ends without a status.
/// Guarantees: gRPC's table; not-gRPC is the endpoint's fault; no status is retried.
#[tokio::test]
async fn c1_answers_without_grpc_status() {
    for status in [429, 502, 503, 504] {
        let reply = Reply {
            status,
            headers: map(&[("retry-after", "9")]),
            body: b"busy".to_vec(),
            trailers: None,
        };
        let verdict = verdict_on(Step::Answer(reply)).await;
        assert!(
            matches!(verdict, Verdict::Retry { after: Some(after), .. } if after.as_secs() == 9),
            "{status}: {verdict:?}"
        );
    }
    for status in [401, 403, 404] {
        let verdict = verdict_on(Step::Answer(Reply {
            status,
            ..Default::default()
        }))
        .await;
        assert!(
            matches!(verdict, Verdict::EndpointFault { .. }),
            "{status}: {verdict:?}"
        );
    }
    let page = Reply {
        status: 200,
        headers: map(&[("content-type", "text/html")]),
        body: b"hi".to_vec(),
        trailers: None,
    };
    let verdict = verdict_on(Step::Answer(page)).await;
    assert!(matches!(verdict, Verdict::EndpointFault { .. }), "{verdict:?}");
    let statusless = Reply {
        trailers: None,
        ..answer(b"")
    };
    let verdict = verdict_on(Step::Answer(statusless)).await;
    assert!(matches!(verdict, Verdict::Retry { .. }), "{verdict:?}");
}

/// Scenario: the connection is cut, the stream reset before and within the answer, the answer stalls, nobody listens.
/// Guarantees: each is retried, and a stall ends at the time-out.
#[tokio::test(start_paused = true)]
async fn c1_disconnects_and_timeouts_are_retried() {
    for step in [
        Step::CutConnection,
        Step::Reset(Reason::INTERNAL_ERROR),
        Step::Reset(Reason::REFUSED_STREAM),
        Step::Reset(Reason::ENHANCE_YOUR_CALM),
        Step::CutInAnswer(answer(b"")),
        Step::Stall,
    ] {
        let before = tokio::time::Instant::now();
        let verdict = verdict_on(step.clone()).await;
        assert!(
            matches!(verdict, Verdict::Retry { after: None, .. }),
            "{step:?}: {verdict:?}"
        );
        assert!(before.elapsed() <= Duration::from_secs(11), "{step:?}");
    }
    let address = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let exporter = GrpcExporter::new(options(&format!("http://{address}"))).unwrap();
    assert!(matches!(
        export(&exporter, &traces(1).0).await,
        Verdict::Retry { .. }
    ));
}

/// Scenario: the server restarts gracefully, again and again, under requests.
/// Guarantees: no request fails: GOAWAY drains and replaces.
#[tokio::test]
async fn goaway_is_not_seen() {
    let mut server = Server::start([], ok()).await;
    let exporter = std::sync::Arc::new(GrpcExporter::new(options(&server.url())).unwrap());
    for _ in 0..10 {
        let exports: Vec<_> = (0..4)
            .map(|_| {
                let exporter = exporter.clone();
                tokio::spawn(async move { export(&*exporter, &traces(20).0).await })
            })
            .collect();
        server.seen.recv().await.unwrap();
        server.order(Order::GoAway);
        for export in exports {
            assert_eq!(export.await.unwrap(), delivered());
        }
    }
    assert!(server.connections() > 1);
}

/// Scenario: partial success, plain and gzipped; OK with an empty answer, with none, with rubbish.
/// Guarantees: always delivered, never retried (C4); rejected items and message are told.
#[tokio::test]
async fn c4_partial_success_is_delivered() {
    let partial_success = Some(ExportTracePartialSuccess {
        rejected_spans: 2,
        error_message: "too old".into(),
    });
    let message = ExportTraceServiceResponse { partial_success }.encode_to_vec();
    let partial = Verdict::Delivered {
        rejected: 2,
        message: Some("too old".into()),
    };
    assert_eq!(verdict_on(Step::Answer(answer(&message))).await, partial);

    let packed = compress(Compression::Gzip, 1, [&message[..]], message.len()).unwrap();
    let mut gzipped = Reply {
        body: framed(1, &packed),
        ..answer(b"")
    };
    gzipped
        .headers
        .insert("grpc-encoding", HeaderValue::from_static("gzip"));
    assert_eq!(verdict_on(Step::Answer(gzipped)).await, partial);

    assert_eq!(
        verdict_on(trailers_only(&[("grpc-status", "0")])).await,
        delivered()
    );
    for rubbish in [
        Reply {
            body: b"abc".to_vec(),
            ..answer(b"")
        },
        Reply {
            body: framed(0, b"\x0a\x7f"),
            ..answer(b"")
        },
    ] {
        let verdict = verdict_on(Step::Answer(rubbish)).await;
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
    }
}

/// Scenario: an answer longer than 4 MiB; a batch above 64 MiB; the default size of requests.
/// Guarantees: delivered with a warning; never sent (C5); below grpc-go's 4 MiB.
#[tokio::test]
async fn c5_sizes_are_bounded() {
    let verdict = verdict_on(Step::Answer(answer(&vec![0; (4 << 20) + 1]))).await;
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
    let server = Server::start([], ok()).await;
    let exporter = GrpcExporter::new(options(&server.url())).unwrap();
    let verdict = export(&exporter, &logs(MAX_REQUEST_BYTES)).await;
    assert!(matches!(verdict, Verdict::TooLarge { .. }), "{verdict:?}");
    assert_eq!(server.connections(), 0);
    assert!(exporter.max_request_bytes() < 4 << 20);
}

/// Scenario: sixteen batches at once to a server that answers none until all have come.
/// Guarantees: calls are concurrent (C6), over more than one connection.
#[tokio::test(start_paused = true)]
async fn c6_calls_are_concurrent() {
    let mut server = Server::start([], Step::Stall).await;
    let exporter = std::sync::Arc::new(GrpcExporter::new(options(&server.url())).unwrap());
    for _ in 0..16 {
        let exporter = exporter.clone();
        tokio::spawn(async move { export(&*exporter, &traces(1).0).await });
    }
    for _ in 0..16 {
        server.seen.recv().await.unwrap();
    }
    assert!(server.connections() > 1);
}

/// Scenario: a batch whose parts are empty.
/// Guarantees: nothing is sent (C9).
#[tokio::test]
async fn c9_no_empty_envelope_is_sent() {
    let server = Server::start([], ok()).await;
    let exporter = GrpcExporter::new(options(&server.url())).unwrap();
    let batch = Batch {
        signal: Signal::Metrics,
        parts: vec![part(Vec::new(), 0)],
    };
    assert_eq!(export(&exporter, &batch).await, delivered());
    assert_eq!(server.connections(), 0);
}

/// Scenario: a server without zstd, as grpc-go and as tonic say it; one without the service.
/// Guarantees: the next attempt is in what it reads; a missing service stays an endpoint fault.
#[tokio::test]
async fn an_unread_compression_falls_back() {
    let go = [
        ("grpc-status", "12"),
        (
            "grpc-message",
            "grpc: Decompressor is not installed for grpc-encoding \"zstd\"",
        ),
    ];
    let tonic = [
        ("grpc-status", "12"),
        (
            "grpc-message",
            "Content is compressed with `zstd` which isn't supported",
        ),
        ("grpc-accept-encoding", "identity,gzip"),
    ];
    for (refusal, then) in [(&go[..], None), (&tonic[..], Some("gzip"))] {
        let mut server = Server::start([trailers_only(refusal)], ok()).await;
        let options = GrpcExporterOptions {
            compression: Compression::Zstd,
            ..options(&server.url())
        };
        let exporter = GrpcExporter::new(options).unwrap();
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
        assert_eq!(
            server.seen.recv().await.unwrap().header("grpc-encoding"),
            Some("zstd")
        );
        assert_eq!(server.seen.recv().await.unwrap().header("grpc-encoding"), then);
    }
    let missing = [
        ("grpc-status", "12"),
        (
            "grpc-message",
            "unknown service opentelemetry.proto.collector.trace.v1.TraceService",
        ),
    ];
    let server = Server::start([], trailers_only(&missing)).await;
    let options = GrpcExporterOptions {
        compression: Compression::Zstd,
        ..options(&server.url())
    };
    let verdict = export(&GrpcExporter::new(options).unwrap(), &traces(1).0).await;
    assert!(matches!(verdict, Verdict::EndpointFault { .. }), "{verdict:?}");
}

/// Scenario: mutual TLS with a bearer token, on an endpoint written without a scheme.
/// Guarantees: delivered; without the certificate it is an endpoint fault.
#[tokio::test]
async fn mutual_tls_with_a_bearer_token() {
    let authority = Authority::new();
    let acceptor = Authority::acceptor(&authority.identity(&["localhost"]), Some(&authority), &[b"h2"]);
    let mut server = Server::start_tls([], ok(), Some(acceptor)).await;
    let ours = authority.identity(&["client"]);
    let plain = ClientTls {
        ca: Some(Pem::Text(authority.pem())),
        ..Default::default()
    };
    let mutual = ClientTls {
        cert: Some(Pem::Text(ours.cert)),
        key: Some(Pem::Text(ours.key)),
        ..plain.clone()
    };
    let exporter = |tls| {
        GrpcExporter::new(GrpcExporterOptions {
            tls,
            auth: Auth::Bearer {
                scheme: "Bearer".into(),
                token: "abc".into(),
            },
            ..options(&format!("localhost:{}", server.addr.port()))
        })
        .unwrap()
    };
    assert_eq!(export(&exporter(mutual), &traces(1).0).await, delivered());
    let refused = export(&exporter(plain), &traces(1).0).await;
    assert_eq!(
        server.seen.recv().await.unwrap().header("authorization"),
        Some("Bearer abc")
    );
    assert!(matches!(refused, Verdict::EndpointFault { .. }), "{refused:?}");
}
