//! Values as text, to the letter as Prometheus's OTLP endpoint writes them.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sluice_wire::Value;

/// Levels of maps and lists that are written; what is deeper reads as null. The wire allows a hundred.
const MAX_LEVELS: u32 = 100;

/// Appends an attribute's value as a label has it: strings as they are, numbers and booleans in decimal, bytes in
/// base64, maps and lists as JSON.
pub(crate) fn put_value(out: &mut String, value: Option<Value<'_>>) {
    match value {
        Some(Value::String(text)) => out.push_str(text),
        Some(Value::Bool(value)) => out.push_str(if value { "true" } else { "false" }),
        Some(Value::Int(value)) => put_int(out, value),
        Some(Value::Double(value)) => put_json_double(out, value),
        Some(Value::Bytes(bytes)) => BASE64.encode_string(bytes, out),
        Some(Value::Array(_) | Value::Map(_)) => {
            let start = out.len();
            if put_json(out, value, MAX_LEVELS).is_none() {
                // Numbers that JSON cannot hold leave nothing of the whole value.
                out.truncate(start);
            }
        }
        Some(_) | None => {}
    }
}

/// Whether a text is ASCII, and UTF-8 for that. Most values of attributes are short and of any length: a loop over bytes that ends anywhere is guessed wrongly each time, so
/// it is read in words, of which the last may begin in the one before.
#[inline]
pub(crate) fn is_ascii(text: &[u8]) -> bool {
    const NOT_ASCII: u64 = 0x8080_8080_8080_8080;
    let (words, rest) = text.as_chunks::<8>();
    let last = match text.last_chunk() {
        Some(last) => u64::from_le_bytes(*last),
        None => rest.iter().fold(0, |bits, byte| bits | u64::from(*byte)),
    };
    let bits = words
        .iter()
        .fold(last, |bits, word| bits | u64::from_le_bytes(*word));
    bits & NOT_ASCII == 0
}

fn put_int(out: &mut String, value: i64) {
    out.push_str(itoa::Buffer::new().format(value));
}

/// A number as in names of buckets and quantiles: the shortest digits that read back the same, without an exponent.
pub(crate) fn put_bound(out: &mut String, value: f64) {
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    } else {
        // Writing to a String cannot fail.
        let _ = write!(out, "{value}");
    }
}

/// A number as JavaScript writes it, which JSON encoders follow.
fn put_json_double(out: &mut String, value: f64) {
    if value.is_nan() {
        return out.push_str("NaN");
    }
    if value.is_infinite() {
        return out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
    }
    let size = value.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let start = out.len();
        let _ = write!(out, "{value:e}");
        if let Some(at) = out[start..].find('e').map(|at| start + at + 1)
            && !out[at..].starts_with('-')
        {
            out.insert(at, '+');
        }
    } else {
        let _ = write!(out, "{value}");
    }
}

/// `None` when there is a number in it that JSON does not have.
fn put_json(out: &mut String, value: Option<Value<'_>>, levels: u32) -> Option<()> {
    match value {
        Some(Value::String(text)) => put_json_string(out, text),
        Some(Value::Bool(_) | Value::Int(_)) => put_value(out, value),
        Some(Value::Double(double)) if !double.is_finite() => return None,
        Some(Value::Double(double)) => put_json_double(out, double),
        Some(Value::Bytes(bytes)) => {
            out.push('"');
            BASE64.encode_string(bytes, out);
            out.push('"');
        }
        Some(Value::Array(array)) if levels > 0 => {
            out.push('[');
            for (index, value) in array.values().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                put_json(out, value, levels - 1)?;
            }
            out.push(']');
        }
        Some(Value::Map(map)) if levels > 0 => {
            // By key; of several with the same key the last one counts.
            let mut pairs: Vec<_> = map.pairs().map(|pair| (pair.key(), pair.value())).collect();
            pairs.sort_by_key(|(key, _)| *key);
            out.push('{');
            let mut first = true;
            for (index, (key, value)) in pairs.iter().enumerate() {
                if pairs.get(index + 1).is_some_and(|(next, _)| next == key) {
                    continue;
                }
                if !first {
                    out.push(',');
                }
                first = false;
                put_json_string(out, key);
                out.push(':');
                put_json(out, *value, levels - 1)?;
            }
            out.push('}');
        }
        Some(Value::InvalidText(_)) => put_json_string(out, ""),
        Some(_) | None => out.push_str("null"),
    }
    Some(())
}

/// A string in JSON as Go writes it, which keeps it safe inside of JavaScript.
fn put_json_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\0'..='\u{1f}' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: texts of all lengths up to 40, and the same with one byte at any place that is not ASCII.
    /// Guarantees: they are told apart.
    #[test]
    fn one_byte_anywhere_is_not_ascii() {
        for len in 0..40 {
            let mut text = vec![0x7f; len];
            assert!(is_ascii(&text));
            for at in 0..len {
                text[at] = 0x80;
                assert!(!is_ascii(&text), "{at} of {len}");
                text[at] = 0x7f;
            }
        }
    }

    /// Scenario: doubles at the edges of both notations.
    /// Guarantees: they are written as Go's JSON encoder writes them.
    #[test]
    fn doubles() {
        for (value, want) in [
            (1.0, "1"),
            (0.1, "0.1"),
            (-0.0, "-0"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1.5e300, "1.5e+300"),
            (1e-6, "0.000001"),
            (1.5e-7, "1.5e-7"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            let mut out = String::new();
            put_json_double(&mut out, value);
            assert_eq!(out, want);
        }
        let mut out = String::new();
        put_bound(&mut out, f64::INFINITY);
        put_bound(&mut out, 1e22);
        assert_eq!(out, "+Inf10000000000000000000000");
    }

    /// Scenario: strings with what JSON and JavaScript care about.
    /// Guarantees: escaped as Go does.
    #[test]
    fn json_strings() {
        let mut out = String::new();
        put_json_string(&mut out, "a\"<b>&\u{1}\u{2028}\té");
        assert_eq!(out, "\"a\\\"<b>&\\u0001\\u2028\\té\"");
    }
}
