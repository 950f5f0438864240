//! Admission, beside the figures of Floodgate's own benchmarks (a Go module). A group for each of them; a benchmark with a goal has it
//! in its name.
//!
//! Time is a parameter of everything measured here, so the figures are those of the work and not of the clock. The
//! clock is on its own in `clock`, and inside `request` and `layer`, which read it twice.

#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

mod server;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use sluice_admission::{
    Breaker, BreakerSettings, Budget, Guard, GuardLayer, GuardSettings, LatencyThresholds, LevelGauge,
    NoHooks, Origin, Outcome, Priority, Reason, Refusal, Signals, Tracker, TrackerSettings,
};
use tower::{Layer, Service};

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// A name with what is to be reached, in nanoseconds of CPU time.
fn goal(name: &str, nanos: u32) -> String {
    format!("{name} (goal {nanos} ns)")
}

/// CPU time of this thread, as the figures to beat are: what else runs on the machine does not count.
struct CpuTime;

fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|word| word.parse().ok());
    nanos.expect("/proc/thread-self/schedstat begins with the nanoseconds run")
}

impl Measurement for CpuTime {
    type Intermediate = u64;
    type Value = Duration;

    fn start(&self) -> u64 {
        cpu_nanos()
    }

    fn end(&self, start: u64) -> Duration {
        Duration::from_nanos(cpu_nanos() - start)
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
        WallTime.formatter()
    }
}

fn settings(percentiles: bool) -> TrackerSettings {
    TrackerSettings {
        alpha: 0.1,
        half_life: Duration::from_secs(8),
        percentiles: percentiles.then_some((Duration::from_nanos(4_096), Duration::from_secs(60))),
    }
}

/// Latencies around `median` nanoseconds: log-normal with a sigma of 0.5, which spans four octaves.
fn latencies(count: usize, median: f64, sigma: f64) -> Vec<u64> {
    let mut state = 7_u64;
    let mut uniform = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    };
    (0..count)
        .map(|_| {
            let normal = (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
            (median * (sigma * normal).exp()) as u64
        })
        .collect()
}

fn filled(settings: &TrackerSettings, count: usize, sigma: f64) -> Tracker {
    let tracker = Tracker::new(settings);
    for (n, latency) in latencies(count, 1e8, sigma).iter().enumerate() {
        tracker.record(SECOND + n as u64 * 10 * MICROSECOND, *latency);
    }
    tracker
}

/// Floodgate: 71.9 ns (a constant latency). `spread/10k_per_s` counts every sample; `constant` soon takes one in
/// many, because its one bucket is full.
fn record(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("record");
    for (name, apart) in [
        ("spread/10k_per_s", 100 * MICROSECOND),
        ("spread/1M_per_s", MICROSECOND),
    ] {
        let values = latencies(4_096, 1e8, 0.5);
        let tracker = Tracker::new(&settings(true));
        let (mut now, mut n) = (SECOND, 0);
        group.bench_function(goal(name, 15), |b| {
            b.iter(|| {
                now += apart;
                n = (n + 1) % values.len();
                tracker.record(black_box(now), black_box(values[n]));
            });
        });
    }
    let tracker = Tracker::new(&settings(true));
    let mut now = SECOND;
    group.bench_function(goal("constant", 15), |b| {
        b.iter(|| {
            now += 100 * MICROSECOND;
            tracker.record(black_box(now), black_box(100 * MILLISECOND));
        });
    });
    group.finish();
}

/// Floodgate: 60.0 and 60.7 ns (1K and 10K samples, cached), 27.5 ns without percentiles.
fn read(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("read");
    for (name, count, sigma) in [
        ("1K", 1_000, 0.5),
        ("10K", 10_000, 0.5),
        ("10K_wide", 10_000, 1.0),
        ("10K_all_octaves", 10_000, 3.0),
    ] {
        let tracker = filled(&settings(true), count, sigma);
        group.bench_function(goal(name, 60), |b| {
            b.iter(|| tracker.stats(black_box(2 * SECOND)))
        });
    }
    let tracker = filled(&settings(true), 1_000, 0.5);
    let mut now = 2 * SECOND;
    group.bench_function("1K_after_every_record", |b| {
        b.iter(|| {
            now += 100 * MICROSECOND;
            tracker.record(now, 100 * MILLISECOND);
            tracker.stats(now)
        });
    });
    let tracker = filled(&settings(false), 1_000, 0.5);
    group.bench_function(goal("without_percentiles", 20), |b| {
        b.iter(|| tracker.stats(black_box(2 * SECOND)))
    });
    group.finish();
}

