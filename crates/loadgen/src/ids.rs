//! Finding item ids in encoded bodies: a walk of its own, which takes any valid encoding.

use std::fmt;

use crate::random::unmix;
use crate::signal::Signal;
use crate::spec::is_item_id;

/// Attribute key that carries the id of a data point or log record.
pub(crate) const ID_KEY: &str = "sluice.id";

/// The bytes are not a protobuf message of the signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a protobuf export request of this signal")
    }
}

impl std::error::Error for Malformed {}

/// The ids of all items of a decoded `Export*ServiceRequest`, in the order they appear; items without an id
/// are left out.
pub fn ids(signal: Signal, body: &[u8]) -> Result<Vec<u64>, Malformed> {
    let mut found = Vec::new();
    for_each_id(signal, body, |id| found.extend(id))?;
    Ok(found)
}

/// Calls `seen` once for every item of a decoded `Export*ServiceRequest`: with its id, or with `None` if it
/// has none that a [`crate::Generator`] can have made.
///
/// Unknown fields and groups are passed over. Items in front of a malformed field have been seen when the
/// error is returned.
pub fn for_each_id(signal: Signal, body: &[u8], mut seen: impl FnMut(Option<u64>)) -> Result<(), Malformed> {
    each(body, 1, &mut |resource| {
        each(resource, 2, &mut |scope| {
            each(scope, 2, &mut |item| {
                match signal {
                    Signal::Metrics => metric(item, &mut seen)?,
                    Signal::Logs => seen(attribute_id(item, 6)?),
                    Signal::Traces => seen(span_id(item)?),
                }
                Ok(())
            })
        })
    })
}

/// Data fields of `Metric`, each with the field of its points' attributes.
const DATA: [(u32, u32); 5] = [(5, 7), (7, 7), (9, 9), (10, 1), (11, 7)];

fn metric(metric: &[u8], seen: &mut dyn FnMut(Option<u64>)) -> Result<(), Malformed> {
    for (data_field, attributes_field) in DATA {
        each(metric, data_field, &mut |data| {
            each(data, 1, &mut |point| {
                seen(attribute_id(point, attributes_field)?);
                Ok(())
            })
        })?;
    }
    Ok(())
}

fn attribute_id(item: &[u8], attributes_field: u32) -> Result<Option<u64>, Malformed> {
    let mut id = None;
    each(item, attributes_field, &mut |attribute| {
        let mut is_id = false;
        each(attribute, 1, &mut |key| {
            is_id = key == ID_KEY.as_bytes();
            Ok(())
        })?;
        if is_id {
            each(attribute, 2, &mut |value| {
                let mut rest = value;
                while let Some((field, value)) = next_field(&mut rest)? {
                    if let (3, Value::Varint(value)) = (field, value) {
                        id = Some(value);
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    })?;
    Ok(id.filter(|id| is_item_id(*id)))
}

fn span_id(span: &[u8]) -> Result<Option<u64>, Malformed> {
    let mut id = None;
    each(span, 2, &mut |bytes| {
        id = bytes
            .try_into()
            .ok()
            .map(|bytes| unmix(u64::from_le_bytes(bytes)));
        Ok(())
    })?;
    Ok(id.filter(|id| is_item_id(*id)))
}

/// The values of all length-delimited fields with this number.
pub(crate) fn fields(message: &[u8], wanted: u32) -> Result<Vec<&[u8]>, Malformed> {
    let mut found = Vec::new();
    each(message, wanted, &mut |value| {
        found.push(value);
        Ok(())
    })?;
    Ok(found)
}

enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Other,
}

type Visit<'v, 'a> = &'v mut dyn FnMut(&'a [u8]) -> Result<(), Malformed>;

/// Visits every length-delimited field with this number.
fn each<'a>(message: &'a [u8], wanted: u32, visit: Visit<'_, 'a>) -> Result<(), Malformed> {
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

fn next_field<'a>(rest: &mut &'a [u8]) -> Result<Option<(u32, Value<'a>)>, Malformed> {
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
        1 => take(rest, 8).map(|_| Value::Other)?,
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

fn varint(rest: &mut &[u8]) -> Result<u64, Malformed> {
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
