//! Which directory a row belongs to: its tenant, where tenants are divided, its table, and the hour or day of its own time.

use std::fmt::Write;

use sluice_payload::TenantId;

use crate::Table;

const NANOS_PER_HOUR: u64 = 3_600_000_000_000;

/// The longest name of a tenant's directory, in bytes: file systems take names of 255.
const MAX_TENANT_DIRECTORY_BYTES: usize = 200;

/// How a table is divided into directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartitionBy {
    /// `dt=2026-11-21/hour=14/`, in UTC.
    #[default]
    Hour,
    /// `dt=2026-11-21/`, in UTC.
    Day,
    /// Not at all.
    None,
}

/// One directory of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Partition {
    /// Whose rows they are, where tenants are divided.
    pub tenant: Option<TenantId>,
    pub table: Table,
    pub by: PartitionBy,
    /// Hours since 1970, cut to days where days divide; 0 where nothing does.
    pub hour: u64,
}

impl Partition {
    /// Where a row of this time, in Unix nanoseconds, belongs. It depends on the row alone, so that what is read again
    /// from a journal goes where it went.
    #[inline]
    pub fn of(tenant: Option<TenantId>, table: Table, by: PartitionBy, time_unix_nano: u64) -> Self {
        let hour = time_unix_nano / NANOS_PER_HOUR;
        let hour = match by {
            PartitionBy::Hour => hour,
            PartitionBy::Day => hour / 24 * 24,
            PartitionBy::None => 0,
        };
        Self {
            tenant,
            table,
            by,
            hour,
        }
    }

    /// The directory below that of the tenant, with `/` between its parts and none at its ends.
    pub fn path(&self) -> String {
        let mut path = self.table.name().to_owned();
        let (year, month, day) = civil(self.hour / 24);
        // Writing to a string does not fail.
        let _ = match self.by {
            PartitionBy::None => Ok(()),
            PartitionBy::Day => write!(path, "/dt={year:04}-{month:02}-{day:02}"),
            PartitionBy::Hour => write!(
                path,
                "/dt={year:04}-{month:02}-{day:02}/hour={:02}",
                self.hour % 24
            ),
        };
        path
    }
}

/// The directory of a tenant's tables, as Hive names it: what is no letter, digit, `-`, `_` or `.` is `%` and its code in hexadecimal,
/// which engines undo. Of a name that becomes too long, the end is its CRC-32C.
pub(crate) fn tenant_directory(name: &str) -> String {
    const CHECKSUM_BYTES: usize = 9;
    let mut directory = String::from("tenant=");
    let mut fits = directory.len();
    for byte in name.bytes() {
        // Writing to a string does not fail.
        let _ = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                write!(directory, "{}", char::from(byte))
            }
            _ => write!(directory, "%{byte:02X}"),
        };
        if directory.len() <= MAX_TENANT_DIRECTORY_BYTES - CHECKSUM_BYTES {
            fits = directory.len();
        }
    }
    if directory.len() > MAX_TENANT_DIRECTORY_BYTES {
        directory.truncate(fits);
        // No other name has this: a `~` of the tenant's would be escaped.
        let _ = write!(directory, "~{:08x}", crc32c::crc32c(name.as_bytes()));
    }
    directory
}

/// Year, month and day of a day since 1970 (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: times at both ends of what nanoseconds reach, around a leap day, and zero.
    /// Guarantees: the directory is that of the hour or day in UTC.
    #[test]
    fn directories_are_named_by_utc() {
        let path = |by, time| Partition::of(None, Table::Logs, by, time).path();
        assert_eq!(path(PartitionBy::Hour, 0), "logs/dt=1970-01-01/hour=00");
        let leap_day = 1_709_251_199_999_999_999; // 2024-02-29T23:59:59.999999999Z
        assert_eq!(path(PartitionBy::Hour, leap_day), "logs/dt=2024-02-29/hour=23");
        assert_eq!(
            path(PartitionBy::Hour, leap_day + 1),
            "logs/dt=2024-03-01/hour=00"
        );
        assert_eq!(path(PartitionBy::Day, leap_day), "logs/dt=2024-02-29");
        assert_eq!(path(PartitionBy::None, leap_day), "logs");
        assert_eq!(path(PartitionBy::Hour, u64::MAX), "logs/dt=2554-07-21/hour=23");
    }

    /// Scenario: names of tenants that are plain, that have what paths and engines take for their own, and that become far too long.
    /// Guarantees: a plain name is as it is; no other has a separator, a blank or a dot directory in it; none is too long; long ones that
    /// differ at their end only are different still.
    #[test]
    fn tenants_have_directories_of_their_own() {
        assert_eq!(tenant_directory("team-a_1.x"), "tenant=team-a_1.x");
        assert_eq!(
            tenant_directory("../a b/c=d~%"),
            "tenant=..%2Fa%20b%2Fc%3Dd%7E%25"
        );
        assert_eq!(tenant_directory(&"x".repeat(150)).len(), 157);
        let long = |end: &str| tenant_directory(&("/".repeat(149) + end));
        for end in ["a", "b"] {
            let directory = long(end);
            assert!(directory.len() <= MAX_TENANT_DIRECTORY_BYTES, "{directory}");
            assert!(directory.starts_with("tenant=%2F%2F"), "{directory}");
            assert_eq!(directory.len(), 7 + 61 * 3 + 9, "{directory}");
        }
        assert_ne!(long("a"), long("b"));
    }
}
