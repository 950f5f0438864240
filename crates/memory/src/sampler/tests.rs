#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::*;
use crate::limit::MemoryLimit;
use crate::quiet::{HANDING_OVER, QUIET, STARTED};

const MIB: u64 = 1 << 20;

/// A process with as much beside the budget as the test says.
#[derive(Clone, Default)]
struct World {
    budget: Option<Budget>,
    beside: Arc<AtomicU64>,
    free: Arc<AtomicU64>,
    purges: Arc<AtomicU32>,
    given_back: Arc<AtomicU32>,
    lets_code_go: Arc<AtomicU32>,
    reads: Arc<AtomicU32>,
    keeps_large: Arc<AtomicBool>,
    /// How much resident memory moves from one reading to the next.
    moves: Arc<AtomicU32>,
}

impl Source for World {
    fn read(&mut self) -> (Readings, Latest) {
        let reads = u64::from(self.reads.fetch_add(1, Ordering::Relaxed));
        let moves = u64::from(self.moves.load(Ordering::Relaxed));
        let used = self.budget.as_ref().unwrap().usage().used;
        let active = used + self.beside.load(Ordering::Relaxed);
        let dirty = self.free.load(Ordering::Relaxed);
        let readings = Readings {
            active,
            dirty,
            rss: active + dirty + reads * moves,
            ..Readings::default()
        };
        (readings, Latest::default())
    }

    fn purge(&mut self, is_quiet: bool) {
        self.lets_code_go
            .fetch_add(u32::from(is_quiet), Ordering::Relaxed);
        self.purges.fetch_add(1, Ordering::Relaxed);
        self.free.store(0, Ordering::Relaxed);
    }

    fn give_back(&mut self) {
        self.given_back.fetch_add(1, Ordering::Relaxed);
    }

    fn keep_large(&mut self, keep: bool) {
        self.keeps_large.store(keep, Ordering::Relaxed);
    }
}

struct Rig {
    world: World,
    budget: Budget,
    registry: Registry,
    _sampling: Sampling,
}

impl Rig {
    fn start(interval: Option<Duration>) -> Self {
        Self::with_limit(interval, 256)
    }

    fn with_limit(interval: Option<Duration>, mib: u64) -> Self {
        let machine = Machine {
            total: 1 << 40,
            cgroups: Vec::new(),
        };
        let limit = MemoryLimit::Bytes {
            limit: mib * MIB,
            spike: mib * MIB / 5,
        };
        let plan = Plan::new(Some(limit), &machine, 8);
        let budget = Budget::new(plan.ceiling);
        let world = World {
            budget: Some(budget.clone()),
            ..World::default()
        };
        let registry = Registry::default();
        let sampler = Sampler::new(plan, machine, interval, || (), &registry);
        let sampling = Sampling(tokio::spawn(sampler.run(budget.clone(), world.clone())));
        Self {
            world,
            budget,
            registry,
            _sampling: sampling,
        }
    }

    fn metric(&self, name: &str) -> u64 {
        let text = self.registry.render();
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{name} ")))
            .unwrap();
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    }
}

