//! Collector files as they are in the wild (written from research on 100 of them): the accepted ones run unchanged
//! with exactly the warnings they name, the refused ones fail with exactly the errors they name.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice::settings::{
    Ack, BasicAuth, Compression, Exporter, Extension, JsonMode, ListenAddress, MemoryLimit, Receiver,
    Settings, Sizer, Validation, Verbosity,
};
use sluice_config::{Document, Environment, Loader};
use sluice_payload::Signal;

/// The variables the files refer to.
struct Pod;

impl Environment for Pod {
    fn variable(&self, name: &str) -> Option<String> {
        let value = match name {
            "MY_POD_IP" => "10.0.0.7",
            "HTTP_PORT" => "4318",
            "API_KEY" => "k3y",
            "BASIC_AUTH_USERNAME" => "ann",
            "BASIC_AUTH_PASSWORD" => "s3cret",
            _ => return None,
        };
        Some(value.to_owned())
    }

    fn read_file(&self, path: &str) -> io::Result<String> {
        std::fs::read_to_string(path)
    }
}

fn corpus(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/collector")
        .join(folder);
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn load(path: &Path) -> (String, Result<Document, String>) {
    let text = std::fs::read_to_string(path).unwrap();
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let document = Loader::new()
        .text(name, text.clone())
        .load_from(&Pod)
        .map_err(|problems| problems.to_string());
    (text, document)
}

fn accepted(name: &str) -> Settings {
    let path = corpus("accepted")
        .into_iter()
        .find(|path| path.ends_with(name))
        .unwrap();
    Settings::from_document(&load(&path).1.unwrap()).unwrap()
}

/// Pairs every expected fragment with one message and every message with one fragment.
fn assert_match(file: &Path, text: &str, marker: &str, messages: &[String]) {
    let expected: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix(marker))
        .map(str::trim)
        .collect();
    let mut left: BTreeSet<usize> = (0..messages.len()).collect();
    for fragment in &expected {
        let found = left
            .iter()
            .copied()
            .find(|index| messages[*index].contains(fragment));
        assert!(
            found.is_some(),
            "{}: no message has {fragment:?} in\n{}",
            file.display(),
            messages.join("\n")
        );
        left.remove(&found.unwrap());
    }
    let unexpected: Vec<&str> = left.iter().map(|index| messages[*index].as_str()).collect();
    assert!(
        unexpected.is_empty(),
        "{}: not expected:\n{}",
        file.display(),
        unexpected.join("\n")
    );
}

/// Scenario: every file of the accepted corpus.
/// Guarantees: it is accepted, with exactly the warnings it names.
#[test]
fn accepted_files_run_unchanged() {
    for file in corpus("accepted") {
        let (text, document) = load(&file);
        let document = document.unwrap_or_else(|problems| panic!("{}", problems));
        let settings = match Settings::from_document(&document) {
            Ok(settings) => settings,
            Err(problems) => panic!("{}:\n{problems}", file.display()),
        };
        let warnings: Vec<String> = settings.warnings.iter().map(ToString::to_string).collect();
        assert_match(&file, &text, "# warns: ", &warnings);
    }
}

/// Scenario: every file of the refused corpus.
/// Guarantees: it is refused, with exactly the errors it names, each with file, line and column.
#[test]
fn refused_files_name_every_error() {
    for file in corpus("refused") {
        let (text, document) = load(&file);
        let problems = match document {
            Ok(document) => Settings::from_document(&document)
                .expect_err("refused files are refused")
                .to_string(),
            Err(problems) => problems,
        };
        let errors: Vec<String> = problems.lines().map(str::to_owned).collect();
        assert_match(&file, &text, "# expect: ", &errors);
        let name = file.file_name().unwrap().to_string_lossy();
        for error in &errors {
            assert!(error.starts_with(&format!("{name}:")), "{error}");
        }
    }
}

/// Scenario: a bare `grpc:` and a bare `batch:`.
/// Guarantees: our defaults hold, HTTP stays off, and nothing listens on every interface.
#[test]
fn bare_keys_mean_defaults() {
    let settings = accepted("minimal_bare_grpc.yaml");
    let Some(Receiver::Otlp(otlp)) = settings.receivers.values().next() else {
        panic!("otlp")
    };
    let grpc = otlp.grpc.as_ref().unwrap();
    assert_eq!(grpc.endpoint, ListenAddress::new("localhost", 4317));
    assert_eq!(grpc.max_request_bytes(), 64 << 20);
    assert!(otlp.http.is_none());
    let pipeline = &settings.pipelines[0];
    let batching = settings.batching(pipeline, &pipeline.exporters[0]);
    assert_eq!(
        (batching.min_size, batching.flush_timeout),
        (8192, Duration::from_millis(200))
    );
    assert_eq!(
        settings.telemetry.metrics.listen,
        Some(ListenAddress::new("localhost", 8888))
    );
    assert_eq!(settings.memory, None);
}

