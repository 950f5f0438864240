//! Requests from web pages.

use http::Method;
use sluice_tests::{Config, Gateway, HttpConnection, Reply, Sink, request};

use crate::JSON;

async fn ask(gateway: &Gateway, method: Method, headers: &[(&str, &str)], body: &'static str) -> Reply {
    let request = request(method, gateway.http(), "/v1/traces", headers, body);
    HttpConnection::http1(gateway.http())
        .await
        .unwrap()
        .send(request)
        .await
        .unwrap()
}

/// Scenario: preflights and simple requests from allowed origins, from others, and from none, against a
/// receiver with `cors` and `auth`.
/// Guarantees: only allowed origins are told that they are; preflights need no credentials; errors are
/// readable by pages too; what is no preflight is no preflight.
#[tokio::test(flavor = "multi_thread")]
async fn preflight_and_simple_requests() {
    let sink = Sink::start().await;
    let cors = "cors: {allowed_origins: [\"https://app.example.com\", \"https://*.example.org\"], \
                allowed_headers: [X-Tenant], max_age: 600}";
    let config = Config::to(&sink)
        .extension("bearertokenauth", "token: t0ken")
        .http(&format!("{cors}, auth: {{authenticator: bearertokenauth}}"));
    let gateway = Gateway::start(&config).await;
    for (origin, allowed) in [
        ("https://app.example.com", true),
        ("https://a.example.org", true),
        ("https://app.example.com.evil.test", false),
        ("http://app.example.com", false),
        ("null", false),
    ] {
        let preflight = [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "content-type,x-tenant"),
        ];
        let reply = ask(&gateway, Method::OPTIONS, &preflight, "").await;
        let echoed = reply.header("access-control-allow-origin") == Some(origin);
        assert_eq!(echoed, allowed, "{origin}: {reply:?}");
        if allowed {
            assert!((200..300).contains(&reply.status), "{reply:?}");
            assert!(
                reply
                    .header("access-control-allow-methods")
                    .unwrap()
                    .contains("POST"),
                "{reply:?}"
            );
            let headers = reply
                .header("access-control-allow-headers")
                .unwrap()
                .to_ascii_lowercase();
            assert!(
                headers.contains("x-tenant") && headers.contains("content-type"),
                "{reply:?}"
            );
            assert_eq!(reply.header("access-control-max-age"), Some("600"));
        }
        assert!(
            reply.header("vary").is_some_and(|vary| vary.contains("Origin")),
            "{reply:?}"
        );

        let simple = [JSON, ("origin", origin), ("authorization", "Bearer t0ken")];
        let reply = ask(&gateway, Method::POST, &simple, "{}").await;
        assert_eq!(reply.status, 200);
        assert_eq!(
            reply.header("access-control-allow-origin") == Some(origin),
            allowed,
            "{origin}: {reply:?}"
        );
        let reply = ask(&gateway, Method::POST, &simple[..2], "{}").await;
        assert_eq!(reply.status, 401);
        assert_eq!(
            reply.header("access-control-allow-origin") == Some(origin),
            allowed,
            "{origin}: {reply:?}"
        );
    }
    // A header that is not allowed, a method that is not, and no preflight at all.
    let reply = ask(
        &gateway,
        Method::OPTIONS,
        &[
            ("origin", "https://app.example.com"),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "x-other"),
        ],
        "",
    )
    .await;
    assert_eq!(reply.header("access-control-allow-headers"), None, "{reply:?}");
    let reply = ask(
        &gateway,
        Method::OPTIONS,
        &[("origin", "https://app.example.com")],
        "",
    )
    .await;
    assert_eq!(reply.status, 405, "{reply:?}");
    let reply = ask(
        &gateway,
        Method::POST,
        &[JSON, ("authorization", "Bearer t0ken")],
        "{}",
    )
    .await;
    assert_eq!(
        (reply.status, reply.header("access-control-allow-origin")),
        (200, None)
    );
    gateway.stop().await;
}
