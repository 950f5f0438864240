//! Decoded requests, compared without regard to how they were batched.

use std::fmt::Debug;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

use crate::Kind;

/// Every item with everything that belongs to it (resource, scope, schema URLs, metric), as text in
/// sorted order: two sets of requests carry the same telemetry if and only if these are equal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Items(Vec<String>);

impl Items {
    /// Their number.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The items.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Panics with the first difference unless both hold the same items, each as often.
    pub fn assert_same(&self, other: &Items) {
        for (mine, theirs) in self.0.iter().zip(&other.0) {
            assert_eq!(mine, theirs);
        }
        assert_eq!(self.len(), other.len(), "the number of items differs");
    }
}

impl FromIterator<Items> for Items {
    fn from_iter<T: IntoIterator<Item = Items>>(sets: T) -> Self {
        let mut all: Vec<_> = sets.into_iter().flat_map(|items| items.0).collect();
        all.sort_unstable();
        Items(all)
    }
}

fn sorted(attributes: &mut [KeyValue]) {
    attributes.sort_by(|a, b| a.key.cmp(&b.key));
}

struct Walk(Vec<String>);

impl Walk {
    fn resource(resource: Option<Resource>, schema: &str) -> String {
        let resource = resource.map(|mut resource| {
            sorted(&mut resource.attributes);
            resource
        });
        format!("{resource:?} {schema:?}")
    }

    fn scope(scope: Option<InstrumentationScope>, schema: &str) -> String {
        let scope = scope.map(|mut scope| {
            sorted(&mut scope.attributes);
            scope
        });
        format!("{scope:?} {schema:?}")
    }

    fn item(&mut self, resource: &str, scope: &str, item: impl Debug) {
        self.0.push(format!("{resource} | {scope} | {item:?}"));
    }
}

/// The items of a protobuf request body.
pub fn items_of(kind: Kind, body: &[u8]) -> Items {
    let mut walk = Walk(Vec::new());
    let wrong = |error: prost::DecodeError| -> ! { panic!("not a {kind:?} request: {error}") };
    match kind {
        Kind::Traces => {
            let request = ExportTraceServiceRequest::decode(body).unwrap_or_else(|error| wrong(error));
            for spans in request.resource_spans {
                let resource = Walk::resource(spans.resource, &spans.schema_url);
                for spans in spans.scope_spans {
                    let scope = Walk::scope(spans.scope, &spans.schema_url);
                    for mut span in spans.spans {
                        sorted(&mut span.attributes);
                        span.events
                            .iter_mut()
                            .for_each(|event| sorted(&mut event.attributes));
                        span.links
                            .iter_mut()
                            .for_each(|link| sorted(&mut link.attributes));
                        walk.item(&resource, &scope, span);
                    }
                }
            }
        }
        Kind::Logs => {
            let request = ExportLogsServiceRequest::decode(body).unwrap_or_else(|error| wrong(error));
            for logs in request.resource_logs {
                let resource = Walk::resource(logs.resource, &logs.schema_url);
                for logs in logs.scope_logs {
                    let scope = Walk::scope(logs.scope, &logs.schema_url);
                    for mut record in logs.log_records {
                        sorted(&mut record.attributes);
                        walk.item(&resource, &scope, record);
                    }
                }
            }
        }
        Kind::Metrics => {
            let request = ExportMetricsServiceRequest::decode(body).unwrap_or_else(|error| wrong(error));
            for metrics in request.resource_metrics {
                let resource = Walk::resource(metrics.resource, &metrics.schema_url);
                for metrics in metrics.scope_metrics {
                    let scope = Walk::scope(metrics.scope, &metrics.schema_url);
                    for metric in metrics.metrics {
                        walk.metric(&resource, &scope, metric);
                    }
                }
            }
        }
        Kind::Profiles => walk.0.push(format!("{body:?}")),
    }
    walk.0.sort_unstable();
    Items(walk.0)
}

impl Walk {
    fn metric(
        &mut self,
        resource: &str,
        scope: &str,
        mut metric: opentelemetry_proto::tonic::metrics::v1::Metric,
    ) {
        sorted(&mut metric.metadata);
        macro_rules! each_point {
            ($kind:ident, $data:ident) => {{
                for mut point in std::mem::take(&mut $data.data_points) {
                    sorted(&mut point.attributes);
                    let one = Data::$kind(opentelemetry_proto::tonic::metrics::v1::$kind {
                        data_points: vec![point],
                        ..$data.clone()
                    });
                    let mut metric = metric.clone();
                    metric.data = Some(one);
                    self.item(resource, scope, metric);
                }
            }};
        }
        macro_rules! each_plain_point {
            ($kind:ident, $data:ident) => {{
                for mut point in $data.data_points {
                    sorted(&mut point.attributes);
                    let one = Data::$kind(opentelemetry_proto::tonic::metrics::v1::$kind {
                        data_points: vec![point],
                    });
                    let mut metric = metric.clone();
                    metric.data = Some(one);
                    self.item(resource, scope, metric);
                }
            }};
        }
        match metric.data.take() {
            None => {}
            Some(Data::Gauge(data)) => each_plain_point!(Gauge, data),
            Some(Data::Summary(data)) => each_plain_point!(Summary, data),
            Some(Data::Sum(mut data)) => each_point!(Sum, data),
            Some(Data::Histogram(mut data)) => each_point!(Histogram, data),
            Some(Data::ExponentialHistogram(mut data)) => each_point!(ExponentialHistogram, data),
        }
    }
}
