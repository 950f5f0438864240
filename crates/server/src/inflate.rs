//! Inflation into a buffer of known size, never beyond a cap.
//!
//! Where the compressed form says how large the content is (zstd content sizes, gzip ISIZE, snappy
//! lengths) the whole of it is reserved before the first byte is inflated, all or nothing: two
//! half-inflated bodies never wait for each other. A form that lies is cut off at what it said. Where nothing says it, the content
//! can be [counted](counted_size) without being kept.

use std::cell::RefCell;
use std::io::Read;

use sluice_payload::Encoding;

use declared::{MAX_ZSTD_WINDOW_LOG, SNAPPY_STREAM, zstd_size};
pub use declared::{inflated_size, is_portable};

mod declared;
mod lz4;

/// What counting inflates into: it stays in the processor's cache, and is as much as a decoder hands out at a time.
const COUNTING_BYTES: usize = 128 << 10;

/// Why a body did not inflate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InflateError {
    /// More content than `cap`.
    #[error("the content is larger than {0} bytes")]
    Larger(u64),
    /// Not what the content encoding says.
    #[error("the body is not valid {encoding}: {cause}")]
    Corrupt {
        /// What it was taken for.
        encoding: Encoding,
        /// What the decoder says.
        cause: String,
    },
    /// It was not inflated, or counted, to its end in the time there was.
    #[error("the body could not be inflated in time")]
    OutOfTime,
}

fn corrupt(encoding: Encoding) -> impl Fn(String) -> InflateError {
    move |cause| InflateError::Corrupt { encoding, cause }
}

/// Inflates all of `compressed` into one buffer that starts at `capacity` bytes and never grows
/// beyond `cap`. Of the forms that can go on for long without content, many members or frames in one body, it asks before each whether it
/// `may_go_on`.
///
/// # Errors
/// [`InflateError`].
pub fn inflate(
    encoding: Encoding,
    compressed: &[u8],
    capacity: u64,
    cap: u64,
    may_go_on: &dyn Fn() -> bool,
) -> Result<Vec<u8>, InflateError> {
    let bad = corrupt(encoding);
    let content = || Content::kept(capacity, cap, may_go_on);
    match encoding {
        Encoding::Identity => Ok(compressed.to_vec()),
        Encoding::Zstd => match zstd_size(compressed)? {
            Some(size) if size > cap => Err(InflateError::Larger(cap)),
            Some(size) => inflate_sized_zstd(compressed, size),
            None => Ok(inflate_zstd(compressed, content())?.bytes),
        },
        Encoding::Gzip | Encoding::Zlib => Ok(inflate_deflate(compressed, content(), encoding)?.bytes),
        Encoding::Snappy if compressed.starts_with(SNAPPY_STREAM) => {
            read_capped(snap::read::FrameDecoder::new(compressed), encoding, capacity, cap)
        }
        Encoding::Snappy => {
            let size = snap::raw::decompress_len(compressed).map_err(|e| bad(e.to_string()))? as u64;
            if size > cap {
                return Err(InflateError::Larger(cap));
            }
            let out = snap::raw::Decoder::new()
                .decompress_vec(compressed)
                .map_err(|e| bad(e.to_string()))?;
            Ok(out)
        }
        Encoding::Lz4 => read_capped(lz4::Frames::new(compressed), encoding, capacity, cap),
    }
}

/// How large the content is, at most `most` bytes. It is inflated into a small buffer again and again, and nothing of it is kept: a body
/// that says nothing of its size costs neither the memory of a guess that was too large nor the time to touch it. Before each of these buffers,
/// and each member or frame, it is asked whether it `may_go_on`.
///
/// # Errors
/// [`InflateError`].
pub fn counted_size(
    encoding: Encoding,
    compressed: &[u8],
    most: u64,
    may_go_on: &dyn Fn() -> bool,
) -> Result<u64, InflateError> {
    let content = || Content::counted(most, may_go_on);
    let counted = match encoding {
        Encoding::Identity => Ok(compressed.len() as u64),
        Encoding::Zstd => match zstd_size(compressed)? {
            Some(size) => Ok(size),
            None => Ok(inflate_zstd(compressed, content())?.len()),
        },
        Encoding::Gzip | Encoding::Zlib => Ok(inflate_deflate(compressed, content(), encoding)?.len()),
        Encoding::Snappy if compressed.starts_with(SNAPPY_STREAM) => count(
            snap::read::FrameDecoder::new(compressed),
            encoding,
            most,
            may_go_on,
        ),
        Encoding::Snappy => snap::raw::decompress_len(compressed)
            .map(|size| size as u64)
            .map_err(|error| corrupt(encoding)(error.to_string())),
        Encoding::Lz4 => count(lz4::Frames::new(compressed), encoding, most, may_go_on),
    }?;
    match counted > most {
        true => Err(InflateError::Larger(most)),
        false => Ok(counted),
    }
}

