//! Reading protobuf field by field: this crate's own, so that it can be the oracle of others.

use std::fmt;

/// The bytes are not a protobuf message of the signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a protobuf export request of this signal")
    }
}

impl std::error::Error for Malformed {}

/// The values of all length-delimited fields with this number.
pub(crate) fn fields(message: &[u8], wanted: u32) -> Result<Vec<&[u8]>, Malformed> {
    let mut found = Vec::new();
    each(message, wanted, &mut |value| {
        found.push(value);
        Ok(())
    })?;
    Ok(found)
}

/// The value of a field; fixed widths are told by their number of bits.
pub(crate) enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Fixed64,
    Other,
}

pub(crate) type Visit<'v, 'a> = &'v mut dyn FnMut(&'a [u8]) -> Result<(), Malformed>;

/// Visits every length-delimited field with this number.
pub(crate) fn each<'a>(message: &'a [u8], wanted: u32, visit: Visit<'_, 'a>) -> Result<(), Malformed> {
    let mut rest = message;
    while let Some((field, value)) = next_field(&mut rest)? {
        if let Value::Bytes(bytes) = value
            && field == wanted
        {
            visit(bytes)?;
        }
    }
    Ok(())
}

/// The next field of a message, whose bytes are taken off `rest`.
pub(crate) fn next_field<'a>(rest: &mut &'a [u8]) -> Result<Option<(u32, Value<'a>)>, Malformed> {
    if rest.is_empty() {
        return Ok(None);
    }
    let key = varint(rest)?;
    let field = u32::try_from(key >> 3)
        .ok()
        .filter(|field| *field > 0)
        .ok_or(Malformed)?;
    let value = match key & 7 {
        0 => Value::Varint(varint(rest)?),
        1 => take(rest, 8).map(|_| Value::Fixed64)?,
        2 => {
            let len = usize::try_from(varint(rest)?).map_err(|_| Malformed)?;
            Value::Bytes(take(rest, len)?)
        }
        3 => {
            skip_group(rest, field)?;
            Value::Other
        }
        5 => take(rest, 4).map(|_| Value::Other)?,
        _ => return Err(Malformed),
    };
    Ok(Some((field, value)))
}

/// Passes over a group up to its own end tag; groups inside it are counted, not entered.
fn skip_group(rest: &mut &[u8], field: u32) -> Result<(), Malformed> {
    let mut open = vec![u64::from(field)];
    while let Some(innermost) = open.last().copied() {
        let key = varint(rest)?;
        match key & 7 {
            0 => drop(varint(rest)?),
            1 => drop(take(rest, 8)?),
            2 => {
                let len = usize::try_from(varint(rest)?).map_err(|_| Malformed)?;
                take(rest, len)?;
            }
            3 => open.push(key >> 3),
            4 if key >> 3 == innermost => drop(open.pop()),
            5 => drop(take(rest, 4)?),
            _ => return Err(Malformed),
        }
    }
    Ok(())
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], Malformed> {
    let (taken, left) = rest.split_at_checked(len).ok_or(Malformed)?;
    *rest = left;
    Ok(taken)
}

/// A varint, whose bytes are taken off `rest`.
pub(crate) fn varint(rest: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0;
    for shift in (0..70).step_by(7) {
        let (byte, left) = rest.split_first().ok_or(Malformed)?;
        *rest = left;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed)
}