/// Scenario: a full gateway file.
/// Guarantees: addresses come from the environment, batch and memory_limiter are mapped, explicit loss is honoured.
#[test]
fn a_full_gateway_is_mapped() {
    let settings = accepted("gateway_full.yaml");
    let Some(Receiver::Otlp(otlp)) = settings.receivers.values().next() else {
        panic!("otlp")
    };
    let grpc = otlp.grpc.as_ref().unwrap();
    assert_eq!(grpc.endpoint.to_string(), "10.0.0.7:4317");
    assert_eq!(grpc.max_request_bytes(), 16 << 20);
    assert_eq!(
        grpc.keepalive.server_parameters.max_connection_age,
        Some(Duration::from_secs(30))
    );
    assert_eq!(otlp.http.as_ref().unwrap().cors.as_ref().unwrap().max_age, 7200);
    assert_eq!(
        settings.memory,
        Some(MemoryLimit::Bytes {
            limit: 512 << 20,
            spike: 128 << 20
        })
    );
    assert_eq!(settings.memory_check_interval, Some(Duration::from_secs(1)));
    let traces = settings
        .pipelines
        .iter()
        .find(|pipeline| pipeline.signal == Signal::Traces)
        .unwrap();
    assert_eq!(traces.ack, Ack::Accepted);
    let batching = settings.batching(traces, &traces.exporters[0]);
    assert_eq!((batching.min_size, batching.max_size), (1024, Some(2048)));
    let Some(Exporter::OtlpGrpc(backend)) = settings.exporters.get(&traces.exporters[0]) else {
        panic!("otlp")
    };
    assert!(backend.tls.insecure);
    assert_eq!(
        backend.retry_on_failure.max_elapsed_time,
        Some(Duration::from_secs(300))
    );
    assert_eq!(backend.sending_queue.num_consumers, Some(10));
    let logs = settings
        .pipelines
        .iter()
        .find(|pipeline| pipeline.signal == Signal::Logs)
        .unwrap();
    let Some(Exporter::OtlpHttp(loki)) = settings.exporters.get(&logs.exporters[0]) else {
        panic!("otlphttp")
    };
    assert_eq!(
        loki.url(Signal::Logs).as_deref(),
        Some("http://loki:3100/otlp/v1/logs")
    );
    let metrics = settings
        .pipelines
        .iter()
        .find(|pipeline| pipeline.signal == Signal::Metrics)
        .unwrap();
    let Some(Exporter::OtlpHttp(mimir)) = settings.exporters.get(&metrics.exporters[0]) else {
        panic!("otlphttp")
    };
    assert_eq!(
        mimir.url(Signal::Metrics).as_deref(),
        Some("http://mimir:8080/otlp/v1/metrics")
    );
    assert_eq!(mimir.headers.0[0].1.expose(), "1");
    assert_eq!(
        settings
            .telemetry
            .resource
            .get("service.name")
            .map(String::as_str),
        Some("gateway")
    );
    assert_eq!(
        settings.telemetry.metrics.listen,
        Some(ListenAddress::new("10.0.0.7", 8888))
    );
}

/// Scenario: files with the names of 2021 and of 2025.
/// Guarantees: both end in the same settings.
#[test]
fn old_and_new_names_both_live() {
    let old = accepted("old_names.yaml");
    let exporters: Vec<&Exporter> = old.exporters.values().collect();
    assert!(matches!(exporters[0], Exporter::Debug(debug) if debug.verbosity == Verbosity::Detailed));
    assert!(
        matches!(exporters[1], Exporter::OtlpGrpc(otlp) if otlp.tls.insecure && otlp.sending_queue.block_on_overflow)
    );
    let Some(Receiver::Otlp(otlp)) = old.receivers.values().next() else {
        panic!("otlp")
    };
    assert_eq!(
        otlp.http.as_ref().unwrap().cors.as_ref().unwrap().allowed_origins,
        ["http://example.com"]
    );
    let Some(Extension::HealthCheck(health)) = old.extensions.values().next() else {
        panic!("health_check")
    };
    assert_eq!(health.endpoint, ListenAddress::new("0.0.0.0", 13133));
    assert_eq!(old.telemetry.metrics.listen, Some(ListenAddress::new("", 8888)));

    let new = accepted("new_names.yaml");
    let pipeline = new
        .pipelines
        .iter()
        .find(|pipeline| pipeline.signal == Signal::Metrics)
        .unwrap();
    let own = new.batching(pipeline, &pipeline.exporters[0]);
    assert_eq!(
        (own.flush_timeout, own.max_size, own.sizer),
        (Duration::from_secs(1), Some(10_000), Sizer::Items)
    );
    let Some(Exporter::OtlpHttp(http)) = new.exporters.get(&pipeline.exporters[1]) else {
        panic!("otlp_http")
    };
    assert_eq!(http.compression, Compression::Zstd);
    assert!(
        http.sending_queue.batch.is_some(),
        "a bare `batch:` switches batching on"
    );
    assert_eq!(
        new.telemetry.metrics.listen,
        Some(ListenAddress::new("localhost", 9464))
    );
    assert_eq!(
        new.telemetry.resource.get("service.name").map(String::as_str),
        Some("gateway")
    );
}

