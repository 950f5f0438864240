//! H1-H7: OTLP/HTTP.

use bytes::Bytes;
use http::{Method, Version};
use sluice_tests::{
    Config, Gateway, HttpConnection, Kind, Sink, deflated, gzipped, post, request, sample, zstd,
};

use crate::{JSON, PROTOBUF, assert_refused, pair};

/// Scenario: each signal to its path, with a query, and as h2 with prior knowledge on the same port.
/// Guarantees: all arrive; each answer is in the version of its request.
#[tokio::test(flavor = "multi_thread")]
async fn h1_every_signal_on_http1_and_h2() {
    let (sink, gateway) = pair().await;
    for (seed, kind) in Kind::ALL.into_iter().enumerate() {
        let bodies = [sample(kind, seed as u64), sample(kind, 10 + seed as u64)];
        let path = format!("{}?x=1", kind.http_path());
        let mut http1 = HttpConnection::http1(gateway.http()).await.unwrap();
        let mut http2 = HttpConnection::http2(gateway.http()).await.unwrap();
        for (connection, body, version) in [
            (&mut http1, &bodies[0], Version::HTTP_11),
            (&mut http2, &bodies[1], Version::HTTP_2),
        ] {
            let request = request(Method::POST, gateway.http(), &path, &[PROTOBUF], body.clone());
            let reply = connection.send(request).await.unwrap();
            assert_eq!((reply.status, reply.version), (200, version), "{reply:?}");
        }
        sink.until("both arrive", |sink| {
            (sink.taken().iter().filter(|arrived| arrived.kind == kind).count() >= 2).then_some(())
        })
        .await;
        if kind != Kind::Profiles {
            sink.wait_for_same(kind, &bodies).await;
        }
    }
    gateway.stop().await;
}

/// Scenario: a receiver with paths of its own.
/// Guarantees: they are served, and the usual ones are not.
#[tokio::test(flavor = "multi_thread")]
async fn h1_paths_are_configurable() {
    let sink = Sink::start().await;
    let config = Config::to(&sink).http("traces_url_path: /in/traces, logs_url_path: /in/logs");
    let gateway = Gateway::start(&config).await;
    let body = sample(Kind::Traces, 1);
    assert_eq!(
        post(gateway.http(), "/in/traces", &[PROTOBUF], body.clone())
            .await
            .status,
        200
    );
    assert_refused(
        &post(gateway.http(), "/v1/traces", &[PROTOBUF], body.clone()).await,
        404,
        5,
        PROTOBUF.1,
    );
    assert_eq!(
        post(
            gateway.http(),
            "/v1/metrics",
            &[PROTOBUF],
            sample(Kind::Metrics, 1)
        )
        .await
        .status,
        200
    );
    sink.wait_for_same(Kind::Traces, &[body]).await;
    gateway.stop().await;
}

/// Scenario: a signal that no pipeline takes.
/// Guarantees: 404, as if the path did not exist; UNIMPLEMENTED on gRPC; never a silent loss.
#[tokio::test(flavor = "multi_thread")]
async fn h1_a_signal_without_a_pipeline() {
    let sink = Sink::start().await;
    let gateway = Gateway::start(&Config::to(&sink).signals(&["traces"])).await;
    for media in [PROTOBUF, JSON] {
        assert_refused(
            &post(gateway.http(), "/v1/logs", &[media], "").await,
            404,
            5,
            media.1,
        );
    }
    let call = sluice_tests::frame(0, &sample(Kind::Logs, 1));
    let reply = sluice_tests::grpc_call(gateway.grpc(), Kind::Logs.grpc_path(), &[], call).await;
    assert_eq!(reply.code(), sluice_tests::code::UNIMPLEMENTED, "{reply:?}");
    gateway.stop().await;
}

