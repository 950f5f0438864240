//! Rows of a row group that wait unencoded until they can be sorted.

use std::cmp::Ordering;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_ord::ord::{DynComparator, make_comparator};
use arrow_schema::{Schema, SortOptions};
use arrow_select::concat::concat;
use arrow_select::interleave::interleave_record_batch;
use parquet::file::metadata::SortingColumn;
use parquet::schema::types::SchemaDescriptor;

use super::EncodeError;
use super::file::{BATCH_ROWS, ROW_GROUP_ROWS};

/// Bytes of rows that wait to be sorted, as Arrow arrays: wide rows make smaller row groups. As much as a row group that is
/// encoded on the way may have at its worst.
const WAITING_BYTES: usize = 64 << 20;

/// Rows that have no value come behind those that have one.
const ORDER: SortOptions = SortOptions {
    descending: false,
    nulls_first: false,
};

/// The rows of a row group, in the order in which they came.
#[derive(Debug)]
pub(super) struct SortedRows {
    /// What rows are sorted by, as places in the schema, the first one first.
    keys: Vec<usize>,
    batches: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
    from: u64,
}

impl SortedRows {
    /// Rows that are sorted by those of the columns that the table has.
    pub fn new(columns: &[String], schema: &Schema) -> Self {
        Self {
            keys: columns
                .iter()
                .filter_map(|name| schema.index_of(name).ok())
                .collect(),
            batches: Vec::new(),
            rows: 0,
            bytes: 0,
            from: 0,
        }
    }

    /// What the file says of its order.
    pub fn sorting_columns(&self, schema: &Schema, leaves: &SchemaDescriptor) -> Vec<SortingColumn> {
        let leaf = |key: &usize| {
            let name = schema.field(*key).name();
            leaves
                .columns()
                .iter()
                .position(|leaf| leaf.path().parts() == [name.as_str()])
        };
        self.keys
            .iter()
            .map_while(leaf)
            .filter_map(|leaf| i32::try_from(leaf).ok())
            .map(|column_idx| SortingColumn {
                column_idx,
                descending: ORDER.descending,
                nulls_first: ORDER.nulls_first,
            })
            .collect()
    }

    /// Adds rows that were so many bytes of OTLP.
    pub fn push(&mut self, batch: RecordBatch, from: u64) {
        self.from += from;
        self.rows += batch.num_rows();
        self.bytes += batch.get_array_memory_size();
        self.batches.push(batch);
    }

    /// Whether the row group has all the rows that it may have: the next batch goes into the next one.
    pub fn is_full(&self) -> bool {
        self.rows + BATCH_ROWS > ROW_GROUP_ROWS || self.bytes >= WAITING_BYTES
    }

    /// Bytes of memory that they have.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of OTLP that they were.
    pub fn from(&self) -> u64 {
        self.from
    }

    /// Gives all rows away, sorted, some at a time; what they were as bytes of OTLP. Rows that are alike stay in the order in which they came.
    pub fn drain(
        &mut self,
        mut each: impl FnMut(&RecordBatch) -> Result<(), EncodeError>,
    ) -> Result<u64, EncodeError> {
        let batches = std::mem::take(&mut self.batches);
        let from = std::mem::take(&mut self.from);
        (self.rows, self.bytes) = (0, 0);
        let comparators = self
            .keys
            .iter()
            .map(|key| comparator(&batches, *key))
            .collect::<Result<Vec<_>, EncodeError>>()?;
        let mut places: Vec<(usize, usize)> = Vec::new();
        for (batch, rows) in batches.iter().enumerate() {
            places.extend((0..rows.num_rows()).map(|row| (batch, row)));
        }
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_by(|a, b| {
            comparators
                .iter()
                .map(|compare| compare(*a, *b))
                .find(|ordering| ordering.is_ne())
                .unwrap_or(Ordering::Equal)
        });
        let batches: Vec<&RecordBatch> = batches.iter().collect();
        for rows in order.chunks(BATCH_ROWS) {
            let rows: Vec<(usize, usize)> = rows.iter().map(|row| places[*row]).collect();
            each(&interleave_record_batch(&batches, &rows)?)?;
        }
        Ok(from)
    }
}

/// Compares rows by one column, by their places in all batches together.
fn comparator(batches: &[RecordBatch], key: usize) -> Result<DynComparator, EncodeError> {
    let columns: Vec<&dyn Array> = batches.iter().map(|batch| batch.column(key).as_ref()).collect();
    let values: ArrayRef = concat(&columns)?;
    Ok(make_comparator(&values, &values, ORDER)?)
}

#[cfg(test)]
mod tests;
