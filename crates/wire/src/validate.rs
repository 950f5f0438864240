//! One pass that validates a body and counts its items.

use crate::count;
use crate::cursor::{self, MAX_DEPTH};
use crate::error::{Fault, WireError};
use crate::grammar::{MessageId, Op};
use crate::kind::Kind;
use crate::locate;

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
            let mut pass = Pass { items: 0 };
            match pass.message(kind.root(), body, MAX_DEPTH) {
                Ok(()) => Ok(Scan { items: pass.items }),
                Err(fault) => Err(locate::locate(kind, Depth::Deep, body, fault)),
            }
        }
    }
}

struct Pass {
    items: u64,
}

impl Pass {
    fn message(&mut self, id: MessageId, mut bytes: &[u8], levels: u32) -> Result<(), Fault> {
        let rule = id.rule();
        let before = self.items;
        let mut arm = None;
        while let [first, after @ ..] = bytes {
            let (op, number, wire, rest) = if *first < 0x80 {
                (
                    rule.ops[usize::from(*first)],
                    u32::from(*first >> 3),
                    *first & 7,
                    after,
                )
            } else {
                let (number, wire, rest) = cursor::key(bytes)?;
                (rule.op(number, wire), number, wire, rest)
            };
            bytes = match op {
                Op::Fixed64 => rest.get(8..).ok_or(Fault::Truncated)?,
                Op::Fixed32 => rest.get(4..).ok_or(Fault::Truncated)?,
                Op::Varint => cursor::skip_varint(rest)?,
                Op::Bad => return Err(Fault::Key),
                Op::Unknown => {
                    if levels == 0 {
                        return Err(Fault::Depth);
                    }
                    cursor::value(number, wire, rest, levels)?.1
                }
                _ => {
                    let (value, rest) = cursor::delimited(rest)?;
                    match op {
                        Op::Message(inner) => self.enter(inner, value, levels)?,
                        Op::Item(inner) => {
                            self.enter(inner, value, levels)?;
                            self.items += 1;
                        }
                        Op::Arm(inner) => {
                            // Another arm of the oneof replaces what came before; the same arm merges with it.
                            if arm.is_some_and(|previous| previous != inner) {
                                self.items = before;
                            }
                            arm = Some(inner);
                            self.enter(inner, value, levels)?;
                        }
                        Op::String => {
                            simdutf8::basic::from_utf8(value).map_err(|_| Fault::Utf8)?;
                        }
                        Op::Id16 if !matches!(value.len(), 0 | 16) => {
                            return Err(Fault::IdLength {
                                found: value.len(),
                                want: 16,
                            });
                        }
                        Op::Id8 if !matches!(value.len(), 0 | 8) => {
                            return Err(Fault::IdLength {
                                found: value.len(),
                                want: 8,
                            });
                        }
                        Op::PackedVarints => {
                            let mut packed = value;
                            while !packed.is_empty() {
                                packed = cursor::skip_varint(packed)?;
                            }
                        }
                        Op::PackedFixed64s if !value.len().is_multiple_of(8) => return Err(Fault::Truncated),
                        _ => {}
                    }
                    rest
                }
            };
        }
        Ok(())
    }

    #[inline]
    fn enter(&mut self, id: MessageId, value: &[u8], levels: u32) -> Result<(), Fault> {
        if levels == 0 {
            return Err(Fault::Depth);
        }
        self.message(id, value, levels - 1)
    }
}