/// Floodgate: 3.3 ns for the comparison, 116 ns with the reading of the figures.
fn level(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("level");
    let thresholds = LatencyThresholds::default();
    let tracker = filled(&settings(true), 1_000, 0.5);
    let stats = tracker.stats(2 * SECOND);
    group.bench_function(goal("of_stats", 3), |b| {
        b.iter(|| thresholds.level(black_box(&stats)))
    });
    group.bench_function("read_and_level", |b| {
        b.iter(|| thresholds.level(&tracker.stats(black_box(2 * SECOND))));
    });
    let gauge = LevelGauge::new();
    group.bench_function(goal("held", 3), |b| b.iter(|| black_box(&gauge).level()));
    group.finish();
}

const METHOD: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

fn guard(disk: f64) -> Guard {
    let guard = Guard::new(GuardSettings::default(), NoHooks, 1);
    let signals = Signals {
        disk,
        ..Signals::default()
    };
    guard.observe(&signals, SECOND);
    guard
}

/// What the permits of requests come from, and what each of them takes.
const BUDGET_BYTES: u64 = 256 << 20;
const REQUEST_BYTES: u64 = 110 << 10;

/// `with_permit`: the whole decision, the bytes reserved and given back; `admit` and `permit` are its parts. `refuse` is Floodgate's emergency (1,766 ns with its log line;
/// a trickle passes here), `skipped` and `new_method` are as there (44 KB and 142 allocations; what is allocated here
/// is held in crates/admission/tests/allocations.rs), `request` is decision, both clock readings, record and settle.
fn decision(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("decision");
    let normal = guard(0.0);
    let admit =
        |guard: &Guard, method: &str| guard.admit(black_box(method), Priority::Normal, black_box(SECOND));
    let _ = admit(&normal, METHOD);
    group.bench_function("admit", |b| b.iter(|| admit(&normal, METHOD)));
    let budget = Budget::new(BUDGET_BYTES);
    group.bench_function("permit", |b| {
        b.iter(|| budget.try_reserve(black_box(REQUEST_BYTES)))
    });
    group.bench_function(goal("with_permit", 40), |b| {
        b.iter(|| {
            let ticket = admit(&normal, METHOD);
            (ticket, budget.try_reserve(black_box(REQUEST_BYTES)))
        });
    });
    let full = Budget::new(BUDGET_BYTES);
    let _all = full.try_reserve(full.largest());
    group.bench_function(goal("refuse_for_memory", 200), |b| {
        b.iter(|| {
            let ticket = admit(&normal, METHOD);
            let refused = full.try_reserve(black_box(BUDGET_BYTES / 2)).is_none();
            if let (Ok(ticket), true) = (ticket, refused) {
                normal.abandon(ticket, black_box(SECOND));
            }
        });
    });
    group.bench_function(goal("skipped", 20), |b| {
        b.iter(|| admit(&normal, "/grpc.health.v1.Health/Check"))
    });
    let emergency = guard(1.0);
    let _ = admit(&emergency, METHOD);
    group.bench_function(goal("refuse", 200), |b| b.iter(|| admit(&emergency, METHOD)));
    group.bench_function("new_method", |b| {
        b.iter_batched_ref(
            || guard(0.0),
            |guard| admit(guard, METHOD).is_ok(),
            BatchSize::SmallInput,
        );
    });
    let origin = Origin::process();
    group.bench_function(goal("request", 1000), |b| {
        b.iter(|| {
            let begun = origin.now();
            if let Ok(ticket) = normal.admit(black_box(METHOD), Priority::Normal, begun) {
                let now = origin.now();
                normal.settle(ticket, Outcome::Success, now - begun, now);
            }
        });
    });
    group.bench_function("clock", |b| b.iter(|| origin.now()));
    let (breaker, settings) = (Breaker::new(0), BreakerSettings::default());
    group.bench_function("breaker", |b| {
        b.iter(|| {
            let pass = breaker.admit(&settings, black_box(SECOND));
            pass.map(|pass| breaker.settle(&settings, pass, Outcome::Success, SECOND))
        });
    });
    group.finish();
}

/// A service that answers at once, so that the layer is all there is.
#[derive(Clone)]
struct Answers;

