//! Requests at a gate, by a seed: the real reader with turns, stalls, inflation and copies on their way out, on a paused clock. The budget alone is
//! simulated in `sluice-admission`. `SLUICE_SEEDS=10000 cargo test -p sluice-server --release simulation` looks further.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::LazyLock;

use sluice_payload::{Signal, TenantId};

use super::*;

const MIB: u64 = 1 << 20;

/// Seeds of an ordinary test run: seconds in a build for tests, most of them for copying what is received.
const SEEDS: u64 = 200;

/// Bodies of any size that have turns at once, at the least.
const AT_ONCE: usize = 4;

/// As long as one request may wait for memory.
const PATIENCE: Duration = Duration::from_secs(5);

/// A payload is appended and delivered within this.
const LONGEST_APPEND: Duration = Duration::from_millis(20);
const LONGEST_DELIVERY: Duration = Duration::from_millis(500);

/// What all the waits of one request take at most: for memory as long as the gate lets one wait, and for turns.
const LONGEST_WAITS: Duration = PATIENCE.saturating_add(crate::turns::LONGEST_WAIT);

/// Within this who stalls is given up while others wait, the young have given way to the oldest, and what was complete then is delivered. In these
/// crowds that serves nearly everybody: not who waits for what somebody holds who sent much in no time before stalling, and is as fast as he
/// has to be on average for some seconds more.
const ONE_ROUND: Duration = STALL_GRACE
    .saturating_add(STALL_INTERVAL)
    .saturating_add(sluice_admission::GIVE_WAY_AFTER)
    .saturating_add(sluice_admission::GIVE_WAY_AGAIN_AFTER)
    .saturating_add(LONGEST_APPEND)
    .saturating_add(LONGEST_DELIVERY);

/// Who sends nothing more is given up after this, if nobody else needs its memory: the idle time-out of the defaults.
const LONGEST_STALL: Duration = Duration::from_secs(10);

/// What takes longer than all the waits that a request may have, and its body's idle time-out, waits for ever.
const LONGEST: Duration = Duration::from_secs(60);

/// Bodies of zeros that do not say how large they are, by their size in MiB.
static ZEROS: LazyLock<BTreeMap<u64, Bytes>> = LazyLock::new(|| {
    let zeros = |size| compressed(Encoding::Zstd, &vec![0; (size * MIB) as usize]).into();
    (1..=4).map(|size| (size, zeros(size))).collect()
});

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

    fn millis(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.below(most))
    }
}

/// One request.
struct Plan {
    start: Duration,
    encoding: Encoding,
    /// Pieces that come, and their bytes; it announces more when it stalls.
    pieces: usize,
    piece: Bytes,
    every: Duration,
    announced: Option<u64>,
    stalls: bool,
    tenant: usize,
    signal: Signal,
    /// Until it is in the journals, and until it is delivered then.
    append: Duration,
    deliver: Duration,
    /// Bytes of it that are copied on their way out.
    copied: u64,
}

impl Plan {
    fn new(random: &mut Random) -> Self {
        let piece_bytes = 16 << random.below(4 + 10);
        let (encoding, pieces, piece) = match random.below(4) {
            0 => (Encoding::Zstd, 1, ZEROS[&(1 + random.below(4))].clone()),
            _ => {
                let most = (5 * MIB / piece_bytes).min(64);
                (
                    Encoding::Identity,
                    1 + random.below(most) as usize,
                    vec![0; piece_bytes as usize].into(),
                )
            }
        };
        let sent = (pieces * piece.len()) as u64;
        let stalls = random.below(5) == 0;
        let announced = match (stalls, random.below(3)) {
            (true, _) => Some(sent + 1 + random.below(4 * MIB)),
            (false, 0) => None,
            (false, _) => Some(sent),
        };
        Self {
            start: random.millis(3000),
            encoding,
            pieces,
            piece,
            every: random.millis(40),
            announced,
            stalls,
            tenant: random.below(2) as usize,
            signal: Signal::ALL[random.below(2) as usize],
            append: random.millis(LONGEST_APPEND.as_millis() as u64),
            deliver: random.millis(LONGEST_DELIVERY.as_millis() as u64),
            copied: random.below(2) * random.below(MIB),
        }
    }

