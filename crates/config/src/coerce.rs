//! How text becomes booleans, numbers, durations and sizes: the spellings the Collector reads, and a few kind ones.

use std::time::Duration;

use crate::node::Value;

/// Resolves an unquoted scalar as go-yaml v3 does into an untyped value.
pub(crate) fn resolve_plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Value::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Value::Float(f64::NEG_INFINITY),
        ".nan" | ".NaN" | ".NAN" => return Value::Float(f64::NAN),
        _ => {}
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return Value::String(text.to_owned());
    }
    if let Some(int) = parse_int(text) {
        return Value::Int(int);
    }
    if looks_like_float(text)
        && let Ok(float) = text.replace('_', "").parse::<f64>()
    {
        return Value::Float(float);
    }
    Value::String(text.to_owned())
}

/// An integer in decimal, `0x`, `0o`, `0b` or C-like octal (`0777`), with `_` between digits allowed.
pub(crate) fn parse_int(text: &str) -> Option<i128> {
    let plain = text.replace('_', "");
    let (negative, digits) = match plain.as_bytes().first()? {
        b'-' => (true, &plain[1..]),
        b'+' => (false, &plain[1..]),
        _ => (false, plain.as_str()),
    };
    let magnitude = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => radix(&digits[2..], 16)?,
        [b'0', b'o' | b'O', ..] => radix(&digits[2..], 8)?,
        [b'0', b'b' | b'B', ..] => radix(&digits[2..], 2)?,
        [b'0', _, ..] => radix(digits, 8)?,
        _ => radix(digits, 10)?,
    };
    Some(if negative { -magnitude } else { magnitude })
}

fn radix(digits: &str, radix: u32) -> Option<i128> {
    if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    // 64 bits and a sign are what any key can hold.
    i128::from_str_radix(digits, radix)
        .ok()
        .filter(|value| *value <= i128::from(u64::MAX))
}

fn looks_like_float(text: &str) -> bool {
    let mantissa_and_exponent = text.trim_start_matches(['+', '-']);
    let (mantissa, exponent) = mantissa_and_exponent
        .split_once(['e', 'E'])
        .map_or((mantissa_and_exponent, None), |(m, e)| (m, Some(e)));
    let digits_and_dot = mantissa.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let one_dot = mantissa.bytes().filter(|b| *b == b'.').count() <= 1;
    let exponent_ok = exponent.is_none_or(|e| {
        let digits = e.strip_prefix(['+', '-']).unwrap_or(e);
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
    });
    let one_sign = text.len() - mantissa_and_exponent.len() <= 1;
    one_sign && digits_and_dot && one_dot && exponent_ok && mantissa.bytes().any(|b| b.is_ascii_digit())
}

/// Booleans as Go's `strconv.ParseBool` reads them.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// A duration in Go's syntax (`200ms`, `1m30s`, `1.5h`, a bare `0`).
///
/// Never negative. The error says what was expected.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    const FORM: &str = r#"expected a duration with a unit, such as "200ms", "1m30s" or "1h""#;
    let refuse = || format!("{FORM}; found {text:?}");
    let digits = text.strip_prefix('+').unwrap_or(text);
    if digits == "0" {
        return Ok(Duration::ZERO);
    }
    if digits.starts_with('-') {
        return Err(format!("a duration must not be negative; found {text:?}"));
    }
    if digits.is_empty() {
        return Err(refuse());
    }
    let mut total_nanos: u128 = 0;
    let mut rest = digits;
    while !rest.is_empty() {
        let number_len = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(refuse)?;
        let (number, after) = rest.split_at(number_len);
        let unit_len = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        let unit_nanos: u128 = match unit {
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(refuse()),
        };
        total_nanos = scaled(number, unit_nanos)
            .and_then(|n| total_nanos.checked_add(n))
            .ok_or_else(refuse)?;
        rest = after;
    }
    // Go's durations end at 2^63 nanoseconds (292 years); so do ours, so that sums of them never overflow.
    match u64::try_from(total_nanos) {
        Ok(nanos) if i64::try_from(nanos).is_ok() => Ok(Duration::from_nanos(nanos)),
        _ => Err(format!("the duration {text:?} is longer than 292 years")),
    }
}

/// `number` (digits with at most one dot) times `unit`, rounded down.
fn scaled(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanos = whole.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.bytes() {
        // Digits below a nanosecond no longer count; `unit` is not always a power of ten, so divide late.
        place /= 10;
        nanos = nanos.checked_add(u128::from(digit - b'0') * place)?;
    }
    Some(nanos)
}

