//! What every request pays before its body is read. Time is a parameter, so that nothing here reads a clock.

use std::hint::black_box;
use std::time::Duration;

use sluice_admission::{Budget, Guard, GuardSettings, NoHooks, Outcome, Priority, Tracker, TrackerSettings};
use sluice_payload::Tenants;

use crate::{Entry, Workload};

/// Requests in a round: enough that a tracker's window moves on and its percentiles are made anew.
const REQUESTS: u64 = 2_000;

/// 10,000 requests a second.
const APART_NANOS: u64 = 100_000;

const SECOND: u64 = 1_000_000_000;

/// What is reserved before a body's first byte, and what it then grows to (`crates/server/src/body.rs`).
const FIRST_BYTES: u64 = 64 << 10;
const MORE_BYTES: u64 = 64 << 10;
const BODY_BYTES: u64 = 110_700;

pub fn entries(entries: &mut Vec<Entry>) {
    entries.push(("reserve".into(), Box::new(reserve)));
    entries.push(("track".into(), Box::new(track)));
    entries.push(("guard".into(), Box::new(guard)));
    entries.push(("tenant".into(), Box::new(tenant)));
}

/// A request's visit at the budget: announce, reserve, grow, shrink to what came, give back.
fn reserve() -> Workload {
    let budget = Budget::new(1 << 30);
    Workload::new(REQUESTS, move || {
        for _ in 0..REQUESTS {
            let mut visitor = black_box(&budget).visit(0);
            visitor.expect(BODY_BYTES);
            let mut permit = visitor.try_reserve(FIRST_BYTES, 0).expect("the budget is empty");
            let more = visitor.try_reserve(MORE_BYTES, permit.bytes());
            permit.absorb(more.expect("the budget is as good as empty"));
            permit.shrink_to(BODY_BYTES);
            drop(black_box(permit));
        }
    })
}

/// Latencies between 1 and some 130 ms, in no order.
fn latency(n: u64) -> u64 {
    1_000_000 + (n.wrapping_mul(6_364_136_223_846_793_005) >> 37)
}

fn track() -> Workload {
    let settings = TrackerSettings {
        alpha: 0.1,
        half_life: Duration::from_secs(8),
        percentiles: Some((Duration::from_nanos(4_096), Duration::from_secs(60))),
    };
    let tracker = Tracker::new(&settings);
    let mut n = 0;
    Workload::new(REQUESTS, move || {
        for _ in 0..REQUESTS {
            n += 1;
            black_box(&tracker).record(SECOND + n * APART_NANOS, latency(n));
        }
    })
}

/// A decision, and the outcome of the request it let in.
fn guard() -> Workload {
    let guard = Guard::new(GuardSettings::default(), NoHooks, 1);
    let mut n = 0;
    Workload::new(REQUESTS, move || {
        for _ in 0..REQUESTS {
            n += 1;
            let now = SECOND + n * APART_NANOS;
            let method = black_box("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export");
            if let Ok(ticket) = guard.admit(method, Priority::Normal, now) {
                guard.settle(ticket, Outcome::Success, latency(n), now);
            }
        }
    })
}

/// A tenant's name, as a header carries it, to its number.
fn tenant() -> Workload {
    let tenants = Tenants::default();
    let names: Vec<String> = (0..100).map(|n| format!("tenant-{n:03}")).collect();
    Workload::new(REQUESTS, move || {
        for n in 0..REQUESTS as usize {
            black_box(tenants.intern_sent(black_box(names[n % names.len()].as_bytes())));
        }
    })
}