/// Scenario: media types in every spelling RFC 9110 allows.
/// Guarantees: they are understood, and the answer's type equals the request's.
#[tokio::test(flavor = "multi_thread")]
async fn h2_media_types() {
    let (sink, gateway) = pair().await;
    let json = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"x"}}]}]}]}"#;
    let protobuf = sample(Kind::Logs, 1);
    let mut items = 0;
    for (content_type, body, answer) in [
        (
            "application/x-protobuf",
            Bytes::from(protobuf.clone()),
            PROTOBUF.1,
        ),
        ("Application/X-Protobuf", protobuf.clone().into(), PROTOBUF.1),
        (
            "application/x-protobuf; charset=utf-8",
            protobuf.clone().into(),
            PROTOBUF.1,
        ),
        (
            "application/x-protobuf;messageType=\"x.y\"",
            protobuf.clone().into(),
            PROTOBUF.1,
        ),
        ("application/json", json.into(), JSON.1),
        ("APPLICATION/JSON", json.into(), JSON.1),
        ("application/json; charset=utf-8", json.into(), JSON.1),
        ("application/json ; charset=\"UTF-8\"", json.into(), JSON.1),
    ] {
        items += if answer == JSON.1 { 1 } else { 50 };
        let reply = post(
            gateway.http(),
            "/v1/logs",
            &[("content-type", content_type)],
            body,
        )
        .await;
        assert_eq!(reply.status, 200, "{content_type}: {reply:?}");
        assert_eq!(reply.header("content-type"), Some(answer), "{content_type}");
    }
    assert_eq!(sink.wait_for(Kind::Logs, items).await.len(), items);
    gateway.stop().await;
}

/// Scenario: bodies that are not what they say: noise as protobuf and as JSON, compressed bodies that are
/// not, are cut short, or are damaged.
/// Guarantees: 400 with a Status in the request's encoding that says what is wrong; nothing is taken.
#[tokio::test(flavor = "multi_thread")]
async fn h3_undecodable_is_400_with_a_status() {
    let (sink, gateway) = pair().await;
    for media in [PROTOBUF, JSON] {
        let good = if media == JSON {
            b"{}".to_vec()
        } else {
            sample(Kind::Traces, 1)
        };
        assert_refused(
            &post(gateway.http(), "/v1/traces", &[media], "not a request").await,
            400,
            3,
            media.1,
        );
        let (gzip, zstandard) = (gzipped(&good), zstd(&good));
        let mut damaged = gzip.clone();
        *damaged.last_mut().unwrap() ^= 1;
        damaged[12] ^= 0x55;
        for (encoding, body) in [
            ("gzip", good.clone()),
            ("gzip", gzip[..gzip.len() / 2].to_vec()),
            ("gzip", gzip[..gzip.len() - 1].to_vec()),
            ("gzip", damaged),
            ("gzip", [&gzip[..], b"rubbish behind it"].concat()),
            ("gzip", deflated(&good)),
            ("zstd", good.clone()),
            ("zstd", zstandard[..zstandard.len() - 1].to_vec()),
            ("deflate", good.clone()),
            ("snappy", vec![0xff; 20]),
            ("lz4", good.clone()),
        ] {
            let reply = post(
                gateway.http(),
                "/v1/traces",
                &[media, ("content-encoding", encoding)],
                body,
            )
            .await;
            assert_refused(&reply, 400, 3, media.1);
        }
    }
    assert!(sink.taken().is_empty());
    gateway.stop().await;
}