/// Reads on until there is nothing more, or more than `most`.
fn count(
    mut reader: impl Read,
    encoding: Encoding,
    most: u64,
    may_go_on: &dyn Fn() -> bool,
) -> Result<u64, InflateError> {
    let mut buffer = vec![0; COUNTING_BYTES];
    let mut counted = 0;
    while counted <= most {
        if !may_go_on() {
            return Err(InflateError::OutOfTime);
        }
        match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => counted += read as u64,
            Err(error) => return Err(corrupt(encoding)(error.to_string())),
        }
    }
    Ok(counted)
}

/// What comes out of a decoder.
struct Content<'a> {
    bytes: Vec<u8>,
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
    fn kept(capacity: u64, cap: u64, may_go_on: &'a dyn Fn() -> bool) -> Self {
        Self {
            bytes: Vec::with_capacity(capacity.clamp(1, cap.max(1)) as usize),
            cap,
            gone: None,
            may_go_on,
            beyond: None,
        }
    }

    fn counted(most: u64, may_go_on: &'a dyn Fn() -> bool) -> Self {
        Self {
            bytes: Vec::with_capacity(COUNTING_BYTES),
            cap: most,
            gone: Some(0),
            may_go_on,
            beyond: None,
        }
    }

    /// What is written to next.
    fn out(&mut self) -> Result<&mut Vec<u8>, InflateError> {
        match (self.may_go_on)() {
            true => Ok(self.beyond.as_mut().unwrap_or(&mut self.bytes)),
            false => Err(InflateError::OutOfTime),
        }
    }

    fn len(&self) -> u64 {
        let beyond = self.beyond.as_ref().map_or(0, Vec::len);
        self.gone.unwrap_or(0) + (self.bytes.len() + beyond) as u64
    }

    /// It is complete.
    fn checked(self) -> Result<Self, InflateError> {
        match self.len() > self.cap {
            true => Err(InflateError::Larger(self.cap)),
            false => Ok(self),
        }
    }

    /// What is written to is full, and it is not complete.
    fn make_room(&mut self) -> Result<(), InflateError> {
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
}

fn read_capped(
    mut reader: impl Read,
    encoding: Encoding,
    capacity: u64,
    cap: u64,
) -> Result<Vec<u8>, InflateError> {
    let mut out = Vec::with_capacity(capacity.min(cap) as usize);
    let bad = |error: std::io::Error| corrupt(encoding)(error.to_string());
    // Never a byte beyond the cap: what `out` grows to is what was reserved.
    reader.by_ref().take(cap).read_to_end(&mut out).map_err(bad)?;
    match reader.read(&mut [0]).map_err(bad)? {
        0 => Ok(out),
        _ => Err(InflateError::Larger(cap)),
    }
}

/// A context that is larger than this has a body's window, up to 8 MiB for each thread, which no budget knows of: it is kept only after
/// [little content](KEPT_CONTENT_BYTES).
const KEPT_CONTEXT_BYTES: usize = 1 << 20;

/// A window costs resident memory only as far as content was written into it. Collectors send windows of 4 to 8 MiB with far less content than this:
/// their requests must not map and unmap a window each.
const KEPT_CONTENT_BYTES: u64 = 4 << 20;

thread_local! {
    /// One zstd context a thread: setting one up costs more than inflating a small body.
    static ZSTD: RefCell<Option<zstd_safe::DCtx<'static>>> = const { RefCell::new(None) };
}

