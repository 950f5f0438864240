//! The mapping against Prometheus's own, on the corpus that `tests/golden/main.go` makes with it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use prost::Message as _;
use sluice_wire::Fields;

use super::{About, MetricType, Sample, Sink, Transcoder, Value};
use crate::labels::SeriesLabels;
use crate::mapping::{Mapping, Promote};
use crate::names::Strategy;
use crate::protobuf::unzigzag;

/// The schema of native histograms with custom buckets.
const CUSTOM_BUCKETS: i64 = -53;

/// Writes series as the Go program does.
#[derive(Default)]
struct Text(Vec<String>);

impl Sink for Text {
    fn sample(&mut self, labels: &SeriesLabels<'_>, sample: &Sample<'_>, about: &About<'_>) {
        let mut line = String::new();
        labels.each(|name, value| write!(line, "{name}\x01{value}\x02").unwrap());
        write!(line, " {} {} ", sample.start_ms, sample.timestamp_ms).unwrap();
        match sample.value {
            Value::Float(value) => write!(line, "{:016x}", value.to_bits()).unwrap(),
            Value::Native(message) => native(&mut line, message),
            Value::Absent => panic!("OTLP has no exemplars without points"),
        }
        for exemplar in sample.exemplars {
            line.push_str(" {");
            for (name, value) in &exemplar.labels {
                write!(line, "{name}\x01{value}\x02").unwrap();
            }
            write!(
                line,
                "}}{:016x}@{}",
                exemplar.value.to_bits(),
                exemplar.timestamp_ms
            )
            .unwrap();
        }
        let kind = match about.kind {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram => "histogram",
            MetricType::Summary => "summary",
            other => panic!("OTLP has no metrics of type {other:?}"),
        };
        write!(line, " {} {kind} {} {}", about.family, about.unit, about.help).unwrap();
        self.0.push(line);
    }
}

fn native(line: &mut String, message: &[u8]) {
    let all = |number| Fields::of(message).filter(move |field| field.number == number);
    let varint = |number| all(number).last().and_then(|field| field.varint()).unwrap_or(0);
    let bits = |number| all(number).last().and_then(|field| field.fixed64()).unwrap_or(0);
    write!(
        line,
        "h {} {:016x} {} {} {:016x}",
        unzigzag(varint(4)),
        bits(5),
        varint(6),
        varint(1),
        bits(3)
    )
    .unwrap();
    for (spans, deltas) in [(11, 12), (8, 9)] {
        line.push_str(" [");
        for span in all(spans).filter_map(|field| field.bytes()) {
            let part = |number| {
                let mut fields = Fields::of(span).filter(|field| field.number == number);
                fields.next().and_then(|field| field.varint()).unwrap_or(0)
            };
            write!(line, "{}:{},", unzigzag(part(1)), part(2)).unwrap();
        }
        line.push_str("][");
        for field in all(deltas) {
            let mut values = Vec::new();
            super::varints(&field, &mut values);
            for value in values {
                write!(line, "{},", unzigzag(value)).unwrap();
            }
        }
        line.push(']');
    }
    if unzigzag(varint(4)) == CUSTOM_BUCKETS {
        let bounds: Vec<u8> = all(16)
            .filter_map(|field| field.bytes())
            .flatten()
            .copied()
            .collect();
        line.push_str(" (");
        for bound in bounds.chunks_exact(8) {
            write!(line, "{:016x},", u64::from_le_bytes(bound.try_into().unwrap())).unwrap();
        }
        line.push(')');
    }
}

fn inflated(gzip: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(gzip).read_to_end(&mut out).unwrap();
    out
}

pub(super) fn requests() -> Vec<Vec<u8>> {
    let bytes = inflated(include_bytes!("../../tests/golden/requests.bin.gz"));
    // Each with its length before it.
    let mut rest = &bytes[..];
    let mut requests = Vec::new();
    while !rest.is_empty() {
        let (mut len, mut shift) = (0usize, 0);
        while let [byte, after @ ..] = rest {
            len |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            rest = after;
            if *byte < 0x80 {
                break;
            }
        }
        let (request, after) = rest.split_at(len);
        requests.push(request.to_vec());
        rest = after;
    }
    requests
}

/// The settings of a request, by its index: as in the Go program.
pub(super) fn mapping(index: usize, strategy: Strategy) -> Mapping {
    let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let base = Mapping {
        strategy,
        ..Mapping::default()
    };
    match index % 4 {
        1 => Mapping {
            promote: Promote::Listed(own(&["host.name", "k8s.pod.name", "job", "_x"])),
            keep_identifying_attributes: true,
            ..base
        },
        2 => Mapping {
            promote: Promote::AllBut(own(&["host.name"])),
            keep_multiple_underscores: true,
            scope_labels: false,
            ..base
        },
        3 => Mapping {
            namespace: "ns".to_owned(),
            external_labels: vec![
                ("cluster".to_owned(), "c1".to_owned()),
                ("region".to_owned(), "eu".to_owned()),
            ],
            key_before_underscore: false,
            ..base
        },
        _ => base,
    }
}

