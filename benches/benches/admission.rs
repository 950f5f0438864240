//! Admission, beside the figures of Floodgate's own benchmarks (a Go module). A group for each of them.
//!
//! Time is a parameter of everything measured here, so the figures are those of the work and not of the clock. The
//! clock is on its own in `clock`, and inside `layer`.

#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use sluice_admission::{
    Breaker, BreakerSettings, Guard, GuardSettings, LatencyThresholds, LevelGauge, NoHooks, Origin, Outcome,
    Priority, Signals, Tracker, TrackerSettings,
};

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

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
        group.bench_function(name, |b| {
            b.iter(|| {
                now += apart;
                n = (n + 1) % values.len();
                tracker.record(black_box(now), black_box(values[n]));
            });
        });
    }
    let tracker = Tracker::new(&settings(true));
    let mut now = SECOND;
    group.bench_function("constant", |b| {
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
        group.bench_function(name, |b| b.iter(|| tracker.stats(black_box(2 * SECOND))));
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
    group.bench_function("without_percentiles", |b| {
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
    group.bench_function("of_stats", |b| b.iter(|| thresholds.level(black_box(&stats))));
    group.bench_function("read_and_level", |b| {
        b.iter(|| thresholds.level(&tracker.stats(black_box(2 * SECOND))));
    });
    let gauge = LevelGauge::new();
    group.bench_function("held", |b| b.iter(|| black_box(&gauge).level()));
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

/// `admit`: the whole decision but for the byte permit. `refuse` is Floodgate's emergency (1,766 ns with its log line;
/// a trickle passes here), `skipped` and `new_method` are as there (44 KB and 142 allocations; what is allocated here
/// is held in crates/admission/tests/allocations.rs), `request` is decision, both clock readings, record and settle.
fn decision(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("decision");
    let normal = guard(0.0);
    let admit =
        |guard: &Guard, method: &str| guard.admit(black_box(method), Priority::Normal, black_box(SECOND));
    let _ = admit(&normal, METHOD);
    group.bench_function("admit", |b| b.iter(|| admit(&normal, METHOD)));
    group.bench_function("skipped", |b| {
        b.iter(|| admit(&normal, "/grpc.health.v1.Health/Check"))
    });
    let emergency = guard(1.0);
    let _ = admit(&emergency, METHOD);
    group.bench_function("refuse", |b| b.iter(|| admit(&emergency, METHOD)));
    group.bench_function("new_method", |b| {
        b.iter_batched_ref(
            || guard(0.0),
            |guard| admit(guard, METHOD).is_ok(),
            BatchSize::SmallInput,
        );
    });
    let origin = Origin::process();
    group.bench_function("request", |b| {
        b.iter(|| {
            let begun = origin.now();
            if let Ok(ticket) = normal.admit(black_box(METHOD), Priority::Normal, begun) {
                let now = origin.now();
                normal.settle(ticket, Outcome::Success, now - begun, now);
            }
        });
    });
    let methods: Vec<String> = (0..5).map(|n| format!("{METHOD}{n}")).collect();
    let mut n = 0_u64;
    group.bench_function("request/five_methods", |b| {
        b.iter(|| {
            n += 1;
            let (method, now) = (&methods[n as usize % 5], SECOND + n * 10 * MICROSECOND);
            if let Ok(ticket) = normal.admit(black_box(method), Priority::Normal, now) {
                normal.settle(ticket, Outcome::Success, 100 * MICROSECOND, now);
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

/// Floodgate: 78.5 ns: two threads take turns at recording and reading. As there, the time that passes divided by the
/// number of operations of both; in CPU time of the slower thread, which is the time that passes if both have a core.
fn contended(c: &mut Criterion) {
    let values = latencies(4_096, 1e8, 0.5);
    let mut group = c.benchmark_group("contended");
    group.bench_function("record_and_read_by_2_threads", |b| {
        b.iter_custom(|rounds| {
            let tracker = filled(&settings(true), 1_000, 0.5);
            let barrier = std::sync::Barrier::new(2);
            let each = rounds.div_ceil(2);
            let work = |thread: u64| {
                barrier.wait();
                let begin = cpu_nanos();
                for n in 0..each {
                    let now = 2 * SECOND + n * 100 * MICROSECOND;
                    if (n + thread).is_multiple_of(2) {
                        tracker.record(now, values[n as usize % values.len()]);
                    } else {
                        black_box(tracker.stats(now));
                    }
                }
                cpu_nanos() - begin
            };
            let nanos = std::thread::scope(|scope| {
                let other = scope.spawn(|| work(1));
                work(0).max(other.join().expect("the other thread does not panic"))
            });
            Duration::from_nanos(nanos)
        });
    });
    group.finish();
}

criterion_group! {
    name = cpu;
    config = Criterion::default().with_measurement(CpuTime);
    targets = record, read, level, decision
}
criterion_group!(wall, contended);
criterion_main!(cpu, wall);
