//! Neighbouring items have the same shape: remember the shapes met in a body and check the next item against them.
//!
//! A shape is a valid message of the body and a mask over its bytes, which says how much of each byte must be equal for
//! another message of that length to be valid for the same reasons:
//!
//! - `0xff`, the whole byte: keys, lengths, unknown fields, text that is not ASCII;
//! - `0x80`, the high bit: ASCII text (stays ASCII), varints (keep their lengths);
//! - `0x00`, nothing: fixed-width values, bytes, ids.
//!
//! So a message is checked with one pass of `(message ^ sample) & mask`, whatever its fields. A message that differs says
//! nothing; it is walked field by field.

use crate::cursor::{Field, Fields, wire};
use crate::grammar::{MessageId, Shape};

/// Longer messages are walked: their bytes are mostly text, which the walk checks as fast.
const MAX_LEN: usize = 512;
const MIN_LEN: usize = 32;

/// Shapes remembered at a time, by length.
const SLOTS: usize = 8;

/// What a try costs and gains, in units of the time a hit saves: a hit gains 1, a miss costs 1, learning costs 6.
/// When the credit is used up, messages are walked without a try for a while, twice as long every time.
const CREDIT: i32 = 24;
const CREDIT_AGAIN: i32 = 10;
const CREDIT_MAX: i32 = 64;
const LEARN: i32 = 6;
const FIRST_PAUSE: u32 = 64;

/// The shapes met in one body.
pub(crate) struct Shapes {
    slots: [Slot; SLOTS],
    masks: [[u8; MAX_LEN]; SLOTS],
    /// Falls with every miss, rises with every hit.
    credit: i32,
    /// Messages still to be walked without a try, and how many it is to be next time.
    pause: u32,
    next_pause: u32,
}

#[derive(Clone, Copy)]
struct Slot {
    id: Option<MessageId>,
    ready: bool,
    /// Position of the sample in the body.
    at: usize,
    len: usize,
    /// Items inside the sample.
    items: u64,
}

/// What to do with a message that has been met.
pub(crate) enum Verdict {
    /// Valid, and this many items inside; [`Shapes::run`] may go on from here.
    Valid { items: u64, slot: usize },
    /// Walk it.
    Walk,
    /// Walk it, then hand it to [`Shapes::learn`] if it is valid.
    Learn,
}

impl Shapes {
    pub fn new() -> Self {
        let slot = Slot {
            id: None,
            ready: false,
            at: 0,
            len: 0,
            items: 0,
        };
        Self {
            slots: [slot; SLOTS],
            masks: [[0; MAX_LEN]; SLOTS],
            credit: CREDIT,
            pause: 0,
            next_pause: FIRST_PAUSE,
        }
    }

    fn slot(len: usize) -> usize {
        (len ^ len >> 3) % SLOTS
    }

    /// Compares the message `body[at..end]` with what is remembered.
    #[inline]
    pub fn check(&mut self, id: MessageId, body: &[u8], at: usize, end: usize) -> Verdict {
        let len = end - at;
        if !(MIN_LEN..=MAX_LEN).contains(&len) {
            return Verdict::Walk;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return Verdict::Walk;
        }
        let index = Self::slot(len);
        let slot = &mut self.slots[index];
        if slot.id == Some(id) && slot.len == len {
            if !slot.ready {
                self.credit -= LEARN;
                return Verdict::Learn;
            }
            if let (Some(message), Some(sample), Some(mask)) = (
                body.get(at..end),
                body.get(slot.at..slot.at + len),
                self.masks[index].get(..len),
            ) && same_shape(message, sample, mask)
            {
                self.credit = (self.credit + 1).min(CREDIT_MAX);
                return Verdict::Valid {
                    items: slot.items,
                    slot: index,
                };
            }
        }
        *slot = Slot {
            id: Some(id),
            ready: false,
            at,
            len,
            items: 0,
        };
        self.credit -= 1;
        if self.credit <= 0 {
            self.credit = CREDIT_AGAIN;
            self.pause = self.next_pause;
            self.next_pause = self.next_pause.saturating_mul(2);
        }
        Verdict::Walk
    }

