use std::collections::BTreeMap;

use sluice_payload::WireFormat;
use sluice_relabel::{Action, RuleConfig, Rules};

use crate::body::{Body, Format, Lanes};
use crate::decode::{COUNTER, Version, each_series};
use crate::dropped::Reason;
use crate::encoder::{Encoder, EncoderSettings};
use crate::mapping::Mapping;
use crate::protobuf::{put_delimited, put_double, put_uint, zigzag};
use crate::rewrite::CUSTOM_BUCKETS;
use crate::transcode::{Outcome, STALE_NAN};
use crate::v2;

use super::without_times;

mod limits;

type Labels = Vec<(String, String)>;

/// A sample by its bits, or a histogram by its message without times; when, and since when.
#[derive(Debug, Clone, PartialEq)]
struct Item {
    value: Result<u64, Vec<u8>>,
    timestamp_ms: i64,
    start_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Default)]
struct Series {
    labels: Labels,
    items: Vec<Item>,
    /// Labels, value and time.
    exemplars: Vec<(Labels, u64, i64)>,
    /// Type, help, unit: 2.0 alone has them.
    about: (u64, String, String),
}

/// Numbers that look random and are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }

    fn series(&mut self) -> Series {
        let mut labels = vec![
            ("__name__".to_owned(), format!("metric_{}", self.below(8))),
            ("instance".to_owned(), format!("i-{}", self.below(3))),
            ("job".to_owned(), "shop/cart".to_owned()),
        ];
        // Often none, so that there are several of the same labels.
        let most = 12 * self.below(2);
        for n in 0..self.below(most + 1) {
            let value = "ü".repeat(self.below(9) as usize);
            labels.push((format!("l.{n}"), format!("{}{value}", self.below(5))));
        }
        labels.sort();
        let native = self.below(4) == 0;
        let items = (0..self.below(3)).map(|_| self.item(native)).collect();
        let exemplar = |random: &mut Self| {
            let labels = vec![("trace_id".to_owned(), format!("{:032x}", random.below(99)))];
            (labels, 1.5f64.to_bits(), 7 + random.below(9) as i64)
        };
        let exemplars = (0..self.below(4) / 2).map(|_| exemplar(self)).collect();
        Series {
            labels,
            items,
            exemplars,
            about: (
                self.below(8),
                format!("help {}", self.below(4)),
                "s".repeat(self.below(2) as usize),
            ),
        }
    }

    fn item(&mut self, native: bool) -> Item {
        let value = match native {
            true => Err(self.histogram()),
            false => Ok(match self.below(8) {
                0 => STALE_NAN,
                1 => f64::NEG_INFINITY.to_bits(),
                bits => (bits as f64 / 3.0).to_bits(),
            }),
        };
        Item {
            value,
            timestamp_ms: self.below(5) as i64 - 2,
            start_ms: self.below(3) as i64,
        }
    }

    /// Of whole counts, of floats, or with custom buckets.
    fn histogram(&mut self) -> Vec<u8> {
        let mut message = Vec::new();
        match self.below(3) {
            0 => {
                put_double(&mut message, 2, 2.5);
                put_double(&mut message, 3, 0.5);
                put_delimited(&mut message, 11, &[2 << 3, 1]);
                put_delimited(&mut message, 13, &2.5f64.to_bits().to_le_bytes());
            }
            kind => {
                put_uint(&mut message, 1, 3);
                put_double(&mut message, 3, 0.5);
                if kind == 2 {
                    put_uint(&mut message, 4, zigzag(CUSTOM_BUCKETS));
                    put_delimited(&mut message, 16, &1f64.to_bits().to_le_bytes());
                }
                put_delimited(&mut message, 11, &[2 << 3, 2]);
                put_delimited(&mut message, 12, &[4, 1]);
            }
        }
        message
    }
}

fn first(all: &[Series]) -> Vec<u8> {
    let mut body = Vec::new();
    for series in all {
        let mut message = Vec::new();
        put_labels(&mut message, &series.labels);
        for item in &series.items {
            let (number, value) = match &item.value {
                Ok(bits) => {
                    let mut sample = Vec::new();
                    put_double(&mut sample, 1, f64::from_bits(*bits));
                    put_uint(&mut sample, 2, item.timestamp_ms as u64);
                    (2, sample)
                }
                Err(histogram) => {
                    let mut histogram = histogram.clone();
                    put_uint(&mut histogram, 15, item.timestamp_ms as u64);
                    (4, histogram)
                }
            };
            put_delimited(&mut message, number, &value);
        }
        for (labels, value, timestamp_ms) in &series.exemplars {
            let mut exemplar = Vec::new();
            put_labels(&mut exemplar, labels);
            put_double(&mut exemplar, 2, f64::from_bits(*value));
            put_uint(&mut exemplar, 3, *timestamp_ms as u64);
            put_delimited(&mut message, 3, &exemplar);
        }
        put_delimited(&mut body, 1, &message);
    }
    body
}

