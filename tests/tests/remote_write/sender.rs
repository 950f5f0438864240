//! What the specifications say of senders, by the real binary: docs/remote-write.md has the table of statements.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sluice_loadgen::{Generator, Signal, Spec};
use sluice_tests::{Config, Gateway, eventually, post};

use super::destination::{Destination, Sample, answer, taken};
use super::{V1, V2, round_of_points};

/// A gateway that sends at once to `destination`; `more` are further settings.
async fn sending(destination: &Destination, more: &str) -> Gateway {
    let settings = format!(
        "endpoint: \"{}\", headers: {{Content-Encoding: gzip, Content-Type: text/plain, User-Agent: me, \
         X-Prometheus-Remote-Write-Version: '7'}}, retry_on_failure: {{initial_interval: 50ms}}, \
         sending_queue: {{batch: {{flush_timeout: 5ms, min_size: 1}}}}{more}",
        destination.url()
    );
    Gateway::start(
        &Config::new()
            .signals(&["metrics"])
            .exporter("prometheusremotewrite", &settings),
    )
    .await
}

async fn send(gateway: &Gateway, body: impl Into<bytes::Bytes>) {
    let reply = post(gateway.http(), "/v1/metrics", &[("content-type", V1)], body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// Holds labels to: complete with a name, sorted, each once, none empty.
fn check_labels<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) {
    let labels: Vec<_> = labels.collect();
    assert!(labels.is_sorted_by(|a, b| a.0 < b.0), "{labels:?}");
    assert!(
        labels
            .iter()
            .all(|(name, value)| !name.is_empty() && !value.is_empty())
    );
    assert!(labels.iter().any(|(name, _)| *name == "__name__"), "{labels:?}");
}

/// Milliseconds of about now, as the generator makes them; in order.
fn check_times(samples: &[Sample]) {
    assert!(
        samples
            .iter()
            .all(|sample| (1_000_000_000_000..10_000_000_000_000).contains(&sample.timestamp_ms))
    );
    assert!(samples.is_sorted_by_key(|sample| sample.timestamp_ms));
}

/// Scenario: metrics of every kind to a destination in each version, with headers configured that are the protocol's; the first answer has a body.
/// Guarantees: POST, a snappy block, the version's own headers, whatever is configured; complete label sets, sorted, without repeats; a table of symbols
/// that begins with the empty one and has each once; samples or histograms, not both; milliseconds; in 2.0 types and starts. A body on success is ignored.
#[tokio::test(flavor = "multi_thread")]
async fn requests_are_as_the_specifications_say() {
    for (more, content_type, version) in [
        ("", V1, "0.1.0"),
        (", protobuf_message: io.prometheus.write.v2.Request", V2, "2.0.0"),
    ] {
        let destination = Destination::start().await;
        destination.answer(|_| {
            let mut response = taken();
            *response.status_mut() = http::StatusCode::OK;
            *response.body_mut() = "out of order sample".into();
            response
        });
        let gateway = sending(&destination, more).await;
        let mut generator = Generator::new(Spec::mixed(Signal::Metrics));
        for _ in 0..4 {
            send(&gateway, generator.next_request().body).await;
        }
        gateway.settled().await;
        let (mut typed, mut started) = (0, 0);
        let asked = destination.asked();
        assert!(!asked.is_empty());
        for one in asked {
            assert_eq!(
                (one.head.method.as_str(), one.head.uri.path()),
                ("POST", "/api/v1/write")
            );
            assert_eq!(one.header("content-type"), content_type);
            assert_eq!(one.header("content-encoding"), "snappy");
            assert_eq!(one.header("x-prometheus-remote-write-version"), version);
            let agent = one.header("user-agent").strip_prefix("sluice/");
            assert!(agent.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit())));
            if content_type == V1 {
                for series in one.first().series {
                    check_labels(series.labels.iter().map(|label| (&*label.name, &*label.value)));
                    check_times(&series.samples);
                    assert!(series.samples.is_empty() != series.histograms.is_empty());
                    assert!(series.samples.iter().all(|sample| sample.start_ms == 0));
                }
                continue;
            }
            let request = one.second();
            assert_eq!(request.symbols[0], "");
            let unique: HashSet<_> = request.symbols.iter().collect();
            assert_eq!(unique.len(), request.symbols.len());
            for series in request.series {
                let symbol = |reference: u32| &*request.symbols[reference as usize];
                let (pairs, odd) = series.labels_refs.as_chunks::<2>();
                assert!(odd.is_empty());
                check_labels(pairs.iter().map(|[name, value]| (symbol(*name), symbol(*value))));
                check_times(&series.samples);
                assert!(series.samples.is_empty() != series.histograms.is_empty());
                let metadata = series.metadata.unwrap_or_default();
                let _in_range = (symbol(metadata.help_ref), symbol(metadata.unit_ref));
                typed += u32::from(metadata.kind != 0);
                started += u32::from(series.samples.iter().any(|sample| sample.start_ms != 0));
            }
        }
        assert!(content_type == V1 || typed > 0 && started > 0);
        gateway.stop().await;
    }
}

