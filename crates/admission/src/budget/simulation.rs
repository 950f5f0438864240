//! Requests of random sizes that arrive in pieces, inflate, and are delivered, in simulated time; every run is
//! its seed. An ordinary test run, CI's too, tries a part of the seeds that the scheme is held to:
//! `SLUICE_SEEDS=10000 cargo test -p sluice-admission --lib --release simulation` tries ten thousand of every world.

mod flood;
mod oldest;
mod worlds;

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;

use tokio::time::{Instant, sleep, timeout};

use super::*;
use oldest::Oldest;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// How long one request may wait in all.
const PATIENCE: Duration = Duration::from_secs(5);

/// Nobody needs longer than this many patient waits one after the other.
const LONGEST_RUN: Duration = Duration::from_secs(600);

/// Who sends a body, or delivers it, rests so long at most between two steps.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// A complete body is delivered in so many pauses.
const DELIVERY_PAUSES: u32 = 4;

/// Whoever is the oldest of those that hold bytes waits no longer for more. By then the young have given way (rule 2), once at first and
/// once more when those have come into the line that rested between two steps; and what was complete, which nobody can take from, has
/// been delivered (rule 3), a pause after its last bytes were granted.
const OLDEST_WAITS: Duration = GIVE_WAY_AFTER
    .saturating_add(GIVE_WAY_AGAIN_AFTER)
    .saturating_add(LONGEST_PAUSE.saturating_mul(1 + DELIVERY_PAUSES));

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
#[derive(Debug, Clone, Copy)]
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
    /// Nobody's patience ends: only the scheme ends waits, so that no time-out hides who would starve.
    patient: bool,
}

impl World {
    const ORDINARY: Self = Self {
        give_way: true,
        in_step: false,
        resized: false,
        keeps_room: false,
        known_late: false,
        patient: false,
    };
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
    /// How long it takes to serve all of them one after the other, each waiting first until others gave way.
    one_by_one: Duration,
    /// The longest that one request waited in all.
    longest: Duration,
    /// The longest that one waited while it was the oldest of those that hold bytes.
    longest_of_oldest: Duration,
    /// By tenant: requests, and those of them that were delivered.
    given: [(u32, u32); UNREAD],
}

/// Why a request was not delivered.
enum Ended {
    Denied(Denied),
    OverShare,
}

/// One request.
struct Plan {
    tenant: usize,
    body: u64,
    inflated: u64,
    pause: Duration,
}

impl Plan {
    /// What it asks for, one after the other: steps that double, then the inflated body.
    fn needs(&self) -> Vec<u64> {
        let mut needs = Vec::new();
        let (mut have, mut step) = (0, 256 * KIB);
        while have < self.body {
            needs.push(step.min(self.body - have));
            have += step.min(self.body - have);
            step = have;
        }
        needs.push(self.inflated);
        needs
    }

    /// How long it holds others up at most once it is the oldest: its own rests, and until others gave way, at each step.
    fn alone(&self) -> Duration {
        let steps = self.needs().len() as u32;
        OLDEST_WAITS + GIVE_WAY_AGAIN_AFTER * steps + self.pause * (steps + DELIVERY_PAUSES)
    }
}

/// The reader's loop of `sluice-server`, without the sockets. Returns how long it waited as well.
async fn request(
    budget: &Budget,
    plan: &Plan,
    oldest: &Oldest,
    world: World,
) -> (Duration, Result<(), Ended>) {
    let mut waited = Duration::ZERO;
    let ended = steps(budget, plan, oldest, world, &mut waited).await;
    (waited, ended)
}

