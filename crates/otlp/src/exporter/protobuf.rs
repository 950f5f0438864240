//! The few fields of an answer that matter, read from protobuf.
//!
//! Answers come from outside: an unknown or repeated field never fails one.

use std::time::Duration;

use super::status::{ErrorStatus, PartialSuccess};
use crate::fields::{Malformed, Value, fields};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `Export*ServiceResponse`: `partial_success` is field 1 of each, and has the same shape in each.
pub(crate) fn partial_success(message: &[u8]) -> Result<PartialSuccess, Malformed> {
    let mut partial = PartialSuccess::default();
    fields(message, |number, value| {
        if let (1, Value::Bytes(inner)) = (number, value) {
            fields(inner, |number, value| {
                match (number, value) {
                    // An int64; a negative count is nonsense and rejects nothing.
                    (1, Value::Varint(rejected)) => partial.rejected = (rejected as i64).max(0) as u64,
                    (2, Value::Bytes(message)) => partial.message = text(message),
                    _ => {}
                }
                Ok(())
            })?;
        }
        Ok(())
    })?;
    Ok(partial)
}

/// `google.rpc.Status`, with the delay of a `google.rpc.RetryInfo` among its details.
pub(crate) fn error_status(message: &[u8]) -> Result<ErrorStatus, Malformed> {
    let mut status = ErrorStatus::default();
    fields(message, |number, value| {
        match (number, value) {
            (1, Value::Varint(code)) => status.code = i32::try_from(code as i64).unwrap_or(-1),
            (2, Value::Bytes(message)) => status.message = text(message),
            (3, Value::Bytes(any)) => {
                if let Some(delay) = retry_info(any)? {
                    status.retry_delay = Some(delay);
                }
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(status)
}

/// The delay in an `Any` that holds a `RetryInfo`.
fn retry_info(any: &[u8]) -> Result<Option<Duration>, Malformed> {
    let (mut is_retry_info, mut inner) = (false, &[][..]);
    fields(any, |number, value| {
        match (number, value) {
            (1, Value::Bytes(url)) => is_retry_info = url.ends_with(b"/google.rpc.RetryInfo"),
            (2, Value::Bytes(bytes)) => inner = bytes,
            _ => {}
        }
        Ok(())
    })?;
    if !is_retry_info {
        return Ok(None);
    }
    // A RetryInfo without a delay still says "retryable": come back by your own backoff.
    let mut delay = Duration::ZERO;
    fields(inner, |number, value| {
        if let (1, Value::Bytes(duration)) = (number, value) {
            let (mut seconds, mut nanos) = (0i64, 0i64);
            fields(duration, |number, value| {
                match (number, value) {
                    (1, Value::Varint(n)) => seconds = n as i64,
                    (2, Value::Varint(n)) => nanos = n as i64,
                    _ => {}
                }
                Ok(())
            })?;
            delay = positive(seconds, nanos);
        }
        Ok(())
    })?;
    Ok(Some(delay))
}

/// A `google.protobuf.Duration`; a negative one is no delay.
fn positive(seconds: i64, nanos: i64) -> Duration {
    match (u64::try_from(seconds), u32::try_from(nanos)) {
        (Ok(seconds), Ok(nanos)) if nanos < 1_000_000_000 => Duration::new(seconds, nanos),
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: every prefix of an answer, and every single-byte change of it.
    /// Guarantees: reading never panics, and a cut answer is malformed or a shorter valid one.
    #[test]
    fn no_bytes_panic() {
        let answer = b"\x0a\x0d\x08\x07\x12\x09bad value\x92\x06\x02hi";
        for len in 0..answer.len() {
            let _ = partial_success(&answer[..len]);
            let _ = error_status(&answer[..len]);
            for flip in 0..=255u8 {
                let mut changed = answer.to_vec();
                changed[len] = flip;
                let _ = partial_success(&changed);
                let _ = error_status(&changed);
            }
        }
    }

    /// Scenario: an answer with unknown fields around `partial_success`.
    /// Guarantees: count and message are read, the rest is skipped.
    #[test]
    fn partial_success_among_unknown_fields() {
        let answer = b"\x7d\x01\x02\x03\x04\x0a\x0b\x08\x07\x12\x07too old\x92\x06\x02hi";
        let read = partial_success(answer).unwrap();
        assert_eq!(
            read,
            PartialSuccess {
                rejected: 7,
                message: "too old".into()
            }
        );
        // -1 as an int64
        let negative = b"\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
        assert_eq!(partial_success(negative).unwrap().rejected, 0);
    }
}
