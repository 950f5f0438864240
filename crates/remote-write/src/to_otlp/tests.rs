use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use prost::Message;
use sluice_loadgen::{Generator, RemoteWrite, Signal, Spec};
use sluice_wire::{Depth, Kind};

use super::*;
use crate::encoder::{Encoder, EncoderSettings};
use crate::mapping::Mapping;
use crate::names::Strategy;
use crate::transcode::plain_bodies;

/// All samples of a 1.0 body: labels, bits and time; native histograms by their messages.
fn samples(body: &[u8]) -> Vec<(String, Vec<u8>, i64)> {
    let mut out = Vec::new();
    each_series(Version::V1, body, |series| {
        let labels = format!("{:?}", series.labels);
        for sample in &series.samples {
            out.push((
                labels.clone(),
                sample.value.to_bits().to_be_bytes().to_vec(),
                sample.timestamp_ms,
            ));
        }
        for histogram in &series.histograms {
            out.push((labels.clone(), histogram.to_vec(), 0));
        }
        Ok(())
    })
    .unwrap();
    out.sort();
    out
}

fn again(otlp: &[u8], strategy: Strategy) -> Vec<u8> {
    let mut encoder = Encoder::new(EncoderSettings {
        mapping: Mapping {
            strategy,
            ..Mapping::default()
        },
        max_body_bytes: usize::MAX,
        ..EncoderSettings::default()
    });
    let (lanes, outcome) = encoder.encode(&[otlp]);
    assert_eq!(outcome.dropped.total(), 0);
    plain_bodies(&lanes).concat()
}

/// Scenario: OTLP of every kind, sent as remote write, received as remote write, and sent again.
/// Guarantees: what goes out the second time is what went out the first: no sample, name or label is changed on the way
/// through; what is passed on is valid OTLP with as many points as were counted.
#[test]
fn through_and_out_again() {
    let mut generator = Generator::new(Spec::mixed(Signal::Metrics));
    for _ in 0..16 {
        let request = generator.next_request();
        for strategy in [Strategy::UnderscoreEscapingWithSuffixes, Strategy::NoTranslation] {
            let mut encoder = Encoder::new(EncoderSettings {
                mapping: Mapping {
                    strategy,
                    ..Mapping::default()
                },
                max_body_bytes: usize::MAX,
                ..EncoderSettings::default()
            });
            let first = plain_bodies(&encoder.encode(&[&request.body]).0).concat();
            let (otlp, taken) = to_otlp(Version::V1, &first).unwrap();
            let scan = sluice_wire::validate(Kind::Metrics, Depth::Deep, &otlp).unwrap();
            assert_eq!(scan.items, taken.points());
            assert_eq!(samples(&again(&otlp, strategy)), samples(&first));
        }
    }
}

/// Scenario: requests of both versions as the generator makes them.
/// Guarantees: both become the same samples.
#[test]
fn both_versions_say_the_same() {
    let read = |version: RemoteWrite, own: Version| {
        let mut generator = Generator::remote_write(Spec::gateway(Signal::Metrics), version);
        let request = generator.next_request();
        let (otlp, taken) = to_otlp(own, &request.body).unwrap();
        assert_eq!(taken.points(), u64::from(request.items));
        samples(&again(&otlp, Strategy::UnderscoreEscapingWithSuffixes))
    };
    assert_eq!(
        read(RemoteWrite::V1, Version::V1),
        read(RemoteWrite::V2, Version::V2)
    );
}

fn series(labels: &[(&str, &str)], more: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    for (name, value) in labels {
        let mut label = Vec::new();
        put_delimited(&mut label, 1, name.as_bytes());
        put_delimited(&mut label, 2, value.as_bytes());
        put_delimited(&mut message, 1, &label);
    }
    message.extend_from_slice(more);
    let mut body = Vec::new();
    put_delimited(&mut body, 1, &message);
    body
}

fn sample(value: f64) -> Vec<u8> {
    let mut message = Vec::new();
    put_double(&mut message, 1, value);
    put_uint(&mut message, 2, 1_000);
    let mut field = Vec::new();
    put_delimited(&mut field, 2, &message);
    field
}