    /// One of many that come at the same moment and grow in step, until they hold the whole budget together: the worst case.
    fn in_step(random: &mut Random) -> Self {
        let (pieces, piece_bytes) = (48, 64 << 10);
        Self {
            start: Duration::ZERO,
            encoding: Encoding::Identity,
            pieces,
            piece: vec![0; piece_bytes].into(),
            every: Duration::from_millis(10),
            announced: Some((pieces * piece_bytes) as u64),
            stalls: false,
            ..Self::new(random)
        }
    }

    /// How long it takes without a wait: until all is sent that is sent, appended and delivered.
    fn own_time(&self) -> Duration {
        self.every * self.pieces as u32 + self.append + self.deliver
    }

    /// Sends it, and delivers what is taken.
    async fn run(self, gate: Gate, tenants: &[TenantId]) -> Result<(), Refusal> {
        let mut body = Stalling {
            paced: Paced::new(self.pieces, self.piece.len(), self.every),
            stalls: self.stalls,
        };
        body.paced.piece = self.piece;
        let mut visit = gate.visit_of(tenants[self.tenant], self.signal);
        let limits = BodyLimits::default();
        let received = receive(
            &mut body,
            self.announced,
            plain(self.encoding),
            &mut visit,
            &limits,
        )
        .await?;
        let turn = visit.into_turn();
        sleep(self.append).await;
        drop(turn);
        let copy = received.permit.for_copy(self.copied);
        sleep(self.deliver).await;
        drop((received, copy));
        Ok(())
    }
}

/// A body that may not end.
struct Stalling {
    paced: Paced,
    stalls: bool,
}

impl Body for Stalling {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match Pin::new(&mut self.paced).poll_frame(cx) {
            Poll::Ready(None) if self.stalls => Poll::Pending,
            next => next,
        }
    }
}

/// What became of the requests of a run.
#[derive(Debug, Default)]
struct Outcome {
    delivered: u32,
    refused: u32,
    /// Of those that stall.
    given_up: u32,
    /// The longest that one waited which did not stall, for turns and memory together.
    longest: Duration,
    /// The longest that one was waited for which did.
    longest_stall: Duration,
    /// By tenant: requests that do not stall, and those of them that were delivered.
    given: [(u32, u32); 2],
}

