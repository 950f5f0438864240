//! The gate in front of every body: the memory budget, a bounded wait, a refusal with a hint.

use std::num::NonZeroU8;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use sluice_admission::{
    Budget, Denied, GIVE_WAY_AFTER, GIVE_WAY_AGAIN_AFTER, NeverFits, Permit, RetryHint, Usage, Visitor,
};
use sluice_payload::{Signal, TenantId};
use sluice_telemetry::{Counter, Registry};
use tokio::time::Instant;

use crate::Refusal;
use crate::conversation::H2_STREAM_WINDOW;
use crate::turns::{LONGEST_WAIT, Turn, Turns};

/// What every receiver asks before it reads. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    budget: Budget,
    hint: RetryHint,
    wait: Duration,
    waited: Counter,
    turns: Turns,
    turn_waits: Counter,
}

impl Gate {
    /// A gate on `budget` at which a request waits at most `wait`.
    pub fn new(budget: Budget, wait: Duration, registry: &Registry, seed: u64) -> Self {
        let waited = registry.counter(
            "sluice_admission_waits_total",
            "Reservations that had to wait for the memory budget.",
            vec![],
        );
        let turn_waits = registry.counter(
            "sluice_admission_turn_waits_total",
            "Large bodies that had to wait for their turn.",
            vec![],
        );
        let ceiling = budget.ceiling();
        Self(Arc::new(Inner {
            budget,
            hint: RetryHint::new(std::time::Instant::now(), seed),
            wait,
            waited,
            turns: Turns::new(ceiling),
            turn_waits,
        }))
    }

    /// The budget behind it.
    pub fn budget(&self) -> &Budget {
        &self.0.budget
    }

    /// What the budget holds now.
    pub fn usage(&self) -> Usage {
        self.0.budget.usage()
    }

    /// One request's turn at the gate; it names no tenant and no signal.
    pub fn visit(&self) -> Visit<'_> {
        self.visit_of(TenantId::DEFAULT, Signal::Metrics)
    }

    /// The turn of a request of `tenant` with `signal`. Each signal of a tenant has a share of the budget while others hold
    /// something too: then a destination of logs that is down leaves room for traces.
    pub fn visit_of(&self, tenant: TenantId, signal: Signal) -> Visit<'_> {
        Visit {
            gate: self,
            visitor: self
                .0
                .budget
                .visit(shares(tenant.index()).start + signal as usize),
            patience: self.0.wait,
            turn_patience: self.0.wait.min(LONGEST_WAIT),
            held: 0,
            give_way_after: GIVE_WAY_AFTER,
            turn: None,
        }
    }

    /// The refusal of a request that no waiting can help.
    pub fn never_fits(&self, asked: u64) -> Refusal {
        let never = NeverFits {
            asked,
            largest: self.budget().largest(),
        };
        Refusal::TooLarge(format!(
            "{never}; send smaller requests or raise the memory limit (memory_limiter.limit_mib)"
        ))
    }

    /// From now on tenants with these indices weigh so much beside one another in the budget, and all others 1
    /// ([`Budget::set_weights`]).
    pub fn set_weights(&self, weights: &[(usize, NonZeroU8)]) {
        let tenants = weights.iter().map(|(tenant, _)| tenant + 1).max().unwrap_or(0);
        let mut by_share = vec![NonZeroU8::MIN; shares(tenants).start];
        for (tenant, weight) in weights {
            by_share[shares(*tenant)].fill(*weight);
        }
        self.budget().set_weights(by_share);
    }

    /// Bytes of the budget that requests of the tenant with this index hold.
    pub fn held_by(&self, tenant: usize) -> u64 {
        shares(tenant).map(|share| self.0.budget.used_by(share)).sum()
    }

    /// A refusal with a computed hint.
    pub fn busy(&self, bytes: u64, message: String, reason: &'static str) -> Refusal {
        let retry_after = self.0.hint.delay(std::time::Instant::now(), self.usage(), bytes);
        Refusal::Busy {
            message,
            retry_after,
            reason,
        }
    }
}

/// The shares of a tenant, one for each signal: to the budget, each is a tenant.
fn shares(tenant: usize) -> std::ops::Range<usize> {
    let first = tenant * Signal::ALL.len();
    first..first + Signal::ALL.len()
}

/// One request at the gate. However many reservations it makes, together they wait no longer than the gate lets
/// one request wait, and its turns as long once more or [`LONGEST_WAIT`]: a client is answered while it still listens.
#[derive(Debug)]
pub struct Visit<'a> {
    gate: &'a Gate,
    visitor: Visitor,
    patience: Duration,
    /// How much longer it may wait for turns. Apart from the other: who has waited for a turn has the same chance of memory.
    turn_patience: Duration,
    /// Bytes granted so far, some of which may have been given back: what others could get from it, at most.
    held: u64,
    give_way_after: Duration,
    /// Of a large body.
    turn: Option<Turn>,
}

