//! Whose the data is, told to the destination.

use std::collections::BTreeMap;

use sluice_tests::{Config, Gateway, post, snappy_block};

use super::destination::{Destination, answer, taken};
use super::through::round_of_samples;
use super::{V1, round_of_points};

const SERIES: u64 = 20;
const ROUNDS: u64 = 12;

/// Who sends a round, and what the destination is told; the last names nobody.
const TENANTS: [(Option<&str>, &str); 3] = [(Some("a"), "a"), (Some("b"), "b"), (None, "anonymous")];

/// Sends the rounds in turn of the tenants, as OTLP and as remote write, of the same series.
async fn send_rounds(gateway: &Gateway, rounds: std::ops::Range<u64>) {
    let remote_write = gateway.bound("receivers.prometheusremotewrite");
    for round in rounds {
        let (tenant, _) = TENANTS[(round % 3) as usize];
        let tenant = tenant.map(|name| ("x-scope-orgid", name));
        let mut headers = vec![("content-type", V1)];
        headers.extend(tenant);
        let reply = match round % 2 {
            0 => {
                post(
                    gateway.http(),
                    "/v1/metrics",
                    &headers,
                    round_of_points(round, SERIES),
                )
                .await
            }
            _ => {
                headers.push(("content-encoding", "snappy"));
                let body = snappy_block(&round_of_samples(round, SERIES, V1));
                post(remote_write, "/api/v1/write", &headers, body).await
            }
        };
        assert!([200, 204].contains(&reply.status), "{}", reply.text());
    }
}

/// What was taken: the rounds of each series of each tenant, by what the header said, in order.
fn taken_of(destination: &Destination) -> BTreeMap<(String, String), Vec<u64>> {
    let mut all: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for asked in destination.asked().iter().filter(|asked| asked.status == 204) {
        for series in asked.first().series {
            let label = series.labels.iter().find(|label| label.name == "series");
            let key = (
                asked.header("thanos-tenant").to_owned(),
                label.unwrap().value.clone(),
            );
            let rounds = series.samples.iter().map(|sample| sample.value as u64);
            all.entry(key).or_default().extend(rounds);
        }
    }
    all
}

/// Scenario: two tenants and nobody send the same series in turn, as OTLP and as remote write, while the destination takes nothing; with the queue in memory, and on
/// disk with a kill before it takes anything.
/// Guarantees: each request is of one tenant and says so, data of nobody as configured, over the restart too; the samples of each series of a tenant are in order.
#[tokio::test(flavor = "multi_thread")]
async fn the_destination_is_told_whose_the_data_is() {
    for on_disk in [false, true] {
        let destination = Destination::start().await;
        destination.answer(|_| answer(503, &[], "later"));
        let spool = tempfile::tempdir().unwrap();
        let tenant = "tenant: {from_header: X-Scope-OrgID}";
        let storage = if on_disk { "storage: file_storage, " } else { "" };
        let mut config = Config::new()
            .signals(&["metrics"])
            .receiver(tenant)
            .metrics_receiver("prometheusremotewrite", &format!("endpoint: \"127.0.0.1:0\", {tenant}"))
            .exporter(
                "prometheusremotewrite",
                &format!(
                    "endpoint: \"{}\", tenant_header: THANOS-TENANT, default_tenant: anonymous, remote_write_queue: {{num_consumers: 4}}, \
                     retry_on_failure: {{initial_interval: 20ms, max_interval: 50ms}}, \
                     sending_queue: {{{storage}batch: {{flush_timeout: 5ms}}}}",
                    destination.url()
                ),
            );
        if on_disk {
            let directory = format!("directory: {}", spool.path().display());
            config = config.extension("file_storage", &directory);
        }
        let mut gateway = Gateway::start(&config).await;
        send_rounds(&gateway, 0..ROUNDS).await;
        if on_disk {
            gateway.kill().await;
            gateway = Gateway::start(&config).await;
        }
        destination.answer(|_| taken());
        send_rounds(&gateway, ROUNDS..2 * ROUNDS).await;
        gateway.settled().await;
        let all = taken_of(&destination);
        assert_eq!(all.len() as u64, 3 * SERIES, "{:?}", all.keys());
        for ((tenant, series), rounds) in all {
            let of = |round: &u64| TENANTS[(round % 3) as usize].1 == tenant;
            let want: Vec<u64> = (0..2 * ROUNDS).filter(of).collect();
            assert_eq!(rounds, want, "{series} of {tenant}, on disk: {on_disk}");
        }
        let delivered = gateway.tenants("prometheusremotewrite").await;
        assert_eq!(delivered.len(), 3, "{delivered:?}");
        gateway.stop().await;
    }
}