/// Scenario: a counter, a gauge and a stale marker, with labels out of order.
/// Guarantees: a cumulative monotonic sum, a gauge, and a point without a value whose flag says so; `job` and `instance`
/// are the resource's.
#[test]
fn what_a_series_becomes() {
    let target = [
        ("job", "shop/cart"),
        ("__name__", "a_total"),
        ("instance", "i-1"),
        ("b", ""),
    ];
    let mut body = series(&target, &sample(2.5));
    body.extend(series(
        &[("__name__", "g"), ("x", "y")],
        &sample(f64::from_bits(STALE_NAN)),
    ));
    let (otlp, taken) = to_otlp(Version::V1, &body).unwrap();
    assert_eq!(taken.samples, 2);
    let request = ExportMetricsServiceRequest::decode(&otlp[..]).unwrap();
    let [counter, gauge] = &request.resource_metrics[..] else {
        panic!()
    };
    let keys: Vec<_> = counter
        .resource
        .as_ref()
        .unwrap()
        .attributes
        .iter()
        .map(|a| &*a.key)
        .collect();
    assert_eq!(keys, ["service.namespace", "service.name", "service.instance.id"]);
    let metric = &counter.scope_metrics[0].metrics[0];
    assert_eq!(metric.name, "a_total");
    let Some(Data::Sum(sum)) = &metric.data else {
        panic!()
    };
    assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
    assert_eq!(sum.data_points[0].time_unix_nano, 1_000_000_000);
    assert!(sum.data_points[0].attributes.is_empty());
    let Some(Data::Gauge(gauge)) = &gauge.scope_metrics[0].metrics[0].data else {
        panic!()
    };
    assert_eq!(
        (gauge.data_points[0].flags, gauge.data_points[0].value),
        (1, None)
    );
}

