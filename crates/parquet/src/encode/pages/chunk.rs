//! One column of a row group: pages as they are finished, and what the footer says of them.

use arrow_buffer::NullBuffer;
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, Type};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, ColumnIndexBuilder, OffsetIndexBuilder, PageEncodingStats,
};
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::bounds::Bounds;
use super::dictionary::Dictionary;
use super::levels::{self, Levels};
use super::repeats::Repeats;
use super::values::Values;
use super::{Tools, delta, hybrid};

/// A dictionary that has more bytes than this gets no further values: it is in memory, here and in every reader.
const DICTIONARY_BYTES: usize = 8 << 20;

/// How values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plan {
    /// As places in the dictionary.
    Dictionary,
    /// As they are; integers as differences where these are smaller.
    Plain,
}

/// What the page index says of a page.
#[derive(Debug)]
struct PageBounds {
    bounds: Option<Bounds>,
    values: usize,
    nulls: usize,
}

/// A column of the row group at hand.
pub(crate) struct Chunk {
    column: ColumnDescPtr,
    compression: Compression,
    unique: bool,
    plan: Plan,
    dictionary: Dictionary,
    /// Values that went through the dictionary.
    looked_up: usize,
    pages: TrackedWrite<Vec<u8>>,
    bounds: Vec<PageBounds>,
    locations: OffsetIndexBuilder,
    encodings: Vec<PageEncodingStats>,
    uncompressed: usize,
}

/// Where the values of a page are: in rows, or in lists of rows.
pub(crate) struct Place<'a> {
    pub rows: usize,
    pub levels: Option<&'a Levels>,
    pub nulls: Option<&'a NullBuffer>,
    /// Where rows share values.
    pub repeats: Option<Repeats<'a>>,
}

impl Chunk {
    /// `unique`: values rarely occur twice, so that a dictionary is work for nothing.
    pub fn new(column: ColumnDescPtr, compression: Compression, unique: bool, tools: &Tools) -> Self {
        Self {
            compression,
            unique,
            plan: match unique || column.physical_type() == Type::BOOLEAN {
                true => Plan::Plain,
                false => Plan::Dictionary,
            },
            column,
            dictionary: Dictionary::new(tools.hasher.clone()),
            looked_up: 0,
            pages: TrackedWrite::new(Vec::new()),
            bounds: Vec::new(),
            locations: OffsetIndexBuilder::new(),
            encodings: Vec::new(),
            uncompressed: 0,
        }
    }

    fn is_nullable(&self, levels: Option<&Levels>) -> bool {
        self.column.max_def_level() > levels.map_or(0, |_| self.column.max_rep_level())
    }

    /// Adds a page.
    pub fn page(
        &mut self,
        tools: &mut Tools,
        place: &Place<'_>,
        values: &Values<'_>,
    ) -> Result<(), ParquetError> {
        let mut page = std::mem::take(&mut tools.page);
        page.clear();
        let nullable = self.is_nullable(place.levels);
        match place.levels {
            Some(levels) => levels.put(&mut page, nullable, place.nulls),
            None if nullable => levels::put_nulls(&mut page, place.nulls, place.rows),
            None => {}
        }
        let (encoding, bounds) = self.values(tools, &mut page, place, values);
        let present = place.repeats.as_ref().map_or(values.len(), Repeats::values);
        let count = place.levels.map_or(place.rows, Levels::len);
        self.bounds.push(PageBounds {
            bounds,
            values: count,
            nulls: count - present,
        });
        let written = self.put(
            tools,
            &page,
            Page::DataPage {
                buf: Bytes::new(),
                num_values: count as u32,
                encoding,
                def_level_encoding: Encoding::RLE,
                rep_level_encoding: Encoding::RLE,
                statistics: None,
            },
        );
        tools.page = page;
        let (offset, bytes) = written?;
        self.locations.append_row_count(place.rows as i64);
        self.locations.append_offset_and_size(offset as i64, bytes as i32);
        Ok(())
    }

