//! How much memory the gateway may plan with.
//!
//! The budget's capacity is what is left of the limit after what the process needs by itself.
//! (The sampler that adjusts it to the allocator's figures comes with the `memory` crate.)

use std::path::Path;

use sluice_server::WAITING_PART;

use crate::settings::MemoryLimit;

/// What the process needs idle: code, runtime, connections' buffers, compression contexts.
/// Measured: 9 MiB RSS idle, 13 to 21 MiB saturated over 8 connections.
const BASELINE_BYTES: u64 = 16 << 20;

/// The smallest budget that is any use: one request of ordinary size, a few times over.
const MIN_CAPACITY_BYTES: u64 = 8 << 20;

/// Without a limit in the configuration, the share of the machine or container that is planned with.
const DEFAULT_SHARE_PERCENT: u64 = 50;

/// Without a limit in the configuration, never more than this: a backlog belongs on disk.
const DEFAULT_MAX_BYTES: u64 = 2 << 30;

/// How the memory that the process does not need itself is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// For received payloads, in bytes.
    pub budget: u64,
    /// For compressed bodies on their way out, in bytes.
    pub egress: u64,
}

impl Plan {
    /// The part of the memory that is set aside for compressed bodies: what is received compresses to a tenth.
    const EGRESS_PART: u64 = 16;

    /// Set aside for each so many bytes of the budget is one byte for what requests that wait for memory have already
    /// sent, which connections hold ([`sluice_server::WAITING_PART`]).
    pub fn new(limit: Option<MemoryLimit>) -> Self {
        let available = limit_bytes(limit).saturating_sub(BASELINE_BYTES);
        let egress = available / Self::EGRESS_PART;
        let budget = (available - egress) / (WAITING_PART + 1) * WAITING_PART;
        Self {
            budget: budget.max(MIN_CAPACITY_BYTES),
            egress: egress.max(MIN_CAPACITY_BYTES / Self::EGRESS_PART),
        }
    }
}

fn limit_bytes(limit: Option<MemoryLimit>) -> u64 {
    let machine = machine_bytes();
    let limit = match limit {
        Some(MemoryLimit::Bytes { limit, .. }) => limit,
        Some(MemoryLimit::Percentage { limit, .. }) => machine / 100 * u64::from(limit),
        None => (machine / 100 * DEFAULT_SHARE_PERCENT).min(DEFAULT_MAX_BYTES),
    };
    limit.min(machine)
}

/// The memory of the container, or of the machine if there is no limit on the container.
fn machine_bytes() -> u64 {
    let cgroup_v2 = read_number(Path::new("/sys/fs/cgroup/memory.max"));
    let cgroup_v1 = read_number(Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
    let total = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        })
        // A system without /proc: plan with little rather than with nothing.
        .map_or(1 << 30, |kib| kib * 1024);
    [cgroup_v2, cgroup_v1].into_iter().flatten().fold(total, u64::min)
}

fn read_number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// An allocation that jemalloc keeps in its arena of large ones (`oversize_threshold` in the executable).
const LARGE_BYTES: usize = 1 << 20;

/// Has large buffers given back to the kernel when they are freed, and everything else a second later by jemalloc's
/// own thread.
///
/// Whether it gives large buffers back at once jemalloc decides when it makes their arena, and it does so only as long as
/// that thread is not running: so the arena is made first. Large bodies that come and go within a second would otherwise
/// stay resident several times over: 416 MiB for a limit of 256 (docs/decisions.md).
///
/// # Errors
/// What jemalloc says; memory freed by threads that then idle stays resident.
pub fn prepare_allocator() -> Result<(), String> {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(LARGE_BYTES)));
    tikv_jemalloc_ctl::background_thread::write(true).map_err(|error| error.to_string())
}

/// Resident memory of this process in bytes, as the kernel counts it; `None` without /proc.
pub fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace()
        .nth(1)?
        .parse::<u64>()
        .ok()
        .map(|kib| kib * 1024)
}

/// CPU seconds this process has used; `None` without /proc.
pub fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The fields after the command's closing parenthesis; utime and stime are the 14th and 15th of all.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks: f64 = fields.next()?.parse::<f64>().ok()? + fields.next()?.parse::<f64>().ok()?;
    // USER_HZ is 100 on every Linux ABI.
    Some(ticks / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a limit in MiB, in percent, none, and one too small to be any use.
    /// Guarantees: what the process, bodies on their way out and connections need is taken off; the budget is never zero.
    #[test]
    fn the_budget_is_what_everything_else_leaves() {
        let plan = |limit| Plan::new(Some(limit));
        let bytes = |limit| plan(MemoryLimit::Bytes { limit, spike: 0 });
        let Plan { budget, egress } = bytes(256 << 20);
        assert_eq!((budget >> 20, egress >> 20), (200, 15));
        assert!(budget + budget / WAITING_PART + egress + BASELINE_BYTES <= 256 << 20);
        assert_eq!(bytes(1 << 20).budget, MIN_CAPACITY_BYTES);
        let percent = |limit| plan(MemoryLimit::Percentage { limit, spike: 0 }).budget;
        assert!(percent(50) > percent(10));
        assert!(Plan::new(None).budget <= DEFAULT_MAX_BYTES);
        assert!(resident_bytes().is_some_and(|rss| rss > 1 << 20) && cpu_seconds().is_some());
    }
}
