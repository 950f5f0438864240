"""Sends spans, metrics and log records with the OpenTelemetry SDK for Python.

Every batch is exported twice: to the gateway, over the transport and with the compression asked for,
and to a reference that is not the gateway, over plain HTTP. Both must have received the same.

    send.py grpc|http none|gzip GATEWAY REFERENCE
"""

import sys

from opentelemetry import trace
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression as HttpCompression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

transport, compression, gateway, reference = sys.argv[1:]

if transport == "grpc":
    import grpc
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as Logs
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as Metrics
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Spans

    kind = {"none": grpc.Compression.NoCompression, "gzip": grpc.Compression.Gzip}[compression]

    def to_gateway(exporter, path):
        return exporter(endpoint=gateway, insecure=True, compression=kind, timeout=60)
else:
    Logs, Metrics, Spans = HttpLogs, HttpMetrics, HttpSpans
    kind = {"none": HttpCompression.NoCompression, "gzip": HttpCompression.Gzip}[compression]

    def to_gateway(exporter, path):
        return exporter(endpoint=f"http://{gateway}{path}", compression=kind, timeout=60)


def to_reference(exporter, path):
    return exporter(endpoint=f"http://{reference}{path}", timeout=60)


failed = []


class Tee:
    """Exports to both, and remembers what failed."""

    def both(self, ours, theirs):
        self.exporters = [ours, theirs]

    def export(self, batch, **kwargs):
        results = [exporter.export(batch, **kwargs) for exporter in self.exporters]
        failed.extend(result for result in results if result.name != "SUCCESS")
        return results[0]

    def shutdown(self, *args, **kwargs):
        for exporter in self.exporters:
            exporter.shutdown()

    def force_flush(self, *args, **kwargs):
        return True


class SpanTee(Tee, SpanExporter):
    pass


class LogTee(Tee, LogRecordExporter):
    pass


class MetricTee(Tee, MetricExporter):
    pass


ATTRIBUTES = {
    "string": "λ \U0001f980 \"quoted\" \\",
    "empty": "",
    "true": True,
    "false": False,
    "max": 2**63 - 1,
    "min": -(2**63),
    "double": 0.1 + 0.2,
    "strings": ["a", "", "c"],
    "bools": [True, False],
    "ints": [1, -1, 2**53 + 1],
    "doubles": [1.5, -2.5e-300],
    "none": [],
}

resource = Resource.create({"service.name": "python-sdk", **ATTRIBUTES})

tee = SpanTee()
tee.both(to_gateway(Spans, "/v1/traces"), to_reference(HttpSpans, "/v1/traces"))
tracers = TracerProvider(resource=resource)
tracers.add_span_processor(BatchSpanProcessor(tee))
tracer = tracers.get_tracer("scope", "1.2.3", schema_url="https://example.com/scope", attributes={"scope": True})
with tracer.start_as_current_span("root", kind=SpanKind.SERVER, attributes=ATTRIBUTES) as root:
    for index in range(30):
        links = [Link(root.get_span_context(), ATTRIBUTES)]
        with tracer.start_as_current_span(f"child {index}", kind=SpanKind.CLIENT, links=links) as child:
            child.set_attributes({**ATTRIBUTES, "index": index})
            child.add_event("event", ATTRIBUTES)
            if index % 3 == 0:
                child.set_status(Status(StatusCode.ERROR, "it failed"))
                child.record_exception(ValueError("boom"))
context = trace.set_span_in_context(root)

tee = LogTee()
tee.both(to_gateway(Logs, "/v1/logs"), to_reference(HttpLogs, "/v1/logs"))
loggers = LoggerProvider(resource=resource)
loggers.add_log_record_processor(BatchLogRecordProcessor(tee))
logger = loggers.get_logger("scope", "1.2.3", schema_url="https://example.com/scope", attributes={"scope": True})
bodies = ["text", 5, 2.5, True, b"\x00\xff", [1, "two", [3.0]], {"nested": {"deep": [1, {"er": None}]}}, None]
for index in range(40):
    logger.emit(
        LogRecord(
            timestamp=1_767_225_600_000_000_000 + index,
            observed_timestamp=1_767_225_600_000_000_001 + index,
            context=context,
            severity_text="WARN",
            severity_number=SeverityNumber.WARN,
            body=bodies[index % len(bodies)],
            attributes={**ATTRIBUTES, "nested": {"a": [1, {"b": b"\x01"}]}, "index": index},
            event_name="an.event",
        )
    )

tee = MetricTee()
tee.both(to_gateway(Metrics, "/v1/metrics"), to_reference(HttpMetrics, "/v1/metrics"))
exponential = View(instrument_name="exponential", aggregation=ExponentialBucketHistogramAggregation())
meters = MeterProvider(
    resource=resource,
    metric_readers=[PeriodicExportingMetricReader(tee, export_interval_millis=3_600_000)],
    views=[exponential],
)
meter = meters.get_meter("scope", "1.2.3", schema_url="https://example.com/scope", attributes={"scope": True})
counter = meter.create_counter("counter", "By", "Bytes counted.")
updown = meter.create_up_down_counter("updown")
gauge = meter.create_gauge("gauge", "Cel")
histogram = meter.create_histogram("histogram", "ms")
exponential = meter.create_histogram("exponential", "ms")
for index in range(20):
    attributes = {**ATTRIBUTES, "index": index}
    counter.add(2**40 + index, attributes)
    updown.add(-1.5, attributes)
    gauge.set(-273.15 + index, attributes)
    histogram.record(index, attributes)
    exponential.record(1.0 / (index + 1), attributes)

assert tracers.force_flush(60_000) and loggers.force_flush(60_000) and meters.force_flush(60_000)
for provider in (tracers, loggers):
    provider.shutdown()
sys.exit(f"exports failed: {failed}" if failed else 0)
