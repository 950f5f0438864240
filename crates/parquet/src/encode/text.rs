//! Columns of texts as they grow: for Arrow, or as our pages have them.

use arrow_array::StringArray;
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType;
use std::sync::Arc;

use super::column::{Data, Ending};
use super::file::{FileSettings, PageEncoder};
use super::interned::{Interned, TextPage};
use super::validity::Validity;

/// Texts, some of which may be absent.
#[derive(Debug)]
pub(crate) struct Texts {
    validity: Validity,
    values: Values,
}

#[derive(Debug)]
enum Values {
    /// What is pushed is believed to be UTF-8 and checked all at once at the end.
    Arrow {
        bytes: Vec<u8>,
        ends: Vec<i32>,
    },
    Own(Box<Interned>),
}

/// A batch of texts for our pages.
#[derive(Debug)]
pub(crate) struct TextColumn {
    pub nulls: Option<NullBuffer>,
    pub page: TextPage,
}

impl Texts {
    /// A column of rows.
    pub fn new(settings: &FileSettings) -> Self {
        Self::of(settings, Interned::new)
    }

    /// A column of what is in lists.
    pub fn in_lists(settings: &FileSettings) -> Self {
        Self::of(settings, Interned::in_lists)
    }

    /// A column of runs of rows.
    pub fn shared(settings: &FileSettings) -> Self {
        Self::of(settings, Interned::shared)
    }

    /// A column of what is in lists that runs of rows share.
    pub fn shared_in_lists(settings: &FileSettings) -> Self {
        Self::of(settings, Interned::shared_in_lists)
    }

    /// A column of rows that rarely have the same text.
    pub fn unique(settings: &FileSettings) -> Self {
        Self::of(settings, Interned::unique)
    }

    fn of(settings: &FileSettings, own: impl Fn() -> Interned) -> Self {
        Self {
            validity: Validity::default(),
            values: match settings.page_encoder() {
                PageEncoder::Own => Values::Own(Box::new(own())),
                PageEncoder::Arrow => Values::Arrow {
                    bytes: Vec::new(),
                    ends: vec![0],
                },
            },
        }
    }

    #[inline]
    pub fn push(&mut self, text: &[u8]) {
        self.validity.push_present();
        match &mut self.values {
            Values::Own(own) => own.push(text),
            Values::Arrow { bytes, ends } => {
                bytes.extend_from_slice(text);
                // A batch is flushed long before its texts reach 2 GiB: see `BATCH_BYTES`.
                ends.push(bytes.len() as i32);
            }
        }
    }

    /// As [`Texts::push`], where texts of one owner are alike in whether they come again; see [`Interned::push_of`].
    #[inline]
    pub fn push_of(&mut self, owner: u32, text: &[u8]) {
        match &mut self.values {
            Values::Own(own) => {
                self.validity.push_present();
                own.push_of(owner, text);
            }
            Values::Arrow { .. } => self.push(text),
        }
    }

