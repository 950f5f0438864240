//! The SDK for Rust: crate `opentelemetry-otlp` over gRPC, HTTP with protobuf, and HTTP with JSON.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use opentelemetry::logs::{AnyValue, LogRecord, Logger, LoggerProvider, Severity};
use opentelemetry::metrics::MeterProvider;
use opentelemetry::trace::{Link, Span, SpanKind, Status, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Array, Context, InstrumentationScope, Key, KeyValue, Value};
use opentelemetry_otlp::{
    Compression, LogExporter, MetricExporter, Protocol, SpanExporter, WithExportConfig, WithHttpConfig,
    WithTonicConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::SdkLoggerProvider;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider, Temporality};
use opentelemetry_sdk::trace::SdkTracerProvider;
use sluice_tests::Kind;

use crate::Bench;

#[derive(Debug, Clone, Copy)]
enum Way {
    Grpc(bool),
    Http(Protocol, bool),
}

macro_rules! exporter {
    ($exporter:ident, $way:expr, $address:expr, $path:expr) => {
        match $way {
            Way::Grpc(gzip) => {
                let builder = $exporter::builder()
                    .with_tonic()
                    .with_endpoint(format!("http://{}", $address));
                let builder = if gzip {
                    builder.with_compression(Compression::Gzip)
                } else {
                    builder
                };
                builder.with_timeout(TIMEOUT).build().unwrap()
            }
            Way::Http(protocol, gzip) => {
                let endpoint = format!("http://{}{}", $address, $path);
                let builder = $exporter::builder()
                    .with_http()
                    .with_endpoint(endpoint)
                    .with_protocol(protocol);
                let builder = if gzip {
                    builder.with_compression(Compression::Gzip)
                } else {
                    builder
                };
                builder.with_timeout(TIMEOUT).build().unwrap()
            }
        }
    };
}

const TIMEOUT: Duration = Duration::from_secs(60);

const REFERENCE: Way = Way::Http(Protocol::HttpBinary, false);

/// Exports to both: two readers would read at different times.
struct Tee(MetricExporter, MetricExporter);

impl PushMetricExporter for Tee {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        self.0.export(metrics).await?;
        self.1.export(metrics).await
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn temporality(&self) -> Temporality {
        Temporality::Delta
    }
}

fn attributes(index: i64) -> Vec<KeyValue> {
    vec![
        KeyValue::new("string", "λ \u{1F980} \"quoted\" \\"),
        KeyValue::new("empty", ""),
        KeyValue::new("bool", false),
        KeyValue::new("max", i64::MAX),
        KeyValue::new("min", i64::MIN),
        KeyValue::new("double", 0.1 + 0.2),
        KeyValue::new(
            "strings",
            Value::Array(Array::String(vec!["a".into(), "".into()])),
        ),
        KeyValue::new(
            "ints",
            Value::Array(Array::I64(vec![1, -1, 9_007_199_254_740_993])),
        ),
        KeyValue::new("doubles", Value::Array(Array::F64(vec![1.5, -2.5e-300]))),
        KeyValue::new("bools", Value::Array(Array::Bool(vec![true, false]))),
        KeyValue::new("index", index),
    ]
}

fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("scope")
        .with_version("1.2.3")
        .with_schema_url("https://example.com/scope")
        .with_attributes([KeyValue::new("scope", true)])
        .build()
}

