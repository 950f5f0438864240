#![allow(clippy::unwrap_used, reason = "tests")]

use super::super::tests::settle;
use super::*;

const MIB: u64 = 1 << 20;

/// Where requests are counted that have not been read, and whose they turn out to be.
const UNREAD: usize = 1;
const FLOOD: usize = 2;
const OTHER: usize = 3;

fn roomy() -> Budget {
    let budget = Budget::new(160 * MIB);
    budget.keep_room_for_tenants();
    budget
}

/// Admits a request unread, and reads it.
fn read(budget: &Budget, tenant: usize, bytes: u64) -> Option<Permit> {
    let mut permit = budget.visit(UNREAD).try_reserve(bytes, 0)?;
    permit.move_to(tenant).ok()?;
    Some(permit)
}

/// Scenario: a permit that has grown goes over to another tenant, makes a copy and shrinks there; then to the tenant it is of.
/// Guarantees: each byte is counted to one tenant at every step, the sum stays, and all comes back.
#[test]
fn what_moves_is_counted_once() {
    let budget = roomy();
    let visitor = budget.visit(UNREAD);
    let mut permit = visitor.try_reserve(MIB, 0).unwrap();
    permit.absorb(visitor.try_reserve(2 * MIB, MIB).unwrap());
    permit.move_to(OTHER).unwrap();
    let counts = |budget: &Budget| (budget.used_by(UNREAD), budget.used_by(OTHER), budget.usage().used);
    assert_eq!(counts(&budget), (0, 3 * MIB, 3 * MIB));
    let copy = permit.for_copy(MIB);
    permit.shrink_to(2 * MIB);
    permit.move_to(OTHER).unwrap();
    assert_eq!(counts(&budget), (0, 3 * MIB, 3 * MIB));
    drop((permit, copy));
    assert_eq!(counts(&budget), (0, 0, 0));
    assert_eq!(budget.0.active_tenants.load(Ordering::Relaxed), 0);
}

/// Scenario: a tenant whose requests are known only when they are read sends all it can, in front of a destination that takes nothing;
/// beside it, one that is known before, in a budget of its own.
/// Guarantees: both come to hold the same share; the refused permit stays what it was and gives its bytes back; another tenant
/// finds room, for small and large requests.
#[test]
fn a_tenant_known_late_has_the_share_of_one_known_early() {
    let (late, early) = (roomy(), roomy());
    let held: Vec<_> = std::iter::from_fn(|| read(&late, FLOOD, 2 * MIB)).collect();
    let known: Vec<_> = std::iter::from_fn(|| early.visit(FLOOD).try_reserve(2 * MIB, 0)).collect();
    assert_eq!((held.len(), late.used_by(UNREAD)), (known.len(), 0));
    let mut refused = late.visit(UNREAD).try_reserve(2 * MIB, 0).unwrap();
    assert_eq!(refused.move_to(FLOOD), Err(OverShare));
    assert_eq!((refused.bytes(), late.used_by(UNREAD)), (2 * MIB, 2 * MIB));
    drop(refused);
    assert_eq!(late.used_by(UNREAD), 0);
    let others: Vec<_> = [100 << 10, 2 * MIB, 8 * MIB]
        .map(|bytes| read(&late, OTHER, bytes).unwrap())
        .into();
    drop((held, known, others));
    assert_eq!((late.usage().used, early.usage().used), (0, 0));
}

/// Scenario: other tenants hold the whole general lane; a tenant that holds little sends a small request, which has bytes of the
/// express lane.
/// Guarantees: it keeps them when it turns out whose it is.
#[test]
fn a_small_request_keeps_its_express_bytes() {
    let budget = roomy();
    let held = read(&budget, OTHER, MIB).unwrap();
    let rest = Share::of(Granted::General, budget.0.general.free());
    let full = Permit::new(budget.clone(), FLOOD, rest);
    budget.0.general.charge(full.bytes());
    budget.0.count(FLOOD, full.bytes());
    let small = read(&budget, OTHER, 100 << 10).unwrap();
    assert_eq!(small.share.express, 100 << 10);
    drop((held, full, small));
    assert_eq!(budget.usage().used, 0);
}

/// Scenario: what has not been read is its share; one more waits for that. Then a part of it turns out to be another tenant's.
/// Guarantees: who waits is served by that, though no byte comes free.
#[tokio::test]
async fn who_waits_for_the_unread_is_served_when_they_are_read() {
    let budget = roomy();
    let mut unread: Vec<_> = std::iter::from_fn(|| budget.visit(UNREAD).try_reserve(2 * MIB, 0)).collect();
    let visitor = budget.visit(UNREAD);
    let waiting = tokio::spawn(async move { visitor.reserve(2 * MIB, 0).await });
    settle().await;
    assert!(!waiting.is_finished());
    unread[0].move_to(OTHER).unwrap();
    settle().await;
    assert!(waiting.is_finished());
}