fn put_labels(out: &mut Vec<u8>, labels: &Labels) {
    for (name, value) in labels {
        let mut label = Vec::new();
        put_delimited(&mut label, 1, name.as_bytes());
        put_delimited(&mut label, 2, value.as_bytes());
        put_delimited(out, 1, &label);
    }
}

fn second(all: &[Series]) -> Vec<u8> {
    let mut symbols = v2::Symbols::default();
    let mut body = Vec::new();
    for series in all {
        let mut refs = Vec::new();
        for text in series.labels.iter().flat_map(|(name, value)| [name, value]) {
            crate::protobuf::put_varint(&mut refs, u64::from(symbols.of(text.as_bytes())));
        }
        let mut message = Vec::new();
        put_delimited(&mut message, v2::LABELS_REFS, &refs);
        for item in &series.items {
            match &item.value {
                Ok(bits) => {
                    let value = f64::from_bits(*bits);
                    v2::put_sample(&mut message, value, item.timestamp_ms, item.start_ms);
                }
                Err(histogram) => {
                    let mut histogram = histogram.clone();
                    put_uint(&mut histogram, 17, item.start_ms as u64);
                    put_uint(&mut histogram, 15, item.timestamp_ms as u64);
                    put_delimited(&mut message, v2::HISTOGRAMS, &histogram);
                }
            }
        }
        for (labels, value, timestamp_ms) in &series.exemplars {
            let pairs = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let value = f64::from_bits(*value);
            v2::put_exemplar(&mut message, &mut symbols, pairs, value, *timestamp_ms);
        }
        let (kind, help, unit) = &series.about;
        let (help, unit) = (symbols.of(help.as_bytes()), symbols.of(unit.as_bytes()));
        v2::put_metadata(&mut message, *kind, help, unit);
        put_delimited(&mut body, 5, &message);
    }
    [symbols.encoded(), &body].concat()
}

fn request(version: Version, all: &[Series]) -> (WireFormat, Vec<u8>) {
    match version {
        Version::V1 => (WireFormat::RemoteWrite1, first(all)),
        Version::V2 => (WireFormat::RemoteWrite2, second(all)),
    }
}

/// The series of a body, in order.
fn read(body: &Body) -> Vec<Series> {
    let plain = body.plain().unwrap();
    let mut all = Vec::new();
    let owned = |labels: &[(&str, &str)]| -> Labels {
        labels
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    };
    each_series(body.format.version(), &plain, |series| {
        let samples = series.samples.iter().map(|sample| Item {
            value: Ok(sample.value.to_bits()),
            timestamp_ms: sample.timestamp_ms,
            start_ms: sample.start_ms,
        });
        let histograms = series.histograms.iter().map(|message| {
            let mut histogram = Vec::new();
            let times = without_times(message, &mut histogram);
            Item {
                value: Err(histogram),
                timestamp_ms: times.timestamp_ms,
                start_ms: times.start_ms,
            }
        });
        let exemplars = series.exemplars.iter();
        let exemplar =
            |one: &crate::decode::Exemplar<'_>| (owned(&one.labels), one.value.to_bits(), one.timestamp_ms);
        assert!(
            series.labels.is_sorted_by(|a, b| a.0 < b.0),
            "{:?}",
            series.labels
        );
        all.push(Series {
            labels: owned(&series.labels),
            items: samples.chain(histograms).collect(),
            exemplars: exemplars.map(exemplar).collect(),
            about: (series.kind, series.help.to_owned(), series.unit.to_owned()),
        });
        Ok(())
    })
    .unwrap();
    all
}

/// What each series has, in order; each is in one lane.
fn by_labels(series: impl IntoIterator<Item = Series>) -> BTreeMap<Labels, Vec<Series>> {
    let mut found: BTreeMap<Labels, Vec<Series>> = BTreeMap::new();
    for one in series {
        found.entry(one.labels.clone()).or_default().push(one);
    }
    found
}

fn found(lanes: &Lanes) -> BTreeMap<Labels, Vec<Series>> {
    let mut all = BTreeMap::new();
    for lane in lanes {
        for (labels, series) in by_labels(lane.iter().flat_map(read)) {
            assert!(all.insert(labels, series).is_none(), "a series in two lanes");
        }
    }
    all
}

