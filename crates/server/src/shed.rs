//! Levels at the receivers: how the gateway is doing, said once when it changes, and acted upon where that is asked for.
//!
//! The memory budget decides by bytes and comes first: it lets requests wait. What is here looks at how things are going
//! (budget, queues, destinations) and may turn requests away before the budget is full, by the priority of their tenants.
//! By default it only watches: docs/decisions.md says why.

mod figures;
mod telling;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sluice_admission::{
    Guard, GuardSettings, Hooks, Level, LevelChange, Origin, Outcome, Priority, Reason, SignalThresholds,
    Signals, Steps, Ticket,
};
use sluice_payload::TenantId;
use sluice_telemetry::{Counter, Registry, Sample};

use crate::{Gate, Refusal};
pub use figures::LatencyFigures;
use telling::Telling;

/// Clients are told of the pressure at most once in so many nanoseconds: they write what they are told into their logs.
const HINT_EVERY: u64 = 1_000_000_000;

/// A level is left when its signal has fallen to this share of what it needs to be entered (see `Guard::observe`).
const LEAVE_AT: f64 = 0.9;

/// What a [`Shedder`] goes by.
#[derive(Debug, Clone)]
pub struct ShedSettings {
    /// From where on what means which level, and whether requests are turned away by that; if not, what would be is counted.
    /// Its breaker and skip list do not count: what fails here is refused with a reason of its own, and there is nothing
    /// behind that a rest would mend.
    pub guard: GuardSettings,
    /// Of tenants, by [`TenantId::index`]; those beyond are normal.
    pub priorities: Vec<Priority>,
}

/// Watches how the gateway is doing. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Shedder(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    guard: Guard,
    origin: Origin,
    settings: ShedSettings,
    seen: Arc<Mutex<Signals>>,
    /// Bytes that have to drain before nothing is shed any more.
    excess: AtomicU64,
    hinted: AtomicU64,
}

const LATENCY: LatencyFigures = LatencyFigures {
    quantiles: (
        "sluice_receiver_latency_seconds",
        "From the last byte of a request to its answer, over the last seconds.",
    ),
    average: (
        "sluice_receiver_latency_average_seconds",
        "The same as a moving average.",
    ),
    slope: (
        "sluice_receiver_latency_slope_seconds",
        "What that average changes by from one request to the next, over the last sixteen.",
    ),
    drift: (
        "sluice_receiver_latency_drift_seconds",
        "That average over the last eight requests less that over the eight before.",
    ),
    drift_ratio: (
        "sluice_receiver_latency_drift_ratio",
        "The drift as a share of what was before: 0.5 is half as much again.",
    ),
    samples: (
        "sluice_receiver_latency_samples",
        "Requests that the percentiles rest on, each counting half with every half-life.",
    ),
};

/// Says and counts what the guard does.
struct Told {
    seen: Arc<Mutex<Signals>>,
    /// Of the gateway (`None`), and of each method that ever had another level: as many as the guard tracks.
    telling: Mutex<BTreeMap<Option<String>, Telling>>,
    enforce: bool,
    shed: [Counter; Level::ALL.len()],
}

impl Hooks for Told {
    fn level_changed(&self, method: Option<&str>, change: LevelChange) {
        let Signals {
            budget,
            queue_bytes,
            queue_age,
            disk,
            export_latency,
        } = *self.seen.lock();
        let LevelChange { from, to, cause } = change;
        let percent = |share: f64| format!("{:.0}%", share * 100.0);
        let (budget, queue, disk) = (percent(budget), percent(queue_bytes), percent(disk));
        let enforced = self.enforce;
        let of = method.map(|method| format!(" of {method}")).unwrap_or_default();
        let is_news = (self.telling.lock().entry(method.map(str::to_owned)).or_default()).is_news(
            from,
            to,
            std::time::Instant::now(),
        );
        if !is_news {
            tracing::debug!(
                %cause, budget, queue, ?queue_age, ?export_latency, disk, enforced,
                "admission level{of} {from} -> {to}"
            );
        } else if to > from {
            tracing::warn!(
                %cause, budget, queue, ?queue_age, ?export_latency, disk, enforced,
                "admission level{of} {from} -> {to}"
            );
        } else {
            tracing::info!(
                %cause, budget, queue, ?queue_age, ?export_latency, disk, enforced,
                "admission level{of} {from} -> {to}"
            );
        }
    }

