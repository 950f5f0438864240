//! Requests of random sizes that arrive in pieces, inflate, and are delivered, in simulated time; every run is
//! its seed. `SLUICE_SEEDS=100000 cargo test -p sluice-admission --release simulation` looks further.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;

use tokio::time::{Instant, sleep, timeout};

use super::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Seeds of an ordinary test run.
const SEEDS: u64 = 10_000;

/// How long one request may wait in all.
const PATIENCE: Duration = Duration::from_secs(5);

/// Nobody needs longer than this many patient waits one after the other.
const LONGEST_RUN: Duration = Duration::from_secs(600);

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        // splitmix64 (Steele, Lea, Flood 2014)
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n.max(1)
    }
}

/// How one run is set up.
#[derive(Clone, Copy)]
struct World {
    /// Whether the young give way.
    give_way: bool,
    /// All bodies come at once and piece by piece in step, the worst case.
    in_step: bool,
    /// The capacity is set anew again and again, to between an eighth and all of the ceiling.
    resized: bool,
    /// Whether a tenant that is alone leaves room for others.
    keeps_room: bool,
    /// Whose a request is shows when it is complete.
    known_late: bool,
}

/// Where requests are counted whose tenant is not known: beyond the tenants.
const UNREAD: usize = 3;

/// What became of one run.
#[derive(Default, Debug, PartialEq, Eq)]
struct Outcome {
    delivered: u32,
    gave_way: u32,
    shrunk: u32,
    timed_out: u32,
    over_share: u32,
    longest: Duration,
}

/// Why a request was not delivered.
enum Ended {
    Denied(Denied),
    OverShare,
}

/// The reader's loop of `sluice-server`, without the sockets: steps that double, then the inflated body.
async fn request(
    budget: &Budget,
    tenant: usize,
    body: u64,
    inflated: u64,
    pause: Duration,
    world: World,
) -> Result<(), Ended> {
    let mut visitor = budget.visit(if world.known_late { UNREAD } else { tenant });
    visitor.expect(body);
    let mut patience = PATIENCE;
    let mut permits: Vec<Permit> = Vec::new();
    let mut have = 0;
    let mut give_way_after = GIVE_WAY_AFTER;
    let mut step = body.min(256 * KIB);
    let mut needs = Vec::new();
    while have < body {
        needs.push(step.min(body - have));
        have += step.min(body - have);
        step = have;
    }
    needs.push(inflated);
    for need in needs {
        let held: u64 = permits.iter().map(Permit::bytes).sum();
        let permit = match visitor.try_reserve(need, held) {
            Some(permit) => permit,
            None => {
                let asked = Instant::now();
                let waiting = async {
                    let mut granted = pin!(visitor.reserve(need, held));
                    loop {
                        match timeout(give_way_after, granted.as_mut()).await {
                            Ok(granted) => return granted,
                            Err(_) if world.give_way => {
                                visitor.make_way();
                                give_way_after = GIVE_WAY_AGAIN_AFTER;
                            }
                            Err(_) => {}
                        }
                    }
                };
                let granted = timeout(patience, waiting).await;
                patience = patience.saturating_sub(asked.elapsed());
                // An expired patience counts as giving way to everybody.
                granted.unwrap_or(Err(Denied::GaveWay)).map_err(Ended::Denied)?
            }
        };
        permits.push(permit);
        sleep(pause).await;
    }
    // The compressed body goes, the inflated one stays until it is delivered.
    permits.drain(..permits.len() - 1);
    permits[0].move_to(tenant).map_err(|OverShare| Ended::OverShare)?;
    sleep(pause * 4).await;
    Ok(())
}

