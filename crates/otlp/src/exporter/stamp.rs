//! Timestamps in file names and dumps: civil time in UTC, to the millisecond or nanosecond.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: u64 = 86_400;

/// Year, month, day of a day counted from 1970-01-01 (Hinnant's `civil_from_days`, for days not before the epoch).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// The inverse of [`civil`].
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let year = year.checked_sub(u64::from(month <= 2))?;
    let (era, year_of_era) = (year / 400, year % 400);
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * 146_097 + day_of_era).checked_sub(719_468)
}

/// `2006-01-02T15-04-05.000`, as lumberjack names the files it puts aside; a time before 1970 is written as 1970.
pub(super) fn file_stamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (year, month, day) = civil(since.as_secs() / SECONDS_PER_DAY);
    let second = since.as_secs() % SECONDS_PER_DAY;
    let (hour, minute, second, millis) = (
        second / 3600,
        second / 60 % 60,
        second % 60,
        since.subsec_millis(),
    );
    format!("{year:04}-{month:02}-{day:02}T{hour:02}-{minute:02}-{second:02}.{millis:03}")
}

/// `2006-01-02T15:04:05.000000000Z`, for people to read.
pub(super) fn instant(unix_nanos: u64) -> String {
    const NANOS_PER_SECOND: u64 = 1_000_000_000;
    let (seconds, nanos) = (unix_nanos / NANOS_PER_SECOND, unix_nanos % NANOS_PER_SECOND);
    let (year, month, day) = civil(seconds / SECONDS_PER_DAY);
    let second = seconds % SECONDS_PER_DAY;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

/// Reads what [`file_stamp`] wrote; anything else is `None`.
pub(super) fn parse_file_stamp(text: &str) -> Option<SystemTime> {
    let number = |at: std::ops::Range<usize>| -> Option<u64> {
        let digits = text.get(at)?;
        if digits.bytes().all(|byte| byte.is_ascii_digit()) {
            digits.parse().ok()
        } else {
            None
        }
    };
    let days = days(number(0..4)?, number(5..7)?, number(8..10)?)?;
    let seconds = number(11..13)? * 3600 + number(14..16)? * 60 + number(17..19)?;
    let millis = number(20..23)?;
    let time =
        UNIX_EPOCH + Duration::from_secs(days * SECONDS_PER_DAY + seconds) + Duration::from_millis(millis);
    // What is written back must be the same, which checks separators, length and ranges at once.
    (file_stamp(time) == text).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: known instants, and every day of 800 years.
    /// Guarantees: the stamp is the UTC time, and reading it back gives the same instant.
    #[test]
    fn stamps_are_utc_and_read_back() {
        let at = |seconds, millis| UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_millis(millis);
        assert_eq!(file_stamp(at(0, 0)), "1970-01-01T00-00-00.000");
        assert_eq!(file_stamp(at(1_136_214_245, 7)), "2006-01-02T15-04-05.007");
        assert_eq!(file_stamp(at(951_827_696, 999)), "2000-02-29T12-34-56.999");
        assert_eq!(
            file_stamp(UNIX_EPOCH - Duration::from_secs(5)),
            "1970-01-01T00-00-00.000"
        );
        assert_eq!(
            instant(1_544_712_660_300_000_001),
            "2018-12-13T14:51:00.300000001Z"
        );
        assert_eq!(instant(u64::MAX), "2554-07-21T23:34:33.709551615Z");
        for day in 0..292_194 {
            let time = at(day * SECONDS_PER_DAY + 86_399, 1);
            assert_eq!(parse_file_stamp(&file_stamp(time)), Some(time), "day {day}");
        }
        for bad in [
            "",
            "2006-13-02T15-04-05.000",
            "2006-01-02T15:04:05.000",
            "2006-01-02T15-04-05.0000",
            "x",
        ] {
            assert_eq!(parse_file_stamp(bad), None, "{bad}");
        }
    }
}