    fn refused(&self, _: &str, refusal: &sluice_admission::Refusal) {
        if let Reason::Level(level, _) = refusal.reason {
            self.shed[level as usize].add(1);
        }
    }
}

impl Shedder {
    /// One for all receivers of a gateway; what it sees and does is in `registry`. `seed` spreads what refused clients
    /// are told.
    pub fn new(settings: ShedSettings, registry: &Registry, seed: u64) -> Self {
        let seen = Arc::new(Mutex::new(Signals::default()));
        let (name, help) = match settings.guard.enforce {
            true => (
                "sluice_admission_shed_requests_total",
                "Requests turned away because of the admission level.",
            ),
            false => (
                "sluice_admission_would_shed_requests_total",
                "Requests that would be turned away because of the admission level, if it were enforced.",
            ),
        };
        let told = Told {
            seen: seen.clone(),
            telling: Mutex::default(),
            enforce: settings.guard.enforce,
            shed: Level::ALL
                .map(|level| registry.counter(name, help, vec![("level", level.as_str().to_owned())])),
        };
        let guard = GuardSettings {
            breaker: None,
            skip: Vec::new(),
            ..settings.guard.clone()
        };
        let shedder = Self(Arc::new(Inner {
            guard: Guard::new(guard, told, seed),
            origin: Origin::process(),
            settings,
            seen,
            excess: AtomicU64::new(0),
            hinted: AtomicU64::new(0),
        }));
        let shown = shedder.clone();
        registry.collect_with(move |out| shown.samples(out));
        shedder
    }

    /// Takes in how the gateway is doing, with `backlog` bytes in it. Call it some ten times a second.
    pub fn observe(&self, signals: Signals, backlog: u64) {
        let Inner {
            guard,
            origin,
            settings,
            seen,
            ..
        } = &*self.0;
        *seen.lock() = signals;
        let excess = backlog as f64 * excess(&signals, &settings.guard.signals);
        self.0.excess.store(excess as u64, Ordering::Relaxed);
        guard.observe(&signals, origin.now());
    }

    /// Asks whether a request of `method` (receiver, transport and signal, apart by blanks) and `tenant` may come in.
    ///
    /// # Errors
    /// [`Refusal::Busy`], with the time in which what is too much should have drained.
    pub fn enter(&self, method: &str, tenant: TenantId, gate: &Gate) -> Result<Entered<'_>, Refusal> {
        let Inner {
            guard,
            origin,
            settings,
            ..
        } = &*self.0;
        let priority = settings
            .priorities
            .get(tenant.index())
            .copied()
            .unwrap_or_default();
        let begun = origin.now();
        match guard.admit(method, priority, begun) {
            Ok(ticket) => Ok(Entered {
                shedder: self,
                ticket: Some(ticket),
                begun,
                is_complete: false,
            }),
            Err(refusal) => {
                let message = match refusal.reason {
                    Reason::Level(level, cause) => {
                        format!("this gateway sheds load: level {level} by {cause}; retry later")
                    }
                    Reason::Breaker | Reason::NoRoom | Reason::NeverFits(_) => refusal.to_string(),
                };
                let excess = self.0.excess.load(Ordering::Relaxed);
                Err(gate.busy(excess, message, "level"))
            }
        }
    }

    /// The level of the gateway.
    pub fn level(&self) -> Level {
        self.0.guard.level()
    }

    fn samples(&self, out: &mut Vec<Sample>) {
        let Inner {
            guard, origin, seen, ..
        } = &*self.0;
        out.push(Sample {
            name: "sluice_admission_level",
            help: "How the gateway is doing: 0 normal, 1 warning, 2 moderate, 3 critical, 4 emergency.",
            labels: vec![],
            value: f64::from(guard.level() as u8),
        });
        let signals = *seen.lock();
        for (signal, value) in [
            ("budget", signals.budget),
            ("queue_bytes", signals.queue_bytes),
            ("queue_age", signals.queue_age.as_secs_f64()),
            ("disk", signals.disk),
            ("export_latency", signals.export_latency.as_secs_f64()),
        ] {
            out.push(Sample {
                name: "sluice_admission_signal",
                help: "What the level is made of: used shares from 0 to 1, and seconds.",
                labels: vec![("signal", signal.to_owned())],
                value,
            });
        }
        for method in guard.methods(origin.now()) {
            let mut words = method.name.rsplitn(3, ' ');
            let (Some(signal), Some(transport), Some(receiver)) = (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let labels = [
                ("receiver", receiver.to_owned()),
                ("transport", transport.to_owned()),
                ("signal", signal.to_owned()),
            ];
            LATENCY.add_to(out, &labels, &method.stats);
            out.push(Sample {
                name: "sluice_receiver_latency_level",
                help: "The level by the latency of these requests alone, numbered as sluice_admission_level.",
                labels: labels.into(),
                value: f64::from(method.level as u8),
            });
        }
    }
}

