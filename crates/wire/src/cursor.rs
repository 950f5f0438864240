//! Reading protobuf from borrowed bytes: varints, keys, fields.
//!
//! Everything here accepts exactly what prost accepts: varints of up to ten bytes whose tenth is at most 1,
//! keys that fit 32 bits with a field number of at least 1, groups that are balanced, and at most
//! [`MAX_DEPTH`] levels.

use crate::error::Fault;

/// Levels of messages and groups below the request; prost's recursion limit.
pub(crate) const MAX_DEPTH: u32 = 100;

/// Wire types of the protobuf encoding.
pub(crate) mod wire {
    pub const VARINT: u8 = 0;
    pub const FIXED64: u8 = 1;
    pub const LEN: u8 = 2;
    pub const START_GROUP: u8 = 3;
    pub const END_GROUP: u8 = 4;
    pub const FIXED32: u8 = 5;
}

/// Reads a varint of any length from the front of `bytes`.
#[inline]
pub(crate) fn varint(bytes: &[u8]) -> Result<(u64, &[u8]), Fault> {
    match bytes {
        [a, rest @ ..] if *a < 0x80 => Ok((u64::from(*a), rest)),
        [a, b, rest @ ..] if *b < 0x80 => Ok((u64::from(*a & 0x7f) | u64::from(*b) << 7, rest)),
        _ => varint_long(bytes),
    }
}

#[cold]
#[inline(never)]
fn varint_long(bytes: &[u8]) -> Result<(u64, &[u8]), Fault> {
    let mut value = 0u64;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            if index == 9 && *byte > 1 {
                return Err(Fault::Varint);
            }
            return Ok((value, &bytes[index + 1..]));
        }
    }
    Err(if bytes.len() < 10 {
        Fault::Truncated
    } else {
        Fault::Varint
    })
}

/// Skips a varint without computing it.
#[inline]
pub(crate) fn skip_varint(bytes: &[u8]) -> Result<&[u8], Fault> {
    match bytes {
        [a, rest @ ..] if *a < 0x80 => Ok(rest),
        _ => varint(bytes).map(|(_, rest)| rest),
    }
}

/// Reads a length and splits the value it announces from what follows.
#[inline]
pub(crate) fn delimited(bytes: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    let (len, rest) = varint(bytes)?;
    let len = usize::try_from(len).map_err(|_| Fault::Truncated)?;
    rest.split_at_checked(len).ok_or(Fault::Truncated)
}

/// As [`delimited`], with lengths of up to three bytes (2 MiB) inline.
#[inline(always)]
pub(crate) fn short_delimited(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    match bytes {
        [len, rest @ ..] if *len < 0x80 => rest.split_at_checked(usize::from(*len)),
        [low, high, rest @ ..] if *high < 0x80 => {
            rest.split_at_checked(usize::from(*low & 0x7f) | usize::from(*high) << 7)
        }
        [low, middle, high, rest @ ..] if *high < 0x80 => rest.split_at_checked(
            usize::from(*low & 0x7f) | usize::from(*middle & 0x7f) << 7 | usize::from(*high) << 14,
        ),
        _ => delimited(bytes).ok(),
    }
}

/// Of a field whose first four bytes are `head`, a one-byte key first: where its value starts, and the length of it. `None`
/// when the length takes more than three bytes.
#[inline(always)]
fn short_length(head: u32) -> Option<(usize, usize)> {
    let low = (head >> 8 & 0x7f) as usize;
    if head & 0x8000 == 0 {
        return Some((2, low));
    }
    let middle = (head >> 9 & 0x3f80) as usize;
    if head & 0x80_0000 == 0 {
        return Some((3, low | middle));
    }
    let high = (head >> 10 & 0x1f_c000) as usize;
    (head & 0x8000_0000 == 0).then_some((4, low | middle | high))
}

/// Reads a field key: number and wire type.
#[inline]
pub(crate) fn key(bytes: &[u8]) -> Result<(u32, u8, &[u8]), Fault> {
    let (key, rest) = varint(bytes)?;
    let key = u32::try_from(key).map_err(|_| Fault::Key)?;
    let wire = (key & 7) as u8;
    if key < 8 || wire > wire::FIXED32 {
        return Err(Fault::Key);
    }
    Ok((key >> 3, wire, rest))
}

