//! One pass that validates a body and counts its items.

use crate::count;
use crate::cursor::{self, MAX_DEPTH};
use crate::error::WireError;
use crate::grammar::{MessageId, Op};
use crate::kind::Kind;
use crate::locate;
use crate::pair;
use crate::shapes::{Shapes, Verdict};

/// How much of a body [`validate`] looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Depth {
    /// Framing and wire types of every message of the schema, id lengths, UTF-8 of every string: what passes here
    /// decodes wherever it is sent next. Accepts exactly what prost decodes, less ids of a wrong length.
    #[default]
    Deep,
    /// Framing down to what counting walks, for upstreams that are trusted to send well-formed items.
    Shallow,
}

/// What a validation pass learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Scan {
    /// Data points, log records, spans or profiles.
    pub items: u64,
}

/// Validates `body` and counts its items in one pass.
///
/// # Errors
/// Names the first fault found, its field path and byte offset.
pub fn validate(kind: Kind, depth: Depth, body: &[u8]) -> Result<Scan, WireError> {
    match depth {
        Depth::Shallow => count::count(kind, body).map(|items| Scan { items }),
        Depth::Deep => {
            let scan = if body.len() < SHAPES_FROM {
                scan(kind, body, None)
            } else {
                scan(kind, body, Some(&mut Shapes::new()))
            };
            scan.map_err(|Bad| locate::locate(kind, Depth::Deep, body))
        }
    }
}

fn scan(kind: Kind, body: &[u8], shapes: Option<&mut Shapes>) -> Result<Scan, Bad> {
    let mut pass = Pass {
        body,
        items: 0,
        shapes,
    };
    pass.message(kind.root(), 0, body.len(), MAX_DEPTH)?;
    Ok(Scan { items: pass.items })
}

/// Bodies smaller than this are walked without remembering shapes, whose set-up would cost more than it saves.
const SHAPES_FROM: usize = 2048;

/// Something is wrong; [`locate`] says what.
struct Bad;

struct Pass<'a> {
    body: &'a [u8],
    items: u64,
    shapes: Option<&'a mut Shapes>,
}

impl Pass<'_> {
    /// Walks the message `body[pos..end]`.
    fn message(&mut self, id: MessageId, mut pos: usize, end: usize, levels: u32) -> Result<(), Bad> {
        let rule = id.rule();
        let body = self.body;
        // One bound instead of two: what is not in `view` is beyond the message.
        let view = body.get(..end).ok_or(Bad)?;
        let before = self.items;
        let mut arm = None;
        while pos < view.len() {
            let first = view[pos];
            let (op, number, wire, at) = if first < 0x80 {
                (
                    rule.ops[usize::from(first)],
                    u32::from(first >> 3),
                    first & 7,
                    pos + 1,
                )
            } else {
                let (number, wire, rest) = cursor::key(&view[pos..]).map_err(|_| Bad)?;
                (rule.op(number, wire), number, wire, view.len() - rest.len())
            };
            pos = match op {
                Op::Fixed64 => at + 8,
                Op::Fixed32 => at + 4,
                Op::Varint => varint(view, at)?,
                // The levels of the pair and of its value; at the limit the walk decides.
                Op::Pair if levels >= 2 => {
                    let mut next = at;
                    loop {
                        next = match pair::usual(body, next, end) {
                            Some(next) => next,
                            None => {
                                let (start, stop) = delimited(view, next)?;
                                self.enter(MessageId::KeyValue, start, stop, levels)?;
                                stop
                            }
                        };
                        // Attributes come in runs.
                        if first >= 0x80 || view.get(next) != Some(&first) {
                            break next;
                        }
                        next += 1;
                    }
                }
                Op::String => {
                    let (start, stop) = delimited(view, at)?;
                    text(&view[start..stop])?;
                    stop
                }
                Op::Bad => return Err(Bad),
                Op::Unknown => {
                    if levels == 0 {
                        return Err(Bad);
                    }
                    let (_, rest) =
                        cursor::value(number, wire, view.get(at..).ok_or(Bad)?, levels).map_err(|_| Bad)?;
                    view.len() - rest.len()
                }
                _ => {
                    let (start, stop) = delimited(view, at)?;
                    match op {
                        Op::Message(inner) => self.enter(inner, start, stop, levels)?,
                        Op::Pair => self.enter(MessageId::KeyValue, start, stop, levels)?,
                        Op::Walk(inner) => {
                            pos = self.recall(inner, 0, view, [pos, start, stop], levels)?;
                            continue;
                        }
                        Op::Item(inner) => {
                            pos = self.recall(inner, 1, view, [pos, start, stop], levels)?;
                            continue;
                        }
                        Op::Arm(inner) => {
                            // Another arm of the oneof replaces what came before; the same arm merges with it.
                            if arm.is_some_and(|previous| previous != inner) {
                                self.items = before;
                            }
                            arm = Some(inner);
                            self.enter(inner, start, stop, levels)?;
                        }
                        Op::Id16 if !matches!(stop - start, 0 | 16) => return Err(Bad),
                        Op::Id8 if !matches!(stop - start, 0 | 8) => return Err(Bad),
                        Op::PackedVarints => {
                            let packed = &view[..stop];
                            let mut at = start;
                            while at < stop {
                                at = varint(packed, at)?;
                            }
                        }
                        Op::PackedFixed64s if !(stop - start).is_multiple_of(8) => return Err(Bad),
                        _ => {}
                    }
                    stop
                }
            };
        }
        if pos == end { Ok(()) } else { Err(Bad) }
    }

    /// Enters a message that is likely to have the shape of one met before, and those of its shape that follow it; `own`
    /// items are counted for each beside those inside. The positions are those of its key, its value and its end; the answer is
    /// where the last one ends.
    #[inline]
    fn recall(
        &mut self,
        id: MessageId,
        own: u64,
        view: &[u8],
        [at, start, end]: [usize; 3],
        levels: u32,
    ) -> Result<usize, Bad> {
        let mut learn = false;
        if let Some(shapes) = &mut self.shapes {
            match shapes.check(id, self.body, start, end) {
                Verdict::Valid { items, slot } => {
                    let more = shapes.run(slot, view, at, start, end);
                    self.items += (own + items) * (1 + more as u64);
                    return Ok(end + more * (end - at));
                }
                Verdict::Walk => {}
                Verdict::Learn => learn = true,
            }
        }
        let before = self.items;
        self.enter(id, start, end, levels)?;
        if learn && let Some(shapes) = &mut self.shapes {
            shapes.learn(id, self.body, start, end, self.items - before);
        }
        self.items += own;
        Ok(end)
    }

    #[inline]
    fn enter(&mut self, id: MessageId, start: usize, end: usize, levels: u32) -> Result<(), Bad> {
        if levels == 0 {
            return Err(Bad);
        }
        self.message(id, start, end, levels - 1)
    }
}

