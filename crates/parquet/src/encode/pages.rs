//! A Parquet file from columns, page by page: what `ArrowWriter` does, for the few shapes of column that the tables have.
//!
//! It is quicker because it does less: each value is looked up once, values that many rows share are looked up once for all of
//! them, bounds are those of a page's distinct values, the bits that say what is null become levels as they are, and
//! the compressor is kept. Footer, indexes and heads of pages are written by the parquet crate, into which the columns
//! are spliced.
//!
//! In the order of a value's way: `levels` says which row it belongs to, `numbers` decides how numbers are written (texts know
//! already), `chunk` makes pages with `hybrid` and `delta`, and `footer` says what is in them, with `filter`.

mod bounds;
mod chunk;
mod delta;
mod filter;
mod footer;
mod hybrid;
mod levels;
mod numbers;
mod repeats;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::io::Write;
use std::sync::Arc;

use arrow_schema::Schema;
use bytes::Bytes;
use parquet::arrow::ArrowSchemaConverter;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;

use super::EncodeError;
use super::column::{Columns, Data};
use super::file::{
    BATCH_ROWS, FILTERED, FileSettings, ROW_GROUP_BYTES, ROW_GROUP_MEMORY, ROW_GROUP_ROWS, TIMES,
};
use super::seen::Seen;
pub(crate) use bounds::Bounds;
use chunk::{Chunk, Place, Values};
use filter::Filter;
use levels::Levels;
use repeats::Repeats;

/// A page may be as large as a batch; of buffers that one such has left no more than this is kept, twice the pages of bodies of a
/// hundred bytes.
const KEPT_BYTES: usize = 4 << 20;

/// Bytes of a footer for each column: its place in the schema; and for each column of a row group: metadata, with bounds, and both
/// indexes. Roughly, as the tables' files have them.
const SCHEMA_BYTES: usize = 60;
const FOOTER_BYTES: usize = 180;

/// How the pages of a file are written.
#[derive(Clone, Copy)]
struct By {
    level: i32,
    delta: bool,
}

/// What the columns of all files of a thread use one after the other.
pub(crate) struct Tools {
    /// Half a megabyte that takes longer to make than to use.
    zstd: zstd_safe::CCtx<'static>,
    /// What the file at hand is written with.
    by: By,
    /// A page before it is compressed.
    page: Vec<u8>,
    compressed: Vec<u8>,
    /// Places in the dictionary of a page's numbers.
    places: Vec<u32>,
    /// Places after runs are written out.
    repeated: Vec<u32>,
    seen: Seen,
}

thread_local! {
    // Files are many, and threads few.
    static TOOLS: RefCell<Tools> = RefCell::new(Tools::new());
}

impl Tools {
    fn new() -> Self {
        Self {
            zstd: zstd_safe::CCtx::create(),
            by: By {
                level: 0,
                delta: true,
            },
            page: Vec::new(),
            compressed: Vec::new(),
            places: Vec::new(),
            repeated: Vec::new(),
            seen: Seen::default(),
        }
    }

    /// Those of this thread, for pages that are written so; what large pages have left is given back.
    fn with<T>(by: By, work: impl FnOnce(&mut Self) -> T) -> T {
        TOOLS.with_borrow_mut(|tools| {
            tools.by = by;
            let worked = work(tools);
            tools.give_back();
            worked
        })
    }

    fn give_back(&mut self) {
        fn shrink<T>(buffer: &mut Vec<T>) {
            if buffer.capacity() * size_of::<T>() > KEPT_BYTES {
                *buffer = Vec::new();
            }
        }
        shrink(&mut self.page);
        shrink(&mut self.compressed);
        shrink(&mut self.places);
        shrink(&mut self.repeated);
        if self.seen.memory_bytes() > KEPT_BYTES {
            self.seen = Seen::default();
        }
    }

    fn compress(&mut self, bytes: &[u8]) -> Result<Bytes, ParquetError> {
        let most = zstd_safe::compress_bound(bytes.len());
        self.compressed.clear();
        self.compressed.reserve(most);
        let failed = |code| ParquetError::General(format!("zstd: {}", zstd_safe::get_error_name(code)));
        self.zstd
            .compress(&mut self.compressed, bytes, self.by.level)
            .map_err(failed)?;
        Ok(Bytes::copy_from_slice(&self.compressed))
    }
}

/// A file that is written from arrays.
pub(crate) struct PageWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    chunks: Vec<Chunk>,
    by: By,
    /// Rows of the row group at hand.
    rows: usize,
    /// What the row groups that have ended were taken for before, and what they are, in bytes.
    guessed: usize,
    became: usize,
    row_groups: usize,
    /// Bytes of memory that their places in the footer take.
    closed_bytes: usize,
}

impl<W: Write + Send> PageWriter<W> {
    pub fn new(
        out: W,
        schema: &Schema,
        properties: WriterProperties,
        settings: &FileSettings,
    ) -> Result<Self, EncodeError> {
        let schema = ArrowSchemaConverter::new().convert(schema)?;
        let chunk = |column: &parquet::schema::types::ColumnDescPtr| {
            let path = column.path();
            let among = |names: &[&str]| names.iter().any(|name| path.parts() == [*name]);
            Chunk::new(
                column.clone(),
                properties.compression(path),
                among(TIMES),
                Filter::new(among(FILTERED)),
            )
        };
        Ok(Self {
            chunks: schema.columns().iter().map(chunk).collect(),
            file: SerializedFileWriter::new(out, schema.root_schema_ptr(), Arc::new(properties))?,
            by: By {
                level: settings.zstd_level,
                delta: settings.delta_encodings,
            },
            rows: 0,
            guessed: 0,
            became: 0,
            row_groups: 0,
            closed_bytes: 0,
        })
    }

