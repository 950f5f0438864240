//! Whatever OTLP is valid becomes bodies that a strict decoder takes: sorted, unique labels, none empty, legacy names where
//! the strategy escapes; every point is written or counted, in both versions. On other bytes nothing panics, and bodies are as strict.
#![no_main]

use sluice_loadgen::{RemoteWrite, for_each_sample};
use sluice_remote_write::{Encoder, EncoderSettings, Format, Mapping, Promote, Strategy};
use sluice_wire::{Depth, Fields, Kind, validate};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&choice, request)) = data.split_first() else {
        return;
    };
    for format in [Format::V1, Format::V2] {
        encode(choice, request, format);
    }
});

fn encode(choice: u8, request: &[u8], format: Format) {
    let strategy = Strategy::ALL[usize::from(choice & 3)];
    let settings = EncoderSettings {
        format,
        mapping: Mapping {
            strategy,
            promote: if choice & 4 == 0 {
                Promote::None
            } else {
                Promote::AllBut(Vec::new())
            },
            keep_multiple_underscores: choice & 8 != 0,
            key_before_underscore: choice & 16 != 0,
            external_labels: vec![("cluster".to_owned(), "c".to_owned())],
            custom_buckets: format == Format::V2 && choice & 128 != 0,
            delta_to_cumulative: choice & 16 != 0,
            ..Mapping::default()
        },
        max_delta_series: 16,
        lanes: if choice & 32 == 0 { 1 } else { 3 },
        max_body_bytes: if choice & 64 == 0 { 200 } else { usize::MAX },
        metadata: choice & 128 != 0,
        ..EncoderSettings::default()
    };
    let mut encoder = Encoder::new(settings);
    // Twice: the second time it comes upon what it has made.
    for _ in 0..2 {
        let (lanes, outcome) = encoder.encode(&[request]);
        if let Ok(scan) = validate(Kind::Metrics, Depth::Deep, request) {
            assert_eq!(outcome.points + outcome.dropped.total(), scan.items);
        }
        for body in lanes.iter().flatten() {
            let plain = snap::raw::Decoder::new()
                .decompress_vec(&body.bytes)
                .expect("a snappy block");
            let version = match format {
                Format::V2 => RemoteWrite::V2,
                _ => RemoteWrite::V1,
            };
            let seen = for_each_sample(version, &plain, |_| {}).expect("a request that is taken");
            assert_eq!(seen.samples, body.written.samples);
            assert_eq!(seen.histograms, body.written.histograms);
            if format == Format::V1 {
                Fields::of(&plain)
                    .filter(|field| field.number == 1)
                    .for_each(|series| check(series.value, strategy.escapes()));
            }
        }
    }
}

fn check(series: &[u8], legacy: bool) {
    let mut last: &[u8] = &[];
    for label in Fields::of(series).filter(|field| field.number == 1) {
        let mut parts = Fields::of(label.value).map(|field| field.value);
        let (name, value) = (parts.next().expect("a name"), parts.next().expect("a value"));
        assert!(name > last && !value.is_empty() && parts.next().is_none());
        if legacy {
            let fits = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
            assert!(name.iter().all(fits) && !name[0].is_ascii_digit());
        }
        last = name;
    }
}