/// Puts exemplars that come alone where a destination of 2.0 gets them: with the first series of the same labels that has an item. How many
/// there is none for.
fn put_together(series: &[Series]) -> (Vec<Series>, u64) {
    let mut together = series.to_vec();
    let mut dropped = 0;
    for alone in series.iter().filter(|one| one.items.is_empty()) {
        let found = together
            .iter_mut()
            .find(|one| one.labels == alone.labels && !one.items.is_empty());
        match found {
            Some(found) => found.exemplars.extend(alone.exemplars.clone()),
            None => dropped += alone.exemplars.len() as u64,
        }
    }
    together.retain(|one| !one.items.is_empty());
    (together, dropped)
}

/// What a destination that reads `out` is to be sent of `series`: a series for each item, with the exemplars at the first.
fn expected(series: &Series, from: Version, out: Version) -> (Vec<Series>, u64) {
    let mut series = series.clone();
    series.labels.retain(|(_, value)| !value.is_empty());
    series.labels.sort();
    let times = from == Version::V2 && out == Version::V2;
    if !times {
        series.items.iter_mut().for_each(|item| item.start_ms = 0);
        series.about = Default::default();
    }
    let all = series.items.len();
    let is_custom = |item: &Item| {
        let mut without = Vec::new();
        let histogram = item.value.as_ref().err();
        histogram.is_some_and(|one| without_times(one, &mut without).schema == CUSTOM_BUCKETS)
    };
    let changes = from == Version::V2 && out == Version::V1;
    series.items.retain(|item| !(changes && is_custom(item)));
    let left_out = (all - series.items.len()) as u64;
    let mut items = std::mem::take(&mut series.items)
        .into_iter()
        .map(|item| vec![item])
        .collect::<Vec<_>>();
    if items.is_empty() && !series.exemplars.is_empty() {
        items.push(Vec::new());
    }
    let one = |(index, items): (usize, Vec<Item>)| Series {
        items,
        exemplars: if index == 0 {
            series.exemplars.clone()
        } else {
            Vec::new()
        },
        ..series.clone()
    };
    (items.into_iter().enumerate().map(one).collect(), left_out)
}

fn encoder(format: Format, lanes: usize) -> Encoder {
    Encoder::new(EncoderSettings {
        format,
        lanes,
        ..EncoderSettings::default()
    })
}

fn encode(encoder: &mut Encoder, parts: &[(WireFormat, Vec<u8>)]) -> (Lanes, Outcome) {
    let parts: Vec<_> = parts.iter().map(|(format, body)| (*format, &body[..])).collect();
    encoder.encode_all(&parts)
}

/// Scenario: two hundred batches of requests of either version, of series with samples, stale markers, native histograms of every sort,
/// exemplars with samples and alone, start times and metadata; to destinations of every format, over one lane and several.
/// Guarantees: what goes out is what came in: labels, bits, times, exemplars, in order; less what the destination's version has no
/// place for, and of that histograms and exemplars are counted. A series is in one lane. To a destination of 2.0 no series goes without a sample or a
/// histogram: exemplars that come alone go with one of the same labels, wherever in the request that is.
#[test]
fn series_go_out_as_they_came() {
    for format in [Format::V1, Format::V1Zstd, Format::V2] {
        for lanes in [1, 5] {
            let mut random = Random(lanes as u64);
            let mut encoder = encoder(format, lanes);
            for _ in 0..35 {
                let (mut wanted, mut left_out, mut items, mut dropped) = (Vec::new(), 0, 0, 0);
                let mut parts = Vec::new();
                for _ in 0..3 {
                    let series: Vec<_> = (0..random.below(40)).map(|_| random.series()).collect();
                    let version = [Version::V1, Version::V2][random.below(2) as usize];
                    parts.push(request(version, &series));
                    let series = match format {
                        Format::V2 => {
                            let (series, more) = put_together(&series);
                            dropped += more;
                            series
                        }
                        _ => series,
                    };
                    for one in &series {
                        items += one.items.len() as u64;
                        let (series, more) = expected(one, version, format.version());
                        wanted.extend(series);
                        left_out += more;
                    }
                }
                let (bodies, outcome) = encode(&mut encoder, &parts);
                assert_eq!(outcome.points + left_out, items);
                assert_eq!(outcome.dropped.get(Reason::CustomBuckets), left_out);
                assert_eq!(outcome.dropped.total(), left_out);
                assert_eq!(outcome.dropped_exemplars, dropped);
                let got = found(&bodies);
                let wanted = by_labels(wanted);
                assert_eq!(got.len(), wanted.len());
                for (labels, series) in wanted {
                    assert_eq!(got[&labels], series, "{format:?}");
                }
                let written: u64 = bodies.iter().flatten().map(|body| body.written.points()).sum();
                assert_eq!(written, outcome.points);
            }
        }
    }
}

