//! The table of texts of a 2.0 body.

use crate::hash;
use crate::protobuf::put_delimited;

/// `Request.symbols`
const SYMBOLS: u32 = 4;

/// Places of a new index; it doubles when half of it is taken.
const FIRST_PLACES: usize = 1024;

/// The texts of a body, each once; the first one is empty.
#[derive(Debug)]
pub(crate) struct Symbols {
    /// The fields of the request, end to end.
    encoded: Vec<u8>,
    /// Where each text stands in there.
    places: Vec<(u32, u32)>,
    /// Half of the text's hash, and its number; found by the former, open addressing. A number of 0 is an empty place: the
    /// empty text is not looked up.
    index: Vec<(u32, u32)>,
}

/// Half of a text's hash.
#[inline]
fn tag(text: &[u8]) -> u32 {
    (hash::hash(text, 0) >> 32) as u32
}

impl Default for Symbols {
    fn default() -> Self {
        let mut symbols = Self {
            encoded: Vec::new(),
            places: Vec::new(),
            index: vec![(0, 0); FIRST_PLACES],
        };
        symbols.begin();
        symbols
    }
}

impl Symbols {
    fn begin(&mut self) {
        put_delimited(&mut self.encoded, SYMBOLS, &[]);
        self.places.push((0, 0));
    }

    /// Forgets all texts but the empty one.
    pub fn clear(&mut self) {
        self.encoded.clear();
        self.places.clear();
        self.index.fill((0, 0));
        self.begin();
    }

    /// The fields of the request that are the table.
    pub fn encoded(&self) -> &[u8] {
        &self.encoded
    }

    /// The number of a text, which is added if it is not there.
    #[inline]
    pub fn of(&mut self, text: &[u8]) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let tag = tag(text);
        let at = match self.find(tag, text) {
            Ok(number) => return number,
            Err(at) => at,
        };
        let number = self.places.len() as u32;
        self.index[at] = (tag, number);
        put_delimited(&mut self.encoded, SYMBOLS, text);
        let end = self.encoded.len() as u32;
        self.places.push((end - text.len() as u32, end));
        if self.places.len() * 2 > self.index.len() {
            self.grow();
        }
        number
    }

    /// Whether a text is there.
    pub fn has(&self, text: &[u8]) -> bool {
        text.is_empty() || self.find(tag(text), text).is_ok()
    }

    /// The number of a text, or the place in the index where it is to be.
    #[inline]
    fn find(&self, tag: u32, text: &[u8]) -> Result<u32, usize> {
        let mask = self.index.len() - 1;
        let mut at = tag as usize & mask;
        loop {
            let (known, number) = self.index[at];
            if number == 0 {
                return Err(at);
            }
            if known == tag {
                let (start, end) = self.places[number as usize];
                if self.encoded[start as usize..end as usize] == *text {
                    return Ok(number);
                }
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    fn grow(&mut self) {
        let grown = vec![(0, 0); self.index.len() * 2];
        let known = std::mem::replace(&mut self.index, grown);
        let mask = self.index.len() - 1;
        for (tag, number) in known.into_iter().filter(|(_, number)| *number != 0) {
            let mut at = tag as usize & mask;
            while self.index[at].1 != 0 {
                at = (at + 1) & mask;
            }
            self.index[at] = (tag, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: ten thousand texts, each asked for three times, and the empty one; then again after clearing.
    /// Guarantees: numbers count up from 1 in the order of first use, each text is in the table once, and 0 is empty.
    #[test]
    fn each_text_is_there_once() {
        let mut symbols = Symbols::default();
        for _ in 0..2 {
            for round in 0..3 {
                for n in 0..10_000u32 {
                    assert_eq!(symbols.of(format!("text {n}").as_bytes()), n + 1, "{round}");
                }
            }
            assert_eq!(symbols.of(b""), 0);
            let texts: Vec<_> = sluice_wire::Fields::of(symbols.encoded())
                .map(|field| field.value)
                .collect();
            assert_eq!(texts.len(), 10_001);
            assert_eq!((texts[0], texts[10_000]), (&b""[..], &b"text 9999"[..]));
            symbols.clear();
        }
    }
}
