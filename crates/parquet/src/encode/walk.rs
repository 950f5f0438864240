//! From the bytes of a request to rows, in one direction: each row goes to the table and hour it belongs to.

use sluice_wire::{MetricKind, Request, prefetch};

use super::EncodeError;
use super::attributes::{Pairs, Reading, Repairs};
use super::keys::Keys;
use super::logs::Record;
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
    keys: Keys,
    repairs: Repairs,
    /// These hold parts of a request while it is walked, and nothing but room in between.
    source: Source<'static>,
    metric: MetricSource<'static>,
    pairs: Pairs<'static>,
}

/// Bytes of a row beside its record, resource and scope: numbers, mostly.
const ROW_BYTES: usize = 128;

/// Rows of another table than was asked for: a fault of a [`Sink`].
fn mixed_up() -> EncodeError {
    EncodeError::Internal("a row was led to another table than its own")
}

impl Walker {
    /// What was repaired since the last time.
    pub fn take_repairs(&mut self) -> Repairs {
        std::mem::take(&mut self.repairs)
    }

    /// Pushes every item of a request; returns how many rows that made.
    pub fn walk(&mut self, request: &Request<'_>, sink: &mut impl Sink) -> Result<u64, EncodeError> {
        let mut source = std::mem::take(&mut self.source).emptied();
        let mut metric = std::mem::take(&mut self.metric).emptied();
        let mut reading = Reading {
            keys: &mut self.keys,
            repairs: &mut self.repairs,
            pairs: std::mem::take(&mut self.pairs).emptied(),
        };
        let rows = walk(request, sink, &mut source, &mut metric, &mut reading);
        self.pairs = reading.pairs.emptied();
        self.source = source.emptied();
        self.metric = metric.emptied();
        rows
    }
}

fn walk<'a>(
    request: &Request<'a>,
    sink: &mut impl Sink,
    source: &mut Source<'a>,
    of: &mut MetricSource<'a>,
    reading: &mut Reading<'a>,
) -> Result<u64, EncodeError> {
    let mut rows = 0;
    for resource in request.resources() {
        reach(resource.raw());
        source.set_resource(&resource, reading.keys, reading.repairs);
        for scope in resource.scopes() {
            source.set_scope(&scope, reading.keys, reading.repairs);
            let bytes = ROW_BYTES + source.bytes();
            for record in scope.log_records() {
                let size = bytes + record.raw().len();
                let record = Record::read(record, reading);
                let Rows::Logs(logs) = sink.open(Table::Logs, record.shown_time(), size)? else {
                    return Err(mixed_up());
                };
                logs.push(source, &record, reading);
                rows += 1;
            }
            for span in scope.spans() {
                let size = bytes + span.raw().len();
                let Rows::Spans(spans) = sink.open(Table::Spans, span.start_time_unix_nano(), size)? else {
                    return Err(mixed_up());
                };
                spans.push(source, &span, reading);
                rows += 1;
            }
            for metric in scope.metrics() {
                let Some(data) = metric.data() else { continue };
                of.set(&metric, &data, reading);
                let bytes = bytes + of.bytes();
                let table = table_of(data.kind());
                for point in data.points() {
                    let size = bytes + point.raw().len();
                    let raw = point.raw();
                    match sink.open(table, point.time_unix_nano(), size)? {
                        Rows::MetricsNumber(rows) => rows.push(source, of, raw, reading),
                        Rows::MetricsHistogram(rows) => rows.push(source, of, raw, reading),
                        Rows::MetricsExpHistogram(rows) => rows.push(source, of, raw, reading),
                        Rows::MetricsSummary(rows) => rows.push(source, of, raw, reading),
                        Rows::Logs(_) | Rows::Spans(_) => return Err(mixed_up()),
                    }
                    rows += 1;
                }
            }
        }
    }
    Ok(rows)
}

/// So much of a resource is asked for before it is read: more would have left the caches again.
const MOST_AHEAD: usize = 256 << 10;

/// Asks memory for what is read next. The next field is found by the length of the one before, and so, in a request that lies in memory,
/// each of them waits for memory after the other; asked for before, they come together.
fn reach(resource: &[u8]) {
    prefetch(&resource[..resource.len().min(MOST_AHEAD)]);
}

fn table_of(kind: MetricKind) -> Table {
    match kind {
        MetricKind::Gauge | MetricKind::Sum => Table::MetricsNumber,
        MetricKind::Histogram => Table::MetricsHistogram,
        MetricKind::ExponentialHistogram => Table::MetricsExpHistogram,
        MetricKind::Summary => Table::MetricsSummary,
    }
}