impl Service<http::Request<()>> for Answers {
    type Response = http::Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<http::Response<()>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<()>) -> Self::Future {
        ready(Ok(http::Response::new(())))
    }
}

/// A request through the layer with a permit of a budget, and through the bare service: what it adds is the difference. Floodgate: about
/// 3 us, says the seed.
fn layer(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("layer");
    let budget = Budget::new(BUDGET_BYTES);
    let permits = move |_: &http::Request<()>| {
        budget.try_reserve(REQUEST_BYTES).ok_or(Refusal {
            reason: Reason::NoRoom,
            retry_after: Some(Duration::from_secs(1)),
        })
    };
    let layer = GuardLayer::new(
        Arc::new(guard(0.0)),
        |request: &http::Request<()>| request.uri().path(),
        |_: &Refusal| http::Response::new(()),
    );
    let mut guarded = layer.with_permits(permits).layer(Answers);
    fn request() -> http::Request<()> {
        let mut request = http::Request::new(());
        *request.uri_mut() = http::Uri::from_static(METHOD);
        request
    }
    fn answer<S: Service<http::Request<()>, Future: Unpin>>(service: &mut S) {
        let mut context = Context::from_waker(Waker::noop());
        let _ = service.poll_ready(&mut context).is_ready();
        let mut future = service.call(black_box(request()));
        let answered = Pin::new(&mut future).poll(&mut context).is_ready();
        assert!(answered, "the service answers at once");
    }
    group.bench_function("without", |b| b.iter(|| answer(&mut Answers)));
    group.bench_function(goal("with", 1000), |b| b.iter(|| answer(&mut guarded)));
    group.finish();
}

/// Floodgate: 78.5 ns: two threads take turns at recording and reading. As there, the time that passes divided by the
/// number of operations of both; in CPU time of the slower thread, which is the time that passes if both have a core.
fn contended(c: &mut Criterion) {
    let values = latencies(4_096, 1e8, 0.5);
    let mut group = c.benchmark_group("contended");
    group.bench_function(goal("record_and_read_by_2_threads", 40), |b| {
        b.iter_custom(|rounds| {
            let tracker = filled(&settings(true), 1_000, 0.5);
            by_threads(2, rounds, |thread, n| {
                let now = 2 * SECOND + n * 100 * MICROSECOND;
                if (n + thread).is_multiple_of(2) {
                    tracker.record(now, values[n as usize % values.len()]);
                } else {
                    black_box(tracker.stats(now));
                }
            })
        });
    });
    group.finish();
}

/// `rounds` of `work` in all, which is told its thread and its number there: the CPU time of the slowest thread.
fn by_threads(threads: u64, rounds: u64, work: impl Fn(u64, u64) + Sync) -> Duration {
    let barrier = std::sync::Barrier::new(threads as usize);
    let run = |thread| {
        barrier.wait();
        let begin = cpu_nanos();
        for n in 0..rounds.div_ceil(threads) {
            work(thread, n);
        }
        cpu_nanos() - begin
    };
    let slowest = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || run(thread)))
            .collect();
        let nanos = threads
            .into_iter()
            .map(|thread| thread.join().expect("no thread panics"));
        nanos.max().unwrap_or_default()
    });
    Duration::from_nanos(slowest)
}

/// Five methods of one guard, by one thread and by as many as there are cores: with cores it takes less.
fn five_methods(c: &mut Criterion) {
    let methods: Vec<String> = (0..5).map(|n| format!("{METHOD}{n}")).collect();
    let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get() as u64);
    let mut group = c.benchmark_group("five_methods");
    for threads in [1, cores] {
        group.bench_function(format!("admit_and_settle_by_{threads}_threads"), |b| {
            b.iter_custom(|rounds| {
                let guard = guard(0.0);
                by_threads(threads, rounds, |thread, n| {
                    let (method, now) = (&methods[(n + thread) as usize % 5], SECOND + n * 10 * MICROSECOND);
                    if let Ok(ticket) = guard.admit(black_box(method), Priority::Normal, now) {
                        guard.settle(ticket, Outcome::Success, 100 * MICROSECOND, now);
                    }
                })
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = cpu;
    config = Criterion::default().with_measurement(CpuTime);
    targets = record, read, level, decision, layer, server::server
}
criterion_group!(wall, contended, five_methods);
criterion_main!(cpu, wall);