    /// Appends values; how, and their bounds if they are in rows.
    fn values(
        &mut self,
        tools: &mut Tools,
        page: &mut Vec<u8>,
        place: &Place<'_>,
        values: &Values<'_>,
    ) -> (Encoding, Option<Bounds>) {
        let bounded = place.levels.is_none();
        if self.plan == Plan::Dictionary && self.look_up_all(tools, place, values) {
            let width = hybrid::width((self.dictionary.len().max(1) - 1) as u32);
            page.push(width as u8);
            hybrid::put(page, &tools.places, width);
            let bounds = bounded.then(|| self.bounds_of_places(tools)).flatten();
            return (Encoding::RLE_DICTIONARY, bounds);
        }
        let physical = self.column.physical_type();
        match values {
            Values::Texts(texts) => {
                match &place.repeats {
                    Some(repeats) => {
                        tools.places.clear();
                        repeats.expand_places(&mut tools.places);
                        texts.put_plain_of(&tools.places, page);
                    }
                    None => texts.put_plain(page),
                }
                let bounds = bounded.then(|| Bounds::of_texts(texts.iter()));
                (Encoding::PLAIN, bounds.flatten())
            }
            Values::Numbers(numbers) => {
                let bounds = bounded.then(|| Bounds::of_numbers(physical, numbers)).flatten();
                let mut repeated = Vec::new();
                let numbers = match &place.repeats {
                    Some(repeats) => {
                        repeats.expand(numbers, &mut repeated);
                        &repeated
                    }
                    None => *numbers,
                };
                if physical == Type::INT64 {
                    return (put_longs(page, numbers), bounds);
                }
                put_plain(page, physical, numbers);
                (Encoding::PLAIN, bounds)
            }
        }
    }

    /// Finds the places of all values in the dictionary; false if it turns out that the column had better have none.
    fn look_up_all(&mut self, tools: &mut Tools, place: &Place<'_>, values: &Values<'_>) -> bool {
        let mut places = std::mem::take(&mut tools.places);
        places.clear();
        self.look_up(values, &mut places);
        if let Some(repeats) = &place.repeats {
            let mut repeated = std::mem::take(&mut tools.repeated);
            repeated.clear();
            repeats.expand(&places, &mut repeated);
            tools.repeated = places;
            places = repeated;
        }
        self.looked_up += places.len();
        tools.places = places;
        let worth = self.dictionary.len() * 2 <= self.looked_up;
        if !worth || self.dictionary.bytes() > DICTIONARY_BYTES {
            self.plan = Plan::Plain;
        }
        let first = self.bounds.iter().all(|page| page.nulls == page.values);
        if !worth && first {
            // Nothing refers to it yet.
            self.dictionary.clear();
            return false;
        }
        true
    }

    fn look_up(&mut self, values: &Values<'_>, places: &mut Vec<u32>) {
        match values {
            Values::Texts(texts) => {
                let mut last: (&[u8], u32) = (&[], self.dictionary.len() as u32);
                for text in texts.iter() {
                    if text != last.0 || last.0.is_empty() {
                        last = (text, self.dictionary.place(text));
                    }
                    places.push(last.1);
                }
            }
            Values::Numbers(numbers) => {
                let size = if self.column.physical_type() == Type::INT32 {
                    4
                } else {
                    8
                };
                let mut last = None;
                for number in *numbers {
                    let place = match last {
                        Some((before, place)) if before == *number => place,
                        _ => self.dictionary.place(&number.to_le_bytes()[..size]),
                    };
                    last = Some((*number, place));
                    places.push(place);
                }
            }
        }
    }

