//! What a receiver counts.

use sluice_payload::Signal;
use sluice_server::Refusal;
use sluice_telemetry::{Counter, Registry};

use super::Transport;

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
    signals: Vec<SignalMetrics>,
}

#[derive(Debug)]
struct SignalMetrics {
    accepted_items: Counter,
    accepted_requests: Counter,
    received_bytes: Counter,
    refused: [Counter; REASONS.len()],
}

impl Metrics {
    pub fn new(registry: &Registry, receiver: &str, transport: Transport) -> Self {
        let signals = Signal::ALL
            .iter()
            .map(|signal| {
                let labels = |more: Option<&'static str>| {
                    let mut labels = vec![
                        ("receiver", receiver.to_owned()),
                        ("signal", signal.to_string()),
                        ("transport", transport.as_str().to_owned()),
                    ];
                    labels.extend(more.map(|reason| ("reason", reason.to_owned())));
                    labels
                };
                SignalMetrics {
                    accepted_items: registry.counter(
                        "sluice_receiver_accepted_items_total",
                        "Data points, log records, spans and profiles taken in.",
                        labels(None),
                    ),
                    accepted_requests: registry.counter(
                        "sluice_receiver_accepted_requests_total",
                        "Requests taken in.",
                        labels(None),
                    ),
                    received_bytes: registry.counter(
                        "sluice_receiver_accepted_bytes_total",
                        "Body bytes of the requests taken in, as they came over the wire.",
                        labels(None),
                    ),
                    refused: REASONS.map(|reason| {
                        registry.counter(
                            "sluice_receiver_refused_requests_total",
                            "Requests turned away, before their items were counted.",
                            labels(Some(reason)),
                        )
                    }),
                }
            })
            .collect();
        Self { signals }
    }

    pub fn accepted(&self, signal: Signal, items: u64, wire_bytes: u64) {
        let metrics = &self.signals[signal as usize];
        metrics.accepted_items.add(items);
        metrics.accepted_requests.add(1);
        metrics.received_bytes.add(wire_bytes);
    }

    pub fn refused(&self, signal: Signal, refusal: &Refusal) {
        let reason = refusal.reason();
        debug_assert!(REASONS.contains(&reason), "{reason} is not in the list");
        if let Some(index) = REASONS.iter().position(|known| *known == reason) {
            self.signals[signal as usize].refused[index].add(1);
        }
    }
}
