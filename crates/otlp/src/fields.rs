//! The fields of small protobuf messages beside OTLP itself: answers, health requests. They come from outside, so no
//! length is trusted.

/// A message that is not protobuf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not protobuf")]
pub(crate) struct Malformed;

/// The value of one field.
pub(crate) enum Value<'a> {
    /// An integer.
    Varint(u64),
    /// Text, bytes or a message.
    Bytes(&'a [u8]),
    /// Fixed-width values and groups: nothing here has them.
    Other,
}

/// Calls `each` with every field of `message`.
pub(crate) fn fields<'a>(
    mut message: &'a [u8],
    mut each: impl FnMut(u64, Value<'a>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    while !message.is_empty() {
        let key = varint(&mut message)?;
        let value = match key & 7 {
            0 => Value::Varint(varint(&mut message)?),
            1 => take(&mut message, 8).map(|_| Value::Other)?,
            2 => {
                let len = usize::try_from(varint(&mut message)?).map_err(|_| Malformed)?;
                Value::Bytes(take(&mut message, len)?)
            }
            5 => take(&mut message, 4).map(|_| Value::Other)?,
            _ => return Err(Malformed),
        };
        if key >> 3 == 0 {
            return Err(Malformed);
        }
        each(key >> 3, value)?;
    }
    Ok(())
}

fn take<'a>(message: &mut &'a [u8], len: usize) -> Result<&'a [u8], Malformed> {
    let (taken, rest) = message.split_at_checked(len).ok_or(Malformed)?;
    *message = rest;
    Ok(taken)
}

fn varint(message: &mut &[u8]) -> Result<u64, Malformed> {
    /// A 64-bit varint has at most ten bytes.
    const LONGEST: usize = 10;
    let mut value = 0u64;
    for (n, byte) in message.iter().enumerate().take(LONGEST) {
        value |= u64::from(byte & 0x7f) << (7 * n);
        if byte & 0x80 == 0 {
            *message = &message[n + 1..];
            return Ok(value);
        }
    }
    Err(Malformed)
}
