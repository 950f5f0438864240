//! From a validated payload to the slices of an export body, as the gateway does it: intake, journal, batcher,
//! delivery, settling. Only the sockets at both ends are left out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sluice_admission::{Budget, GuardSettings, Tracker};
use sluice_client::Slices;
use sluice_journal::{CursorSpec, Journal, Limits, OnFull};
use sluice_loadgen::Signal;
use sluice_payload::{Payload, TenantId, WireFormat};
use sluice_pipeline::{
    AckLevel, Batch, BatchSettings, DeliverySettings, Export, Exporter, Intake, RetrySettings, Route, Sizer,
    Verdict, deliver,
};
use sluice_telemetry::Registry;

/// Never in the way: what is measured is the path, not how it refuses.
const BUDGET_BYTES: u64 = 4 << 30;

/// A batch goes because it is full. A timer that went off in the middle (everything is some fifty times slower under
/// valgrind) would make a second batch of it.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3600);

/// The Collector's `num_consumers`.
const MAX_IN_FLIGHT: usize = 10;

/// One pipeline with one exporter, which makes the body of an export request of every batch and sends it nowhere.
/// Cloning shares it: one clone for each producer.
#[derive(Debug, Clone)]
pub struct BatchPath {
    signal: sluice_payload::Signal,
    intake: Intake,
    journal: Journal,
    budget: Budget,
    exporter: Arc<Slicing>,
}

impl BatchPath {
    /// A batch goes when it holds `batch_items`. To be called inside a tokio runtime with time, which runs the delivery.
    pub fn start(signal: Signal, batch_items: u64) -> Self {
        let signal = match signal {
            Signal::Metrics => sluice_payload::Signal::Metrics,
            Signal::Logs => sluice_payload::Signal::Logs,
            Signal::Traces => sluice_payload::Signal::Traces,
        };
        let cursor = CursorSpec {
            exporter: "slicing".into(),
            limits: Limits::default(),
            on_full: OnFull::Refuse,
        };
        let (journal, cursors) = Journal::memory("batch_path", vec![cursor]);
        let exporter = Arc::new(Slicing::default());
        for cursor in cursors {
            let settings = DeliverySettings {
                exporter: "slicing".into(),
                batch: BatchSettings {
                    min_size: batch_items,
                    max_size: None,
                    sizer: Sizer::Items,
                    flush_timeout: FLUSH_TIMEOUT,
                },
                retry: RetrySettings::default(),
                max_in_flight: MAX_IN_FLIGHT,
                latency: Arc::new(Tracker::new(&GuardSettings::default().tracker)),
                dead_letters: None,
            };
            tokio::spawn(deliver(
                cursor,
                signal,
                exporter.clone(),
                settings,
                Registry::default(),
            ));
        }
        let route = Route {
            journal: journal.clone(),
            ack: AckLevel::Accepted,
            passing_through: Vec::new(),
            block_for: Duration::ZERO,
            straight: false,
        };
        Self {
            signal,
            intake: Intake::new([(signal, route)]),
            journal,
            budget: Budget::new(BUDGET_BYTES),
            exporter,
        }
    }

    /// Takes one validated body, as a receiver does once it has scanned it.
    ///
    /// # Panics
    /// When it is not taken: then what is measured is not the path.
    pub async fn take(&self, body: Bytes, items: u64) {
        let permit = self.budget.try_reserve(body.len() as u64);
        let payload = Payload {
            signal: self.signal,
            body,
            wire_format: WireFormat::Otlp,
            frame: None,
            items,
            tenant: TenantId::DEFAULT,
            received_at: Instant::now(),
            permit,
        };
        let taken = self.intake.take(payload, Duration::ZERO).await;
        assert!(taken.is_ok(), "the batch path refused a payload: {taken:?}");
    }

    /// Waits until all that was taken went out; what does not fill a batch would wait for an hour.
    pub async fn settled(&self) {
        self.journal.drained().await;
    }

    /// Bytes of all export bodies so far.
    pub fn bytes_out(&self) -> u64 {
        self.exporter.bytes_out.load(Ordering::Relaxed)
    }
}

/// Lays the parts of a batch end to end as the OTLP exporters do, and walks the slices as a socket would.
#[derive(Debug, Default)]
struct Slicing {
    bytes_out: AtomicU64,
}

impl Exporter for Slicing {
    fn export<'a>(&'a self, batch: &'a Batch) -> Export<'a> {
        Box::pin(async move {
            let body = Slices::new(batch.parts.iter().map(|part| part.body.clone()));
            let bytes: usize = body.iter().map(|slice| slice.len()).sum();
            self.bytes_out.fetch_add(bytes as u64, Ordering::Relaxed);
            Verdict::Delivered {
                rejected: 0,
                message: None,
            }
        })
    }

    fn max_request_bytes(&self) -> usize {
        usize::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SHAPES, requests};

    /// Scenario: two full batches of requests of every signal through the path.
    /// Guarantees: every byte that went in went out, and the memory it held is given back.
    #[test]
    fn every_byte_goes_through() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime without I/O needs nothing from the system");
        for signal in Signal::ALL {
            let spec = SHAPES[0].1(signal);
            let items = u64::from(spec.items_per_request);
            let bodies = requests(spec, 8);
            runtime.block_on(async {
                let path = BatchPath::start(signal, 4 * items);
                for body in &bodies {
                    path.take(body.clone(), items).await;
                }
                path.settled().await;
                let bytes: usize = bodies.iter().map(Bytes::len).sum();
                assert_eq!(path.bytes_out(), bytes as u64, "{signal:?}");
                assert_eq!(path.budget.usage().used, 0, "{signal:?}");
            });
        }
    }
}
