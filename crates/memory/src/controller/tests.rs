#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;
use crate::limit::{Machine, MemoryLimit};

const MIB: u64 = 1 << 20;

/// What connections hold for requests that wait, one part in so many.
const WAITING_PART: u64 = 8;

/// How often the sampler reads.
const TICK: Duration = Duration::from_millis(100);

fn plan(limit_mib: u64) -> Plan {
    let machine = Machine {
        total: 1 << 40,
        cgroups: Vec::new(),
    };
    let limit = limit_mib * MIB;
    Plan::new(
        Some(MemoryLimit::Bytes {
            limit,
            spike: limit / 5,
        }),
        &machine,
        WAITING_PART,
    )
}

/// A process that holds `base` bytes untracked, and `per_mille` bytes more for each thousand of permits. Its clients
/// take all that the budget gives, and let go of it at `pace` bytes a tick when there is less.
struct World {
    controller: Controller,
    ticks: u32,
    permits: u64,
    demand: u64,
    base: u64,
    per_mille: u64,
    pace: u64,
    changes: Vec<(Duration, Change)>,
}

impl World {
    fn new(plan: Plan) -> Self {
        Self {
            controller: Controller::new(plan),
            ticks: 0,
            permits: 0,
            demand: u64::MAX,
            base: 0,
            per_mille: 0,
            pace: u64::MAX,
            changes: Vec::new(),
        }
    }

    fn readings(&self) -> Readings {
        let active = self.permits + self.base + self.permits * self.per_mille / 1000;
        Readings {
            permits: self.permits,
            rss: active,
            active,
            ..Readings::default()
        }
    }

    fn tick(&mut self) -> Decision {
        self.ticks += 1;
        let wanted = self.demand.min(self.controller.capacity());
        self.permits = wanted.max(self.permits.saturating_sub(self.pace));
        let now = TICK * self.ticks;
        let decision = self.controller.read(now, &self.readings());
        self.changes.extend(decision.change.map(|change| (now, change)));
        decision
    }

    fn run(&mut self, time: Duration) {
        for _ in 0..time.as_millis() / TICK.as_millis() {
            self.tick();
        }
    }

    fn rises(&self) -> usize {
        self.changes
            .iter()
            .filter(|(_, change)| change.to > change.from)
            .count()
    }

    fn falls(&self) -> usize {
        self.changes.len() - self.rises()
    }
}

/// Scenario: an idle process; then 100 MiB come beside the budget for ten seconds and go again.
/// Guarantees: idle, the capacity is the ceiling; it falls by what came within two readings, stays there while it stays,
/// and is the ceiling again within half a minute after it went; it falls once, and says why.
#[test]
fn the_capacity_falls_at_once_and_comes_back() {
    let mut world = World::new(plan(256));
    world.demand = 10 * MIB;
    world.base = 9 * MIB;
    world.run(Duration::from_secs(60));
    assert_eq!(world.changes, []);
    world.base += 100 * MIB;
    world.tick();
    let change = world.tick().change.unwrap();
    assert_eq!((change.from, change.to), (200 * MIB, 256 * MIB - 109 * MIB));
    assert_eq!(change.cause, Cause::Process);
    world.run(Duration::from_secs(10));
    assert_eq!(world.changes.len(), 1);
    world.base -= 100 * MIB;
    world.run(Duration::from_secs(30));
    assert_eq!(world.controller.capacity(), 200 * MIB);
    assert_eq!(world.falls(), 1);
    let rises = world.rises();
    world.run(Duration::from_secs(600));
    assert_eq!((world.falls(), world.rises()), (1, rises));
}

/// Scenario: one reading finds far more than the next, again and again: a permit was back before its memory was.
/// Guarantees: no single reading lowers anything.
#[test]
fn one_reading_decides_nothing() {
    let mut world = World::new(plan(256));
    world.demand = 10 * MIB;
    for i in 0..1000 {
        world.base = if i % 2 == 0 { 200 * MIB } else { 9 * MIB };
        assert_eq!(world.tick().change, None);
    }
}

