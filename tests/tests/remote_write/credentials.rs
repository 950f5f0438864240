//! Who may send, on either side: from YAML to what is on the wire.

use std::sync::Arc;

use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sluice_loadgen::{Generator, RemoteWrite, Signal, Spec};
use sluice_tests::{Authority, Config, Gateway, Identity, Sink, eventually, post, snappy_block};
use tokio_rustls::TlsAcceptor;

use super::destination::{Destination, answer, taken};
use super::{V1, V2, round_of_points, write};

/// A configuration that sends at once to `url`; `more` are further settings.
fn sending(url: &str, more: &str) -> Config {
    let settings =
        format!("endpoint: \"{url}\", sending_queue: {{batch: {{flush_timeout: 5ms, min_size: 1}}}}, {more}");
    Config::new()
        .signals(&["metrics"])
        .exporter("prometheusremotewrite", &settings)
}

async fn send_ten(gateway: &Gateway) {
    let body = round_of_points(0, 10);
    let reply = post(gateway.http(), "/v1/metrics", &[("content-type", V1)], body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// Scenario: exporters with a user and a password, with a token, and with keys for AWS, to a destination that lets in nobody else.
/// Guarantees: each request says who sends it, in the form of each; everything is delivered.
#[tokio::test(flavor = "multi_thread")]
async fn the_exporter_says_who_it_is() {
    for (extension, settings, begins) in [
        (
            "basicauth",
            "client_auth: {username: ann, password: secret}",
            "Basic YW5uOnNlY3JldA==",
        ),
        ("bearertokenauth", "token: a-token", "Bearer a-token"),
        (
            "sigv4auth",
            "region: eu-central-1",
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/",
        ),
    ] {
        let destination = Destination::start().await;
        destination.answer(
            move |asked| match asked.header("authorization").starts_with(begins) {
                true => taken(),
                false => answer(401, &[], "who are you?"),
            },
        );
        let more = format!("auth: {{authenticator: {extension}}}");
        let config = sending(&destination.url(), &more).extension(extension, settings);
        let keys = [
            ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
        ];
        let gateway = Gateway::start_with_environment(&config, &keys).await;
        send_ten(&gateway).await;
        gateway.settled().await;
        for asked in destination.asked() {
            let said = asked.header("authorization");
            assert!(said.starts_with(begins), "{said}");
            if extension == "sigv4auth" {
                assert!(
                    said.contains("/eu-central-1/aps/aws4_request, SignedHeaders="),
                    "{said}"
                );
                let signature = said.rsplit_once("Signature=").unwrap().1;
                assert!(signature.len() == 64 && signature.bytes().all(|byte| byte.is_ascii_hexdigit()));
                assert!(!asked.header("x-amz-date").is_empty());
            }
        }
        let account = gateway.account("prometheusremotewrite").await;
        assert_eq!((account.accepted, account.delivered), (10, 10), "{account:?}");
        gateway.stop().await;
    }
}

/// A server that lets in who has a certificate of `clients`.
fn mutual_tls(server: &Identity, clients: &Authority) -> TlsAcceptor {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(clients.pem().as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(server.certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(server.key.as_bytes()).unwrap(),
        )
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Scenario: a destination that asks for a certificate; the exporter has one that it knows, and one that it does not.
/// Guarantees: the first delivers; with the second nothing is ever asked, the backlog is held, and somebody is told.
#[tokio::test(flavor = "multi_thread")]
async fn the_exporter_has_a_certificate() {
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    for (authority, delivered) in [(&ours, 10), (&others, 0)] {
        let destination = Destination::start_on(Some(mutual_tls(&ours.issue("server"), &ours))).await;
        let files = tempfile::tempdir().unwrap();
        let (certificate, key) = authority.issue("client").write(files.path(), "client");
        let ca = files.path().join("ca.crt");
        std::fs::write(&ca, ours.pem()).unwrap();
        let more = format!(
            "tls: {{ca_file: {}, cert_file: {}, key_file: {}}}",
            ca.display(),
            certificate.display(),
            key.display()
        );
        let url = format!("https://localhost:{}/api/v1/write", destination.address.port());
        let gateway = Gateway::start(&sending(&url, &more)).await;
        send_ten(&gateway).await;
        if delivered == 0 {
            eventually("the backlog is held", || async {
                let metrics = gateway.metrics().await;
                (metrics.sum("sluice_exporter_held", &[]) == 1.0).then_some(())
            })
            .await;
            assert!(destination.asked().is_empty());
            let account = gateway.account("prometheusremotewrite").await;
            assert_eq!((account.delivered, account.queued), (0, 10), "{account:?}");
            gateway.kill().await;
            continue;
        }
        gateway.settled().await;
        let account = gateway.account("prometheusremotewrite").await;
        assert_eq!((account.accepted, account.delivered), (10, 10), "{account:?}");
        gateway.stop().await;
    }
}

/// Scenario: a receiver that asks for a user and a password is sent requests of both versions, without them, with wrong ones, and with the right ones.
/// Guarantees: 401 with a challenge, and in 2.0 with nothing written; the right ones are taken.
#[tokio::test(flavor = "multi_thread")]
async fn the_receiver_asks_who_sends() {
    let sink = Sink::start().await;
    let config = Config::to(&sink)
        .signals(&["metrics"])
        .extension("basicauth", "htpasswd: {inline: 'ann:secret'}")
        .metrics_receiver(
            "prometheusremotewrite",
            "endpoint: \"127.0.0.1:0\", auth: {authenticator: basicauth}",
        );
    let gateway = Gateway::start(&config).await;
    let to = gateway.bound("receivers.prometheusremotewrite");
    for (version, content_type) in [(RemoteWrite::V1, V1), (RemoteWrite::V2, V2)] {
        let made = Generator::remote_write(Spec::gateway(Signal::Metrics).items(5), version).next_request();
        let body = snappy_block(&made.body);
        let written = (version == RemoteWrite::V2).then_some("0");
        let reply = write(&gateway, content_type, "snappy", body.clone()).await;
        assert_eq!(reply.status, 401);
        assert!(reply.header("www-authenticate").is_some());
        assert_eq!(reply.header("x-prometheus-remote-write-samples-written"), written);
        // ann:wrong, then ann:secret.
        for (credentials, status) in [("Basic YW5uOndyb25n", 401), ("Basic YW5uOnNlY3JldA==", 204)] {
            let headers = [
                ("content-type", content_type),
                ("content-encoding", "snappy"),
                ("authorization", credentials),
            ];
            let reply = post(to, "/api/v1/write", &headers, body.clone()).await;
            assert_eq!(reply.status, status, "{}", reply.text());
        }
    }
    gateway.settled().await;
    let metrics = gateway.metrics().await;
    let refused = metrics.sum(
        "sluice_receiver_refused_requests_total",
        &["reason=\"unauthorized\""],
    );
    assert_eq!(refused, 4.0);
    assert_eq!(gateway.account("otlphttp/sink").await.delivered, 10);
    gateway.stop().await;
}
