//! Whatever remote write is taken becomes valid OTLP with as many points as were counted, or goes straight through, in bodies that a
//! strict decoder takes, every point written or counted. On other bytes nothing panics.
#![no_main]

#[path = "support/strict.rs"]
mod strict;

use sluice_loadgen::{RemoteWrite, for_each_sample};
use sluice_payload::WireFormat;
use sluice_remote_write::{Encoder, EncoderSettings, Format, Version, check, to_otlp, written_out};
use sluice_wire::{Depth, Kind, validate};

/// What becomes more than this is left to other inputs: receivers have a limit too.
const MAX_WRITTEN_OUT: u64 = 1 << 20;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&choice, body)) = data.split_first() else {
        return;
    };
    let (version, wire_format) = match choice & 1 {
        0 => (Version::V1, WireFormat::RemoteWrite1),
        _ => (Version::V2, WireFormat::RemoteWrite2),
    };
    if written_out(version, body) > MAX_WRITTEN_OUT {
        return;
    }
    if let Ok((otlp, taken)) = to_otlp(version, body) {
        let scan = validate(Kind::Metrics, Depth::Deep, &otlp).expect("valid OTLP");
        assert_eq!(scan.items, taken.points());
    }
    let format = [Format::V1, Format::V1Zstd, Format::V2][usize::from(choice >> 1) % 3];
    let mut encoder = Encoder::new(EncoderSettings {
        format,
        lanes: 2,
        ..EncoderSettings::default()
    });
    let (lanes, outcome) = encoder.encode_all(&[(wire_format, body)]);
    let Ok(taken) = check(version, body) else {
        return;
    };
    assert_eq!(outcome.points + outcome.dropped.total(), taken.points());
    for body in lanes.iter().flatten() {
        let plain = body.plain().expect("it was just written");
        let version = match format {
            Format::V2 => RemoteWrite::V2,
            _ => RemoteWrite::V1,
        };
        let seen = for_each_sample(version, &plain, |_| {}).expect("a request that is taken");
        assert_eq!(seen.samples, body.written.samples);
        assert_eq!(seen.histograms, body.written.histograms);
        strict::check(version, &plain, false);
    }
});
