//! Requests of many points with few attributes under one resource: what transcoding to remote write is measured on.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

fn attribute(key: &str, value: String) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(value)),
        }),
        ..Default::default()
    }
}

/// Keys of resources as Kubernetes has them; the first three are those of every SDK.
const RESOURCE: [&str; 12] = [
    "service.name",
    "service.instance.id",
    "host.name",
    "k8s.namespace.name",
    "k8s.pod.name",
    "k8s.node.name",
    "k8s.deployment.name",
    "k8s.cluster.name",
    "cloud.region",
    "cloud.availability_zone",
    "deployment.environment.name",
    "telemetry.sdk.language",
];

/// An `ExportMetricsServiceRequest` of `points` gauge points, a hundred a metric, with one attribute each, under one
/// resource with this many attributes (at most twelve). Every point is a series of its own, from series `first` on.
#[must_use]
pub fn points(points: usize, resource_attributes: usize, first: usize) -> Vec<u8> {
    let number = |n: usize| NumberDataPoint {
        attributes: vec![attribute("http.route", format!("/api/v1/items/{n:06}"))],
        time_unix_nano: 1_790_000_000_000_000_000,
        value: Some(number_data_point::Value::AsDouble(n as f64 * 1.25)),
        ..Default::default()
    };
    let metrics = (0..points.div_ceil(100)).map(|metric| Metric {
        name: format!("http.server.active_requests.{metric}"),
        unit: "{request}".to_owned(),
        data: Some(metric::Data::Gauge(Gauge {
            data_points: (metric * 100..points.min(metric * 100 + 100))
                .map(|n| number(first + n))
                .collect(),
        })),
        ..Default::default()
    });
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: RESOURCE
                    .iter()
                    .take(resource_attributes)
                    .map(|key| attribute(key, format!("{key}-value-0001")))
                    .collect(),
                ..Default::default()
            }),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(InstrumentationScope {
                    name: "io.opentelemetry.http".to_owned(),
                    version: "1.2.3".to_owned(),
                    ..Default::default()
                }),
                metrics: metrics.collect(),
                ..Default::default()
            }],
            ..Default::default()
        }],
    };
    request.encode_to_vec()
}