    /// Bounds of a page of the dictionary: each of its values is looked at once.
    fn bounds_of_places(&self, tools: &mut Tools) -> Option<Bounds> {
        let seen = &mut tools.seen;
        seen.clear();
        seen.resize(self.dictionary.len().div_ceil(64), 0u64);
        for place in &tools.places {
            seen[*place as usize / 64] |= 1 << (place % 64);
        }
        let places = seen.iter().enumerate().flat_map(|(word, bits)| {
            let mut bits = *bits;
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros())?;
                bits &= bits - 1;
                Some(word as u32 * 64 + bit)
            })
        });
        self.bounds_of(places.map(|place| self.dictionary.value(place)))
    }

    fn bounds_of<'a>(&self, values: impl Iterator<Item = &'a [u8]>) -> Option<Bounds> {
        match self.column.physical_type() {
            Type::BYTE_ARRAY => Bounds::of_texts(values),
            physical => {
                let numbers: Vec<i64> = values.map(number).collect();
                Bounds::of_numbers(physical, &numbers)
            }
        }
    }

    /// Compresses and writes a page; where it is, and its bytes with its head.
    fn put(&mut self, tools: &mut Tools, bytes: &[u8], mut page: Page) -> Result<(u64, usize), ParquetError> {
        let compressed = tools.compress(bytes)?;
        let (kind, of) = (page.page_type(), page.encoding());
        match &mut page {
            Page::DataPage { buf, .. } | Page::DataPageV2 { buf, .. } | Page::DictionaryPage { buf, .. } => {
                *buf = compressed;
            }
        }
        match self
            .encodings
            .iter_mut()
            .find(|stats| stats.page_type == kind && stats.encoding == of)
        {
            Some(stats) => stats.count += 1,
            None => self.encodings.push(PageEncodingStats {
                page_type: kind,
                encoding: of,
                count: 1,
            }),
        }
        let mut writer = SerializedPageWriter::new(&mut self.pages);
        let written = writer.write_page(CompressedPage::new(page, bytes.len()))?;
        self.uncompressed += written.uncompressed_size;
        Ok((written.offset, written.compressed_size))
    }

    /// Bytes of memory it holds.
    pub fn memory_bytes(&self) -> usize {
        self.pages.inner().capacity() + self.dictionary.memory_bytes()
    }

    /// Roughly what it would have in the file if it ended now.
    pub fn estimated_bytes(&self) -> usize {
        self.pages.bytes_written() + self.dictionary.bytes() / 2
    }

    /// Ends the chunk and begins the next one: its bytes, and what the footer is to say.
    pub fn close(
        &mut self,
        tools: &mut Tools,
        rows: u64,
    ) -> Result<(Bytes, ColumnCloseResult), ParquetError> {
        let next = Self::new(self.column.clone(), self.compression, self.unique, tools);
        let mut this = std::mem::replace(self, next);
        let data = std::mem::replace(&mut this.pages, TrackedWrite::new(Vec::new())).into_inner()?;
        let mut bytes = Vec::new();
        let statistics = this.statistics();
        let refers = |stats: &PageEncodingStats| stats.encoding == Encoding::RLE_DICTIONARY;
        if this.encodings.iter().any(refers) {
            let mut page = std::mem::take(&mut tools.page);
            page.clear();
            let text = this.column.physical_type() == Type::BYTE_ARRAY;
            for value in this.dictionary.values() {
                if text {
                    page.extend_from_slice(&(value.len() as u32).to_le_bytes());
                }
                page.extend_from_slice(value);
            }
            let head = Page::DictionaryPage {
                buf: Bytes::new(),
                num_values: this.dictionary.len() as u32,
                encoding: Encoding::PLAIN,
                is_sorted: false,
            };
            this.put(tools, &page, head)?;
            tools.page = page;
            let pages = std::mem::replace(&mut this.pages, TrackedWrite::new(Vec::new()));
            bytes = pages.into_inner()?;
        }
        let dictionary_bytes = bytes.len();
        bytes.extend_from_slice(&data);
        let result = this.result(statistics, bytes.len(), rows)?;
        Ok((
            Bytes::from(bytes),
            result.update_dictionary_location(dictionary_bytes)?,
        ))
    }

    /// Of all pages; of values in lists only where all of them are in the dictionary.
    fn statistics(&self) -> Statistics {
        let nulls = self.bounds.iter().map(|page| page.nulls as u64).sum();
        let in_dictionary = self
            .encodings
            .iter()
            .all(|stats| stats.encoding == Encoding::RLE_DICTIONARY);
        let bounds = if in_dictionary {
            self.bounds_of(self.dictionary.values())
        } else if self.column.max_rep_level() == 0 {
            self.bounds
                .iter()
                .filter_map(|page| page.bounds.clone())
                .reduce(Bounds::with)
        } else {
            None
        };
        match (bounds, self.column.physical_type()) {
            (Some(bounds), _) => bounds.statistics(nulls),
            (None, Type::BYTE_ARRAY) => Statistics::byte_array(None, None, None, Some(nulls), false),
            (None, Type::INT32) => Statistics::int32(None, None, None, Some(nulls), false),
            (None, Type::DOUBLE) => Statistics::double(None, None, None, Some(nulls), false),
            (None, Type::BOOLEAN) => Statistics::boolean(None, None, None, Some(nulls), false),
            (None, _) => Statistics::int64(None, None, None, Some(nulls), false),
        }
    }

    fn result(
        self,
        statistics: Statistics,
        bytes: usize,
        rows: u64,
    ) -> Result<ColumnCloseResult, ParquetError> {
        let mut encodings: Vec<Encoding> = self.encodings.iter().map(|stats| stats.encoding).collect();
        encodings.push(Encoding::RLE);
        let values: usize = self.bounds.iter().map(|page| page.values).sum();
        let metadata = ColumnChunkMetaData::builder(self.column.clone())
            .set_compression(self.compression)
            .set_encodings(encodings)
            .set_page_encoding_stats(self.encodings)
            .set_total_compressed_size(bytes as i64)
            .set_total_uncompressed_size(self.uncompressed as i64)
            .set_num_values(values as i64)
            .set_data_page_offset(0)
            .set_statistics(statistics)
            .build()?;
        let index = (self.column.max_rep_level() == 0).then(|| index(&self.column, &self.bounds));
        Ok(ColumnCloseResult {
            bytes_written: bytes as u64,
            rows_written: rows,
            metadata,
            bloom_filter: None,
            column_index: index.flatten().map(ColumnIndexBuilder::build).transpose()?,
            offset_index: Some(self.locations.build()),
        })
    }
}

