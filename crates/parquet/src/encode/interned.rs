//! Texts as our pages have them, from the moment they are pushed: places in a dictionary, or one after the other.
//!
//! A dictionary belongs to a row group. It ends where it does not pay: where more than half of the texts are new, or where it has
//! become large. Texts that runs of rows share are always in one, so that a page has each of them once however many rows have it;
//! where that dictionary has become large, the row group ends.

use super::column::Ending;
use super::dictionary::{self, Dictionary, put_text, same};
use super::pages::Bounds;
use super::text::{mend_page, mended};

/// A dictionary that has more bytes than this gets no further pages: it is in memory, here and in every reader.
pub(crate) const DICTIONARY_BYTES: usize = 8 << 20;

/// After so many texts of a row group it is looked whether a dictionary pays at all. Few enough that a small file does not
/// go through all of its unique texts in vain, enough to see that a column repeats itself.
const TRIAL: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plan {
    Dictionary,
    /// Pages that are finished have places, later ones of the row group texts.
    Ended,
    /// No page of the row group has places.
    Plain,
}

#[derive(Debug)]
pub(crate) struct Interned {
    plan: Plan,
    dictionary: Dictionary,
    /// Texts of finished pages of the row group that went through the dictionary.
    looked_up: usize,
    /// Of the page at hand.
    places: Vec<u32>,
    plain: Vec<u8>,
    plain_texts: usize,
    /// Of the text before, plus one.
    last: u32,
    repaired: u64,
    /// Whether readers are told the bounds of pages.
    bounded: bool,
    /// Whether a dictionary is never tried.
    unique: bool,
    /// Whether texts are those of runs of rows.
    shared: bool,
    /// One bit for each place, set where the page has it.
    seen: Vec<u64>,
}

/// The texts of a page.
#[derive(Debug)]
pub(crate) struct TextPage {
    pub texts: PageTexts,
    pub bounds: Option<Bounds>,
    /// The dictionary page, at the end of a row group that has one.
    pub dictionary: Option<DictionaryPage>,
    /// Bytes of the dictionary so far, and bytes of memory for it.
    pub dictionary_bytes: usize,
    pub memory_bytes: usize,
    /// Whether the row group had better end: its dictionary is large, and no texts can go without.
    pub ends_row_group: bool,
}

#[derive(Debug)]
pub(crate) enum PageTexts {
    /// Places in a dictionary of so many texts.
    Places(Vec<u32>, usize),
    /// So many texts one after the other, each with its length before it.
    Plain(Vec<u8>, usize),
}

#[derive(Debug)]
pub(crate) struct DictionaryPage {
    pub bytes: Vec<u8>,
    pub values: usize,
}

impl PageTexts {
    /// Bytes of memory it holds, and its column keeps for the next page.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Places(places, _) => size_of_val(&**places),
            Self::Plain(plain, _) => plain.len(),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Places(places, _) => places.len(),
            Self::Plain(_, texts) => *texts,
        }
    }
}

impl Interned {
    pub fn new() -> Self {
        Self {
            plan: Plan::Dictionary,
            dictionary: Dictionary::default(),
            looked_up: 0,
            places: Vec::new(),
            plain: Vec::new(),
            plain_texts: 0,
            last: 0,
            repaired: 0,
            bounded: true,
            unique: false,
            shared: false,
            seen: Vec::new(),
        }
    }

    /// Of a column that is in lists, whose pages have no bounds.
    pub fn in_lists() -> Self {
        Self {
            bounded: false,
            ..Self::new()
        }
    }

    /// Of a column that has a text for each run of rows.
    pub fn shared() -> Self {
        Self {
            shared: true,
            ..Self::new()
        }
    }

    /// Of a column that is in lists that runs of rows share.
    pub fn shared_in_lists() -> Self {
        Self {
            shared: true,
            ..Self::in_lists()
        }
    }

    /// Of texts that rarely occur twice: a dictionary of them is work for nothing.
    pub fn unique() -> Self {
        Self {
            plan: Plan::Plain,
            unique: true,
            ..Self::new()
        }
    }

    #[inline]
    pub fn push(&mut self, text: &[u8]) {
        let mut last = self.last;
        self.push_hinted(text, &mut last);
        self.last = last;
    }

    /// As [`Interned::push`]; `hint` is what this left in it the last time that the same text was likely. It may be anything.
    #[inline]
    pub fn push_hinted(&mut self, text: &[u8], hint: &mut u32) {
        if self.plan != Plan::Dictionary {
            put_text(&mut self.plain, text);
            self.plain_texts += 1;
            return;
        }
        let known = hint.wrapping_sub(1);
        if (known as usize) < self.dictionary.len() && same(self.dictionary.value(known), text) {
            self.places.push(known);
            return;
        }
        *hint = self.look_up(text) + 1;
    }