/// One field as found on the wire.
#[derive(Debug, Clone, Copy)]
pub struct Field<'a> {
    /// Field number.
    pub number: u32,
    /// Wire type; never the end of a group.
    pub wire: u8,
    /// The value: the varint's bytes, the 4 or 8 fixed bytes, the delimited bytes, or the whole group's inside
    /// with its end key.
    pub value: &'a [u8],
    /// Key, length and value.
    pub framed: &'a [u8],
}

impl<'a> Field<'a> {
    /// The value as a delimited one; `None` for another wire type.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> Option<&'a [u8]> {
        (self.wire == wire::LEN).then_some(self.value)
    }

    /// The value as a varint; `None` for another wire type.
    #[inline]
    #[must_use]
    pub fn varint(&self) -> Option<u64> {
        if self.wire != wire::VARINT {
            return None;
        }
        varint(self.value).ok().map(|(value, _)| value)
    }

    /// The value as eight fixed bytes; `None` for another wire type.
    #[inline]
    #[must_use]
    pub fn fixed64(&self) -> Option<u64> {
        if self.wire != wire::FIXED64 {
            return None;
        }
        self.value
            .first_chunk::<8>()
            .map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// The value as four fixed bytes; `None` for another wire type.
    #[inline]
    #[must_use]
    pub fn fixed32(&self) -> Option<u32> {
        if self.wire != wire::FIXED32 {
            return None;
        }
        self.value
            .first_chunk::<4>()
            .map(|bytes| u32::from_le_bytes(*bytes))
    }
}

/// Takes one field from the front of `bytes`; `levels` is how many more levels may open below.
#[inline]
pub(crate) fn field(bytes: &[u8], levels: u32) -> Result<(Field<'_>, &[u8]), Fault> {
    let (number, wire, after_key) = key(bytes)?;
    let (value, rest) = value(number, wire, after_key, levels)?;
    let framed = &bytes[..bytes.len() - rest.len()];
    Ok((
        Field {
            number,
            wire,
            value,
            framed,
        },
        rest,
    ))
}

/// Takes the value of a field whose key has been read.
#[inline]
pub(crate) fn value(number: u32, wire: u8, bytes: &[u8], levels: u32) -> Result<(&[u8], &[u8]), Fault> {
    match wire {
        wire::LEN => delimited(bytes),
        wire::VARINT => {
            let rest = skip_varint(bytes)?;
            Ok((&bytes[..bytes.len() - rest.len()], rest))
        }
        wire::FIXED64 => bytes.split_at_checked(8).ok_or(Fault::Truncated),
        wire::FIXED32 => bytes.split_at_checked(4).ok_or(Fault::Truncated),
        wire::START_GROUP => {
            let rest = group(number, bytes, levels)?;
            Ok((&bytes[..bytes.len() - rest.len()], rest))
        }
        _ => Err(Fault::Group),
    }
}

/// Skips a group whose start key has been read; `levels` is how many more levels may open, this one included.
#[cold]
fn group(number: u32, mut bytes: &[u8], levels: u32) -> Result<&[u8], Fault> {
    if levels == 0 {
        return Err(Fault::Depth);
    }
    loop {
        let (inner, wire, rest) = key(bytes)?;
        if wire == wire::END_GROUP {
            return if inner == number {
                Ok(rest)
            } else {
                Err(Fault::Group)
            };
        }
        // As prost: any field, not only a group, needs one level to be skipped.
        if levels == 1 {
            return Err(Fault::Depth);
        }
        bytes = value(inner, wire, rest, levels - 1)?.1;
    }
}