/// The share of the backlog that has to go until no signal causes shedding any more: all of them fall as it drains.
fn excess(signals: &Signals, thresholds: &SignalThresholds) -> f64 {
    let above = |value: f64, steps: &Steps| {
        // The first step that sheds: one that is switched off is skipped.
        let least = LEAVE_AT * steps.moderate.min(steps.critical).min(steps.emergency);
        if value > least { 1.0 - least / value } else { 0.0 }
    };
    [
        above(signals.budget, &thresholds.budget),
        above(signals.queue_bytes, &thresholds.queue_bytes),
        above(signals.queue_age.as_secs_f64(), &thresholds.queue_age_seconds),
        above(signals.disk, &thresholds.disk),
        above(
            signals.export_latency.as_secs_f64(),
            &thresholds.export_latency_seconds,
        ),
    ]
    .into_iter()
    .fold(0.0, f64::max)
}

/// A request that came in. Dropped before its body was complete, nothing is learnt from it.
#[derive(Debug)]
pub struct Entered<'a> {
    shedder: &'a Shedder,
    ticket: Option<Ticket>,
    begun: u64,
    is_complete: bool,
}

impl Entered<'_> {
    /// Its body is complete: from now on the time it takes is the gateway's.
    pub fn received(&mut self) {
        self.begun = self.shedder.0.origin.now();
        self.is_complete = true;
    }

    /// It is answered with success. What the client should hear besides, if it should slow down.
    pub fn answered(self) -> Option<String> {
        let Inner {
            guard,
            origin,
            hinted,
            ..
        } = &*self.shedder.0;
        let hint = self.ticket.as_ref()?.hint?;
        let (now, last) = (origin.now(), hinted.load(Ordering::Relaxed));
        let is_due = last == 0 || now.saturating_sub(last) >= HINT_EVERY;
        let claimed = is_due
            && hinted
                .compare_exchange(last, now.max(1), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        claimed.then(|| {
            let why = match guard.level() {
                // Then it is the level of requests like this one.
                Level::Normal => "these requests take long".to_owned(),
                level => format!("level {level}"),
            };
            format!(
                "everything was taken, but this gateway is under pressure ({why}) and may refuse requests soon: if you \
                 can, send less for {} s",
                hint.as_secs().max(1)
            )
        })
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let Inner { guard, origin, .. } = &*self.shedder.0;
        let now = origin.now();
        match self.is_complete {
            true => guard.settle(ticket, Outcome::Success, now.saturating_sub(self.begun), now),
            false => guard.abandon(ticket, now),
        }
    }
}

#[cfg(test)]
mod tests;
