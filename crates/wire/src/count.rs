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

/// What is told about the fields counting meets, in wire order: a message before what is inside.
pub(crate) trait Census {
    /// The message in the field `framed`, whose key and length take `head` bytes; the answer is its mark.
    fn enter(&mut self, framed: &[u8], head: usize, message: MessageId, arm: bool) -> usize;
    /// The message of this mark holds so many items.
    fn leave(&mut self, mark: usize, items: u64);
    /// So many items one behind the other, from the front of `bytes` on, each `step` bytes with its key and length.
    fn items(&mut self, bytes: &[u8], step: usize, count: u64);
}

/// Counting that remembers nothing.
impl Census for () {
    #[inline(always)]
    fn enter(&mut self, _: &[u8], _: usize, _: MessageId, _: bool) -> usize {
        0
    }

    #[inline(always)]
    fn leave(&mut self, _: usize, _: u64) {}

    #[inline(always)]
    fn items(&mut self, _: &[u8], _: usize, _: u64) {}
}

/// Counts the items below one message of the schema; `None` when the framing is broken.
pub(crate) fn message(id: MessageId, bytes: &[u8]) -> Option<u64> {
    census(id, bytes, &mut ())
}

/// As [`message`], telling `census` what is met.
pub(crate) fn census(id: MessageId, mut bytes: &[u8], census: &mut impl Census) -> Option<u64> {
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
                let step = bytes.len() - rest.len();
                let from = bytes;
                bytes = rest;
                // The next items are often as long: then their key and length are the same bytes, and nothing has to be
                // read to know where they end.
                let count = 1 + run(from, rest, step, step - value.len(), &mut bytes);
                items += count;
                census.items(from, step, count);
            }
            Op::Walk(inner) => {
                let (value, rest) = cursor::short_delimited(after)?;
                items += enter(inner, value, bytes, rest, false, census)?;
                bytes = rest;
            }
            Op::Arm(inner) => {
                let (value, rest) = cursor::short_delimited(after)?;
                if arm.is_some_and(|previous| previous != inner) {
                    items = 0;
                }
                arm = Some(inner);
                items += enter(inner, value, bytes, rest, true, census)?;
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

/// Counts the message `value` of the field that starts at `bytes` and ends before `rest`.
#[inline(always)]
fn enter(
    id: MessageId,
    value: &[u8],
    bytes: &[u8],
    rest: &[u8],
    arm: bool,
    census: &mut impl Census,
) -> Option<u64> {
    let framed = &bytes[..bytes.len() - rest.len()];
    let mark = census.enter(framed, framed.len() - value.len(), id, arm);
    let items = self::census(id, value, census)?;
    census.leave(mark, items);
    Some(items)
}

/// Counts the items at the front of `rest` that have the length and the head (key and length bytes) of the one at the
/// front of `from`, and leaves `bytes` behind them. An empty item, two bytes with its head, makes no run.
#[inline(always)]
fn run<'a>(from: &[u8], mut rest: &'a [u8], step: usize, head: usize, bytes: &mut &'a [u8]) -> u64 {
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
