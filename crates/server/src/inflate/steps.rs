//! A compressed body in steps.

use std::io::{BufRead, Error, ErrorKind, Read, Result};

use sluice_payload::Encoding;

use super::InflateError;

/// What a decoder takes of a body between two looks at the clock. Two of zstd's largest blocks, which it decodes where they lie; the body that
/// costs most for its size, zstd blocks of some dozen bytes with tables of their own, takes milliseconds for it (docs/decisions.md).
pub(super) const STEP_BYTES: usize = 256 << 10;

/// What is left of a body, for a decoder to read. Before each [`STEP_BYTES`] of it, it is asked whether that may go on; reading fails when it
/// may not ([`error_of`]). Whatever a body is made of, a decoder that reads it through this ends in time.
pub(super) struct Steps<'a> {
    rest: &'a [u8],
    /// Bytes of `rest` that may be read without asking.
    granted: usize,
    may_go_on: &'a dyn Fn() -> bool,
}

impl<'a> Steps<'a> {
    pub fn through(body: &'a [u8], may_go_on: &'a dyn Fn() -> bool) -> Self {
        Self {
            rest: body,
            granted: 0,
            may_go_on,
        }
    }

    /// What was not read.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Passes over so many bytes, of which nothing is read: for who only looks where things end.
    pub fn skip(&mut self, bytes: usize) -> Result<()> {
        self.piece()?;
        self.rest = self.rest.get(bytes..).ok_or(ErrorKind::UnexpectedEof)?;
        self.granted = self.granted.saturating_sub(bytes);
        Ok(())
    }

    /// What may be read now; empty at the end.
    pub fn piece(&mut self) -> Result<&'a [u8]> {
        if self.granted == 0 && !self.rest.is_empty() {
            ask(self.may_go_on)?;
            self.granted = self.rest.len().min(STEP_BYTES);
        }
        Ok(&self.rest[..self.granted])
    }
}

impl BufRead for Steps<'_> {
    fn fill_buf(&mut self) -> Result<&[u8]> {
        self.piece()
    }

    fn consume(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
        self.granted -= bytes;
    }
}

impl Read for Steps<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let read = self.piece()?.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}

/// An error that [`error_of`] knows again, when it may not go on.
pub(super) fn ask(may_go_on: &dyn Fn() -> bool) -> Result<()> {
    match may_go_on() {
        true => Ok(()),
        false => Err(Error::from(ErrorKind::TimedOut)),
    }
}

/// What a decoder's error says of the body: those of [`Steps`] come through it as they are.
pub(super) fn error_of(encoding: Encoding) -> impl Fn(Error) -> InflateError {
    move |error| match error.kind() {
        ErrorKind::TimedOut => InflateError::OutOfTime,
        _ => InflateError::Corrupt {
            encoding,
            cause: error.to_string(),
        },
    }
}
