//! What becomes of whole requests, beside what the corpus of `golden.rs` says.

use std::collections::HashMap;

use sluice_loadgen::{Generator, RemoteWrite, Signal, Spec, for_each_sample};
use sluice_wire::Fields;

use super::golden::{mapping, requests};
use super::*;
use crate::body::{Body, Format, Lanes, Written};
use crate::decode::{Version, each_series};
use crate::encoder::{Encoder, EncoderSettings};
use crate::labels::METRIC_NAME;
use crate::names::Strategy;
use crate::rewrite::{converted, cut_after};

mod tails;

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
            Value::Absent => panic!("OTLP has no exemplars without points"),
        };
        self.0.push((text, bits, sample.timestamp_ms));
    }
}

impl Kept {
    /// Takes in a body; the labels of its series.
    fn read(&mut self, body: &Body) -> Vec<String> {
        let mut all = Vec::new();
        each_series(body.format.version(), &body.plain().unwrap(), |series| {
            let mut text = String::new();
            for (name, value) in &series.labels {
                text.push_str(&format!("{name}\x01{value}\x02"));
            }
            for sample in &series.samples {
                self.0
                    .push((text.clone(), sample.value.to_bits(), sample.timestamp_ms));
            }
            for histogram in &series.histograms {
                // Its times are appended to what the mapping made.
                let is_time = |field: &sluice_wire::Field<'_>| matches!(field.number, 15 | 17);
                let own: usize = Fields::of(histogram)
                    .take_while(|field| !is_time(field))
                    .map(|field| field.framed.len())
                    .sum();
                let time = Fields::of(histogram).find(|field| field.number == 15);
                self.0.push((
                    text.clone(),
                    crate::hash::hash(&histogram[..own], 0),
                    time.map_or(0, |field| field.varint().unwrap() as i64),
                ));
            }
            all.push(text);
            Ok(())
        })
        .unwrap();
        all
    }
}

pub(crate) fn plain_bodies(lanes: &Lanes) -> Vec<Vec<u8>> {
    let plain = |body: &Body| body.plain().unwrap().to_vec();
    lanes.iter().flatten().map(plain).collect()
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
                let value = std::str::from_utf8(value).unwrap();
                let fits = |c: char| fits(c) || c == ':';
                let is_metric_name =
                    value.chars().all(fits) && !value.starts_with(|c: char| c.is_ascii_digit());
                assert!(name != METRIC_NAME || is_metric_name, "{value}");
            }
            last = name.to_owned();
        }
    }
}

/// Holds the table of a 2.0 body to what the specification says of it, and every series to sorted, unique, non-empty
/// labels, one kind of samples, and metadata.
fn assert_strict_v2(body: &[u8]) {
    let symbols: Vec<&[u8]> = Fields::of(body)
        .take_while(|field| field.number == 4)
        .map(|field| field.value)
        .collect();
    assert_eq!(symbols[0], b"");
    let distinct: std::collections::HashSet<_> = symbols.iter().collect();
    assert_eq!(distinct.len(), symbols.len());
    for series in Fields::of(body).skip(symbols.len()) {
        assert_eq!(series.number, 5);
        let refs = Fields::of(series.value).find(|field| field.number == 1).unwrap();
        let mut numbers = Vec::new();
        varints(&refs, &mut numbers);
        let (pairs, odd) = numbers.as_chunks::<2>();
        assert!(odd.is_empty() && !pairs.is_empty());
        let mut last: &[u8] = b"";
        for [name, value] in pairs {
            let name = symbols[*name as usize];
            assert!(name > last && !symbols[*value as usize].is_empty());
            last = name;
        }
        let has = |number| Fields::of(series.value).any(|field| field.number == number);
        assert!(has(2) != has(3) && has(5));
    }
}

