//! TLS, mutual TLS, and certificates that change while the server runs.

use std::net::SocketAddr;
use std::sync::Arc;

use http::Method;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use sluice_tests::{
    Authority, Config, Gateway, GrpcConnection, HttpConnection, Kind, Sink, client_tls, code, eventually,
    frame, post, request, sample,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::PROTOBUF;

async fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> std::io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(config.clone())
        .connect(name, TcpStream::connect(address).await?)
        .await
}

async fn post_tls(address: SocketAddr, config: &Arc<ClientConfig>, body: &[u8]) -> std::io::Result<u16> {
    let mut connection = HttpConnection::http1_on(connect(address, config).await?)
        .await
        .map_err(std::io::Error::other)?;
    let request = request(Method::POST, address, "/v1/logs", &[PROTOBUF], body.to_vec());
    connection
        .send(request)
        .await
        .map(|reply| reply.status)
        .map_err(std::io::Error::other)
}

async fn call_tls(address: SocketAddr, config: &Arc<ClientConfig>, body: &[u8]) -> std::io::Result<u32> {
    let stream = connect(address, config).await?;
    let mut connection = GrpcConnection::on(stream, "localhost")
        .await
        .map_err(std::io::Error::other)?;
    let reply = connection.call(Kind::Logs.grpc_path(), &[], frame(0, body)).await;
    reply.map(|reply| reply.code()).map_err(std::io::Error::other)
}

async fn gateway(sink: &Sink, tls: &str) -> Gateway {
    let tls = format!("tls: {{{tls}}}");
    Gateway::start(&Config::to(sink).grpc(&tls).http(&tls)).await
}

/// Scenario: both listeners with TLS; clients that trust the CA, one that trusts another, one without TLS.
/// Guarantees: the first are served on both transports, with h2 where ALPN says so; the others are not,
/// and do not disturb.
#[tokio::test(flavor = "multi_thread")]
async fn tls_on_both_transports() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, other) = (Authority::new("ca"), Authority::new("another ca"));
    let (cert, key) = ca.issue("gateway").write(dir.path(), "server");
    let sink = Sink::start().await;
    let gateway = gateway(
        &sink,
        &format!("cert_file: {}, key_file: {}", cert.display(), key.display()),
    )
    .await;
    let body = sample(Kind::Logs, 1);
    let trusting = client_tls(&ca, None, &["http/1.1"]);
    let h2 = client_tls(&ca, None, &["h2"]);
    assert_eq!(post_tls(gateway.http(), &trusting, &body).await.unwrap(), 200);
    assert_eq!(call_tls(gateway.grpc(), &h2, &body).await.unwrap(), code::OK);
    let both = client_tls(&ca, None, &["h2", "http/1.1"]);
    let stream = connect(gateway.http(), &both).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut http2 = HttpConnection::http2_on(stream).await.unwrap();
    let https = request(
        Method::POST,
        gateway.http(),
        "/v1/logs",
        &[PROTOBUF],
        body.clone(),
    );
    assert_eq!(http2.send(https).await.unwrap().status, 200);

    let distrusting = client_tls(&other, None, &["h2", "http/1.1"]);
    assert!(post_tls(gateway.http(), &distrusting, &body).await.is_err());
    assert!(call_tls(gateway.grpc(), &distrusting, &body).await.is_err());
    let mut plain = sluice_tests::RawHttp::connect(gateway.http()).await;
    plain
        .write("POST /v1/logs HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
        .await;
    assert!(!String::from_utf8_lossy(&plain.closed().await).contains("200"));
    sink.wait_for_same(Kind::Logs, &[body.clone(), body.clone(), body])
        .await;
    gateway.stop().await;
}

