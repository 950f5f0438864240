//! What admission allocates: nothing for a sample, a reading or a decision, little for a new method.
//!
//! The allocator is jemalloc, as in the gateway, because it counts the bytes of each thread.

use std::time::Duration;

use sluice_admission::{Guard, GuardSettings, NoHooks, Outcome, Priority, Signals, Tracker, TrackerSettings};
use tikv_jemalloc_ctl::thread;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;

/// Bytes that this thread allocates in `work`, whether it frees them or not.
fn allocated(work: impl FnOnce()) -> u64 {
    let allocated = thread::allocatedp::read().expect("jemalloc is built with statistics");
    let before = allocated.get();
    work();
    allocated.get() - before
}

/// Scenario: 100,000 samples over ten half-lives, read after every one, and a restart.
/// Guarantees: not a byte is allocated.
#[test]
fn a_tracker_allocates_nothing() {
    let tracker = Tracker::new(&TrackerSettings {
        alpha: 0.1,
        half_life: Duration::from_secs(1),
        percentiles: Some((Duration::from_micros(4), Duration::from_secs(60))),
    });
    let bytes = allocated(|| {
        for n in 0..100_000_u64 {
            let now = SECOND + n * MILLISECOND / 10;
            tracker.record(now, (n * 7_919) % SECOND);
            std::hint::black_box(tracker.stats(now));
        }
        tracker.restart();
    });
    assert_eq!(bytes, 0);
}

/// Scenario: 10,000 requests of a method known to the guard at each level of the process, and of a skipped method.
/// Guarantees: neither a decision nor a refusal nor settling allocates.
#[test]
fn a_decision_allocates_nothing() {
    let guard = Guard::new(GuardSettings::default(), NoHooks, 1);
    let request = |method: &str, now: u64| {
        if let Ok(ticket) = guard.admit(method, Priority::Normal, now) {
            guard.settle(ticket, Outcome::Success, MILLISECOND, now);
        }
    };
    request("/known", SECOND);
    for disk in [0.0, 0.8, 0.9, 0.95, 1.0] {
        let bytes = allocated(|| {
            guard.observe(
                &Signals {
                    disk,
                    ..Signals::default()
                },
                SECOND,
            );
            for n in 0..10_000 {
                request("/known", SECOND + n * MILLISECOND / 10);
                request("/grpc.health.v1.Health/Check", SECOND);
            }
        });
        assert_eq!(bytes, 0, "disk {disk}");
    }
}

/// Scenario: 512 new methods with names of 64 bytes, in a guard of default settings.
/// Guarantees: each takes at most 2 KiB as the allocator counts, and all of them with their table at most 1 MiB.
#[test]
fn a_new_method_is_small() {
    let names: Vec<String> = (0..512)
        .map(|n| format!("/opentelemetry.proto.collector.metrics.v1.MetricsService/Rpc{n:03}"))
        .collect();
    let mut guard = None;
    let table = allocated(|| guard = Some(Guard::new(GuardSettings::default(), NoHooks, 1)));
    let guard = guard.unwrap();
    let admit = |name: &String| drop(guard.admit(name, Priority::Normal, SECOND).unwrap());
    let first = allocated(|| admit(&names[0]));
    assert!(first <= 4 << 10, "{first}");
    let all = first + allocated(|| names[1..].iter().for_each(admit));
    println!("a new method: {first} bytes; 512: {all}; guard and table: {table}");
    assert!(all / 512 <= 2_048, "{}", all / 512);
    assert!(all + table <= 1 << 20, "{}", all + table);
}