/// Scenario: 100 MiB come beside the budget while a request waits for more than is left, and go again; the clock is the test's.
/// Guarantees: the budget's capacity follows within a few readings, what waits is refused for now, and the capacity is whole
/// again soon after; metrics count one fall and tell what is untracked.
#[tokio::test(start_paused = true)]
async fn the_budget_follows() {
    let rig = Rig::start(None);
    let _held = rig.budget.try_reserve(50 * MIB).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.budget.usage().capacity, 200 * MIB);
    rig.world.beside.store(110 * MIB, Ordering::Relaxed);
    let budget = rig.budget.clone();
    let waits = tokio::spawn(async move { budget.visit(0).reserve(200 * MIB, 0).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(rig.budget.usage().capacity, 146 * MIB);
    assert!(waits.await.unwrap().is_err());
    assert_eq!(rig.metric("sluice_memory_untracked_bytes"), 110 * MIB);
    rig.world.beside.store(9 * MIB, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(rig.budget.usage().capacity, 200 * MIB);
    assert_eq!(rig.metric("sluice_memory_budget_shrinks_total"), 1);
    assert!(rig.metric("sluice_memory_budget_grows_total") >= 1);
}

/// Scenario: free pages above the soft mark while a request holds memory.
/// Guarantees: they are purged once, counted once, code and capacity stay.
#[tokio::test(start_paused = true)]
async fn free_pages_go_back() {
    let rig = Rig::start(None);
    let _held = rig.budget.try_reserve(MIB).unwrap();
    rig.world.free.store(220 * MIB, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(rig.world.purges.load(Ordering::Relaxed), 1);
    assert_eq!(rig.metric("sluice_memory_purges_total"), 1);
    assert_eq!(rig.world.lets_code_go.load(Ordering::Relaxed), 0);
    assert_eq!(rig.budget.usage().capacity, 200 * MIB);
}

/// Scenario: a start; a request every five seconds for a minute; one that holds memory for a minute; then nothing for ten minutes.
/// Guarantees: what is kept is given back, and free pages and code a second later, once soon after the start and once after the last request;
/// not while requests come or one holds anything.
#[tokio::test(start_paused = true)]
async fn a_quiet_gateway_gives_back_once() {
    let rig = Rig::start(None);
    let counts = || {
        let World {
            given_back,
            purges,
            lets_code_go,
            ..
        } = &rig.world;
        [given_back, purges, lets_code_go].map(|count| count.load(Ordering::Relaxed))
    };
    tokio::time::sleep(STARTED + Duration::from_millis(500)).await;
    assert_eq!(counts(), [1, 0, 0]);
    tokio::time::sleep(HANDING_OVER + Duration::from_millis(500)).await;
    assert_eq!(counts(), [1, 1, 1]);
    for _ in 0..12 {
        drop(rig.budget.try_reserve(MIB).unwrap());
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let held = rig.budget.try_reserve(MIB).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(counts(), [1, 1, 1]);
    drop(held);
    tokio::time::sleep(QUIET + Duration::from_millis(500)).await;
    assert_eq!(counts(), [2, 1, 1]);
    tokio::time::sleep(HANDING_OVER + Duration::from_millis(500)).await;
    assert_eq!(counts(), [2, 2, 2]);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(counts(), [2, 2, 2]);
    assert_eq!(rig.metric("sluice_memory_purges_total"), 2);
}

/// Scenario: a `check_interval` of 20 ms, of nothing at all, of a second, none, while memory moves; then the sampler is dropped.
/// Guarantees: ten readings a second at least, a hundred at most; none after the drop.
#[tokio::test(start_paused = true)]
async fn it_reads_as_often_as_asked_within_bounds() {
    for (interval, reads) in [
        (Some(Duration::from_millis(20)), 50),
        (Some(Duration::ZERO), 100),
        (Some(Duration::from_secs(1)), 10),
        (None, 10),
    ] {
        let rig = Rig::start(interval);
        rig.world.moves.store(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(999)).await;
        assert_eq!(rig.world.reads.load(Ordering::Relaxed), reads, "{interval:?}");
        let world = rig.world.clone();
        drop(rig);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(world.reads.load(Ordering::Relaxed), reads, "{interval:?}");
    }
}

/// Scenario: the process itself is read.
/// Guarantees: it has a size, its allocator has figures, and metrics show them under their names.
#[tokio::test]
async fn the_process_itself_has_figures() {
    let machine = Machine::detect();
    let registry = Registry::default();
    let plan = Plan::new(None, &machine, 8);
    let sampler = Sampler::new(plan, machine.clone(), None, || (), &registry);
    let (readings, latest) = Process::new(&machine, || ()).read();
    *sampler.report.latest.lock() = latest;
    assert!(readings.rss > MIB && readings.active > 0, "{readings:?}");
    assert!(latest.allocator.unwrap().allocated > 0);
    let text = registry.render();
    for name in [
        "sluice_memory_limit_bytes",
        "sluice_memory_soft_limit_bytes",
        "sluice_memory_untracked_bytes",
        "sluice_memory_allocated_bytes",
        "sluice_memory_active_bytes",
        "sluice_memory_resident_bytes",
        "sluice_memory_retained_bytes",
        "sluice_memory_fragmentation_ratio",
        "sluice_memory_budget_shrinks_total",
        "sluice_memory_budget_grows_total",
        "sluice_memory_purges_total",
    ] {
        assert!(text.contains(&format!("\n{name} ")), "{name} in\n{text}");
    }
}

/// Scenario: nothing goes on for ten seconds; then a request holds memory; then it is gone and nothing moves.
/// Guarantees: one reading a second while nothing goes on, ten while a request holds anything.
#[tokio::test(start_paused = true)]
async fn an_idle_process_is_read_once_a_second() {
    let rig = Rig::start(None);
    let reads = async |time| {
        let before = rig.world.reads.load(Ordering::Relaxed);
        tokio::time::sleep(time).await;
        rig.world.reads.load(Ordering::Relaxed) - before
    };
    reads(Duration::from_secs(1)).await;
    assert_eq!(reads(Duration::from_secs(10)).await, 10);
    let held = rig.budget.try_reserve(MIB).unwrap();
    reads(Duration::from_secs(1)).await;
    assert_eq!(reads(Duration::from_secs(10)).await, 100);
    drop(held);
    reads(Duration::from_secs(1)).await;
    assert_eq!(reads(Duration::from_secs(10)).await, 10);
}

/// Scenario: a limit of 4 GiB, of which little is used while memory moves; then three quarters are.
/// Guarantees: readings come once a second while there is much room, more often with less of it, and ten times a second when it is
/// 400 MiB; large buffers may stay only while three quarters are left, and never with a limit of 256 MiB.
#[tokio::test(start_paused = true)]
async fn room_is_time() {
    let rig = Rig::with_limit(None, 4096);
    rig.world.moves.store(1, Ordering::Relaxed);
    for (beside, least, most, keeps) in [
        (10, 10, 11, true),
        (1500, 15, 16, false),
        (3696, 99, 101, false),
        (10, 10, 11, true),
    ] {
        rig.world.beside.store(beside * MIB, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(3)).await;
        let before = rig.world.reads.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(10)).await;
        let reads = rig.world.reads.load(Ordering::Relaxed) - before;
        assert!((least..=most).contains(&reads), "{beside} MiB: {reads}");
        assert_eq!(
            rig.world.keeps_large.load(Ordering::Relaxed),
            keeps,
            "{beside} MiB"
        );
    }
    let small = Rig::start(None);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!small.world.keeps_large.load(Ordering::Relaxed));
}
