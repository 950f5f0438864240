//! How the gateway is doing: what the shedder and the metrics are told.

use std::num::NonZeroU8;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sluice_admission::{Budget, GuardSettings, Origin, Priority, Signals, Tracker, TrackerSettings};
use sluice_journal::Journal;
use sluice_payload::Tenants;
use sluice_server::{Gate, LatencyFigures, ShedSettings, Shedder};
use sluice_telemetry::Registry;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::settings::{Admission, AdmissionMode};

/// How often the gateway is looked at while it has anything: a level is at most this much behind.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How often where nothing is held, nothing waits and no export was slow: what comes next begins without a backlog.
const IDLE_LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often a disk is asked how full it is: it fills in minutes, and asking costs a thread's turn.
const ASK_DISKS_EVERY: Duration = Duration::from_secs(1);

/// A destination is judged by its latency from so many attempts of late on.
const LEAST_ATTEMPTS: f64 = 5.0;

/// What a gateway looks at.
#[derive(Default)]
pub(super) struct Pressure {
    pub journals: Vec<Journal>,
    pub destinations: Vec<Destination>,
}

/// What is known of one exporter in one pipeline.
pub(super) struct Destination {
    pub exporter: String,
    pub pipeline: String,
    /// Whether receivers wait for it: one that is cut loose when it lags holds nobody back, however slow it is.
    pub is_coupled: bool,
    pub latency: Arc<Tracker>,
}

const EXPORT_LATENCY: LatencyFigures = LatencyFigures {
    quantiles: (
        "sluice_exporter_latency_seconds",
        "How long one attempt to export takes, over the last seconds.",
    ),
    average: (
        "sluice_exporter_latency_average_seconds",
        "The same as a moving average.",
    ),
    slope: (
        "sluice_exporter_latency_slope_seconds",
        "What that average changes by from one attempt to the next, over the last sixteen.",
    ),
    drift: (
        "sluice_exporter_latency_drift_seconds",
        "That average over the last eight attempts less that over the eight before.",
    ),
    drift_ratio: (
        "sluice_exporter_latency_drift_ratio",
        "The drift as a share of what was before: 0.5 is half as much again.",
    ),
    samples: (
        "sluice_exporter_latency_samples",
        "Attempts that the percentiles rest on, each counting half with every half-life.",
    ),
};

/// Where the durations of an exporter's requests are kept.
pub(super) fn tracker(admission: &Admission) -> Arc<Tracker> {
    // Attempts take seconds, whatever requests take: the range of a preset may end below the steps.
    let percentiles = GuardSettings::default().tracker.percentiles;
    let settings = TrackerSettings {
        percentiles,
        ..admission.guard.tracker
    };
    Arc::new(Tracker::new(&settings))
}

/// Gives tenants the weights in the memory budget that the configuration names.
pub(super) fn weigh(admission: &Admission, tenants: &Tenants, gate: &Gate) {
    let of = |(name, weight): (&String, &NonZeroU8)| {
        Some((tenants.intern_sent(name.as_bytes())?.index(), *weight))
    };
    let weights: Vec<_> = admission.weights.iter().filter_map(of).collect();
    if !weights.is_empty() {
        gate.set_weights(&weights);
    }
}

/// The shedder that the configuration asks for.
pub(super) fn shedder(
    admission: &Admission,
    tenants: &Tenants,
    registry: &Registry,
    seed: u64,
) -> Option<Shedder> {
    if admission.mode == AdmissionMode::Off {
        return None;
    }
    let mut priorities = Vec::new();
    for (names, priority) in [(&admission.high, Priority::High), (&admission.low, Priority::Low)] {
        for name in names {
            let Some(tenant) = tenants.intern_sent(name.as_bytes()) else {
                continue;
            };
            if priorities.len() <= tenant.index() {
                priorities.resize(tenant.index() + 1, Priority::Normal);
            }
            priorities[tenant.index()] = priority;
        }
    }
    let settings = ShedSettings {
        guard: admission.guard.clone(),
        priorities,
    };
    Some(Shedder::new(settings, registry, seed))
}

