//! Whether the values of a column are looked up in a dictionary, from page to page of a row group: texts and numbers alike.

/// A dictionary that has more bytes than this gets no further pages: it is in memory, here and in every reader.
pub(crate) const DICTIONARY_BYTES: usize = 8 << 20;

/// After so many values of a row group it is looked whether a dictionary pays at all. Few enough that a small file does not
/// go through all of its unique values in vain, enough to see that a column repeats itself.
pub(crate) const TRIAL: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Dictionary,
    /// Pages that are finished have places, later ones of the row group values.
    Ended,
    /// No page of the row group has places.
    Plain,
}

/// What is done with the values of one column.
#[derive(Debug)]
pub(crate) struct Plan {
    stage: Stage,
    /// Whether a dictionary is never tried.
    unique: bool,
    /// Values of rows of finished pages of the row group that are in the dictionary.
    looked_up: usize,
}

/// Whether at most half of what was looked up was new.
fn pays(distinct: usize, looked_up: usize) -> bool {
    distinct * 2 <= looked_up
}

impl Plan {
    /// `unique`: values rarely occur twice, so that a dictionary is work for nothing.
    pub fn new(unique: bool) -> Self {
        Self {
            stage: match unique {
                true => Stage::Plain,
                false => Stage::Dictionary,
            },
            unique,
            looked_up: 0,
        }
    }

    /// Whether values are looked up.
    #[inline]
    pub fn looks_up(&self) -> bool {
        self.stage == Stage::Dictionary
    }

    /// Whether the page at hand had better go without the dictionary, in which its first `values` are `distinct` ones. Only the
    /// first page of a row group can: nothing refers to the dictionary yet.
    #[inline]
    pub fn fails(&self, distinct: usize, values: usize) -> bool {
        self.looked_up == 0 && !pays(distinct, values)
    }

    /// The row group goes without a dictionary.
    pub fn give_up(&mut self) {
        self.stage = Stage::Plain;
    }

    /// A page of places is finished: so many values of rows. Whether the next one has places, too, is decided here.
    pub fn finish_page(&mut self, distinct: usize, values: usize, large: bool) {
        self.looked_up += values;
        if large || !pays(distinct, self.looked_up) {
            self.stage = Stage::Ended;
        }
    }

    /// Ends the row group; whether pages of it refer to the dictionary.
    pub fn end(&mut self) -> bool {
        if !self.unique {
            self.stage = Stage::Dictionary;
        }
        std::mem::take(&mut self.looked_up) > 0
    }
}