/// A size in bytes: a bare integer, or a number with `B`, `kB`/`KB`, `MB`, `GB`, `TB` (powers of 1000) or
/// `KiB`, `MiB`, `GiB`, `TiB` (powers of 1024). The error says what was expected.
pub fn parse_byte_size(text: &str) -> Result<u64, String> {
    let refuse =
        || format!(r#"expected a size in bytes, such as 67108864, "64MiB" or "4MB"; found {text:?}"#);
    let trimmed = text.trim();
    let number_len = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(number_len);
    let unit_bytes: u128 = match unit.trim_start() {
        "" | "B" | "b" => 1,
        "kB" | "KB" | "k" | "K" => 1_000,
        "MB" | "M" => 1_000_000,
        "GB" | "G" => 1_000_000_000,
        "TB" | "T" => 1_000_000_000_000,
        "KiB" | "Ki" | "kiB" => 1 << 10,
        "MiB" | "Mi" => 1 << 20,
        "GiB" | "Gi" => 1 << 30,
        "TiB" | "Ti" => 1 << 40,
        _ => return Err(refuse()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let whole: u128 = whole.parse().map_err(|_| refuse())?;
    // Twelve digits after the point are more than any unit can tell apart.
    if fraction.len() > 12 {
        return Err(refuse());
    }
    let numerator: u128 = fraction.parse().map_err(|_| refuse())?;
    let denominator = 10u128.pow(fraction.len() as u32);
    whole
        .checked_mul(unit_bytes)
        .and_then(|bytes| bytes.checked_add(numerator * unit_bytes / denominator))
        .and_then(|bytes| u64::try_from(bytes).ok())
        .ok_or_else(refuse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Scenario: durations as Collector files write them, and slips.
    /// Guarantees: Go's syntax is read exactly; a number without a unit is refused, except 0.
    #[test]
    fn durations_are_read_in_go_syntax() {
        let good = [
            ("0", 0),
            ("0s", 0),
            ("200ms", 200_000_000),
            ("1m30s", 90_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1us", 1_000),
            ("1µs", 1_000),
            ("+2s", 2_000_000_000),
        ];
        for (text, nanos) in good {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
        for text in [
            "",
            "5",
            "s",
            "-1s",
            "1 s",
            "1.2.3s",
            ".s",
            "1d",
            "ten",
            "9999999999h",
            "1s5",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    /// Scenario: sizes with and without units.
    /// Guarantees: decimal and binary units differ; nonsense and overflow are refused.
    #[test]
    fn sizes_are_read() {
        let good = [
            ("67108864", 64 << 20),
            ("64MiB", 64 << 20),
            ("4MB", 4_000_000),
            ("1.5 KiB", 1536),
            ("0", 0),
        ];
        for (text, bytes) in good {
            assert_eq!(parse_byte_size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "MiB",
            "-1",
            "1XB",
            "99999999999TiB",
            "1.1.1KB",
            "1.0000000000000000001KB",
        ] {
            assert!(parse_byte_size(text).is_err(), "{text}");
        }
    }

    /// Scenario: unquoted scalars.
    /// Guarantees: they resolve as in the Collector's YAML library: `yes` is text, `0x1f` is an integer.
    #[test]
    fn plain_scalars_resolve_as_in_the_collector() {
        assert_eq!(resolve_plain("yes"), Value::String("yes".into()));
        assert_eq!(resolve_plain("on"), Value::String("on".into()));
        assert_eq!(resolve_plain("True"), Value::Bool(true));
        assert_eq!(resolve_plain("0x1f"), Value::Int(31));
        assert_eq!(resolve_plain("1_000"), Value::Int(1000));
        assert_eq!(resolve_plain("-5"), Value::Int(-5));
        assert_eq!(resolve_plain("1.5"), Value::Float(1.5));
        assert_eq!(resolve_plain("1e3"), Value::Float(1000.0));
        assert_eq!(resolve_plain("1.2.3"), Value::String("1.2.3".into()));
        assert_eq!(resolve_plain("-"), Value::String("-".into()));
        assert_eq!(resolve_plain("--1"), Value::String("--1".into()));
        assert_eq!(
            resolve_plain("localhost:4317"),
            Value::String("localhost:4317".into())
        );
        assert_eq!(
            resolve_plain("0.0.0.0:4317"),
            Value::String("0.0.0.0:4317".into())
        );
    }

    proptest! {
        /// Scenario: arbitrary text where a scalar, a duration or a size is expected.
        /// Guarantees: an answer, never a panic.
        #[test]
        fn arbitrary_text_never_panics(text in "\\PC*") {
            let _ = resolve_plain(&text);
            let _ = parse_duration(&text);
            let _ = parse_byte_size(&text);
        }

        /// Scenario: text made of the characters numbers are made of.
        /// Guarantees: an answer, never a panic.
        #[test]
        fn near_numbers_never_panic(text in "[-+0-9a-fxob_.eEnumshµKMGTiB ]{0,24}") {
            let _ = resolve_plain(&text);
            let _ = parse_duration(&text);
            let _ = parse_byte_size(&text);
        }
    }
}
