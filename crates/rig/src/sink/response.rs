//! The bodies of answers: empty, partial successes, and gRPC's hint when to come again.

use std::time::Duration;

/// An `Export*ServiceResponse` that rejects items: the same fields for all signals. Empty if it rejects none.
pub(crate) fn protobuf(rejected_items: u64) -> Vec<u8> {
    if rejected_items == 0 {
        return Vec::new();
    }
    let mut partial = vec![0x08];
    varint(&mut partial, rejected_items);
    text(&mut partial, 2, MESSAGE);
    let mut response = Vec::new();
    bytes(&mut response, 1, &partial);
    response
}

/// The same as JSON; the rejected items have a name of their own in each signal.
pub(crate) fn json(rejected_items: u64, signal: &str) -> Vec<u8> {
    if rejected_items == 0 {
        return b"{}".to_vec();
    }
    let name = match signal {
        "metrics" => "rejectedDataPoints",
        "logs" => "rejectedLogRecords",
        _ => "rejectedSpans",
    };
    let partial = serde_json::json!({ name: rejected_items.to_string(), "errorMessage": MESSAGE });
    serde_json::json!({ "partialSuccess": partial })
        .to_string()
        .into_bytes()
}

const MESSAGE: &str = "rejected by the fault script";

/// `grpc-status-details-bin` before base64: a `google.rpc.Status` with a `RetryInfo`.
pub(crate) fn retry_info(code: u16, delay: Duration) -> Vec<u8> {
    let mut duration = vec![0x08];
    varint(&mut duration, delay.as_secs());
    duration.push(0x10);
    varint(&mut duration, delay.subsec_nanos().into());
    let mut retry = Vec::new();
    bytes(&mut retry, 1, &duration);
    let mut any = Vec::new();
    text(&mut any, 1, "type.googleapis.com/google.rpc.RetryInfo");
    bytes(&mut any, 2, &retry);
    let mut status = vec![0x08];
    varint(&mut status, code.into());
    text(&mut status, 2, MESSAGE);
    bytes(&mut status, 3, &any);
    status
}

fn text(out: &mut Vec<u8>, field: u8, text: &str) {
    bytes(out, field, text.as_bytes());
}

fn bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
