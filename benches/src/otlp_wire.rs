//! The bodies otlp-wire (Go) benchmarks itself on, byte for byte as pdata encodes them: 5 resources of 100 items.
//!
//! pdata always writes the message and id fields that Go holds by value, so spans and log records carry empty ids,
//! and spans an empty status.

use bytes::Bytes;
use sluice_wire::Kind;

const RESOURCES: u8 = 5;
const ITEMS: u64 = 100;

/// The body of one kind: 27,875 bytes of metrics, 48,155 of traces, 56,655 of logs.
///
/// # Panics
/// On profiles, which otlp-wire does not know.
#[must_use]
pub fn body(kind: Kind) -> Bytes {
    let mut out = Vec::new();
    for index in 0..RESOURCES {
        let mut resource = Vec::new();
        attribute(
            &mut resource,
            1,
            "service.name",
            &format!("service-{}", char::from(b'A' + index)),
        );
        attribute(
            &mut resource,
            1,
            "host.name",
            &format!("host-{}", char::from(b'1' + index)),
        );
        attribute(&mut resource, 1, "deployment.environment", "production");
        let mut scope = Vec::new();
        field(&mut scope, 1, b"test-instrumentation");
        field(&mut scope, 2, b"1.0.0");

        let mut items = Vec::new();
        field(&mut items, 1, &scope);
        match kind {
            Kind::Metrics => {
                let mut gauge = Vec::new();
                (0..ITEMS).for_each(|value| field(&mut gauge, 1, &point(value)));
                let mut metric = Vec::new();
                field(&mut metric, 1, b"request.count");
                field(&mut metric, 2, b"Number of requests");
                field(&mut metric, 3, b"1");
                field(&mut metric, 5, &gauge);
                field(&mut items, 2, &metric);
            }
            Kind::Traces => (0..ITEMS).for_each(|_| field(&mut items, 2, &span())),
            Kind::Logs => (0..ITEMS).for_each(|_| field(&mut items, 2, &log_record())),
            Kind::Profiles => panic!("otlp-wire has no profiles"),
        }
        let mut container = Vec::new();
        field(&mut container, 1, &resource);
        field(&mut container, 2, &items);
        field(&mut out, 1, &container);
    }
    Bytes::from(out)
}

fn point(value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    fixed64(&mut out, 3, 1_000_000_000);
    fixed64(&mut out, 6, value);
    attribute(&mut out, 7, "method", "GET");
    attribute(&mut out, 7, "status", "200");
    out
}

fn span() -> Vec<u8> {
    let mut out = Vec::new();
    field(&mut out, 1, b"");
    field(&mut out, 2, b"");
    field(&mut out, 4, b"");
    field(&mut out, 5, b"test.operation");
    out.extend([6 << 3, 2]);
    fixed64(&mut out, 7, 1_000_000_000);
    fixed64(&mut out, 8, 1_000_001_000);
    attribute(&mut out, 9, "http.method", "GET");
    attribute(&mut out, 9, "http.status_code", "200");
    field(&mut out, 15, b"");
    out
}

fn log_record() -> Vec<u8> {
    let mut out = Vec::new();
    fixed64(&mut out, 1, 1_000_000_000);
    out.extend([2 << 3, 9]);
    field(&mut out, 3, b"INFO");
    let mut body = Vec::new();
    field(&mut body, 1, b"Test log message with some content");
    field(&mut out, 5, &body);
    attribute(&mut out, 6, "log.level", "info");
    attribute(&mut out, 6, "logger.name", "test.logger");
    field(&mut out, 9, b"");
    field(&mut out, 10, b"");
    out
}

fn attribute(out: &mut Vec<u8>, number: u32, key: &str, text: &str) {
    let mut value = Vec::new();
    field(&mut value, 1, text.as_bytes());
    let mut pair = Vec::new();
    field(&mut pair, 1, key.as_bytes());
    field(&mut pair, 2, &value);
    field(out, number, &pair);
}

fn field(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    varint(out, u64::from(number << 3 | 2));
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn fixed64(out: &mut Vec<u8>, number: u32, value: u64) {
    varint(out, u64::from(number << 3 | 1));
    out.extend_from_slice(&value.to_le_bytes());
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: the three bodies.
    /// Guarantees: they have exactly the sizes otlp-wire's benchmark has, and 500 items each.
    #[test]
    fn sizes_are_otlp_wires() {
        for (kind, bytes) in [
            (Kind::Metrics, 27_875),
            (Kind::Traces, 48_155),
            (Kind::Logs, 56_655),
        ] {
            let body = body(kind);
            assert_eq!(body.len(), bytes, "{kind:?}");
            assert_eq!(sluice_wire::count(kind, &body), Ok(500));
        }
    }
}
