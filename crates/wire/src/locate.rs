//! The second, careful walk that names the place of a fault the fast passes have met.

use crate::cursor::{self, MAX_DEPTH, wire};
use crate::error::{Fault, WireError};
use crate::grammar::{MessageId, Shape};
use crate::kind::Kind;
use crate::validate::Depth;

/// Finds the first fault of `body`, in which a fast pass has met one.
#[cold]
pub(crate) fn locate(kind: Kind, depth: Depth, body: &[u8]) -> WireError {
    let walk = Walk { body, depth };
    match walk.message(kind.root(), body, MAX_DEPTH) {
        Err(error) => error,
        Ok(()) => {
            debug_assert!(false, "the fast pass met a fault, the careful walk none");
            WireError::at(Fault::Truncated, 0)
        }
    }
}

/// Offset of `part` within `body`, of which it must be a slice.
pub(crate) fn offset_in(body: &[u8], part: &[u8]) -> usize {
    (part.as_ptr() as usize).saturating_sub(body.as_ptr() as usize)
}

struct Walk<'a> {
    body: &'a [u8],
    depth: Depth,
}

impl Walk<'_> {
    fn error(&self, fault: Fault, at: &[u8]) -> WireError {
        WireError::at(fault, offset_in(self.body, at))
    }

    fn message(&self, id: MessageId, message: &[u8], levels: u32) -> Result<(), WireError> {
        let mut bytes = message;
        while !bytes.is_empty() {
            let (number, wire, rest) = cursor::key(bytes).map_err(|fault| self.error(fault, bytes))?;
            bytes = self
                .field(id, number, wire, rest, bytes, levels)
                .map_err(|error| {
                    let before = &message[..message.len() - bytes.len()];
                    prefix(error, id, number, before)
                })?;
        }
        Ok(())
    }

    fn field<'a>(
        &self,
        id: MessageId,
        number: u32,
        found: u8,
        rest: &'a [u8],
        from_key: &'a [u8],
        levels: u32,
    ) -> Result<&'a [u8], WireError> {
        let deep = self.depth == Depth::Deep;
        let rule = id
            .rule()
            .field(number)
            .filter(|rule| deep || rule.shape.counted());
        let Some(rule) = rule else {
            if deep && levels == 0 {
                return Err(self.error(Fault::Depth, from_key));
            }
            // Counting does not keep account of the levels.
            let groups = if deep { levels } else { MAX_DEPTH };
            let (_, rest) =
                cursor::value(number, found, rest, groups).map_err(|fault| self.error(fault, rest))?;
            return Ok(rest);
        };
        let packed = found == wire::LEN && matches!(rule.shape, Shape::Varints | Shape::Fixed64s);
        if found != rule.shape.wire() && !packed {
            return Err(self.error(Fault::WireType { found }, from_key));
        }
        let (value, after) =
            cursor::value(number, found, rest, levels).map_err(|fault| self.error(fault, rest))?;
        match rule.shape {
            Shape::String => {
                if let Err(error) = std::str::from_utf8(value) {
                    return Err(self.error(Fault::Utf8, &value[error.valid_up_to()..]));
                }
            }
            Shape::Id16 if !matches!(value.len(), 0 | 16) => {
                return Err(self.error(
                    Fault::IdLength {
                        found: value.len(),
                        want: 16,
                    },
                    value,
                ));
            }
            Shape::Id8 if !matches!(value.len(), 0 | 8) => {
                return Err(self.error(
                    Fault::IdLength {
                        found: value.len(),
                        want: 8,
                    },
                    value,
                ));
            }
            Shape::Varints if packed => {
                let mut packed = value;
                while !packed.is_empty() {
                    packed = cursor::skip_varint(packed).map_err(|fault| self.error(fault, packed))?;
                }
            }
            Shape::Fixed64s if packed && !value.len().is_multiple_of(8) => {
                return Err(self.error(Fault::Truncated, value));
            }
            Shape::Item(_) if !deep => {}
            shape => {
                if let Some(inner) = shape.message() {
                    if levels == 0 {
                        return Err(self.error(Fault::Depth, from_key));
                    }
                    self.message(inner, value, levels - 1)?;
                }
            }
        }
        Ok(after)
    }
}

/// Puts the name of the field `number` of message `id` before the path of `error`; `before` are the bytes of the
/// message before that field, from which its index is counted.
fn prefix(mut error: WireError, id: MessageId, number: u32, before: &[u8]) -> WireError {
    let name = match id.rule().field(number) {
        None => format!("#{number}"),
        Some(rule) if rule.repeated => {
            let index = cursor::Fields::of(before)
                .filter(|field| field.number == number)
                .count();
            format!("{}[{index}]", rule.name)
        }
        Some(rule) => rule.name.to_owned(),
    };
    error.path = if error.path.is_empty() {
        name
    } else {
        format!("{name}.{}", error.path)
    };
    error
}
