//! Wire bytes in, wire bytes out of a batch: what the gateway itself does for a request, without sockets.
//!
//! `cargo bench -p sluice-benches --bench gateway`. Times are CPU times of the whole process, all threads together, and
//! throughputs are that time divided by points (or requests, or bytes): what else runs on the machine hardly counts. For
//! orientation: metrics-governor states 3,970 ns for 500 points added end to end without decoding or encoding (Apple M3),
//! which is 7.9 ns a point.
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rustix::time::{ClockId, clock_gettime};
use sluice_client::{Compression, compress};
use sluice_journal::{Cost, CursorSpec, Durability, Journal, Limits, OnFull, Settled};
use sluice_loadgen::{Signal, Spec};
use sluice_payload::{Encoding, Payload};
use sluice_telemetry::{Account, DropReason, Registry};
use sluice_wire::{Depth, Kind, validate};
use sluice_workloads::{BatchPath, request, requests};
use tokio::runtime::{Builder, Runtime};

/// The allocator that ships.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Points in a batch: near the default of 8192, and a multiple of every request size and of four times it.
const BATCH_POINTS: u64 = 8_000;

/// Points in a request.
const REQUEST_POINTS: [u32; 3] = [10, 100, 500];

const PRODUCERS: usize = 4;

/// Points that make a metrics body of 100 KB.
const POINTS_OF_100_KB: u32 = 452;

/// CPU time of the process.
struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        let now = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
    }

    fn end(&self, start: Duration) -> Duration {
        self.start() - start
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        &NanosEach
    }
}

/// Throughput as nanoseconds per element instead of elements per second: costs of several steps can be added up.
struct NanosEach;

impl ValueFormatter for NanosEach {
    fn scale_values(&self, typical: f64, values: &mut [f64]) -> &'static str {
        WallTime.formatter().scale_values(typical, values)
    }

    fn scale_throughputs(&self, typical: f64, per: &Throughput, values: &mut [f64]) -> &'static str {
        let Throughput::Elements(count) = *per else {
            return WallTime.formatter().scale_throughputs(typical, per, values);
        };
        values.iter_mut().for_each(|value| *value /= count as f64);
        "ns/each"
    }

    fn scale_for_machines(&self, values: &mut [f64]) -> &'static str {
        WallTime.formatter().scale_for_machines(values)
    }
}

fn runtime(mut builder: Builder) -> Runtime {
    let runtime = builder.enable_time().build();
    runtime.expect("a runtime without I/O needs nothing but threads")
}

/// What a receiver does with a body, less admission and inflation.
async fn receive(path: &BatchPath, body: &Bytes) {
    let scan = validate(Kind::Metrics, Depth::Deep, black_box(body)).expect("loadgen writes valid requests");
    path.take(body.clone(), scan.items).await;
}

/// One round is a whole batch: validated, taken, gathered, sliced and settled. `batch` leaves out the validation, and is
/// what metrics-governor calls its add.
fn gateway(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("gateway");
    group.throughput(Throughput::Elements(BATCH_POINTS));
    for points in REQUEST_POINTS {
        let bodies = requests(
            Spec::gateway(Signal::Metrics).items(points),
            (BATCH_POINTS / u64::from(points)) as usize,
        );
        let one = runtime(Builder::new_current_thread());
        let path = one.block_on(async { BatchPath::start(Signal::Metrics, BATCH_POINTS) });
        group.bench_function(format!("validate_and_batch/{points}"), |b| {
            b.iter(|| {
                one.block_on(async {
                    for body in &bodies {
                        receive(&path, body).await;
                    }
                    path.settled().await;
                });
            });
        });
        group.bench_function(format!("batch/{points}"), |b| {
            b.iter(|| {
                one.block_on(async {
                    for body in &bodies {
                        path.take(black_box(body).clone(), points.into()).await;
                    }
                    path.settled().await;
                });
            });
        });
        four_producers(&mut group, points, &bodies);
    }
    group.finish();
}