/// Scenario: 200 MiB of permits are given back at once. The allocator keeps their pages free for a second: resident
/// memory stays, pages in use go.
/// Guarantees: free pages are no reason to lower the capacity; above the soft mark they are purged, once a second.
#[test]
fn free_pages_are_purged_and_not_counted() {
    let mut controller = Controller::new(plan(256));
    let mut purges = Vec::new();
    for tick in 1..=30u32 {
        let readings = Readings {
            permits: 0,
            rss: 215 * MIB,
            active: 10 * MIB,
            dirty: 203 * MIB,
            cgroup: None,
        };
        let decision = controller.read(TICK * tick, &readings);
        assert_eq!(decision.change, None);
        if decision.purge {
            purges.push(tick);
        }
    }
    assert_eq!(purges, [1, 11, 21]);
}

/// Scenario: the same close to the limit; with hardly any free pages; below the soft mark; and in a cgroup whose other
/// processes fill it.
/// Guarantees: close to the limit every reading purges; where there is nothing to give back, or no need, none does.
#[test]
fn purging_is_for_need_and_use() {
    let readings = |rss, dirty, cgroup| Readings {
        rss: rss * MIB,
        active: (rss - dirty) * MIB,
        dirty: dirty * MIB,
        permits: (rss - dirty) * MIB,
        cgroup,
    };
    let purges = |readings: Readings| {
        let mut controller = Controller::new(plan(256));
        (1..=10)
            .filter(|tick| controller.read(TICK * *tick, &readings).purge)
            .count()
    };
    assert_eq!(purges(readings(250, 30, None)), 10);
    assert_eq!(purges(readings(220, 30, None)), 1);
    assert_eq!(purges(readings(250, 2, None)), 0);
    assert_eq!(purges(readings(200, 30, None)), 0);
    let full = Charged {
        limit: 512 * MIB,
        bytes: 480 * MIB,
    };
    assert_eq!(purges(readings(100, 30, Some(full))), 1);
}

/// Scenario: permits are taken for bodies that have not come: nothing is resident for them.
/// Guarantees: what is not there yet is not counted against anything, and the capacity stays.
#[test]
fn permits_ahead_of_their_bodies_are_no_reason() {
    let mut controller = Controller::new(plan(256));
    let readings = Readings {
        permits: 200 * MIB,
        rss: 20 * MIB,
        active: 18 * MIB,
        ..Readings::default()
    };
    for tick in 1..=100u32 {
        let decision = controller.read(TICK * tick, &readings);
        assert_eq!((decision.change, decision.untracked), (None, 0));
    }
}

/// Scenario: a cgroup of 512 MiB, a limit of 400 MiB in it; sockets, then a neighbour, take more than the rest of it.
/// Guarantees: while the cgroup has room beside the limit nothing changes; then the cgroup binds, and says so; the floor is kept
/// whatever is charged.
#[test]
fn the_cgroup_counts_as_a_whole() {
    let mut controller = Controller::new(plan(400));
    let mut at = |tick: u32, charged_mib: u64| {
        let readings = Readings {
            permits: 100 * MIB,
            rss: 110 * MIB,
            active: 110 * MIB,
            dirty: 0,
            cgroup: Some(Charged {
                limit: 512 * MIB,
                bytes: charged_mib * MIB,
            }),
        };
        controller.read(TICK * tick, &readings).change
    };
    assert_eq!((at(1, 200), at(2, 200)), (None, None));
    assert_eq!(at(3, 300), None);
    let change = at(4, 300).unwrap();
    assert_eq!((change.to, change.cause), (512 * MIB - 200 * MIB, Cause::Cgroup));
    at(5, 700);
    assert_eq!(at(6, 700).unwrap().to, 8 * MIB);
}