fn one(labels: &[(&str, &str)], value: f64) -> Series {
    Series {
        labels: labels
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        items: vec![Item {
            value: Ok(value.to_bits()),
            timestamp_ms: 1,
            start_ms: 0,
        }],
        ..Series::default()
    }
}

/// Scenario: labels out of order, without values, of a megabyte, and a thousand of them; twice, so that they are known the second time.
/// Guarantees: they go out sorted, those without a value left out, and otherwise as they came.
#[test]
fn labels_nobody_should_send() {
    let giant = "x".repeat(1 << 20);
    let names: Vec<String> = (0..1000).map(|n| format!("n{:03}", 999 - n)).collect();
    let many: Vec<(&str, &str)> = names
        .iter()
        .map(|name| (name.as_str(), "v"))
        .chain([("__name__", "m")])
        .collect();
    let series = [
        one(&[("z", "1"), ("__name__", "a"), ("b", "2")], 1.0),
        one(&[("__name__", "a"), ("b", ""), ("c", "3")], 2.0),
        one(&[("__name__", "a"), ("g", &giant)], 3.0),
        one(&many, 4.0),
    ];
    for version in [Version::V1, Version::V2] {
        for format in [Format::V1, Format::V2] {
            let mut encoder = encoder(format, 3);
            for _ in 0..2 {
                let (lanes, outcome) = encode(&mut encoder, &[request(version, &series)]);
                assert_eq!(outcome.points, 4);
                let expected = series
                    .iter()
                    .flat_map(|one| expected(one, version, format.version()).0);
                assert_eq!(found(&lanes), by_labels(expected), "{version:?} {format:?}");
            }
        }
    }
}

/// Scenario: external labels, of which a series has one already; and rules that rename a label, drop a series, and leave nothing of another.
/// Guarantees: a series keeps its own label; rules are applied to what came straight as to anything else, and what they drop is counted:
/// samples, and not exemplars that come alone.
#[test]
fn what_the_exporter_is_configured_to_do_is_done() {
    let rules: Vec<RuleConfig> = vec![
        RuleConfig {
            source_labels: vec!["__name__".to_owned()],
            regex: Some("bad.*".to_owned()),
            action: Action::Drop,
            ..Default::default()
        },
        RuleConfig {
            regex: Some("secret".to_owned()),
            action: Action::LabelDrop,
            ..Default::default()
        },
    ];
    let mut encoder = Encoder::new(EncoderSettings {
        mapping: Mapping {
            external_labels: vec![
                ("cluster".to_owned(), "c1".to_owned()),
                ("job".to_owned(), "x".to_owned()),
            ],
            ..Mapping::default()
        },
        relabel: Rules::new(rules).unwrap(),
        ..EncoderSettings::default()
    });
    let mut alone = one(&[("__name__", "bad_alone")], 0.0);
    alone.items.clear();
    alone.exemplars.push((Vec::new(), 0, 1));
    let mut kept_alone = one(&[("__name__", "good"), ("job", "own")], 0.0);
    kept_alone.items.clear();
    kept_alone.exemplars.push((Vec::new(), 0, 1));
    let series = [
        one(&[("__name__", "good"), ("job", "own"), ("secret", "s")], 1.0),
        alone,
        kept_alone,
        one(&[("__name__", "bad")], 2.0),
    ];
    let (lanes, outcome) = encode(&mut encoder, &[request(Version::V1, &series)]);
    assert_eq!((outcome.points, outcome.dropped.get(Reason::Relabel)), (1, 1));
    let found = found(&lanes);
    let labels: Vec<_> = found.keys().collect();
    let wanted = one(&[("__name__", "good"), ("cluster", "c1"), ("job", "own")], 0.0).labels;
    assert_eq!(labels, [&wanted]);
    assert_eq!(found[&wanted].len(), 2);
}

