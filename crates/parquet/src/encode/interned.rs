//! Texts as our pages have them, from the moment they are pushed: places in a dictionary, or one after the other.
//!
//! A dictionary belongs to a row group. It ends where it does not pay: where more than half of the texts are new, or where it has
//! become large. Texts that runs of rows share are judged by their rows: those of long runs are in a dictionary whatever they are, so
//! that a page has each of them once, and where that has become large the row group ends.

use super::column::Ending;
use super::dictionary::{Dictionary, same};
use super::pages::Bounds;
use super::plain::Plain;
use super::plan::{DICTIONARY_BYTES, Plan, TRIAL};
use super::seen::Seen;
use super::text::mended;

#[derive(Debug)]
pub(crate) struct Interned {
    plan: Plan,
    dictionary: Dictionary,
    /// Of the page at hand.
    places: Vec<u32>,
    plain: Plain,
    /// Of the text before, plus one.
    last: u32,
    repaired: u64,
    /// Whether readers are told the bounds of pages.
    bounded: bool,
    /// Whether texts are those of runs of rows.
    shared: bool,
    seen: Seen,
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
    /// Texts one after the other.
    Plain(Plain),
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
            Self::Plain(plain) => plain.memory_bytes(),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Places(places, _) => places.len(),
            Self::Plain(plain) => plain.len(),
        }
    }
}

impl Interned {
    pub fn new() -> Self {
        Self {
            plan: Plan::new(false),
            dictionary: Dictionary::default(),
            places: Vec::new(),
            plain: Plain::default(),
            last: 0,
            repaired: 0,
            bounded: true,
            shared: false,
            seen: Seen::default(),
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
            plan: Plan::new(true),
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
        if !self.plan.looks_up() {
            self.plain.push(text);
            return;
        }
        let known = hint.wrapping_sub(1);
        if (known as usize) < self.dictionary.len() && same(self.dictionary.value(known), text) {
            self.places.push(known);
            return;
        }
        *hint = self.look_up(text) + 1;
    }

    /// As [`Interned::push`], where `hint` is 0, or what this left in it for the same text in the same row group.
    #[inline]
    pub fn push_known(&mut self, text: &[u8], hint: &mut u32) {
        match *hint {
            0 => self.push_hinted(text, hint),
            known if self.plan.looks_up() => self.places.push(known - 1),
            _ => self.plain.push(text),
        }
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
        // How many rows share a text is known at the end of the page.
        let looked_up = self.places.len();
        if !self.shared && looked_up >= TRIAL && self.plan.fails(self.dictionary.len(), looked_up) {
            self.lay_out();
        }
        place
    }

    fn is_large(&self) -> bool {
        self.dictionary.bytes().len() > DICTIONARY_BYTES
    }

    /// Turns the first page of a row group into a plain one.
    #[cold]
    fn lay_out(&mut self) {
        for place in &self.places {
            self.plain.push(self.dictionary.value(*place));
        }
        self.places.clear();
        self.dictionary.take();
        self.plan.give_up();
    }

    /// How many texts all rows of the page at hand have, roughly.
    fn texts_of_rows(&self, ending: &Ending) -> usize {
        let rows_each = match self.shared && ending.runs > 0 {
            true => (ending.rows + ending.runs / 2) / ending.runs,
            false => 1,
        };
        self.places.len() * rows_each
    }

    /// The page of what was pushed; no texts are left.
    pub fn finish(&mut self, ending: &mut Ending) -> TextPage {
        let of_rows = self.texts_of_rows(ending);
        if self.plan.looks_up() && self.plan.fails(self.dictionary.len(), of_rows) {
            self.lay_out();
        }
        // A page without texts refers to no dictionary.
        let (texts, bounds) = match self.plan.looks_up() && !self.places.is_empty() {
            true => self.finish_places(of_rows),
            false => self.finish_plain(),
        };
        ending.invalid_texts += std::mem::take(&mut self.repaired);
        let (dictionary_bytes, memory_bytes) = (
            self.dictionary.bytes().len(),
            self.dictionary.memory_bytes() + self.seen.memory_bytes(),
        );
        let ends_row_group = self.shared && self.is_large();
        let mut dictionary = None;
        if ending.row_group {
            let values = self.dictionary.len();
            let bytes = self.dictionary.take();
            dictionary = self.plan.end().then_some(DictionaryPage { bytes, values });
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

    fn finish_places(&mut self, of_rows: usize) -> (PageTexts, Option<Bounds>) {
        let (seen, dictionary) = (&mut self.seen, &self.dictionary);
        let bounds = self.bounded.then(|| {
            let distinct = seen.distinct(&self.places, dictionary.len());
            Bounds::of_texts(distinct.map(|place| dictionary.value(place)))
        });
        let room = self.places.len();
        let places = std::mem::replace(&mut self.places, Vec::with_capacity(room));
        let distinct = self.dictionary.len();
        let ends = self.is_large() && !self.shared;
        self.plan.finish_page(distinct, of_rows, ends);
        (PageTexts::Places(places, distinct), bounds.flatten())
    }

    fn finish_plain(&mut self) -> (PageTexts, Option<Bounds>) {
        let mut plain = self.plain.take();
        plain.mend(&mut self.repaired);
        let bounds = self.bounded.then(|| Bounds::of_texts(plain.texts())).flatten();
        (PageTexts::Plain(plain), bounds)
    }
}