/// Scenario: mutual TLS; clients with a certificate of the CA, of another CA, and without one.
/// Guarantees: only the first come in, on both transports.
#[tokio::test(flavor = "multi_thread")]
async fn mutual_tls() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, clients, other) = (
        Authority::new("ca"),
        Authority::new("clients"),
        Authority::new("others"),
    );
    let (cert, key) = ca.issue("gateway").write(dir.path(), "server");
    let client_ca = dir.path().join("clients.crt");
    std::fs::write(&client_ca, clients.pem()).unwrap();
    let sink = Sink::start().await;
    let tls = format!(
        "cert_file: {}, key_file: {}, client_ca_file: {}",
        cert.display(),
        key.display(),
        client_ca.display()
    );
    let gateway = gateway(&sink, &tls).await;
    let body = sample(Kind::Logs, 1);
    let known = clients.issue("client");
    assert_eq!(
        post_tls(
            gateway.http(),
            &client_tls(&ca, Some(&known), &["http/1.1"]),
            &body
        )
        .await
        .unwrap(),
        200
    );
    assert_eq!(
        call_tls(gateway.grpc(), &client_tls(&ca, Some(&known), &["h2"]), &body)
            .await
            .unwrap(),
        code::OK
    );
    let stranger = other.issue("client");
    for identity in [None, Some(&stranger)] {
        assert!(
            post_tls(gateway.http(), &client_tls(&ca, identity, &["http/1.1"]), &body)
                .await
                .is_err()
        );
        assert!(
            call_tls(gateway.grpc(), &client_tls(&ca, identity, &["h2"]), &body)
                .await
                .is_err()
        );
    }
    sink.wait_for_same(Kind::Logs, &[body.clone(), body]).await;
    gateway.stop().await;
}

/// Scenario: the certificate is replaced on disk, by a broken one first and then by one of another CA.
/// Guarantees: a broken one changes nothing and is logged; the good one is served to new connections
/// without a restart, while old connections go on.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_reloaded() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let (cert, key) = old.issue("gateway").write(dir.path(), "server");
    let sink = Sink::start().await;
    let tls = format!(
        "cert_file: {}, key_file: {}, reload_interval: 100ms",
        cert.display(),
        key.display()
    );
    let gateway = gateway(&sink, &tls).await;
    let (trusts_old, trusts_new) = (
        client_tls(&old, None, &["http/1.1"]),
        client_tls(&new, None, &["http/1.1"]),
    );
    let body = sample(Kind::Logs, 1);
    let mut connection = HttpConnection::http1_on(connect(gateway.http(), &trusts_old).await.unwrap())
        .await
        .unwrap();

    std::fs::write(&cert, "not a certificate").unwrap();
    gateway.says("were not reloaded").await;
    assert_eq!(post_tls(gateway.http(), &trusts_old, &body).await.unwrap(), 200);

    new.issue("gateway").write(dir.path(), "server");
    eventually("the new certificate is served", || async {
        post_tls(gateway.http(), &trusts_new, &body)
            .await
            .ok()
            .map(|status| assert_eq!(status, 200))
    })
    .await;
    assert!(post_tls(gateway.http(), &trusts_old, &body).await.is_err());
    let request = request(
        Method::POST,
        gateway.http(),
        "/v1/logs",
        &[PROTOBUF],
        body.clone(),
    );
    assert_eq!(connection.send(request).await.unwrap().status, 200);
    sink.wait_for_same(Kind::Logs, &[body.clone(), body.clone(), body])
        .await;
    gateway.stop().await;
}

/// Scenario: exporters that speak TLS, mutual TLS, or distrust the destination are the exporters'
/// business; here only: a receiver without TLS does not understand a TLS hello.
/// Guarantees: the connection is closed, others are served.
#[tokio::test(flavor = "multi_thread")]
async fn a_tls_client_at_a_plain_port() {
    let ca = Authority::new("ca");
    let sink = Sink::start().await;
    let gateway = Gateway::start(&Config::to(&sink)).await;
    for address in [gateway.http(), gateway.grpc()] {
        assert!(connect(address, &client_tls(&ca, None, &["h2"])).await.is_err());
    }
    assert_eq!(
        post(gateway.http(), "/v1/logs", &[PROTOBUF], "").await.status,
        200
    );
    gateway.stop().await;
}