/// The page index; none if a page has values without bounds.
fn index(column: &ColumnDescPtr, pages: &[PageBounds]) -> Option<ColumnIndexBuilder> {
    let mut index = ColumnIndexBuilder::new(column.physical_type());
    let nans = (column.physical_type() == Type::DOUBLE).then_some(0);
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
            nans,
        );
    }
    Some(index)
}

/// A value of a dictionary as the number it is.
fn number(bytes: &[u8]) -> i64 {
    match bytes.first_chunk::<8>() {
        Some(bytes) => i64::from_le_bytes(*bytes),
        None => bytes
            .first_chunk::<4>()
            .map_or(0, |bytes| i32::from_le_bytes(*bytes).into()),
    }
}

/// Appends the differences, if they are smaller than the numbers.
fn put_longs(page: &mut Vec<u8>, numbers: &[i64]) -> Encoding {
    let start = page.len();
    delta::put(page, numbers);
    if page.len() - start < numbers.len() * 8 {
        return Encoding::DELTA_BINARY_PACKED;
    }
    page.truncate(start);
    put_plain(page, Type::INT64, numbers);
    Encoding::PLAIN
}

fn put_plain(page: &mut Vec<u8>, physical: Type, numbers: &[i64]) {
    match physical {
        Type::BOOLEAN => {
            for group in numbers.chunks(8) {
                page.push(group.iter().rev().fold(0, |bits, value| bits << 1 | *value as u8));
            }
        }
        Type::INT32 => numbers
            .iter()
            .for_each(|value| page.extend_from_slice(&(*value as i32).to_le_bytes())),
        _ => numbers
            .iter()
            .for_each(|value| page.extend_from_slice(&value.to_le_bytes())),
    }
}