/// Scenario: definitions that no pipeline uses, known and unknown, with mistakes in them.
/// Guarantees: they are not part of the settings.
#[test]
fn unused_components_are_left_out() {
    let settings = accepted("chart_leftovers.yaml");
    let names = |keys: Vec<String>| keys.join(" ");
    assert_eq!(
        names(settings.receivers.keys().map(ToString::to_string).collect()),
        "otlp"
    );
    assert_eq!(
        names(settings.exporters.keys().map(ToString::to_string).collect()),
        "debug"
    );
    assert_eq!(
        names(settings.extensions.keys().map(ToString::to_string).collect()),
        "health_check"
    );
}

/// Scenario: authenticators on both sides, with users from the environment and headers as a list.
/// Guarantees: users can come in, headers are in order, `$$` is a literal `$`, and nothing secret prints.
#[test]
fn authenticators_hold_their_secrets() {
    let settings = accepted("authenticated.yaml");
    let server = settings
        .extensions
        .values()
        .find_map(|extension| match extension {
            Extension::BasicAuth(BasicAuth::Server { inline, .. }) => Some(inline),
            _ => None,
        });
    assert!(server.unwrap().verify("ann", "s3cret"));
    let client = settings
        .extensions
        .values()
        .find_map(|extension| match extension {
            Extension::BasicAuth(BasicAuth::Client(client)) => Some(client),
            _ => None,
        });
    assert_eq!(client.unwrap().password.expose(), "p$word");
    let keyed = settings.exporters.values().find_map(|exporter| match exporter {
        Exporter::OtlpHttp(http) if !http.headers.0.is_empty() => Some(http),
        _ => None,
    });
    let headers: Vec<(&str, &str)> = keyed
        .unwrap()
        .headers
        .0
        .iter()
        .map(|(n, v)| (n.as_str(), v.expose()))
        .collect();
    assert_eq!(headers, [("api-key", "k3y"), ("x-tenant", "${not-expanded}")]);
    let shown = format!("{settings:?}");
    for secret in ["k3y", "s3cret", "p$word"] {
        assert!(!shown.contains(secret), "{secret}");
    }
}

/// Scenario: pipelines whose exporters all wait, some wait, name a storage, or that say `ack` themselves.
/// Guarantees: `delivered` only where every queued exporter confirms delivery, `persisted` with a queue on disk, unless `ack` says otherwise.
#[test]
fn acknowledgement_follows_the_queues() {
    let acks = |name: &str| -> Vec<(String, Ack)> {
        accepted(name)
            .pipelines
            .iter()
            .map(|pipeline| (pipeline.id.to_string(), pipeline.ack))
            .collect()
    };
    assert_eq!(
        acks("delivered.yaml"),
        [
            ("traces".to_owned(), Ack::Delivered),
            ("logs".to_owned(), Ack::Accepted)
        ]
    );
    // One that names a storage makes them wait for the disk.
    assert_eq!(
        acks("file_storage.yaml"),
        [
            ("traces".to_owned(), Ack::Persisted),
            ("logs".to_owned(), Ack::Accepted)
        ]
    );
    let fan_out = [
        ("metrics/a", Ack::Accepted),
        ("metrics/b", Ack::Delivered),
        ("logs", Ack::Accepted),
    ];
    assert_eq!(
        acks("fan_out_env.yaml"),
        fan_out.map(|(id, ack)| (id.to_owned(), ack))
    );
}