/// Scenario: every way to be refused for good, in protobuf and in JSON.
/// Guarantees: the status HTTP has for it, and a Status in the request's encoding (H5).
#[tokio::test(flavor = "multi_thread")]
async fn h5_every_error_is_a_status_in_the_requests_encoding() {
    let (_sink, gateway) = pair().await;
    for media in [PROTOBUF, JSON] {
        for path in [
            "/",
            "/v1",
            "/v1/traces/",
            "/v1/spans",
            "/V1/traces",
            "/v2/traces",
            "//v1/traces",
        ] {
            assert_refused(&post(gateway.http(), path, &[media], "").await, 404, 5, media.1);
        }
        for method in [
            Method::GET,
            Method::PUT,
            Method::DELETE,
            Method::PATCH,
            Method::OPTIONS,
            Method::TRACE,
        ] {
            let request = request(method.clone(), gateway.http(), "/v1/traces", &[media], "");
            let reply = HttpConnection::http1(gateway.http())
                .await
                .unwrap()
                .send(request)
                .await
                .unwrap();
            assert_refused(&reply, 405, 12, media.1);
            assert!(reply.header("allow").unwrap().contains("POST"), "{method}");
        }
        for encoding in ["br", "compress", "gzip, gzip", "nonsense"] {
            let reply = post(
                gateway.http(),
                "/v1/traces",
                &[media, ("content-encoding", encoding)],
                "x",
            )
            .await;
            assert_refused(&reply, 415, 3, media.1);
            // RFC 9110, 15.5.16: what would have been accepted.
            assert!(
                reply.header("accept-encoding").unwrap().contains("gzip"),
                "{encoding}"
            );
        }
    }
    for content_type in [
        "text/plain",
        "application/protobuf+x",
        "application/xml",
        "*/*",
        "",
    ] {
        let reply = post(
            gateway.http(),
            "/v1/traces",
            &[("content-type", content_type)],
            "x",
        )
        .await;
        assert_refused(&reply, 415, 3, JSON.1);
    }
    assert_refused(
        &post(gateway.http(), "/v1/traces", &[], "x").await,
        415,
        3,
        JSON.1,
    );
    gateway.stop().await;
}

/// Scenario: HEAD, over HTTP/1.1 and h2, to a path that is known and to one that is not.
/// Guarantees: the head of the refusal, the length of its Status included, and no content (RFC 9110, 9.3.2).
#[tokio::test(flavor = "multi_thread")]
async fn the_answer_to_head_has_no_content() {
    let (_sink, gateway) = pair().await;
    for (path, status) in [("/v1/traces", 405), ("/nothing", 404)] {
        for connection in [
            HttpConnection::http1(gateway.http()).await,
            HttpConnection::http2(gateway.http()).await,
        ] {
            let request = request(Method::HEAD, gateway.http(), path, &[PROTOBUF], "");
            let reply = connection.unwrap().send(request).await.unwrap();
            assert_eq!(reply.status, status, "{reply:?}");
            let length: usize = reply.header("content-length").unwrap().parse().unwrap();
            assert!(length > 0 && reply.body.is_empty(), "{reply:?}");
        }
    }
    gateway.stop().await;
}

/// Scenario: a client that accepts gzip, one that accepts nothing but gzip, one that says nothing.
/// Guarantees: the answer is in an encoding the client accepts (H7 allows gzip, and does not ask for it).
#[tokio::test(flavor = "multi_thread")]
async fn h7_answers_are_readable() {
    let (_sink, gateway) = pair().await;
    for accept in ["gzip", "gzip, deflate, br", "identity"] {
        let reply = post(
            gateway.http(),
            "/v1/traces",
            &[JSON, ("accept-encoding", accept)],
            "{}",
        )
        .await;
        assert_eq!(
            (reply.status, reply.header("content-encoding"), reply.text()),
            (200, None, "{}")
        );
    }
    gateway.stop().await;
}

/// Scenario: configured response headers.
/// Guarantees: good and bad answers have them.
#[tokio::test(flavor = "multi_thread")]
async fn response_headers_are_added() {
    let sink = Sink::start().await;
    let gateway = Gateway::start(&Config::to(&sink).http("response_headers: {x-served-by: sluice}")).await;
    for path in ["/v1/traces", "/nowhere"] {
        let reply = post(gateway.http(), path, &[PROTOBUF], "").await;
        assert_eq!(reply.header("x-served-by"), Some("sluice"), "{path}");
    }
    gateway.stop().await;
}
