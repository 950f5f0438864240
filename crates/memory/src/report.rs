//! What was read last, for `/metrics`.

use std::sync::Arc;

use parking_lot::Mutex;
use sluice_telemetry::{Counter, Registry, Sample};

use crate::allocator::Figures;
use crate::cgroup::Usage;
use crate::limit::Plan;
use crate::process::Pressure;

/// The last figures; what is not known is left out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Latest {
    pub allocator: Option<Figures>,
    pub untracked: u64,
    /// Usage and limit of the cgroup with the least room.
    pub cgroup: Option<(Usage, u64)>,
    pub pressure: Option<Pressure>,
}

/// Counts what was done, and holds what was read until somebody asks.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    pub latest: Arc<Mutex<Latest>>,
    pub lowered: Counter,
    pub raised: Counter,
    pub purges: Counter,
}

impl Report {
    pub fn new(registry: &Registry, plan: Plan) -> Self {
        let counter = |name, help| registry.counter(name, help, vec![]);
        let report = Self {
            latest: Arc::default(),
            lowered: counter(
                "sluice_memory_budget_shrinks_total",
                "Times the budget's capacity was lowered for memory that permits do not explain.",
            ),
            raised: counter(
                "sluice_memory_budget_grows_total",
                "Times the budget's capacity was raised again, in steps.",
            ),
            purges: counter(
                "sluice_memory_purges_total",
                "Times the allocator was told to give its free pages back.",
            ),
        };
        let latest = report.latest.clone();
        registry.collect_with(move |out| samples(plan, *latest.lock(), out));
        report
    }
}

fn samples(plan: Plan, latest: Latest, out: &mut Vec<Sample>) {
    let mut add = |name, help, value: f64| {
        out.push(Sample {
            name,
            help,
            labels: vec![],
            value,
        })
    };
    let mut bytes = |name, help, value: u64| add(name, help, value as f64);
    bytes(
        "sluice_memory_limit_bytes",
        "The most the process should use: configured, or of its container or machine.",
        plan.limit,
    );
    bytes(
        "sluice_memory_soft_limit_bytes",
        "From here on the allocator gives its free pages back at once.",
        plan.soft,
    );
    bytes(
        "sluice_memory_untracked_bytes",
        "Memory of the process that no permit explains.",
        latest.untracked,
    );
    if let Some(figures) = latest.allocator {
        bytes(
            "sluice_memory_allocated_bytes",
            "Bytes the allocator has handed out.",
            figures.allocated,
        );
        bytes(
            "sluice_memory_active_bytes",
            "Pages of the allocator that have something handed out in them.",
            figures.active,
        );
        bytes(
            "sluice_memory_resident_bytes",
            "Pages of the allocator that are backed by memory, free ones and its bookkeeping included.",
            figures.resident,
        );
        bytes(
            "sluice_memory_retained_bytes",
            "Address space the allocator keeps without memory behind it.",
            figures.retained,
        );
    }
    if let Some((usage, limit)) = latest.cgroup {
        bytes(
            "sluice_memory_cgroup_limit_bytes",
            "Limit of the cgroup with the least room.",
            limit,
        );
        bytes(
            "sluice_memory_cgroup_bytes",
            "What is charged to that cgroup.",
            usage.current,
        );
        bytes(
            "sluice_memory_cgroup_reclaimable_bytes",
            "Of it, what the kernel takes back when it needs room: file pages and slabs.",
            usage.reclaimable,
        );
        bytes(
            "sluice_memory_cgroup_socket_bytes",
            "Of it, socket buffers (cgroup v2).",
            usage.sockets,
        );
    }
    if let Some(figures) = latest.allocator.filter(|figures| figures.allocated > 0) {
        add(
            "sluice_memory_fragmentation_ratio",
            "Resident over allocated bytes of the allocator; 1 is perfect.",
            figures.resident as f64 / figures.allocated as f64,
        );
    }
    if let Some(pressure) = latest.pressure {
        add(
            "sluice_memory_pressure_some_ratio",
            "Share of the last ten seconds in which some task waited for memory (PSI).",
            pressure.some,
        );
        add(
            "sluice_memory_pressure_full_ratio",
            "Share of the last ten seconds in which all tasks waited for memory (PSI).",
            pressure.full,
        );
    }
}
