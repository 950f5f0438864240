//! What comes out of a decoder.

use std::io::Read;

use sluice_payload::Encoding;

use super::InflateError;
use super::steps::{ask, error_of};

/// What counting inflates into, and the most that is asked of a decoder that only reads into memory that was written before: it stays in the
/// processor's cache.
pub(super) const PIECE_BYTES: usize = 128 << 10;

/// Content that is kept, or only counted.
pub(super) struct Content<'a> {
    pub bytes: Vec<u8>,
    cap: u64,
    /// Bytes that were counted and let go; `None` where all are kept.
    gone: Option<u64>,
    /// Asked before each piece.
    may_go_on: &'a dyn Fn() -> bool,
    /// Where `bytes` is as large as it may be: the first byte that is too many. A full buffer is not too small yet, for
    /// an empty frame may follow.
    beyond: Option<Vec<u8>>,
}

impl<'a> Content<'a> {
    pub fn kept(capacity: u64, cap: u64, may_go_on: &'a dyn Fn() -> bool) -> Self {
        Self {
            bytes: Vec::with_capacity(capacity.clamp(1, cap.max(1)) as usize),
            cap,
            gone: None,
            may_go_on,
            beyond: None,
        }
    }

    pub fn counted(most: u64, may_go_on: &'a dyn Fn() -> bool) -> Self {
        Self {
            bytes: Vec::with_capacity(PIECE_BYTES),
            cap: most,
            gone: Some(0),
            may_go_on,
            beyond: None,
        }
    }

    /// What is written to next: there is room.
    pub fn out(&mut self) -> std::io::Result<&mut Vec<u8>> {
        ask(self.may_go_on)?;
        Ok(self.beyond.as_mut().unwrap_or(&mut self.bytes))
    }

    pub fn len(&self) -> u64 {
        let beyond = self.beyond.as_ref().map_or(0, Vec::len);
        self.gone.unwrap_or(0) + (self.bytes.len() + beyond) as u64
    }

    /// It is complete.
    pub fn checked(self) -> Result<Self, InflateError> {
        match self.len() > self.cap {
            true => Err(InflateError::Larger(self.cap)),
            false => Ok(self),
        }
    }

    /// Makes room where what is written to is full, for it is not complete.
    pub fn make_room(&mut self) -> Result<(), InflateError> {
        let out = self.beyond.as_ref().unwrap_or(&self.bytes);
        if out.len() < out.capacity() {
            return Ok(());
        }
        let len = self.len();
        if len > self.cap {
            return Err(InflateError::Larger(self.cap));
        }
        match &mut self.gone {
            Some(gone) => {
                *gone = len;
                self.bytes.clear();
            }
            None if len == self.cap => self.beyond = Some(Vec::with_capacity(1)),
            // Doubling keeps the copies linear; exact, so that the capacity stays what was reserved.
            None => {
                let room = (self.cap - len) as usize;
                self.bytes.reserve_exact(self.bytes.len().max(4096).min(room));
            }
        }
        Ok(())
    }

    /// All that `reader` has.
    pub fn read(&mut self, mut reader: impl Read, encoding: Encoding) -> Result<(), InflateError> {
        let bad = error_of(encoding);
        loop {
            self.make_room()?;
            let out = self.out().map_err(&bad)?;
            let mut filled = out.len();
            out.resize((filled + PIECE_BYTES).min(out.capacity()), 0);
            while filled < out.len() {
                match reader.read(&mut out[filled..]).map_err(&bad)? {
                    0 => {
                        out.truncate(filled);
                        return Ok(());
                    }
                    read => filled += read,
                }
            }
        }
    }
}
