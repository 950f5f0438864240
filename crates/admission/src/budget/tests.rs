#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

const MIB: u64 = 1 << 20;

/// Scenario: reserve, grow, shrink, drop.
/// Guarantees: used bytes equal the sum of live permits at every step, also for the tenant.
#[test]
fn used_is_the_sum_of_permits() {
    let budget = Budget::new(16 * MIB);
    let visitor = budget.visit(3);
    let mut a = visitor.try_reserve(MIB, 0).unwrap();
    assert_eq!(budget.usage().used, MIB);
    a.absorb(visitor.try_reserve(2 * MIB, 0).unwrap());
    assert_eq!((budget.usage().used, budget.used_by(3)), (3 * MIB, 3 * MIB));
    a.shrink_to(MIB / 2);
    assert_eq!((budget.usage().used, budget.used_by(3)), (MIB / 2, MIB / 2));
    drop(a);
    assert_eq!((budget.usage().used, budget.used_by(3)), (0, 0));
    assert_eq!(budget.usage().released, 3 * MIB);
}

/// Scenario: a copy is made of what holds most of the lane, and of a part of that copy; somebody waits for memory.
/// Guarantees: the copies are taken at once, for the same tenant, beyond what there is; who waits is served when enough has come back.
#[tokio::test]
async fn a_copy_is_taken_beyond_what_is_free() {
    let budget = Budget::new(16 * MIB);
    let whole = budget.visit(3).try_reserve(12 * MIB, 0).unwrap();
    let copy = whole.for_copy(10 * MIB);
    let part = copy.for_copy(MIB);
    assert_eq!((budget.usage().used, budget.used_by(3)), (23 * MIB, 23 * MIB));
    assert!(budget.try_reserve(2 * MIB).is_none());
    let waiting = spawn_reserve(&budget, 3 * MIB);
    settle().await;
    drop(copy);
    settle().await;
    assert!(!waiting.is_finished(), "13 of 15 MiB are taken");
    drop(part);
    let granted = waiting.await.unwrap().unwrap();
    drop((whole, granted));
    assert_eq!((budget.usage().used, budget.used_by(3)), (0, 0));
}

/// Scenario: the general lane is full of huge bodies.
/// Guarantees: a small request still gets in at once; another huge one does not.
#[test]
fn small_requests_pass_when_the_general_lane_is_full() {
    let budget = Budget::new(256 * MIB);
    let _huge: Vec<_> = (0..4).map(|_| budget.try_reserve(60 * MIB).unwrap()).collect();
    assert!(budget.try_reserve(60 * MIB).is_none());
    assert!(budget.try_reserve(100 << 10).is_some());
}

/// Scenario: a reservation larger than the general lane.
/// Guarantees: it fails at once instead of waiting for ever.
#[tokio::test]
async fn what_never_fits_is_told_so() {
    let budget = Budget::new(16 * MIB);
    let error = budget.visit(0).reserve(16 * MIB, 0).await.unwrap_err();
    let never = NeverFits {
        asked: 16 * MIB,
        largest: 15 * MIB,
    };
    assert_eq!(error, Denied::NeverFits(never));
}

/// Lets every spawned task run until it waits.
pub(super) async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

fn spawn_reserve(budget: &Budget, bytes: u64) -> tokio::task::JoinHandle<Result<Permit, Denied>> {
    let visitor = budget.visit(0);
    tokio::spawn(async move { visitor.reserve(bytes, 0).await })
}