/// Scenario: destinations that answer everything with one status that must not be retried, until they are mended; to ten series over five lanes, in each version.
/// Guarantees: one request, the next one, the probe, not within 4 s, and no third within 8 s; what the destination says is in the log as it said it; once it is mended
/// everything is delivered.
#[tokio::test(flavor = "multi_thread")]
async fn what_must_not_be_retried_is_asked_once_and_held() {
    let mut all = tokio::task::JoinSet::new();
    for (status, more) in [400, 401, 403, 404, 413, 422].into_iter().flat_map(|status| {
        ["", ", protobuf_message: io.prometheus.write.v2.Request"].map(|more| (status, more))
    }) {
        all.spawn(async move {
            let destination = Destination::start().await;
            // It is mended after the first request and the first probe.
            let asked = AtomicUsize::new(0);
            destination.answer(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
                0 | 1 => answer(status, &[], "said: the <tenant> \"x\" is unknown"),
                _ => taken(),
            });
            let gateway = sending(&destination, more).await;
            send(&gateway, round_of_points(0, 10)).await;
            gateway.says("said: the <tenant>").await;
            eventually("the backlog is held", || async {
                let metrics = gateway.metrics().await;
                (metrics.sum("sluice_exporter_held", &[]) == 1.0).then_some(())
            })
            .await;
            gateway.settled().await;
            let asked = destination.asked();
            let after = |request: usize| asked[request].at - asked[0].at;
            assert!(after(1) >= Duration::from_secs(4), "{status}: {:?}", after(1));
            assert!(after(2) >= Duration::from_secs(8), "{status}: {:?}", after(2));
            let account = gateway.account("prometheusremotewrite").await;
            assert_eq!(
                (account.accepted, account.delivered),
                (10, 10),
                "{status}: {account:?}"
            );
            gateway.stop().await;
        });
    }
    while let Some(ended) = all.join_next().await {
        ended.unwrap();
    }
}

/// Scenario: a destination answers 429, 500, 502, 503 and 504, the first with a `Retry-After` of two seconds, and then takes what it is sent.
/// Guarantees: each is tried again, with the same body; not before the two seconds have passed where they were asked for.
#[tokio::test(flavor = "multi_thread")]
async fn what_has_to_be_retried_is_retried() {
    const STATUSES: [u16; 5] = [429, 500, 502, 503, 504];
    let destination = Destination::start().await;
    let left = std::sync::Mutex::new(STATUSES.to_vec());
    destination.answer(move |_| {
        let mut left = left.lock().unwrap();
        match left.is_empty() {
            true => taken(),
            false => match left.remove(0) {
                429 => answer(429, &[("retry-after", "2")], "slow down"),
                status => answer(status, &[], "later"),
            },
        }
    });
    let gateway = sending(&destination, ", remote_write_queue: {num_consumers: 1}").await;
    send(&gateway, round_of_points(0, 10)).await;
    gateway.settled().await;
    let asked = destination.asked();
    assert_eq!(asked.len(), STATUSES.len() + 1);
    assert!(asked.iter().all(|one| one.wire == asked[0].wire));
    assert!(asked[1].at - asked[0].at >= Duration::from_secs(2));
    let account = gateway.account("prometheusremotewrite").await;
    assert_eq!((account.accepted, account.delivered), (10, 10), "{account:?}");
    gateway.stop().await;
}