/// Scenario: clients take all that the budget gives, and for each byte of it one, two or three more are held beside it.
/// Guarantees: the capacity finds the value at which both fit the limit and stays there: it falls in the first second
/// only, what is used is within the limit from then on, and after a minute nothing changes any more.
#[test]
fn what_grows_with_the_permits_does_not_make_it_swing() {
    for per_mille in [300, 700, 1000, 2000, 3000] {
        let mut world = World::new(plan(256));
        world.base = 20 * MIB;
        world.per_mille = per_mille;
        world.run(Duration::from_secs(1));
        let falls = world.falls();
        world.run(Duration::from_secs(59));
        assert_eq!(world.falls(), falls, "{per_mille}: {:?}", world.changes);
        assert!(world.readings().rss <= 256 * MIB, "{per_mille}");
        let changes = world.changes.len();
        world.run(Duration::from_secs(3600));
        assert_eq!(world.changes.len(), changes, "{per_mille}: {:?}", world.changes);
        // Most of what there is can be used.
        let best = 236 * MIB * 1000 / (1000 + per_mille);
        assert!(
            world.controller.capacity() >= best * 9 / 10,
            "{per_mille}: {} of {best}",
            world.controller.capacity()
        );
    }
}

proptest! {
    /// Scenario: any limit, any share of untracked bytes up to three for each of permits, any demand, any pace at which permits
    /// come back, within which what is held beside the budget steps up or down once.
    /// Guarantees: after the step the capacity settles: when permits have followed, it never falls again, and in the end it
    /// does not change at all; permits and the rest fit the limit then, unless the floor alone is too much.
    #[test]
    fn it_settles(
        limit_mib in 32u64..8192,
        per_mille in 0u64..3000,
        demand_mib in 1u64..8192,
        before in 0u64..4096,
        after in 0u64..4096,
        pace_mib in 1u64..512,
    ) {
        let plan = plan(limit_mib);
        let mut world = World::new(plan);
        // Even what is held while a fall is followed must leave something of the limit.
        let base = |mib: u64| mib * MIB % (plan.limit / 2);
        world.per_mille = per_mille;
        world.demand = demand_mib * MIB;
        world.pace = pace_mib * MIB;
        world.base = base(before);
        world.run(Duration::from_secs(30));
        world.base = base(after);
        // As long as permits need to follow, what they hold may look untracked for what is safe.
        world.run(Duration::from_secs(5 + plan.limit / world.pace / 10));
        let falls = world.falls();
        world.run(Duration::from_secs(300));
        prop_assert_eq!(world.falls(), falls, "{:?}", &world.changes);
        let changes = world.changes.len();
        world.run(Duration::from_secs(300));
        prop_assert_eq!(world.changes.len(), changes, "{:?}", &world.changes);
        let used = world.readings().rss;
        let spare = plan.limit / BAND_SHARE;
        prop_assert!(
            used <= plan.limit + spare * 4 || world.controller.capacity() == plan.floor,
            "{} of {}", used, plan.limit
        );
    }

    /// Scenario: readings that are anything at all, for an hour.
    /// Guarantees: the capacity is between floor and ceiling; between a rise and the next rise that a fall parts it from, watching
    /// takes longer each time: there are at most fifteen swings in any five minutes.
    #[test]
    fn it_cannot_swing_fast(seed in any::<u64>(), limit_mib in 16u64..4096, slow in 1u32..200) {
        let plan = plan(limit_mib);
        let mut controller = Controller::new(plan);
        let mut random = seed | 1;
        let mut below = |n: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % n.max(1)
        };
        let mut readings = Readings::default();
        let (mut swings, mut raised) = (Vec::new(), false);
        for tick in 1..=36_000u32 {
            if tick % slow == 0 {
                readings = Readings {
                    permits: below(plan.limit),
                    rss: below(plan.limit * 2),
                    active: below(plan.limit * 2),
                    dirty: below(plan.limit),
                    cgroup: None,
                };
            }
            let now = TICK * tick;
            if let Some(change) = controller.read(now, &readings).change {
                prop_assert!(change.from != change.to);
                prop_assert!((plan.floor.min(plan.ceiling)..=plan.ceiling).contains(&change.to));
                if change.to > change.from {
                    raised = true;
                } else if std::mem::take(&mut raised) {
                    swings.push(now);
                }
            }
        }
        for window in swings.windows(16) {
            prop_assert!(window[15] - window[0] >= CALM, "{:?}", swings);
        }
    }
}
