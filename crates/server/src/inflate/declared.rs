//! What the compressed form of a body says of itself.

use sluice_payload::Encoding;

use super::steps::{Steps, error_of};
use super::{InflateError, corrupt};

/// Largest zstd window accepted when the content size is not known, as a power of two: 8 MiB, the
/// least that RFC 8878 asks decoders to support. A larger one would be memory outside the budget.
pub(super) const MAX_ZSTD_WINDOW_LOG: u32 = 23;

/// gzip cannot compress better than this (258 bytes in 2 bits, and some header): a trailer that
/// claims more is not a size.
const MAX_DEFLATE_RATIO: u64 = 1032;

/// The first bytes of snappy's framing format: the stream identifier chunk.
const SNAPPY_STREAM: &[u8] = b"\xff\x06\x00\x00sNaPpY";

/// The content size that the compressed form declares, if it does. It asks whether it `may_go_on` as [`inflate`](super::inflate()) does, but for
/// what is in one zstd frame.
///
/// # Errors
/// [`InflateError::Corrupt`] when the headers are broken already; [`InflateError::OutOfTime`].
pub fn inflated_size(
    encoding: Encoding,
    compressed: &[u8],
    may_go_on: &dyn Fn() -> bool,
) -> Result<Option<u64>, InflateError> {
    let bad = corrupt(encoding);
    match encoding {
        Encoding::Identity => Ok(Some(compressed.len() as u64)),
        Encoding::Zstd => zstd_size(Steps::through(compressed, may_go_on)),
        Encoding::Gzip => Ok(gzip_size(compressed)),
        Encoding::Snappy if compressed.starts_with(SNAPPY_STREAM) => {
            snappy_stream_size(Steps::through(compressed, may_go_on)).map_err(error_of(encoding))
        }
        Encoding::Snappy => match snap::raw::decompress_len(compressed) {
            Ok(len) => Ok(Some(len as u64)),
            Err(error) => Err(bad(error.to_string())),
        },
        Encoding::Zlib | Encoding::Lz4 => Ok(None),
    }
}

/// The content size, where the compressed form declares one that its content cannot differ from without being broken.
pub(super) fn certain_size(
    encoding: Encoding,
    compressed: &[u8],
    may_go_on: &dyn Fn() -> bool,
) -> Result<Option<u64>, InflateError> {
    match encoding {
        Encoding::Snappy if compressed.starts_with(SNAPPY_STREAM) => Ok(None),
        Encoding::Identity | Encoding::Zstd | Encoding::Snappy => {
            inflated_size(encoding, compressed, may_go_on)
        }
        Encoding::Gzip | Encoding::Zlib | Encoding::Lz4 => Ok(None),
    }
}

/// The sum over all frames, if every one of them declares its size.
fn zstd_size(mut steps: Steps<'_>) -> Result<Option<u64>, InflateError> {
    let bad = corrupt(Encoding::Zstd);
    let mut total = 0u64;
    while !steps.rest().is_empty() {
        let compressed = steps.rest();
        match zstd_safe::get_frame_content_size(compressed) {
            Ok(Some(size)) => total = total.saturating_add(size),
            Ok(None) => return Ok(None),
            Err(_) => return Err(bad("no zstd frame starts here".into())),
        }
        match zstd_safe::find_frame_compressed_size(compressed) {
            Ok(len) if len > 0 && len <= compressed.len() => {
                steps.skip(len).map_err(error_of(Encoding::Zstd))?;
            }
            _ => return Err(bad("a frame is cut short or damaged".into())),
        }
    }
    Ok(Some(total))
}

/// Whether `compressed`, which inflates, is worth keeping for others to read: laid end to end with more of the same
/// it is still one body, and no reader needs a larger window for it than we allow. What is not looked through before it may not go on is not.
pub fn is_portable(encoding: Encoding, compressed: &[u8], may_go_on: &dyn Fn() -> bool) -> bool {
    match encoding {
        Encoding::Gzip => true,
        Encoding::Zstd => zstd_windows_are_ordinary(Steps::through(compressed, may_go_on)),
        Encoding::Identity | Encoding::Zlib | Encoding::Snappy | Encoding::Lz4 => false,
    }
}

/// Reads the header of every frame (RFC 8878, 3.1.1.1).
fn zstd_windows_are_ordinary(mut steps: Steps<'_>) -> bool {
    const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    const SINGLE_SEGMENT: u8 = 0x20;
    const SMALLEST_WINDOW_LOG: u32 = 10;
    while !steps.rest().is_empty() {
        let compressed = steps.rest();
        let Some([a, b, c, d, descriptor, window, ..]) = compressed.first_chunk::<6>().copied() else {
            return false;
        };
        if [a, b, c, d] != MAGIC {
            return false;
        }
        let ordinary = match descriptor & SINGLE_SEGMENT {
            0 => {
                SMALLEST_WINDOW_LOG + u32::from(window >> 3) + u32::from(window & 7 != 0)
                    <= MAX_ZSTD_WINDOW_LOG
            }
            // One segment: the content is the window.
            _ => zstd_safe::get_frame_content_size(compressed)
                .is_ok_and(|size| size.is_some_and(|size| size <= 1 << MAX_ZSTD_WINDOW_LOG)),
        };
        match zstd_safe::find_frame_compressed_size(compressed) {
            Ok(len) if ordinary && len > 0 && steps.skip(len).is_ok() => {}
            _ => return false,
        }
    }
    true
}

/// ISIZE of the last member: exact for one member below 4 GiB, which is what SDKs send; too small
/// for several, and then inflation asks for more.
fn gzip_size(compressed: &[u8]) -> Option<u64> {
    let trailer: [u8; 4] = compressed.last_chunk().copied()?;
    let size = u64::from(u32::from_le_bytes(trailer));
    (size <= (compressed.len() as u64) * MAX_DEFLATE_RATIO).then_some(size)
}

/// The sum over all chunks, as their headers say.
fn snappy_stream_size(mut steps: Steps<'_>) -> std::io::Result<Option<u64>> {
    let mut total = 0u64;
    while let [kind, a, b, c, rest @ ..] = steps.rest() {
        let len = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
        let content = rest.get(..len).and_then(|chunk| match kind {
            0x00 => Some(snap::raw::decompress_len(chunk.get(4..)?).ok()? as u64),
            0x01 => Some(len.checked_sub(4)? as u64),
            _ => Some(0),
        });
        let Some(content) = content else { return Ok(None) };
        total += content;
        steps.skip(4 + len)?;
    }
    Ok(Some(total))
}
