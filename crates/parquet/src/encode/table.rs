//! The tables there are, and the rows of one of them that wait to be encoded.

use arrow_schema::{FieldRef, Schema, SchemaRef};
use std::sync::Arc;

use super::column::{Columns, Ending};
use super::file::FileSettings;
use super::logs::Logs;
use super::points::{ExponentialPoints, HistogramPoints, NumberPoints, SummaryPoints};
use super::spans::Spans;

/// A table: one directory of files with one schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    /// Log records.
    Logs,
    /// Spans.
    Spans,
    /// Points of gauges and sums.
    MetricsNumber,
    /// Points of histograms.
    MetricsHistogram,
    /// Points of exponential histograms.
    MetricsExpHistogram,
    /// Points of summaries.
    MetricsSummary,
}

impl Table {
    /// All of them.
    pub const ALL: [Table; 6] = [
        Table::Logs,
        Table::Spans,
        Table::MetricsNumber,
        Table::MetricsHistogram,
        Table::MetricsExpHistogram,
        Table::MetricsSummary,
    ];

    /// Its name, which is that of its directory.
    pub fn name(self) -> &'static str {
        match self {
            Table::Logs => "logs",
            Table::Spans => "spans",
            Table::MetricsNumber => "metrics_number",
            Table::MetricsHistogram => "metrics_histogram",
            Table::MetricsExpHistogram => "metrics_exp_histogram",
            Table::MetricsSummary => "metrics_summary",
        }
    }

    /// The columns of this table, with the promoted ones of `settings`.
    pub fn schema(self, settings: &FileSettings) -> SchemaRef {
        let columns = Rows::new(self, settings).take(&mut Ending::default());
        Arc::new(Schema::new(columns.fields))
    }

    /// Names of the columns that rows can be sorted by: those of single values. Promoted ones are, too.
    pub fn sortable_columns(self) -> Vec<String> {
        let schema = self.schema(&FileSettings::default());
        let single = |field: &&FieldRef| !field.data_type().is_nested();
        schema
            .fields()
            .iter()
            .filter(single)
            .map(|field| field.name().clone())
            .collect()
    }
}

/// Rows of one table.
#[derive(Debug)]
pub(crate) enum Rows {
    Logs(Logs),
    Spans(Spans),
    MetricsNumber(NumberPoints),
    MetricsHistogram(HistogramPoints),
    MetricsExpHistogram(ExponentialPoints),
    MetricsSummary(SummaryPoints),
}

impl Rows {
    pub fn new(table: Table, settings: &FileSettings) -> Self {
        match table {
            Table::Logs => Self::Logs(Logs::new(settings)),
            Table::Spans => Self::Spans(Spans::new(settings)),
            Table::MetricsNumber => Self::MetricsNumber(NumberPoints::new(settings)),
            Table::MetricsHistogram => Self::MetricsHistogram(HistogramPoints::new(settings)),
            Table::MetricsExpHistogram => Self::MetricsExpHistogram(ExponentialPoints::new(settings)),
            Table::MetricsSummary => Self::MetricsSummary(SummaryPoints::new(settings)),
        }
    }

    /// The columns of all rows, in the order of the schema; no rows are left.
    pub fn take(&mut self, ending: &mut Ending) -> Columns {
        match self {
            Self::Logs(rows) => rows.finish(ending),
            Self::Spans(rows) => rows.finish(ending),
            Self::MetricsNumber(rows) => rows.finish(ending),
            Self::MetricsHistogram(rows) => rows.finish(ending),
            Self::MetricsExpHistogram(rows) => rows.finish(ending),
            Self::MetricsSummary(rows) => rows.finish(ending),
        }
    }
}
