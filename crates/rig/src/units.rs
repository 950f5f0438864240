//! Durations and sizes as people write them: `50ms`, `2s`, `64KiB`, `10MB`.

use std::time::Duration;

/// Splits `12.5ms` into its number and its unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(unit_at);
    Some((number.parse().ok()?, unit))
}

/// A duration with a unit: `us`, `ms`, `s`, `m` or `h`; `0` needs none.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration: write a number and us, ms, s, m or h, as in 50ms");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let seconds = match unit {
        "us" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// A number of bytes: plain, or with `KB`, `MB`, `GB` (powers of 1000), `KiB`, `MiB`, `GiB` (of 1024).
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "{text:?} is not a number of bytes: write it plain, or with KB, MB, GB, KiB, MiB or GiB, as in 64KiB"
        )
    };
    if let Ok(plain) = text.parse() {
        return Ok(plain);
    }
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let factor: u64 = match unit {
        "B" => 1,
        "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(wrong()),
    };
    Ok((number * factor as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: durations and sizes with every unit, and texts that are none.
    /// Guarantees: each is read exactly; what cannot be read is named in the error.
    #[test]
    fn units_are_read() {
        assert_eq!(duration("50ms"), Ok(Duration::from_millis(50)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert!(duration("5").unwrap_err().contains("\"5\""));
        assert!(duration("-1s").is_err());
        assert_eq!(bytes("4096"), Ok(4096));
        assert_eq!(bytes("64KiB"), Ok(65536));
        assert_eq!(bytes("1.5MB"), Ok(1_500_000));
        assert!(bytes("1 MB").unwrap_err().contains("1 MB"));
    }
}