    /// Whether the row group is to end with these rows, which wait: another batch may not fit.
    pub fn is_row_group_full(&self, rows: usize, bytes: usize) -> bool {
        self.rows + rows + BATCH_ROWS > ROW_GROUP_ROWS
            || self.chunks.iter().any(Chunk::ends_row_group)
            || self.in_progress_bytes() + bytes / 2 >= ROW_GROUP_BYTES
            || self.memory_bytes() + bytes >= ROW_GROUP_MEMORY
    }

    /// Adds rows, as one page a column; `last`: the row group ends with them.
    pub fn write(&mut self, columns: Columns, rows: usize, last: bool) -> Result<(), EncodeError> {
        Tools::with(self.by, |tools| {
            let mut pages = Pages {
                chunks: self.chunks.iter_mut(),
                tools,
                rows,
                runs: &[],
            };
            for (column, shared) in columns.data.into_iter().zip(columns.shared) {
                pages.runs = if shared { &columns.runs } else { &[] };
                pages.put(column, None)?;
            }
            Ok::<_, EncodeError>(())
        })?;
        self.rows += rows;
        if last {
            self.end_row_group()?;
        }
        Ok(())
    }

    fn end_row_group(&mut self) -> Result<(), EncodeError> {
        let rows = std::mem::take(&mut self.rows) as u64;
        let before = self.file.bytes_written();
        self.guessed += self.in_progress_bytes();
        self.closed_bytes += self.chunks.iter().map(Chunk::footer_memory_bytes).sum::<usize>();
        let mut group = self.file.next_row_group()?;
        Tools::with(self.by, |tools| {
            self.chunks.iter_mut().try_for_each(|chunk| {
                let (bytes, close) = chunk.close(tools, rows)?;
                group.append_column(&bytes, close)
            })
        })?;
        group.close()?;
        self.became += self.file.bytes_written() - before;
        self.row_groups += 1;
        Ok(())
    }

    /// Bytes that are in the file.
    pub fn bytes_written(&self) -> usize {
        self.file.bytes_written()
    }

    /// Roughly the bytes that the row group at hand amounts to.
    pub fn in_progress_bytes(&self) -> usize {
        self.chunks.iter().map(Chunk::estimated_bytes).sum()
    }

    /// The same as the row groups before it came out.
    pub fn expected_bytes(&self) -> usize {
        let guess = self.in_progress_bytes();
        match self.guessed {
            0 => guess,
            guessed => (guess as u128 * self.became as u128 / guessed as u128) as usize,
        }
    }

    /// Roughly the bytes of the footer, if the file ended now.
    pub fn footer_bytes(&self) -> usize {
        self.chunks.len() * (SCHEMA_BYTES + (self.row_groups + 1) * FOOTER_BYTES)
    }

    /// Bytes of memory for what is in the file already: its places in the footer.
    pub fn closed_bytes(&self) -> usize {
        self.closed_bytes
    }

    /// Bytes of memory it holds.
    pub fn memory_bytes(&self) -> usize {
        self.closed_bytes + self.chunks.iter().map(Chunk::memory_bytes).sum::<usize>()
    }

    /// Writes the footer.
    pub fn finish(self) -> Result<W, EncodeError> {
        Ok(self.file.into_inner()?)
    }
}

/// The pages of some rows, as the columns are walked in the order of the schema.
struct Pages<'a> {
    chunks: std::slice::IterMut<'a, Chunk>,
    tools: &'a mut Tools,
    rows: usize,
    /// How many rows have each value, or each list, of the column at hand; one each, if empty.
    runs: &'a [u32],
}

impl Pages<'_> {
    /// Adds the pages of a column, the elements of which are in lists with these levels.
    fn put(&mut self, data: Data, levels: Option<&Levels>) -> Result<(), EncodeError> {
        match data {
            Data::Structs(columns) => {
                let mut fields = columns.data.into_iter();
                fields.try_for_each(|field| self.put(field, levels))
            }
            Data::Lists(lists) => {
                let levels = match (levels, lists.maps) {
                    (None, true) => Levels::of_maps(&lists.ends, self.runs),
                    _ => Levels::of_lists(levels, &lists.ends, self.runs),
                };
                self.put(*lists.elements, Some(&levels))
            }
            Data::Texts(texts) => {
                let chunk = self.chunks.next().ok_or(STRANGE)?;
                let nulls = levels::repeated_nulls(texts.nulls.as_ref(), self.runs);
                let place = Place {
                    rows: self.rows,
                    levels,
                    nulls: nulls.as_ref(),
                    repeats: Repeats::new(self.runs, levels, texts.nulls.as_ref()),
                };
                Ok(chunk.page(self.tools, &place, Values::Texts(texts.page))?)
            }
            Data::Numbers(numbers) => {
                let chunk = self.chunks.next().ok_or(STRANGE)?;
                let nulls = levels::repeated_nulls(numbers.nulls.as_ref(), self.runs);
                let place = Place {
                    rows: self.rows,
                    levels,
                    nulls: nulls.as_ref(),
                    repeats: Repeats::new(self.runs, levels, numbers.nulls.as_ref()),
                };
                Ok(chunk.page(self.tools, &place, Values::Numbers(&numbers.values))?)
            }
            Data::Array(_) => Err(STRANGE),
        }
    }
}

const STRANGE: EncodeError = EncodeError::Internal("a column of a type that pages are not made of");

/// Appends a number, seven bits a byte.
fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