/// Scenario: to destinations that do not read 2.0: one says so with 415, one takes it for an empty request of 1.0 and answers 204 without any `Written` header.
/// Guarantees: the same samples are sent as 1.0, with the headers of that; from then on nothing is sent as 2.0.
#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_does_not_read_2_0_gets_1_0() {
    for status in [415, 204] {
        let destination = Destination::start().await;
        destination.answer(move |asked| match asked.header("content-type") {
            V2 => answer(status, &[], ""),
            _ => answer(204, &[], ""),
        });
        let more =
            ", protobuf_message: io.prometheus.write.v2.Request, remote_write_queue: {num_consumers: 1}";
        let gateway = sending(&destination, more).await;
        for round in 0..3 {
            send(&gateway, round_of_points(round, 10)).await;
            gateway.settled().await;
        }
        let asked = destination.asked();
        let types: Vec<_> = asked.iter().map(|one| one.header("content-type")).collect();
        assert_eq!(types, [V2, V1, V1, V1], "{status}");
        assert!(
            asked[1..]
                .iter()
                .all(|one| one.header("x-prometheus-remote-write-version") == "0.1.0")
        );
        let samples = |series: &[super::destination::FirstSeries]| -> usize {
            series.iter().map(|series| series.samples.len()).sum()
        };
        assert!(asked[1..].iter().all(|one| samples(&one.first().series) == 10));
        gateway.stop().await;
    }
}

/// Scenario: a destination of 1.0 with a queue on disk refuses one series of ten, after it has taken something.
/// Guarantees: nine are delivered; the tenth is a dead letter, named in the log, which `journal stat` tells of and `journal export` prints.
#[tokio::test(flavor = "multi_thread")]
async fn a_series_that_is_refused_is_a_dead_letter() {
    let destination = Destination::start().await;
    destination.answer(|asked| {
        let is_bad = |series: &super::destination::FirstSeries| {
            series.samples.iter().any(|sample| sample.value == 1.0)
                && series
                    .labels
                    .iter()
                    .any(|label| label.name == "series" && label.value == "7")
        };
        match asked.first().series.iter().any(is_bad) {
            true => answer(400, &[], "series 7 is too old"),
            false => taken(),
        }
    });
    let spool = tempfile::tempdir().unwrap();
    let config = Config::new()
        .signals(&["metrics"])
        .extension("file_storage", &format!("directory: {}", spool.path().display()))
        .exporter(
            "prometheusremotewrite",
            &format!(
                "endpoint: \"{}\", sending_queue: {{storage: file_storage, batch: {{flush_timeout: 5ms, min_size: 1}}}}",
                destination.url()
            ),
        );
    let gateway = Gateway::start(&config).await;
    for round in 0..2 {
        send(&gateway, round_of_points(round, 10)).await;
        gateway.settled().await;
    }
    gateway.says("series 7 is too old").await;
    assert!(gateway.log().contains("level"), "the series is named");
    let account = gateway.account("prometheusremotewrite").await;
    assert_eq!((account.accepted, account.delivered), (20, 19), "{account:?}");
    assert_eq!(account.dropped.get("dead_letter"), Some(&1), "{account:?}");
    gateway.stop().await;
    let spool = spool.path().display().to_string();
    let (code, told, said) = Gateway::command(&["journal", "stat", &spool]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(told.contains("series 7 is too old"), "{told}");
    let dead = format!("{spool}/metrics.dead");
    let (code, exported, said) = Gateway::command(&["journal", "export", &dead]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("1 requests with 1 items; 0 refused"), "{said}");
    assert!(
        exported.contains("level") && exported.contains("\"7\""),
        "{exported}"
    );
}
