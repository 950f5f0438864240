//! TLS and mutual TLS.

use sluice_client::{ClientTls, Pem, TlsVersion};

use super::support::tls::{Authority, Identity};
use super::support::{h1, h2};
use super::*;

async fn h1_server(identity: &Identity, clients: Option<&Authority>) -> h1::Server {
    let acceptor = Authority::acceptor(identity, clients, &[b"http/1.1"]);
    h1::Server::start_on(
        "127.0.0.1:0",
        [],
        h1::Step::Answer(h1::Reply::status(200)),
        Some(acceptor),
    )
    .await
}

fn tls_client(port: u16, protocol: Protocol, tls: ClientTls) -> Client {
    let mut settings = settings(&format!("https://localhost:{port}"), protocol);
    settings.tls = tls;
    Client::new(settings).unwrap()
}

fn trusting(authority: &Authority) -> ClientTls {
    ClientTls {
        ca: Some(Pem::Text(authority.pem())),
        ..ClientTls::default()
    }
}

/// Scenario: a server whose certificate our CA signed, over HTTP/1.1 and over h2.
/// Guarantees: the request is answered, with 1.3 as well as with 1.2 as the highest version.
#[tokio::test]
async fn a_trusted_server_is_spoken_to() {
    let authority = Authority::new();
    let identity = authority.identity(&["localhost"]);
    let server = h1_server(&identity, None).await;
    for max_version in [None, Some(TlsVersion::V1_2)] {
        let tls = ClientTls {
            max_version,
            ..trusting(&authority)
        };
        let client = tls_client(server.addr.port(), Protocol::Http1, tls);
        assert_eq!(post(&client, "x").await.unwrap().status, 200);
    }
    let acceptor = Authority::acceptor(&identity, None, &[b"h2"]);
    let reply = h2::Reply {
        status: 200,
        ..Default::default()
    };
    let server = h2::Server::start_tls([], h2::Step::Answer(reply), Some(acceptor)).await;
    let client = tls_client(server.addr.port(), Protocol::Http2, trusting(&authority));
    assert_eq!(post(&client, "x").await.unwrap().status, 200);
}

/// Scenario: a certificate of an unknown CA; one for another name; verification switched off;
/// the other name asked for.
/// Guarantees: the first two are faults to be mended, the others are answered.
#[tokio::test]
async fn certificates_are_verified() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = h1_server(&authority.identity(&["backend.example"]), None).await;
    let port = server.addr.port();
    for tls in [trusting(&stranger), trusting(&authority)] {
        let error = post(&tls_client(port, Protocol::Http1, tls), "x")
            .await
            .unwrap_err();
        assert!(
            matches!(error, SendError::TlsConfiguration { .. }) && error.needs_mending(),
            "{error:?}"
        );
    }
    let skip = ClientTls {
        insecure_skip_verify: true,
        ..ClientTls::default()
    };
    let name = ClientTls {
        server_name_override: Some("backend.example".into()),
        ..trusting(&authority)
    };
    for tls in [skip, name] {
        assert_eq!(
            post(&tls_client(port, Protocol::Http1, tls), "x")
                .await
                .unwrap()
                .status,
            200
        );
    }
}

/// Scenario: a server that wants a client certificate; we have none, then a stranger's, then a good one.
/// Guarantees: the first two are faults to be mended, in TLS 1.2 and in 1.3, where the refusal comes
/// after the handshake; the last is answered.
#[tokio::test]
async fn mutual_tls() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = h1_server(&authority.identity(&["localhost"]), Some(&authority)).await;
    let with = |identity: Identity| ClientTls {
        cert: Some(Pem::Text(identity.cert)),
        key: Some(Pem::Text(identity.key)),
        ..trusting(&authority)
    };
    for max_version in [TlsVersion::V1_2, TlsVersion::V1_3] {
        for tls in [trusting(&authority), with(stranger.identity(&["client"]))] {
            let tls = ClientTls {
                max_version: Some(max_version),
                ..tls
            };
            let client = tls_client(server.addr.port(), Protocol::Http1, tls);
            let error = post(&client, "x").await.unwrap_err();
            assert!(error.needs_mending(), "{max_version:?}: {error:?}");
        }
        let tls = ClientTls {
            max_version: Some(max_version),
            ..with(authority.identity(&["client"]))
        };
        let client = tls_client(server.addr.port(), Protocol::Http1, tls);
        assert_eq!(post(&client, "x").await.unwrap().status, 200);
    }
}

/// Scenario: the client certificate's files are replaced, first by rubbish, then by a good pair.
/// Guarantees: new connections keep the last good pair, then use the new one without a restart.
#[tokio::test]
async fn changed_files_are_read_again() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = h1_server(&authority.identity(&["localhost"]), Some(&authority)).await;
    let directory = tempfile::tempdir().unwrap();
    let (cert, key) = (
        directory.path().join("cert.pem"),
        directory.path().join("key.pem"),
    );
    let write = |identity: &Identity| {
        std::fs::write(&cert, &identity.cert).unwrap();
        std::fs::write(&key, &identity.key).unwrap();
    };
    write(&stranger.identity(&["client"]));
    let tls = ClientTls {
        cert: Some(Pem::File(cert.clone())),
        key: Some(Pem::File(key.clone())),
        ..trusting(&authority)
    };
    let client = tls_client(server.addr.port(), Protocol::Http1, tls);
    assert!(post(&client, "x").await.unwrap_err().needs_mending());
    // Of another length than any certificate: a coarse clock does not hide the change.
    std::fs::write(&cert, "rubbish").unwrap();
    assert!(post(&client, "x").await.unwrap_err().needs_mending());
    write(&authority.identity(&["client.example"]));
    assert_eq!(post(&client, "x").await.unwrap().status, 200);
}

/// Scenario: settings that can never work.
/// Guarantees: each is an error at start-up that says what is wrong.
#[test]
fn impossible_settings_show_at_startup() {
    let authority = Authority::new();
    let identity = authority.identity(&["a"]);
    let file = |name: &str| Some(Pem::File(name.into()));
    let text = |text: &str| Some(Pem::Text(text.into()));
    for (tls, says) in [
        (
            ClientTls {
                ca: file("/nonexistent/ca.pem"),
                ..Default::default()
            },
            "/nonexistent/ca.pem",
        ),
        (
            ClientTls {
                ca: text("no pem"),
                ..Default::default()
            },
            "no certificate",
        ),
        (
            ClientTls {
                cert: text(&identity.cert),
                ..Default::default()
            },
            "both cert and key",
        ),
        (
            ClientTls {
                cert: text(&identity.cert),
                key: text("no pem"),
                ..Default::default()
            },
            "no usable private key",
        ),
        (
            ClientTls {
                min_version: TlsVersion::V1_3,
                max_version: Some(TlsVersion::V1_2),
                ..Default::default()
            },
            "max_version is below",
        ),
    ] {
        let mut settings = settings("https://localhost", Protocol::Http1);
        settings.tls = tls;
        let error = Client::new(settings).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}