/// Sets the capacity at random until `live` is zero, and watches: in each lane, nothing is granted above it.
async fn resize(budget: Budget, live: Rc<Cell<u32>>, mut random: Random) {
    const LOOK: Duration = Duration::from_millis(10);
    let lanes = |budget: &Budget| {
        [&budget.0.general, &budget.0.express]
            .map(|lane| (lane.used.load(Ordering::Relaxed), lane.capacity()))
    };
    while live.get() > 0 {
        budget.set_capacity(budget.ceiling() / 8 + random.below(budget.ceiling()));
        let mut before = lanes(&budget);
        for _ in 0..1 + random.below(30) {
            sleep(LOOK).await;
            let now = lanes(&budget);
            for ((used, capacity), (before, _)) in now.into_iter().zip(before) {
                assert!(
                    used <= capacity.max(before),
                    "{before}, then {used} of {capacity}"
                );
            }
            before = now;
        }
    }
}

fn run(seed: u64, world: World) -> Outcome {
    let mut random = Random(seed);
    let budget = Budget::new((16 + random.below(64)) * MIB);
    if world.keeps_room {
        budget.keep_room_for_tenants();
    }
    let largest = budget.largest();
    let outcome = Rc::new(RefCell::new(Outcome::default()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without sockets");
    let local = tokio::task::LocalSet::new();
    let requests = 4 + random.below(24);
    let live = Rc::new(Cell::new(0u32));
    let in_step = (largest / 3, Duration::from_millis(10));
    for _ in 0..requests {
        let (budget, outcome, live) = (budget.clone(), outcome.clone(), live.clone());
        let tenant = random.below(3) as usize;
        // Body and content together fit the lane: what does not is rejected before it comes here.
        let (body, inflated, pause, start) = if world.in_step {
            (in_step.0, in_step.0, in_step.1, Duration::ZERO)
        } else {
            let body = 1 + random.below(largest / 3);
            let inflated = 1 + random.below(largest / 2);
            let start = Duration::from_millis(random.below(3000));
            (body, inflated, Duration::from_millis(random.below(50)), start)
        };
        live.set(live.get() + 1);
        local.spawn_local(async move {
            sleep(start).await;
            let began = Instant::now();
            let result = request(&budget, tenant, body, inflated, pause, world).await;
            let took = began.elapsed();
            let mut outcome = outcome.borrow_mut();
            match result {
                Ok(()) => outcome.delivered += 1,
                Err(Ended::Denied(Denied::NeverFits(never))) => panic!("seed {seed}: {never}"),
                Err(Ended::Denied(Denied::Shrunk)) => outcome.shrunk += 1,
                Err(Ended::OverShare) => outcome.over_share += 1,
                Err(_) if took >= PATIENCE => outcome.timed_out += 1,
                Err(_) => outcome.gave_way += 1,
            }
            outcome.longest = outcome.longest.max(took);
            live.set(live.get() - 1);
        });
    }
    let resizing = world
        .resized
        .then(|| local.spawn_local(resize(budget.clone(), live.clone(), Random(!seed))));
    local.block_on(&runtime, async {
        let ended = timeout(LONGEST_RUN, async {
            while live.get() > 0 {
                sleep(Duration::from_millis(100)).await;
            }
        });
        assert!(ended.await.is_ok(), "seed {seed}: somebody waits for ever");
        if let Some(resizing) = resizing {
            assert!(resizing.await.is_ok(), "seed {seed}: granted above the capacity");
        }
    });
    let usage = budget.usage();
    assert_eq!(
        (usage.used, usage.waiting, usage.waiting_bytes),
        (0, 0, 0),
        "seed {seed}: something stays behind"
    );
    assert!(
        (0..=UNREAD).all(|tenant| budget.used_by(tenant) == 0),
        "seed {seed}"
    );
    drop(local);
    Rc::into_inner(outcome)
        .expect("every request has ended")
        .into_inner()
}

fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("SLUICE_SEEDS")
        .ok()
        .and_then(|count| count.parse().ok());
    0..count.unwrap_or(SEEDS)
}

/// Scenario: a few dozen requests of random sizes, speeds and tenants, more than the budget holds at once.
/// Guarantees: every request ends within its patience and its own work; everything comes back; in every run
/// most is delivered, and nobody is refused without having waited or having given way to an older one.
#[test]
fn everybody_ends_and_most_is_delivered() {
    let world = World {
        give_way: true,
        in_step: false,
        resized: false,
        keeps_room: false,
        known_late: false,
    };
    most_is_delivered(world, seeds());
}

/// Scenario: the same, with room kept for tenants; and bodies that come in step.
/// Guarantees: the same: shares refuse a flood and stop nobody else, and a tenant's own requests never all wait for
/// each other until their patience runs out.
#[test]
fn shares_stop_nobody() {
    let mut world = World {
        give_way: true,
        in_step: false,
        keeps_room: true,
        known_late: false,
        resized: false,
    };
    let seeds = seeds();
    most_is_delivered(world, 0..seeds.end / 4);
    world.in_step = true;
    for seed in 0..100 {
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
    let world = World {
        give_way: true,
        in_step: false,
        keeps_room: true,
        known_late: true,
        resized: false,
    };
    let refused = most_is_delivered(world, 0..seeds().end / 4);
    assert!(refused > 0, "nobody was over its share");
}

/// Returns how many were over their tenants' shares when they were complete.
fn most_is_delivered(world: World, seeds: std::ops::Range<u64>) -> u64 {
    let (mut delivered, mut all, mut over_share) = (0u64, 0u64, 0u64);
    for seed in seeds {
        let outcome = run(seed, world);
        assert!(outcome.delivered > 0, "seed {seed}: {outcome:?}");
        delivered += u64::from(outcome.delivered);
        all += u64::from(outcome.delivered + outcome.gave_way + outcome.timed_out);
        over_share += u64::from(outcome.over_share);
    }
    assert!(delivered * 10 > all * 9, "{delivered} of {all}");
    over_share
}

/// Scenario: the same, while the capacity is set anew every few hundred milliseconds, down to an eighth.
/// Guarantees: nothing is granted above the capacity of the moment, every request ends and everything comes back; who
/// is refused is refused for now, never for good; two thirds are delivered at their first attempt even so.
#[test]
fn everybody_ends_while_the_capacity_changes() {
    let world = World {
        give_way: true,
        in_step: false,
        resized: true,
        keeps_room: false,
        known_late: false,
    };
    let (mut delivered, mut all, mut shrunk) = (0u64, 0u64, 0u64);
    for seed in seeds() {
        let outcome = run(seed, world);
        delivered += u64::from(outcome.delivered);
        shrunk += u64::from(outcome.shrunk);
        all += u64::from(outcome.delivered + outcome.gave_way + outcome.shrunk + outcome.timed_out);
    }
    assert!(
        delivered * 3 > all * 2,
        "{delivered} of {all}, {shrunk} for the capacity"
    );
    assert!(shrunk > 0, "no capacity was too small for anybody");
}

/// Scenario: all requests come at the same moment and grow in step until they hold the whole budget together: the
/// deadlock that growing invites. Once with the young giving way, once without.
/// Guarantees: with the rule somebody is delivered before anybody's patience ends; without it, the same world ends
/// in everybody waiting until patience runs out, which shows that the simulation would find it.
#[test]
fn a_deadlock_in_step_is_broken_and_would_be_found() {
    let mut found = 0;
    for seed in 0..100 {
        let outcome = run(
            seed,
            World {
                give_way: true,
                in_step: true,
                resized: false,
                keeps_room: false,
                known_late: false,
            },
        );
        assert!(
            outcome.delivered > 0 && outcome.timed_out < outcome.delivered,
            "seed {seed}: {outcome:?}"
        );
        let without = run(
            seed,
            World {
                give_way: false,
                in_step: true,
                resized: false,
                keeps_room: false,
                known_late: false,
            },
        );
        found += u32::from(without.delivered < outcome.delivered && without.timed_out > 0);
    }
    assert!(
        found > 50,
        "only {found} of 100 worlds without the rule got stuck"
    );
}
