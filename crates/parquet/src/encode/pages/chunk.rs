//! One column of a row group: pages as they are finished.

use arrow_buffer::NullBuffer;
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, Type};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, OffsetIndexBuilder, PageEncodingStats};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::bounds::{Bounds, TEXT_BYTES};
use super::filter::Filter;
use super::footer::{PageBounds, Written};
use super::levels::{self, Levels};
use super::numbers::Numbers;
use super::repeats::{self, Repeats};
use super::{Tools, delta, hybrid};
use crate::encode::dictionary::texts;
use crate::encode::interned::{DictionaryPage, PageTexts, TextPage};

/// No page has more: heads of pages have their sizes as 32-bit integers with a sign. A batch has
/// [`BATCH_BYTES`](crate::encode::file::BATCH_BYTES), in which what rows share counts for each of them, and one row more, which is a part of a
/// request; a number may take eight bytes where its request had one. So requests of 64 MiB, as receivers are set, do not reach it. A
/// larger one may, and is an error.
const PAGE_BYTES: usize = 1 << 30;

/// A column of the row group at hand.
pub(crate) struct Chunk {
    column: ColumnDescPtr,
    compression: Compression,
    numbers: Numbers,
    /// Of the texts: what the last page brought.
    dictionary: Option<DictionaryPage>,
    dictionary_bytes: usize,
    memory_bytes: usize,
    ends_row_group: bool,
    filter: Filter,
    written: Pages,
}

