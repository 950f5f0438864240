//! The shell around the controller: reads the figures, sets the budget, purges, says so.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_admission::Budget;
use sluice_telemetry::Registry;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::allocator::{Control, Figures, flush_thread_cache};
use crate::cgroup::Cgroup;
use crate::code;
use crate::controller::{Charged, Controller, Decision, Readings};
use crate::large::LARGE;
use crate::limit::{Machine, Plan};
use crate::process::{self, Pressure};
use crate::quiet::{Quiet, Step};
use crate::report::{Latest, Report};
use crate::workers;

/// How often memory is read while anything goes on and there is little room, if nothing else is asked for.
pub const DEFAULT_INTERVAL: Duration = Duration::from_millis(100);

/// With more room, more time may pass between readings: not even all cores inflating gzip fill more memory than this in a
/// second.
const FASTEST_GROWTH: u64 = 4 << 30;

/// While this part of the limit is left, and as much as can be filled in two readings, freed large buffers may stay for the next ones;
/// the kernel zeroes what it hands out, which would double the cost of requests of megabytes. In 256 MiB they never may: 60 MiB
/// bodies came and went so fast between two readings that the kernel killed the process.
const ROOMY_QUARTERS: u64 = 3;
const ROOMY_BYTES: u64 = FASTEST_GROWTH / 5;

/// Freed large blocks keep their memory for one to two of these: as long as jemalloc's do (`dirty_decay_ms` in the executable).
const LARGE_DECAY: Duration = Duration::from_secs(5);

/// Not more often than this: a reading takes about 100 us.
const LEAST_INTERVAL: Duration = Duration::from_millis(10);

/// How often memory is read while no request holds any and none moves: an idle gateway is to cost next to nothing.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// What an operator is told of: a capacity below so many 32nds of the ceiling, and one above again.
const TELL_LOWERED_BELOW: u64 = 28;
const TELL_BACK_FROM: u64 = 29;

/// Where the figures come from; tests have a world of their own.
trait Source: Send + 'static {
    /// The readings of now but for the permits, and the rest of what there is to tell.
    fn read(&mut self) -> (Readings, Latest);
    /// Gives the allocator's free pages back, and lets the executable's go where nothing is under way, without holding up the caller.
    fn purge(&mut self, is_quiet: bool);
    /// Has the threads give back what they keep for the next request, without holding up the caller.
    fn give_back(&mut self);
    /// Whether freed large buffers may stay.
    fn keep_large(&mut self, keep: bool);
}

/// The process itself.
struct Process {
    /// None: a jemalloc without statistics. Then the kernel's figures must do.
    allocator: Option<Control>,
    cgroups: Vec<Cgroup>,
    pressure_file: PathBuf,
    give_back: fn(),
    /// When freed large blocks were looked after.
    decayed: Instant,
}

