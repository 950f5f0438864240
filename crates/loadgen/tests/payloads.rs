//! The payloads, checked by prost and opentelemetry-proto.

use std::collections::BTreeSet;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric::Data, number_data_point};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use sluice_loadgen::{
    FIRST_ID, Generator, Malformed, Outline, Signal, Spec, Tallies, Tally, for_each_id, ids,
};

fn metrics(body: &[u8]) -> ExportMetricsServiceRequest {
    ExportMetricsServiceRequest::decode(body).expect("valid metrics")
}

fn all_metrics(request: &ExportMetricsServiceRequest) -> Vec<Metric> {
    let scopes = request
        .resource_metrics
        .iter()
        .flat_map(|resource| &resource.scope_metrics);
    scopes.flat_map(|scope| scope.metrics.clone()).collect()
}

fn all_spans(body: &[u8]) -> Vec<Span> {
    let request = ExportTraceServiceRequest::decode(body).expect("valid traces");
    let resources = request.resource_spans.into_iter();
    resources
        .flat_map(|resource| resource.scope_spans)
        .flat_map(|scope| scope.spans)
        .collect()
}

fn points(metric: &Metric) -> usize {
    match metric.data.as_ref().expect("every metric has data") {
        Data::Gauge(data) => data.data_points.len(),
        Data::Sum(data) => data.data_points.len(),
        Data::Histogram(data) => data.data_points.len(),
        Data::ExponentialHistogram(data) => data.data_points.len(),
        Data::Summary(data) => data.data_points.len(),
    }
}

/// Encodes again what prost decoded: equal bytes mean that nothing was unknown, out of place or cut short.
fn encoded_again(signal: Signal, body: &[u8]) -> Vec<u8> {
    match signal {
        Signal::Metrics => metrics(body).encode_to_vec(),
        Signal::Logs => ExportLogsServiceRequest::decode(body)
            .expect("valid logs")
            .encode_to_vec(),
        Signal::Traces => ExportTraceServiceRequest::decode(body)
            .expect("valid traces")
            .encode_to_vec(),
    }
}

/// Every spec the tests and the demo use, and some with odd shapes.
fn specs() -> Vec<Spec> {
    let mut specs = Vec::new();
    for signal in Signal::ALL {
        specs.push(Spec::gateway(signal));
        specs.push(Spec::mixed(signal));
        specs.push(Spec::mixed(signal).lane(900).seed(99).items(1));
        specs.push(Spec {
            resources: 7,
            scopes: 3,
            attributes_per_item: 14,
            ..Spec::mixed(signal).items(100)
        });
        specs.push(Spec {
            points_per_metric: 0,
            attributes_per_item: 0,
            ..Spec::gateway(signal).items(5)
        });
    }
    specs
}

/// Scenario: requests of every spec are decoded by prost.
/// Guarantees: they are valid, hold no field that the schema does not know, and carry the ids they announce,
/// consecutively from one request to the next.
#[test]
fn bodies_are_valid_and_ids_are_found() {
    for spec in specs() {
        let mut expected = spec.first_id;
        for request in Generator::new(spec.clone()).take(2 * spec.variants as usize + 1) {
            assert_eq!(request.first_id, expected);
            assert_eq!(request.items, spec.items_per_request);
            let again = encoded_again(spec.signal, &request.body);
            assert_eq!(again.len(), request.body.len(), "unknown fields in {spec:?}");
            let found = ids(spec.signal, &request.body).expect("walks");
            assert_eq!(found, request.ids().collect::<Vec<_>>(), "{spec:?}");
            assert_eq!(ids(spec.signal, &again).expect("walks"), found);
            expected += u64::from(request.items);
        }
    }
}

/// Scenario: two generators of the same spec, and one with another seed.
/// Guarantees: the same spec gives the same bytes; requests of one generator differ from each other.
#[test]
fn the_same_spec_gives_the_same_bytes() {
    for signal in Signal::ALL {
        let first: Vec<_> = Generator::new(Spec::mixed(signal)).take(40).collect();
        let second: Vec<_> = Generator::new(Spec::mixed(signal)).take(40).collect();
        assert_eq!(first, second);
        let other = Generator::new(Spec::mixed(signal).seed(2)).next_request();
        assert_ne!(first[0].body, other.body);
        let distinct: BTreeSet<_> = first.iter().map(|request| request.body.clone()).collect();
        assert_eq!(distinct.len(), first.len());
    }
}