fn digest(lines: &[String]) -> u32 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in lines.iter().flat_map(|line| line.bytes().chain([b'\n'])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash as u32
}

/// Why our series may differ: what each of the names in `divergences.txt` means.
const REASONS: [(&str, &str); 6] = [
    (
        "exemplar-labels",
        "where names are escaped, those of exemplars are too, and each name is there once",
    ),
    (
        "infinite-bound",
        "a list of bounds that holds its own end has the last bucket once",
    ),
    (
        "native-downscale",
        "Prometheus puts counts one bucket too low when it merges buckets behind empty ones",
    ),
    ("no-name", "a metric without a name is not sent"),
    (
        "no-value",
        "a point without a value is not sent; Prometheus makes it 0",
    ),
    (
        "rest-of-metric",
        "one point that cannot be sent does not keep the others of its metric from being sent",
    ),
];

/// How much there is to compare: the corpus is an input like any other, and an empty one would always agree.
#[derive(Debug, Default, PartialEq, Eq)]
struct Compared {
    metrics: usize,
    /// In all strategies together.
    series: usize,
    /// Requests with histograms that are compared as native ones with custom buckets too, in one strategy each.
    with_bounds: usize,
    /// Series of these.
    custom: usize,
    /// Requests listed in `divergences.txt`.
    divergences: usize,
    /// What we make of these, put together: what else may become wrong in them differs from Prometheus's all the same, and would not be seen.
    of_divergences: u32,
}

/// As `go run .` made it; whoever makes another one writes here how much it is.
const CORPUS: Compared = Compared {
    metrics: 2119,
    series: 34_297,
    with_bounds: 312,
    custom: 968,
    divergences: 32,
    of_divergences: 263_673_204,
};

/// How many metrics there are, and whether there is a histogram with explicit bounds among them.
fn metrics_in(request: &[u8]) -> (usize, bool) {
    let request = ExportMetricsServiceRequest::decode(request).unwrap();
    let scopes = request
        .resource_metrics
        .iter()
        .flat_map(|resource| &resource.scope_metrics);
    let metrics: Vec<_> = scopes.flat_map(|scope| &scope.metrics).collect();
    let has_bounds = |metric: &&Metric| matches!(metric.data, Some(Data::Histogram(_)));
    (metrics.len(), metrics.iter().any(has_bounds))
}

/// Scenario: some two thousand metrics of every type, with names, labels and values that are hard to translate, in all
/// strategies and four sets of options; histograms with explicit bounds as native ones with custom buckets, too.
/// Guarantees: the series, with their type, unit and help, are Prometheus's to the bit, but for those in `divergences.txt`, each with its reason;
/// and none of these is there without need. All of it was compared.
#[test]
fn prometheus_makes_the_same_series() {
    let digests = String::from_utf8(inflated(include_bytes!("../../tests/golden/digests.txt.gz"))).unwrap();
    let mut digests = digests.lines().map(|line| u32::from_str_radix(line, 16).unwrap());
    let mut listed: BTreeMap<usize, &str> = BTreeMap::new();
    for line in include_str!("../../tests/golden/divergences.txt").lines() {
        if let Some((index, reason)) = line.split_once(' ') {
            assert!(REASONS.iter().any(|(known, _)| *known == reason), "{reason}?");
            listed.insert(index.parse().unwrap(), reason);
        }
    }
    // All series as text, to compare with those of `go run . -show`.
    let show = std::env::var_os("GOLDEN_SHOW").is_some();
    let mut wrong = Vec::new();
    let mut compared = Compared {
        divergences: listed.len(),
        ..Compared::default()
    };
    for (index, request) in requests().iter().enumerate() {
        let mut differs = false;
        let mut compare = |strategy: Strategy, custom_buckets| {
            let mapping = Mapping {
                custom_buckets,
                ..mapping(index, strategy)
            };
            let mut text = Text::default();
            Transcoder::new(mapping).run(&[request], &mut text);
            text.0.sort();
            let ours = digest(&text.0);
            differs |= ours != digests.next().unwrap();
            if listed.contains_key(&index) {
                compared.of_divergences = compared.of_divergences.rotate_left(1) ^ ours;
            }
            if show {
                let lines: String = text
                    .0
                    .iter()
                    .map(|line| format!("{}\n", line.escape_default()))
                    .collect();
                eprint!("# {index} {} {custom_buckets}\n{lines}", strategy.name());
            }
            text.0.len()
        };
        let (metrics, has_bounds) = metrics_in(request);
        compared.metrics += metrics;
        compared.series += Strategy::ALL
            .map(|strategy| compare(strategy, false))
            .iter()
            .sum::<usize>();
        if has_bounds {
            compared.with_bounds += 1;
            compared.custom += compare(Strategy::ALL[index / 4 % Strategy::ALL.len()], true);
        }
        if differs != listed.contains_key(&index) {
            wrong.push(index);
        }
    }
    assert!(digests.next().is_none());
    assert_eq!(compared, CORPUS, "the corpus is not the one that is known");
    assert!(
        wrong.is_empty(),
        "{} requests are not as listed in divergences.txt: {wrong:?}",
        wrong.len()
    );
}
