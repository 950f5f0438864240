//! Arrays and maps of attributes and bodies as JSON that says exactly what they were.
//!
//! Strings, booleans and null are JSON's own; integers have no point, doubles always have a point or an exponent. What
//! JSON has no word for is an object with one key that begins with `$`: `{"$bytes": base64}`, `{"$double": "NaN"}`. Keys of
//! maps that begin with `$` get a second one, so that they are never taken for these.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sluice_wire::Value;

use super::attributes::{Repairs, write_double, write_int};

/// Lists and maps in each other that are written; what is deeper is null. With deep validation there are fewer than fifty of them:
/// the wire has a hundred messages in each other at most, and each takes two. Readers of JSON take at least as many.
pub(crate) const MAX_LEVELS: u32 = 100;

/// Appends a value. What it had to change is counted.
pub(crate) fn write(out: &mut Vec<u8>, value: Option<Value<'_>>, repairs: &mut Repairs) {
    write_below(out, value, MAX_LEVELS, repairs);
}

/// Appends a value that may have so many `levels` of lists and maps.
fn write_below(out: &mut Vec<u8>, value: Option<Value<'_>>, levels: u32, repairs: &mut Repairs) {
    match value {
        Some(Value::String(text)) => write_text(out, "", text),
        Some(Value::InvalidText(text)) => write_text(out, "", &mended(text, repairs)),
        Some(Value::Bool(true)) => out.extend_from_slice(b"true"),
        Some(Value::Bool(false)) => out.extend_from_slice(b"false"),
        Some(Value::Int(value)) => write_int(out, value),
        Some(Value::Double(value)) if value.is_finite() => write_double(out, value),
        Some(Value::Double(value)) => {
            out.extend_from_slice(b"{\"$double\":\"");
            write_double(out, value);
            out.extend_from_slice(b"\"}");
        }
        Some(Value::Array(_) | Value::Map(_)) if levels == 0 => {
            repairs.deep_values += 1;
            out.extend_from_slice(b"null");
        }
        Some(Value::Array(array)) => {
            out.push(b'[');
            for (index, value) in array.values().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_below(out, value, levels - 1, repairs);
            }
            out.push(b']');
        }
        Some(Value::Map(map)) => {
            out.push(b'{');
            for (index, pair) in map.pairs().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                let key = mended(pair.key_bytes(), repairs);
                write_text(out, if key.starts_with('$') { "$" } else { "" }, &key);
                out.push(b':');
                write_below(out, pair.value(), levels - 1, repairs);
            }
            out.push(b'}');
        }
        Some(Value::Bytes(bytes)) => {
            out.extend_from_slice(b"{\"$bytes\":\"");
            write_base64(out, bytes);
            out.extend_from_slice(b"\"}");
        }
        _ => out.extend_from_slice(b"null"),
    }
}

/// Appends bytes in standard base64.
pub(crate) fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = STANDARD
        .encode_slice(bytes, &mut out[start..])
        .expect("base64 of n bytes is ceil(n / 3) * 4 long");
    out.truncate(start + written);
}

/// A text with U+FFFD in the place of what is not UTF-8.
fn mended<'a>(text: &'a [u8], repairs: &mut Repairs) -> Cow<'a, str> {
    let text = String::from_utf8_lossy(text);
    repairs.invalid_texts += u64::from(matches!(text, Cow::Owned(_)));
    text
}

/// Appends a text with `before`, which needs no escapes, in front.
fn write_text(out: &mut Vec<u8>, before: &str, text: &str) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    out.extend_from_slice(before.as_bytes());
    for byte in text.bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..0x20 => out.extend_from_slice(&[
                b'\\',
                b'u',
                b'0',
                b'0',
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]),
            byte => out.push(byte),
        }
    }
    out.push(b'"');
}
