//! OTLP metrics to bodies of remote write, and back; and remote write straight through, from the check at the receiver to the bodies.

use std::hint::black_box;

use sluice_loadgen::{Generator, RemoteWrite, Signal};
use sluice_payload::WireFormat;
use sluice_remote_write::{
    Encoder, EncoderSettings, Format, Mapping, Promote, Version, check, to_otlp, written_out,
};
use sluice_workloads::{SHAPES, request};

use crate::{Entry, Workload};

pub fn entries(entries: &mut Vec<Entry>) {
    for (shape, spec) in SHAPES {
        let spec = spec(Signal::Metrics);
        let sent = spec.clone();
        let through = spec.clone();
        entries.push((
            format!("remote-write-encode/{shape}"),
            Box::new(move || {
                let request = request(sent.clone());
                // All attributes as labels, which is the most there is to write.
                let mut encoder = Encoder::new(EncoderSettings {
                    mapping: Mapping {
                        promote: Promote::AllBut(Vec::new()),
                        ..Mapping::default()
                    },
                    lanes: 4,
                    ..EncoderSettings::default()
                });
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
