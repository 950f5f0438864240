//! The journal on disk: append and acknowledge, alone and together, and reading a backlog back.
//!
//! The directory is that for temporary files; `TMPDIR` chooses another disk. `sync/raw` is what the disk itself takes for a
//! write of 4 KiB and a sync: what a single append cannot be below.

#![allow(missing_docs, reason = "criterion's macros")]

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sluice_journal::{
    Cursor, CursorSpec, DiskSettings, Durability, Journal, Limits, OnFull, Settled, SyncPolicy,
};
use sluice_loadgen::{Generator, Signal, Spec};
use sluice_payload::{Payload, Tenants};
use tokio::runtime::{Builder, Runtime};

/// A usual request of an SDK: some 8 KB.
const ITEMS: u32 = 25;

/// Requests that wait for an acknowledgement at the same time.
const TOGETHER: usize = 64;

/// Requests of a backlog that is read back: larger than what is kept in memory.
const BACKLOG: usize = 20_000;

fn body() -> Bytes {
    Generator::new(Spec::mixed(Signal::Logs).items(ITEMS).seed(7))
        .next_request()
        .body
}

fn payload(body: &Bytes) -> Arc<Payload> {
    let signal = sluice_payload::Signal::Logs;
    Arc::new(Payload::uncharged(signal, body.clone(), ITEMS.into()))
}

fn open(directory: &std::path::Path, sync: SyncPolicy) -> (Journal, Cursor) {
    let spec = CursorSpec {
        exporter: "bench".into(),
        limits: Limits::default(),
        on_full: OnFull::Refuse,
    };
    let settings = DiskSettings {
        sync,
        kept_bytes: 1 << 20,
        ..DiskSettings::new(directory, Tenants::default())
    };
    let (journal, mut cursors, _) = Journal::disk("bench", vec![spec], settings)
        .expect("the directory for temporary files can be written");
    (journal, cursors.remove(0))
}

async fn append(journal: &Journal, payload: Arc<Payload>) {
    let space = journal
        .try_reserve(journal.cost(&payload))
        .expect("there is no limit");
    let appended = journal.append(space, payload, None, Durability::Synced);
    appended.persisted().await.expect("the disk has room");
}

async fn read(cursor: &mut Cursor, requests: usize) {
    for _ in 0..requests {
        let entry = cursor.next().await.expect("it was appended");
        let delivered = entry.payload.items;
        cursor.settle(&[Settled {
            seq: entry.seq,
            delivered,
            dropped: None,
        }]);
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads can be started")
}

/// Appends `rounds` payloads, `together` at a time, and empties the journal outside of the time that counts.
fn appends(
    runtime: &Runtime,
    journal: &Journal,
    cursor: &mut Cursor,
    body: &Bytes,
    together: usize,
    rounds: u64,
) -> Duration {
    let mut took = Duration::ZERO;
    let mut left = rounds as usize;
    while left > 0 {
        let now = left.min(BACKLOG);
        let begun = Instant::now();
        runtime.block_on(async {
            let mut senders = tokio::task::JoinSet::new();
            for sender in 0..together {
                let (journal, body) = (journal.clone(), body.clone());
                senders.spawn(async move {
                    for _ in (sender..now).step_by(together) {
                        append(&journal, payload(&body)).await;
                    }
                });
            }
            while senders.join_next().await.is_some() {}
        });
        took += begun.elapsed();
        runtime.block_on(read(cursor, now));
        left -= now;
    }
    took
}

fn journal(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("journal");
    group.sample_size(10).measurement_time(Duration::from_secs(4));
    let runtime = runtime();
    let body = body();

    let directory = tempfile::tempdir().expect("there is a directory for temporary files");
    let file = std::fs::File::create(directory.path().join("raw")).expect("it can be written");
    let mut offset = 0;
    group.bench_function("sync/raw", |b| {
        b.iter(|| {
            file.write_all_at(&[7; 4096], offset).expect("the disk has room");
            file.sync_data().expect("the disk works");
            offset += 4096;
        })
    });

    group.throughput(Throughput::Bytes(body.len() as u64));
    for (name, sync, together) in [
        ("append/group_commit/1", SyncPolicy::Group, 1),
        ("append/group_commit/64", SyncPolicy::Group, TOGETHER),
        ("append/sync_off/64", SyncPolicy::Off, TOGETHER),
    ] {
        let directory = tempfile::tempdir().expect("there is a directory for temporary files");
        let (journal, mut cursor) = open(directory.path(), sync);
        group.bench_function(name, |b| {
            b.iter_custom(|rounds| appends(&runtime, &journal, &mut cursor, &body, together, rounds))
        });
        journal.abandon();
    }

    let directory = tempfile::tempdir().expect("there is a directory for temporary files");
    let (journal, mut cursor) = open(directory.path(), SyncPolicy::Off);
    group.throughput(Throughput::Bytes((body.len() * BACKLOG) as u64));
    group.bench_function("read_back", |b| {
        b.iter_custom(|rounds| {
            let mut took = Duration::ZERO;
            for _ in 0..rounds {
                runtime.block_on(async {
                    for _ in 0..BACKLOG {
                        let payload = payload(&body);
                        let space = journal
                            .try_reserve(journal.cost(&payload))
                            .expect("there is no limit");
                        drop(journal.append(space, payload, None, Durability::Written));
                    }
                    append(&journal, payload(&body)).await;
                    let begun = Instant::now();
                    read(&mut cursor, BACKLOG + 1).await;
                    took += begun.elapsed();
                });
            }
            took
        })
    });
    journal.abandon();
    group.finish();
}

criterion_group!(benches, journal);
criterion_main!(benches);