/// Scenario: three waiters, the first larger than the rest, bytes freed step by step; one leaves.
/// Guarantees: grants come in order, a departed waiter neither blocks the line nor keeps bytes.
#[tokio::test(start_paused = true)]
async fn waiting_is_first_come_first_served() {
    let budget = Budget::new(16 * MIB);
    let held = budget.try_reserve(10 * MIB).unwrap();
    let rest = budget.try_reserve(5 * MIB).unwrap();
    let first = spawn_reserve(&budget, 10 * MIB);
    settle().await;
    let leaver = spawn_reserve(&budget, 3 * MIB);
    settle().await;
    let last = spawn_reserve(&budget, 4 * MIB);
    settle().await;
    assert_eq!(budget.usage().waiting, 3);
    leaver.abort();
    let _ = leaver.await;
    drop(held);
    settle().await;
    assert!(first.is_finished() && !last.is_finished(), "the last came first");
    let first = first.await.unwrap().unwrap();
    drop(rest);
    let last = last.await.unwrap().unwrap();
    assert_eq!(budget.usage().used, 14 * MIB);
    drop((first, last));
    assert_eq!(
        budget.usage(),
        Usage {
            used: 0,
            waiting: 0,
            waiting_bytes: 0,
            ..budget.usage()
        }
    );
}

/// Scenario: who waits for bytes leaves in the moment in which they are granted.
/// Guarantees: they come back, and whoever waits behind has them.
#[tokio::test]
async fn a_grant_that_nobody_takes_comes_back() {
    let budget = Budget::new(16 * MIB);
    let held = budget.try_reserve(15 * MIB).unwrap();
    let leaver = budget.visit(0);
    let mut leaving = Box::pin(leaver.reserve(10 * MIB, 0));
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(leaving.as_mut().poll(cx).is_pending())).await);
    let behind = spawn_reserve(&budget, 12 * MIB);
    settle().await;
    drop(held);
    assert_eq!(budget.usage().used, 10 * MIB);
    drop(leaving);
    settle().await;
    assert!(behind.is_finished(), "its bytes stay granted");
    let behind = behind.await.unwrap().unwrap();
    assert_eq!(budget.usage().used, 12 * MIB);
    drop(behind);
}

/// Scenario: a newcomer waits; then two that hold bytes wait for more, the younger of them first; bytes come free.
/// Guarantees: the older grower is served first, then the younger one, then the newcomer.
#[tokio::test]
async fn who_holds_bytes_is_served_by_age() {
    let budget = Budget::new(16 * MIB);
    let (older, younger) = (budget.visit(0), budget.visit(0));
    let older_holds = older.try_reserve(2 * MIB, 0).unwrap();
    let younger_holds = younger.try_reserve(2 * MIB, 0).unwrap();
    let rest = budget.try_reserve(11 * MIB).unwrap();
    let newcomer = spawn_reserve(&budget, 2 * MIB);
    settle().await;
    let younger = tokio::spawn(async move { younger.reserve(9 * MIB, 2 * MIB).await });
    settle().await;
    let older = tokio::spawn(async move { older.reserve(9 * MIB, 2 * MIB).await });
    settle().await;
    drop(rest);
    let older = older.await.unwrap().unwrap();
    settle().await;
    assert_eq!(budget.usage().waiting, 2);
    drop((older, older_holds));
    let younger = younger.await.unwrap().unwrap();
    drop((younger, younger_holds));
    newcomer.await.unwrap().unwrap();
}

/// Scenario: three requests hold most of the lane together, and each needs more.
/// Guarantees: only the oldest can make others give way; the youngest does, and no more than have what is missing.
#[tokio::test]
async fn the_youngest_gives_way_to_the_oldest() {
    let budget = Budget::new(16 * MIB);
    let visitors: Vec<_> = (0..3).map(|_| Arc::new(budget.visit(0))).collect();
    let growing: Vec<_> = visitors
        .iter()
        .map(|visitor| {
            let holds = visitor.try_reserve(4 * MIB, 0).unwrap();
            let visitor = visitor.clone();
            tokio::spawn(async move {
                let more = visitor.reserve(4 * MIB, 4 * MIB).await;
                drop(holds);
                more
            })
        })
        .collect();
    let rest = budget.try_reserve(3 * MIB).unwrap();
    settle().await;
    visitors[1].make_way();
    settle().await;
    assert_eq!(budget.usage().waiting, 3, "not the oldest");
    visitors[0].make_way();
    let mut outcomes = Vec::new();
    for task in growing {
        outcomes.push(task.await.unwrap());
    }
    assert!(outcomes[0].is_ok() && outcomes[1].is_ok());
    assert!(matches!(outcomes[2], Err(Denied::GaveWay)));
    assert_eq!(budget.usage().gave_way, 1);
    drop(rest);
}