/// Scenario: the comparison's metric payload.
/// Guarantees: its size and shape are what the published figures were measured with.
#[test]
fn the_gateway_payload_has_the_published_size() {
    for request in Generator::new(Spec::gateway(Signal::Metrics)).take(4) {
        let len = request.body.len();
        assert!(
            (110_200..111_200).contains(&len),
            "{len} bytes instead of 110.7 KB"
        );
        let all = all_metrics(&metrics(&request.body));
        assert_eq!(all.iter().map(points).sum::<usize>(), 500);
        for metric in all {
            let Some(Data::Gauge(gauge)) = metric.data else {
                panic!("not a gauge: {}", metric.name)
            };
            assert!(gauge.data_points.iter().all(|point| point.attributes.len() == 6));
        }
    }
    let traces = Generator::new(Spec::gateway(Signal::Traces)).next_request();
    assert_eq!(all_spans(&traces.body).len(), 467);
    assert_eq!(
        Generator::new(Spec::gateway(Signal::Logs)).next_request().items,
        500
    );
}

/// Scenario: mixed metrics.
/// Guarantees: all five kinds appear, histogram counts equal their buckets, monotonic sums never fall.
#[test]
fn mixed_metrics_are_consistent() {
    let spec = Spec {
        variants: 1,
        ..Spec::mixed(Signal::Metrics)
    };
    let mut kinds = BTreeSet::new();
    let mut last: Vec<i64> = Vec::new();
    for request in Generator::new(spec).take(3) {
        let mut counters = Vec::new();
        for metric in all_metrics(&metrics(&request.body)) {
            match metric.data.expect("data") {
                Data::Gauge(_) => drop(kinds.insert("gauge")),
                Data::Summary(_) => drop(kinds.insert("summary")),
                Data::Sum(sum) => {
                    kinds.insert("sum");
                    for point in sum.data_points.iter().filter(|_| sum.is_monotonic) {
                        let Some(number_data_point::Value::AsInt(value)) = point.value else {
                            panic!()
                        };
                        assert!(point.start_time_unix_nano < point.time_unix_nano);
                        counters.push(value);
                    }
                }
                Data::Histogram(histogram) => {
                    kinds.insert("histogram");
                    for point in histogram.data_points {
                        assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
                        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
                    }
                }
                Data::ExponentialHistogram(histogram) => {
                    kinds.insert("exponential");
                    for point in histogram.data_points {
                        let positive = point.positive.expect("buckets");
                        assert_eq!(
                            positive.bucket_counts.iter().sum::<u64>() + point.zero_count,
                            point.count
                        );
                        assert_eq!((positive.offset, point.scale), (-4, 3));
                    }
                }
            }
        }
        assert!(last.iter().zip(&counters).all(|(before, now)| before < now));
        last = counters;
    }
    assert_eq!(kinds.len(), 5, "{kinds:?}");
}

/// Scenario: mixed traces over several requests.
/// Guarantees: ids have their lengths, every parent is an earlier span of the same trace and encloses its
/// child in time, no id repeats, and errors, events and links appear.
#[test]
fn spans_form_trees() {
    let mut seen = BTreeSet::new();
    let (mut events, mut links, mut errors, mut roots) = (0, 0, 0, BTreeSet::new());
    for request in Generator::new(Spec::mixed(Signal::Traces)).take(20) {
        let spans = all_spans(&request.body);
        for span in &spans {
            assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8));
            assert!(seen.insert(span.span_id.clone()), "span id repeats");
            assert!(span.start_time_unix_nano < span.end_time_unix_nano);
            events += span.events.len();
            links += span.links.len();
            errors += usize::from(span.status.as_ref().is_some_and(|status| status.code == 2));
            if span.parent_span_id.is_empty() {
                assert!(roots.insert(span.trace_id.clone()), "two roots in a trace");
                continue;
            }
            let parent = spans
                .iter()
                .find(|parent| parent.span_id == span.parent_span_id)
                .expect("parent");
            assert_eq!(parent.trace_id, span.trace_id);
            assert!(parent.start_time_unix_nano < span.start_time_unix_nano);
            assert!(parent.end_time_unix_nano > span.end_time_unix_nano);
        }
    }
    assert!(events > 0 && links > 0 && errors > 0 && roots.len() > 20);
}