/// Scenario: requests that no receiver may take, each with one fault.
/// Guarantees: an error that says which series and what.
#[test]
fn what_is_not_taken() {
    let name = ("__name__", "a");
    for (body, says) in [
        (vec![0x0a, 0x05, 0x01], "not protobuf"),
        (series(&[("a", "b")], &sample(1.0)), "no __name__"),
        (series(&[name, ("", "b")], &sample(1.0)), "a label has no name"),
        (series(&[name, ("b", "c"), ("b", "d")], &sample(1.0)), "same name"),
        (series(&[name], &[0x12, 0x02, 0x08, 0x01]), "wire type"),
    ] {
        let mut with_good_one_before = series(&[name], &sample(1.0));
        with_good_one_before.extend(body);
        let error = to_otlp(Version::V1, &with_good_one_before).unwrap_err();
        assert_eq!(error.series, 1);
        assert!(error.to_string().contains(says), "{error}");
    }
    // 2.0: a table that begins with something, references that lead nowhere or come alone.
    for (body, says) in [
        (&b"\x22\x01a"[..], "does not begin"),
        (&b"\x22\x00\x2a\x04\x0a\x02\x01\x02"[..], "outside"),
        (&b"\x22\x00\x22\x01a\x2a\x03\x0a\x01\x01"[..], "odd"),
    ] {
        let error = to_otlp(Version::V2, body).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

/// Scenario: samples, native histograms and exemplars at the first and the last millisecond that OTLP can say, and one beyond.
/// Guarantees: what it can say goes out again as it came; beyond that the request is refused, and told which series and why: no time is altered.
#[test]
fn times_that_otlp_cannot_say_are_refused() {
    let last = i64::MAX / 1_000_000;
    let item = |kind: u32, field: u32, at_ms: i64| {
        let mut message = Vec::new();
        put_uint(&mut message, field, at_ms as u64);
        let mut item = Vec::new();
        put_delimited(&mut item, kind, &message);
        item
    };
    let request = |more: &[u8]| {
        let mut body = series(&[("__name__", "a")], &sample(1.0));
        body.extend(series(&[("__name__", "b")], more));
        body
    };
    for (what, kind, field) in [("sample", 2, 2), ("histogram", 4, 15), ("exemplar", 3, 3)] {
        for at_ms in [last, -last] {
            let beside = if what == "exemplar" {
                sample(1.0)
            } else {
                Vec::new()
            };
            let body = |at_ms| request(&[&beside[..], &item(kind, field, at_ms)].concat());
            let (otlp, _) = to_otlp(Version::V1, &body(at_ms)).unwrap();
            if what == "sample" {
                let out = samples(&again(&otlp, Strategy::NoTranslation));
                assert_eq!(out, samples(&body(at_ms)));
            }
            let error = to_otlp(Version::V1, &body(at_ms + at_ms.signum())).unwrap_err();
            assert_eq!(error.series, 1, "{what}");
            assert!(error.to_string().contains("which OTLP cannot say"), "{error}");
        }
    }
}

/// Scenario: 300 labels of 2.0 that are all named by one text of a megabyte; and, of 1.0, more samples in a series than it may have.
/// Guarantees: refused by what they add up to, before they are compared: compared they are found to have the same name.
#[test]
fn what_is_too_large_is_refused_before_it_is_looked_at() {
    let mut symbols = b"\x22\x00".to_vec();
    put_delimited(&mut symbols, 4, &vec![b'a'; 1 << 20]);
    for (labels, says) in [(300, "more than 268,435,456 bytes"), (2, "the same name")] {
        let mut refs = Vec::new();
        put_delimited(&mut refs, 1, &[1].repeat(2 * labels));
        let mut body = symbols.clone();
        put_delimited(&mut body, 5, &refs);
        let error = to_otlp(Version::V2, &body).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let body = series(&[("__name__", "a")], &[0x12, 0].repeat(600_000));
    let error = to_otlp(Version::V1, &body).unwrap_err().to_string();
    assert!(error.contains("more than 524,288 samples"), "{error}");
}

/// Scenario: native histograms of two buckets with two and one observations, which say that they have three, and five; with a
/// sum, and with one that is NaN.
/// Guarantees: the count has to be that of the buckets; NaNs may have been observed beside them, where the sum says so.
#[test]
fn counts_are_those_of_the_buckets() {
    let taken = |count: u64, sum: f64| {
        let mut message = Vec::new();
        put_uint(&mut message, 1, count);
        put_double(&mut message, 3, sum);
        // A span of two buckets; counts as deltas: 2, -1.
        put_delimited(&mut message, 11, &[2 << 3, 2]);
        put_delimited(&mut message, 12, &[4, 1]);
        native::put_point(&mut Vec::new(), &message).is_ok()
    };
    assert!(taken(3, 1.5) && taken(3, f64::NAN) && taken(5, f64::NAN));
    assert!(!taken(5, 1.5) && !taken(2, 1.5) && !taken(2, f64::NAN));
}

/// Scenario: an exemplar beside a sample, and one in a series of its own, as Prometheus sends it.
/// Guarantees: the request is taken; the first is the point's, the second is left out and counted.
#[test]
fn exemplars_alone_are_left_out() {
    let exemplar = [&[3 << 3 | 2, 9, 2 << 3 | 1][..], &1f64.to_le_bytes()].concat();
    let with_sample = [sample(1.0), exemplar.clone()].concat();
    let mut body = series(&[("__name__", "a")], &with_sample);
    body.extend(series(&[("__name__", "a")], &exemplar));
    let (otlp, taken) = to_otlp(Version::V1, &body).unwrap();
    assert_eq!(
        (taken.samples, taken.exemplars, taken.left_out_exemplars),
        (1, 1, 1)
    );
    let scan = sluice_wire::validate(Kind::Metrics, Depth::Deep, &otlp).unwrap();
    assert_eq!(scan.items, 1);
}

/// A series with a native histogram of one bucket, whose observations are a float, and an exemplar.
fn float_histogram(name: &str, count: f64) -> Vec<u8> {
    let mut histogram = Vec::new();
    put_double(&mut histogram, 2, count);
    put_delimited(&mut histogram, 11, &[2 << 3, 1]);
    put_delimited(&mut histogram, 13, &count.to_le_bytes());
    put_uint(&mut histogram, 15, 1_000);
    let mut more = Vec::new();
    put_delimited(&mut more, 4, &histogram);
    more.extend([&[3 << 3 | 2, 9, 2 << 3 | 1][..], &1f64.to_le_bytes()].concat());
    series(&[("__name__", name)], &more)
}

/// Scenario: a sample, a native histogram with two and a half observations, one with two, and a sample; each histogram with an exemplar.
/// Guarantees: the one that OTLP cannot say is left out and counted, with its exemplar; all else is taken.
#[test]
fn a_histogram_that_otlp_cannot_say_costs_nothing_else() {
    let mut body = series(&[("__name__", "a")], &sample(1.0));
    body.extend(float_histogram("b", 2.5));
    body.extend(float_histogram("c", 2.0));
    body.extend(series(&[("__name__", "d")], &sample(2.0)));
    let (otlp, taken) = to_otlp(Version::V1, &body).unwrap();
    let want = Taken {
        samples: 2,
        histograms: 1,
        exemplars: 1,
        left_out_exemplars: 1,
        left_out_histograms: 1,
    };
    assert_eq!(taken, want);
    let scan = sluice_wire::validate(Kind::Metrics, Depth::Deep, &otlp).unwrap();
    assert_eq!(scan.items, 3);
}

/// Names and labels of a body's series, in order.
fn texts(body: &[u8]) -> Vec<String> {
    let mut out = Vec::new();
    each_series(Version::V1, body, |series| {
        let label = |(name, value): &(&str, &str)| format!("{name}={value}");
        out.push(series.labels.iter().map(label).collect::<Vec<_>>().join(" "));
        Ok(())
    })
    .unwrap();
    out.sort();
    out
}

/// Scenario: jobs with a slash at the beginning, at the end, twice, alone and not at all; received, and sent again.
/// Guarantees: each goes out as it came.
#[test]
fn a_job_keeps_its_slashes() {
    for job in ["shop/cart", "shop/", "/x", "/", "a//b", "a/b/c", "/a/b", "x"] {
        let body = series(&[("__name__", "a"), ("job", job)], &sample(1.0));
        let (otlp, _) = to_otlp(Version::V1, &body).unwrap();
        let out = again(&otlp, Strategy::UnderscoreEscapingWithSuffixes);
        assert_eq!(texts(&out), [format!("__name__=a job={job}")]);
    }
}

/// Scenario: names and labels that Prometheus has and the mapping would not make: counters without `_total`, underscores in a row, at the beginning and
/// at the end, colons, UTF-8; received as 1.0 and, what is said to be a counter, as 2.0; and sent again under two strategies.
/// Guarantees: without translation each goes out as it came; with the default one it gets the name that the mapping makes of it, as documented.
#[test]
fn foreign_names() {
    let counter = |name: &str| {
        let mut symbols = vec![0x22, 0];
        put_delimited(&mut symbols, 4, b"__name__");
        put_delimited(&mut symbols, 4, name.as_bytes());
        let mut message = Vec::new();
        put_delimited(&mut message, 1, &[1, 2]);
        message.extend(sample(1.0));
        // Metadata: a counter.
        put_delimited(&mut message, 5, &[1 << 3, 1]);
        put_delimited(&mut symbols, 5, &message);
        (Version::V2, symbols)
    };
    let gauge = |name: &str| (Version::V1, series(&[("__name__", name)], &sample(1.0)));
    let label = |name: &str| {
        (
            Version::V1,
            series(&[("__name__", "a"), (name, "v")], &sample(1.0)),
        )
    };
    for ((version, body), came, translated) in [
        (counter("foo"), "__name__=foo", "__name__=foo_total"),
        (
            counter("foo_total_x"),
            "__name__=foo_total_x",
            "__name__=foo_x_total",
        ),
        (gauge("foo_total"), "__name__=foo_total", "__name__=foo_total"),
        (gauge("a__b"), "__name__=a__b", "__name__=a_b"),
        (gauge("_x"), "__name__=_x", "__name__=x"),
        (gauge("x_"), "__name__=x_", "__name__=x"),
        (
            gauge("job:a:rate5m"),
            "__name__=job:a:rate5m",
            "__name__=job:a:rate5m",
        ),
        (gauge("a.b"), "__name__=a.b", "__name__=a_b"),
        (label("a__b"), "__name__=a a__b=v", "__name__=a a_b=v"),
        (label("_x"), "__name__=a _x=v", "__name__=a key_x=v"),
        (label("a.b"), "__name__=a a.b=v", "__name__=a a_b=v"),
        (label("__x__"), "__name__=a __x__=v", "__name__=a __x__=v"),
    ] {
        let (otlp, _) = to_otlp(version, &body).unwrap();
        assert_eq!(texts(&again(&otlp, Strategy::NoTranslation)), [came]);
        let out = again(&otlp, Strategy::UnderscoreEscapingWithSuffixes);
        assert_eq!(texts(&out), [translated]);
    }
}
