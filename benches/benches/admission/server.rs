//! What admission is in the gateway, for each request: the decision with the clock, the visit at the gate, the bytes, and the words and the hint of a
//! refusal, which the parts beside this leave out.

use std::hint::black_box;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use criterion::Criterion;
use sluice_admission::{Budget, GuardSettings, Signals};
use sluice_payload::{Signal, TenantId, Tenants};
use sluice_server::{Gate, Refusal, ShedSettings, Shedder, Visit};
use sluice_telemetry::Registry;

use super::{BUDGET_BYTES, CpuTime, REQUEST_BYTES, goal};

/// A receiver's name for requests of one signal.
const METHOD: &str = "otlp grpc metrics";

fn gate(bytes: u64) -> Gate {
    Gate::new(
        Budget::new(bytes),
        Duration::from_secs(5),
        &Registry::default(),
        1,
    )
}

fn shedder(disk: f64) -> Shedder {
    let settings = ShedSettings {
        guard: GuardSettings::default(),
        priorities: Vec::new(),
    };
    let shedder = Shedder::new(settings, &Registry::default(), 1);
    let signals = Signals {
        disk,
        ..Signals::default()
    };
    shedder.observe(signals, BUDGET_BYTES);
    shedder
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// As a receiver has it: before the body, the body's bytes, and the end.
fn take(shedder: &Shedder, gate: &Gate, tenant: TenantId) -> Result<(), Refusal> {
    let mut entered = shedder.enter(black_box(METHOD), tenant, gate)?;
    let mut visit = gate.visit_of(tenant, Signal::Metrics);
    visit.expect(REQUEST_BYTES);
    let Poll::Ready(permit) = poll(pin!(visit.reserve(black_box(REQUEST_BYTES)))) else {
        return Ok(());
    };
    let permit = permit?;
    entered.received();
    black_box(entered.answered());
    permit.counts_as_drained();
    drop(permit);
    Ok(())
}

/// A gate at which as many wait as may, and who waits.
fn full() -> (Gate, impl Sized) {
    let gate = gate(16 << 20);
    let held = gate.budget().try_reserve(gate.budget().largest());
    let waiting: Vec<_> = (0..16)
        .map(|_| {
            let visitor = gate.budget().visit(0);
            let mut waiting = Box::pin(async move { visitor.reserve(8 << 20, 0).await });
            assert!(poll(waiting.as_mut()).is_pending(), "all of it is held");
            waiting
        })
        .collect();
    (gate, (held, waiting))
}

/// `taken` is the whole of it. `new_tenant` is one whose name has not been seen, up to as many as there may be. The refusals are whole, with their texts: by the level,
/// where too many wait for memory, and in front of a full queue.
pub fn server(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("server");
    let (open, well) = (gate(BUDGET_BYTES), shedder(0.0));
    let tenants = Tenants::default();
    let tenant = tenants.intern("one");
    group.bench_function(goal("taken", 1000), |b| b.iter(|| take(&well, &open, tenant)));
    group.bench_function("visit", |b| {
        b.iter(|| {
            let mut visit: Visit<'_> = open.visit_of(black_box(tenant), Signal::Metrics);
            poll(pin!(visit.reserve(black_box(REQUEST_BYTES)))).is_ready()
        });
    });
    group.bench_function("enter_and_answered", |b| {
        b.iter(|| {
            let mut entered = well.enter(black_box(METHOD), tenant, &open).ok()?;
            entered.received();
            entered.answered()
        });
    });
    let names: Vec<String> = (0..4_000).map(|n| format!("tenant-{n}")).collect();
    group.bench_function("new_tenant", |b| {
        b.iter_batched_ref(
            || (Tenants::default(), names.iter().cycle()),
            |(tenants, names)| names.next().map(|name| tenants.intern(name)),
            criterion::BatchSize::NumIterations(1),
        );
    });
    let ill = shedder(1.0);
    let _ = take(&ill, &open, tenant);
    group.bench_function(goal("refused_by_level", 200), |b| {
        b.iter(|| take(&ill, &open, tenant).is_err())
    });
    let (crowded, _waiting) = full();
    group.bench_function(goal("refused_for_memory", 200), |b| {
        b.iter(|| {
            let mut visit = crowded.visit_of(black_box(tenant), Signal::Metrics);
            let refused = poll(pin!(visit.reserve(black_box(8 << 20))));
            assert!(matches!(refused, Poll::Ready(Err(_))), "the line is full");
        });
    });
    group.bench_function(goal("refused_for_queue", 200), |b| {
        b.iter(|| {
            let (exporter, requests, items, bytes) = black_box(("otlp", 1_000_u64, 50_000_u64, 110_700_000_u64));
            let message = format!(
                "the queue of exporter {exporter} is full ({requests} requests, {items} items, {bytes} bytes wait); retry later"
            );
            open.queue_full(REQUEST_BYTES, message, Some(Duration::from_secs(7)))
        });
    });
    group.finish();
}