/// Scenario: mixed logs over several requests.
/// Guarantees: several severities, text and map bodies, and trace contexts appear, stamped at the given time.
#[test]
fn logs_vary() {
    const NOW: u64 = 1_800_000_000_000_000_000;
    let mut generator = Generator::new(Spec::mixed(Signal::Logs));
    let (mut severities, mut maps, mut with_trace) = (BTreeSet::new(), 0, 0);
    for _ in 0..20 {
        let request = generator.next_request_at(NOW);
        let decoded = ExportLogsServiceRequest::decode(request.body).expect("valid");
        let scopes = decoded
            .resource_logs
            .into_iter()
            .flat_map(|resource| resource.scope_logs);
        for record in scopes.flat_map(|scope| scope.log_records) {
            assert_eq!(record.observed_time_unix_nano, NOW);
            assert!(NOW - record.time_unix_nano < 1_000_000_000);
            severities.insert(record.severity_text);
            let body = format!("{:?}", record.body);
            maps += usize::from(body.contains("KvlistValue"));
            with_trace += usize::from(record.trace_id.len() == 16 && record.span_id.len() == 8);
        }
    }
    assert!(severities.len() >= 5 && maps > 0 && with_trace > 0);
}

/// Scenario: three bodies laid end to end, with unknown fields and groups in between.
/// Guarantees: every id is found once, and the account says so; half of them is not enough.
#[test]
fn merged_bodies_are_accounted_exactly() {
    let mut tallies = Tallies::new();
    for signal in Signal::ALL {
        let mut merged = Vec::new();
        for lane in 0..3 {
            let request = Generator::new(Spec::mixed(signal).lane(lane)).next_request();
            tallies
                .of(signal)
                .sent(request.first_id, u64::from(request.items));
            merged.extend_from_slice(&request.body);
            // Unknown: field 90 as varint, as fixed32, and as a group that holds a group and a string.
            merged.extend_from_slice(&[0xd0, 0x05, 0x07, 0xd5, 0x05, 1, 2, 3, 4]);
            merged.extend_from_slice(&[0xd3, 0x05, 0x0b, 0x0c, 0x0a, 0x01, 0x41, 0xd4, 0x05]);
        }
        assert!(!tallies.is_exact());
        let items = tallies.of(signal).delivered_body(signal, &merged).expect("walks");
        assert_eq!(items, 360);
    }
    assert!(tallies.is_exact());
    assert_eq!(tallies.report(Signal::Logs).delivered, 360);
}

/// Scenario: bodies cut at every length, and with a byte damaged.
/// Guarantees: no panic; a cut body never yields an id that was not in it.
#[test]
fn damaged_bodies_do_no_harm() {
    for signal in Signal::ALL {
        let request = Generator::new(Spec::mixed(signal).items(6)).next_request();
        let whole = BTreeSet::from_iter(request.ids());
        for len in 0..request.body.len() {
            let mut found = Vec::new();
            let outcome = for_each_id(signal, &request.body[..len], |id| found.extend(id));
            assert!(found.iter().all(|id| whole.contains(id)));
            assert!(
                outcome.is_err() || found.len() < whole.len(),
                "cut at {len} not noticed"
            );
            let mut damaged = request.body.to_vec();
            damaged[len] ^= 0x81;
            let _ = ids(signal, &damaged);
        }
    }
    assert_eq!(ids(Signal::Logs, &[0x0b, 0x14]), Err(Malformed));
    assert_eq!(ids(Signal::Logs, &[0x0a, 0x05]), Err(Malformed));
}

