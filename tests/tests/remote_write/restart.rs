//! Acknowledged when delivered, and another number of lanes after a restart.

use std::collections::BTreeMap;
use std::sync::Mutex;

use sluice_tests::{Config, Gateway, post, snappy_block};

use super::destination::{Destination, FirstSeries, answer, taken};
use super::through::round_of_samples;
use super::{V1, round_of_points, write};

const SERIES: u64 = 50;

/// What was taken of each series, in order.
fn taken_by_series(destination: &Destination) -> BTreeMap<String, Vec<u64>> {
    let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let name = |series: &FirstSeries| {
        let label = series.labels.iter().find(|label| label.name == "series");
        label.map(|label| label.value.clone())
    };
    for asked in destination.asked().iter().filter(|asked| asked.status == 204) {
        for series in asked.first().series {
            if let Some(name) = name(&series) {
                let values = series.samples.iter().map(|sample| sample.value as u64);
                all.entry(name).or_default().extend(values);
            }
        }
    }
    all
}

/// Scenario: a pipeline that acknowledges delivery, fed with OTLP and with remote write; the destination refuses each request once before it takes it.
/// Guarantees: a sender is answered after its samples were taken, and not before.
#[tokio::test(flavor = "multi_thread")]
async fn a_sender_is_answered_when_it_is_delivered() {
    let destination = Destination::start().await;
    let refused = Mutex::new(Vec::new());
    destination.answer(move |asked| {
        let mut refused = refused.lock().unwrap();
        if refused.contains(&asked.wire) {
            return taken();
        }
        refused.push(asked.wire.clone());
        answer(503, &[], "later")
    });
    let config = Config::new()
        .signals(&["metrics"])
        .metrics_receiver("prometheusremotewrite", "endpoint: \"127.0.0.1:0\"")
        .exporter(
            "prometheusremotewrite",
            &format!(
                "endpoint: \"{}\", retry_on_failure: {{initial_interval: 50ms}}, \
                 sending_queue: {{batch: {{flush_timeout: 5ms, min_size: 1}}}}",
                destination.url()
            ),
        );
    let gateway = Gateway::start_with(&config, &["--set", "service.pipelines.metrics.ack=delivered"]).await;
    for round in 0..4 {
        let reply = match round % 2 {
            0 => {
                let body = round_of_points(round, SERIES);
                post(gateway.http(), "/v1/metrics", &[("content-type", V1)], body).await
            }
            _ => {
                write(
                    &gateway,
                    V1,
                    "snappy",
                    snappy_block(&round_of_samples(round, SERIES, V1)),
                )
                .await
            }
        };
        assert!([200, 204].contains(&reply.status), "{}", reply.text());
        let taken = taken_by_series(&destination);
        assert_eq!(taken.len() as u64, SERIES);
        let want: Vec<u64> = (0..=round).collect();
        assert!(taken.values().all(|values| *values == want), "{round}: {taken:?}");
    }
    gateway.stop().await;
}

/// Scenario: a queue on disk is filled while the destination takes nothing, and the gateway killed; it is started with fewer lanes, killed when something was
/// taken, and started with more.
/// Guarantees: every sample is taken, of each series in order but for what a start sends again.
#[tokio::test(flavor = "multi_thread")]
async fn another_number_of_lanes_after_a_restart() {
    const ROUNDS: u64 = 20;
    let destination = Destination::start().await;
    destination.answer(|_| answer(503, &[], "later"));
    let spool = tempfile::tempdir().unwrap();
    let config = |lanes: usize| {
        Config::new()
            .signals(&["metrics"])
            .extension("file_storage", &format!("directory: {}", spool.path().display()))
            .exporter(
                "prometheusremotewrite",
                &format!(
                    "endpoint: \"{}\", remote_write_queue: {{num_consumers: {lanes}}}, retry_on_failure: {{initial_interval: 20ms, \
                     max_interval: 50ms}}, sending_queue: {{storage: file_storage, batch: {{flush_timeout: 5ms, min_size: {SERIES}, \
                     max_size: {SERIES}}}}}",
                    destination.url()
                ),
            )
    };
    let first = Gateway::start(&config(16)).await;
    for round in 0..ROUNDS {
        let body = round_of_points(round, SERIES);
        let reply = post(first.http(), "/v1/metrics", &[("content-type", V1)], body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    first.kill().await;
    destination.answer(|_| taken());
    let asked = destination.asked().len();
    let second = Gateway::start(&config(3)).await;
    destination.wait_for(asked + 10).await;
    second.kill().await;
    let third = Gateway::start(&config(7)).await;
    third.settled().await;
    third.stop().await;
    let taken = taken_by_series(&destination);
    assert_eq!(taken.len() as u64, SERIES);
    for (series, rounds) in taken {
        let mut next = 0;
        let mut rewinds = 0;
        for round in &rounds {
            assert!(*round <= next, "{series}: {rounds:?}");
            rewinds += u32::from(*round < next);
            next = round + 1;
        }
        assert!(next == ROUNDS && rewinds <= 1, "{series}: {rounds:?}");
    }
}
