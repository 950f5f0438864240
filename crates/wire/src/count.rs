//! Counting: tags and lengths only, no look inside an item.

use crate::cursor::{self, MAX_DEPTH};
use crate::error::WireError;
use crate::grammar::{MessageId, Op};
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
    message(kind.root(), body).ok_or_else(|| locate::locate(kind, Depth::Shallow, body))
}

/// Counts the items below one message of the schema; `None` when the framing is broken.
pub(crate) fn message(id: MessageId, mut bytes: &[u8]) -> Option<u64> {
    let rule = id.rule();
    let mut items = 0;
    let mut arm = None;
    while let [first, after @ ..] = bytes {
        let (op, after) = if *first < 0x80 {
            (rule.ops[usize::from(*first)], after)
        } else {
            let (number, wire, after) = cursor::key(bytes).ok()?;
            (rule.op(number, wire), after)
        };
        match op {
            Op::Item(_) => {
                let (value, rest) = cursor::short_delimited(after)?;
                items += 1;
                // The next items are often as long: then their key and length are the same bytes, and nothing has to be
                // read to know where they end.
                let step = bytes.len() - rest.len();
                items += run(bytes, rest, step, step - value.len(), &mut bytes);
            }
            Op::Walk(inner) => {
                let (value, rest) = cursor::short_delimited(after)?;
                items += message(inner, value)?;
                bytes = rest;
            }
            Op::Arm(inner) => {
                let (value, rest) = cursor::short_delimited(after)?;
                if arm.is_some_and(|previous| previous != inner) {
                    items = 0;
                }
                arm = Some(inner);
                items += message(inner, value)?;
                bytes = rest;
            }
            Op::Fixed64 => bytes = after.get(8..)?,
            Op::Message(_) | Op::Pair | Op::String | Op::Bytes => bytes = cursor::short_delimited(after)?.1,
            _ => {
                let (field, rest) = cursor::field(bytes, MAX_DEPTH).ok()?;
                // A field that is walked and has another wire type than the schema says.
                if rule.field(field.number).is_some_and(|rule| rule.shape.counted()) {
                    return None;
                }
                bytes = rest;
            }
        }
    }
    Some(items)
}

/// Counts the items at the front of `rest` that have the length and the head (key and length bytes) of the one at the
/// front of `from`, and leaves `bytes` behind them. An empty item, two bytes with its head, makes no run.
#[inline(always)]
pub(crate) fn run<'a>(
    from: &[u8],
    mut rest: &'a [u8],
    step: usize,
    head: usize,
    bytes: &mut &'a [u8],
) -> u64 {
    let mut items = 0;
    if let Some(expected) = from.first_chunk::<4>()
        && head <= 4
        && step >= 4
    {
        let mask = u32::MAX >> (32 - 8 * head);
        let expected = u32::from_le_bytes(*expected) & mask;
        while let (Some(found), Some(next)) = (rest.first_chunk::<4>(), rest.get(step..))
            && u32::from_le_bytes(*found) & mask == expected
        {
            items += 1;
            rest = next;
        }
    }
    *bytes = rest;
    items
}
