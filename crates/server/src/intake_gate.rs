//! The gate in front of every body: the memory budget, a bounded wait, a refusal with a hint.

use std::num::NonZeroU8;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use sluice_admission::{
    Budget, Denied, GIVE_WAY_AFTER, GIVE_WAY_AGAIN_AFTER, NeverFits, OverShare, Permit, RetryHint, Usage,
    Visitor,
};
use sluice_payload::{MAX_TENANTS, Signal, TenantId};
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
        self.visit_with(share(tenant.index(), signal))
    }

    /// The turn of a request with `signal` whose tenant shows when it has been read. Until then its bytes count to a share that all
    /// such requests have together, apart from that of any tenant; then [`Gate::hand_over`] them.
    pub fn visit_unread(&self, signal: Signal) -> Visit<'_> {
        self.visit_with(share(UNREAD, signal))
    }

    /// Counts what was reserved for a request that was [admitted unread](Self::visit_unread) to its tenant from now on.
    ///
    /// # Errors
    /// [`Refusal::Busy`] when that tenant has its share. It does not wait for it: what it holds is room for others' requests to be read.
    pub fn hand_over(&self, permit: &mut Permit, tenant: TenantId, signal: Signal) -> Result<(), Refusal> {
        permit
            .move_to(share(tenant.index(), signal))
            .map_err(|OverShare| {
                let message = "the tenant of this request holds its share of the memory budget; retry later";
                self.busy(permit.bytes(), message.into(), "memory")
            })
    }

    fn visit_with(&self, share: usize) -> Visit<'_> {
        Visit {
            gate: self,
            visitor: self.0.budget.visit(share),
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

    /// Bytes of the budget that requests hold whose tenants are not known yet.
    pub fn held_unread(&self) -> u64 {
        self.held_by(UNREAD)
    }

    /// Bytes of the budget that requests of the tenant with this index hold.
    pub fn held_by(&self, tenant: usize) -> u64 {
        shares(tenant).map(|share| self.0.budget.used_by(share)).sum()
    }

    /// A refusal with a hint computed from what waits at the gate beside `bytes`, and how fast that goes.
    pub fn busy(&self, bytes: u64, message: String, reason: &'static str) -> Refusal {
        let retry_after = self.0.hint.delay(std::time::Instant::now(), self.usage(), bytes);
        Refusal::Busy {
            message,
            retry_after,
            reason,
        }
    }

    /// The refusal of a request of `bytes` because of a queue behind the gate that takes `drains_in` to drain; `None` where there is none, and
    /// the hint is as good as that of the gate.
    pub fn queue_full(&self, bytes: u64, message: String, drains_in: Option<Duration>) -> Refusal {
        let reason = "queue_full";
        let Some(drains_in) = drains_in else {
            return self.busy(bytes, message, reason);
        };
        let retry_after = self.0.hint.spread(drains_in);
        Refusal::Busy {
            message,
            retry_after,
            reason,
        }
    }
}

/// The index of requests that have not been read: beyond those of all tenants. Had they the share of requests without a tenant, one
/// who sends many of those would keep all others from being read; among themselves they have no shares.
const UNREAD: usize = MAX_TENANTS;

fn share(tenant: usize, signal: Signal) -> usize {
    shares(tenant).start + signal as usize
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
mod tests;
