//! Basic and bearer authentication.

use base64::Engine;
use sluice_tests::{Config, Gateway, Kind, Sink, code, frame, grpc_call, post, sample};

use crate::{JSON, PROTOBUF, assert_refused};

fn basic(text: &str) -> String {
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text))
}

/// Sends on both transports with every `authorization`, and checks who comes in.
async fn check(extension: &str, settings: &str, good: &[String], bad: &[String], challenge: &str) {
    let sink = Sink::start().await;
    let auth = format!("auth: {{authenticator: {extension}}}");
    let config = Config::to(&sink)
        .extension(extension, settings)
        .grpc(&auth)
        .http(&auth);
    let gateway = Gateway::start(&config).await;
    let body = sample(Kind::Logs, 1);
    let path = Kind::Logs.grpc_path();
    for value in bad {
        for media in [PROTOBUF, JSON] {
            let headers = [media, ("authorization", value)];
            let headers = if value.is_empty() {
                &headers[..1]
            } else {
                &headers[..]
            };
            let reply = post(gateway.http(), "/v1/logs", headers, body.clone()).await;
            assert_refused(&reply, 401, 16, media.1);
            assert!(
                reply.header("www-authenticate").unwrap().starts_with(challenge),
                "{reply:?}"
            );
        }
        let reply = grpc_call(gateway.grpc(), path, &[("authorization", value)], frame(0, &body)).await;
        assert_eq!(reply.code(), code::UNAUTHENTICATED, "{value}: {reply:?}");
    }
    let mut sent = Vec::new();
    for value in good {
        let reply = post(
            gateway.http(),
            "/v1/logs",
            &[PROTOBUF, ("authorization", value)],
            body.clone(),
        )
        .await;
        assert_eq!(reply.status, 200, "{value}: {reply:?}");
        let reply = grpc_call(gateway.grpc(), path, &[("authorization", value)], frame(0, &body)).await;
        assert_eq!(reply.code(), code::OK, "{value}: {reply:?}");
        sent.extend([body.clone(), body.clone()]);
    }
    sink.wait_for_same(Kind::Logs, &sent).await;
    for secret in ["s:ecret", "t0ken-one"] {
        assert!(
            !gateway.log().contains(secret),
            "a secret in the log:\n{}",
            gateway.log()
        );
    }
    let refused = gateway.metrics().await.sum(
        "sluice_receiver_refused_requests_total",
        &["reason=\"unauthorized\""],
    );
    assert_eq!(refused, 3.0 * bad.len() as f64);
    gateway.stop().await;
}

/// Scenario: right, wrong and missing basic credentials, on both transports.
/// Guarantees: 401 with a challenge and a Status, UNAUTHENTICATED; only the right ones come in.
#[tokio::test(flavor = "multi_thread")]
async fn basic_credentials() {
    // bob's password is "password", as an MD5 line of Apache's htpasswd.
    let users = "htpasswd: {inline: \"ann:{PLAIN}s:ecret\\nbob:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\"}";
    let good = [
        basic("ann:s:ecret"),
        basic("bob:password"),
        basic("ann:s:ecret").replace("Basic", "bAsIc"),
    ];
    let bad = [
        "".to_owned(),
        basic("ann:wrong"),
        basic("eve:s:ecret"),
        "Basic !!!".to_owned(),
        "Bearer x".to_owned(),
    ];
    let users = users.replace("ann:{PLAIN}s:ecret", "ann:s:ecret");
    check("basicauth/server", &users, &good, &bad, "Basic").await;
}

/// Scenario: right, wrong and missing bearer tokens, on both transports.
/// Guarantees: as above.
#[tokio::test(flavor = "multi_thread")]
async fn bearer_tokens() {
    let good = ["Bearer t0ken-one".to_owned(), "bearer t0ken-one".to_owned()];
    let bad = [
        "".to_owned(),
        "Bearer t0ken".to_owned(),
        "Bearer".to_owned(),
        basic("a:t0ken-one"),
    ];
    check("bearertokenauth", "token: t0ken-one", &good, &bad, "Bearer").await;
}
