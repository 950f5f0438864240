//! What a receiver counts: the names and labels of the OTLP receivers.

use sluice_payload::Signal;
use sluice_server::Refusal;
use sluice_telemetry::{Counter, Registry};

use crate::decode::Taken;

/// Every value of the `reason` label: known at start, so that a refusal allocates nothing.
const REASONS: [&str; 11] = [
    "memory",
    "stalled",
    "level",
    "queue_full",
    "not_delivered",
    "too_large",
    "bad_data",
    "unsupported",
    "unauthorized",
    "too_slow",
    "disconnected",
];

#[derive(Debug)]
pub(super) struct Metrics {
    items: Counter,
    requests: Counter,
    bytes: Counter,
    left_out_exemplars: Counter,
    left_out_histograms: Counter,
    left_out_metadata: Counter,
    refused: [Counter; REASONS.len()],
}

impl Metrics {
    pub fn new(registry: &Registry, receiver: &str) -> Self {
        let labels = |more: Option<&'static str>| {
            let mut labels = vec![
                ("receiver", receiver.to_owned()),
                ("signal", Signal::Metrics.to_string()),
                ("transport", "http".to_owned()),
            ];
            labels.extend(more.map(|reason| ("reason", reason.to_owned())));
            labels
        };
        Self {
            items: registry.counter(
                "sluice_receiver_accepted_items_total",
                "Data points, log records, spans and profiles taken in.",
                labels(None),
            ),
            requests: registry.counter(
                "sluice_receiver_accepted_requests_total",
                "Requests taken in.",
                labels(None),
            ),
            bytes: registry.counter(
                "sluice_receiver_accepted_bytes_total",
                "Body bytes of the requests taken in, as they came over the wire.",
                labels(None),
            ),
            left_out_exemplars: registry.counter(
                "sluice_remote_write_left_out_exemplars_total",
                "Exemplars that came without a sample: in a series that OTLP has no place for, or in a request without any.",
                vec![("receiver", receiver.to_owned())],
            ),
            left_out_histograms: registry.counter(
                "sluice_remote_write_left_out_histograms_total",
                "Native histograms that OTLP cannot say, of requests that were taken otherwise and answered with 400.",
                vec![("receiver", receiver.to_owned())],
            ),
            left_out_metadata: registry.counter(
                "sluice_remote_write_left_out_metadata_total",
                "Metadata of metric families that waited for a request with samples and was forgotten, for want of room.",
                vec![("receiver", receiver.to_owned())],
            ),
            refused: REASONS.map(|reason| {
                registry.counter(
                    "sluice_receiver_refused_requests_total",
                    "Requests turned away, before their items were counted.",
                    labels(Some(reason)),
                )
            }),
        }
    }

    pub fn accepted(&self, taken: &Taken, wire_bytes: u64) {
        self.items.add(taken.points());
        self.left_out_exemplars.add(taken.left_out_exemplars);
        self.left_out_histograms.add(taken.left_out_histograms);
        self.requests.add(1);
        self.bytes.add(wire_bytes);
    }

    pub fn left_out_metadata(&self, families: u64) {
        self.left_out_metadata.add(families);
    }

    pub fn refused(&self, refusal: &Refusal) {
        let reason = refusal.reason();
        debug_assert!(REASONS.contains(&reason), "{reason} is not in the list");
        if let Some(index) = REASONS.iter().position(|known| *known == reason) {
            self.refused[index].add(1);
        }
    }
}
