//! JSON as a cursor over borrowed text: tokens on demand, nothing built.

use super::error::{Failure, Outcome};

/// How deep objects and arrays may nest inside the value of an unknown field. They are skipped without recursion, so
/// the bound guards nothing but the sixteen words that remember which bracket is open.
pub const MAX_UNKNOWN_DEPTH: usize = 1024;

/// A cursor over JSON text.
pub(super) struct Reader<'a> {
    text: &'a str,
    position: usize,
    /// The last string with escapes, unescaped.
    unescaped: String,
}

/// A string of the input.
#[derive(Clone, Copy)]
pub(super) enum Text<'a> {
    /// Without escapes: a slice of the input.
    Plain(&'a str),
    /// With escapes: unescaped in the reader, until it reads the next string.
    Escaped,
}

/// A number of the input, checked against the JSON grammar.
#[derive(Clone, Copy)]
pub(super) struct Number<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            position: 0,
            unescaped: String::new(),
        }
    }

    /// The offset of the next byte.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Goes back to (or on to) an offset this reader stood at before.
    pub(super) fn rewind(&mut self, position: usize) {
        self.position = position;
    }

    fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    /// Skips whitespace and looks at the next byte.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<u8> {
        let bytes = self.bytes();
        loop {
            match bytes.get(self.position) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.position += 1,
                next => return next.copied(),
            }
        }
    }

    /// Skips whitespace and takes the next byte if it is this one.
    #[inline]
    pub(super) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.position += usize::from(found);
        found
    }

    /// An error about the next byte: `wanted` says what belongs here.
    #[cold]
    pub(super) fn unexpected(&mut self, wanted: &str) -> Box<Failure> {
        let found = match self.peek() {
            None => "the input ends".to_owned(),
            Some(b'N' | b'I') => {
                "found a bare word; write \"NaN\", \"Infinity\" and \"-Infinity\" as strings".to_owned()
            }
            Some(_) => {
                let next = self.text[self.position..].chars().next().unwrap_or(' ');
                format!("found {next:?}")
            }
        };
        Failure::new(self.position, format!("expected {wanted}, {found}"))
    }

    /// Takes this byte or fails.
    #[inline]
    pub(super) fn expect(&mut self, byte: u8, wanted: &str) -> Outcome<()> {
        if self.take(byte) {
            Ok(())
        } else {
            Err(self.unexpected(wanted))
        }
    }

    /// After an element: whether a comma (hence another element) follows rather than the closing bracket.
    #[inline]
    pub(super) fn another(&mut self, close: u8) -> Outcome<bool> {
        match self.peek() {
            Some(b',') => {
                self.position += 1;
                if self.peek() == Some(close) {
                    return Err(self.unexpected("an element after the comma"));
                }
                Ok(true)
            }
            Some(next) if next == close => {
                self.position += 1;
                Ok(false)
            }
            _ if close == b'}' => Err(self.unexpected("',' or '}'")),
            _ => Err(self.unexpected("',' or ']'")),
        }
    }

    /// Takes `null` if it is next.
    #[inline]
    pub(super) fn take_null(&mut self) -> Outcome<bool> {
        if self.peek() != Some(b'n') {
            return Ok(false);
        }
        self.literal("null")?;
        Ok(true)
    }

    /// Reads `true` or `false`.
    pub(super) fn boolean(&mut self) -> Outcome<bool> {
        match self.peek() {
            Some(b't') => self.literal("true").map(|()| true),
            Some(b'f') => self.literal("false").map(|()| false),
            _ => Err(self.unexpected("true or false")),
        }
    }

    fn literal(&mut self, literal: &'static str) -> Outcome<()> {
        let rest = &self.bytes()[self.position..];
        let ends = rest
            .get(literal.len())
            .is_none_or(|next| !next.is_ascii_alphanumeric());
        if !rest.starts_with(literal.as_bytes()) || !ends {
            return Err(Failure::new(
                self.position,
                "not a JSON value; expected null, true or false",
            ));
        }
        self.position += literal.len();
        Ok(())
    }

    /// Reads a string; `wanted` says what belongs here if it is none.
    #[inline]
    pub(super) fn string(&mut self, wanted: &str) -> Outcome<Text<'a>> {
        self.expect(b'"', wanted)?;
        let start = self.position;
        let end = start + plain_run(&self.bytes()[start..]);
        if self.bytes().get(end) == Some(&b'"') {
            self.position = end + 1;
            return Ok(Text::Plain(&self.text[start..end]));
        }
        self.escaped(start, end)
    }

    /// The content of a string read last.
    #[inline]
    pub(super) fn content<'s>(&'s self, text: Text<'a>) -> &'s str
    where
        'a: 's,
    {
        match text {
            Text::Plain(text) => text,
            Text::Escaped => &self.unescaped,
        }
    }

    fn escaped(&mut self, start: usize, first: usize) -> Outcome<Text<'a>> {
        let (text, bytes) = (self.text, self.text.as_bytes());
        self.unescaped.clear();
        let (mut run_start, mut at) = (start, first);
        loop {
            self.unescaped.push_str(&text[run_start..at]);
            match bytes.get(at) {
                Some(b'"') => {
                    self.position = at + 1;
                    return Ok(Text::Escaped);
                }
                Some(b'\\') => {
                    let (unescaped, length) = escape(bytes, at)?;
                    self.unescaped.push(unescaped);
                    at += length;
                }
                Some(control) => {
                    let problem = format!(
                        "control character 0x{control:02x} in a string; escape it as \\u{control:04x}"
                    );
                    return Err(Failure::new(at, problem));
                }
                None => return Err(Failure::new(start - 1, "this string does not end")),
            }
            run_start = at;
            at += plain_run(&bytes[at..]);
        }
    }

    /// Reads a number.
    #[inline]
    pub(super) fn number(&mut self) -> Outcome<Number<'a>> {
        self.peek();
        let at = self.position;
        match number_len(&self.bytes()[at..]) {
            Ok(length) => {
                self.position += length;
                Ok(Number {
                    text: &self.text[at..at + length],
                    at,
                })
            }
            Err(offset) => {
                self.position += offset;
                Err(self.unexpected("a number"))
            }
        }
    }

    /// Skips a value of any kind, checking that it is JSON.
    pub(super) fn skip_value(&mut self) -> Outcome<()> {
        // One bit per open bracket: set for an object.
        let mut objects = [0u64; MAX_UNKNOWN_DEPTH / 64];
        let mut depth = 0;
        loop {
            match self.peek() {
                Some(open @ (b'{' | b'[')) => {
                    if depth == MAX_UNKNOWN_DEPTH {
                        let problem =
                            format!("an unknown field nests deeper than {MAX_UNKNOWN_DEPTH} levels");
                        return Err(Failure::new(self.position, problem));
                    }
                    let (word, bit) = (depth / 64, 1 << (depth % 64));
                    objects[word] = if open == b'{' {
                        objects[word] | bit
                    } else {
                        objects[word] & !bit
                    };
                    depth += 1;
                    self.position += 1;
                    let close = if open == b'{' { b'}' } else { b']' };
                    if self.peek() == Some(close) {
                        self.position += 1;
                        depth -= 1;
                    } else {
                        if open == b'{' {
                            self.name()?;
                        }
                        continue;
                    }
                }
                Some(b'"') => {
                    self.string("a string")?;
                }
                Some(b't' | b'f') => {
                    self.boolean()?;
                }
                Some(b'n') => {
                    self.take_null()?;
                }
                Some(b'-' | b'0'..=b'9') => {
                    self.number()?;
                }
                _ => return Err(self.unexpected("a value")),
            }
            // After a value: close what ends here.
            loop {
                if depth == 0 {
                    return Ok(());
                }
                let is_object = objects[(depth - 1) / 64] & (1 << ((depth - 1) % 64)) != 0;
                if self.another(if is_object { b'}' } else { b']' })? {
                    if is_object {
                        self.name()?;
                    }
                    break;
                }
                depth -= 1;
            }
        }
    }

    /// Reads a name and its colon.
    #[inline]
    pub(super) fn name(&mut self) -> Outcome<Text<'a>> {
        let name = self.string("a field name in quotes")?;
        self.expect(b':', "':' after the field name")?;
        Ok(name)
    }
}

