//! How much memory the process may plan with.

use std::path::Path;

use crate::cgroup::Cgroup;
use crate::process;

/// What the process needs idle: code, runtime, connections' buffers, compression contexts.
/// Measured: 9 MiB RSS idle, 13 to 21 MiB saturated over 8 connections.
const BASELINE_BYTES: u64 = 16 << 20;

/// The smallest budget that is any use: one request of ordinary size, a few times over.
const MIN_CAPACITY_BYTES: u64 = 8 << 20;

/// The part of the memory that is set aside for compressed bodies on their way out: what is received compresses to a tenth.
const EGRESS_PART: u64 = 16;

/// Without a limit in the configuration, the share of the machine or container that is planned with.
const DEFAULT_SHARE_PERCENT: u64 = 50;

/// Without a limit in the configuration, never more than this: a backlog belongs on disk.
const DEFAULT_MAX_BYTES: u64 = 2 << 30;

/// Without a spike limit, this part of the limit: the Collector's 20%.
const DEFAULT_SPIKE_SHARE: u64 = 5;

/// This part of a cgroup's limit is never planned with: the kernel charges page tables, sockets and its own
/// bookkeeping to the cgroup, which no figure of the process shows.
const KERNEL_SHARE: u64 = 16;

/// Where the memory of a machine without /proc is not known: plan with little rather than with nothing.
const UNKNOWN_MACHINE_BYTES: u64 = 1 << 30;

/// The limit that a configuration asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// `limit` bytes for the process, its soft mark `spike` below.
    Bytes {
        /// The most the process may use.
        limit: u64,
        /// How far below that the soft mark is.
        spike: u64,
    },
    /// `limit` percent of the memory of the machine or container, its soft mark `spike` percent below.
    Percentage {
        /// The most the process may use, 1 to 100.
        limit: u32,
        /// How far below that the soft mark is.
        spike: u32,
    },
}

/// The memory there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Of the machine, in bytes.
    pub total: u64,
    /// The cgroups that limit this process to less, innermost first.
    pub cgroups: Vec<Cgroup>,
}

impl Machine {
    /// Asks the kernel.
    pub fn detect() -> Self {
        Self::read(&|path| std::fs::read_to_string(path).ok())
    }

    pub(crate) fn read(read: &dyn Fn(&Path) -> Option<String>) -> Self {
        let total = process::machine_bytes(read).unwrap_or(UNKNOWN_MACHINE_BYTES);
        let mut cgroups = Cgroup::detect(read);
        cgroups.retain(|cgroup| cgroup.limit < total);
        Self { total, cgroups }
    }

    /// The memory of the innermost box around the process: the least limit of its cgroups, else the machine's.
    pub fn bytes(&self) -> u64 {
        self.tightest().map_or(self.total, |cgroup| cgroup.limit)
    }

    /// The cgroup that has the least limit.
    pub(crate) fn tightest(&self) -> Option<&Cgroup> {
        self.cgroups.iter().min_by_key(|cgroup| cgroup.limit)
    }

    /// The most a process may plan with.
    fn usable(&self) -> u64 {
        match self.tightest() {
            Some(cgroup) => cgroup.limit - cgroup.limit / KERNEL_SHARE,
            None => self.total,
        }
    }
}

/// What the process plans with, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The most the process should use.
    pub limit: u64,
    /// From here on the allocator's free pages go back to the kernel at once.
    pub soft: u64,
    /// For compressed bodies on their way out.
    pub egress: u64,
    /// The most that the budget, for received payloads, can have: what everything else leaves of the limit.
    pub ceiling: u64,
    /// The least the budget has, whatever else is used: requests keep passing, if slowly.
    pub floor: u64,
}

