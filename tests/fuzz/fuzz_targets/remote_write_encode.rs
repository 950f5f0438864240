//! Whatever OTLP is valid becomes bodies that a strict decoder takes: sorted, unique labels, none empty, legacy names where
//! the strategy escapes; every point is written or counted, in both versions, with rules before it or without. On other bytes nothing panics, and
//! bodies are as strict.
#![no_main]

#[path = "support/strict.rs"]
mod strict;

use sluice_loadgen::{RemoteWrite, for_each_sample};
use sluice_relabel::{Action, RuleConfig, Rules};
use sluice_remote_write::{Encoder, EncoderSettings, Format, Mapping, Promote, Strategy};
use sluice_wire::{Depth, Kind, validate};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&[choice, rules], request)) = data.split_first_chunk() else {
        return;
    };
    for format in [Format::V1, Format::V2] {
        encode(choice, rules, request, format);
    }
});

/// Rules of each kind that changes labels, those of `choice`; they make names of values, empty and equal ones too.
fn rules(choice: u8) -> Rules {
    let text = |text: &str| Some(text.to_owned());
    let rule = |source: &[&str], regex: &str, target: &str, replacement: &str| RuleConfig {
        source_labels: source.iter().map(|&name| name.to_owned()).collect(),
        regex: text(regex),
        target_label: target.to_owned(),
        replacement: text(replacement),
        ..RuleConfig::default()
    };
    let of_names = |action, regex: &str| RuleConfig {
        action,
        regex: text(regex),
        ..RuleConfig::default()
    };
    let all = [
        rule(&["__name__", "a"], "(.*);(.*)", "b", "${2}-$1"),
        rule(&["a"], "(.+)", "${1}", "x"),
        rule(&["a"], "(.*)", "__name__", "$1"),
        RuleConfig {
            replacement: text("$2"),
            ..of_names(Action::LabelMap, "(.)(.*)")
        },
        of_names(Action::LabelDrop, "b.*|__name__"),
        of_names(Action::LabelKeep, "__.*|a.*|le"),
        RuleConfig {
            source_labels: vec!["a".to_owned()],
            target_label: "le".to_owned(),
            modulus: Some(3),
            action: Action::HashMod,
            ..RuleConfig::default()
        },
        RuleConfig {
            source_labels: vec!["__name__".to_owned()],
            target_label: "__name__".to_owned(),
            action: Action::Uppercase,
            ..RuleConfig::default()
        },
    ];
    let chosen = (0..).zip(all).filter(|(bit, _)| choice >> bit & 1 == 1);
    Rules::new(chosen.map(|(_, rule)| rule).collect()).expect("rules that can be used")
}

fn encode(choice: u8, chosen_rules: u8, request: &[u8], format: Format) {
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
        relabel: rules(chosen_rules),
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
            // What rules make of names is what was asked for.
            strict::check(version, &plain, strategy.escapes() && chosen_rules == 0);
        }
    }
}
