//! What becomes of whole requests, beside what the corpus of `golden.rs` says.

use std::collections::HashMap;

use sluice_loadgen::{Generator, RemoteWrite, Signal, Spec, for_each_sample};
use sluice_wire::Fields;

use super::golden::{mapping, requests};
use super::*;
use crate::decode::{Version, each_series};
use crate::encoder::{Encoder, EncoderSettings, Lanes};
use crate::labels::METRIC_NAME;
use crate::names::Strategy;

/// Keeps what it is given: labels, and bits and time of floats.
#[derive(Default)]
struct Kept(Vec<(String, u64, i64)>);

impl Sink for Kept {
    fn sample(&mut self, labels: &SeriesLabels<'_>, sample: &Sample<'_>, _: &About<'_>) {
        let mut text = String::new();
        labels.each(|name, value| text.push_str(&format!("{name}\x01{value}\x02")));
        let bits = match sample.value {
            Value::Float(value) => value.to_bits(),
            Value::Native(message) => crate::hash::hash(message, 0),
        };
        self.0.push((text, bits, sample.timestamp_ms));
    }
}

pub(crate) fn plain_bodies(lanes: &Lanes) -> Vec<Vec<u8>> {
    let inflate = |bytes: &[u8]| snap::raw::Decoder::new().decompress_vec(bytes).unwrap();
    lanes.iter().flatten().map(|body| inflate(&body.bytes)).collect()
}

/// Holds every series of a body to sorted, unique, non-empty labels.
fn assert_strict(body: &[u8], legacy: bool) {
    for series in Fields::of(body).filter(|field| field.number == 1) {
        let mut last = String::new();
        for label in Fields::of(series.value).filter(|field| field.number == 1) {
            let parts: Vec<_> = Fields::of(label.value).map(|field| field.value).collect();
            let [name, value] = parts[..] else {
                panic!("{parts:?}")
            };
            let name = std::str::from_utf8(name).unwrap();
            assert!(name > &*last, "{name} after {last}");
            assert!(!value.is_empty() && std::str::from_utf8(value).is_ok());
            if legacy {
                let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
                assert!(
                    name.chars().all(fits) && !name.starts_with(|c: char| c.is_ascii_digit()),
                    "{name}"
                );
            }
            last = name.to_owned();
        }
    }
}

/// Scenario: all requests of the corpus, in all strategies, written as bodies of 1.0 in three lanes, whose bodies end at
/// 2,000 bytes; one encoder for all of them with the same options, so that it comes upon what it has made before.
/// Guarantees: the bodies hold exactly the series that the mapping makes; all of one series are in one lane, in order;
/// labels are sorted, unique and not empty; the counts are right; a decoder that is not ours takes every body.
#[test]
fn bodies_hold_what_the_mapping_makes() {
    let requests = requests();
    for strategy in Strategy::ALL {
        let mut encoders: Vec<Encoder> = (0..4)
            .map(|index| {
                Encoder::new(EncoderSettings {
                    mapping: mapping(index, strategy),
                    lanes: 3,
                    max_body_bytes: 2000,
                    metadata: true,
                    ..EncoderSettings::default()
                })
            })
            .collect();
        for (index, request) in requests.iter().enumerate() {
            let mut kept = Kept::default();
            let fresh = Transcoder::new(mapping(index, strategy)).run(&[request], &mut kept);
            let (lanes, outcome) = encoders[index % 4].encode(&[request]);
            assert_eq!((outcome.points, outcome.dropped), (fresh.points, fresh.dropped));
            let mut read = Kept::default();
            let mut lane_of: HashMap<String, usize> = HashMap::new();
            for (lane, bodies) in lanes.iter().enumerate() {
                for body in bodies {
                    let plain = &plain_bodies(&vec![vec![body.clone()]])[0];
                    assert_strict(plain, strategy.escapes());
                    let seen = for_each_sample(RemoteWrite::V1, plain, |_| {}).unwrap();
                    assert_eq!(
                        (seen.samples, seen.histograms, seen.exemplars),
                        (
                            body.written.samples,
                            body.written.histograms,
                            body.written.exemplars
                        )
                    );
                    assert!(
                        body.written.series == 1 || plain.len() < 2000 + 4000,
                        "{}",
                        plain.len()
                    );
                    each_series(Version::V1, plain, |series| {
                        let mut text = String::new();
                        for (name, value) in &series.labels {
                            text.push_str(&format!("{name}\x01{value}\x02"));
                        }
                        assert_eq!(*lane_of.entry(text.clone()).or_insert(lane), lane);
                        for sample in &series.samples {
                            read.0
                                .push((text.clone(), sample.value.to_bits(), sample.timestamp_ms));
                        }
                        for histogram in &series.histograms {
                            // Its time is appended to what the mapping made.
                            let time = Fields::of(histogram).find(|field| field.number == 15).unwrap();
                            let own = &histogram[..histogram.len() - time.framed.len()];
                            read.0.push((
                                text.clone(),
                                crate::hash::hash(own, 0),
                                time.varint().unwrap() as i64,
                            ));
                        }
                        Ok(())
                    })
                    .unwrap();
                }
            }
            // Lanes apart, the order is that of the request: a stable sort by labels brings both together.
            kept.0.sort_by(|a, b| a.0.cmp(&b.0));
            read.0.sort_by(|a, b| a.0.cmp(&b.0));
            assert_eq!(kept.0, read.0, "request {index}");
        }
    }
}

