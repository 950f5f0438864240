//! Real clients: the OpenTelemetry SDKs as their users have them. What they send must arrive at the
//! gateway's destination as it arrives at a destination without a gateway in between: every item once,
//! every attribute intact, compared as decoded trees.

#![allow(clippy::unwrap_used, reason = "tests")]

mod overload;
mod python_sdk;
mod rust_sdk;

use sluice_tests::{Config, Gateway, Items, Kind, Sink};

/// A gateway in front of a sink, and a reference sink for the same telemetry.
struct Bench {
    gateway: Gateway,
    sink: Sink,
    reference: Sink,
}

impl Bench {
    async fn new() -> Self {
        let (sink, reference) = (Sink::start().await, Sink::start().await);
        let gateway = Gateway::start(&Config::new().grpc_exporter("sink", &sink, "compression: zstd")).await;
        Self {
            gateway,
            sink,
            reference,
        }
    }

    /// Waits until everything that reached the reference has passed the gateway, and compares.
    async fn assert_equal(self, least: &[(Kind, usize)]) {
        let ledger = self.gateway.settled().await;
        for (kind, least) in least {
            let expected: Items = self.reference.items(*kind);
            assert!(
                expected.len() >= *least,
                "the client sent only {} {kind:?} items",
                expected.len()
            );
            self.sink
                .wait_for(*kind, expected.len())
                .await
                .assert_same(&expected);
        }
        let (accepted, delivered): (u64, u64) = (
            ledger.iter().map(|line| line.accepted).sum(),
            ledger.iter().map(|line| line.delivered).sum(),
        );
        let arrived: usize = Kind::STABLE.iter().map(|kind| self.sink.items(*kind).len()).sum();
        assert_eq!(
            (accepted, delivered),
            (arrived as u64, arrived as u64),
            "{ledger:?}"
        );
        self.gateway.stop().await;
    }
}