/// Pages that are finished.
struct Pages {
    bytes: Vec<u8>,
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

/// The values of a page, without what is null.
pub(crate) enum Values<'a> {
    Texts(TextPage),
    Numbers(&'a [i64]),
}

impl Chunk {
    /// `unique`: numbers that rarely occur twice.
    pub fn new(column: ColumnDescPtr, compression: Compression, unique: bool, filter: Filter) -> Self {
        Self {
            compression,
            numbers: Numbers::new(column.physical_type(), unique),
            column,
            dictionary: None,
            dictionary_bytes: 0,
            memory_bytes: 0,
            ends_row_group: false,
            filter,
            written: Pages::new(),
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
        values: Values<'_>,
    ) -> Result<(), ParquetError> {
        let mut page = std::mem::take(&mut tools.page);
        page.clear();
        let nullable = self.is_nullable(place.levels);
        match place.levels {
            Some(levels) => levels.put(&mut page, nullable, place.nulls),
            None if nullable => levels::put_nulls(&mut page, place.nulls, place.rows),
            None => {}
        }
        let repeats = place.repeats.as_ref();
        let length = match &values {
            Values::Texts(of) => of.texts.len(),
            Values::Numbers(numbers) => numbers.len(),
        };
        let present = repeats.map_or(length, Repeats::values);
        let count = place.levels.map_or(place.rows, Levels::len);
        let nans = match &values {
            Values::Numbers(numbers) if self.column.physical_type() == Type::DOUBLE => {
                let is_nan = |bits: &i64| f64::from_bits(*bits as u64).is_nan();
                match repeats {
                    Some(repeats) => repeats.count(numbers, is_nan),
                    None => numbers.iter().filter(|bits| is_nan(bits)).count(),
                }
            }
            _ => 0,
        };
        let (encoding, bounds) = match values {
            Values::Texts(of) => self.put_texts(tools, &mut page, repeats, of)?,
            Values::Numbers(numbers) => {
                let bounded = place.levels.is_none();
                self.numbers.put(tools, &mut page, repeats, numbers, bounded)
            }
        };
        self.written.bounds.push(PageBounds {
            bounds,
            values: count,
            nulls: count - present,
            nans,
        });
        let written = self.written.put(
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
        let locations = &mut self.written.locations;
        locations.append_row_count(place.rows as i64);
        locations.append_offset_and_size(offset as i64, bytes as i32);
        Ok(())
    }

    /// Appends texts; how, and their bounds.
    fn put_texts(
        &mut self,
        tools: &mut Tools,
        page: &mut Vec<u8>,
        repeats: Option<&Repeats<'_>>,
        of: TextPage,
    ) -> Result<(Encoding, Option<Bounds>), ParquetError> {
        (self.dictionary_bytes, self.memory_bytes) = (of.dictionary_bytes, of.memory_bytes);
        self.ends_row_group = of.ends_row_group;
        self.dictionary = of.dictionary;
        let encoding = match (&of.texts, repeats) {
            (PageTexts::Places(places, of), Some(repeats)) => {
                repeats.put_places(page, places, *of, &mut tools.repeated);
                Encoding::RLE_DICTIONARY
            }
            (PageTexts::Places(places, of), None) => {
                hybrid::put_places(page, places, *of);
                Encoding::RLE_DICTIONARY
            }
            // How differences between no lengths are written is nothing that readers need to agree on.
            (PageTexts::Plain(plain), _) if plain.len() == 0 => Encoding::PLAIN,
            (PageTexts::Plain(plain), Some(repeats)) => repeats.put_texts(tools, page, plain),
            (PageTexts::Plain(plain), None) if tools.by.delta => {
                delta::put(page, plain.lengths());
                page.extend_from_slice(plain.bytes());
                Encoding::DELTA_LENGTH_BYTE_ARRAY
            }
            (PageTexts::Plain(plain), None) => {
                repeats::put_plain(page, plain.lengths(), plain.bytes());
                Encoding::PLAIN
            }
        };
        if let PageTexts::Plain(plain) = &of.texts {
            self.filter.insert(plain.texts())?;
        }
        if let Some(dictionary) = &self.dictionary {
            self.filter.insert(texts(&dictionary.bytes))?;
        }
        Ok((encoding, of.bounds))
    }

    /// Whether the row group had better end.
    pub fn ends_row_group(&self) -> bool {
        self.ends_row_group
    }

    /// Bytes of memory it holds.
    pub fn memory_bytes(&self) -> usize {
        self.written.bytes.capacity()
            + self.written.bounds.len() * PageBounds::MEMORY_BYTES
            + self.memory_bytes
            + self.numbers.memory_bytes()
            + self.filter.memory_bytes()
    }

    /// Bytes of memory that its place in the footer takes when it has ended: the parquet crate keeps it until the file ends.
    pub fn footer_memory_bytes(&self) -> usize {
        size_of::<ColumnChunkMetaData>()
            + 4 * TEXT_BYTES
            + self.written.bounds.len() * PageBounds::MEMORY_BYTES
    }

    /// Roughly what it would have in the file if it ended now.
    pub fn estimated_bytes(&self) -> usize {
        let dictionary = self.dictionary_bytes + self.numbers.dictionary_bytes();
        self.written.bytes.len() + dictionary / 2
    }

    /// Ends the chunk and begins the next one: its bytes, and what the footer is to say.
    pub fn close(
        &mut self,
        tools: &mut Tools,
        rows: u64,
    ) -> Result<(Bytes, ColumnCloseResult), ParquetError> {
        let mut written = std::mem::replace(&mut self.written, Pages::new());
        (self.dictionary_bytes, self.memory_bytes) = (0, 0);
        self.ends_row_group = false;
        let data = std::mem::take(&mut written.bytes);
        let mut bytes = Vec::new();
        if let Some(dictionary) = self.dictionary.take().or(self.numbers.end()) {
            let head = Page::DictionaryPage {
                buf: Bytes::new(),
                num_values: dictionary.values as u32,
                encoding: Encoding::PLAIN,
                is_sorted: false,
            };
            written.put(tools, &dictionary.bytes, head)?;
            bytes = std::mem::take(&mut written.bytes);
        }
        let dictionary_bytes = bytes.len();
        bytes.extend_from_slice(&data);
        let result = Written {
            column: &self.column,
            compression: self.compression,
            pages: &written.bounds,
            encodings: written.encodings,
            locations: written.locations,
            rows,
            bytes: bytes.len(),
            uncompressed: written.uncompressed,
            dictionary_bytes,
            filter: self.filter.end(),
        };
        Ok((Bytes::from(bytes), result.result()?))
    }
}

impl Pages {
    fn new() -> Self {
        Self {
            bytes: Vec::new(),
            bounds: Vec::new(),
            locations: OffsetIndexBuilder::new(),
            encodings: Vec::new(),
            uncompressed: 0,
        }
    }

    /// Compresses and writes a page; where it is, and its bytes with its head.
    fn put(&mut self, tools: &mut Tools, bytes: &[u8], mut page: Page) -> Result<(u64, usize), ParquetError> {
        if bytes.len() > PAGE_BYTES {
            let fault = format!("a page of {} bytes; the most is {PAGE_BYTES}", bytes.len());
            return Err(ParquetError::General(fault));
        }
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
        let before = self.bytes.len() as u64;
        // It has a buffer of 8 KiB: one for each column of each open file would be most of what columns hold.
        let mut out = TrackedWrite::new(&mut self.bytes);
        let written =
            SerializedPageWriter::new(&mut out).write_page(CompressedPage::new(page, bytes.len()))?;
        out.into_inner()?;
        self.uncompressed += written.uncompressed_size;
        Ok((before + written.offset, written.compressed_size))
    }
}