impl Pressure {
    /// What the gateway feels now, with a disk as full as that.
    fn signals(&self, budget: &Budget, disk: f64) -> (Signals, u64) {
        let usage = budget.usage();
        let now = Instant::now();
        let mut signals = Signals {
            budget: usage.used as f64 / usage.capacity.max(1) as f64,
            disk,
            ..Signals::default()
        };
        for journal in &self.journals {
            let strain = journal.strain(now);
            signals.queue_bytes = signals.queue_bytes.max(strain.filled);
            signals.queue_age = signals.queue_age.max(strain.age);
        }
        let now = Origin::process().nanos(now);
        for destination in self.destinations.iter().filter(|one| one.is_coupled) {
            let stats = destination.latency.stats(now);
            if stats.weight >= LEAST_ATTEMPTS {
                signals.export_latency = signals.export_latency.max(Duration::from_nanos(stats.p95));
            }
        }
        (signals, usage.used)
    }

    /// Tells `shedder` how the gateway is doing until `stop` turns true.
    pub(super) async fn watch(
        self: Arc<Self>,
        budget: Budget,
        shedder: Shedder,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut stopped = std::pin::pin!(stop.wait_for(|stop| *stop));
        let mut disks = Disks::new(
            self.journals
                .iter()
                .filter(|journal| journal.disk_report().is_some()),
        );
        loop {
            let (signals, backlog) = self.signals(&budget, disks.filled());
            shedder.observe(signals, backlog);
            let (disk, idle) = (signals.disk, Signals::default());
            let is_idle = signals == Signals { disk, ..idle };
            let pause = if is_idle { IDLE_LOOK_EVERY } else { LOOK_EVERY };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = stopped.as_mut() => return,
            }
        }
    }

    /// Adds the durations of exports to the metrics.
    pub(super) fn export_to(self: &Arc<Self>, registry: &Registry) {
        let this = self.clone();
        registry.collect_with(move |out| {
            let now = Origin::process().now();
            for destination in &this.destinations {
                let labels = [
                    ("exporter", destination.exporter.clone()),
                    ("pipeline", destination.pipeline.clone()),
                ];
                EXPORT_LATENCY.add_to(out, &labels, &destination.latency.stats(now));
            }
        });
    }
}

/// How full the disks of queues are. Asked on threads of its own: a disk may hang, and is then as full as it was.
struct Disks {
    journals: Arc<[Journal]>,
    asked: tokio::time::Instant,
    /// The bits of the last answer.
    filled: Arc<AtomicU64>,
    asking: Option<JoinHandle<()>>,
}

impl Disks {
    fn new<'a>(journals: impl Iterator<Item = &'a Journal>) -> Self {
        let mut disks = Self {
            journals: journals.cloned().collect(),
            asked: tokio::time::Instant::now(),
            filled: Arc::default(),
            asking: None,
        };
        disks.ask();
        disks
    }

    /// The fullest one, as of the last answer; asks again when it is time.
    fn filled(&mut self) -> f64 {
        let is_answered = self.asking.as_ref().is_none_or(JoinHandle::is_finished);
        if is_answered && self.asked.elapsed() >= ASK_DISKS_EVERY {
            self.ask();
        }
        f64::from_bits(self.filled.load(Ordering::Relaxed))
    }

    fn ask(&mut self) {
        if self.journals.is_empty() {
            return;
        }
        self.asked = tokio::time::Instant::now();
        let (journals, filled) = (self.journals.clone(), self.filled.clone());
        self.asking = Some(tokio::task::spawn_blocking(move || {
            // What cannot be asked says so when it is written.
            let shares = journals.iter().filter_map(|journal| journal.disk_filled()?.ok());
            filled.store(shares.fold(0.0, f64::max).to_bits(), Ordering::Relaxed);
        }));
    }
}
