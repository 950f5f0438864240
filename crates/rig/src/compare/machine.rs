//! The machine that figures were taken on, and what else it was doing.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// What a reader needs to judge figures.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: f64,
    pub(crate) kernel: String,
    pub(crate) hypervisor: bool,
    /// Load averages before the first measurement.
    pub(crate) load_before: String,
    /// How CPU time was read.
    pub(crate) accounting: String,
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn value(text: &str, name: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line
        .and_then(|line| line.split_once(':'))
        .map(|(_, value)| value.trim());
    value.unwrap_or("unknown").to_string()
}

impl Machine {
    pub(crate) fn describe(cores: usize, accounting: String) -> Machine {
        let processors = read("/proc/cpuinfo");
        let memory = value(&read("/proc/meminfo"), "MemTotal");
        let kib: f64 = memory.trim_end_matches(" kB").parse().unwrap_or(0.0);
        Machine {
            processor: value(&processors, "model name"),
            cores,
            memory_gib: kib / f64::from(1 << 20),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
            hypervisor: processors.contains(" hypervisor"),
            load_before: read("/proc/loadavg")
                .split(' ')
                .take(3)
                .collect::<Vec<_>>()
                .join(" "),
            accounting,
        }
    }
}

/// CPU time that the whole machine has used so far: user, nice, system, irq and softirq of /proc/stat.
pub(crate) fn busy() -> Duration {
    let stat = read("/proc/stat");
    let fields: Vec<u64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    let ticks: u64 = [0, 1, 2, 5, 6].iter().filter_map(|at| fields.get(*at)).sum();
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Now, as `2026-01-31 12:00 UTC`.
pub(crate) fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    date(since.as_secs())
}

/// Days to a date of the Gregorian calendar (Howard Hinnant, `civil_from_days`).
fn date(unix_seconds: u64) -> String {
    let minutes = unix_seconds / 60;
    let days = minutes / 1440 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    let year = year_of_era + era * 400 + next_year;
    format!(
        "{year}-{month:02}-{day:02} {:02}:{:02} UTC",
        minutes / 60 % 24,
        minutes % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: the epoch, a leap day, the end of a year, and a day that `date -d` was asked about.
    /// Guarantees: dates are right.
    #[test]
    fn dates_are_right() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_767_225_599), "2025-12-31 23:59 UTC");
        assert_eq!(date(1_795_192_500), "2026-11-20 16:35 UTC");
    }

    /// Scenario: this machine.
    /// Guarantees: it has cores, memory, a kernel, and has used CPU time.
    #[test]
    fn this_machine_is_described() {
        let machine = Machine::describe(2, "test".into());
        assert!(
            machine.memory_gib > 0.1 && !machine.kernel.is_empty(),
            "{machine:?}"
        );
        assert!(busy() > Duration::ZERO);
    }
}
