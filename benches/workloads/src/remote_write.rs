//! OTLP metrics to bodies of remote write, and back; and remote write straight through, from the check at the receiver to the bodies.

use std::hint::black_box;

use sluice_loadgen::{Generator, RemoteWrite, Signal, Spec};
use sluice_payload::WireFormat;
use sluice_remote_write::{
    Encoder, EncoderSettings, Format, Mapping, Promote, Version, check, to_otlp, written_out,
};
use sluice_workloads::{SHAPES, request, requests};

use crate::{Entry, Workload};

/// One with all attributes as labels, which is the most there is to write.
fn encoder() -> Encoder {
    Encoder::new(EncoderSettings {
        mapping: Mapping {
            promote: Promote::AllBut(Vec::new()),
            ..Mapping::default()
        },
        lanes: 4,
        ..EncoderSettings::default()
    })
}

/// Requests that are encoded in turn: more than there are rounds, so that none comes twice.
const IN_TURN: usize = 10;

/// The rig's gateways send batches of 4096 points.
const REQUESTS_OF_A_BATCH: usize = 8;

/// Makes the request of a number.
type MakeRequest = fn(usize) -> Vec<u8>;

/// OTLP of which every point is a series that never comes again: with an id among attributes that do come again, with attributes none of which do, with long
/// ones, and with a thousand. What is kept of the points before is of no use then, and must not cost much.
const NEVER_AGAIN: [(&str, MakeRequest, u64); 4] = [
    ("ids", ids, 500),
    ("new-attributes", |n| points(n, 500, 6, 12), 500),
    ("long-attributes", |n| points(n, 40, 6, 3000), 40),
    ("many-attributes", |n| points(n, 20, 1000, 12), 20),
];

/// Request number `n` of the gateway comparison.
fn ids(n: usize) -> Vec<u8> {
    requests(Spec::gateway(Signal::Metrics), n + 1).remove(n).to_vec()
}

/// Appends a delimited field.
fn put(out: &mut Vec<u8>, number: u8, content: &[u8]) {
    out.push(number << 3 | 2);
    let mut left = content.len();
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
    out.extend_from_slice(content);
}

/// Request number `n` of so many points of one gauge, with so many attributes each, whose values are of so many bytes and never the same.
fn points(n: usize, points: usize, attributes: usize, value_bytes: usize) -> Vec<u8> {
    let mut gauge = Vec::new();
    for point in 0..points {
        let mut message = Vec::new();
        for attribute in 0..attributes {
            let number = (n * points + point) * attributes + attribute;
            let (mut value, mut pair) = (Vec::new(), Vec::new());
            put(&mut value, 1, format!("{number:0value_bytes$}").as_bytes());
            put(&mut pair, 1, format!("key.{attribute:04}").as_bytes());
            put(&mut pair, 2, &value);
            put(&mut message, 7, &pair);
        }
        message.extend_from_slice(&[
            3 << 3 | 1,
            0,
            0,
            1,
            2,
            3,
            4,
            5,
            6,
            4 << 3 | 1,
            0,
            0,
            0,
            0,
            0,
            0,
            0xf0,
            0x3f,
        ]);
        put(&mut gauge, 1, &message);
    }
    let mut metric = Vec::new();
    put(&mut metric, 1, b"gauge");
    put(&mut metric, 5, &gauge);
    // A metric of a scope, of a resource, of a request.
    [2, 2, 1].into_iter().fold(metric, |inner, number| {
        let mut outer = Vec::new();
        put(&mut outer, number, &inner);
        outer
    })
}

pub fn entries(entries: &mut Vec<Entry>) {
    for (name, body, items) in NEVER_AGAIN {
        entries.push((
            format!("remote-write-encode/{name}"),
            Box::new(move || {
                let bodies: Vec<_> = (0..IN_TURN).map(body).collect();
                let (mut encoder, mut turn) = (encoder(), 0);
                encoder.encode(&[&bodies[turn]]);
                Workload::new(items, move || {
                    turn += 1;
                    black_box(encoder.encode(&[black_box(&bodies[turn])]));
                })
            }),
        ));
    }
    entries.push((
        "remote-write-encode/batches".to_owned(),
        Box::new(move || {
            let requests = requests(Spec::gateway(Signal::Metrics), IN_TURN * REQUESTS_OF_A_BATCH);
            let (mut encoder, mut turn) = (encoder(), 0);
            let mut encode = move || {
                let batch = requests.iter().skip(turn * REQUESTS_OF_A_BATCH);
                let parts: Vec<&[u8]> = batch.take(REQUESTS_OF_A_BATCH).map(|body| &body[..]).collect();
                turn += 1;
                black_box(encoder.encode(black_box(&parts)));
            };
            encode();
            Workload::new(500 * REQUESTS_OF_A_BATCH as u64, encode)
        }),
    ));
    for (shape, spec) in SHAPES {
        let spec = spec(Signal::Metrics);
        let sent = spec.clone();
        let through = spec.clone();
        entries.push((
            format!("remote-write-encode/{shape}"),
            Box::new(move || {
                let request = request(sent.clone());
                let mut encoder = encoder();
                // A gateway has seen its metrics and resources before.
                encoder.encode(&[&request.body]);
                Workload::new(request.items.into(), move || {
                    black_box(encoder.encode(&[black_box(&request.body)]));
                })
            }),
        ));
        entries.push((
            format!("remote-write-decode/{shape}"),
            Box::new(move || {
                let request = Generator::remote_write(spec.clone(), RemoteWrite::V1).next_request();
                Workload::new(request.items.into(), move || {
                    black_box(to_otlp(Version::V1, black_box(&request.body)))
                        .expect("loadgen writes valid requests");
                })
            }),
        ));
        for (name, sent, version, format, wire_format) in [
            (
                "through",
                RemoteWrite::V1,
                Version::V1,
                Format::V1,
                WireFormat::RemoteWrite1,
            ),
            (
                "through-2",
                RemoteWrite::V2,
                Version::V2,
                Format::V2,
                WireFormat::RemoteWrite2,
            ),
        ] {
            let spec = through.clone();
            entries.push((
                format!("remote-write-{name}/{shape}"),
                Box::new(move || {
                    let request = Generator::remote_write(spec.clone(), sent).next_request();
                    let mut encoder = Encoder::new(EncoderSettings {
                        format,
                        lanes: 4,
                        ..EncoderSettings::default()
                    });
                    // A gateway has seen its series before.
                    encoder.encode_all(&[(wire_format, &request.body)]);
                    Workload::new(request.items.into(), move || {
                        let body = black_box(&request.body[..]);
                        black_box(written_out(version, body));
                        black_box(check(version, body)).expect("loadgen writes valid requests");
                        black_box(encoder.encode_all(&[(wire_format, body)]));
                    })
                }),
            ));
        }
    }
}