/// Drops what this thread keeps for the next body.
pub fn give_back_contexts() {
    ZSTD.take();
}

fn with_context<T>(work: impl FnOnce(&mut zstd_safe::DCtx<'static>) -> T) -> T {
    ZSTD.with_borrow_mut(|kept| work(kept.get_or_insert_with(zstd_safe::DCtx::create)))
}

/// One shot: the output is the window, so no window is allocated, however large it claims to be.
fn inflate_sized_zstd(compressed: &[u8], size: u64) -> Result<Vec<u8>, InflateError> {
    let mut out: Vec<u8> = Vec::with_capacity(size as usize);
    let result = with_context(|context| context.decompress(&mut out, compressed));
    result.map_err(zstd_error)?;
    Ok(out)
}

fn zstd_error(code: zstd_safe::ErrorCode) -> InflateError {
    corrupt(Encoding::Zstd)(zstd_safe::get_error_name(code).to_owned())
}

fn inflate_zstd<'a>(compressed: &[u8], content: Content<'a>) -> Result<Content<'a>, InflateError> {
    with_context(|context| {
        let inflated = inflate_zstd_with(context, compressed, content);
        let written = match &inflated {
            Ok(content) => content.len(),
            Err(InflateError::Larger(cap)) => *cap,
            // Nothing says how much came before: as if all.
            Err(_) => u64::MAX,
        };
        if context.sizeof() > KEPT_CONTEXT_BYTES && written > KEPT_CONTENT_BYTES {
            *context = zstd_safe::DCtx::create();
        }
        inflated
    })
}

fn inflate_zstd_with<'a>(
    context: &mut zstd_safe::DCtx<'static>,
    compressed: &[u8],
    mut content: Content<'a>,
) -> Result<Content<'a>, InflateError> {
    context
        .reset(zstd_safe::ResetDirective::SessionAndParameters)
        .map_err(zstd_error)?;
    context
        .set_parameter(zstd_safe::DParameter::WindowLogMax(MAX_ZSTD_WINDOW_LOG))
        .map_err(zstd_error)?;
    let mut input = zstd_safe::InBuffer::around(compressed);
    loop {
        let out = content.out()?;
        let (before_in, before_out) = (input.pos(), out.len());
        let hint = {
            let mut output = zstd_safe::OutBuffer::around_pos(out, before_out);
            context
                .decompress_stream(&mut output, &mut input)
                .map_err(zstd_error)?
        };
        if input.pos() == compressed.len() && hint == 0 {
            break;
        }
        if out.len() == out.capacity() {
            content.make_room()?;
        } else if input.pos() == before_in && out.len() == before_out || input.pos() == compressed.len() {
            return Err(corrupt(Encoding::Zstd)("a frame is cut short".into()));
        }
    }
    content.checked()
}

fn inflate_deflate<'a>(
    compressed: &[u8],
    mut content: Content<'a>,
    encoding: Encoding,
) -> Result<Content<'a>, InflateError> {
    let bad = corrupt(encoding);
    let mut rest = compressed;
    loop {
        let mut decoder = match encoding {
            Encoding::Gzip => flate2::Decompress::new_gzip(15),
            _ => flate2::Decompress::new(true),
        };
        loop {
            let out = content.out()?;
            let (before_in, before_out) = (decoder.total_in(), out.len());
            let status = decoder
                .decompress_vec(rest, out, flate2::FlushDecompress::None)
                .map_err(|error| bad(error.to_string()))?;
            let read = (decoder.total_in() - before_in) as usize;
            rest = &rest[read..];
            if status == flate2::Status::StreamEnd {
                break;
            }
            if out.len() == out.capacity() {
                content.make_room()?;
            } else if read == 0 && out.len() == before_out {
                return Err(bad("the stream is cut short".into()));
            }
        }
        if rest.is_empty() {
            return content.checked();
        }
        if encoding != Encoding::Gzip {
            return Err(bad(format!("{} bytes follow the end of the stream", rest.len())));
        }
    }
}

#[cfg(test)]
mod tests;
