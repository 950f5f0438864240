//! Small protobuf answers: `Export*Response` with a partial success, `google.rpc.Status`.

use std::time::Duration;

use bytes::Bytes;

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push(number << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn int_field(out: &mut Vec<u8>, number: u8, value: u64) {
    if value != 0 {
        out.push(number << 3);
        varint(out, value);
    }
}

/// `Export*Response { partial_success { rejected = 1, error_message = 2 } }`; the same numbers for
/// every signal.
pub(super) fn partial_success(rejected: u64, message: &str) -> Bytes {
    let mut inner = Vec::new();
    int_field(&mut inner, 1, rejected);
    field(&mut inner, 2, message.as_bytes());
    let mut out = Vec::new();
    field(&mut out, 1, &inner);
    out.into()
}

/// `google.rpc.Status { code = 1, message = 2, details = 3 }`, with a `RetryInfo` when the client
/// is to come back.
pub(super) fn status(code: u32, message: &str, retry_after: Option<Duration>) -> Bytes {
    let mut out = Vec::new();
    int_field(&mut out, 1, u64::from(code));
    field(&mut out, 2, message.as_bytes());
    if let Some(delay) = retry_after {
        let mut any = Vec::new();
        field(&mut any, 1, b"type.googleapis.com/google.rpc.RetryInfo");
        field(&mut any, 2, &retry_info(delay));
        field(&mut out, 3, &any);
    }
    out.into()
}

/// `google.rpc.RetryInfo { retry_delay = 1: Duration { seconds = 1, nanos = 2 } }`.
pub(super) fn retry_info(delay: Duration) -> Bytes {
    let mut duration = Vec::new();
    int_field(&mut duration, 1, delay.as_secs());
    int_field(&mut duration, 2, u64::from(delay.subsec_nanos()));
    let mut out = Vec::new();
    field(&mut out, 1, &duration);
    out.into()
}
