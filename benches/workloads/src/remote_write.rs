//! OTLP metrics to bodies of remote write, and back.

use std::hint::black_box;

use sluice_loadgen::{Generator, RemoteWrite, Signal};
use sluice_remote_write::{Encoder, EncoderSettings, Format, Mapping, Promote, Version, to_otlp};
use sluice_workloads::{SHAPES, request};

use crate::{Entry, Workload};

pub fn entries(entries: &mut Vec<Entry>) {
    for (shape, spec) in SHAPES {
        let spec = spec(Signal::Metrics);
        for (name, format) in [
            ("remote-write-encode", Format::V1),
            ("remote-write-encode-v2", Format::V2),
        ] {
            let sent = spec.clone();
            entries.push((
                format!("{name}/{shape}"),
                Box::new(move || {
                    let request = request(sent.clone());
                    // All attributes as labels, which is the most there is to write.
                    let mut encoder = Encoder::new(EncoderSettings {
                        format,
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
        }
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
    }
}
