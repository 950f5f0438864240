"""Sends log records with the OpenTelemetry SDK for Python, faster than they are taken, with the SDK's own retries and nothing else.

    overload.py grpc|http GATEWAY PREFIX BATCHES PER_BATCH INTERVAL_SECONDS

Every body is PREFIX and a number. Exits with 1 when the SDK gave up a batch.
"""

import sys
import time

from opentelemetry._logs import LogRecord
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter

transport, gateway, prefix, batches, per_batch, interval = sys.argv[1:]
batches, per_batch, interval = int(batches), int(per_batch), float(interval)

if transport == "grpc":
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter

    exporter = OTLPLogExporter(endpoint=gateway, insecure=True)
else:
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter

    exporter = OTLPLogExporter(endpoint=f"http://{gateway}/v1/logs")

given_up = []


class Watched(LogRecordExporter):
    """The SDK's exporter, and what it gave up."""

    def export(self, batch, **kwargs):
        result = exporter.export(batch, **kwargs)
        if result.name != "SUCCESS":
            given_up.append(len(batch))
        return result

    def shutdown(self):
        exporter.shutdown()

    def force_flush(self, *args, **kwargs):
        return True


loggers = LoggerProvider()
# The queue holds all of it: what is dropped before it is sent says nothing about the gateway.
loggers.add_log_record_processor(
    BatchLogRecordProcessor(Watched(), max_queue_size=batches * per_batch, max_export_batch_size=per_batch)
)
logger = loggers.get_logger("overload")
number = 0
for _ in range(batches):
    for _ in range(per_batch):
        logger.emit(LogRecord(body=f"{prefix}{number}"))
        number += 1
    time.sleep(interval)
assert loggers.force_flush()
loggers.shutdown()
sys.exit(f"given up: {given_up}" if given_up else 0)