/// The length of the leading run of string characters that stand for themselves.
#[inline]
pub(super) fn plain_run(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    // The lowest marked byte is exact: borrows only ever travel upwards from a byte that is marked itself.
    let zero_bytes = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
    let mut length = 0;
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let mut eight = [0; 8];
        eight.copy_from_slice(word);
        let word = u64::from_le_bytes(eight);
        let controls = word.wrapping_sub(ONES * 0x20) & !word & HIGH;
        let quotes = zero_bytes(word ^ (ONES * u64::from(b'"')));
        let backslashes = zero_bytes(word ^ (ONES * u64::from(b'\\')));
        let marks = controls | quotes | backslashes;
        if marks != 0 {
            return length + marks.trailing_zeros() as usize / 8;
        }
        length += 8;
    }
    let is_plain = |byte: &&u8| **byte >= 0x20 && **byte != b'"' && **byte != b'\\';
    length + words.remainder().iter().take_while(is_plain).count()
}

/// Reads the escape at `at` (a backslash); returns the character and the length of the escape.
fn escape(bytes: &[u8], at: usize) -> Outcome<(char, usize)> {
    let simple = match bytes.get(at + 1) {
        Some(b'"') => '"',
        Some(b'\\') => '\\',
        Some(b'/') => '/',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => {
            let first = hex4(bytes, at)?;
            if let Some(character) = char::from_u32(first) {
                return Ok((character, 6));
            }
            let lone = || {
                Failure::new(
                    at,
                    format!("\\u{first:04x} is half of a surrogate pair; UTF-8 has no place for it"),
                )
            };
            if first >= 0xDC00 || bytes.get(at + 6..at + 8) != Some(b"\\u") {
                return Err(lone());
            }
            let second = hex4(bytes, at + 6)?;
            if !(0xDC00..0xE000).contains(&second) {
                return Err(lone());
            }
            let scalar = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
            return char::from_u32(scalar)
                .map(|character| (character, 12))
                .ok_or_else(lone);
        }
        _ => {
            return Err(Failure::new(
                at,
                "not an escape of JSON; a backslash itself is written \\\\",
            ));
        }
    };
    Ok((simple, 2))
}