/// Scenario: items of another program arrive, and an id outside the range of any lane.
/// Guarantees: they are counted as unmarked and not taken for ours.
#[test]
fn foreign_items_are_unmarked() {
    let span = Span {
        trace_id: vec![1; 16],
        span_id: vec![2; 8],
        ..Span::default()
    };
    let mut request = ExportTraceServiceRequest::default();
    request.resource_spans.push(Default::default());
    request.resource_spans[0].scope_spans.push(Default::default());
    request.resource_spans[0].scope_spans[0].spans = vec![span.clone(), span];
    let mut tally = Tally::new();
    assert_eq!(
        tally.delivered_body(Signal::Traces, &request.encode_to_vec()),
        Ok(2)
    );
    assert_eq!((tally.report().unmarked, tally.report().delivered), (2, 0));
    assert_eq!(Spec::gateway(Signal::Logs).lane(1).first_id, FIRST_ID + (1 << 32));
}

/// Name and attributes of every point without its id, with those of its resource.
fn series_of(body: &[u8]) -> Vec<String> {
    let mut series = Vec::new();
    for resource in &metrics(body).resource_metrics {
        for metric in resource.scope_metrics.iter().flat_map(|scope| &scope.metrics) {
            let Some(Data::Gauge(gauge)) = &metric.data else {
                continue;
            };
            for point in &gauge.data_points {
                let mut attributes = point.attributes.clone();
                attributes.retain(|attribute| attribute.key != "sluice.id");
                series.push(format!("{} {attributes:?} {:?}", metric.name, resource.resource));
            }
        }
    }
    series
}

/// Scenario: 2,000 series are asked for at 100 points a request, first without churn, then with 5% of it.
/// Guarantees: exactly that many series are live without churn; with it new ones come at the rate asked for.
#[test]
fn cardinality_and_churn_are_exact() {
    let spec = Spec {
        series: 2_000,
        ..Spec::gateway(Signal::Metrics).items(100)
    };
    let mut seen = BTreeSet::new();
    let mut generator = Generator::new(spec.clone());
    for _ in 0..60 {
        seen.extend(series_of(&generator.next_request().body));
    }
    assert_eq!(seen.len(), 2_000);

    let mut generator = Generator::new(Spec {
        churn_per_million: 50_000,
        ..spec
    });
    let mut seen = BTreeSet::new();
    for _ in 0..100 {
        seen.extend(series_of(&generator.next_request().body));
    }
    // 100 requests, of which 5 began a block of 100 series; the last of them at request 100 exactly is not sent yet.
    assert_eq!(seen.len(), 2_000 + 400);
}

/// Scenario: the outlines of single- and multi-resource specs of all signals, against requests of the same generator.
/// Guarantees: each resource of a request has its outline, whose offsets read the first and last id of it; the
/// numbers of items add up. (Outlines of equal length are told apart by both ids.)
#[test]
fn outlines_recognise_resources() {
    for signal in Signal::ALL {
        for spec in [Spec::gateway(signal), Spec::mixed(signal)] {
            let mut generator = Generator::new(spec.lane(3));
            let outlines = generator.outlines();
            for _ in 0..20 {
                let request = generator.next_request();
                let (mut at, mut next_id) = (0, request.first_id);
                while at < request.body.len() {
                    assert_eq!(request.body[at], 0x0a);
                    let (mut len, mut shift) = (0, 0);
                    loop {
                        at += 1;
                        len |= usize::from(request.body[at] & 0x7f) << shift;
                        shift += 7;
                        if request.body[at] & 0x80 == 0 {
                            break;
                        }
                    }
                    let resource = &request.body[at + 1..at + 1 + len];
                    at += 1 + len;
                    let read = |at: usize| Outline::read_id(signal, &resource[at..]);
                    let outline = outlines
                        .iter()
                        .filter(|outline| outline.len == len)
                        .find(|outline| {
                            let last_id = next_id + u64::from(outline.items) - 1;
                            read(outline.id_at) == Some(next_id) && read(outline.last_id_at) == Some(last_id)
                        })
                        .expect("an outline that fits");
                    next_id += u64::from(outline.items);
                }
                assert_eq!(next_id, request.ids().end);
            }
        }
    }
}