    /// As [`Texts::push`], where `known` is 0, or what this left in it for the same text in the same row group. Its number as an
    /// owner; see [`Interned::push_known`].
    #[inline]
    pub fn push_known<'a>(&mut self, known: &mut u32, text: impl FnOnce() -> &'a [u8]) -> u32 {
        match &mut self.values {
            Values::Own(own) => {
                self.validity.push_present();
                own.push_known(known, text)
            }
            Values::Arrow { .. } => {
                self.push(text());
                0
            }
        }
    }

    #[inline]
    pub fn push_absent(&mut self) {
        self.validity.push_absent();
        if let Values::Arrow { bytes, ends } = &mut self.values {
            ends.push(bytes.len() as i32);
        }
    }

    /// Absent when empty: proto3 does not tell the two apart.
    #[inline]
    pub fn push_unless_empty(&mut self, text: &[u8]) {
        match text {
            [] => self.push_absent(),
            text => self.push(text),
        }
    }

    #[inline]
    pub fn push_option(&mut self, text: Option<&[u8]>) {
        match text {
            None => self.push_absent(),
            Some(text) => self.push(text),
        }
    }

    /// An id in lower-case hexadecimal digits; absent when empty.
    #[inline]
    pub fn push_hex(&mut self, id: &[u8]) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digits = id
            .iter()
            .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        // Those of 16 bytes are the longest that are not mistakes.
        let mut short = [0; 32];
        if id.is_empty() {
            self.push_absent();
        } else if id.len() <= 16 {
            short.iter_mut().zip(digits).for_each(|(to, digit)| *to = digit);
            self.push(&short[..2 * id.len()]);
        } else {
            self.push(&digits.collect::<Vec<u8>>());
        }
    }

    /// Adds the text of row `row`; those from here up to it are absent.
    #[inline]
    pub fn push_at(&mut self, row: usize, text: &[u8]) {
        match &mut self.values {
            Values::Own(own) => {
                self.validity.push_present_at(row);
                own.push(text);
            }
            Values::Arrow { .. } => {
                self.pad(row);
                self.push(text);
            }
        }
    }

    /// Adds what is absent up to `rows`.
    #[inline]
    pub fn pad(&mut self, rows: usize) {
        self.validity.pad(rows);
        if let Values::Arrow { bytes, ends } = &mut self.values {
            ends.resize(rows + 1, bytes.len() as i32);
        }
    }

    /// The column; no rows are left.
    pub fn finish(&mut self, ending: &mut Ending) -> Data {
        let nulls = self.validity.finish();
        match &mut self.values {
            Values::Own(own) => Data::Texts(TextColumn {
                nulls,
                page: own.finish(ending),
            }),
            Values::Arrow { bytes, ends } => {
                let (bytes, ends) = (std::mem::take(bytes), std::mem::replace(ends, vec![0]));
                Data::Array(Arc::new(array(bytes, ends, nulls, &mut ending.invalid_texts)))
            }
        }
    }
}

impl TextColumn {
    pub const TYPE: DataType = DataType::Utf8;
}

/// Texts that end at these places, mended where they are not UTF-8: only bodies that a receiver let in unchecked have such.
fn array(bytes: Vec<u8>, ends: Vec<i32>, nulls: Option<NullBuffer>, repaired: &mut u64) -> StringArray {
    let bytes = Buffer::from_vec(bytes);
    let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
    // Cloning shares; this is where UTF-8 is checked, once for all texts of the batch.
    if let Ok(texts) = StringArray::try_new(offsets.clone(), bytes.clone(), nulls.clone()) {
        return texts;
    }
    let (mut good, mut good_ends) = (Vec::with_capacity(bytes.len()), vec![0]);
    for pair in offsets.windows(2) {
        put_mended(&mut good, &bytes[pair[0] as usize..pair[1] as usize], repaired);
        good_ends.push(good.len() as i32);
    }
    StringArray::new(
        OffsetBuffer::new(ScalarBuffer::from(good_ends)),
        Buffer::from_vec(good),
        nulls,
    )
}

fn put_mended(out: &mut Vec<u8>, text: &[u8], repaired: &mut u64) {
    match mended(text) {
        None => out.extend_from_slice(text),
        Some(mended) => {
            *repaired += 1;
            out.extend_from_slice(mended.as_bytes());
        }
    }
}

/// Whether a text is ASCII; it is short, mostly, which [`slice::is_ascii`] is not made for.
#[inline]
pub(crate) fn is_ascii(text: &[u8]) -> bool {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    match (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        (Some(first), Some(last)) => {
            (u64::from_le_bytes(*first) | u64::from_le_bytes(*last)) & HIGH == 0
                && (text.len() <= 16 || is_ascii_long(text))
        }
        _ => text.iter().fold(0, |all, byte| all | byte) < 0x80,
    }
}

/// The same of a text of more than sixteen bytes.
#[inline]
fn is_ascii_long(text: &[u8]) -> bool {
    const HIGH: u128 = u128::from_le_bytes([0x80; 16]);
    let word = |bytes: &[u8; 16]| u128::from_le_bytes(*bytes);
    let last = text.last_chunk().map_or(HIGH, word);
    let chunks = text.as_chunks().0.iter();
    chunks.fold(last, |all, chunk| all | word(chunk)) & HIGH == 0
}

/// The text with U+FFFD in the place of what is not UTF-8; none where it is.
pub(crate) fn mended(text: &[u8]) -> Option<String> {
    match String::from_utf8_lossy(text) {
        std::borrow::Cow::Borrowed(_) => None,
        std::borrow::Cow::Owned(mended) => Some(mended),
    }
}
