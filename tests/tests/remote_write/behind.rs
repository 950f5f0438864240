//! The example configurations for putting sluice behind Prometheus and vmagent, started as they are.

use std::path::Path;

use sluice_loadgen::{Generator, RemoteWrite, Signal, Spec};
use sluice_tests::{Config, Gateway, snappy_block, zstd};

use super::destination::Destination;
use super::{V1, V2, write};

/// Scenario: each file with free ports, a directory and a destination from its environment; what Prometheus sends it, as 2.0 and as 1.0 under snappy, and what
/// vmagent sends it, as 1.0 under zstd.
/// Guarantees: every sample goes out, in the format that the file says; the path that the file tells Prometheus or vmagent is where it listens.
#[tokio::test(flavor = "multi_thread")]
async fn sluice_is_behind_prometheus_and_vmagent() {
    for (file, content_type, encoding) in [
        ("behind-prometheus.yaml", V2, "snappy"),
        ("behind-vmagent.yaml", V1, "zstd"),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config").join(file);
        let text = std::fs::read_to_string(path).unwrap();
        assert!(
            text.contains("http://localhost:9201/api/v1/write") && text.contains(":-9201}"),
            "{file}"
        );
        // Tests have no fixed ports: beside the file's own keys.
        let text = text.replace("health_check: {}", "health_check: {endpoint: \"127.0.0.1:0\"}").replace(
            "  pipelines:",
            "  telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: 0}}}}]}}\n  pipelines:",
        );
        let destination = Destination::start().await;
        let spool = tempfile::tempdir().unwrap();
        let directory = spool.path().join("spool").display().to_string();
        let url = destination.url();
        let environment = [
            ("LISTEN_HOST", "127.0.0.1"),
            ("LISTEN_PORT", "0"),
            ("REMOTE_WRITE_URL", &*url),
            ("SPOOL", &*directory),
        ];
        let gateway = Gateway::start_with_environment(&Config::of_text(text), &environment).await;
        let mut sent = 0;
        for (version, its_type, its_encoding) in [
            (RemoteWrite::V2, V2, "snappy"),
            (RemoteWrite::V1, V1, "snappy"),
            (RemoteWrite::V1, V1, "zstd"),
        ] {
            let made =
                Generator::remote_write(Spec::gateway(Signal::Metrics).items(50), version).next_request();
            let body = match its_encoding {
                "zstd" => zstd(&made.body),
                _ => snappy_block(&made.body),
            };
            let reply = write(&gateway, its_type, its_encoding, body).await;
            assert_eq!(reply.status, 204, "{}", reply.text());
            sent += u64::from(made.items);
        }
        gateway.settled().await;
        let account = gateway.account("prometheusremotewrite").await;
        assert_eq!((account.accepted, account.delivered), (sent, sent), "{account:?}");
        let mut arrived = 0;
        for asked in destination.asked() {
            assert_eq!(asked.header("content-type"), content_type);
            assert_eq!(asked.header("content-encoding"), encoding);
            arrived += match content_type {
                V2 => asked
                    .second()
                    .series
                    .iter()
                    .map(|series| series.samples.len())
                    .sum::<usize>(),
                _ => asked
                    .first()
                    .series
                    .iter()
                    .map(|series| series.samples.len())
                    .sum(),
            };
        }
        assert_eq!(arrived as u64, sent);
        gateway.stop().await;
    }
}
