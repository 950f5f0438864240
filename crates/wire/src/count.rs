//! Counting: tags and lengths only, no look inside an item.

use crate::cursor::{self, MAX_DEPTH, wire};
use crate::error::{Fault, WireError};
use crate::grammar::{MessageId, Shape};
use crate::kind::Kind;
use crate::locate;
use crate::validate::Depth;

/// Counts the items of `body` without looking inside them; allocates nothing.
///
/// On a body prost decodes, the answer is the number of items prost would hold: repeated singular messages and
/// repeated arms of a metric's `data` merge, an arm that follows another one replaces it, unknown fields (the
/// deprecated field 1000 among them) count nothing.
///
/// # Errors
/// When the framing is broken on the way down to the items.
pub fn count(kind: Kind, body: &[u8]) -> Result<u64, WireError> {
    message(kind.root(), body).map_err(|fault| locate::locate(kind, Depth::Shallow, body, fault))
}

/// Counts the items below one message of the schema.
pub(crate) fn message(id: MessageId, mut bytes: &[u8]) -> Result<u64, Fault> {
    let rule = id.rule();
    let mut items = 0;
    let mut arm = None;
    while !bytes.is_empty() {
        let (field, rest) = cursor::field(bytes, MAX_DEPTH)?;
        bytes = rest;
        let Some(rule) = rule.field(field.number).filter(|rule| rule.shape.counted()) else {
            continue;
        };
        if field.wire != wire::LEN {
            return Err(Fault::WireType { found: field.wire });
        }
        match rule.shape {
            Shape::Item(_) => items += 1,
            Shape::Walk(inner) => items += message(inner, field.value)?,
            Shape::Arm(inner) => {
                if arm.is_some_and(|previous| previous != inner) {
                    items = 0;
                }
                arm = Some(inner);
                items += message(inner, field.value)?;
            }
            _ => {}
        }
    }
    Ok(items)
}
