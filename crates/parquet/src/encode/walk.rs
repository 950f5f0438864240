//! From the bytes of a request to rows, in one direction: each row goes to the table and hour it belongs to.

use sluice_wire::{MetricKind, Request};

use super::EncodeError;
use super::attributes::Repairs;
use super::logs;
use super::metrics::MetricSource;
use super::source::Source;
use super::table::{Rows, Table};

/// Where rows go.
pub(crate) trait Sink {
    /// The rows of `table` that one of this time (Unix nanoseconds) belongs to; exactly one, of some `bytes`, is pushed next.
    fn open(&mut self, table: Table, time_unix_nano: u64, bytes: usize) -> Result<&mut Rows, EncodeError>;
}

/// Reads requests; kept, so that what it reads into is allocated once.
#[derive(Debug, Default)]
pub(crate) struct Walker {
    source: Source,
    metric: MetricSource,
    /// What was repaired since somebody asked.
    pub repairs: Repairs,
}

/// Bytes of a row beside its record, resource and scope: numbers, mostly.
const ROW_BYTES: usize = 128;

/// Rows of another table than was asked for: a fault of a [`Sink`].
fn mixed_up() -> EncodeError {
    EncodeError::Internal("a row was led to another table than its own")
}

impl Walker {
    /// Pushes every item of a request; returns how many rows that made.
    pub fn walk(&mut self, request: &Request<'_>, sink: &mut impl Sink) -> Result<u64, EncodeError> {
        let mut rows = 0;
        for resource in request.resources() {
            self.source.set_resource(&resource, &mut self.repairs);
            for scope in resource.scopes() {
                self.source.set_scope(&scope, &mut self.repairs);
                let bytes = ROW_BYTES + self.source.bytes();
                for record in scope.log_records() {
                    let size = bytes + record.raw().len();
                    let Rows::Logs(logs) = sink.open(Table::Logs, logs::time(&record), size)? else {
                        return Err(mixed_up());
                    };
                    logs.push(&self.source, &record, &mut self.repairs);
                    rows += 1;
                }
                for span in scope.spans() {
                    let size = bytes + span.raw().len();
                    let Rows::Spans(spans) = sink.open(Table::Spans, span.start_time_unix_nano(), size)?
                    else {
                        return Err(mixed_up());
                    };
                    spans.push(&self.source, &span, &mut self.repairs);
                    rows += 1;
                }
                for metric in scope.metrics() {
                    let Some(data) = metric.data() else { continue };
                    self.metric.set(&metric, &data, &mut self.repairs);
                    let bytes = bytes + self.metric.bytes();
                    let table = table_of(data.kind());
                    for point in data.points() {
                        let size = bytes + point.raw().len();
                        let (source, metric, raw) = (&self.source, &self.metric, point.raw());
                        let repairs = &mut self.repairs;
                        match sink.open(table, point.time_unix_nano(), size)? {
                            Rows::MetricsNumber(rows) => rows.push(source, metric, raw, repairs),
                            Rows::MetricsHistogram(rows) => rows.push(source, metric, raw, repairs),
                            Rows::MetricsExpHistogram(rows) => rows.push(source, metric, raw, repairs),
                            Rows::MetricsSummary(rows) => rows.push(source, metric, raw, repairs),
                            Rows::Logs(_) | Rows::Spans(_) => return Err(mixed_up()),
                        }
                        rows += 1;
                    }
                }
            }
        }
        Ok(rows)
    }
}

fn table_of(kind: MetricKind) -> Table {
    match kind {
        MetricKind::Gauge | MetricKind::Sum => Table::MetricsNumber,
        MetricKind::Histogram => Table::MetricsHistogram,
        MetricKind::ExponentialHistogram => Table::MetricsExpHistogram,
        MetricKind::Summary => Table::MetricsSummary,
    }
}
