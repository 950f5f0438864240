//! A cursor over protobuf records, reading what prost reads.

use sluice_wire::schema::WireKind;

/// Groups and messages nest up to this deep, as in prost.
pub(crate) const MAX_DEPTH: usize = 100;

/// The value of a record.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Len(&'a [u8]),
    /// A group, skipped: no field of the schema is one.
    Group,
}

/// The bytes are no protobuf message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The records of a message that may lie in several pieces, which is how one that occurred several times is merged.
#[derive(Clone)]
pub(crate) struct Records<'a, 's> {
    rest: &'a [u8],
    pieces: std::slice::Iter<'s, &'a [u8]>,
}

impl<'a, 's> Records<'a, 's> {
    pub(crate) fn new(pieces: &'s [&'a [u8]]) -> Self {
        Self {
            rest: &[],
            pieces: pieces.iter(),
        }
    }

    /// The number and the value of the next record. Always inlined: returned through memory, the parts of a record are
    /// written narrow and read wide, and the walk spends half its time on that.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, Malformed> {
        while self.rest.is_empty() {
            match self.pieces.next() {
                Some(piece) => self.rest = piece,
                None => return Ok(None),
            }
        }
        let (number, wire) = key(&mut self.rest)?;
        let value = value(&mut self.rest, number, wire, MAX_DEPTH)?;
        Ok(Some((number, value)))
    }
}

/// Walks for display, which stop at what is malformed.
impl<'a> Records<'a, '_> {
    /// The bodies of the length-delimited records with this number.
    pub(crate) fn by_number(mut self, wanted: u32) -> impl Iterator<Item = &'a [u8]> {
        std::iter::from_fn(move || {
            loop {
                match self.next() {
                    Ok(Some((number, Value::Len(body)))) if number == wanted => return Some(body),
                    Ok(Some(_)) => {}
                    Ok(None) | Err(Malformed) => return None,
                }
            }
        })
    }

    /// The elements of a packed list.
    pub(crate) fn packed(wire: WireKind, mut packed: &'a [u8]) -> impl Iterator<Item = Value<'a>> {
        std::iter::from_fn(move || {
            if packed.is_empty() {
                return None;
            }
            packed_element(wire, &mut packed).ok()
        })
    }
}

/// Takes one element of a packed list.
#[inline]
pub(crate) fn packed_element<'a>(wire: WireKind, packed: &mut &[u8]) -> Result<Value<'a>, Malformed> {
    match wire {
        WireKind::Varint => varint(packed).map(Value::Varint),
        WireKind::Fixed64 => array(packed).map(|bytes| Value::Fixed64(u64::from_le_bytes(bytes))),
        WireKind::Fixed32 => array(packed).map(|bytes| Value::Fixed32(u32::from_le_bytes(bytes))),
        WireKind::Len => Err(Malformed),
    }
}

#[inline(always)]
fn key(rest: &mut &[u8]) -> Result<(u32, u8), Malformed> {
    let key = u32::try_from(varint(rest)?).map_err(|_| Malformed)?;
    let (number, wire) = (key >> 3, (key & 7) as u8);
    if number == 0 {
        Err(Malformed)
    } else {
        Ok((number, wire))
    }
}

#[inline(always)]
fn value<'a>(rest: &mut &'a [u8], number: u32, wire: u8, depth: usize) -> Result<Value<'a>, Malformed> {
    Ok(match wire {
        0 => Value::Varint(varint(rest)?),
        1 => Value::Fixed64(u64::from_le_bytes(array(rest)?)),
        2 => {
            let length = usize::try_from(varint(rest)?).map_err(|_| Malformed)?;
            Value::Len(take(rest, length)?)
        }
        3 => group(rest, number, depth)?,
        5 => Value::Fixed32(u32::from_le_bytes(array(rest)?)),
        _ => return Err(Malformed),
    })
}

/// Skips the records of a group up to its end.
fn group<'a>(rest: &mut &'a [u8], number: u32, depth: usize) -> Result<Value<'a>, Malformed> {
    let depth = depth.checked_sub(1).ok_or(Malformed)?;
    loop {
        let (inner, wire) = key(rest)?;
        if wire == 4 {
            return if inner == number {
                Ok(Value::Group)
            } else {
                Err(Malformed)
            };
        }
        value(rest, inner, wire, depth)?;
    }
}

/// Takes a varint of up to ten bytes.
#[inline]
fn varint(rest: &mut &[u8]) -> Result<u64, Malformed> {
    match rest.split_first() {
        // Keys and most lengths have one byte.
        Some((&byte, after)) if byte < 0x80 => {
            *rest = after;
            Ok(u64::from(byte))
        }
        _ => long_varint(rest),
    }
}

fn long_varint(rest: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0;
    for (position, &byte) in rest.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * position);
        if byte < 0x80 {
            if position == 9 && byte > 1 {
                return Err(Malformed);
            }
            *rest = &rest[position + 1..];
            return Ok(value);
        }
    }
    Err(Malformed)
}

#[inline]
fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], Malformed> {
    let (taken, left) = rest.split_at_checked(length).ok_or(Malformed)?;
    *rest = left;
    Ok(taken)
}

/// Takes eight or four bytes.
#[inline]
fn array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Malformed> {
    let (taken, left) = rest.split_first_chunk().ok_or(Malformed)?;
    *rest = left;
    Ok(*taken)
}
