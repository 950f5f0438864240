#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

/// Scenario: logs fill the budget as far as they may, in front of a destination that takes nothing; then traces come, of
/// the same tenant, and logs again.
/// Guarantees: traces find a fifth of the general lane and more; logs are refused, and do not keep traces waiting.
#[tokio::test(start_paused = true)]
async fn a_signal_leaves_room_for_others() {
    const PIECE: u64 = 2 << 20;
    let budget = Budget::new(128 << 20);
    budget.keep_room_for_tenants();
    let gate = Gate::new(budget, Duration::from_secs(5), &Registry::default(), 1);
    let mut held = Vec::new();
    let mut fill = async |signal| {
        let mut count = 0;
        while let Ok(permit) = gate.visit_of(TenantId::DEFAULT, signal).reserve(PIECE).await {
            held.push(permit);
            count += 1;
        }
        (count * PIECE) >> 20
    };
    let logs = fill(Signal::Logs).await;
    assert!((90..=98).contains(&logs), "{logs} MiB of logs");
    let traces = fill(Signal::Traces).await;
    assert!(traces >= 16, "{traces} MiB of traces");
    assert_eq!(gate.held_by(TenantId::DEFAULT.index()), (logs + traces) << 20);
}

/// Scenario: room is kept for tenants, who are known when their requests have been read. One of them sends requests for ten times its share in
/// front of a destination that takes nothing, all at once; one that is named by nothing does the same; then others send, small
/// requests and large ones, while both go on.
/// Guarantees: both are refused, retryably, at their shares, and only they: every request of the others is taken at its first attempt.
#[tokio::test(start_paused = true)]
async fn a_tenant_known_late_starves_nobody() {
    const PIECE: u64 = 2 << 20;
    /// How long it takes to read a request and to look through it.
    const READING: Duration = Duration::from_millis(20);
    let budget = Budget::new(128 << 20);
    budget.keep_room_for_tenants();
    let gate = Gate::new(budget, Duration::from_secs(5), &Registry::default(), 1);
    let tenants = sluice_payload::Tenants::default();
    let send = |tenant: TenantId, bytes: u64, within: Duration| {
        let gate = gate.clone();
        tokio::spawn(async move {
            tokio::time::sleep(within).await;
            let mut permit = gate.visit_unread(Signal::Logs).reserve(bytes).await?;
            tokio::time::sleep(READING).await;
            gate.hand_over(&mut permit, tenant, Signal::Logs)?;
            Ok::<_, Refusal>(permit)
        })
    };
    let floods = [tenants.intern("flood"), TenantId::DEFAULT];
    // Sixteen at a time, of each: more would have to be refused in the line, as from any other sender.
    let second = Duration::from_secs(1);
    let mut flood = Vec::new();
    for number in 0..640_u32 {
        let after = second * (number / 32) / 4;
        flood.push(send(floods[number as usize % 2], PIECE, after));
    }
    let mut others = Vec::new();
    for number in 0..40_u32 {
        let tenant = tenants.intern(&format!("other-{}", number % 4));
        let bytes = if number % 4 == 0 { 512 << 10 } else { 50 << 10 };
        others.push(send(tenant, bytes, second + second * number / 20));
    }
    let mut kept = Vec::new();
    for other in others {
        kept.push(other.await.unwrap().unwrap());
    }
    let mut refused = 0;
    for one in flood {
        match one.await.unwrap() {
            Ok(permit) => kept.push(permit),
            Err(Refusal::Busy { retry_after, .. }) => {
                assert!(!retry_after.is_zero());
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    let held = floods.map(|tenant| gate.held_by(tenant.index()) >> 20);
    assert!(held.iter().all(|held| (45..=60).contains(held)), "{held:?} MiB");
    assert!(refused > 500, "{refused} of 640");
    assert_eq!(gate.held_unread(), 0);
    drop(kept);
    assert_eq!(gate.usage().used, 0);
}

/// Scenario: the last tenant there can be holds as much as it may, and others' requests have not been read.
/// Guarantees: what has not been read is counted to none of the tenants.
#[test]
fn what_is_unread_is_nobodys() {
    let gate = Gate::new(Budget::new(128 << 20), Duration::ZERO, &Registry::default(), 1);
    let unread = Signal::ALL.map(|signal| gate.visit_unread(signal).visitor.try_reserve(1 << 20, 0).unwrap());
    assert_eq!(gate.held_unread(), 4 << 20);
    assert!((0..MAX_TENANTS).all(|tenant| gate.held_by(tenant) == 0));
    drop(unread);
}

/// Scenario: a request reserves twice while the budget is full; another request lets go in time for the first
/// reservation only.
/// Guarantees: both waits together are no longer than the gate's; the refusal is retryable.
#[tokio::test(start_paused = true)]
async fn waits_of_one_request_add_up() {
    const WAIT: Duration = Duration::from_secs(5);
    let budget = Budget::new(16 << 20);
    let gate = Gate::new(budget.clone(), WAIT, &Registry::default(), 1);
    let held = budget.try_reserve(15 << 20).unwrap();
    let began = Instant::now();
    tokio::spawn(async move {
        tokio::time::sleep(WAIT - Duration::from_secs(1)).await;
        drop(held);
    });
    let mut visit = gate.visit();
    let first = visit.reserve(15 << 20).await.unwrap();
    assert_eq!(visit.patience(), Duration::from_secs(1));
    let refused = visit.reserve(2 << 20).await.unwrap_err();
    assert!(matches!(refused, Refusal::Busy { .. }), "{refused}");
    assert_eq!(began.elapsed(), WAIT);
    drop(first);
}

const LARGE: u64 = 1 << 20;

/// A gate at which four bodies of [`LARGE`] have turns, and those of them.
async fn full_of_turns(budget: Budget) -> (Gate, Vec<Option<Turn>>) {
    let gate = Gate::new(budget, Duration::from_secs(5), &Registry::default(), 1);
    let mut turns = Vec::new();
    for _ in 0..4 {
        let mut visit = gate.visit();
        assert_eq!(visit.take_turn(LARGE).await, Duration::ZERO);
        turns.push(visit.into_turn());
    }
    assert!(turns.iter().all(Option::is_some));
    (gate, turns)
}

/// Scenario: others keep all turns; a body waits for one before it is read, and would again before it is inflated. Later it has one, and
/// needs one for a larger body.
/// Guarantees: it goes on after two seconds in all, and has as much time for memory as without turns; it never gives up the turn it has
/// to wait for another.
#[tokio::test(start_paused = true)]
async fn turns_take_nothing_off_the_wait_for_memory() {
    let (gate, turns) = full_of_turns(Budget::new(16 * LARGE)).await;
    let mut visit = gate.visit();
    assert_eq!(visit.take_turn(LARGE).await, LONGEST_WAIT);
    assert_eq!(visit.take_turn(2 * LARGE).await, Duration::ZERO);
    assert!(visit.turn.is_none());
    assert_eq!(visit.patience(), Duration::from_secs(5));
    drop(turns);
    assert_eq!(visit.take_turn(LARGE).await, Duration::ZERO);
    let _others: Vec<_> = (0..3).map(|_| gate.0.turns.now(LARGE).unwrap()).collect();
    assert_eq!(visit.take_turn(4 * LARGE).await, Duration::ZERO);
    assert!(visit.turn.is_some());
}

/// Scenario: a body begins a second after its request (in gRPC, the size comes with it), has its turn, and takes its time.
/// Guarantees: it has its turn for a moment from when it got it, and no longer.
#[tokio::test(start_paused = true)]
async fn a_turn_lasts_from_when_it_was_granted() {
    let gate = Gate::new(
        Budget::new(16 * LARGE),
        Duration::from_secs(5),
        &Registry::default(),
        1,
    );
    let mut visit = gate.visit();
    tokio::time::sleep(Duration::from_secs(1)).await;
    visit.take_turn(LARGE).await;
    visit.reads_on(Instant::now());
    assert!(visit.turn.is_some());
    tokio::time::sleep(Duration::from_secs(1)).await;
    visit.reads_on(Instant::now());
    assert!(visit.turn.is_none());
}

/// Scenario: as many as may wait wait for turns and memory, in several mixtures; one more comes for its turn, or for memory.
/// Guarantees: together they are no more than may wait: who comes for a turn goes on without, and who comes for memory waits in place of
/// one that waits for its turn, and is not refused for it.
#[tokio::test(start_paused = true)]
async fn both_lines_have_the_places_of_one() {
    let most = most_waiting(16 * LARGE) as usize;
    for for_memory in [0, most / 2, most - 1] {
        let budget = Budget::new(16 * LARGE);
        let (gate, _turns) = full_of_turns(budget.clone()).await;
        let largest = budget.largest();
        let _held = budget.try_reserve(largest).unwrap();
        let mut waiting = tokio::task::JoinSet::new();
        let wait = |visit_turn: bool| {
            let gate = gate.clone();
            async move {
                let mut visit = gate.visit();
                match visit_turn {
                    true => drop(visit.take_turn(LARGE).await),
                    false => drop(visit.reserve(largest).await),
                }
                visit_turn
            }
        };
        (0..most).for_each(|number| drop(waiting.spawn(wait(number >= for_memory))));
        let soon = Duration::from_millis(100);
        tokio::time::sleep(soon).await;
        let lines = || (gate.usage().waiting, gate.0.turns.waiting());
        assert_eq!(lines(), (for_memory, most - for_memory));
        let began = Instant::now();
        assert!(wait(true).await);
        assert_eq!(began.elapsed(), Duration::ZERO, "one too many for a turn");
        waiting.spawn(wait(false));
        tokio::time::sleep(soon).await;
        assert_eq!(lines(), (for_memory + 1, most - for_memory - 1));
        assert!(waiting.try_join_next().unwrap().unwrap(), "it was one for a turn");
    }
}

/// Scenario: requests that find the queue behind the gate full: one that drains in ten seconds, in none, in a day, and one of which nothing is known. Nobody waits for
/// memory.
/// Guarantees: the hint is the queue's, spread by a quarter either way within its bounds; where it has none, that of the gate.
#[test]
fn a_full_queue_has_a_hint_of_its_own() {
    let gate = Gate::new(Budget::new(16 * LARGE), Duration::ZERO, &Registry::default(), 1);
    let hints = |drains_in: Option<u64>| {
        let refusal = (0..100).map(|_| gate.queue_full(1, "full".into(), drains_in.map(Duration::from_secs)));
        let mut hints: Vec<_> = refusal
            .map(|refusal| match refusal {
                Refusal::Busy {
                    retry_after, reason, ..
                } => {
                    assert_eq!(reason, "queue_full");
                    retry_after.as_secs_f64()
                }
                other => panic!("{other}"),
            })
            .collect();
        hints.sort_by(f64::total_cmp);
        (hints[0], hints[99])
    };
    let (least, most) = hints(Some(10));
    assert!(
        (7.5..8.5).contains(&least) && (11.5..=12.5).contains(&most),
        "{least} {most}"
    );
    assert_eq!(hints(Some(0)), (1.0, 1.0));
    assert_eq!(hints(Some(24 * 60 * 60)), (30.0, 30.0));
    let (least, most) = hints(None);
    assert!(
        (1.5..2.0).contains(&least) && (2.0..=2.5).contains(&most),
        "{least} {most}"
    );
}