/// Scenario: one tenant takes all it can while another holds a little; then the first is alone. Both are looked at, or one, or none.
/// Guarantees: beside another it stops at four times what is free, and alone it gets the whole lane.
#[test]
fn a_tenant_leaves_room_for_others() {
    let (first, last, counted) = (0, TENANTS_LOOKED_AT - 1, TENANTS_LOOKED_AT);
    for (tenant, beside) in [
        (first, last),
        (last, counted),
        (counted, first),
        (counted, counted + 1),
    ] {
        let budget = Budget::new(160 * MIB);
        let other = budget.visit(beside).try_reserve(MIB, 0).unwrap();
        let mut taken = Vec::new();
        // Above the express lane's size, so that only the general lane counts.
        while let Some(permit) = budget.visit(tenant).try_reserve(2 * MIB, 0) {
            taken.push(permit);
        }
        let held = budget.used_by(tenant);
        let free = 150 * MIB - MIB - held;
        assert!(
            held <= 4 * (free + 2 * MIB) && held + 2 * MIB > 4 * free,
            "{held} held by {tenant} beside {beside}, {free} free"
        );
        assert!(budget.visit(beside).try_reserve(20 * MIB, 0).is_some());
        drop(other);
        while let Some(permit) = budget.visit(tenant).try_reserve(2 * MIB, 0) {
            taken.push(permit);
        }
        assert_eq!(budget.used_by(tenant), 150 * MIB, "{tenant} beside {beside}");
    }
}