/// The fields of one message, in wire order, for readers that take many fields in one pass or read messages without a
/// view here. Ends early on malformed bytes, so it belongs on validated ones.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The fields of `message`.
    #[must_use]
    #[inline]
    pub fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// The value of the next field, if it is a delimited one of this number, below 16, with less than 128 bytes. Otherwise it is
    /// still the next field.
    #[inline(always)]
    pub fn next_short(&mut self, number: u8) -> Option<&'a [u8]> {
        let [key, len @ ..0x80, rest @ ..] = self.rest else {
            return None;
        };
        if *key != number << 3 | wire::LEN {
            return None;
        }
        let (value, rest) = rest.split_at_checked(usize::from(*len))?;
        self.rest = rest;
        Some(value)
    }

    /// The next delimited field of this number.
    #[inline(always)]
    pub(crate) fn next_delimited(&mut self, number: u32) -> Option<Field<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        // What a message is full of: the field asked for, key and length in the four bytes of one load.
        if let Some(head) = self.rest.first_chunk::<4>()
            && u32::from(head[0]) == number << 3 | u32::from(wire::LEN)
            && let Some((start, len)) = short_length(u32::from_le_bytes(*head))
            && let Some((framed, rest)) = self.rest.split_at_checked(start + len)
            && let Some(value) = framed.get(start..)
        {
            self.rest = rest;
            return Some(Field {
                number,
                wire: wire::LEN,
                value,
                framed,
            });
        }
        self.seek_delimited(number)
    }

    /// The next field, of whatever kind and length. Apart from [`Fields::next`], which is inlined.
    #[inline(never)]
    fn next_of_any_kind(&mut self) -> Option<Field<'a>> {
        match field(self.rest, MAX_DEPTH) {
            Ok((field, rest)) => {
                self.rest = rest;
                Some(field)
            }
            Err(_) => {
                self.rest = &[];
                None
            }
        }
    }

    /// As [`Fields::next_delimited`], whatever comes before the field.
    #[inline(never)]
    pub(crate) fn seek_delimited(&mut self, number: u32) -> Option<Field<'a>> {
        self.find(|field| field.number == number && field.wire == wire::LEN)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Field<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        if let [first, after @ ..] = self.rest
            && *first < 0x80
            && *first >= 8
            && *first & 7 == wire::LEN
            && let Some((value, rest)) = short_delimited(after)
        {
            let framed = &self.rest[..self.rest.len() - rest.len()];
            self.rest = rest;
            return Some(Field {
                number: u32::from(*first >> 3),
                wire: wire::LEN,
                value,
                framed,
            });
        }
        self.next_of_any_kind()
    }
}

/// Appends a varint.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes a varint takes.
#[inline]
pub(crate) const fn varint_len(value: u64) -> usize {
    // 9/64 is a shade above 1/7, exact for 1 to 64 bits.
    (((64 - (value | 1).leading_zeros()) * 9 + 64) / 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a delimited field of every length up to 300 and some number, cut or whole, with another field behind it or nothing; then
    /// fields of other kinds.
    /// Guarantees: what is taken as short is what the iterator takes, and what follows follows; nothing else is taken.
    #[test]
    fn short_fields_are_fields() {
        for number in [1, 6, 15] {
            for length in 0..300usize {
                let mut message = vec![number << 3 | wire::LEN];
                put_varint(&mut message, length as u64);
                message.resize(message.len() + length, 0xab);
                let whole = message.len();
                message.extend([0x08, 0x01]);
                for end in [whole - 1, whole, message.len()] {
                    let (mut fields, mut others) = (Fields::of(&message[..end]), Fields::of(&message[..end]));
                    assert_eq!(fields.next_short(number % 15 + 1), None);
                    match fields.next_short(number) {
                        Some(value) => {
                            assert!(length < 128 && end >= whole, "{length}");
                            assert_eq!(others.next().and_then(|field| field.bytes()), Some(value));
                        }
                        None => assert!(length >= 128 || end < whole, "{length}"),
                    }
                    assert_eq!(fields.rest, others.rest);
                }
            }
        }
        for other in [
            &[0x0d, 1, 2, 3, 4][..],
            &[0x08, 1],
            &[0x09, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0x0a],
            &[],
        ] {
            assert_eq!(Fields::of(other).next_short(1), None);
        }
    }
}
