//! Inflation into a buffer of known size, never beyond a cap.
//!
//! Where the compressed form says how large the content is (zstd content sizes, gzip ISIZE, snappy
//! lengths) the whole of it is reserved before the first byte is inflated, all or nothing: two
//! half-inflated bodies never wait for each other. A form that lies is cut off at what it said. Where nothing says it, the content
//! can be [counted](counted_size) without being kept.
//!
//! Either way a body is read [in steps](steps), between which there is a question whether it may go on, and content that is counted comes in
//! pieces with the same question: how long a body takes is not in its size. The one form that is inflated at once is a block of snappy, whose work is
//! at most that of copying it byte by byte.

use sluice_payload::Encoding;

use content::Content;
use declared::certain_size;
pub use declared::{inflated_size, is_portable};
use steps::Steps;
pub use zstandard::give_back_contexts;

mod content;
mod declared;
mod deflate;
mod lz4;
mod steps;
mod zstandard;

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
/// beyond `cap`. It asks again and again whether it `may_go_on`: at least once for each 256 KiB of `compressed` that it reads, but for a block of
/// snappy.
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
    match (encoding, certain_size(encoding, compressed, may_go_on)?) {
        (_, Some(size)) if size > cap => Err(InflateError::Larger(cap)),
        (Encoding::Zstd, Some(size)) => zstandard::inflate_sized(compressed, size, may_go_on),
        (Encoding::Snappy, Some(_)) => snap::raw::Decoder::new()
            .decompress_vec(compressed)
            .map_err(|error| corrupt(encoding)(error.to_string())),
        (_, Some(_)) => Ok(compressed.to_vec()),
        (_, None) => {
            let content = Content::kept(capacity, cap, may_go_on);
            Ok(inflate_into(content, encoding, compressed, may_go_on)?.bytes)
        }
    }
}

/// How large the content is, at most `most` bytes. It is inflated into a small buffer again and again, and nothing of it is kept: a body
/// that says nothing of its size costs neither the memory of a guess that was too large nor the time to touch it. Before each of these buffers it is
/// asked whether it `may_go_on`, and as [inflating](inflate) asks.
///
/// # Errors
/// [`InflateError`].
pub fn counted_size(
    encoding: Encoding,
    compressed: &[u8],
    most: u64,
    may_go_on: &dyn Fn() -> bool,
) -> Result<u64, InflateError> {
    match certain_size(encoding, compressed, may_go_on)? {
        Some(size) if size > most => Err(InflateError::Larger(most)),
        Some(size) => Ok(size),
        None => {
            let content = Content::counted(most, may_go_on);
            Ok(inflate_into(content, encoding, compressed, may_go_on)?.len())
        }
    }
}

/// Inflates what has no [certain size](certain_size).
fn inflate_into<'a>(
    mut content: Content<'a>,
    encoding: Encoding,
    compressed: &[u8],
    may_go_on: &dyn Fn() -> bool,
<<<<<<< HEAD
=======
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
>>>>>>> admrss
) -> Result<Content<'a>, InflateError> {
    let steps = Steps::through(compressed, may_go_on);
    match encoding {
        Encoding::Identity => content.read(steps, encoding),
        Encoding::Zstd => zstandard::inflate(steps, &mut content),
        Encoding::Gzip | Encoding::Zlib => deflate::inflate(steps, &mut content, encoding),
        Encoding::Snappy => content.read(snap::read::FrameDecoder::new(steps), encoding),
        Encoding::Lz4 => content.read(lz4::Frames::new(compressed, may_go_on), encoding),
    }?;
    content.checked()
}

#[cfg(test)]
mod tests;
