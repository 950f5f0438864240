//! Compressing a batch of gateway payloads, as the exporters do it: a chain of slices, contexts reused.
//!
//! `chain` is eight 110 KB requests (a batch), `one` is a single request. `zstd-copy` is what it would cost
//! to lay the batch together first and compress it with a new context, as a straightforward client does.
//! Sizes are printed once before the measurements: bytes in, bytes out, per compression and level.

#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sluice_client::{Compression, compress, inflate};
use sluice_loadgen::{Generator, Signal, Spec};

/// Requests in a batch: what 200 ms gather at some 20,000 items/s.
const REQUESTS: usize = 8;

const CASES: [(&str, Compression, i32); 9] = [
    ("zstd-1", Compression::Zstd, 1),
    ("zstd-3", Compression::Zstd, 3),
    ("zstd-fast", Compression::Zstd, -3),
    ("gzip-1", Compression::Gzip, 1),
    ("gzip-3", Compression::Gzip, 3),
    ("gzip-6", Compression::Gzip, 6),
    ("snappy", Compression::Snappy, 1),
    ("snappy-framed", Compression::SnappyFramed, 1),
    ("lz4", Compression::Lz4, 1),
];

fn requests(signal: Signal) -> Vec<Bytes> {
    let mut generator = Generator::new(Spec::gateway(signal));
    (0..REQUESTS).map(|_| generator.next_request().body).collect()
}

fn pack(compression: Compression, level: i32, slices: &[Bytes]) -> Vec<u8> {
    let total = slices.iter().map(Bytes::len).sum();
    compress(compression, level, slices.iter().map(|slice| &slice[..]), total).expect("encoders work")
}

fn compression(c: &mut Criterion) {
    for signal in [Signal::Metrics, Signal::Logs, Signal::Traces] {
        let batch = requests(signal);
        for (shape, slices) in [("chain", &batch[..]), ("one", &batch[..1])] {
            let total: usize = slices.iter().map(Bytes::len).sum();
            let mut group = c.benchmark_group(format!("compress/{signal:?}/{shape}"));
            group.throughput(Throughput::Bytes(total as u64));
            for (name, compression, level) in CASES {
                let packed = pack(compression, level, slices);
                let whole = inflate(compression, &packed, total).expect("it was just compressed");
                assert!(whole.len() == total);
                eprintln!("{signal:?} {shape} {name}: {total} -> {} bytes", packed.len());
                group.bench_function(name, |b| b.iter(|| pack(compression, level, black_box(slices))));
            }
            group.bench_function("zstd-copy", |b| {
                b.iter(|| zstd::bulk::compress(&black_box(slices).concat(), 1).expect("zstd works"));
            });
            group.finish();
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1));
    targets = compression
}
criterion_main!(benches);
