//! Crowds of requests that come once, in each kind of world.

use super::*;

/// Seeds of an ordinary test run.
const SEEDS: u64 = 1_000;

/// The sum over many seeds of what became of requests.
#[derive(Default, Debug)]
struct Sum {
    delivered: u64,
    refused: u64,
    shrunk: u64,
    over_share: u64,
    given: [(u64, u64); UNREAD],
}

impl Sum {
    fn add(&mut self, outcome: &Outcome) {
        self.delivered += u64::from(outcome.delivered);
        self.refused += u64::from(outcome.gave_way + outcome.timed_out);
        self.shrunk += u64::from(outcome.shrunk);
        self.over_share += u64::from(outcome.over_share);
        for (sum, (asked, given)) in self.given.iter_mut().zip(outcome.given) {
            sum.0 += u64::from(asked);
            sum.1 += u64::from(given);
        }
    }

    /// Nothing in these worlds tells one tenant from another, so none is given less: each gets what all get together, or a twentieth
    /// of its requests less.
    fn is_the_same_for_each_tenant(&self) {
        let asked: u64 = self.given.iter().map(|(asked, _)| asked).sum();
        for (of_tenant, given) in self.given {
            let (given, all) = (
                given as f64 / of_tenant as f64,
                self.delivered as f64 / asked as f64,
            );
            assert!(
                given >= all - 0.05,
                "{given:.3} of one tenant's, {all:.3} of all: {self:?}"
            );
        }
    }
}

/// Scenario: a few dozen requests of random sizes, speeds and tenants, more than the budget holds at once.
/// Guarantees: every request ends, nobody waits longer than it takes to serve all one after the other, nor the oldest of those that hold bytes
/// longer than [`OLDEST_WAITS`]; everything comes back; in every run most is delivered, of each tenant as much; and nobody is refused without
/// having waited or having given way to an older one.
#[test]
fn everybody_ends_and_most_is_delivered() {
    most_is_delivered(World::ORDINARY);
}

/// Scenario: the same, and bodies that come in step; nobody loses patience.
/// Guarantees: the same: it is the scheme that ends waits, and no time-out.
#[test]
fn nobody_needs_a_time_out() {
    let world = World {
        patient: true,
        ..World::ORDINARY
    };
    most_is_delivered(world);
    let world = World {
        in_step: true,
        ..world
    };
    for seed in seeds(SEEDS) {
        let outcome = run(seed, world);
        assert!(outcome.delivered > 0, "seed {seed}: {outcome:?}");
    }
}

/// Scenario: the same, with room kept for tenants; and bodies that come in step.
/// Guarantees: the same: shares refuse a flood and stop nobody else, and a tenant's own requests never all wait for
/// each other until their patience runs out.
#[test]
fn shares_stop_nobody() {
    let mut world = World {
        keeps_room: true,
        ..World::ORDINARY
    };
    most_is_delivered(world);
    world.in_step = true;
    for seed in seeds(SEEDS) {
        let outcome = run(seed, world);
        assert!(
            outcome.delivered > 0 && outcome.timed_out < outcome.delivered,
            "seed {seed}: {outcome:?}"
        );
    }
}

/// Scenario: the same, where whose a request is shows when it is complete.
/// Guarantees: every request ends, and everything comes back, counted to nobody; some are refused because their tenant has its share,
/// and of all others most are delivered.
#[test]
fn tenants_known_late_stop_nobody() {
    let sum = most_is_delivered(World {
        keeps_room: true,
        known_late: true,
        ..World::ORDINARY
    });
    assert!(sum.over_share > 0, "nobody was over its share");
}

fn most_is_delivered(world: World) -> Sum {
    let mut sum = Sum::default();
    for seed in seeds(SEEDS) {
        let outcome = run(seed, world);
        assert!(outcome.delivered > 0, "seed {seed}: {outcome:?}");
        sum.add(&outcome);
    }
    // Twice as many as give way: more would be refused than the oldest needed.
    assert!(sum.delivered > 30 * sum.refused, "{sum:?}");
    sum.is_the_same_for_each_tenant();
    sum
}

/// Scenario: the same, while the capacity is set anew every few hundred milliseconds, down to an eighth.
/// Guarantees: nothing is granted above the capacity of the moment, every request ends and everything comes back; who
/// is refused is refused for now, never for good; two thirds are delivered at their first attempt even so.
#[test]
fn everybody_ends_while_the_capacity_changes() {
    let world = World {
        resized: true,
        ..World::ORDINARY
    };
    let mut sum = Sum::default();
    for seed in seeds(SEEDS) {
        sum.add(&run(seed, world));
    }
    assert!(sum.delivered > 2 * (sum.refused + sum.shrunk), "{sum:?}");
    assert!(sum.shrunk > 0, "no capacity was too small for anybody");
    sum.is_the_same_for_each_tenant();
}

/// Scenario: all requests come at the same moment and grow in step until they hold the whole budget together: the
/// deadlock that growing invites. Once with the young giving way, once without.
/// Guarantees: with the rule somebody is delivered before anybody's patience ends; without it, the same world ends
/// in everybody waiting until patience runs out, which shows that the simulation would find it.
#[test]
fn a_deadlock_in_step_is_broken_and_would_be_found() {
    let in_step = World {
        in_step: true,
        ..World::ORDINARY
    };
    let without_rule = World {
        give_way: false,
        ..in_step
    };
    let (mut found, mut count) = (0, 0);
    for seed in seeds(SEEDS) {
        let outcome = run(seed, in_step);
        assert!(
            outcome.delivered > 0 && outcome.timed_out < outcome.delivered,
            "seed {seed}: {outcome:?}"
        );
        let without = run(seed, without_rule);
        found += u32::from(without.delivered < outcome.delivered && without.timed_out > 0);
        count += 1;
    }
    assert!(
        2 * found > count,
        "only {found} of {count} worlds without the rule got stuck"
    );
}
