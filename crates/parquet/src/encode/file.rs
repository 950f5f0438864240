//! One Parquet file as it is written: rows gather into batches, batches into row groups.
//!
//! Memory is bounded whatever comes: a batch is at most [`BATCH_ROWS`] rows and, but for its last row, [`BATCH_BYTES`];
//! a row group is cut at [`ROW_GROUP_BYTES`] of what its encoders hold.

use std::io::Write;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, SchemaRef};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;

use super::EncodeError;
use super::attributes::Repairs;
use super::column::{Columns, Ending};
use super::pages::PageWriter;
use super::promote::Promotion;
use super::sorted::SortedRows;
use super::table::{Rows, Table};

/// Rows that are encoded at once, and rows of a page: fewer cost more each (15% below 10,000 rows) and compress worse, more keep
/// more memory, and readers skip less.
pub(crate) const BATCH_ROWS: usize = 16 << 10;

/// Bytes of rows that are encoded at once, before encoding: so that a batch of large rows stays small, and far from
/// the 2 GiB that Arrow's offsets reach.
pub(crate) const BATCH_BYTES: usize = 16 << 20;

/// Rows of a row group: what readers skip, and what they read in parallel. 128 Ki rows is what engines like best.
pub(crate) const ROW_GROUP_ROWS: usize = 128 << 10;

/// Encoded bytes of a row group that are held until it is written: wide rows make smaller row groups.
pub(crate) const ROW_GROUP_BYTES: usize = 32 << 20;

/// Memory of a row group, pages and dictionaries with their tables: many columns with many values make smaller row groups, so
/// that a file at its worst has this and the rows that wait.
pub(crate) const ROW_GROUP_MEMORY: usize = 64 << 20;

/// Values of these columns rarely occur twice: a dictionary of them is work for nothing.
pub(crate) const UNIQUE: &[&str] = &["trace_id", "span_id", "parent_span_id"];

/// Times go up by little: their differences are small.
pub(crate) const TIMES: &[&str] = &[
    "timestamp",
    "time_unix_nano",
    "observed_time_unix_nano",
    "end_time_unix_nano",
    "duration_nano",
];

/// What is looked for by its exact text: these columns have a Bloom filter for each row group.
pub(crate) const FILTERED: &[&str] = &["trace_id", "service_name"];

/// What a schema of this crate is called in the files' metadata; raised when columns change their meaning.
pub(crate) const SCHEMA_VERSION: &str = "1";

/// How files are written.
#[derive(Debug, Clone)]
pub struct FileSettings {
    /// Attributes with a column of their own.
    pub promotions: Vec<Promotion>,
    /// Level of zstd: 1 is as quick as snappy, and 3 gains nothing over it on telemetry.
    pub zstd_level: i32,
    /// Who makes the pages. What is in the file is the same.
    pub encoder: PageEncoder,
    /// Columns by which the rows of each row group are sorted, the first one first, as far as a table has them. `ArrowWriter` makes the pages then, since
    /// rows have to wait for the others of their row group before anything of them is encoded.
    pub sort_by: Vec<String>,
    /// Whether values without a dictionary may be written as differences (DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY), which
    /// is smaller. Otherwise they are PLAIN, for readers that know nothing else.
    pub delta_encodings: bool,
    /// Whether there are columns for attributes that are not promoted. Without them rows cannot be had back: for
    /// measurements beside writers of flat tables.
    pub maps: bool,
}

/// Who makes the pages of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PageEncoder {
    /// sluice's own, which is quicker.
    #[default]
    Own,
    /// `ArrowWriter` of the parquet crate: the reference.
    Arrow,
}

impl Default for FileSettings {
    fn default() -> Self {
        Self {
            promotions: Vec::new(),
            zstd_level: 1,
            encoder: PageEncoder::default(),
            sort_by: Vec::new(),
            delta_encodings: true,
            maps: true,
        }
    }
}

impl FileSettings {
    /// Who makes the pages, also where rows are sorted.
    pub(super) fn page_encoder(&self) -> PageEncoder {
        match self.sort_by[..] {
            [] => self.encoder,
            _ => PageEncoder::Arrow,
        }
    }

