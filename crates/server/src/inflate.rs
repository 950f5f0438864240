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
