//! The gate in front of every body: the memory budget, a bounded wait, a refusal with a hint.

use std::future::Future;
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

    /// Reserves `bytes`: at once, or after a bounded wait.
    ///
    /// # Errors
    /// [`Refusal::TooLarge`] when it can never fit, [`Refusal::Busy`] with a hint when the wait was in vain.
    pub async fn reserve(&self, bytes: u64) -> Result<Permit, Refusal> {
        if let Some(permit) = self.0.budget.try_reserve(bytes) {
            return Ok(permit);
        }
        self.0.waited.add(1);
        self.bounded(self.0.budget.reserve(bytes), bytes).await
    }

    async fn bounded(
        &self,
        waiting: impl Future<Output = Result<Permit, sluice_admission::NeverFits>>,
        bytes: u64,
    ) -> Result<Permit, Refusal> {
        match tokio::time::timeout(self.0.wait, waiting).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(never)) => Err(Refusal::TooLarge(format!(
                "{never}; send smaller requests or raise the memory limit (memory_limiter.limit_mib)"
            ))),
            Err(_) => Err(self.busy(
                bytes,
                format!(
                    "the memory budget is used up; {bytes} bytes were not free within {:?}; retry later",
                    self.0.wait
                ),
                "memory",
            )),
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