/// Scenario: all requests of the corpus, in all strategies and formats, written in three lanes, whose bodies end at
/// 2,000 bytes; one encoder for all of them with the same options, so that it comes upon what it has made before.
/// Guarantees: the bodies hold exactly the series that the mapping makes; all of one series are in one lane, in order;
/// labels are sorted, unique and not empty; the counts are right; a decoder that is not ours takes every body; and halves
/// of a body, and the body in 1.0, hold the same.
#[test]
fn bodies_hold_what_the_mapping_makes() {
    for format in [Format::V1, Format::V1Zstd, Format::V2] {
        for strategy in Strategy::ALL {
            hold_what_the_mapping_makes(format, strategy);
        }
    }
}

fn hold_what_the_mapping_makes(format: Format, strategy: Strategy) {
    let mut encoders: Vec<Encoder> = (0..4)
        .map(|index| {
            Encoder::new(EncoderSettings {
                format,
                mapping: mapping(index, strategy),
                lanes: 3,
                max_body_bytes: 2000,
                metadata: true,
                ..EncoderSettings::default()
            })
        })
        .collect();
    for (index, request) in requests().iter().enumerate() {
        let mut kept = Kept::default();
        let fresh = Transcoder::new(mapping(index, strategy)).run(&[request], &mut kept);
        let (lanes, outcome) = encoders[index % 4].encode(&[request]);
        assert_eq!((outcome.points, outcome.dropped), (fresh.points, fresh.dropped));
        let (mut read, mut again) = (Kept::default(), Kept::default());
        let mut lane_of: HashMap<String, usize> = HashMap::new();
        for (lane, bodies) in lanes.iter().enumerate() {
            for body in bodies {
                let plain = body.plain().unwrap();
                assert!(
                    body.written.series == 1 || plain.len() < 2000 + 4000,
                    "{}",
                    plain.len()
                );
                let strangers = match format {
                    Format::V2 => {
                        assert_strict_v2(&plain);
                        RemoteWrite::V2
                    }
                    _ => {
                        assert_strict(&plain, strategy.escapes());
                        RemoteWrite::V1
                    }
                };
                let seen = for_each_sample(strangers, &plain, |_| {}).unwrap();
                let Written {
                    samples,
                    histograms,
                    exemplars,
                    ..
                } = body.written;
                assert_eq!(
                    (seen.samples, seen.histograms, seen.exemplars),
                    (samples, histograms, exemplars)
                );
                for text in read.read(body) {
                    assert_eq!(*lane_of.entry(text).or_insert(lane), lane);
                }
                let parts = match cut_after(body, |series| series / 2) {
                    Some((first, second)) => vec![first, second],
                    None => vec![body.clone()],
                };
                for part in parts {
                    again.read(&converted(&part, Format::V1).unwrap());
                }
            }
        }
        // Lanes apart, the order is that of the request: a stable sort by labels brings both together.
        for kept in [&mut kept, &mut read, &mut again] {
            kept.0.sort_by(|a, b| a.0.cmp(&b.0));
        }
        assert_eq!(kept.0, read.0, "request {index}");
        assert_eq!(kept.0, again.0, "request {index}");
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
    let found = families.of(&Mapping::default(), metric).unwrap();
    families.get(found.family.unwrap()).unwrap().name.to_string()
}

/// Scenario: a counter with a start, an exemplar, a unit and a help text, and native histograms, in 2.0.
/// Guarantees: what 1.0 has no place for is there: the start with each sample, type, help and unit with each series.
#[test]
fn what_only_the_second_version_has() {
    let mut generator = Generator::new(Spec::mixed(Signal::Metrics));
    let request = generator.next_request();
    let mut encoder = Encoder::new(EncoderSettings {
        format: Format::V2,
        ..EncoderSettings::default()
    });
    struct Starts(
        HashMap<(String, i64), i64>,
        HashMap<String, (u64, String, String)>,
    );
    impl Sink for Starts {
        fn sample(&mut self, labels: &SeriesLabels<'_>, sample: &Sample<'_>, about: &About<'_>) {
            let mut text = String::new();
            labels.each(|name, value| text.push_str(&format!("{name}={value},")));
            self.0
                .insert((text.clone(), sample.timestamp_ms), sample.start_ms);
            let (help, unit) = (about.help.to_owned(), about.unit.to_owned());
            self.1.insert(text, (about.kind as u64, help, unit));
        }
    }
    let mut want = Starts(HashMap::new(), HashMap::new());
    Transcoder::new(Mapping::default()).run(&[&request.body], &mut want);
    let (lanes, _) = encoder.encode(&[&request.body]);
    let (mut starts, mut all) = (0, 0);
    for plain in plain_bodies(&lanes) {
        each_series(Version::V2, &plain, |series| {
            let text: String = (series.labels.iter())
                .map(|(name, value)| format!("{name}={value},"))
                .collect();
            let (kind, help, unit) = &want.1[&text];
            assert_eq!((series.kind, series.help, series.unit), (*kind, &**help, &**unit));
            let varint = |message: &[u8], number| {
                let field = Fields::of(message).find(|field| field.number == number);
                field.map_or(0, |field| field.varint().unwrap() as i64)
            };
            let samples = series
                .samples
                .iter()
                .map(|sample| (sample.timestamp_ms, sample.start_ms));
            let histograms = series
                .histograms
                .iter()
                .map(|histogram| (varint(histogram, 15), varint(histogram, 17)));
            for (time, start) in samples.chain(histograms) {
                assert_eq!(want.0[&(text.clone(), time)], start);
                starts += u64::from(start > 0);
                all += 1;
            }
            Ok(())
        })
        .unwrap();
    }
    assert!(starts > 0 && starts <= all, "{starts} of {all}");
}

/// Scenario: a counter and a histogram of two series each as deltas, in four requests; a point comes twice; a third
/// series comes when there is room for two counters' and two histograms' totals only.
/// Guarantees: each series is the running total since its first point; what comes twice is counted and not added; what
/// there is no room for is counted; points are written or counted.
#[test]
fn deltas_add_up() {
    use std::time::{Duration, SystemTime};

    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
    use opentelemetry_proto::tonic::metrics::v1::{
        Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, metric,
        number_data_point,
    };
    use prost::Message as _;
    use sluice_journal::testing::ManualClock;
    let request = |series: &[&str], second: u64| {
        let attributes = |series: &str| {
            vec![KeyValue {
                key: "s".to_owned(),
                value: Some(AnyValue {
                    value: Some(any_value::Value::StringValue(series.to_owned())),
                }),
                ..Default::default()
            }]
        };
        let (start_time_unix_nano, time_unix_nano) = ((second - 1) * 1_000_000_000, second * 1_000_000_000);
        let numbers = series.iter().map(|series| NumberDataPoint {
            attributes: attributes(series),
            start_time_unix_nano,
            time_unix_nano,
            value: Some(number_data_point::Value::AsInt(second as i64)),
            ..Default::default()
        });
        let histograms = series.iter().map(|series| HistogramDataPoint {
            attributes: attributes(series),
            start_time_unix_nano,
            time_unix_nano,
            count: 3,
            sum: Some(2.5),
            bucket_counts: vec![1, 2],
            explicit_bounds: vec![1.0],
            ..Default::default()
        });
        let metric = |name: &str, data| Metric {
            name: name.to_owned(),
            data: Some(data),
            ..Default::default()
        };
        let metrics = vec![
            metric(
                "c",
                metric::Data::Sum(Sum {
                    data_points: numbers.collect(),
                    aggregation_temporality: DELTA,
                    is_monotonic: true,
                }),
            ),
            metric(
                "h",
                metric::Data::Histogram(Histogram {
                    data_points: histograms.collect(),
                    aggregation_temporality: DELTA,
                }),
            ),
        ];
        ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                scope_metrics: vec![ScopeMetrics {
                    metrics,
                    ..Default::default()
                }],
                ..Default::default()
            }],
        }
        .encode_to_vec()
    };
    let mut encoder = Encoder::new(EncoderSettings {
        format: Format::V2,
        mapping: Mapping {
            delta_to_cumulative: true,
            ..Mapping::default()
        },
        // Of a histogram: two buckets, the count, the sum.
        max_delta_series: 2 + 2 * 4,
        ..EncoderSettings::default()
    });
    let clock = ManualClock::at(SystemTime::UNIX_EPOCH);
    encoder.set_clock(clock.clone());
    let mut read = |request: &[u8]| {
        let (lanes, outcome) = encoder.encode(&[request]);
        let mut series = HashMap::new();
        for plain in plain_bodies(&lanes) {
            each_series(Version::V2, &plain, |read| {
                let text = format!(
                    "{}/{}/{}",
                    read.label("__name__"),
                    read.label("s"),
                    read.label("le")
                );
                series.insert(text, (read.samples[0].value, read.samples[0].start_ms));
                Ok(())
            })
            .unwrap();
        }
        (series, outcome)
    };
    let (series, outcome) = read(&request(&["a", "b"], 1));
    assert_eq!((series["c_total/a/"], outcome.points), ((1.0, 0), 4));
    let (series, _) = read(&request(&["a"], 2));
    assert_eq!(series["c_total/a/"], (3.0, 0));
    assert_eq!(series["h_bucket/a/+Inf"], (6.0, 0));
    let (series, outcome) = read(&request(&["a", "b"], 2));
    assert_eq!(series["c_total/b/"], (3.0, 0));
    assert_eq!((series["h_bucket/b/1"].0, series["h_sum/b/"].0), (2.0, 5.0));
    assert!(!series.contains_key("c_total/a/"));
    assert_eq!((outcome.points, outcome.dropped.get(Reason::DeltaOrder)), (2, 2));
    let (series, outcome) = read(&request(&["new"], 3));
    assert!(series.is_empty());
    assert_eq!((outcome.points, outcome.dropped.get(Reason::DeltaRoom)), (0, 2));
    // The others have been silent for long enough.
    for _ in 0..6 {
        clock.advance(Duration::from_secs(60));
        read(&request(&[], 3));
    }
    let (series, outcome) = read(&request(&["new"], 400));
    assert_eq!((series["c_total/new/"], outcome.points), ((400.0, 399_000), 2));
}