/// Scenario: what a gateway carries: five kinds of metrics of several services, request after request through one encoder.
/// Guarantees: each data point that was put in is found again in the bodies, by its id, and as many as are counted.
#[test]
fn every_point_is_found_again() {
    for spec in [Spec::gateway(Signal::Metrics), Spec::mixed(Signal::Metrics)] {
        let mut generator = Generator::new(spec);
        let mut encoder = Encoder::new(EncoderSettings {
            lanes: 4,
            ..EncoderSettings::default()
        });
        for _ in 0..20 {
            let request = generator.next_request();
            let (lanes, outcome) = encoder.encode(&[&request.body]);
            let mut found = 0;
            for body in plain_bodies(&lanes) {
                for_each_sample(RemoteWrite::V1, &body, |sample| {
                    found += u64::from(matches!(sample, sluice_loadgen::Found::Item(_)));
                })
                .unwrap();
            }
            assert_eq!(found, outcome.points);
            assert_eq!(outcome.points + outcome.dropped.total(), u64::from(request.items));
            assert_eq!(outcome.dropped.get(Reason::Delta), outcome.dropped.total());
        }
    }
}

/// Scenario: rules that drop a metric, rename a label to one that sorts elsewhere, and add one.
/// Guarantees: labels are as the rules say, sorted; points of which nothing is left are counted as dropped by a rule, and
/// all others are written.
#[test]
fn rules_apply_to_what_is_written() {
    use sluice_relabel::{Action, RuleConfig, Rules};
    let request = Generator::new(Spec::gateway(Signal::Metrics)).next_request();
    let first = Request::new(Kind::Metrics, &request.body);
    let metrics: Vec<_> = first
        .resources()
        .flat_map(|resource| resource.scopes())
        .flat_map(|scope| scope.metrics())
        .collect();
    let rule = |action, source: &str, regex: &str, target: &str, replacement: &str| RuleConfig {
        action,
        source_labels: vec![source.to_owned()],
        regex: Some(regex.to_owned()),
        target_label: target.to_owned(),
        replacement: Some(replacement.to_owned()),
        ..RuleConfig::default()
    };
    let unwanted = metric_name_of(&metrics[0]);
    let rules = vec![
        rule(Action::Drop, METRIC_NAME, &unwanted, "", ""),
        rule(Action::Replace, "sluice_id", "(.*)", "Zid", "x$1"),
        rule(Action::Replace, "sluice_id", "(.*)", "sluice_id", ""),
    ];
    let mut encoder = Encoder::new(EncoderSettings {
        relabel: Rules::new(rules).unwrap(),
        lanes: 2,
        ..EncoderSettings::default()
    });
    let dropped = metrics[0].items();
    for _ in 0..2 {
        let (lanes, outcome) = encoder.encode(&[&request.body]);
        assert_eq!(outcome.dropped.get(Reason::Relabel), dropped);
        assert_eq!(outcome.points + dropped, u64::from(request.items));
        let mut series = 0;
        for body in plain_bodies(&lanes) {
            assert_strict(&body, true);
            each_series(Version::V1, &body, |read| {
                if read.label(METRIC_NAME) != "target_info" {
                    assert!(read.label("Zid").starts_with('x') && read.label("sluice_id").is_empty());
                    assert_ne!(read.label(METRIC_NAME), unwanted);
                    series += 1;
                }
                Ok(())
            })
            .unwrap();
        }
        assert_eq!(series, outcome.points);
    }
}

fn metric_name_of(metric: &Metric<'_>) -> String {
    let mut families = Families::new();
    let (family, _) = families.of(&Mapping::default(), metric, &metric.data().unwrap());
    families.get(family.unwrap()).unwrap().name.to_string()
}