/// Scenario: one exporter in pipelines with different batch processors.
/// Guarantees: each pipeline batches its own way; merge keys carry the shared part.
#[test]
fn batching_belongs_to_the_pipeline() {
    let settings = accepted("fan_out_env.yaml");
    let sizes: Vec<(u64, Duration)> = settings
        .pipelines
        .iter()
        .map(|pipeline| settings.batching(pipeline, pipeline.exporters.last().unwrap()))
        .map(|batching| (batching.min_size, batching.flush_timeout))
        .collect();
    let second = Duration::from_secs(1);
    assert_eq!(
        sizes,
        [
            (100, second),
            (10_000, second),
            (8192, Duration::from_millis(200))
        ]
    );
}

/// Scenario: every tuning key of HTTP.
/// Guarantees: our own keys are read, paths gain their slash, TLS 1.1 is raised to 1.2.
#[test]
fn http_can_be_tuned() {
    let settings = accepted("tuned_http.yaml");
    let Some(Receiver::Otlp(otlp)) = settings.receivers.values().next() else {
        panic!("otlp")
    };
    assert_eq!(
        (otlp.validation, otlp.json),
        (Validation::Shallow, JsonMode::Strict)
    );
    let http = otlp.http.as_ref().unwrap();
    assert_eq!(http.endpoint, ListenAddress::new("", 4318));
    assert_eq!(http.metrics_url_path, "/v1/metrics");
    assert_eq!(http.max_request_bytes(), 20 << 20);
    assert!(!http.keep_alives_enabled);
    let Some(Exporter::OtlpHttp(exporter)) = settings.exporters.values().next() else {
        panic!("otlphttp")
    };
    assert_eq!(
        exporter.url(Signal::Traces).as_deref(),
        Some("https://traces:4318/custom/path")
    );
    assert_eq!(
        exporter.url(Signal::Metrics).as_deref(),
        Some("https://backend:4318/v1/metrics")
    );
    assert_eq!(exporter.connections, Some(4));
    assert_eq!(exporter.tls.min_version, Some(sluice::settings::TlsVersion::V1_2));
}

/// Scenario: files with the names of 2020 and of 2026: TLS keys at the top of exporters and `tls_settings` of listeners, `logLevel`; remote
/// write under its new name with requests that are signed, `keepalive` of HTTP, `user_agent`.
/// Guarantees: every key that does something does it, what stands in `tls` wins over the old place, and no other verbosity is read.
#[test]
fn keys_of_other_years_do_what_they_say() {
    let old = accepted("names_of_2020.yaml");
    let Some(Receiver::Otlp(otlp)) = old.receivers.values().next() else {
        panic!("otlp")
    };
    let tls = otlp.grpc.as_ref().unwrap().tls.as_ref().unwrap();
    assert_eq!(tls.cert_file.as_deref(), Some(Path::new("server.crt")));
    for exporter in old.exporters.values() {
        match exporter {
            Exporter::OtlpGrpc(grpc) => assert!(grpc.tls.insecure),
            Exporter::OtlpHttp(http) => {
                assert_eq!(http.tls.ca_file.as_deref(), Some(Path::new("ca.pem")));
                assert_eq!(http.tls.server_name_override.as_deref(), Some("gateway"));
            }
            Exporter::Debug(debug) => assert_eq!(debug.verbosity, Verbosity::Detailed),
            other => panic!("{other:?}"),
        }
    }

    let new = accepted("names_of_2026.yaml");
    let seconds = Duration::from_secs;
    for receiver in new.receivers.values() {
        match receiver {
            Receiver::Otlp(otlp) => assert_eq!(otlp.http.as_ref().unwrap().idle_timeout, Some(seconds(90))),
            Receiver::RemoteWrite(receiver) => {
                assert_eq!(receiver.idle_timeout, Some(seconds(20)));
                assert_eq!(receiver.endpoint, ListenAddress::new("10.0.0.7", 9090));
            }
            other => panic!("{other:?}"),
        }
    }
    for exporter in new.exporters.values() {
        match exporter {
            Exporter::OtlpGrpc(grpc) => {
                let [(name, value)] = &grpc.headers.0[..] else {
                    panic!("one header")
                };
                assert_eq!((name.as_str(), value.expose()), ("user-agent", "edge/7"));
            }
            Exporter::OtlpHttp(http) => {
                assert_eq!(
                    (http.idle_conn_timeout, http.disable_keep_alives),
                    (seconds(10), true)
                );
            }
            Exporter::RemoteWrite(remote_write) => {
                assert_eq!(remote_write.idle_conn_timeout, seconds(45));
                assert!(remote_write.auth.is_some());
            }
            Exporter::Debug(debug) => assert_eq!(debug.verbosity, Verbosity::Detailed),
            Exporter::File(_) => {}
            other => panic!("{other:?}"),
        }
    }
}
