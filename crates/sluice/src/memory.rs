//! How much memory the gateway may plan with.
//!
//! The budget's capacity is what is left of the limit after what the process needs by itself.
//! (The sampler that adjusts it to the allocator's figures comes with the `memory` crate.)

use std::path::Path;

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

/// The budget for received payloads, in bytes.
pub fn capacity(limit: Option<MemoryLimit>) -> u64 {
    let machine = machine_bytes();
    let limit = match limit {
        Some(MemoryLimit::Bytes { limit, .. }) => limit,
        Some(MemoryLimit::Percentage { limit, .. }) => machine / 100 * u64::from(limit),
        None => (machine / 100 * DEFAULT_SHARE_PERCENT).min(DEFAULT_MAX_BYTES),
    };
    limit
        .min(machine)
        .saturating_sub(BASELINE_BYTES)
        .max(MIN_CAPACITY_BYTES)
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
    /// Guarantees: what the process needs itself is taken off, and the budget is never zero.
    #[test]
    fn capacity_is_what_the_process_leaves() {
        let bytes = |limit| capacity(Some(MemoryLimit::Bytes { limit, spike: 0 }));
        assert_eq!(bytes(256 << 20), 240 << 20);
        assert_eq!(bytes(1 << 20), MIN_CAPACITY_BYTES);
        let half = capacity(Some(MemoryLimit::Percentage { limit: 50, spike: 0 }));
        assert!(half > capacity(Some(MemoryLimit::Percentage { limit: 10, spike: 0 })));
        assert!(capacity(None) <= DEFAULT_MAX_BYTES);
        assert!(resident_bytes().is_some_and(|rss| rss > 1 << 20) && cpu_seconds().is_some());
    }
}
