//! Dropping and inserting fields anywhere in a body, in one pass.

use std::cmp::Reverse;
use std::ops::Range;

use bytes::Bytes;

use crate::cursor::{self, MAX_DEPTH, put_varint, wire};
use crate::error::{Fault, WireError};
use crate::grammar::{MessageId, Shape};
use crate::kind::Kind;
use crate::locate::offset_in;

/// What a processor wants changed in a body: fields to drop, fields to insert.
///
/// Offsets are those of the unedited body. Edits may be added in any order; those at one place are applied in the
/// order they were added. [`Edits::apply`] rewrites the body once and corrects the lengths of the enclosing messages.
#[derive(Debug, Clone, Default)]
pub struct Edits {
    list: Vec<Edit>,
}

#[derive(Debug, Clone)]
enum Edit {
    /// Whole fields, keys included.
    Drop(Range<usize>),
    /// Before the field that starts here; at the end of the body: the end of the request.
    Insert(usize, Bytes),
    /// At the end of the message whose value this is.
    Append(Range<usize>, Bytes),
}

impl Edit {
    fn place(&self) -> usize {
        match self {
            Self::Drop(range) => range.start,
            Self::Insert(at, _) => *at,
            Self::Append(range, _) => range.end,
        }
    }

    /// The order of the walk: at one place the innermost message ends first, then the next field starts.
    fn order(&self) -> (usize, u8, Reverse<usize>) {
        match self {
            Self::Append(range, _) => (range.end, 0, Reverse(range.start)),
            Self::Insert(at, _) => (*at, 1, Reverse(0)),
            Self::Drop(range) => (range.start, 2, Reverse(0)),
        }
    }
}

impl Edits {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { list: Vec::new() }
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Drops the field, or the run of neighbouring fields of one message, that covers exactly `range`, keys included.
    pub fn drop(&mut self, range: Range<usize>) {
        if !range.is_empty() {
            self.list.push(Edit::Drop(range));
        }
    }

    /// Inserts whole fields before the field whose key starts at `at`; at the end of the body, behind the last field of
    /// the request. Together with [`Edits::drop`] of that field it replaces it.
    pub fn insert(&mut self, at: usize, fields: Bytes) {
        self.list.push(Edit::Insert(at, fields));
    }

    /// Inserts whole fields behind the last field of the message whose value (key and length not included) is `message`.
    pub fn append(&mut self, message: Range<usize>, fields: Bytes) {
        self.list.push(Edit::Append(message, fields));
    }

    /// The body with all edits done.
    ///
    /// A resource, scope or metric that loses its last item is left out together with its header,
    /// so that no empty envelope goes out. What is inserted is not looked at.
    ///
    /// # Errors
    /// [`Fault::Edit`] when an edit is not on a field boundary of a message of the schema, or overlaps another one; the
    /// faults of [`crate::count`] when the framing on the way to an edit is broken.
    pub fn apply(&self, kind: Kind, body: &[u8]) -> Result<Vec<u8>, WireError> {
        let mut order: Vec<&Edit> = self.list.iter().collect();
        order.sort_by_key(|edit| edit.order());
        let mut plan = Plan {
            body,
            edits: &order,
            patches: Vec::with_capacity(order.len() * 4),
        };
        let outcome = plan.message(kind.root(), body, MAX_DEPTH)?;
        if let Some(edit) = plan.edits.first() {
            return Err(WireError::at(Fault::Edit, edit.place()));
        }
        let len = body.len().saturating_add_signed(outcome.delta);
        let mut out = Vec::with_capacity(len);
        let mut done = 0;
        for patch in &plan.patches {
            out.extend_from_slice(&body[done..patch.range.start]);
            match patch.with {
                With::Nothing => {}
                With::Fields(fields) => out.extend_from_slice(fields),
                With::Length(len) => put_varint(&mut out, len as u64),
            }
            done = patch.range.end;
        }
        out.extend_from_slice(&body[done..]);
        debug_assert_eq!(out.len(), len);
        Ok(out)
    }
}

/// A stretch of the body to be replaced.
struct Patch<'e> {
    range: Range<usize>,
    with: With<'e>,
}

enum With<'e> {
    Nothing,
    Fields(&'e [u8]),
    Length(usize),
}

/// What the edits did to one message.
struct Outcome {
    /// Growth of its value, in bytes.
    delta: isize,
    /// It held items, or messages with items, and all of them are dropped.
    emptied: bool,
}

struct Plan<'b, 'e> {
    body: &'b [u8],
    /// Edits not yet placed, in order.
    edits: &'e [&'e Edit],
    patches: Vec<Patch<'e>>,
}

