//! The Bloom filter of a column of texts: engines that look for one text skip row groups that do not have it.

use parquet::bloom_filter::Sbbf;
use parquet::errors::ParquetError;

use crate::encode::file::ROW_GROUP_ROWS;

/// Row groups that are read in vain, of those without the text. A filter has some 1.3 bytes a distinct text for that.
const FALSE_POSITIVES: f64 = 0.01;

/// Of Parquet's Bloom filters: eight words of four bytes.
const BLOCK_BYTES: usize = 32;

#[derive(Default)]
pub(crate) struct Filter {
    wanted: bool,
    /// As large as a row group of distinct texts needs; none before the first text.
    texts: Option<Sbbf>,
}

impl Filter {
    pub fn new(wanted: bool) -> Self {
        Self { wanted, texts: None }
    }

    /// Bytes of memory it holds.
    pub fn memory_bytes(&self) -> usize {
        self.texts
            .as_ref()
            .map_or(0, |filter| filter.num_blocks() * BLOCK_BYTES)
    }

    /// Takes texts of the row group.
    pub fn insert<'a>(&mut self, texts: impl Iterator<Item = &'a [u8]>) -> Result<(), ParquetError> {
        if !self.wanted {
            return Ok(());
        }
        for text in texts {
            let filter = match &mut self.texts {
                Some(filter) => filter,
                none => none.insert(Sbbf::new_with_ndv_fpp(ROW_GROUP_ROWS as u64, FALSE_POSITIVES)?),
            };
            filter.insert(text);
        }
        Ok(())
    }

    /// Ends the row group: its filter, if it has texts, no larger than they need.
    pub fn end(&mut self) -> Option<Sbbf> {
        let mut filter = self.texts.take()?;
        filter.fold_to_target_fpp(FALSE_POSITIVES);
        Some(filter)
    }
}