impl Plan {
    /// A plan for this machine and this configured limit; without one, half of the memory, at most 2 GiB. For each
    /// `waiting_part` bytes of the budget one byte is set aside for what requests that wait for memory have already sent,
    /// which connections hold.
    pub fn new(configured: Option<MemoryLimit>, machine: &Machine, waiting_part: u64) -> Self {
        let percent = |percent: u32| machine.bytes() / 100 * u64::from(percent);
        let (asked, spike) = match configured {
            Some(MemoryLimit::Bytes { limit, spike }) => (limit, spike),
            Some(MemoryLimit::Percentage { limit, spike }) => (percent(limit), percent(spike)),
            None => {
                let limit = (machine.bytes() / 100 * DEFAULT_SHARE_PERCENT).min(DEFAULT_MAX_BYTES);
                (limit, limit / DEFAULT_SPIKE_SHARE)
            }
        };
        let limit = asked.min(machine.usable());
        // Where the limit had to be lowered, its spike is lowered with it.
        let spike = u128::from(spike) * u128::from(limit) / u128::from(asked.max(1));
        let available = limit.saturating_sub(BASELINE_BYTES);
        let egress = available / EGRESS_PART;
        let budget = (available - egress) / (waiting_part + 1) * waiting_part;
        Self {
            limit,
            soft: limit.saturating_sub(spike as u64),
            egress: egress.max(MIN_CAPACITY_BYTES / EGRESS_PART),
            ceiling: budget.max(MIN_CAPACITY_BYTES),
            floor: MIN_CAPACITY_BYTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::cgroup::Hierarchy;

    const MIB: u64 = 1 << 20;
    const WAITING_PART: u64 = 8;

    fn machine(total: u64, limits: &[u64]) -> Machine {
        let cgroup = |limit: &u64| Cgroup {
            dir: PathBuf::from("/sys/fs/cgroup"),
            hierarchy: Hierarchy::V2,
            limit: *limit,
        };
        Machine {
            total,
            cgroups: limits.iter().map(cgroup).collect(),
        }
    }

    /// Scenario: a limit in MiB, in percent, none, and one too small to be any use, on a machine without cgroups.
    /// Guarantees: what the process, bodies on their way out and connections need is taken off, the soft mark is the spike
    /// below, and the budget is never zero.
    #[test]
    fn the_budget_is_what_the_process_leaves() {
        let host = machine(32768 * MIB, &[]);
        let plan = |limit, spike| Plan::new(Some(MemoryLimit::Bytes { limit, spike }), &host, WAITING_PART);
        let ordinary = plan(256 * MIB, 51 * MIB);
        assert_eq!((ordinary.limit, ordinary.soft), (256 * MIB, 205 * MIB));
        let (ceiling, egress) = (ordinary.ceiling, ordinary.egress);
        assert_eq!((ceiling / MIB, egress / MIB, ordinary.floor), (200, 15, 8 * MIB));
        assert!(ceiling + ceiling / WAITING_PART + egress + BASELINE_BYTES <= 256 * MIB);
        assert_eq!(plan(MIB, 0).ceiling, MIN_CAPACITY_BYTES);
        let half = Plan::new(
            Some(MemoryLimit::Percentage { limit: 50, spike: 10 }),
            &host,
            WAITING_PART,
        );
        assert_eq!(half.limit, 32768 * MIB / 100 * 50);
        assert_eq!(half.soft, half.limit - 32768 * MIB / 100 * 10);
        let none = Plan::new(None, &host, WAITING_PART);
        assert_eq!((none.limit, none.soft), (2048 * MIB, 2048 * MIB - 2048 * MIB / 5));
    }

    /// Scenario: the same in nested cgroups of 1000 and 512 MiB; a limit above theirs.
    /// Guarantees: percent are those of the least cgroup, not of the host; a limit above it is lowered to what the kernel
    /// leaves of it, and the soft mark with it.
    #[test]
    fn percent_are_of_the_cgroup() {
        let boxed = machine(32768 * MIB, &[1000 * MIB, 512 * MIB]);
        let plan = Plan::new(
            Some(MemoryLimit::Percentage { limit: 80, spike: 20 }),
            &boxed,
            WAITING_PART,
        );
        assert_eq!(plan.limit, 512 * MIB / 100 * 80);
        assert_eq!(plan.soft, plan.limit - 512 * MIB / 100 * 20);
        let above = MemoryLimit::Bytes {
            limit: 960 * MIB,
            spike: 96 * MIB,
        };
        let plan = Plan::new(Some(above), &boxed, WAITING_PART);
        assert_eq!((plan.limit, plan.soft), (480 * MIB, 432 * MIB));
        assert_eq!(Plan::new(None, &boxed, WAITING_PART).limit, 512 * MIB / 100 * 50);
    }

    /// Scenario: a cgroup with as much as the machine, one with less; no /proc.
    /// Guarantees: only what is less than the machine counts as a limit; without figures there is still a plan.
    #[test]
    fn a_limit_above_the_machine_is_none() {
        let files = |max: &'static str| {
            move |path: &Path| match path.to_str()? {
                "/proc/meminfo" => Some("MemFree: 1 kB\nMemTotal:        2097152 kB\n".to_owned()),
                "/proc/self/cgroup" => Some("0::/\n".to_owned()),
                "/proc/self/mountinfo" => Some("1 1 0:1 / /c rw - cgroup2 cgroup2 rw\n".to_owned()),
                "/c/memory.max" => Some(max.to_owned()),
                _ => None,
            }
        };
        assert_eq!(Machine::read(&files("2147483648\n")).cgroups, []);
        assert_eq!(Machine::read(&files("2147483648\n")).bytes(), 2048 * MIB);
        assert_eq!(Machine::read(&files("1073741824\n")).bytes(), 1024 * MIB);
        assert_eq!(Machine::read(&|_| None).bytes(), UNKNOWN_MACHINE_BYTES);
    }
}
