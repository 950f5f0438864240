//! What the footer and the page index say of a column of a row group.

use parquet::basic::{Compression, Encoding, Type};
use parquet::bloom_filter::Sbbf;
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, ColumnIndexBuilder, OffsetIndexBuilder, PageEncodingStats,
};
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;

use super::bounds::{Bounds, TEXT_BYTES, doubles};

/// What the page index says of a page.
#[derive(Debug)]
pub(crate) struct PageBounds {
    pub bounds: Option<Bounds>,
    pub values: usize,
    pub nulls: usize,
    /// Values that are no number, which bounds do not say.
    pub nans: usize,
}

impl PageBounds {
    /// Bytes of memory of a page's places in both indexes, at most.
    pub const MEMORY_BYTES: usize = size_of::<Self>() + 2 * TEXT_BYTES + 3 * size_of::<i64>();
}

/// A column of a row group whose pages are written.
pub(crate) struct Written<'a> {
    pub column: &'a ColumnDescPtr,
    pub compression: Compression,
    pub pages: &'a [PageBounds],
    pub encodings: Vec<PageEncodingStats>,
    pub locations: OffsetIndexBuilder,
    pub rows: u64,
    pub bytes: usize,
    pub uncompressed: usize,
    pub dictionary_bytes: usize,
    pub filter: Option<Sbbf>,
}

impl Written<'_> {
    pub fn result(self) -> Result<ColumnCloseResult, ParquetError> {
        let statistics = statistics(self.column, self.pages);
        let mut encodings: Vec<Encoding> = self.encodings.iter().map(|stats| stats.encoding).collect();
        encodings.push(Encoding::RLE);
        let values: usize = self.pages.iter().map(|page| page.values).sum();
        let metadata = ColumnChunkMetaData::builder(self.column.clone())
            .set_compression(self.compression)
            .set_encodings(encodings)
            .set_page_encoding_stats(self.encodings)
            .set_total_compressed_size(self.bytes as i64)
            .set_total_uncompressed_size(self.uncompressed as i64)
            .set_num_values(values as i64)
            .set_data_page_offset(0)
            .set_statistics(statistics)
            .build()?;
        let index = (self.column.max_rep_level() == 0).then(|| index(self.column, self.pages));
        let result = ColumnCloseResult {
            bytes_written: self.bytes as u64,
            rows_written: self.rows,
            metadata,
            bloom_filter: self.filter,
            column_index: index.flatten().map(ColumnIndexBuilder::build).transpose()?,
            offset_index: Some(self.locations.build()),
        };
        result.update_dictionary_location(self.dictionary_bytes)
    }
}

/// Of all pages. What is in lists has no bounds: engines read it whole.
fn statistics(column: &ColumnDescPtr, pages: &[PageBounds]) -> Statistics {
    let nulls = pages.iter().map(|page| page.nulls as u64).sum();
    let mut bounds = None;
    if column.max_rep_level() == 0 {
        let of_pages = pages.iter().filter_map(|page| page.bounds.clone());
        bounds = of_pages.reduce(Bounds::with);
    }
    // Of what is in lists it is not known.
    let nans = (column.max_rep_level() == 0).then(|| pages.iter().map(|page| page.nans as u64).sum());
    match (bounds, column.physical_type()) {
        (Some(bounds), _) => bounds.statistics(nulls, nans),
        (None, Type::BYTE_ARRAY) => Statistics::byte_array(None, None, None, Some(nulls), false),
        (None, Type::INT32) => Statistics::int32(None, None, None, Some(nulls), false),
        (None, Type::DOUBLE) => doubles(None, Some(nulls), nans),
        (None, Type::BOOLEAN) => Statistics::boolean(None, None, None, Some(nulls), false),
        (None, _) => Statistics::int64(None, None, None, Some(nulls), false),
    }
}

/// The page index; none if a page has values without bounds.
fn index(column: &ColumnDescPtr, pages: &[PageBounds]) -> Option<ColumnIndexBuilder> {
    let mut index = ColumnIndexBuilder::new(column.physical_type());
    let may_be_nan = column.physical_type() == Type::DOUBLE;
    for page in pages {
        let (least, greatest) = match &page.bounds {
            Some(bounds) => bounds.bytes()?,
            None if page.nulls == page.values => (Vec::new(), Vec::new()),
            None => return None,
        };
        index.append(
            page.nulls == page.values,
            least,
            greatest,
            page.nulls as i64,
            may_be_nan.then_some(page.nans as i64),
        );
    }
    Some(index)
}
