//! Texts as our pages have them, from the moment they are pushed: places in a dictionary, or one after the other.
//!
//! A dictionary belongs to a row group. It ends where it does not pay: where more than half of the texts are new, or where it has
//! become large. Texts that runs of rows share are judged by their rows: those of long runs are in a dictionary whatever they are, so
//! that a page has each of them once, and where that has become large the row group ends.

use super::column::Ending;
use super::dictionary::Dictionary;
use super::pages::Bounds;
use super::plain::Plain;
use super::plan::{DICTIONARY_BYTES, Plan, TRIAL};
use super::seen::Seen;
use super::text::mended;

#[cfg(test)]
mod tests;

/// Texts that wait to be looked up, at most: enough that looking up is done column by column, and few enough that what waits in
/// fifty columns stays near the core.
const WAITING: usize = 64;

/// And bytes of them.
const WAITING_BYTES: usize = 4096;

/// After so many texts in a row that were new it is believed that more of them are: most are put into the dictionary without
/// being looked up.
const UNIQUE: u32 = 256;

/// One in so many of those is still looked up. If it is there, all are looked up again; until then a text may have several places.
const SAMPLE: u32 = 16;

/// Owners that are told apart.
const OWNERS: u32 = 4096;

#[derive(Debug)]
pub(crate) struct Interned {
    plan: Plan,
    dictionary: Dictionary,
    /// Of the page at hand.
    places: Vec<u32>,
    /// While there is a dictionary, texts that wait to be looked up; else the page at hand.
    plain: Plain,
    /// Of each text that waits: whose it is. Empty where texts have no owners.
    owners: Vec<u32>,
    /// Of each owner, and nobody: how many of its last texts were new.
    new: Vec<u32>,
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
            owners: Vec::new(),
            new: Vec::new(),
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
        self.plain.push(text);
        if self.plan.looks_up() && (self.plain.len() >= WAITING || self.plain.bytes().len() >= WAITING_BYTES)
        {
            self.look_up_waiting();
        }
    }

    /// As [`Interned::push`], where texts of one owner are alike in whether they come again. All texts of a column have owners, or
    /// none has; 0 is nobody.
    #[inline]
    pub fn push_of(&mut self, owner: u32, text: &[u8]) {
        if self.plan.looks_up() {
            self.owners.push(owner);
        }
        self.push(text);
    }

    /// Adds a text, where `known` is 0, or what this left in it for the same text in the same row group. All texts of a column are
    /// added so, or none is. Its number as an owner.
    #[inline]
    pub fn push_known<'a>(&mut self, known: &mut u32, text: impl FnOnce() -> &'a [u8]) -> u32 {
        match (self.plan.looks_up(), *known) {
            (false, _) => {
                self.plain.push(text());
                0
            }
            (true, 0) => {
                let before = self.dictionary.len();
                let place = look_up(&mut self.dictionary, &mut self.repaired, text());
                self.places.push(place);
                // Of one that was there, too, this process may know nothing, or not any more: files must not depend on that.
                if self.dictionary.len() > before {
                    self.try_out();
                }
                *known = place + 1;
                *known
            }
            (true, known) => {
                self.places.push(known - 1);
                known
            }
        }
    }

    /// Looks up what waits, all of it at once: what one column needs for that is then at hand, and no text waits for the one before.
    #[inline(never)]
    fn look_up_waiting(&mut self) {
        let Self {
            plain,
            owners,
            new,
            dictionary,
            places,
            repaired,
            ..
        } = self;
        if new.is_empty() {
            new.push(0);
        }
        if !owners.is_empty() {
            for (text, owner) in plain.texts().zip(owners.iter()) {
                let owner = if *owner < OWNERS { *owner as usize } else { 0 };
                if owner >= new.len() {
                    new.resize(owner + 1, 0);
                }
                places.push(place(dictionary, &mut new[owner], repaired, text));
            }
        } else if plain.is_one_text() {
            let mut mended = 0;
            let text = plain.texts().next().unwrap_or_default();
            let place = place(dictionary, &mut new[0], &mut mended, text);
            places.resize(places.len() + plain.len(), place);
            *repaired += mended * plain.len() as u64;
        } else {
            for text in plain.texts() {
                places.push(place(dictionary, &mut new[0], repaired, text));
            }
        }
        owners.clear();
        plain.clear();
        self.try_out();
    }

    /// Goes on without a dictionary if that had better be.
    fn try_out(&mut self) {
        // How many rows share a text is known at the end of the page.
        let looked_up = self.places.len();
        if !self.shared && looked_up >= TRIAL && self.plan.fails(self.dictionary.len(), looked_up) {
            self.lay_out();
        }
    }

    fn is_large(&self) -> bool {
        self.dictionary.bytes().len() > DICTIONARY_BYTES
    }

    /// Turns the first page of a row group, of which no texts wait, into a plain one.
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
        if self.plan.looks_up() && self.plain.len() > 0 {
            self.look_up_waiting();
        }
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
            self.dictionary.memory_bytes() + self.seen.memory_bytes() + self.waiting_bytes(),
        );
        let ends_row_group = self.shared && self.is_large();
        let mut dictionary = None;
        if ending.row_group {
            let values = self.dictionary.len();
            let bytes = self.dictionary.take();
            self.new = Vec::new();
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

    /// Bytes of the room for what waits to be looked up. That of a plain page counts with the page.
    fn waiting_bytes(&self) -> usize {
        match self.plan.looks_up() {
            false => 0,
            true => {
                self.plain.room_bytes() + size_of::<u32>() * (self.owners.capacity() + self.new.capacity())
            }
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

/// The place of a text, of whose owner the last `new` ones were new: it may be a second one if those are many.
#[inline]
fn place(dictionary: &mut Dictionary, new: &mut u32, repaired: &mut u64, text: &[u8]) -> u32 {
    if *new >= UNIQUE && !new.is_multiple_of(SAMPLE) {
        *new += 1;
        return add(dictionary, repaired, text);
    }
    let before = dictionary.len();
    let place = look_up(dictionary, repaired, text);
    *new = match dictionary.len() > before {
        true => *new + 1,
        false => 0,
    };
    place
}

/// The one place of a text.
#[inline]
fn look_up(dictionary: &mut Dictionary, repaired: &mut u64, text: &[u8]) -> u32 {
    match dictionary.find(text) {
        Ok(place) => place,
        Err(vacancy) if text.is_ascii() => dictionary.insert(vacancy, text),
        Err(vacancy) => match mended(text) {
            None => dictionary.insert(vacancy, text),
            Some(mended) => {
                *repaired += 1;
                let mended = mended.as_bytes();
                match dictionary.find(mended) {
                    Ok(place) => place,
                    Err(vacancy) => dictionary.insert(vacancy, mended),
                }
            }
        },
    }
}

/// A place of its own for a text.
fn add(dictionary: &mut Dictionary, repaired: &mut u64, text: &[u8]) -> u32 {
    if !text.is_ascii()
        && let Some(mended) = mended(text)
    {
        *repaired += 1;
        return dictionary.append(mended.as_bytes());
    }
    dictionary.append(text)
}
