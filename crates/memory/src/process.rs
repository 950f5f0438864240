//! What the kernel says of this process and of the machine.

use std::path::Path;

/// Resident memory of this process in bytes, as the kernel counts it; `None` without /proc.
pub fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    resident_of(&text, rustix::param::page_size() as u64)
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

/// The second figure of /proc/self/statm (proc_pid_statm(5)), which counts in pages: 4 KiB on most machines, and 16
/// or 64 KiB on some with arm64.
pub(crate) fn resident_of(statm: &str, page_size: u64) -> Option<u64> {
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(page_size)
}

/// The memory of the machine in bytes.
pub(crate) fn machine_bytes(read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let text = read(Path::new("/proc/meminfo"))?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

/// Pressure stall information (kernel documentation, accounting/psi): the share of the last ten seconds in which
/// some, or all, tasks waited for memory; 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Pressure {
    pub some: f64,
    pub full: f64,
}

impl Pressure {
    /// Reads `/proc/pressure/memory` or a cgroup's `memory.pressure`.
    pub fn parse(text: &str) -> Option<Self> {
        let share = |kind: &str| {
            let line = text.lines().find(|line| line.split(' ').next() == Some(kind))?;
            let percent = line.split(' ').find_map(|field| field.strip_prefix("avg10="))?;
            Some(percent.parse::<f64>().ok()? / 100.0)
        };
        Some(Self {
            some: share("some")?,
            // Kernels before 5.13 have no such line for everything.
            full: share("full").unwrap_or(0.0),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// Scenario: the same statm on machines with pages of 4, 16 and 64 KiB; this process; nonsense.
    /// Guarantees: pages count as large as they are, and nonsense is no figure.
    #[test]
    fn pages_count_as_large_as_they_are() {
        let statm = "91011 2210 1403 512 0 9876 0\n";
        for page in [4 << 10, 16 << 10, 64 << 10] {
            assert_eq!(resident_of(statm, page), Some(2210 * page));
        }
        assert_eq!(resident_of("91011", 4096), None);
        assert_eq!(resident_of("1 18446744073709551615", 4096), None);
        assert!(resident_bytes().is_some_and(|rss| rss > 1 << 20) && cpu_seconds().is_some());
    }

    /// Scenario: a memory.pressure file, one without `full`, an empty one (psi=0 on the kernel's command line).
    /// Guarantees: shares from 0 to 1, or no figure.
    #[test]
    fn pressure_is_read_as_shares() {
        let text = "some avg10=12.50 avg60=3.00 avg300=0.70 total=123456\n\
                    full avg10=2.25 avg60=0.10 avg300=0.00 total=4567\n";
        let pressure = Pressure::parse(text).unwrap();
        assert_eq!((pressure.some, pressure.full), (0.125, 0.0225));
        let some = Pressure::parse("some avg10=1.00 avg60=0.00 avg300=0.00 total=1\n").unwrap();
        assert_eq!((some.some, some.full), (0.01, 0.0));
        assert_eq!(Pressure::parse(""), None);
    }
}
