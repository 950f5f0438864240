//! The metrics of the exporter.

use sluice_telemetry::{Counter, Gauge, Registry};

use crate::cumulative::Fault;
use crate::dropped::Reason;

/// What an exporter counts.
#[derive(Debug)]
pub(super) struct Metrics {
    pub samples: Counter,
    /// Samples, histograms, exemplars.
    pub unwritten: [Counter; 3],
    pub refused_series: Counter,
    pub older_samples: Counter,
    pub too_old_samples: Counter,
    pub dropped: [Counter; Reason::ALL.len()],
    pub label_collisions: Counter,
    pub name_collisions: Counter,
    pub dropped_exemplars: Counter,
    pub totals_lost: [Counter; Fault::ALL.len()],
}

impl Metrics {
    pub fn new(registry: &Registry, exporter: &str) -> Self {
        let labels = || vec![("exporter", exporter.to_owned())];
        Self {
            samples: registry.counter(
                "sluice_remote_write_samples_total",
                "Samples and native histograms that the destination has taken.",
                labels(),
            ),
            unwritten: ["samples", "histograms", "exemplars"].map(|kind| {
                let mut labels = labels();
                labels.push(("kind", kind.to_owned()));
                registry.counter(
                    "sluice_remote_write_unwritten_total",
                    "What a destination said it had not written of a request that it took, and never will.",
                    labels,
                )
            }),
            refused_series: registry.counter(
                "sluice_remote_write_refused_series_total",
                "Series of a request that the destination refused for good, found by bisection; the log names them.",
                labels(),
            ),
            older_samples: registry.counter(
                "sluice_remote_write_older_samples_total",
                "Samples of refused requests that the destination has all the same, or that come too late for it: it took the newest ones of their series again and \
                 refused what is before.",
                labels(),
            ),
            too_old_samples: registry.counter(
                "sluice_remote_write_too_old_samples_total",
                "Samples that are older than the destination takes, dropped so that what is newer arrives.",
                labels(),
            ),
            dropped: Reason::ALL.map(|reason| {
                let mut labels = labels();
                labels.push(("reason", reason.as_str().to_owned()));
                registry.counter(
                    "sluice_remote_write_dropped_points_total",
                    "Data points that cannot be sent as remote write, or are not to be.",
                    labels,
                )
            }),
            label_collisions: registry.counter(
                "sluice_remote_write_label_collisions_total",
                "Attributes that became a label which the series had already: those of a point are joined, others are left out; a resource's or scope's are counted once a request.",
                labels(),
            ),
            name_collisions: registry.counter(
                "sluice_remote_write_name_collisions_total",
                "Metrics that came with a name, or a histogram's or summary's with a suffix, which another one had become before, counted each time.",
                labels(),
            ),
            dropped_exemplars: registry.counter(
                "sluice_remote_write_dropped_exemplars_total",
                "Exemplars that were not sent: of gauges, without a value, or to 2.0 in a series without a sample.",
                labels(),
            ),
            totals_lost: Fault::ALL.map(|fault| {
                let mut labels = labels();
                labels.push(("reason", fault.as_str().to_owned()));
                registry.counter(
                    "sluice_remote_write_totals_lost_total",
                    "Times the totals of deltas could not be read or written: after a restart they begin anew.",
                    labels,
                )
            }),
        }
    }
}

/// How many requests may be under way to one endpoint.
pub(super) fn concurrency_limit(registry: &Registry, exporter: &str, shard: usize) -> Gauge {
    registry.gauge(
        "sluice_remote_write_concurrency_limit",
        "Requests that may be under way to an endpoint: up to its lanes, as many as it answers without keeping them waiting.",
        vec![("exporter", exporter.to_owned()), ("shard", shard.to_string())],
    )
}