/// Sends three signals; blocks until everything has been answered.
fn send(way: Way, gateway: SocketAddr, reference: SocketAddr) {
    let resource = Resource::builder_empty().with_attributes(attributes(-1)).build();

    let tracers = SdkTracerProvider::builder()
        .with_resource(resource.clone())
        .with_batch_exporter(exporter!(SpanExporter, way, gateway, "/v1/traces"))
        .with_batch_exporter(exporter!(SpanExporter, REFERENCE, reference, "/v1/traces"))
        .build();
    let tracer = tracers.tracer_with_scope(scope());
    let root = tracer
        .span_builder("root")
        .with_kind(SpanKind::Server)
        .with_attributes(attributes(0))
        .start(&tracer);
    let context = Context::new().with_span(root);
    for index in 0..30 {
        let link = Link::new(context.span().span_context().clone(), attributes(index), 0);
        let mut span = tracer
            .span_builder(format!("child {index}"))
            .with_kind(SpanKind::Client)
            .with_attributes(attributes(index))
            .with_links(vec![link])
            .start_with_context(&tracer, &context);
        span.add_event("event", attributes(index));
        if index % 3 == 0 {
            span.set_status(Status::error("it failed"));
        }
        span.end();
    }
    context.span().end();
    tracers.shutdown().unwrap();

    let loggers = SdkLoggerProvider::builder()
        .with_resource(resource.clone())
        .with_batch_exporter(exporter!(LogExporter, way, gateway, "/v1/logs"))
        .with_batch_exporter(exporter!(LogExporter, REFERENCE, reference, "/v1/logs"))
        .build();
    let logger = loggers.logger_with_scope(scope());
    let nested: HashMap<Key, AnyValue> = HashMap::from([("inner".into(), AnyValue::Double(-0.5))]);
    let bodies = [
        AnyValue::String("text".into()),
        AnyValue::Int(5),
        AnyValue::Boolean(true),
        AnyValue::Bytes(Box::new(vec![0, 255])),
        AnyValue::ListAny(Box::new(vec![AnyValue::Int(1), AnyValue::String("two".into())])),
        AnyValue::Map(Box::new(nested)),
    ];
    for index in 0..40_u64 {
        let mut record = logger.create_log_record();
        record.set_timestamp(std::time::UNIX_EPOCH + Duration::from_nanos(1_767_225_600_000_000_000 + index));
        record
            .set_observed_timestamp(std::time::UNIX_EPOCH + Duration::from_nanos(1_767_225_600_000_000_001));
        record.set_severity_number(Severity::Warn2);
        record.set_severity_text("WARN2");
        record.set_event_name("an.event");
        record.set_body(bodies[index as usize % bodies.len()].clone());
        for (key, value) in bodies.iter().enumerate() {
            record.add_attribute(format!("attribute {key}"), value.clone());
        }
        record.add_attribute("index", index as i64);
        logger.emit(record);
    }
    loggers.shutdown().unwrap();

    let tee = Tee(
        exporter!(MetricExporter, way, gateway, "/v1/metrics"),
        exporter!(MetricExporter, REFERENCE, reference, "/v1/metrics"),
    );
    let reader = PeriodicReader::builder(tee)
        .with_interval(Duration::from_secs(3600))
        .build();
    let meters = SdkMeterProvider::builder()
        .with_resource(resource)
        .with_reader(reader)
        .build();
    let meter = meters.meter_with_scope(scope());
    let counter = meter
        .u64_counter("counter")
        .with_unit("By")
        .with_description("Bytes counted.")
        .build();
    let updown = meter.i64_up_down_counter("updown").build();
    let gauge = meter.f64_gauge("gauge").build();
    let histogram = meter.f64_histogram("histogram").build();
    for index in 0..20 {
        let attributes = attributes(index);
        counter.add((1 << 40) + index as u64, &attributes);
        updown.add(-index, &attributes);
        gauge.record(index as f64 - 273.15, &attributes);
        histogram.record(index as f64, &attributes);
    }
    meters.force_flush().unwrap();
    meters.shutdown().unwrap();
}

async fn sends(way: Way) {
    let bench = Bench::new().await;
    let address = match way {
        Way::Grpc(_) => bench.gateway.grpc(),
        Way::Http(..) => bench.gateway.http(),
    };
    let reference = bench.reference.address();
    let runtime = tokio::runtime::Handle::current();
    // The SDK has threads of its own and blocks; tonic needs to know a runtime.
    let thread = std::thread::spawn(move || {
        let _entered = runtime.enter();
        send(way, address, reference);
    });
    tokio::task::spawn_blocking(|| thread.join())
        .await
        .unwrap()
        .expect("the SDK sends everything");
    bench
        .assert_equal(&[(Kind::Traces, 31), (Kind::Logs, 40), (Kind::Metrics, 80)])
        .await;
}

/// Scenario: crate `opentelemetry-otlp` sends spans, metrics and log records with attributes of every type
/// over gRPC (tonic), plain and with gzip.
/// Guarantees: every item arrives once, equal to what a destination without a gateway receives.
#[tokio::test(flavor = "multi_thread")]
async fn rust_over_grpc() {
    sends(Way::Grpc(false)).await;
    sends(Way::Grpc(true)).await;
}

/// Scenario: the same over HTTP with protobuf.
/// Guarantees: as above.
#[tokio::test(flavor = "multi_thread")]
async fn rust_over_http_protobuf() {
    sends(Way::Http(Protocol::HttpBinary, false)).await;
    sends(Way::Http(Protocol::HttpBinary, true)).await;
}

/// Scenario: the same over HTTP with JSON.
/// Guarantees: as above.
#[tokio::test(flavor = "multi_thread")]
async fn rust_over_http_json() {
    sends(Way::Http(Protocol::HttpJson, false)).await;
    sends(Way::Http(Protocol::HttpJson, true)).await;
}