fn read_file(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

impl Process {
    fn new(machine: &Machine, give_back: fn()) -> Self {
        let allocator = Control::new();
        if let Err(error) = &allocator {
            tracing::warn!(%error, "the allocator has no figures; the memory budget follows the kernel's alone");
        }
        // The cgroup's own pressure says more than that of a machine it shares.
        let pressure_file = (machine.cgroups.first())
            .and_then(Cgroup::pressure_file)
            .filter(|file| file.exists())
            .unwrap_or_else(|| PathBuf::from("/proc/pressure/memory"));
        Self {
            allocator: allocator.ok(),
            cgroups: machine.cgroups.clone(),
            pressure_file,
            give_back,
            decayed: Instant::now(),
        }
    }

    /// Gives back what was freed one to two [`LARGE_DECAY`]s ago.
    fn decay_large(&mut self) {
        if self.decayed.elapsed() >= LARGE_DECAY {
            self.decayed = Instant::now();
            if LARGE.held().dirty > 0 {
                drop(tokio::task::spawn_blocking(|| LARGE.decay()));
            }
        }
    }
}

impl Source for Process {
    fn read(&mut self) -> (Readings, Latest) {
        self.decay_large();
        let figures = self.allocator.as_ref().and_then(|allocator| {
            allocator.tick();
            allocator.figures().ok()
        });
        let cgroup = (self.cgroups.iter())
            .filter_map(|cgroup| Some((cgroup.usage(&read_file)?, cgroup.limit)))
            .min_by_key(|(usage, limit)| {
                limit.saturating_sub(usage.current.saturating_sub(usage.reclaimable))
            });
        let readings = Readings {
            permits: 0,
            rss: process::resident_bytes().unwrap_or(0),
            active: figures.map_or(0, |figures| figures.active),
            dirty: figures.map_or(0, |figures| Figures::dirty(&figures)),
            cgroup: cgroup.map(|(usage, limit)| Charged {
                limit,
                bytes: usage.current.saturating_sub(usage.reclaimable),
            }),
        };
        let latest = Latest {
            allocator: figures,
            untracked: 0,
            cgroup,
            pressure: read_file(&self.pressure_file).and_then(|text| Pressure::parse(&text)),
        };
        (readings, latest)
    }

    fn purge(&mut self, is_quiet: bool) {
        let purge = self.allocator.as_ref().map(Control::purging);
        let work = move || {
            if let Some(purge) = purge {
                purge();
            }
            // Last, for what runs before it comes back.
            if is_quiet {
                code::let_go();
            }
        };
        // Its end is not waited for: the next reading shows what it gave.
        drop(tokio::task::spawn_blocking(work));
    }

    fn give_back(&mut self) {
        let give_back = self.give_back;
        let work = move || {
            give_back();
            flush_thread_cache();
        };
        // Nor is theirs.
        drop(workers::each(work, workers::MEETING));
    }

    fn keep_large(&mut self, keep: bool) {
        LARGE.keep(keep);
        if !keep {
            // Its end is not waited for either.
            drop(tokio::task::spawn_blocking(|| LARGE.purge_large()));
        }
    }
}

/// Keeps a budget within what the limit leaves.
#[derive(Debug)]
pub struct Sampler {
    plan: Plan,
    machine: Machine,
    asked: Option<Duration>,
    give_back: fn(),
    report: Report,
}

/// A sampler at work; it stops when this is dropped, and the budget keeps the capacity it has.
#[derive(Debug)]
#[must_use = "dropping it stops the sampler"]
pub struct Sampling(JoinHandle<()>);

impl Drop for Sampling {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Sampler {
    /// A sampler for `plan` on `machine`, whose figures `registry` shows. While anything goes on it reads every `interval`, but
    /// never less often than [`DEFAULT_INTERVAL`]; without an interval, as often as the room that is left asks for. When nothing has moved for a
    /// while, each worker of the runtime is to `give_back` what is kept for the next request.
    pub fn new(
        plan: Plan,
        machine: Machine,
        interval: Option<Duration>,
        give_back: fn(),
        registry: &Registry,
    ) -> Self {
        Self {
            plan,
            machine,
            asked: interval.map(|asked| asked.clamp(LEAST_INTERVAL, DEFAULT_INTERVAL)),
            give_back,
            report: Report::new(registry, plan),
        }
    }

    /// Starts sampling for `budget`, which was made with the plan's ceiling.
    pub fn start(self, budget: Budget) -> Sampling {
        let source = Process::new(&self.machine, self.give_back);
        let cgroup = self.machine.tightest().map(|cgroup| cgroup.dir.display());
        tracing::info!(
            limit_mib = self.plan.limit >> 20,
            soft_limit_mib = self.plan.soft >> 20,
            cgroup = cgroup.as_ref().map(tracing::field::display),
            "memory planned with"
        );
        Sampling(tokio::spawn(self.run(budget, source)))
    }

    async fn run(self, budget: Budget, mut source: impl Source) {
        let mut controller = Controller::new(self.plan);
        let mut told = false;
        // What it was at the last reading: bytes that came back to the budget so far, and resident ones.
        let mut last = None;
        let mut keeps_large = false;
        let mut quiet = Quiet::new();
        let began = Instant::now();
        loop {
            // Before and after, and the larger: what is taken or given back meanwhile is not to look untracked.
            let before = budget.usage();
            let (mut readings, mut latest) = source.read();
            readings.permits = before.used.max(budget.usage().used);
            let elapsed = began.elapsed();
            let decision = controller.read(elapsed, &readings);
            latest.untracked = decision.untracked;
            *self.report.latest.lock() = latest;
            self.act(&budget, &decision, &readings, &mut told);
            let has_moved =
                readings.permits > 0 || last.is_some_and(|(released, _)| released != before.released);
            let step = quiet.read(elapsed, has_moved);
            if step == Some(Step::GiveBack) {
                source.give_back();
            }
            let is_quiet = step == Some(Step::Purge);
            if decision.purge || is_quiet {
                source.purge(is_quiet);
                self.report.purges.add(1);
            }
            let room = self.room(&readings);
            let is_roomy = room >= (self.plan.limit / 4 * ROOMY_QUARTERS).max(ROOMY_BYTES);
            if is_roomy != keeps_large {
                source.keep_large(is_roomy);
                keeps_large = is_roomy;
            }
            let now = Some((before.released, readings.rss));
            let is_idle = readings.permits == 0 && now == last;
            last = now;
            tokio::time::sleep(if is_idle { IDLE_INTERVAL } else { self.pause(room) }).await;
        }
    }

    /// Bytes that are left, of the process or of its cgroup.
    fn room(&self, readings: &Readings) -> u64 {
        let own = self.plan.limit.saturating_sub(readings.rss);
        let shared = readings
            .cgroup
            .map(|cgroup| cgroup.limit.saturating_sub(cgroup.bytes));
        own.min(shared.unwrap_or(u64::MAX))
    }

    /// As long as it takes to use up the room, within bounds; what was asked for is what there is.
    fn pause(&self, room: u64) -> Duration {
        match self.asked {
            Some(interval) => interval,
            None => {
                Duration::from_millis(room / (FASTEST_GROWTH / 1000)).clamp(DEFAULT_INTERVAL, IDLE_INTERVAL)
            }
        }
    }

    /// Makes the change. A capacity that is much lower and one that is back are told once, what is between for `debug`.
    fn act(&self, budget: &Budget, decision: &Decision, readings: &Readings, told: &mut bool) {
        let Some(change) = decision.change else { return };
        budget.set_capacity(change.to);
        match change.to < change.from {
            true => self.report.lowered.add(1),
            false => self.report.raised.add(1),
        }
        let (from_mib, to_mib) = (change.from >> 20, change.to >> 20);
        let untracked_mib = decision.untracked >> 20;
        let ceiling_mib = self.plan.ceiling >> 20;
        let part = self.plan.ceiling / 32;
        if !*told && change.to < part * TELL_LOWERED_BELOW {
            *told = true;
            tracing::warn!(
                to_mib,
                ceiling_mib,
                untracked_mib,
                permits_mib = readings.permits >> 20,
                rss_mib = readings.rss >> 20,
                "the memory budget is lowered: {}",
                change.cause.as_str()
            );
        } else if *told && change.to >= part * TELL_BACK_FROM {
            *told = false;
            tracing::info!(to_mib, ceiling_mib, untracked_mib, "the memory budget is back");
        } else {
            tracing::debug!(from_mib, to_mib, untracked_mib, "the memory budget follows");
        }
    }
}

#[cfg(test)]
mod tests;