    #[inline(never)]
    fn look_up(&mut self, text: &[u8]) -> u32 {
        let vacancy = match self.dictionary.find(text) {
            Ok(place) => {
                self.places.push(place);
                return place;
            }
            Err(vacancy) => vacancy,
        };
        if !text.is_ascii()
            && let Some(mended) = mended(text)
        {
            self.repaired += 1;
            return self.look_up(mended.as_bytes());
        }
        let place = self.dictionary.insert(vacancy, text);
        self.places.push(place);
        if self.places.len() >= TRIAL && self.looked_up == 0 && !self.pays(self.places.len()) {
            self.lay_out();
        }
        place
    }

    fn pays(&self, looked_up: usize) -> bool {
        self.shared || self.dictionary.len() * 2 <= looked_up
    }

    fn is_large(&self) -> bool {
        self.dictionary.bytes().len() > DICTIONARY_BYTES
    }

    /// Turns the first page of a row group into a plain one.
    #[cold]
    fn lay_out(&mut self) {
        for place in &self.places {
            self.plain.extend_from_slice(self.dictionary.framed(*place));
        }
        self.plain_texts = self.places.len();
        self.places.clear();
        self.dictionary.take();
        self.plan = Plan::Plain;
    }

    /// The page of what was pushed; no texts are left.
    pub fn finish(&mut self, ending: &mut Ending) -> TextPage {
        if self.plan == Plan::Dictionary && self.looked_up == 0 && !self.pays(self.places.len()) {
            self.lay_out();
        }
        let page = match self.plan {
            Plan::Dictionary if !self.places.is_empty() => self.finish_places(),
            // A page without texts refers to no dictionary.
            _ => self.finish_plain(),
        };
        ending.invalid_texts += std::mem::take(&mut self.repaired);
        let (texts, bounds) = page;
        let (dictionary_bytes, memory_bytes) = (
            self.dictionary.bytes().len(),
            self.dictionary.memory_bytes() + 8 * self.seen.capacity(),
        );
        let ends_row_group = self.shared && self.is_large();
        let mut dictionary = None;
        if ending.row_group {
            let values = self.dictionary.len();
            let bytes = self.dictionary.take();
            dictionary = (self.looked_up > 0).then_some(DictionaryPage { bytes, values });
            self.looked_up = 0;
            if !self.unique {
                self.plan = Plan::Dictionary;
            }
        }
        TextPage {
            texts,
            bounds,
            dictionary,
            dictionary_bytes,
            memory_bytes,
            ends_row_group,
        }
    }

    fn finish_places(&mut self) -> (PageTexts, Option<Bounds>) {
        self.looked_up += self.places.len();
        let bounds = self.bounded.then(|| self.bounds_of_places()).flatten();
        let room = self.places.len();
        let places = std::mem::replace(&mut self.places, Vec::with_capacity(room));
        if !self.pays(self.looked_up) || self.is_large() && !self.shared {
            self.plan = Plan::Ended;
        }
        (PageTexts::Places(places, self.dictionary.len()), bounds)
    }

    fn finish_plain(&mut self) -> (PageTexts, Option<Bounds>) {
        let room = self.plain.len();
        let mut plain = std::mem::replace(&mut self.plain, Vec::with_capacity(room));
        // Lengths are ASCII where texts are short.
        if !plain.is_ascii() && dictionary::texts(&plain).any(|text| std::str::from_utf8(text).is_err()) {
            plain = mend_page(&plain, &mut self.repaired);
        }
        let bounds = self
            .bounded
            .then(|| Bounds::of_texts(dictionary::texts(&plain)))
            .flatten();
        (
            PageTexts::Plain(plain, std::mem::take(&mut self.plain_texts)),
            bounds,
        )
    }

    /// Bounds of a page of places: each of its texts is looked at once.
    fn bounds_of_places(&mut self) -> Option<Bounds> {
        let seen = &mut self.seen;
        seen.clear();
        seen.resize(self.dictionary.len().div_ceil(64), 0);
        for place in &self.places {
            seen[*place as usize / 64] |= 1 << (place % 64);
        }
        Bounds::of_texts(bits(seen).map(|place| self.dictionary.value(place)))
    }
}

/// The numbers of the bits that are set.
pub(crate) fn bits(words: &[u64]) -> impl Iterator<Item = u32> {
    words.iter().enumerate().flat_map(|(word, bits)| {
        let mut bits = *bits;
        std::iter::from_fn(move || {
            let bit = (bits != 0).then(|| bits.trailing_zeros())?;
            bits &= bits - 1;
            Some(word as u32 * 64 + bit)
        })
    })
}