fn run(seed: u64) -> Outcome {
    let mut random = Random(seed);
    let in_step = random.below(4) == 0;
    let budget = match in_step {
        true => Budget::new(16 * MIB),
        false => Budget::new((16 + random.below(32)) * MIB),
    };
    if random.below(2) == 0 {
        budget.keep_room_for_tenants();
    }
    let tenants = sluice_payload::Tenants::default();
    let tenants = Rc::new([TenantId::DEFAULT, tenants.intern("other")]);
    let gate = Gate::new(budget, PATIENCE, &Registry::default(), seed);
    let outcome = Rc::new(RefCell::new(Outcome::default()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let local = tokio::task::LocalSet::new();
    let live = Rc::new(Cell::new(4 + random.below(24)));
    local.block_on(&runtime, async {
        for _ in 0..live.get() {
            let plan = match in_step {
                true => Plan::in_step(&mut random),
                false => Plan::new(&mut random),
            };
            let (gate, tenants, outcome, live) =
                (gate.clone(), tenants.clone(), outcome.clone(), live.clone());
            tokio::task::spawn_local(async move {
                sleep(plan.start).await;
                let (began, stalls) = (Instant::now(), plan.stalls);
                let (tenant, own) = (plan.tenant, plan.own_time());
                let result = plan.run(gate, &tenants[..]).await;
                let mut outcome = outcome.borrow_mut();
                let waited = began.elapsed().saturating_sub(own);
                match stalls {
                    true => outcome.longest_stall = outcome.longest_stall.max(waited),
                    false => {
                        outcome.longest = outcome.longest.max(waited);
                        outcome.given[tenant].0 += 1;
                        outcome.given[tenant].1 += u32::from(result.is_ok());
                    }
                }
                match (result, stalls) {
                    (Ok(()), false) => outcome.delivered += 1,
                    (Err(Refusal::Busy { .. }), false) => outcome.refused += 1,
                    (Err(Refusal::Busy { .. } | Refusal::TooSlow(_)), true) => outcome.given_up += 1,
                    (result, _) => panic!("seed {seed}: {result:?}"),
                }
                live.set(live.get() - 1);
            });
        }
        let ended = tokio::time::timeout(LONGEST, async {
            while live.get() > 0 {
                sleep(Duration::from_millis(100)).await;
            }
        });
        assert!(ended.await.is_ok(), "seed {seed}: somebody waits for ever");
        let mut turns = Vec::new();
        for _ in 0..AT_ONCE {
            let mut visit = gate.visit();
            visit.take_turn(u64::MAX).await;
            turns.push(visit.into_turn());
        }
        assert!(
            turns.iter().all(Option::is_some),
            "seed {seed}: a turn stays behind"
        );
    });
    let usage = gate.usage();
    assert_eq!(
        (usage.used, usage.waiting, usage.waiting_bytes),
        (0, 0, 0),
        "seed {seed}: something stays behind"
    );
    drop(local);
    Rc::into_inner(outcome)
        .expect("every request has ended")
        .into_inner()
}

/// Scenario: a few dozen requests of two tenants and two signals, more than the budget holds at once: large ones that have turns, slow ones, ones that stop coming, compressed ones of which
/// nobody knows how large they are; some are copied on their way out, whether there is room for that or not.
/// Guarantees: each ends in its time, and what it had of budget and turns comes back; nothing that ends is refused for good; nobody who stalls is waited for beside others, and nobody
/// else waits longer than [`LONGEST_WAITS`], nor one of a thousand longer than [`ONE_ROUND`]; four of five that do not stall are delivered at their first attempt, of each tenant as many.
#[test]
fn simulation() {
    let count = std::env::var("SLUICE_SEEDS")
        .ok()
        .and_then(|count| count.parse().ok());
    let (mut delivered, mut refused, mut given_up) = (0, 0, 0);
    let (mut by_tenant, mut long) = ([(0, 0); 2], 0);
    for seed in 0..count.unwrap_or(SEEDS) {
        let outcome = run(seed);
        // In one crowd of a thousand everybody stalls.
        assert!(
            outcome.delivered > 0 || outcome.refused == 0,
            "seed {seed}: {outcome:?}"
        );
        assert!(
            outcome.longest <= LONGEST_WAITS && outcome.longest_stall <= LONGEST_WAITS + LONGEST_STALL,
            "seed {seed}: {outcome:?}"
        );
        long += u32::from(outcome.longest > ONE_ROUND);
        for ((asked, given), of_run) in by_tenant.iter_mut().zip(outcome.given) {
            *asked += of_run.0;
            *given += of_run.1;
        }
        delivered += outcome.delivered;
        refused += outcome.refused;
        given_up += outcome.given_up;
    }
    assert!(
        given_up > 0 && delivered > 4 * refused,
        "{delivered} delivered, {refused} refused, {given_up} given up"
    );
    assert!(
        delivered > 1_000 * long,
        "{long} crowds of {delivered} delivered had somebody wait for more than {ONE_ROUND:?}"
    );
    // Nothing tells one tenant from the other: each gets what both get together, or a twentieth of its requests less.
    let all = f64::from(delivered) / f64::from(delivered + refused);
    for (asked, given) in by_tenant {
        let part = f64::from(given) / f64::from(asked);
        assert!(part >= all - 0.05, "{part:.3} of one tenant's, {all:.3} of all");
    }
}
