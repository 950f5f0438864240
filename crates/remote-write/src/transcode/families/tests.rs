use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, metric, number_data_point,
};
use prost::Message;

use super::{Families, MAX_FAMILY_BYTES, MetricType};
use crate::encoder::{Encoder, EncoderSettings};
use crate::mapping::Mapping;
use crate::transcode::{Outcome, Transcoder};

/// A request with a gauge of each of these names, of one point.
fn gauges(names: &[String]) -> Vec<u8> {
    let metrics = names.iter().map(|name| Metric {
        name: name.clone(),
        data: Some(metric::Data::Gauge(Gauge {
            data_points: vec![NumberDataPoint {
                value: Some(number_data_point::Value::AsInt(1)),
                ..NumberDataPoint::default()
            }],
        })),
        ..Metric::default()
    });
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            scope_metrics: vec![ScopeMetrics {
                metrics: metrics.collect(),
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    }
    .encode_to_vec()
}

/// Scenario: three metrics of which two become the same name, again and again; then one of these two alone.
/// Guarantees: the second of them is counted in every request in which it comes, and nothing else.
#[test]
fn a_collision_is_counted_in_every_request() {
    let mut encoder = Encoder::new(EncoderSettings::default());
    let mut collisions = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let (_, outcome): (_, Outcome) = encoder.encode(&[&gauges(&names)]);
        assert_eq!(outcome.points, names.len() as u64);
        outcome.name_collisions
    };
    for _ in 0..3 {
        assert_eq!(collisions(&["a.b", "c", "a_b"]), 1);
    }
    assert_eq!(collisions(&["a.b", "c"]), 0);
    assert_eq!(collisions(&["a_b", "a_b"]), 2);
}

/// Scenario: a gauge whose name is that of our `target_info`, with a namespace and without, and where we make none.
/// Guarantees: it is counted wherever both are sent.
#[test]
fn a_metric_called_target_info_collides() {
    for (namespace, name, target_info, expected) in [
        ("", "target.info", true, 1),
        ("ns", "target_info", true, 1),
        ("ns", "ns_target_info", true, 0),
        ("", "target_info", false, 0),
    ] {
        let mapping = Mapping {
            namespace: namespace.to_owned(),
            target_info,
            ..Mapping::default()
        };
        let mut encoder = Encoder::new(EncoderSettings {
            mapping,
            ..EncoderSettings::default()
        });
        let (_, outcome): (_, Outcome) = encoder.encode(&[&gauges(&[name.to_owned()])]);
        assert_eq!(outcome.name_collisions, expected, "{name} in {namespace:?}");
    }
}

/// Scenario: metrics in the same order again and again, then in another one; with other descriptions; one that comes as a counter, one whose description comes
/// behind its data, and one with none.
/// Guarantees: each has its own family, kind, description and points, whatever came before it.
#[test]
fn what_is_expected_is_not_taken_for_what_came() {
    let data = |kind: usize| match kind {
        0 => metric::Data::Gauge(Gauge::default()),
        _ => metric::Data::Sum(Sum {
            is_monotonic: kind == 1,
            ..Sum::default()
        }),
    };
    let message = |name: &str, help: &str, kind: usize| {
        let metric = Metric {
            name: name.to_owned(),
            data: Some(data(kind)),
            ..Metric::default()
        };
        let help = Metric {
            description: help.to_owned(),
            ..Metric::default()
        };
        (metric.encode_to_vec(), help.encode_to_vec())
    };
    let mut families = Families::new();
    let mut expected = 0;
    for round in 0..40usize {
        for step in 0..6 {
            let at = if round % 10 < 7 { step } else { 5 - step };
            let kind = if at == 3 { round / 5 % 3 } else { 0 };
            let help = format!("help {}", round / 20 + at);
            let (metric, help_field) = message(&format!("m{at}"), &help, kind);
            let metric = match at {
                2 => [metric, help_field].concat(),
                4 => metric,
                _ => [help_field, metric].concat(),
            };
            let framed = request_of(&metric);
            let mut metrics = sluice_wire::Request::new(sluice_wire::Kind::Metrics, &framed).resources();
            let resource = metrics.next().unwrap();
            let scope = resource.scopes().next().unwrap();
            let metric = scope.metrics().next().unwrap();
            let found = families.of(&Mapping::default(), &metric).unwrap();
            expected += usize::from(found.help.is_none());
            assert_eq!(families.help(&found), if at == 4 { "" } else { &help[..] });
            let family = families.get(found.family.unwrap()).unwrap();
            let name = if kind == 1 {
                format!("m{at}_total")
            } else {
                format!("m{at}")
            };
            assert_eq!(*family.name, *name);
            let counter = if kind == 1 {
                MetricType::Counter
            } else {
                MetricType::Gauge
            };
            assert_eq!(family.kind, counter);
            assert_eq!(found.data.is_monotonic(), kind == 1);
        }
    }
    assert!(expected > 80, "{expected}");
}

/// A request with this metric alone.
fn request_of(metric: &[u8]) -> Vec<u8> {
    [2u32, 2, 1].into_iter().fold(metric.to_vec(), |inner, number| {
        let mut outer = Vec::new();
        crate::protobuf::put_delimited(&mut outer, number, &inner);
        outer
    })
}

/// Scenario: requests with names of a megabyte, each another one.
/// Guarantees: what is kept of them is never more than is allowed and what one request adds.
#[test]
fn long_names_are_forgotten() {
    let mut transcoder = Transcoder::new(Mapping::default());
    let mut writer = crate::v1::V1::<crate::snappy::Block>::new(1, usize::MAX, false);
    let mut most = 0;
    for n in 0..8 {
        let name = format!("{n}").repeat(1 << 20);
        transcoder.run(&[&gauges(&[name])], &mut writer);
        writer.finish();
        most = most.max(transcoder.families.bytes);
    }
    assert!(most <= MAX_FAMILY_BYTES + (13 << 20), "{most}");
    assert!(transcoder.families.by_key.len() < 4);
}