/// The four hexadecimal digits of the `\u` escape at `at`.
fn hex4(bytes: &[u8], at: usize) -> Outcome<u32> {
    let digits = bytes.get(at + 2..at + 6).unwrap_or_default();
    let value = digits.iter().try_fold(0, |value, &byte| {
        Some(value << 4 | char::from(byte).to_digit(16)?)
    });
    value
        .filter(|_| digits.len() == 4)
        .ok_or_else(|| Failure::new(at, "\\u wants four hexadecimal digits"))
}

/// The length of the number at the start of these bytes, or the offset of what does not belong there.
#[inline]
pub(super) fn number_len(bytes: &[u8]) -> Result<usize, usize> {
    let digits = |at: usize| {
        bytes[at..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count()
    };
    let mut length = usize::from(bytes.first() == Some(&b'-'));
    let whole = digits(length);
    if whole == 0 {
        return Err(length);
    }
    if whole > 1 && bytes[length] == b'0' {
        return Err(length + 1);
    }
    length += whole;
    if bytes.get(length) == Some(&b'.') {
        let fraction = digits(length + 1);
        if fraction == 0 {
            return Err(length + 1);
        }
        length += 1 + fraction;
    }
    if let Some(b'e' | b'E') = bytes.get(length) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        let exponent = digits(length + 1 + sign);
        if exponent == 0 {
            return Err(length + 1 + sign);
        }
        length += 1 + sign + exponent;
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skip(json: &str) -> Result<usize, String> {
        let mut reader = Reader::new(json);
        reader
            .skip_value()
            .map_err(|failure| failure.locate(json.as_bytes()).to_string())?;
        Ok(reader.position())
    }

    /// Scenario: values of every kind, valid and not, are skipped.
    /// Guarantees: valid JSON is skipped to its end; what serde_json refuses is refused.
    #[test]
    fn skipping_agrees_with_serde_json() {
        for json in [
            "{}",
            "[]",
            "[[],{}]",
            "{\"a\":{\"b\":[1,2,{\"c\":null}]},\"d\":true}",
            "-0.5e+10",
            "0",
            "\"a\\u00e9\\ud83d\\ude00\"",
            "[1,]",
            "{\"a\":1,}",
            "{a:1}",
            "{\"a\" 1}",
            "[1 2]",
            "{\"a\":}",
            "tru",
            "truex",
            "nul",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "-",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\\ud800\"",
            "\"\\udc00\"",
            "\"\\ud800\\u0041\"",
            "\"a",
            "\"\\",
            "\"\u{1}\"",
            "\"a\nb\"",
            "",
            "[}",
            "{]",
            "[1}",
            "{\"a\":1]",
            "[,1]",
            "{,}",
            "NaN",
            "\"\\u+123\"",
        ] {
            let expected = serde_json::from_str::<serde_json::Value>(json).is_ok();
            let skipped = skip(json);
            assert_eq!(
                skipped.as_ref().is_ok_and(|end| *end == json.len()),
                expected,
                "{json}: {skipped:?}"
            );
        }
    }

    /// Scenario: brackets nest as deep as allowed, and one level deeper.
    /// Guarantees: the bound holds exactly and no stack is used up.
    #[test]
    fn the_depth_of_skipped_values_is_bounded() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(skip(&nested(MAX_UNKNOWN_DEPTH)), Ok(2 * MAX_UNKNOWN_DEPTH));
        assert!(skip(&nested(MAX_UNKNOWN_DEPTH + 1)).is_err());
        assert!(skip(&"[{\"a\":".repeat(1_000_000)).is_err());
    }

    /// Scenario: a special byte at every offset of strings of several lengths.
    /// Guarantees: the run ends exactly before it, words of eight or not, multi-byte characters or not.
    #[test]
    fn plain_runs_end_before_the_special_byte() {
        for special in [b'"', b'\\', 0, 0x1f, b'\n'] {
            for length in 0..40 {
                for fill in [b'a', 0x20, 0x7f, 0x80, 0xff, b'!', b'#', b'[', b']'] {
                    let mut bytes = vec![fill; length];
                    assert_eq!(plain_run(&bytes), length);
                    bytes.push(special);
                    bytes.extend([b'"', b'x', b'\\', 0, b'x', b'x', b'x', b'x', b'x']);
                    assert_eq!(plain_run(&bytes), length, "{special} after {length} of {fill}");
                }
            }
        }
    }
}