/// Scenario: samples of the same series, in turn as OTLP, as 1.0 and as 2.0, in one batch, over eight lanes.
/// Guarantees: they are in one lane, in the order they came in, whatever they came as.
#[test]
fn formats_in_turn_keep_their_order() {
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
    use opentelemetry_proto::tonic::metrics::v1::{
        Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, metric, number_data_point,
    };
    use prost::Message;
    let otlp = |value: f64| {
        let attribute = |n: u32| KeyValue {
            key: "n".to_owned(),
            value: Some(AnyValue {
                value: Some(any_value::Value::StringValue(format!("value {n}"))),
            }),
            ..KeyValue::default()
        };
        let point = |n: u32| NumberDataPoint {
            attributes: vec![attribute(n)],
            time_unix_nano: 1_000_000,
            value: Some(number_data_point::Value::AsDouble(value)),
            ..NumberDataPoint::default()
        };
        let metric = |n: u32| Metric {
            name: format!("m{n}"),
            data: Some(metric::Data::Gauge(Gauge {
                data_points: vec![point(n)],
            })),
            ..Metric::default()
        };
        let request = ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                scope_metrics: vec![ScopeMetrics {
                    metrics: (0..50).map(metric).collect(),
                    ..ScopeMetrics::default()
                }],
                ..ResourceMetrics::default()
            }],
        };
        (WireFormat::Otlp, request.encode_to_vec())
    };
    let straight = |version, value: f64| {
        let series: Vec<_> = (0..50)
            .map(|n| {
                one(
                    &[("__name__", &format!("m{n}")), ("n", &format!("value {n}"))],
                    value,
                )
            })
            .collect();
        request(version, &series)
    };
    let parts = [
        otlp(0.0),
        straight(Version::V1, 1.0),
        straight(Version::V2, 2.0),
        otlp(3.0),
        otlp(4.0),
        straight(Version::V1, 5.0),
    ];
    for format in [Format::V1, Format::V2] {
        let (lanes, outcome) = encode(&mut encoder(format, 8), &parts);
        assert_eq!(outcome.points, 300);
        let found = found(&lanes);
        assert_eq!(found.len(), 50);
        for series in found.values() {
            let values: Vec<_> = series
                .iter()
                .flat_map(|one| &one.items)
                .map(|item| item.value.clone())
                .collect();
            let wanted: Vec<_> = (0..6).map(|n| Ok(f64::from(n).to_bits())).collect();
            assert_eq!(values, wanted);
        }
    }
}

/// Scenario: requests of 2.0 for classic histograms and counters, and 1.0's metadata beside series, to a destination of 1.0 that wants metadata.
/// Guarantees: each family is told of once, by its name.
#[test]
fn metadata_goes_out_as_configured() {
    let with = |name: &str, kind: u64, help: &str| Series {
        about: (kind, help.to_owned(), String::new()),
        ..one(&[("__name__", name)], 1.0)
    };
    let series = [
        with("h_bucket", 3, "a histogram"),
        with("h_count", 3, "a histogram"),
        with("c_total", COUNTER, "a counter"),
    ];
    let mut of_1 = Vec::new();
    put_uint(&mut of_1, 1, 2);
    put_delimited(&mut of_1, 2, b"g");
    put_delimited(&mut of_1, 4, b"a gauge");
    let mut body = first(&[one(&[("__name__", "g")], 1.0)]);
    put_delimited(&mut body, 3, &of_1);
    let parts = [request(Version::V2, &series), (WireFormat::RemoteWrite1, body)];
    let mut encoder = Encoder::new(EncoderSettings {
        metadata: true,
        ..EncoderSettings::default()
    });
    let (lanes, _) = encode(&mut encoder, &parts);
    let plain = lanes[0][0].plain().unwrap();
    let told = sluice_wire::Fields::of(&plain).filter(|field| field.number == 3);
    let told: Vec<_> = told
        .map(|field| super::metadata(field.value).help.to_owned() + " " + super::metadata(field.value).family)
        .collect();
    assert_eq!(told, ["a histogram h", "a counter c_total", "a gauge g"]);
}

/// Scenario: requests with bytes changed, cut and repeated at random, as if nobody had checked them.
/// Guarantees: nothing panics, and what goes out can be read: sorted labels, each name once, none empty.
#[test]
fn what_was_not_checked_is_well_formed_all_the_same() {
    let mut random = Random(7);
    let mut encoders = [Format::V1, Format::V1Zstd, Format::V2].map(|format| encoder(format, 2));
    for round in 0..3000 {
        let series: Vec<_> = (0..1 + random.below(6)).map(|_| random.series()).collect();
        let version = [Version::V1, Version::V2][random.below(2) as usize];
        let (format, mut body) = request(version, &series);
        for _ in 0..1 + random.below(4) {
            let at = random.below(body.len() as u64) as usize;
            match random.below(3) {
                0 => body[at] = random.below(256) as u8,
                1 => body.truncate(at.max(1)),
                _ => body.extend_from_within(at..),
            }
        }
        let (lanes, _) = encode(&mut encoders[round % 3], &[(format, body)]);
        lanes.iter().flatten().for_each(|body| drop(read(body)));
    }
}
