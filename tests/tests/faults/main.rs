//! Destinations that fail in every way, and what becomes of the items: nothing is lost silently, nothing
//! is counted wrongly.

#![allow(clippy::unwrap_used, reason = "tests")]

mod destination;
mod endpoints;
mod ledger;
mod pass_through;
mod shutdown;

use sluice_tests::{Gateway, Kind, grpc_call, post, sample};

/// Items in one [`sample`].
const ITEMS: usize = 50;

/// Sends samples with these seeds, all of which must be taken.
async fn send(gateway: &Gateway, kind: Kind, seeds: std::ops::Range<u64>) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    for seed in seeds {
        let body = sample(kind, seed);
        if seed % 2 == 0 {
            let headers = [("content-type", "application/x-protobuf")];
            let reply = post(gateway.http(), kind.http_path(), &headers, body.clone()).await;
            assert_eq!(reply.status, 200, "{reply:?}");
        } else {
            let reply = grpc_call(
                gateway.grpc(),
                kind.grpc_path(),
                &[],
                sluice_tests::frame(0, &body),
            )
            .await;
            assert_eq!(reply.code(), 0, "{reply:?}");
        }
        sent.push(body);
    }
    sent
}