/// Scenario: one tenant fills the budget and has a hundred requests in line; then another one asks.
/// Guarantees: the other one is served by the first bytes that come free.
#[tokio::test]
async fn a_newcomer_tenant_is_not_behind_the_flood() {
    let budget = Budget::new(32 * MIB);
    let mut held: Vec<_> = (0..15)
        .map(|_| budget.visit(1).try_reserve(2 * MIB, 0).unwrap())
        .collect();
    let flood: Vec<_> = (0..100)
        .map(|_| {
            let visitor = budget.visit(1);
            tokio::spawn(async move { visitor.reserve(2 * MIB, 0).await })
        })
        .collect();
    settle().await;
    let visitor = budget.visit(2);
    let other = tokio::spawn(async move { visitor.reserve(2 * MIB, 0).await });
    settle().await;
    assert_eq!(budget.usage().waiting, 101);
    held.pop();
    settle().await;
    assert!(other.is_finished());
    assert!(flood.iter().all(|task| !task.is_finished()));
    flood.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Scenario: eight threads reserve and release at random against a small budget.
/// Guarantees: capacity is never exceeded and nothing stays behind.
#[test]
fn capacity_holds_under_contention() {
    let budget = Budget::new(MIB);
    std::thread::scope(|scope| {
        for seed in 1..=8u64 {
            let budget = budget.clone();
            scope.spawn(move || {
                let mut x = seed;
                for _ in 0..20_000 {
                    x = x
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    let visitor = budget.visit((x >> 60) as usize);
                    if let Some(permit) = visitor.try_reserve((x >> 33) % (MIB / 3), 0) {
                        assert!(budget.usage().used <= MIB);
                        drop(permit);
                    }
                }
            });
        }
    });
    assert_eq!(budget.usage().used, 0);
    assert!((0..16).all(|tenant| budget.used_by(tenant) == 0));
    assert_eq!(budget.0.active_tenants(), 0);
}

/// Scenario: complete bodies hold nearly everything; many small ones wait to grow.
/// Guarantees: nobody gives way, since it would not help the oldest.
#[tokio::test]
async fn nobody_gives_way_in_vain() {
    let budget = Budget::new(16 * MIB);
    let visitors: Vec<_> = (0..10).map(|_| Arc::new(budget.visit(0))).collect();
    let holds: Vec<_> = visitors
        .iter()
        .map(|visitor| visitor.try_reserve(1 << 10, 0).unwrap())
        .collect();
    let complete = budget.try_reserve(14 * MIB).unwrap();
    let growing: Vec<_> = visitors
        .iter()
        .map(|visitor| {
            let visitor = visitor.clone();
            tokio::spawn(async move { visitor.reserve(5 * MIB, 1 << 10).await.map(drop) })
        })
        .collect();
    settle().await;
    visitors[0].make_way();
    settle().await;
    assert_eq!((budget.usage().waiting, budget.usage().gave_way), (10, 0));
    drop(complete);
    for task in growing {
        task.await.unwrap().unwrap();
    }
    drop(holds);
}

/// Scenario: the capacity is lowered below what is held, then bytes come back one by one, then it is raised again.
/// Guarantees: nothing is revoked; nothing but nothing is granted until enough came back; raising serves who waits.
#[tokio::test]
async fn a_lowered_capacity_takes_nothing_away() {
    let budget = Budget::new(32 * MIB);
    let mut held: Vec<_> = (0..15).map(|_| budget.try_reserve(2 * MIB).unwrap()).collect();
    budget.set_capacity(16 * MIB);
    let usage = budget.usage();
    assert_eq!((usage.used, usage.capacity), (30 * MIB, 16 * MIB));
    assert!(budget.visit(0).try_reserve(0, 0).is_some());
    let waiting = spawn_reserve(&budget, 2 * MIB);
    for _ in 0..8 {
        held.pop();
        settle().await;
        assert!(!waiting.is_finished(), "{:?}", budget.usage());
    }
    let also_waiting = spawn_reserve(&budget, 15 * MIB);
    settle().await;
    held.pop();
    let granted = waiting.await.unwrap().unwrap();
    assert_eq!(budget.usage().used, 14 * MIB);
    budget.set_capacity(64 * MIB);
    assert_eq!(budget.usage().capacity, 32 * MIB, "the ceiling");
    let also_granted = also_waiting.await.unwrap().unwrap();
    drop((granted, also_granted, held));
    assert_eq!(budget.usage().used, 0);
}

/// Scenario: requests that fit the ceiling and not the lowered capacity: one asks, one waits since before, one has
/// part of what it needs; a small one waits behind them.
/// Guarantees: they are refused for now, at once, not for good; who fits is not held up; what exceeds the ceiling is
/// refused for good as ever.
#[tokio::test]
async fn what_fits_the_ceiling_only_is_refused_for_now() {
    let budget = Budget::new(32 * MIB);
    let grows = budget.visit(0);
    let half = grows.try_reserve(9 * MIB, 0).unwrap();
    let rest = budget.try_reserve(20 * MIB).unwrap();
    let before = spawn_reserve(&budget, 20 * MIB);
    let growing = tokio::spawn(async move { grows.reserve(9 * MIB, 9 * MIB).await });
    settle().await;
    budget.set_capacity(16 * MIB);
    assert_eq!(before.await.unwrap().unwrap_err(), Denied::Shrunk);
    assert_eq!(growing.await.unwrap().unwrap_err(), Denied::Shrunk);
    let after = budget.visit(0).reserve(20 * MIB, 0).await.unwrap_err();
    assert_eq!(after, Denied::Shrunk);
    let never = budget.visit(0).reserve(31 * MIB, 0).await.unwrap_err();
    assert!(matches!(never, Denied::NeverFits(NeverFits { largest, .. }) if largest == 30 * MIB));
    drop((half, rest));
    assert!(spawn_reserve(&budget, 15 * MIB).await.unwrap().is_ok());
    assert_eq!((budget.usage().used, budget.usage().waiting), (0, 0));
}

/// Scenario: two requests hold bytes and wait for more, while more is used than the lowered capacity has.
/// Guarantees: the younger gives way only if what it holds makes up for that, too.
#[tokio::test]
async fn giving_way_counts_what_a_lowered_capacity_lacks() {
    for (complete, gives_way) in [(6 * MIB, true), (12 * MIB, false)] {
        let budget = Budget::new(32 * MIB);
        let (older, younger) = (Arc::new(budget.visit(0)), budget.visit(0));
        let older_holds = older.try_reserve(4 * MIB, 0).unwrap();
        let younger_holds = younger.try_reserve(5 * MIB, 0).unwrap();
        let complete = budget.try_reserve(complete).unwrap();
        let rest = budget.try_reserve(2 * MIB).unwrap();
        budget.set_capacity(16 * MIB);
        let waits = older.clone();
        let oldest = tokio::spawn(async move { waits.reserve(3 * MIB, 4 * MIB).await });
        let younger = tokio::spawn(async move {
            let more = younger.reserve(9 * MIB, 5 * MIB).await;
            drop(younger_holds);
            more
        });
        settle().await;
        older.make_way();
        settle().await;
        assert_eq!(budget.usage().gave_way > 0, gives_way);
        assert_eq!(younger.is_finished(), gives_way);
        assert_eq!(oldest.is_finished(), gives_way);
        drop((complete, rest, older_holds));
        oldest.await.unwrap().unwrap();
        let _ = younger.await.unwrap();
        assert_eq!(budget.usage().used, 0);
    }
}

/// Scenario: room is kept for tenants; one fills what it may in front of a destination that takes nothing, and has a
/// hundred requests in line, half of which hold bytes already; then another one sends.
/// Guarantees: the flood stops at its share, with what its bodies grow to included; the other's requests come in at once,
/// small ones and those that grow; what the flood waits for keeps nobody else waiting.
#[tokio::test]
async fn a_flood_that_was_first_leaves_room() {
    let budget = Budget::new(160 * MIB);
    budget.keep_room_for_tenants();
    let (flood, other) = (1, 2);
    let mut held = Vec::new();
    let starters: Vec<_> = (0..50)
        .map(|_| {
            let visitor = budget.visit(flood);
            held.extend(visitor.try_reserve(MIB / 4, 0));
            visitor
        })
        .collect();
    while let Some(permit) = budget.visit(flood).try_reserve(2 * MIB, 0) {
        held.push(permit);
    }
    let share = budget.used_by(flood);
    assert!(
        (118 * MIB..=122 * MIB).contains(&share),
        "{share} of a lane of {}",
        150 * MIB
    );
    let growing = starters
        .into_iter()
        .map(|visitor| tokio::spawn(async move { visitor.reserve(4 * MIB, MIB / 4).await.map(drop) }));
    let new = (0..50).map(|_| {
        let visitor = budget.visit(flood);
        tokio::spawn(async move { visitor.reserve(2 * MIB, 0).await.map(drop) })
    });
    let waiting: Vec<_> = growing.chain(new).collect();
    settle().await;
    assert_eq!((budget.usage().waiting, budget.used_by(flood)), (100, share));
    for bytes in [100 << 10, 2 * MIB] {
        let visitor = budget.visit(other);
        let first = visitor.try_reserve(bytes, 0);
        let first = match first {
            Some(first) => first,
            None => tokio::time::timeout(Duration::ZERO, visitor.reserve(bytes, 0))
                .await
                .unwrap()
                .unwrap(),
        };
        let more = tokio::time::timeout(Duration::ZERO, visitor.reserve(4 * bytes, bytes))
            .await
            .unwrap()
            .unwrap();
        held.extend([first, more]);
    }
    assert!(waiting.iter().all(|task| !task.is_finished()));
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Scenario: one tenant holds nine tenths of what is held, another the rest; then the first one gives up most of it, and then a little more.
/// Guarantees: the second is light, and the first is not, while it holds more; in the end both hold the same, and neither is; nor is who is alone.
#[test]
fn a_tenant_is_light_beside_heavier_ones() {
    let budget = Budget::new(160 * MIB);
    let mut first = budget.visit(1).try_reserve(90 * MIB, 0).unwrap();
    assert!(!first.is_of_a_light_tenant());
    let second = budget.visit(2).try_reserve(10 * MIB, 0).unwrap();
    assert!(second.is_of_a_light_tenant() && !first.is_of_a_light_tenant());
    first.shrink_to(12 * MIB);
    assert!(second.is_of_a_light_tenant() && !first.is_of_a_light_tenant());
    first.shrink_to(10 * MIB);
    assert!(!second.is_of_a_light_tenant() && !first.is_of_a_light_tenant());
}

/// Scenario: two tenants of weights 1 and 3 take piece after piece, in turn, while the oldest piece is given back whenever neither gets
/// another.
/// Guarantees: the one comes to hold three times what the other holds; a third finds what is left.
#[test]
fn shares_are_in_proportion_to_weights() {
    const PIECE: u64 = 64 << 10;
    let budget = Budget::new(160 * MIB);
    let weight = |weight| NonZeroU8::new(weight).unwrap();
    budget.set_weights([weight(1), weight(1), weight(3)]);
    let (light, heavy, third) = (1, 2, 3);
    let mut held = VecDeque::new();
    let pieces = budget.usage().capacity / PIECE;
    for _ in 0..20 * pieces {
        let before = held.len();
        for tenant in [light, heavy] {
            held.extend(budget.visit(tenant).try_reserve(PIECE, EXPRESS_MAX_BYTES));
        }
        if held.len() == before {
            held.pop_front();
        }
    }
    // 4 : 12 : 1 of the general lane, the last being what is left.
    let (light, heavy) = (budget.used_by(light), budget.used_by(heavy));
    let near = |held: u64, expected: u64| held.abs_diff(expected) <= expected / 10;
    assert!(
        near(light, 150 * MIB * 4 / 17) && near(heavy, 150 * MIB * 12 / 17),
        "{light} and {heavy}"
    );
    assert!(budget.visit(third).try_reserve(8 * MIB, 0).is_some());
}

/// Scenario: room is kept for tenants; one has a complete body and three growing ones that are its share together; so a
/// younger request of another tenant has to wait too.
/// Guarantees: the oldest gets what it needs from the youngest of its own tenant, and not from the other one.
#[tokio::test]
async fn the_young_of_a_tenant_give_way_to_its_oldest() {
    let budget = Budget::new(16 * MIB);
    budget.keep_room_for_tenants();
    let complete = budget.visit(1).try_reserve(3 * MIB, 0).unwrap();
    let visitors: Vec<_> = (0..3).map(|_| Arc::new(budget.visit(1))).collect();
    let other = budget.visit(2);
    let others = other.try_reserve(MIB, 0).unwrap();
    let mut growing: Vec<_> = visitors
        .iter()
        .map(|visitor| {
            let holds = visitor.try_reserve(3 * MIB, 0).unwrap();
            let visitor = visitor.clone();
            tokio::spawn(async move {
                let more = visitor.reserve(3 * MIB, 3 * MIB).await.ok()?;
                Some((more, holds))
            })
        })
        .collect();
    settle().await;
    let waiting = tokio::spawn(async move {
        let more = other.reserve(4 * MIB, MIB).await.ok()?;
        Some((more, others))
    });
    settle().await;
    assert_eq!(budget.usage().waiting, 4);
    visitors[1].make_way();
    settle().await;
    assert_eq!(budget.usage().gave_way, 0, "not the oldest of its tenant");
    visitors[0].make_way();
    settle().await;
    assert_eq!((budget.usage().gave_way, waiting.is_finished()), (1, false));
    assert!(growing.pop().unwrap().await.unwrap().is_none());
    let oldest = growing.remove(0).await.unwrap();
    assert!(oldest.is_some());
    drop(oldest);
    assert!(waiting.await.unwrap().is_some());
    drop(complete);
}
