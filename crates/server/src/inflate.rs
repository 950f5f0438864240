//! Inflation into a buffer of known size, never beyond a cap.
//!
//! Where the compressed form says how large the content is (zstd content sizes, gzip ISIZE, snappy
//! lengths) the whole of it is reserved before the first byte is inflated, all or nothing: two
//! half-inflated bodies never wait for each other. A form that lies is cut off at what it said. Where nothing says it, the content
//! can be [counted](counted_size) without being kept.

use std::cell::RefCell;
use std::io::Read;

use sluice_payload::Encoding;

/// Largest zstd window accepted when the content size is not known, as a power of two: 8 MiB, the
/// least that RFC 8878 asks decoders to support. A larger one would be memory outside the budget.
const MAX_ZSTD_WINDOW_LOG: u32 = 23;

/// gzip cannot compress better than this (258 bytes in 2 bits, and some header): a trailer that
/// claims more is not a size.
const MAX_DEFLATE_RATIO: u64 = 1032;

/// What counting inflates into: it stays in the processor's cache, and is as much as a decoder hands out at a time.
const COUNTING_BYTES: usize = 128 << 10;

/// The first bytes of snappy's framing format: the stream identifier chunk.
const SNAPPY_STREAM: &[u8] = b"\xff\x06\x00\x00sNaPpY";

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
}

fn corrupt(encoding: Encoding) -> impl Fn(String) -> InflateError {
    move |cause| InflateError::Corrupt { encoding, cause }
}

/// The content size that the compressed form declares, if it does.
///
/// # Errors
/// [`InflateError::Corrupt`] when the headers are broken already.
pub fn inflated_size(encoding: Encoding, compressed: &[u8]) -> Result<Option<u64>, InflateError> {
    let bad = corrupt(encoding);
    match encoding {
        Encoding::Identity => Ok(Some(compressed.len() as u64)),
        Encoding::Zstd => zstd_size(compressed),
        Encoding::Gzip => Ok(gzip_size(compressed)),
        Encoding::Snappy if compressed.starts_with(SNAPPY_STREAM) => Ok(snappy_stream_size(compressed)),
        Encoding::Snappy => match snap::raw::decompress_len(compressed) {
            Ok(len) => Ok(Some(len as u64)),
            Err(error) => Err(bad(error.to_string())),
        },
        Encoding::Zlib | Encoding::Lz4 => Ok(None),
    }
}

/// The sum over all frames, if every one of them declares its size.
fn zstd_size(mut compressed: &[u8]) -> Result<Option<u64>, InflateError> {
    let bad = corrupt(Encoding::Zstd);
    let mut total = 0u64;
    while !compressed.is_empty() {
        match zstd_safe::get_frame_content_size(compressed) {
            Ok(Some(size)) => total = total.saturating_add(size),
            Ok(None) => return Ok(None),
            Err(_) => return Err(bad("no zstd frame starts here".into())),
        }
        match zstd_safe::find_frame_compressed_size(compressed) {
            Ok(len) if len > 0 && len <= compressed.len() => compressed = &compressed[len..],
            _ => return Err(bad("a frame is cut short or damaged".into())),
        }
    }
    Ok(Some(total))
}

/// Whether `compressed`, which inflates, is worth keeping for others to read: laid end to end with more of the same
/// it is still one body, and no reader needs a larger window for it than we allow.
pub fn is_portable(encoding: Encoding, compressed: &[u8]) -> bool {
    match encoding {
        Encoding::Gzip => true,
        Encoding::Zstd => zstd_windows_are_ordinary(compressed),
        Encoding::Identity | Encoding::Zlib | Encoding::Snappy | Encoding::Lz4 => false,
    }
}