    fn properties(
        &self,
        table: Table,
        sorting: Option<Vec<SortingColumn>>,
    ) -> Result<WriterProperties, EncodeError> {
        let column = |name: &str| ColumnPath::from(name);
        let mut properties = WriterProperties::builder()
            .set_writer_version(WriterVersion::PARQUET_1_0)
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(self.zstd_level)?))
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
            .set_write_batch_size(BATCH_ROWS / 2)
            .set_sorting_columns(sorting)
            .set_created_by(concat!("sluice version ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(Some(vec![
                KeyValue::new("sluice.table".to_owned(), table.name().to_owned()),
                KeyValue::new("sluice.schema".to_owned(), SCHEMA_VERSION.to_owned()),
            ]));
        for name in UNIQUE {
            properties = properties.set_column_dictionary_enabled(column(name), false);
        }
        if !self.sort_by.is_empty() {
            // `ArrowWriter` leaves NaN out of the bounds of a chunk, and DataFusion 55 takes a column whose bounds are one number for that number
            // everywhere. Our own pages have no bounds beside NaN; here none of this type has any.
            let schema = table.schema(self);
            for field in schema
                .fields()
                .iter()
                .filter(|field| *field.data_type() == DataType::Float64)
            {
                properties =
                    properties.set_column_statistics_enabled(column(field.name()), EnabledStatistics::None);
            }
        }
        for name in FILTERED {
            properties = properties
                .set_column_bloom_filter_enabled(column(name), true)
                .set_column_bloom_filter_max_ndv(column(name), ROW_GROUP_ROWS as u64);
        }
        for name in TIMES {
            properties = properties.set_column_dictionary_enabled(column(name), false);
            if self.delta_encodings {
                properties = properties.set_column_encoding(column(name), Encoding::DELTA_BINARY_PACKED);
            }
        }
        Ok(properties.build())
    }
}

enum Writer<W: Write + Send> {
    Own(Box<PageWriter<W>>),
    Arrow(Box<ArrowWriter<W>>),
    Sorted(Box<ArrowWriter<W>>, SortedRows),
}

/// A file of one table.
pub(crate) struct TableFile<W: Write + Send> {
    rows: Rows,
    schema: SchemaRef,
    writer: Writer<W>,
    waiting_rows: usize,
    waiting_bytes: usize,
    /// Bytes that the columns keep for the next batch, from the one before.
    room_bytes: usize,
    written_rows: u64,
    /// Bytes of rows that are encoded, as they were counted when they waited.
    encoded_from: u64,
    /// The first rows are encoded when so many bytes of them wait, so that it is known early what rows amount to.
    first_bytes: usize,
}

impl<W: Write + Send> TableFile<W> {
    pub fn new(table: Table, settings: &FileSettings, out: W) -> Result<Self, EncodeError> {
        let schema = table.schema(settings);
        let sorted = match settings.sort_by[..] {
            [] => None,
            _ => Some(SortedRows::new(&settings.sort_by, &schema)),
        };
        let sorting = match &sorted {
            Some(sorted) => {
                Some(sorted.sorting_columns(&schema, &ArrowSchemaConverter::new().convert(&schema)?))
            }
            None => None,
        };
        let properties = settings.properties(table, sorting)?;
        let writer = match settings.page_encoder() {
            PageEncoder::Own => Writer::Own(Box::new(PageWriter::new(out, &schema, properties, settings)?)),
            PageEncoder::Arrow => {
                let options = ArrowWriterOptions::new()
                    .with_properties(properties)
                    // Any engine reads the file by its Parquet schema; Arrow's own copy of it would be the largest
                    // thing in a small one.
                    .with_skip_arrow_metadata(true);
                let writer = Box::new(ArrowWriter::try_new_with_options(out, schema.clone(), options)?);
                match sorted {
                    None => Writer::Arrow(writer),
                    Some(rows) => Writer::Sorted(writer, rows),
                }
            }
        };
        Ok(Self {
            rows: Rows::new(table, settings),
            writer,
            schema,
            waiting_rows: 0,
            waiting_bytes: 0,
            room_bytes: 0,
            written_rows: 0,
            encoded_from: 0,
            first_bytes: BATCH_BYTES,
        })
    }

    /// Has the first rows encoded before they can have more than so many bytes: a file that is to be as large must know what they
    /// amount to.
    pub fn encode_first_at(&mut self, bytes: u64) {
        self.first_bytes = usize::try_from(bytes).map_or(BATCH_BYTES, |bytes| bytes.min(BATCH_BYTES));
    }

    /// Where the next row, of some `bytes`, is pushed.
    pub fn room(&mut self, bytes: usize, repairs: &mut Repairs) -> Result<&mut Rows, EncodeError> {
        let most = match self.encoded_from {
            0 => self.first_bytes,
            _ => BATCH_BYTES,
        };
        if self.waiting_rows >= BATCH_ROWS || self.waiting_bytes >= most {
            self.flush(false, repairs)?;
        }
        self.waiting_rows += 1;
        self.waiting_bytes += bytes;
        Ok(&mut self.rows)
    }

    /// Ends the row group. What the file amounts to is known then, but for its footer.
    pub fn end_row_group(&mut self, repairs: &mut Repairs) -> Result<(), EncodeError> {
        // Encoded rows are followed by one that waits, or their row group has ended.
        match self.waiting_rows {
            0 => Ok(()),
            _ => self.flush(true, repairs),
        }
    }

