//! A cursor over protobuf records, reading what prost reads.

/// Groups and messages nest up to this deep, as in prost.
pub(super) const MAX_DEPTH: usize = 100;

/// The value of a record.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Len(&'a [u8]),
    /// A group, skipped: no field of the schema is one.
    Group,
}

/// The bytes are no protobuf message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// The records of a message that may lie in several pieces, which is how one that occurred several times is merged.
#[derive(Clone)]
pub(super) struct Records<'a, 's> {
    rest: &'a [u8],
    pieces: std::slice::Iter<'s, &'a [u8]>,
}

impl<'a, 's> Records<'a, 's> {
    pub(super) fn new(pieces: &'s [&'a [u8]]) -> Self {
        Self {
            rest: &[],
            pieces: pieces.iter(),
        }
    }

    /// The number and the value of the next record.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, Malformed> {
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

fn key(rest: &mut &[u8]) -> Result<(u32, u8), Malformed> {
    let key = u32::try_from(varint(rest)?).map_err(|_| Malformed)?;
    let (number, wire) = (key >> 3, (key & 7) as u8);
    if number == 0 {
        Err(Malformed)
    } else {
        Ok((number, wire))
    }
}

#[inline]
fn value<'a>(rest: &mut &'a [u8], number: u32, wire: u8, depth: usize) -> Result<Value<'a>, Malformed> {
    Ok(match wire {
        0 => Value::Varint(varint(rest)?),
        1 => Value::Fixed64(u64::from_le_bytes(array(rest)?)),
        2 => {
            let length = usize::try_from(varint(rest)?).map_err(|_| Malformed)?;
            Value::Len(take(rest, length)?)
        }
        3 => {
            let depth = depth.checked_sub(1).ok_or(Malformed)?;
            loop {
                let (inner, wire) = key(rest)?;
                if wire == 4 {
                    break if inner == number {
                        Value::Group
                    } else {
                        return Err(Malformed);
                    };
                }
                value(rest, inner, wire, depth)?;
            }
        }
        5 => Value::Fixed32(u32::from_le_bytes(array(rest)?)),
        _ => return Err(Malformed),
    })
}

/// Takes a varint of up to ten bytes.
#[inline]
pub(super) fn varint(rest: &mut &[u8]) -> Result<u64, Malformed> {
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
pub(super) fn array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Malformed> {
    let (taken, left) = rest.split_first_chunk().ok_or(Malformed)?;
    *rest = left;
    Ok(*taken)
}
