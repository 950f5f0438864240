//! The gate in front of every body: the memory budget, a bounded wait, a refusal with a hint.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_admission::{Budget, Permit, RetryHint, Usage};
use sluice_telemetry::{Counter, Registry};

use crate::Refusal;

/// What every receiver asks before it reads. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    budget: Budget,
    hint: RetryHint,
    wait: Duration,
    waited: Counter,
}

impl Gate {
    /// A gate on `budget` at which a request waits at most `wait`.
    pub fn new(budget: Budget, wait: Duration, registry: &Registry, seed: u64) -> Self {
        let waited = registry.counter(
            "sluice_admission_waits_total",
            "Reservations that had to wait for the memory budget.",
            vec![],
        );
        Self(Arc::new(Inner {
            budget,
            hint: RetryHint::new(Instant::now(), seed),
            wait,
            waited,
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

    /// One request's turn at the gate.
    pub fn visit(&self) -> Visit<'_> {
        Visit {
            gate: self,
            patience: self.0.wait,
        }
    }

    /// A refusal with a computed hint.
    pub fn busy(&self, bytes: u64, message: String, reason: &'static str) -> Refusal {
        let retry_after = self.0.hint.delay(Instant::now(), self.usage(), bytes);
        Refusal::Busy {
            message,
            retry_after,
            reason,
        }
    }
}

/// One request at the gate. However many reservations it makes, together they wait no longer than the gate lets
/// one request wait: a client is answered while it still listens.
#[derive(Debug)]
pub struct Visit<'a> {
    gate: &'a Gate,
    patience: Duration,
}

impl Visit<'_> {
    /// How much longer this request may wait.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// The gate.
    pub fn gate(&self) -> &Gate {
        self.gate
    }

    /// Reserves `bytes`: at once, or after a bounded wait.
    ///
    /// # Errors
    /// [`Refusal::TooLarge`] when it can never fit, [`Refusal::Busy`] with a hint when the wait was in vain.
    pub async fn reserve(&mut self, bytes: u64) -> Result<Permit, Refusal> {
        let Inner {
            budget, wait, waited, ..
        } = &*self.gate.0;
        if let Some(permit) = budget.try_reserve(bytes) {
            return Ok(permit);
        }
        waited.add(1);
        let asked = tokio::time::Instant::now();
        let granted = tokio::time::timeout(self.patience, budget.reserve(bytes)).await;
        self.patience = self.patience.saturating_sub(asked.elapsed());
        match granted {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(never)) => Err(Refusal::TooLarge(format!(
                "{never}; send smaller requests or raise the memory limit (memory_limiter.limit_mib)"
            ))),
            Err(_) => Err(self.gate.busy(
                bytes,
                format!(
                    "the memory budget is used up; {bytes} bytes were not free within {wait:?}; retry later"
                ),
                "memory",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a request reserves twice while the budget is full; another request lets go in time for the first
    /// reservation only.
    /// Guarantees: both waits together are no longer than the gate's; the refusal is retryable.
    #[tokio::test(start_paused = true)]
    async fn waits_of_one_request_add_up() {
        const WAIT: Duration = Duration::from_secs(5);
        let budget = Budget::new(16 << 20);
        let gate = Gate::new(budget.clone(), WAIT, &Registry::default(), 1);
        let held = budget.try_reserve(15 << 20).unwrap();
        let began = tokio::time::Instant::now();
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
}