    /// Bytes of memory that ending the row group and forgetting its buffers would leave.
    pub fn least_memory_bytes(&self) -> usize {
        match &self.writer {
            Writer::Own(writer) => writer.closed_bytes(),
            // It does not say.
            Writer::Arrow(_) | Writer::Sorted(..) => self.memory_bytes(),
        }
    }

    /// Ends the row group and gives back its memory, and the room that it leaves for the next one.
    pub fn give_back(
        &mut self,
        table: Table,
        settings: &FileSettings,
        repairs: &mut Repairs,
    ) -> Result<(), EncodeError> {
        self.end_row_group(repairs)?;
        self.rows = Rows::new(table, settings);
        self.room_bytes = 0;
        Ok(())
    }

    /// Encodes what waits. `last`: the row group ends with it.
    fn flush(&mut self, last: bool, repairs: &mut Repairs) -> Result<(), EncodeError> {
        let mut ending = Ending {
            row_group: last
                || match &self.writer {
                    Writer::Own(writer) => writer.is_row_group_full(self.waiting_rows, self.waiting_bytes),
                    Writer::Arrow(_) | Writer::Sorted(..) => false,
                },
            ..Ending::default()
        };
        let columns = self.rows.take(&mut ending);
        repairs.invalid_texts += ending.invalid_texts;
        self.room_bytes = columns.memory_bytes();
        let batch = |columns: Columns| -> Result<RecordBatch, EncodeError> {
            Ok(RecordBatch::try_new(self.schema.clone(), columns.into_arrays()?)?)
        };
        let from = self.waiting_bytes as u64;
        self.encoded_from += match &mut self.writer {
            Writer::Own(writer) => {
                writer.write(columns, self.waiting_rows, ending.row_group)?;
                from
            }
            Writer::Arrow(writer) => {
                writer.write(&batch(columns)?)?;
                if last {
                    writer.flush()?;
                }
                from
            }
            Writer::Sorted(writer, rows) => {
                rows.push(batch(columns)?, from);
                let is_first = self.encoded_from == 0 && rows.from() >= self.first_bytes as u64;
                if last || rows.is_full() || is_first {
                    let from = rows.drain(|rows| Ok(writer.write(rows)?))?;
                    writer.flush()?;
                    from
                } else {
                    0
                }
            }
        };
        self.written_rows += self.waiting_rows as u64;
        self.waiting_rows = 0;
        self.waiting_bytes = 0;
        Ok(())
    }

    #[cfg(test)]
    pub fn waiting(&self) -> &Rows {
        &self.rows
    }

    /// Rows pushed so far.
    pub fn rows(&self) -> u64 {
        self.written_rows + self.waiting_rows as u64
    }

    /// Roughly what the file would have if it ended now: what is written, and what the row group at hand amounts to.
    pub fn estimated_bytes(&self) -> u64 {
        let (encoded, footer) = match &self.writer {
            Writer::Own(writer) => (
                writer.bytes_written() + writer.expected_bytes(),
                writer.footer_bytes() as u64,
            ),
            Writer::Arrow(writer) | Writer::Sorted(writer, _) => {
                (writer.bytes_written() + writer.in_progress_size(), 0)
            }
        };
        let encoded = encoded as u64;
        let waiting = self.waiting_bytes as u64
            + match &self.writer {
                Writer::Sorted(_, rows) => rows.from(),
                Writer::Own(_) | Writer::Arrow(_) => 0,
            };
        // What waits will shrink as what came before it did.
        let waiting = match self.encoded_from {
            0 => waiting / WAITING_PART,
            from => (u128::from(encoded) * u128::from(waiting) / u128::from(from)) as u64,
        };
        encoded + waiting + footer
    }

    /// Bytes of memory it holds: rows that wait, in the room that is there for them, and the row group at hand.
    pub fn memory_bytes(&self) -> usize {
        self.waiting_bytes.max(self.room_bytes)
            + match &self.writer {
                Writer::Own(writer) => writer.memory_bytes(),
                Writer::Arrow(writer) => writer.memory_size(),
                Writer::Sorted(writer, rows) => writer.memory_size() + rows.bytes(),
            }
    }

    /// Writes what is left and the footer.
    pub fn finish(mut self, repairs: &mut Repairs) -> Result<W, EncodeError> {
        self.end_row_group(repairs)?;
        match self.writer {
            Writer::Own(writer) => writer.finish(),
            Writer::Arrow(writer) | Writer::Sorted(writer, _) => Ok(writer.into_inner()?),
        }
    }
}

/// Rows take about this part of their OTLP once they are encoded, as long as it is not known better.
const WAITING_PART: u64 = 10;

impl<W: Write + Send> std::fmt::Debug for TableFile<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableFile")
            .field("rows", &self.rows())
            .finish_non_exhaustive()
    }
}
