//! What a batch goes through behind validation.

use std::hint::black_box;

use bytes::Bytes;
use sluice_client::{Compression, compress};
use sluice_loadgen::{Signal, Spec};
use sluice_workloads::{BatchPath, requests};

use crate::{Entry, Workload, each_request};

/// Requests in a batch: what the default of 8192 items gathers of the gateway comparison's 500.
const BATCH_REQUESTS: usize = 16;

/// Batches in a round of [`batch`], over which the random order of tokio's `select!` evens out.
const BATCHES: u64 = 8;

pub fn entries(entries: &mut Vec<Entry>) {
    each_request(entries, "batch", batch);
    each_request(entries, "zstd", zstd);
}

/// Payload, permit, journal, batcher, delivery, slices of the body, settling: on one thread, as with one core.
fn batch(signal: Signal, spec: Spec) -> Workload {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime without I/O needs nothing from the system");
    let request_items = u64::from(spec.items_per_request);
    let batch_items = request_items * BATCH_REQUESTS as u64;
    let bodies = requests(spec, BATCH_REQUESTS);
    let path = runtime.block_on(async { BatchPath::start(signal, batch_items) });
    Workload::new(BATCHES * batch_items, move || {
        for _ in 0..BATCHES {
            runtime.block_on(async {
                for body in &bodies {
                    path.take(body.clone(), request_items).await;
                }
                path.settled().await;
            });
        }
    })
}

/// A batch's chain of slices as one body, at the default level.
fn zstd(_: Signal, spec: Spec) -> Workload {
    let items = u64::from(spec.items_per_request) * BATCH_REQUESTS as u64;
    let bodies = requests(spec, BATCH_REQUESTS);
    let bytes = bodies.iter().map(Bytes::len).sum();
    Workload::new(items, move || {
        let slices = black_box(&bodies).iter().map(|body| &body[..]);
        let level = Compression::Zstd.default_level();
        black_box(compress(Compression::Zstd, level, slices, bytes).expect("zstd works"));
    })
}