async fn steps(
    budget: &Budget,
    plan: &Plan,
    oldest: &Oldest,
    world: World,
    waited: &mut Duration,
) -> Result<(), Ended> {
    let Plan {
        tenant, body, pause, ..
    } = *plan;
    let mut visitor = budget.visit(if world.known_late { UNREAD } else { tenant });
    visitor.expect(body);
    let among = oldest.enter(visitor.age);
    let patience = if world.patient { LONGEST_RUN } else { PATIENCE };
    let mut permits: Vec<Permit> = Vec::new();
    let mut give_way_after = GIVE_WAY_AFTER;
    for need in plan.needs() {
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
                let granted = timeout(patience.saturating_sub(*waited), waiting).await;
                *waited += asked.elapsed();
                among.waited_since(asked);
                // An expired patience counts as giving way to everybody.
                granted.unwrap_or(Err(Denied::GaveWay)).map_err(Ended::Denied)?
            }
        };
        permits.push(permit);
        among.holds();
        sleep(pause).await;
    }
    drop(among);
    // The compressed body goes, the inflated one stays until it is delivered.
    permits.drain(..permits.len() - 1);
    permits[0].move_to(tenant).map_err(|OverShare| Ended::OverShare)?;
    sleep(pause * DELIVERY_PAUSES).await;
    Ok(())
}

/// Sets the capacity at random until `live` is zero, and watches: in each lane, nothing is granted above it.
async fn resize(budget: Budget, live: Rc<Cell<u32>>, mut random: Random) {
    const LOOK: Duration = Duration::from_millis(10);
    let lanes =
        |budget: &Budget| [&budget.0.general, &budget.0.express].map(|lane| (lane.used(), lane.capacity()));
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
    let oldest = Oldest::default();
    let in_step = (largest / 3, Duration::from_millis(10));
    for _ in 0..requests {
        let (budget, outcome, live, oldest) = (budget.clone(), outcome.clone(), live.clone(), oldest.clone());
        let tenant = random.below(3) as usize;
        // Body and content together fit the lane: what does not is rejected before it comes here.
        let (body, inflated, pause, start) = if world.in_step {
            (in_step.0, in_step.0, in_step.1, Duration::ZERO)
        } else {
            let body = 1 + random.below(largest / 3);
            let inflated = 1 + random.below(largest / 2);
            let start = Duration::from_millis(random.below(3000));
            (
                body,
                inflated,
                Duration::from_millis(random.below(LONGEST_PAUSE.as_millis() as u64)),
                start,
            )
        };
        let plan = Plan {
            tenant,
            body,
            inflated,
            pause,
        };
        outcome.borrow_mut().one_by_one += plan.alone();
        live.set(live.get() + 1);
        local.spawn_local(async move {
            sleep(start).await;
            let (waited, result) = request(&budget, &plan, &oldest, world).await;
            let mut outcome = outcome.borrow_mut();
            outcome.given[tenant].0 += 1;
            match result {
                Ok(()) => {
                    outcome.delivered += 1;
                    outcome.given[tenant].1 += 1;
                }
                Err(Ended::Denied(Denied::NeverFits(never))) => panic!("seed {seed}: {never}"),
                Err(Ended::Denied(Denied::Shrunk)) => outcome.shrunk += 1,
                Err(Ended::OverShare) => outcome.over_share += 1,
                Err(_) if waited >= PATIENCE => outcome.timed_out += 1,
                Err(_) => outcome.gave_way += 1,
            }
            outcome.longest = outcome.longest.max(waited);
            outcome.longest_of_oldest = oldest.longest();
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
    let outcome = Rc::into_inner(outcome)
        .expect("every request has ended")
        .into_inner();
    // Without the rule there is no bound but everybody's patience.
    assert!(
        !world.give_way || outcome.longest_of_oldest <= OLDEST_WAITS,
        "seed {seed}: the oldest waits too long: {outcome:?}"
    );
    assert!(
        !world.give_way || outcome.longest <= outcome.one_by_one,
        "seed {seed}: somebody waits longer than it takes to serve all: {outcome:?}"
    );
    outcome
}

/// As many as `SLUICE_SEEDS` says, or `ordinary`.
fn seeds(ordinary: u64) -> std::ops::Range<u64> {
    let count = std::env::var("SLUICE_SEEDS")
        .ok()
        .and_then(|count| count.parse().ok());
    0..count.unwrap_or(ordinary)
}
