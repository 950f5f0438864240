//! Writing protobuf.

/// Bytes a varint takes.
#[inline]
pub(crate) const fn varint_len(value: u64) -> usize {
    // 9/64 is a shade above 1/7, exact for 1 to 64 bits.
    (((64 - (value | 1).leading_zeros()) * 9 + 64) / 64) as usize
}

/// Appends a varint.
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a delimited field.
#[inline]
pub(crate) fn put_delimited(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    put_varint(out, u64::from(number << 3 | 2));
    put_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Appends a varint field, unless it is 0, which is what an absent one reads as.
#[inline]
pub(crate) fn put_uint(out: &mut Vec<u8>, number: u32, value: u64) {
    if value != 0 {
        put_varint(out, u64::from(number << 3));
        put_varint(out, value);
    }
}

/// Appends an eight-byte field, whatever its value.
#[inline]
pub(crate) fn put_double(out: &mut Vec<u8>, number: u32, value: f64) {
    put_varint(out, u64::from(number << 3 | 1));
    out.extend_from_slice(&value.to_bits().to_le_bytes());
}

/// A signed number as `sint32` and `sint64` write it.
#[inline]
pub(crate) const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// A signed number as `sint32` and `sint64` read it.
#[inline]
pub(crate) const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
