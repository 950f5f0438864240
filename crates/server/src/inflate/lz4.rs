//! LZ4 frames laid end to end (lz4_Frame_format.md 1.6.4 of lz4).
//!
//! The decoder reads one frame, takes a block without content for its end, and the end of its input between two blocks, or behind the magic
//! number, for the end of the frame. So it is given one whole frame after the other, and asked until it has taken all of it.

use std::io::{Error, ErrorKind, Read, Result};

use lz4_flex::frame::FrameDecoder;

use super::steps::Steps;

/// Frames of one body at most, those aside that are skipped: one of 17 bytes has its decoder zero 4 MB, and clients send one.
pub(super) const MOST_FRAMES: u32 = 16;

/// Blocks without content in a row at most: writers leave one where they flush twice, and a body of 64 MiB has room for millions, which are one
/// read.
pub(super) const MOST_EMPTY_BLOCKS: u32 = 1024;

const MAGIC: u32 = 0x184d_2204;

/// Frames that begin with one of these are for others, and skipped.
const SKIPPED_MAGIC: std::ops::RangeInclusive<u32> = 0x184d_2a50..=0x184d_2a5f;

/// An older format, without an end: a frame that is cut off cannot be told from a whole one.
const LEGACY_MAGIC: u32 = 0x184c_2102;

const BLOCK_CHECKSUMS: u8 = 1 << 4;
const CONTENT_SIZE: u8 = 1 << 3;
const CONTENT_CHECKSUM: u8 = 1 << 2;
const DICTIONARY_ID: u8 = 1;
const CHECKSUM_BYTES: usize = 4;

/// Of a block's size, that it is not compressed.
const AS_IT_IS: u32 = 1 << 31;

/// The content of all frames of a body.
pub(super) struct Frames<'a> {
    rest: &'a [u8],
    may_go_on: &'a dyn Fn() -> bool,
    decoder: Option<FrameDecoder<Steps<'a>>>,
    frames: u32,
    /// Since the last content.
    empty_blocks: u32,
}

impl<'a> Frames<'a> {
    pub fn new(body: &'a [u8], may_go_on: &'a dyn Fn() -> bool) -> Self {
        Self {
            rest: body,
            may_go_on,
            decoder: None,
            frames: 0,
            empty_blocks: 0,
        }
    }

    /// Goes on to the next frame that has content; false: there is none.
    fn next_frame(&mut self) -> Result<bool> {
        while !self.rest.is_empty() {
            let (magic, bytes) = first_frame(Steps::through(self.rest, self.may_go_on))?;
            let (frame, rest) = self.rest.split_at(bytes);
            self.rest = rest;
            if SKIPPED_MAGIC.contains(&magic) {
                continue;
            }
            if self.frames == MOST_FRAMES {
                return Err(Error::other(format!(
                    "more than {MOST_FRAMES} frames in one body"
                )));
            }
            self.frames += 1;
            self.decoder = Some(FrameDecoder::new(Steps::through(frame, self.may_go_on)));
            return Ok(true);
        }
        Ok(false)
    }
}

impl Read for Frames<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            if let Some(decoder) = &mut self.decoder {
                let read = decoder.read(buffer)?;
                if read > 0 || buffer.is_empty() {
                    self.empty_blocks = 0;
                    return Ok(read);
                }
                if !decoder.get_ref().rest().is_empty() {
                    // A block without content.
                    self.empty_blocks += 1;
                    if self.empty_blocks > MOST_EMPTY_BLOCKS {
                        return Err(Error::other(format!(
                            "more than {MOST_EMPTY_BLOCKS} blocks without content in a row"
                        )));
                    }
                    continue;
                }
            }
            if !self.next_frame()? {
                return Ok(0);
            }
        }
    }
}

/// What the frame begins with that a body begins with, and how long it is.
fn first_frame(body: Steps<'_>) -> Result<(u32, usize)> {
    let bytes = body.rest().len();
    let mut rest = Cut(body);
    let magic = rest.number()?;
    if SKIPPED_MAGIC.contains(&magic) {
        let content = rest.number()?;
        rest.skip(content as usize)?;
        return Ok((magic, bytes - rest.0.rest().len()));
    }
    if magic != MAGIC {
        return Err(Error::other(match magic {
            LEGACY_MAGIC => "legacy frames are not read: nothing says where they end",
            _ => "no LZ4 frame starts here",
        }));
    }
    let flags = rest.0.rest().first().copied().ok_or_else(cut_off)?;
    let with = |flag: u8, bytes: usize| if flags & flag == 0 { 0 } else { bytes };
    // Flags, block size, and the checksum of the header.
    rest.skip(2 + with(CONTENT_SIZE, 8) + with(DICTIONARY_ID, 4) + 1)?;
    loop {
        match rest.number()? {
            0 => break,
            size => rest.skip((size & !AS_IT_IS) as usize + with(BLOCK_CHECKSUMS, CHECKSUM_BYTES))?,
        }
    }
    rest.skip(with(CONTENT_CHECKSUM, CHECKSUM_BYTES))?;
    Ok((magic, bytes - rest.0.rest().len()))
}

/// What may be cut off anywhere.
struct Cut<'a>(Steps<'a>);

impl Cut<'_> {
    fn skip(&mut self, bytes: usize) -> Result<()> {
        self.0.skip(bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => cut_off(),
            _ => error,
        })
    }

    fn number(&mut self) -> Result<u32> {
        let number = self.0.rest().first_chunk().copied().ok_or_else(cut_off)?;
        self.skip(size_of::<u32>())?;
        Ok(u32::from_le_bytes(number))
    }
}

fn cut_off() -> Error {
    Error::new(ErrorKind::UnexpectedEof, "a frame is cut short")
}
