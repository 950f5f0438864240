//! What no reader would take is not what files have, whatever is let in.

use std::process::Command;

use sluice_tests::{Config, Gateway, Kind, post, run, sample, script};

use super::{engines, to_directory};

/// Requests of each signal.
const REQUESTS: u64 = 16;

/// Lists in each other: more than any reader of JSON takes.
const LEVELS: usize = 2000;

/// The length of a value that is longer than any page is to be.
const LONG: usize = 1 << 20;

fn varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A field with these bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    varint(&mut field, bytes.len());
    field.extend_from_slice(bytes);
    field
}

/// The number of the field that a sound message begins with, what comes before its value, its value, and what follows it.
fn first(message: &[u8]) -> (u8, &[u8], &[u8], &[u8]) {
    let (number, wire) = (message[0] >> 3, message[0] & 7);
    assert!(message[0] < 0x80);
    let digits = || 1 + message[1..].iter().position(|byte| *byte < 0x80).unwrap();
    let (start, length) = match wire {
        0 => (1, digits()),
        1 => (1, 8),
        5 => (1, 4),
        _ => {
            let digits = message[1..=digits()].iter().rev();
            let length = digits
                .clone()
                .fold(0, |length, byte| length << 7 | usize::from(byte & 0x7f));
            (1 + digits.len(), length)
        }
    };
    let (head, rest) = message.split_at(start);
    let (value, rest) = rest.split_at(length);
    (number, head, value, rest)
}

/// The message with `more` at the end of each message that a path of one of these numbers for each level leads to.
fn with(mut message: &[u8], path: &[&[u8]], more: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let [numbers, below @ ..] = path else {
        return [message, more].concat();
    };
    while !message.is_empty() {
        let (number, head, value, rest) = first(message);
        match numbers.contains(&number) {
            true => out.extend(field(number, &with(value, below, more))),
            false => out.extend([head, value].concat()),
        }
        message = rest;
    }
    out
}

/// The `AnyValue` of lists in each other. It is written from its end.
fn nested(levels: usize) -> Vec<u8> {
    let mut reversed = Vec::new();
    for number in [1, 5].repeat(levels) {
        let mut head = vec![number << 3 | 2];
        varint(&mut head, reversed.len());
        reversed.extend(head.iter().rev());
    }
    reversed.reverse();
    reversed
}

/// Attributes that nobody should send, each as a `KeyValue`.
fn attributes() -> Vec<Vec<u8>> {
    const BAD: &[u8] = b"ab\xff\xfe\xed\xa0\x80c";
    let pair = |key: &[u8], value: &[u8]| [field(1, key), field(2, value)].concat();
    let list = field(5, &[field(1, &field(1, BAD)), field(1, &[])].concat());
    let map = field(
        6,
        &[field(1, &pair(BAD, &list)), field(1, &pair(BAD, &[]))].concat(),
    );
    vec![
        pair(b"twice", &field(1, b"first")),
        pair(b"twice", &[0x18, 1]),
        pair(BAD, &field(1, BAD)),
        pair(b"list", &list),
        pair(b"map", &map),
        pair(b"deep", &nested(LEVELS)),
        pair(b"", &field(1, b"\0\r\n\"\\\x7f")),
        pair(b"not a number", &[&[0x21][..], &f64::NAN.to_le_bytes()].concat()),
        Vec::new(),
    ]
}

/// Scenario: generated requests of all signals are changed: attributes of resources and items that nobody should send, now and then a
/// value of 1 MiB, and random bytes in the midst of a part of them; validation is shallow.
/// Guarantees: the gateway takes or rejects each; DuckDB, pyarrow, Polars and DataFusion read every file with all of its rows, values
/// that are to be JSON are, and every sort of repair is counted.
#[tokio::test(flavor = "multi_thread")]
async fn engines_read_what_nobody_should_send() {
    let engines = tokio::task::spawn_blocking(engines).await.unwrap();
    let out = tempfile::tempdir().unwrap();
    let config = Config::new()
        .signals(&["logs", "metrics", "traces"])
        .receiver("validation: shallow")
        .exporter("parquet", &to_directory(out.path(), ""));
    let gateway = Gateway::start(&config).await;
    let attributes = attributes();
    let as_fields = |number| -> Vec<u8> { attributes.iter().flat_map(|one| field(number, one)).collect() };
    let mut random: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut draw = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % below
    };
    for kind in [Kind::Logs, Kind::Metrics, Kind::Traces] {
        // Where a resource is, and an item with the number of its attributes; of metrics, points of gauges and sums.
        let (items, number): (&[&[u8]], u8) = match kind {
            Kind::Logs => (&[&[1], &[2], &[2]], 6),
            Kind::Traces => (&[&[1], &[2], &[2]], 9),
            _ => (&[&[1], &[2], &[2], &[5, 7], &[1]], 7),
        };
        for seed in 0..REQUESTS {
            let mut body = sample(kind, seed);
            if seed % 4 != 1 {
                body = with(&body, items, &as_fields(number));
                body = with(&body, &[&[1], &[1]], &as_fields(1));
            }
            if seed == 2 {
                let long = [field(1, b"long"), field(2, &field(1, &vec![b'x'; LONG]))].concat();
                body = with(&body, &[&[1], &[1]], &field(1, &long));
            }
            if seed % 2 == 1 {
                for _ in 0..draw(20) {
                    let at = draw(body.len());
                    body[at] = draw(256) as u8;
                }
            }
            let headers = [("content-type", "application/x-protobuf")];
            let reply = post(gateway.http(), kind.http_path(), &headers, body).await;
            let fits = reply.status == 200 || seed % 2 == 1 && reply.status == 400;
            assert!(fits, "{kind:?} {seed}: {reply:?}");
        }
    }
    gateway.settled().await;
    let metrics = gateway.metrics().await;
    for what in ["duplicate_key", "invalid_text", "deep_value"] {
        let repairs = metrics.sum("sluice_parquet_repairs_total", &[what]);
        assert!(repairs > 0.0, "{what}");
    }
    let rows = metrics.sum("sluice_parquet_rows_total", &[]);
    gateway.stop().await;
    let mut command = Command::new(engines);
    command
        .arg(script("hostile.py"))
        .arg(out.path())
        .arg(rows.to_string());
    println!(
        "{}",
        tokio::task::spawn_blocking(move || run(&mut command))
            .await
            .unwrap()
    );
}