/// Reads the header of every frame (RFC 8878, 3.1.1.1).
fn zstd_windows_are_ordinary(mut compressed: &[u8]) -> bool {
    const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    const SINGLE_SEGMENT: u8 = 0x20;
    const SMALLEST_WINDOW_LOG: u32 = 10;
    while !compressed.is_empty() {
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
            Ok(len) if ordinary && (1..=compressed.len()).contains(&len) => {
                compressed = &compressed[len..];
            }
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
fn snappy_stream_size(mut stream: &[u8]) -> Option<u64> {
    let mut total = 0u64;
    while let [kind, a, b, c, rest @ ..] = stream {
        let len = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
        let chunk = rest.get(..len)?;
        match kind {
            0x00 => total += snap::raw::decompress_len(chunk.get(4..)?).ok()? as u64,
            0x01 => total += len.checked_sub(4)? as u64,
            _ => {}
        }
        stream = &rest[len..];
    }
    Some(total)
}

/// Inflates all of `compressed` into one buffer that starts at `capacity` bytes and never grows
/// beyond `cap`.
///
/// # Errors
/// [`InflateError`].
pub fn inflate(
    encoding: Encoding,
    compressed: &[u8],
    capacity: u64,
    cap: u64,
) -> Result<Vec<u8>, InflateError> {
    let bad = corrupt(encoding);
    match encoding {
        Encoding::Identity => Ok(compressed.to_vec()),
        Encoding::Zstd => match zstd_size(compressed)? {
            Some(size) if size > cap => Err(InflateError::Larger(cap)),
            Some(size) => inflate_sized_zstd(compressed, size),
            None => Ok(inflate_zstd(compressed, Content::kept(capacity, cap))?.bytes),
        },
        Encoding::Gzip | Encoding::Zlib => {
            Ok(inflate_deflate(compressed, Content::kept(capacity, cap), encoding)?.bytes)
        }
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
        Encoding::Lz4 => read_capped(Lz4Frames::new(compressed), encoding, capacity, cap),
    }
}

/// How large the content is, at most `most` bytes. It is inflated into a small buffer again and again, and nothing of it is kept: a body
/// that says nothing of its size costs neither the memory of a guess that was too large nor the time to touch it.
///
/// # Errors
/// [`InflateError`].
pub fn counted_size(encoding: Encoding, compressed: &[u8], most: u64) -> Result<u64, InflateError> {
    let counted = match encoding {
        Encoding::Identity => Ok(compressed.len() as u64),
        Encoding::Zstd => match zstd_size(compressed)? {
            Some(size) => Ok(size),
            None => Ok(inflate_zstd(compressed, Content::counted(most))?.len()),
        },
        Encoding::Gzip | Encoding::Zlib => {
            Ok(inflate_deflate(compressed, Content::counted(most), encoding)?.len())
        }
        Encoding::Snappy if compressed.starts_with(SNAPPY_STREAM) => {
            count(snap::read::FrameDecoder::new(compressed), encoding, most)
        }
        Encoding::Snappy => snap::raw::decompress_len(compressed)
            .map(|size| size as u64)
            .map_err(|error| corrupt(encoding)(error.to_string())),
        Encoding::Lz4 => count(Lz4Frames::new(compressed), encoding, most),
    }?;
    match counted > most {
        true => Err(InflateError::Larger(most)),
        false => Ok(counted),
    }
}

/// Reads no more than a byte beyond `most`.
fn count(reader: impl Read, encoding: Encoding, most: u64) -> Result<u64, InflateError> {
    std::io::copy(&mut reader.take(most.saturating_add(1)), &mut std::io::sink())
        .map_err(|error| corrupt(encoding)(error.to_string()))
}

/// What comes out of a decoder.
struct Content {
    bytes: Vec<u8>,
    cap: u64,
    /// Bytes that were counted and let go; `None` where all are kept.
    gone: Option<u64>,
    /// Where `bytes` is as large as it may be: the first byte that is too many. A full buffer is not too small yet, for
    /// an empty frame may follow.
    beyond: Option<Vec<u8>>,
}

impl Content {
    fn kept(capacity: u64, cap: u64) -> Self {
        Self {
            bytes: Vec::with_capacity(capacity.clamp(1, cap.max(1)) as usize),
            cap,
            gone: None,
            beyond: None,
        }
    }

    fn counted(most: u64) -> Self {
        Self {
            bytes: Vec::with_capacity(COUNTING_BYTES),
            cap: most,
            gone: Some(0),
            beyond: None,
        }
    }

    /// What is written to.
    fn out(&mut self) -> &mut Vec<u8> {
        self.beyond.as_mut().unwrap_or(&mut self.bytes)
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

/// LZ4 frames of one body, laid end to end, at most: one of 17 bytes has its decoder zero 4 MB, and clients send one.
const MOST_LZ4_FRAMES: u32 = 16;

/// LZ4 frames laid end to end, each with a decoder of its own: it says at the end of one that there is nothing more.
struct Lz4Frames<'a> {
    decoder: lz4_flex::frame::FrameDecoder<&'a [u8]>,
    frames: u32,
}

impl<'a> Lz4Frames<'a> {
    fn new(compressed: &'a [u8]) -> Self {
        Self {
            decoder: lz4_flex::frame::FrameDecoder::new(compressed),
            frames: 1,
        }
    }
}

impl Read for Lz4Frames<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let read = self.decoder.read(buffer)?;
            let rest = *self.decoder.get_ref();
            if read > 0 || rest.is_empty() || buffer.is_empty() {
                return Ok(read);
            }
            if self.frames == MOST_LZ4_FRAMES {
                let message = format!("more than {MOST_LZ4_FRAMES} frames in one body");
                return Err(std::io::Error::other(message));
            }
            self.decoder = lz4_flex::frame::FrameDecoder::new(rest);
            self.frames += 1;
        }
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

/// A context that is larger than this after a body is not kept: it has that body's window, up to 8 MiB for each thread, which no budget knows of.
const KEPT_CONTEXT_BYTES: usize = 1 << 20;

thread_local! {
    /// One zstd context a thread: setting one up costs more than inflating a small body.
    static ZSTD: RefCell<zstd_safe::DCtx<'static>> = RefCell::new(zstd_safe::DCtx::create());
}

/// One shot: the output is the window, so no window is allocated, however large it claims to be.
fn inflate_sized_zstd(compressed: &[u8], size: u64) -> Result<Vec<u8>, InflateError> {
    let mut out: Vec<u8> = Vec::with_capacity(size as usize);
    let result = ZSTD.with_borrow_mut(|context| context.decompress(&mut out, compressed));
    result.map_err(zstd_error)?;
    Ok(out)
}

fn zstd_error(code: zstd_safe::ErrorCode) -> InflateError {
    corrupt(Encoding::Zstd)(zstd_safe::get_error_name(code).to_owned())
}

fn inflate_zstd(compressed: &[u8], content: Content) -> Result<Content, InflateError> {
    ZSTD.with_borrow_mut(|context| {
        let inflated = inflate_zstd_with(context, compressed, content);
        if context.sizeof() > KEPT_CONTEXT_BYTES {
            *context = zstd_safe::DCtx::create();
        }
        inflated
    })
}

fn inflate_zstd_with(
    context: &mut zstd_safe::DCtx<'static>,
    compressed: &[u8],
    mut content: Content,
) -> Result<Content, InflateError> {
    context
        .reset(zstd_safe::ResetDirective::SessionAndParameters)
        .map_err(zstd_error)?;
    context
        .set_parameter(zstd_safe::DParameter::WindowLogMax(MAX_ZSTD_WINDOW_LOG))
        .map_err(zstd_error)?;
    let mut input = zstd_safe::InBuffer::around(compressed);
    loop {
        let out = content.out();
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

fn inflate_deflate(
    compressed: &[u8],
    mut content: Content,
    encoding: Encoding,
) -> Result<Content, InflateError> {
    let bad = corrupt(encoding);
    let mut rest = compressed;
    loop {
        let mut decoder = match encoding {
            Encoding::Gzip => flate2::Decompress::new_gzip(15),
            _ => flate2::Decompress::new(true),
        };
        loop {
            let out = content.out();
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
mod tests {
    use std::io::Write;

    use super::*;

    fn text() -> Vec<u8> {
        (0..50_000u32).flat_map(|n| (n / 3).to_le_bytes()).collect()
    }

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        e.write_all(data).unwrap();
        e.finish().unwrap()
    }

    fn zstd_unsized(data: &[u8]) -> Vec<u8> {
        let mut e = zstd::Encoder::new(Vec::new(), 1).unwrap();
        e.write_all(data).unwrap();
        e.finish().unwrap()
    }

    /// Scenario: frames with a window as large as readers allow, one larger, frames laid end to end, a skippable one.
    /// Guarantees: only what any reader takes counts as portable.
    #[test]
    fn portable_frames() {
        let with_window = |log| {
            let mut e = zstd::Encoder::new(Vec::new(), 1).unwrap();
            e.window_log(log).unwrap();
            e.write_all(&text()).unwrap();
            e.finish().unwrap()
        };
        let ordinary = with_window(MAX_ZSTD_WINDOW_LOG);
        assert!(is_portable(Encoding::Zstd, &ordinary));
        assert!(!is_portable(
            Encoding::Zstd,
            &with_window(MAX_ZSTD_WINDOW_LOG + 1)
        ));
        let sized = zstd::bulk::compress(&text(), 1).unwrap();
        assert!(is_portable(Encoding::Zstd, &[&sized[..], &ordinary].concat()));
        let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 9][..], &sized].concat();
        assert!(!is_portable(Encoding::Zstd, &skippable));
        assert!(is_portable(Encoding::Gzip, &gzip(&text())));
        assert!(!is_portable(Encoding::Snappy, b"x"));
    }

    /// Scenario: bodies of unknown size with small and with the largest windows, whole and cut short.
    /// Guarantees: no thread keeps the window of a body that is done.
    #[test]
    fn windows_are_not_kept() {
        for (log, left) in [(10, 0), (MAX_ZSTD_WINDOW_LOG, 0), (MAX_ZSTD_WINDOW_LOG, 9)] {
            let mut e = zstd::Encoder::new(Vec::new(), 1).unwrap();
            e.window_log(log).unwrap();
            e.write_all(&text()).unwrap();
            let body = e.finish().unwrap();
            let inflated = inflate(Encoding::Zstd, &body[..body.len() - left], 1 << 20, 1 << 20);
            assert_eq!(inflated.is_ok(), left == 0);
            let kept = ZSTD.with_borrow(zstd_safe::DCtx::sizeof);
            assert!(kept <= KEPT_CONTEXT_BYTES, "window of 2^{log}: {kept} bytes");
        }
    }

    fn samples(data: &[u8]) -> Vec<(Encoding, Vec<u8>, bool)> {
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(data).unwrap();
        let mut framed = snap::write::FrameEncoder::new(Vec::new());
        framed.write_all(data).unwrap();
        let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
        lz4.write_all(data).unwrap();
        vec![
            (Encoding::Gzip, gzip(data), true),
            (Encoding::Zstd, zstd::bulk::compress(data, 1).unwrap(), true),
            (Encoding::Zstd, zstd_unsized(data), false),
            (Encoding::Zlib, zlib.finish().unwrap(), false),
            (
                Encoding::Snappy,
                snap::raw::Encoder::new().compress_vec(data).unwrap(),
                true,
            ),
            (Encoding::Snappy, framed.into_inner().unwrap(), true),
            (Encoding::Lz4, lz4.finish().unwrap(), false),
        ]
    }

    /// Scenario: every encoding, with the size declared or not, from a good or a tiny first capacity.
    /// Guarantees: the content comes back whole, and a declared size is exact.
    #[test]
    fn every_encoding_inflates() {
        for data in [text(), Vec::new(), b"x".to_vec()] {
            // An empty snappy stream is no bytes at all, and no bytes are not inflated.
            for (encoding, compressed, sized) in samples(&data).into_iter().filter(|(_, c, _)| !c.is_empty())
            {
                let size = inflated_size(encoding, &compressed).unwrap();
                if sized {
                    assert_eq!(size, Some(data.len() as u64), "{encoding}");
                }
                for capacity in [size.unwrap_or(0), 1, 1 << 20] {
                    let out = inflate(encoding, &compressed, capacity, 1 << 20).unwrap();
                    assert!(out == data, "{encoding} {capacity}");
                }
            }
        }
    }

    /// Scenario: every encoding, content of many counting buffers, of exactly one, and none; alone, and three times end to end where that is one
    /// body; then one byte less than there is.
    /// Guarantees: what is counted is what is inflated within exactly that cap; one byte less is too little for counting.
    #[test]
    fn counted_sizes_are_exact() {
        for data in [
            text(),
            vec![7; COUNTING_BYTES],
            vec![7; 3 * COUNTING_BYTES],
            Vec::new(),
        ] {
            for (encoding, compressed, _) in samples(&data).into_iter().filter(|(_, c, _)| !c.is_empty()) {
                let many = matches!(encoding, Encoding::Gzip | Encoding::Zstd);
                let bodies = [(1, compressed.clone()), (3, compressed.repeat(3))];
                for (times, body) in bodies.into_iter().take(1 + usize::from(many)) {
                    let size = counted_size(encoding, &body, 1 << 22).unwrap();
                    assert_eq!(size, (times * data.len()) as u64, "{encoding}");
                    assert_eq!(counted_size(encoding, &body, size), Ok(size), "{encoding}");
                    assert_eq!(inflate(encoding, &body, size, size).unwrap().len() as u64, size);
                    if size > 0 {
                        let larger = InflateError::Larger(size - 1);
                        assert_eq!(counted_size(encoding, &body, size - 1), Err(larger), "{encoding}");
                    }
                }
            }
        }
    }

    /// Scenario: content in a frame of its own, then frames without any, or with some; as zstd, gzip and LZ4.
    /// Guarantees: all of it is counted, and inflated within exactly that cap; nothing that follows is lost.
    #[test]
    fn what_follows_is_looked_at() {
        let lz4 = |data: &[u8]| {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(data).unwrap();
            encoder.finish().unwrap()
        };
        let data = text();
        let skippable = vec![0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        let bodies = [
            (Encoding::Zstd, zstd_unsized(&data), zstd_unsized(&[]), 0),
            (Encoding::Zstd, zstd_unsized(&data), skippable, 0),
            (Encoding::Zstd, zstd_unsized(&data), zstd_unsized(b"more"), 4),
            (Encoding::Gzip, gzip(&data), gzip(&[]), 0),
            (Encoding::Gzip, gzip(&data), gzip(b"more"), 4),
            (Encoding::Lz4, lz4(&data), lz4(&[]), 0),
            (Encoding::Lz4, lz4(&data), lz4(b"more"), 4),
        ];
        for (encoding, first, second, more) in bodies {
            let body = [first, second].concat();
            let size = (data.len() + more) as u64;
            assert_eq!(
                counted_size(encoding, &body, 1 << 20),
                Ok(size),
                "{encoding} {more}"
            );
            let inflated = inflate(encoding, &body, size, size).unwrap();
            assert_eq!(inflated.len() as u64, size, "{encoding} {more}");
            assert_eq!(
                inflate(encoding, &body, size, size - 1),
                Err(InflateError::Larger(size - 1)),
                "{encoding} {more}"
            );
        }
    }

    /// Scenario: LZ4 frames without content, as many as a body may have, and one more.
    /// Guarantees: the body is empty; with one more it is not valid.
    #[test]
    fn lz4_frames_are_bounded() {
        let empty = lz4_flex::frame::FrameEncoder::new(Vec::new()).finish().unwrap();
        let frames = |number: u32| empty.repeat(number as usize);
        assert_eq!(counted_size(Encoding::Lz4, &frames(MOST_LZ4_FRAMES), 9), Ok(0));
        let error = inflate(Encoding::Lz4, &frames(MOST_LZ4_FRAMES + 1), 9, 9).unwrap_err();
        assert!(error.to_string().contains("frames"), "{error}");
    }

    /// Scenario: content one byte larger than the cap, and a bomb.
    /// Guarantees: refused as larger, never a byte beyond the cap kept.
    #[test]
    fn the_cap_holds() {
        let data = text();
        for (encoding, compressed, _) in samples(&data) {
            let cap = data.len() as u64;
            inflate(encoding, &compressed, 0, cap).unwrap();
            assert_eq!(
                inflate(encoding, &compressed, 0, cap - 1),
                Err(InflateError::Larger(cap - 1)),
                "{encoding}"
            );
        }
    }

    /// Scenario: each body cut short, each with bytes flipped, and plain text declared as compressed.
    /// Guarantees: an error that names the encoding; no panic.
    #[test]
    fn damage_is_an_error() {
        let data = text();
        for (encoding, compressed, _) in samples(&data) {
            for cut in [1, compressed.len() / 2, compressed.len() - 1] {
                let result = inflate(encoding, &compressed[..cut], 100, 1 << 20);
                // LZ4 and snappy streams may end at a chunk boundary; what came is then whole chunks.
                if let Ok(out) = result {
                    assert!(data.starts_with(&out), "{encoding} cut at {cut}");
                }
            }
            let error = inflate(encoding, b"plain text, not compressed at all", 100, 1 << 20).unwrap_err();
            assert!(error.to_string().contains(encoding.as_str()), "{error}");
        }
    }

    /// Scenario: three gzip members, three zstd frames, laid end to end.
    /// Guarantees: all of them are read.
    #[test]
    fn concatenated_members_are_one_body() {
        let data = text();
        for one in [
            gzip(&data),
            zstd::bulk::compress(&data, 1).unwrap(),
            zstd_unsized(&data),
        ] {
            let encoding = if one.starts_with(&[0x1f, 0x8b]) {
                Encoding::Gzip
            } else {
                Encoding::Zstd
            };
            let out = inflate(encoding, &[&one[..], &one, &one].concat(), 10, 1 << 22).unwrap();
            assert!(out == [&data[..], &data, &data].concat());
        }
    }
}