/// The same batch from four receivers at once, on a worker for each core as in the gateway; waking them is included.
fn four_producers(group: &mut criterion::BenchmarkGroup<'_, CpuTime>, points: u32, bodies: &[Bytes]) {
    let many = runtime(Builder::new_multi_thread());
    let path = many.block_on(async { BatchPath::start(Signal::Metrics, BATCH_POINTS) });
    let shares: Vec<Vec<Bytes>> = bodies
        .chunks(bodies.len() / PRODUCERS)
        .map(<[Bytes]>::to_vec)
        .collect();
    assert_eq!(shares.len(), PRODUCERS, "a batch is a multiple of four requests");
    group.bench_function(
        format!("validate_and_batch/{points}/{PRODUCERS}_producers"),
        |b| {
            b.iter(|| {
                many.block_on(async {
                    let producers: Vec<_> = (shares.iter().cloned())
                        .map(|share| {
                            let path = path.clone();
                            tokio::spawn(async move {
                                for body in &share {
                                    receive(&path, body).await;
                                }
                            })
                        })
                        .collect();
                    for producer in producers {
                        producer.await.expect("producers do not panic");
                    }
                    path.settled().await;
                });
            });
        },
    );
}

/// `counter` is one metric; `account` is the arithmetic of an account. The ledger itself changes under the journal's
/// lock and nowhere else, so that its nearest public step is a payload's way through the journal: `payload` is room
/// reserved, appended, handed to one exporter and settled. `report` is what `/ledger` and `/metrics` copy.
fn counters(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("counters");
    let counter = Registry::default().counter("sluice_bench_total", "A counter.", Vec::new());
    group.bench_function("counter", |b| b.iter(|| black_box(&counter).add(1)));
    let mut account = Account::default();
    group.bench_function("account", |b| {
        b.iter(|| {
            let account = black_box(&mut account);
            account.accepted += 500;
            account.delivered += 499;
            account.drop_items(DropReason::PayloadFault, 1);
        });
    });
    let cursor = CursorSpec {
        exporter: "bench".into(),
        limits: Limits::default(),
        on_full: OnFull::Refuse,
    };
    let (journal, mut cursors) = Journal::memory("bench", vec![cursor]);
    let mut cursor = cursors.remove(0);
    let payload = std::sync::Arc::new(Payload::uncharged(
        sluice_payload::Signal::Metrics,
        Bytes::from_static(b"nobody looks inside"),
        500,
    ));
    let cost = Cost {
        requests: 1,
        items: payload.items,
        bytes: payload.retained_bytes(),
    };
    let one = runtime(Builder::new_current_thread());
    group.bench_function("payload", |b| {
        b.iter_custom(|rounds| {
            one.block_on(async {
                let begun = CpuTime.start();
                for _ in 0..rounds {
                    let space = journal.try_reserve(cost).expect("there is no limit");
                    let _ = journal.append(space, payload.clone(), None, Durability::Written);
                    let entry = cursor.next().await.expect("one was just appended");
                    cursor.settle(&[Settled {
                        seq: entry.seq,
                        delivered: entry.payload.items,
                        dropped: None,
                    }]);
                }
                CpuTime.end(begun)
            })
        });
    });
    let now = Instant::now();
    group.bench_function("report", |b| b.iter(|| journal.reports(now)));
    group.finish();
}

/// A body of 100 KB, as the exporter compresses it and as the receiver inflates it.
fn zstd(c: &mut Criterion<CpuTime>) {
    let body = request(Spec::gateway(Signal::Metrics).items(POINTS_OF_100_KB)).body;
    let level = Compression::Zstd.default_level();
    let pack = || compress(Compression::Zstd, level, [black_box(&body[..])], body.len()).expect("zstd works");
    let packed = pack();
    eprintln!("zstd: {} bytes -> {}", body.len(), packed.len());
    let inflate = || {
        let bytes = body.len() as u64;
        sluice_server::inflate(Encoding::Zstd, black_box(&packed), bytes, bytes, &|| true)
            .expect("it was just packed")
    };
    assert!(inflate() == body);
    let mut group = c.benchmark_group("zstd");
    group.throughput(Throughput::Elements(POINTS_OF_100_KB.into()));
    group.bench_function("compress", |b| b.iter(pack));
    group.bench_function("inflate", |b| b.iter(inflate));
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .with_measurement(CpuTime)
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = gateway, counters, zstd
}
criterion_main!(benches);