impl Visit<'_> {
    /// How much longer this request may wait.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// What `work` comes to, if it begins while this request may still wait; its time is taken off that.
    pub(crate) async fn within_patience<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let began = Instant::now();
        let done = tokio::time::timeout(self.patience, work).await;
        self.patience = self.patience.saturating_sub(began.elapsed());
        done.ok()
    }

    /// The gate.
    pub fn gate(&self) -> &Gate {
        self.gate
    }

    /// Announces the whole size of the request, if that is known.
    pub fn expect(&mut self, bytes: u64) {
        self.visitor.expect(bytes);
    }

    /// Waits for the turn of a body of `bytes`; who has one keeps it, though it turns out to be larger. Returns how long that took. See
    /// [`Turns`].
    pub(crate) async fn take_turn(&mut self, bytes: u64) -> Duration {
        if self.turn.is_some() || !Turns::has(bytes) {
            return Duration::ZERO;
        }
        let Inner {
            budget,
            turns,
            turn_waits,
            ..
        } = &*self.gate.0;
        self.turn = turns.now(bytes);
        if self.turn.is_some() || self.turn_patience.is_zero() {
            return Duration::ZERO;
        }
        turn_waits.add(1);
        let asked = Instant::now();
        // Both lines keep unread bytes in their connections: together they have the places of one.
        let usage = budget.usage();
        let places = (most_waiting(usage.capacity) as usize).saturating_sub(usage.waiting);
        self.turn = turns.wait(bytes, self.turn_patience, places).await;
        let waited = asked.elapsed();
        self.turn_patience = self.turn_patience.saturating_sub(waited);
        waited
    }

    /// The body is being read, and is not all here.
    pub(crate) fn reads_on(&mut self, now: Instant) {
        self.turn.take_if(|turn| !turn.lasts(now));
    }

    /// What is to be kept until the body's payload is in the journals: until then its turn lasts, if it has one.
    pub fn into_turn(self) -> Option<Turn> {
        self.turn
    }

    /// Gives back all but `bytes` of what was reserved.
    pub(crate) fn give_back(&mut self, permit: &mut Permit, bytes: u64) {
        let before = permit.bytes();
        permit.shrink_to(bytes);
        self.held = self.held.saturating_sub(before - permit.bytes());
    }

    /// Reserves `bytes`: at once, or after a bounded wait.
    ///
    /// # Errors
    /// [`Refusal::TooLarge`] when it can never fit, [`Refusal::Busy`] with a hint when the wait was in vain.
    pub async fn reserve(&mut self, bytes: u64) -> Result<Permit, Refusal> {
        if let Some(permit) = self.visitor.try_reserve(bytes, self.held) {
            self.held += bytes;
            return Ok(permit);
        }
        let Inner {
            budget,
            wait,
            waited,
            turns,
            ..
        } = &*self.gate.0;
        let usage = budget.usage();
        // One tenant that floods the gateway leaves half of the line to others.
        let part = 1 + u64::from(self.visitor.is_over_share(bytes));
        if usage.waiting as u64 >= most_waiting(usage.capacity) / part
            && !self.visitor.is_small(bytes, self.held)
        {
            let message = format!(
                "the memory budget is used up, and {} requests wait for it; retry later",
                usage.waiting
            );
            return Err(self.gate.busy(bytes, message, "memory"));
        }
        if (usage.waiting + turns.waiting()) as u64 >= most_waiting(usage.capacity) {
            turns.make_place();
        }
        waited.add(1);
        // It is memory that is short now, and others may need none.
        self.turn = None;
        let asked = Instant::now();
        let granted = tokio::time::timeout(self.patience, self.wait_in_line(bytes)).await;
        self.patience = self.patience.saturating_sub(asked.elapsed());
        let message = match granted {
            Ok(Ok(permit)) => {
                self.held += bytes;
                return Ok(permit);
            }
            Ok(Err(Denied::NeverFits(never))) => return Err(self.gate.never_fits(never.asked)),
            Ok(Err(Denied::GaveWay)) => {
                format!(
                    "the memory budget is used up; this request gave way to an older one that needs {bytes} bytes or more; retry later"
                )
            }
            Ok(Err(Denied::Shrunk)) => {
                format!(
                    "the memory budget is lowered for now, to less than the {bytes} bytes that are needed; retry later"
                )
            }
            Err(_) => {
                format!(
                    "the memory budget is used up; {bytes} bytes were not free within {wait:?}; retry later"
                )
            }
        };
        Err(self.gate.busy(bytes, message, "memory"))
    }

    async fn wait_in_line(&mut self, bytes: u64) -> Result<Permit, Denied> {
        let mut granted = pin!(self.visitor.reserve(bytes, self.held));
        loop {
            match tokio::time::timeout(self.give_way_after, granted.as_mut()).await {
                Ok(granted) => return granted,
                Err(_) => {
                    self.visitor.make_way();
                    self.give_way_after = GIVE_WAY_AGAIN_AFTER;
                }
            }
        }
    }
}

/// What requests that wait for memory may have sent already, all together, is one part in this many of the budget. It is
/// held by their connections, outside of the budget: the memory plan leaves it free.
pub const WAITING_PART: u64 = 8;

/// Requests that may wait for memory or their turns at once, small ones not counted out. Each keeps up to a stream's window of unread
/// bytes in its connection.
fn most_waiting(capacity: u64) -> u64 {
    const LEAST: u64 = 16;
    (capacity / WAITING_PART / u64::from(H2_STREAM_WINDOW)).max(LEAST)
}

#[cfg(test)]
mod tests {
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
}