impl<'e> Plan<'_, 'e> {
    fn message(&mut self, id: MessageId, message: &[u8], levels: u32) -> Result<Outcome, WireError> {
        let base = offset_in(self.body, message);
        let end = base + message.len();
        let mut outcome = Outcome {
            delta: 0,
            emptied: false,
        };
        // Whether there are fields with items, whether one of them stays, and whether something is inserted.
        let (mut held, mut kept, mut inserted) = (false, false, false);
        let mut arm = None;
        let mut bytes = message;
        // Up to where the edit that was placed last drops.
        let mut dropped_to = 0;
        while !bytes.is_empty() {
            let at = end - bytes.len();
            if at == dropped_to {
                dropped_to = 0;
            }
            if dropped_to == 0 {
                self.insertions(at, &mut outcome, &mut inserted);
            }
            if dropped_to == 0
                && let Some(Edit::Drop(range)) = self.edits.first()
                && range.start == at
                && range.end > at
            {
                if range.end > end {
                    return Err(WireError::at(Fault::Edit, range.start));
                }
                dropped_to = range.end;
                outcome.delta -= range.len() as isize;
                self.patches.push(Patch {
                    range: range.clone(),
                    with: With::Nothing,
                });
                self.edits = &self.edits[1..];
            }
            let (field, rest) = cursor::field(bytes, levels).map_err(|fault| WireError::at(fault, at))?;
            bytes = rest;
            let next = at + field.framed.len();
            let rule = id.rule().field(field.number);
            let counted = rule.is_some_and(|rule| rule.shape.counted());
            held |= counted;
            if let Some(Shape::Arm(_)) = rule.map(|rule| rule.shape)
                && arm.replace(field.number) != Some(field.number)
            {
                // Only the last arm of a oneof holds anything.
                kept = false;
            }
            if dropped_to != 0 {
                // The end of the drop must be the end of a field of this message.
                if next > dropped_to {
                    return Err(WireError::at(Fault::Edit, at));
                }
                continue;
            }
            let inside = self.edits.first().is_some_and(|edit| match edit {
                Edit::Drop(range) => range.start < next,
                Edit::Insert(place, _) => *place < next,
                Edit::Append(range, _) => range.end < next || range.start > at && range.end == next,
            });
            let inner = rule.and_then(|rule| rule.shape.message());
            if !inside {
                kept |= counted;
                continue;
            }
            let Some(inner) = inner.filter(|_| field.wire == wire::LEN && levels > 0) else {
                return Err(WireError::at(
                    Fault::Edit,
                    self.edits.first().map_or(at, |edit| edit.place()),
                ));
            };
            let value_at = next - field.value.len();
            let mark = self.patches.len();
            // Place held for the length; the edits below come after it.
            self.patches.push(Patch {
                range: at..at,
                with: With::Nothing,
            });
            let below = self.message(inner, field.value, levels - 1)?;
            // An arm is left in place, empty: without it an earlier arm would come back to life.
            if below.emptied && rule.is_some_and(|rule| matches!(rule.shape, Shape::Walk(_))) {
                self.patches.truncate(mark);
                self.patches.push(Patch {
                    range: at..next,
                    with: With::Nothing,
                });
                outcome.delta -= (next - at) as isize;
                continue;
            }
            kept |= counted && !below.emptied;
            // The key is as long as what precedes length and value.
            let (_, _, after_key) = cursor::key(field.framed).map_err(|fault| WireError::at(fault, at))?;
            let len_at = next - after_key.len();
            let len = field.value.len().saturating_add_signed(below.delta);
            self.patches[mark] = Patch {
                range: len_at..value_at,
                with: With::Length(len),
            };
            let grown = cursor::varint_len(len as u64) as isize - (value_at - len_at) as isize;
            outcome.delta += below.delta + grown;
        }
        // Insertions behind the last field: those that name this message, and for the request those at its end.
        while let Some(edit) = self.edits.first() {
            let fields = match edit {
                Edit::Append(range, fields) if *range == (base..end) => fields,
                Edit::Insert(place, fields)
                    if *place == self.body.len() && message.len() == self.body.len() =>
                {
                    fields
                }
                _ => break,
            };
            outcome.delta += fields.len() as isize;
            inserted = true;
            self.patches.push(Patch {
                range: end..end,
                with: With::Fields(fields),
            });
            self.edits = &self.edits[1..];
        }
        outcome.emptied = held && !kept && !inserted;
        Ok(outcome)
    }

    /// Places the insertions before the field at `at`.
    fn insertions(&mut self, at: usize, outcome: &mut Outcome, inserted: &mut bool) {
        while let Some(Edit::Insert(place, fields)) = self.edits.first()
            && *place == at
        {
            outcome.delta += fields.len() as isize;
            *inserted = true;
            self.patches.push(Patch {
                range: at..at,
                with: With::Fields(fields),
            });
            self.edits = &self.edits[1..];
        }
    }
}