/// The range of the delimited value whose length is at `at`.
#[inline(always)]
fn delimited(view: &[u8], at: usize) -> Result<(usize, usize), Bad> {
    let first = *view.get(at).ok_or(Bad)?;
    let (start, len) = if first < 0x80 {
        (at + 1, usize::from(first))
    } else {
        match view.get(at + 1) {
            Some(second) if *second < 0x80 => (at + 2, usize::from(first & 0x7f) | usize::from(*second) << 7),
            _ => long_length(view, at)?,
        }
    };
    if len > view.len() - start {
        return Err(Bad);
    }
    Ok((start, start + len))
}

#[inline(never)]
fn long_length(view: &[u8], at: usize) -> Result<(usize, usize), Bad> {
    let (len, rest) = cursor::varint(&view[at..]).map_err(|_| Bad)?;
    Ok((view.len() - rest.len(), usize::try_from(len).map_err(|_| Bad)?))
}

/// The position behind the varint at `at`.
#[inline(always)]
fn varint(view: &[u8], at: usize) -> Result<usize, Bad> {
    match view.get(at) {
        Some(byte) if *byte < 0x80 => Ok(at + 1),
        Some(_) => long_varint(view, at),
        None => Err(Bad),
    }
}

#[inline(never)]
fn long_varint(view: &[u8], at: usize) -> Result<usize, Bad> {
    let (_, rest) = cursor::varint(&view[at..]).map_err(|_| Bad)?;
    Ok(view.len() - rest.len())
}

/// Checks a string; most are short and ASCII.
#[inline(always)]
fn text(bytes: &[u8]) -> Result<(), Bad> {
    const SHORT: usize = 64;
    if bytes.len() <= SHORT {
        let mut chunks = bytes.chunks_exact(8);
        let mut bits = 0u64;
        for chunk in &mut chunks {
            bits |= chunk.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        }
        for byte in chunks.remainder() {
            bits |= u64::from(*byte);
        }
        if bits & 0x8080_8080_8080_8080 == 0 {
            return Ok(());
        }
    }
    simdutf8::basic::from_utf8(bytes).map(|_| ()).map_err(|_| Bad)
}