/// Scenario: histograms with explicit bounds, as ones with custom buckets: with empty buckets between others, with none but
/// the last, with a bound that is infinite, without a bound, and one without a value.
/// Guarantees: one series under the metric's name, labels but no `le`; and the way back makes the same histograms of them.
#[test]
fn bounds_become_custom_buckets() {
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
    use opentelemetry_proto::tonic::metrics::v1::{
        Histogram, HistogramDataPoint, Metric, ResourceMetrics, ScopeMetrics, metric,
    };
    use prost::Message as _;
    let point = |counts: &[u64], bounds: &[f64], flags| HistogramDataPoint {
        time_unix_nano: 2_000_000_000,
        start_time_unix_nano: 1_000_000_000,
        count: counts.iter().sum(),
        sum: Some(if flags == 0 { 7.5 } else { 0.0 }),
        bucket_counts: counts.to_vec(),
        explicit_bounds: bounds.to_vec(),
        flags,
        ..Default::default()
    };
    let points = vec![
        point(&[1, 0, 0, 0, 0, 2, 3], &[0.5, 1.0, 2.0, 3.0, 4.0, 5.0], 0),
        point(&[0, 0, 9], &[1.0, 2.0], 0),
        point(&[4], &[], 0),
        point(&[1, 2], &[1.0], 1),
    ];
    let request = |data_points| ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            scope_metrics: vec![ScopeMetrics {
                metrics: vec![Metric {
                    name: "h".to_owned(),
                    data: Some(metric::Data::Histogram(Histogram {
                        data_points,
                        aggregation_temporality: CUMULATIVE,
                    })),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        }],
    };
    let mut encoder = Encoder::new(EncoderSettings {
        format: Format::V2,
        mapping: Mapping {
            custom_buckets: true,
            ..Mapping::default()
        },
        ..EncoderSettings::default()
    });
    let (lanes, outcome) = encoder.encode(&[&request(points.clone()).encode_to_vec()]);
    assert_eq!(outcome.points, 4);
    let body = &lanes[0][0];
    assert_eq!((body.written.series, body.written.histograms), (4, 4));
    let (back, _) = crate::to_otlp::to_otlp(Version::V2, &body.plain().unwrap()).unwrap();
    let back = ExportMetricsServiceRequest::decode(&back[..]).unwrap();
    let metric = &back.resource_metrics[0].scope_metrics[0].metrics[0];
    assert_eq!(metric.name, "h");
    let Some(metric::Data::Histogram(histogram)) = &metric.data else {
        panic!("{metric:?}")
    };
    assert_eq!(histogram.data_points[..3], points[..3]);
    assert_eq!(histogram.data_points[3].flags, 1);
    // 1.0 has no place for them.
    assert_eq!(converted(body, Format::V1).unwrap().written, Written::default());
}

/// Scenario: a resource, a scope and a data point with 100,000 attributes each; the point's come backwards, with an empty one
/// and two whose keys become one name; in both versions.
/// Guarantees: each is a label of the series, the two of one name joined; with work for each that depends on how many there are
/// this would take minutes.
#[test]
fn very_many_attributes_are_written_in_linear_time() {
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
    use opentelemetry_proto::tonic::metrics::v1::{
        Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, metric, number_data_point,
    };
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use prost::Message as _;

    use crate::mapping::Promote;
    const MANY: usize = 100_000;
    let attribute = |key: String, value: &str| KeyValue {
        key,
        value: Some(AnyValue {
            value: Some(any_value::Value::StringValue(value.to_owned())),
        }),
        ..Default::default()
    };
    let attributes =
        |kind: &str| -> Vec<KeyValue> { (0..MANY).map(|n| attribute(format!("{kind}{n}"), "v")).collect() };
    let mut of_point = attributes("p");
    of_point.reverse();
    of_point.extend([
        attribute("p_two".to_owned(), "b"),
        attribute("p.two".to_owned(), "a"),
        attribute("p.empty".to_owned(), ""),
    ]);
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: attributes("r"),
                ..Default::default()
            }),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(InstrumentationScope {
                    name: "s".to_owned(),
                    attributes: attributes("s"),
                    ..Default::default()
                }),
                metrics: vec![Metric {
                    name: "m".to_owned(),
                    data: Some(metric::Data::Gauge(Gauge {
                        data_points: vec![NumberDataPoint {
                            attributes: of_point,
                            time_unix_nano: 1_000_000_000,
                            value: Some(number_data_point::Value::AsInt(1)),
                            ..Default::default()
                        }],
                    })),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        }],
    }
    .encode_to_vec();
    for format in [Format::V1, Format::V2] {
        let mut encoder = Encoder::new(EncoderSettings {
            format,
            mapping: Mapping {
                promote: Promote::AllBut(Vec::new()),
                target_info: false,
                ..Mapping::default()
            },
            max_body_bytes: usize::MAX,
            ..EncoderSettings::default()
        });
        let (lanes, outcome) = encoder.encode(&[&request]);
        assert_eq!((outcome.points, outcome.label_collisions), (1, 1));
        each_series(format.version(), &plain_bodies(&lanes)[0], |series| {
            // And the metric's name, the scope's, and what two became.
            assert_eq!(series.labels.len(), 3 * MANY + 3);
            assert_eq!(series.label("p_two"), "a;b");
            assert_eq!(series.label("otel_scope_s7"), "v");
            Ok(())
        })
        .unwrap();
    }
}
