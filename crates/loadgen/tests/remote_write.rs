//! Requests of remote write and the walk that finds their ids, checked by prost.

mod prompb;

use std::collections::BTreeSet;

use prompb::{Histogram, Sample, request_v1, request_v2, v1, v2};
use prost::Message;
use sluice_loadgen::{
    FIRST_ID, Found, Generator, Invalid, RemoteWrite, Signal, Spec, Written, for_each_sample,
};

/// A series with its labels spelt out.
#[derive(Debug)]
struct Series {
    labels: Vec<(String, String)>,
    samples: Vec<Sample>,
}

impl Series {
    fn label(&self, wanted: &str) -> &str {
        let label = self.labels.iter().find(|(name, _)| name == wanted);
        &label.unwrap_or_else(|| panic!("no {wanted} in {self:?}")).1
    }
}

/// Decodes a body, and sees that it holds nothing that the schema does not know and, for 2.0, a table of
/// symbols as the specification wants it.
fn decode(version: RemoteWrite, body: &[u8]) -> Vec<Series> {
    match version {
        RemoteWrite::V1 => {
            let request = v1::WriteRequest::decode(body).expect("valid 1.0");
            assert_eq!(request.encoded_len(), body.len(), "unknown fields");
            let series = request.timeseries.into_iter().map(|series| Series {
                labels: series
                    .labels
                    .into_iter()
                    .map(|label| (label.name, label.value))
                    .collect(),
                samples: series.samples,
            });
            series.collect()
        }
        RemoteWrite::V2 => {
            let request = v2::Request::decode(body).expect("valid 2.0");
            assert_eq!(request.encoded_len(), body.len(), "unknown fields");
            assert_eq!(request.symbols[0], "");
            let distinct: BTreeSet<_> = request.symbols.iter().collect();
            assert_eq!(distinct.len(), request.symbols.len(), "symbols repeat");
            let symbol = |reference: u32| request.symbols[reference as usize].clone();
            let series = request.timeseries.iter().map(|series| {
                let metadata = series.metadata.as_ref().expect("metadata");
                assert!(metadata.r#type != 0 && !symbol(metadata.help_ref).is_empty());
                assert_eq!(series.labels_refs.len() % 2, 0);
                let pairs = series.labels_refs.chunks(2);
                Series {
                    labels: pairs.map(|pair| (symbol(pair[0]), symbol(pair[1]))).collect(),
                    samples: series.samples.clone(),
                }
            });
            series.collect()
        }
    }
}

fn found(version: RemoteWrite, body: &[u8]) -> Result<(Vec<Found>, Written), Invalid> {
    let mut all = Vec::new();
    let written = for_each_sample(version, body, |found| all.push(found))?;
    Ok((all, written))
}

fn specs() -> Vec<Spec> {
    let gateway = Spec::gateway(Signal::Metrics);
    vec![
        gateway.clone(),
        Spec::mixed(Signal::Metrics).lane(900).seed(7),
        Spec {
            varied: true,
            attributes_per_item: 12,
            resources: 3,
            ..gateway.clone().items(100)
        },
        Spec {
            series: 1_000,
            churn_per_million: 20_000,
            ..gateway.clone().items(100)
        },
        Spec {
            attributes_per_item: 0,
            resources: 9,
            ..gateway.lane(15).items(5)
        },
    ]
}

/// Scenario: requests of several specs in both versions, decoded by prost and by the walk.
/// Guarantees: names are classic, labels are sorted and never empty, times are the request's in milliseconds;
/// both find every announced id exactly once, in order, from one request to the next; a 2.0 body is at most a
/// third of the 1.0 one.
#[test]
fn bodies_are_valid_and_ids_are_found() {
    const NOW: u64 = 1_800_000_000_123_456_789;
    for spec in specs() {
        let mut lengths = Vec::new();
        for version in RemoteWrite::ALL {
            let mut generator = Generator::remote_write(spec.clone(), version);
            assert!(generator.outlines().is_empty());
            let mut expected = spec.first_id;
            for _ in 0..2 * spec.variants + 1 {
                let request = generator.next_request_at(NOW);
                assert_eq!(
                    (request.first_id, request.items),
                    (expected, spec.items_per_request)
                );
                expected += u64::from(request.items);
                let all = decode(version, &request.body);
                let mut ids = request.ids();
                for series in &all {
                    let names: Vec<_> = series.labels.iter().map(|(name, _)| name.as_str()).collect();
                    assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{names:?}");
                    assert!(series.labels.iter().all(|(_, value)| !value.is_empty()));
                    let classic = |c: char| c.is_ascii_alphanumeric() || c == '_';
                    assert!(names.iter().all(|name| name.chars().all(classic)), "{names:?}");
                    assert!(series.label("__name__").chars().all(classic));
                    assert!(series.label("job").starts_with("shop/"));
                    assert_eq!(series.label("sluice_id").parse().ok(), ids.next());
                    assert_eq!(series.samples.len(), 1);
                    let age = 1_800_000_000_123 - series.samples[0].timestamp;
                    assert!((0..=1000).contains(&age), "{age} ms");
                }
                let (items, written) = found(version, &request.body).expect("walks");
                let wanted: Vec<_> = request.ids().map(Found::Item).collect();
                assert_eq!(items, wanted, "{spec:?}");
                assert_eq!(
                    (written.samples, written.histograms),
                    (request.ids().count() as u64, 0)
                );
                lengths.push(request.body.len());
            }
        }
        let (first, second) = lengths.split_at(lengths.len() / 2);
        if spec.items_per_request >= 100 && !spec.varied {
            let (first, second): (usize, usize) = (first.iter().sum(), second.iter().sum());
            assert!(3 * second < first, "{second} bytes of 2.0, {first} of 1.0");
        }
    }
}

/// Scenario: requests that follow each other, with 1,000 live series, and mixed ones with counters.
/// Guarantees: series without their ids are as many as asked for; counters never fall and do grow; the same
/// spec gives the same bytes.
#[test]
fn series_and_counters_go_on() {
    for version in RemoteWrite::ALL {
        let spec = Spec {
            series: 1_000,
            ..Spec::gateway(Signal::Metrics).items(100)
        };
        let mut seen = BTreeSet::new();
        for request in Generator::remote_write(spec, version).take(30) {
            for mut series in decode(version, &request.body) {
                series.labels.retain(|(name, _)| name != "sluice_id");
                seen.insert(series.labels);
            }
        }
        assert_eq!(seen.len(), 1_000);

        let spec = Spec {
            variants: 1,
            ..Spec::mixed(Signal::Metrics)
        };
        let requests: Vec<_> = Generator::remote_write(spec.clone(), version).take(3).collect();
        let again: Vec<_> = Generator::remote_write(spec, version).take(3).collect();
        assert_eq!(requests, again);
        let counters = |body: &[u8]| -> Vec<f64> {
            let all = decode(version, body).into_iter();
            let counters = all.filter(|series| series.label("__name__").ends_with("_total"));
            counters.map(|series| series.samples[0].value).collect()
        };
        let values: Vec<_> = requests.iter().map(|request| counters(&request.body)).collect();
        assert!(values[0].len() > 20);
        for pair in values.windows(2) {
            assert!(pair[0].iter().zip(&pair[1]).all(|(before, now)| before < now));
        }
    }
}

/// Labels of a series of an item.
type Labels<'a> = &'a [(&'a str, &'a str)];

/// Scenario: what gateways make of an item: dotted names, histogram and summary series, `target_info`, ids that
/// are none, several samples in a series.
/// Guarantees: an item is told once, by whatever name its label has; parts are not items, and what has no id is
/// told apart from what has a wrong one.
#[test]
fn series_are_told_apart() {
    let id = FIRST_ID.to_string();
    let id = id.as_str();
    let cases: [(Labels<'_>, Found); 13] = [
        (
            &[("__name__", "a_bucket"), ("sluice_id", id), ("vmrange", "0...1")],
            Found::Part,
        ),
        (&[("__name__", "a"), ("sluice_id", id)], Found::Item(FIRST_ID)),
        (&[("__name__", "a.b"), ("sluice.id", id)], Found::Item(FIRST_ID)),
        (
            &[("sluice_id", id), ("__name__", "unsorted")],
            Found::Item(FIRST_ID),
        ),
        (
            &[("__name__", "a_count"), ("sluice_id", id)],
            Found::Item(FIRST_ID),
        ),
        (&[("__name__", "a_sum"), ("sluice_id", id)], Found::Part),
        (
            &[("__name__", "a_bucket"), ("le", "+Inf"), ("sluice_id", id)],
            Found::Part,
        ),
        (
            &[("__name__", "a_bucket"), ("sluice_id", id)],
            Found::Item(FIRST_ID),
        ),
        (
            &[("__name__", "a"), ("quantile", "0.5"), ("sluice_id", id)],
            Found::Part,
        ),
        (
            &[("__name__", "target_info"), ("job", "shop/cart")],
            Found::Beside,
        ),
        (&[("__name__", "a"), ("sluice_id", "12")], Found::Unmarked),
        (&[("__name__", "a"), ("sluice_id", "")], Found::Unmarked),
        (&[("__name__", "a"), ("sluice_id", "3.4e10")], Found::Unmarked),
    ];
    for (labels, wanted) in cases {
        let (first, _) = found(RemoteWrite::V1, &request_v1(&[labels]).encode_to_vec()).expect("valid");
        let (second, _) = found(RemoteWrite::V2, &request_v2(&[labels]).encode_to_vec()).expect("valid");
        assert_eq!((first, second), (vec![wanted; 1], vec![wanted; 1]), "{labels:?}");
    }

    let mut request = request_v2(&[&[("__name__", "a_sum"), ("sluice_id", id)]]);
    let series = &mut request.timeseries[0];
    series.samples.clear();
    series.histograms.push(Histogram::default());
    let (items, written) = found(RemoteWrite::V2, &request.encode_to_vec()).expect("valid");
    assert_eq!(items, [Found::Item(FIRST_ID)], "a native histogram");
    assert_eq!((written.samples, written.histograms), (0, 1));

    let mut request = request_v1(&[&[("__name__", "a"), ("sluice_id", id)]]);
    request.timeseries[0].samples.push(Sample::default());
    request.metadata.push(v1::MetricMetadata::default());
    let (items, written) = found(RemoteWrite::V1, &request.encode_to_vec()).expect("valid");
    assert_eq!(items, [Found::Item(FIRST_ID); 2], "two samples of a series");
    assert_eq!(written.samples, 2);
}

/// Scenario: bodies that are valid protobuf and no valid requests.
/// Guarantees: each is an error that says what is wrong and in which series.
#[test]
fn invalid_requests_are_told() {
    let good: Labels<'_> = &[("__name__", "a"), ("sluice_id", "34359738368")];
    let cases: [(Labels<'_>, &str); 4] = [
        (&[("sluice_id", "34359738368")], "no metric name"),
        (&[("__name__", "")], "no metric name"),
        (&[("__name__", "a"), ("", "b")], "without a name"),
        (&[("b", "1"), ("__name__", "a"), ("b", "2")], "two labels"),
    ];
    for (labels, problem) in cases {
        let bodies = [
            request_v1(&[good, labels]).encode_to_vec(),
            request_v2(&[good, labels]).encode_to_vec(),
        ];
        for (version, body) in RemoteWrite::ALL.into_iter().zip(bodies) {
            let error = found(version, &body).expect_err(problem);
            assert_eq!(error.series, Some(1), "{error}");
            assert!(error.to_string().contains(problem), "{error}");
        }
    }

    let second = |change: &dyn Fn(&mut v2::Request)| {
        let mut request = request_v2(&[good]);
        change(&mut request);
        let error = found(RemoteWrite::V2, &request.encode_to_vec()).expect_err("invalid");
        error.to_string()
    };
    let far = second(&|request| request.timeseries[0].labels_refs[3] = 5);
    assert_eq!(far, "series 0: a reference behind the table of symbols");
    let odd = second(&|request| request.timeseries[0].labels_refs.truncate(3));
    assert_eq!(odd, "series 0: a label name without a value");
    let both = second(&|request| request.timeseries[0].histograms.push(Histogram::default()));
    assert_eq!(both, "series 0: both samples and histograms");
    let table = second(&|request| request.symbols[0] = "x".into());
    assert!(table.contains("does not begin with the empty one"), "{table}");

    let (first, second) = (
        request_v1(&[good]).encode_to_vec(),
        request_v2(&[good]).encode_to_vec(),
    );
    assert!(found(RemoteWrite::V1, &second).is_err(), "2.0 sent as 1.0");
    assert!(found(RemoteWrite::V2, &first).is_err(), "1.0 sent as 2.0");
}

/// Scenario: bodies cut at every length, and with every byte damaged.
/// Guarantees: no panic; a cut body is an error or holds fewer items, and none that the whole one did not.
#[test]
fn damaged_bodies_do_no_harm() {
    for version in RemoteWrite::ALL {
        let spec = Spec::mixed(Signal::Metrics).items(6);
        let request = Generator::remote_write(spec, version).next_request();
        let whole: Vec<_> = request.ids().map(Found::Item).collect();
        for len in 0..request.body.len() {
            if let Ok((items, _)) = found(version, &request.body[..len]) {
                assert!(items.len() < whole.len(), "cut at {len} not noticed");
                assert!(items.iter().all(|item| whole.contains(item)), "cut at {len}");
            }
            let mut damaged = request.body.to_vec();
            damaged[len] ^= 0x81;
            let _ = found(version, &damaged);
        }
    }
}