    /// How many messages with the shape in `slot` follow the valid one in `view[start..end]`, whose key is at `at`, each
    /// behind the same key and length.
    #[inline]
    pub fn run(&mut self, slot: usize, view: &[u8], at: usize, start: usize, end: usize) -> usize {
        let (step, head) = (end - at, start - at);
        let (Some(first), Some(sample), Some(mask)) = (
            view.get(at..).and_then(|bytes| bytes.first_chunk::<4>()),
            view.get(start..end),
            self.masks[slot].get(..end - start),
        ) else {
            return 0;
        };
        if head > 4 {
            return 0;
        }
        let head_mask = u32::MAX >> (32 - 8 * head);
        let expected = u32::from_le_bytes(*first) & head_mask;
        let mut messages = 0;
        let mut rest = &view[end..];
        while let Some((next, after)) = rest.split_at_checked(step)
            && let Some((found, _)) = next.split_first_chunk::<4>()
            && u32::from_le_bytes(*found) & head_mask == expected
            && same_shape(&next[head..], sample, mask)
        {
            messages += 1;
            rest = after;
        }
        self.credit = self
            .credit
            .saturating_add(i32::try_from(messages).unwrap_or(CREDIT_MAX))
            .min(CREDIT_MAX);
        messages
    }

    /// Remembers the shape of a message found valid, with `items` inside.
    #[cold]
    pub fn learn(&mut self, id: MessageId, body: &[u8], at: usize, end: usize, items: u64) {
        let len = end - at;
        let index = Self::slot(len);
        let Some(mask) = self.masks[index].get_mut(..len) else {
            return;
        };
        mask.fill(0xff);
        relax(id, &body[at..end], mask);
        self.slots[index] = Slot {
            id: Some(id),
            ready: true,
            at,
            len,
            items,
        };
    }
}

/// Bytes compared in one go.
const STEP: usize = MIN_LEN;

/// Whether `message` equals `sample` where `mask` says so; all three are as long, and no shorter than [`STEP`].
#[inline]
fn same_shape(message: &[u8], sample: &[u8], mask: &[u8]) -> bool {
    if sample.len() != message.len() || mask.len() != message.len() {
        return false;
    }
    let (Some(last), Some(last_sample), Some(last_mask)) =
        (message.last_chunk(), sample.last_chunk(), mask.last_chunk())
    else {
        return false;
    };
    let blocks = message.as_chunks().0.iter();
    let blocks = blocks.zip(sample.as_chunks().0).zip(mask.as_chunks().0);
    for ((message, sample), mask) in blocks {
        if differ(message, sample, mask) {
            return false;
        }
    }
    !differ(last, last_sample, last_mask)
}

#[inline(always)]
fn differ(message: &[u8; STEP], sample: &[u8; STEP], mask: &[u8; STEP]) -> bool {
    let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    let (message, sample, mask) = (message.as_chunks().0, sample.as_chunks().0, mask.as_chunks().0);
    let mut bits = 0;
    for ((message, sample), mask) in message.iter().zip(sample).zip(mask) {
        bits |= (word(message) ^ word(sample)) & word(mask);
    }
    bits != 0
}

/// Lowers the mask of a valid message from "everything equal" to what its validity rests on.
fn relax(id: MessageId, message: &[u8], mask: &mut [u8]) {
    let rule = id.rule();
    let mut end = 0;
    for field in Fields::of(message) {
        end += field.framed.len();
        if let Some(rule) = rule.field(field.number)
            && let Some(value) = mask.get_mut(end - field.value.len()..end)
        {
            relax_field(rule.shape, &field, value);
        }
    }
}

fn relax_field(shape: Shape, field: &Field<'_>, mask: &mut [u8]) {
    match (shape, field.wire) {
        (Shape::Fixed64 | Shape::Fixed32 | Shape::Fixed64s, _) => mask.fill(0),
        (Shape::Bytes | Shape::Id8 | Shape::Id16, _) => mask.fill(0),
        (Shape::String, _) if field.value.is_ascii() => mask.fill(0x80),
        (Shape::Varint | Shape::Varints, _) => {
            mask.fill(0x80);
            // The tenth byte of a varint must stay at most 1.
            let mut len = 0;
            for (byte, mask) in field.value.iter().zip(mask) {
                len += 1;
                if len == 10 {
                    *mask = 0xff;
                }
                if *byte < 0x80 {
                    len = 0;
                }
            }
        }
        (shape, wire::LEN) => {
            if let Some(inner) = shape.message() {
                relax(inner, field.value, mask);
            }
        }
        _ => {}
    }
}
