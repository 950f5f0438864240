//! Integers in the number forms proto3 JSON allows: `12`, `"12"`, `1.2e1`, `12.0`.

/// An integer of up to 64 bits with its sign apart, so that `u64` keeps its full range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Integer {
    pub(super) negative: bool,
    pub(super) magnitude: u64,
}

/// Why a number is not an integer of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotInteger {
    /// It has a fraction.
    Fraction,
    /// Its magnitude exceeds 64 bits.
    Range,
}

impl Integer {
    /// Reads a number that follows the JSON grammar, apart from leading zeros, which do not matter here.
    pub(super) fn parse(number: &str) -> Result<Self, NotInteger> {
        let (negative, digits) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number),
        };
        let mut magnitude: u64 = 0;
        for (position, byte) in digits.bytes().enumerate() {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                debug_assert!(position > 0, "the grammar wants a digit first");
                return Ok(Self {
                    negative,
                    magnitude: shifted(digits)?,
                });
            }
            // Nineteen digits cannot overflow; beyond them every step is checked.
            magnitude = if position < 19 {
                magnitude * 10 + u64::from(digit)
            } else {
                let next = magnitude
                    .checked_mul(10)
                    .and_then(|tens| tens.checked_add(u64::from(digit)));
                match next {
                    Some(sum) => sum,
                    // The rest may still be an exponent that brings it back into range.
                    None if digits.bytes().any(|byte| !byte.is_ascii_digit()) => {
                        return Ok(Self {
                            negative,
                            magnitude: shifted(digits)?,
                        });
                    }
                    None => return Err(NotInteger::Range),
                }
            };
        }
        Ok(Self { negative, magnitude })
    }

    /// As a signed integer, if it fits.
    pub(super) fn as_i64(self) -> Option<i64> {
        if self.negative {
            0i64.checked_sub_unsigned(self.magnitude)
        } else {
            i64::try_from(self.magnitude).ok()
        }
    }

    /// As an unsigned integer, if it fits; minus zero is zero.
    pub(super) fn as_u64(self) -> Option<u64> {
        (!self.negative || self.magnitude == 0).then_some(self.magnitude)
    }
}

/// The value of `digits[.digits][e[+-]digits]`, exactly: the decimal point is moved in the text, not in a float.
fn shifted(number: &str) -> Result<u64, NotInteger> {
    let (mantissa, exponent) = match number.find(['e', 'E']) {
        Some(at) => (&number[..at], exponent(&number[at + 1..])),
        None => (number, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let significant = whole
        .bytes()
        .chain(fraction.bytes())
        .skip_while(|&byte| byte == b'0');
    let count = significant.clone().count();
    let trailing_zeros = whole
        .bytes()
        .chain(fraction.bytes())
        .rev()
        .take_while(|&byte| byte == b'0')
        .count();
    if count == 0 {
        return Ok(0);
    }
    let kept = count - trailing_zeros;
    let zeros = exponent - fraction.len() as i64 + trailing_zeros as i64;
    if zeros < 0 {
        return Err(NotInteger::Fraction);
    }
    // 2^64 has twenty digits.
    if kept as i64 + zeros > 20 {
        return Err(NotInteger::Range);
    }
    let zeros = std::iter::repeat_n(b'0', zeros as usize);
    significant.take(kept).chain(zeros).try_fold(0u64, |value, byte| {
        value
            .checked_mul(10)
            .and_then(|tens| tens.checked_add(u64::from(byte - b'0')))
            .ok_or(NotInteger::Range)
    })
}

/// The exponent, held within what no text of a body can make up for.
fn exponent(text: &str) -> i64 {
    const FAR: i64 = 1 << 40;
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let magnitude = digits
        .bytes()
        .fold(0i64, |value, byte| (value * 10 + i64::from(byte - b'0')).min(FAR));
    if negative { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(number: &str) -> Result<i128, NotInteger> {
        let integer = Integer::parse(number)?;
        let magnitude = i128::from(integer.magnitude);
        Ok(if integer.negative { -magnitude } else { magnitude })
    }

    /// Scenario: integral numbers in every form of the JSON grammar.
    /// Guarantees: they are read exactly, over the whole range of 64 bits, floats' 53 bits notwithstanding.
    #[test]
    fn integral_forms_are_exact() {
        for (text, expected) in [
            ("0", 0),
            ("-0", 0),
            ("0.0", 0),
            ("0e5", 0),
            ("0e-5", 0),
            ("0.000e99999999999999999999", 0),
            ("7", 7),
            ("-7", -7),
            ("1e3", 1000),
            ("1E+3", 1000),
            ("1.0", 1),
            ("1.50e1", 15),
            ("100e-2", 1),
            ("12300e-2", 123),
            ("0.5e1", 5),
            ("0.00015e5", 15),
            ("9007199254740993", 9_007_199_254_740_993),
            ("9007199254740993.0", 9_007_199_254_740_993),
            ("18446744073709551615", i128::from(u64::MAX)),
            ("1.8446744073709551615e19", i128::from(u64::MAX)),
            ("18446744073709551615000e-3", i128::from(u64::MAX)),
            ("-9223372036854775808", i128::from(i64::MIN)),
            ("00000000000000000000000000012", 12),
        ] {
            assert_eq!(value(text), Ok(expected), "{text}");
        }
    }

    /// Scenario: fractions and numbers beyond 64 bits, some with exponents made to exhaust a naive reader.
    /// Guarantees: each is refused for its own reason.
    #[test]
    fn others_are_refused() {
        for text in [
            "0.5",
            "1e-1",
            "1.5",
            "123e-3",
            "1e-99999999999999999999999",
            "18446744073709551615.5",
        ] {
            assert_eq!(value(text), Err(NotInteger::Fraction), "{text}");
        }
        for text in [
            "18446744073709551616",
            "1e20",
            "1.8446744073709551616e19",
            "99999999999999999999",
            "1e99999999999999999999",
        ] {
            assert_eq!(value(text), Err(NotInteger::Range), "{text}");
        }
        assert_eq!(
            Integer::parse("-9223372036854775809").map(Integer::as_i64),
            Ok(None)
        );
        assert_eq!(Integer::parse("-1").map(Integer::as_u64), Ok(None));
        assert_eq!(Integer::parse("-0").map(Integer::as_u64), Ok(Some(0)));
    }
}
