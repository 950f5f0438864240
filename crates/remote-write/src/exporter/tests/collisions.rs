//! What meets under one name, or has no place, is counted where it can be read.

use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::metrics::v1::{Exemplar, Histogram, HistogramDataPoint};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::*;
use crate::mapping::Promote;

fn attributes(pairs: &[(&str, &str)]) -> Vec<KeyValue> {
    let attribute = |(key, value): &(&str, &str)| KeyValue {
        key: (*key).to_owned(),
        value: Some(AnyValue {
            value: Some(Any::StringValue((*value).to_owned())),
        }),
        ..Default::default()
    };
    pairs.iter().map(attribute).collect()
}

/// A gauge with one point, which has an exemplar.
fn gauge(name: &str, pairs: &[(&str, &str)], exemplars: usize) -> Metric {
    let point = NumberDataPoint {
        attributes: attributes(pairs),
        time_unix_nano: 1_790_000_000_000_000_000,
        exemplars: vec![Exemplar::default(); exemplars],
        value: Some(number_data_point::Value::AsDouble(1.0)),
        ..Default::default()
    };
    Metric {
        name: name.to_owned(),
        data: Some(metric::Data::Gauge(Gauge {
            data_points: vec![point],
        })),
        ..Default::default()
    }
}

fn histogram(name: &str, pairs: &[(&str, &str)]) -> Metric {
    let point = HistogramDataPoint {
        attributes: attributes(pairs),
        time_unix_nano: 1_790_000_000_000_000_000,
        count: 1,
        bucket_counts: vec![1],
        ..Default::default()
    };
    Metric {
        name: name.to_owned(),
        data: Some(metric::Data::Histogram(Histogram {
            data_points: vec![point],
            aggregation_temporality: 2,
        })),
        ..Default::default()
    }
}

fn batch_of(resource: &[(&str, &str)], scope: &[(&str, &str)], metrics: Vec<Metric>) -> Batch {
    let items = metrics.len() as u64;
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: attributes(resource),
                ..Default::default()
            }),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(InstrumentationScope {
                    name: "s".to_owned(),
                    attributes: attributes(scope),
                    ..Default::default()
                }),
                metrics,
                ..Default::default()
            }],
            ..Default::default()
        }],
    };
    Batch {
        signal: Signal::Metrics,
        parts: vec![Part {
            body: Bytes::from(request.encode_to_vec()),
            items,
            wire_format: WireFormat::Otlp,
            frame: None,
        }],
    }
}

/// Scenario: batches in which resource attributes, scope attributes, attributes of a point, labels that sluice makes, or names of series meet, each sent
/// twice, so that the second time all of it is known; one in which nothing does; and one with exemplars of a gauge.
/// Guarantees: each that gives way is counted both times, in the metrics that are exported, and nothing else is.
#[tokio::test]
async fn what_meets_is_counted() {
    let (url, _) = destination(|_, _| TAKEN).await;
    let service = [("service.name", "cart"), ("service.instance.id", "i")];
    let plain = || vec![gauge("m", &[], 0)];
    // Label collisions, name collisions, exemplars that are not sent.
    let cases: Vec<(&str, [u32; 3], Batch)> = vec![
        ("nothing", [0, 0, 0], batch_of(&service, &[("k", "1")], plain())),
        (
            "promoted",
            [1, 0, 0],
            batch_of(&[("a.b", "1"), ("a_b", "2")], &[], plain()),
        ),
        (
            "job, promoted",
            [1, 0, 0],
            batch_of(&[("job", "x"), service[0]], &[], plain()),
        ),
        (
            "of the scope",
            [1, 0, 0],
            batch_of(&[], &[("x.y", "1"), ("x_y", "2")], plain()),
        ),
        (
            "the scope's name",
            [1, 0, 0],
            batch_of(&[], &[("name", "1")], plain()),
        ),
        (
            "job, instance and scope name of a point",
            [3, 0, 0],
            batch_of(
                &service,
                &[],
                vec![gauge(
                    "m",
                    &[("job", "x"), ("instance", "y"), ("otel.scope.name", "z")],
                    0,
                )],
            ),
        ),
        (
            "job of a point with an attribute that is empty",
            [1, 0, 0],
            batch_of(&service, &[], vec![gauge("m", &[("job", "x"), ("empty", "")], 0)]),
        ),
        (
            "the name of the metric",
            [1, 0, 0],
            batch_of(&[], &[], vec![gauge("m", &[("__name__", "x")], 0)]),
        ),
        (
            "le",
            [1, 0, 0],
            batch_of(&[], &[], vec![histogram("h", &[("le", "x")])]),
        ),
        (
            "a histogram's count",
            [0, 1, 0],
            batch_of(&[], &[], vec![histogram("h", &[]), gauge("h.count", &[], 0)]),
        ),
        (
            "exemplars",
            [0, 0, 2],
            batch_of(&[], &[], vec![gauge("m", &[], 2)]),
        ),
    ];
    for (what, wanted, batch) in cases {
        let mut options = RemoteWriteExporterOptions {
            endpoint: url.clone(),
            ..Default::default()
        };
        options.encoder.mapping.promote = Promote::AllBut(Vec::new());
        options.encoder.mapping.target_info = false;
        let registry = Registry::default();
        let exporter = RemoteWriteExporter::new("rw", options, &registry).unwrap();
        for times in [1, 2] {
            assert_eq!(exporter.export(&batch).await, delivered(0));
            let page = registry.render();
            for (name, count) in ["label_collisions", "name_collisions", "dropped_exemplars"]
                .into_iter()
                .zip(wanted)
            {
                let line = format!(
                    "sluice_remote_write_{name}_total{{exporter=\"rw\"}} {}\n",
                    count * times
                );
                assert!(page.contains(&line), "{what}: no {line} in {page}");
            }
        }
    }
}
