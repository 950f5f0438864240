//! Compressing a chain of slices.
//!
//! The input is never laid together: each slice is fed to the encoder in turn. Contexts (zstd's is
//! over half a megabyte) are kept in a pool per encoding and reused by whichever thread compresses
//! next. The output buffer starts at the size the last bodies of that encoding needed.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use flate2::{Compress, FlushCompress, Status};
use tokio::sync::Semaphore;
use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd::zstd_safe::{self, CCtx, CParameter, InBuffer, OutBuffer, ResetDirective};

use crate::{EgressPermit, Slices};
use pool::Pool;

mod pool;

/// How a request body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    None,
    /// RFC 1952.
    Gzip,
    /// RFC 8878, one frame that states its content size.
    Zstd,
    /// RFC 1950, which HTTP calls `deflate`.
    Deflate,
    /// Snappy's block format: what `Content-Encoding: snappy` means to Prometheus and, since
    /// 0.125, to the Collector, whose receivers take either format under this name.
    Snappy,
    /// Snappy's framing format: `x-snappy-framed` on HTTP; on gRPC it is what Go's codec means by `snappy`.
    SnappyFramed,
    /// LZ4 frame format.
    Lz4,
}

/// A compression nobody here writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown compression {0:?}; use one of none, gzip, zstd, deflate, zlib, snappy, x-snappy-framed, lz4"
)]
pub struct UnknownCompression(pub String);

impl std::str::FromStr for Compression {
    type Err = UnknownCompression;

    /// Reads a configuration value, as the Collector spells them.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Ok(match name.trim().to_ascii_lowercase().as_str() {
            "" | "none" | "identity" => Compression::None,
            "gzip" => Compression::Gzip,
            "zstd" => Compression::Zstd,
            "deflate" | "zlib" => Compression::Deflate,
            "snappy" => Compression::Snappy,
            "x-snappy-framed" => Compression::SnappyFramed,
            "lz4" => Compression::Lz4,
            _ => return Err(UnknownCompression(name.to_owned())),
        })
    }
}

impl Compression {
    /// The `Content-Encoding` of a body so compressed; `None` for no header at all.
    pub fn content_encoding(self) -> Option<&'static str> {
        match self {
            Compression::None => None,
            Compression::Gzip => Some("gzip"),
            Compression::Zstd => Some("zstd"),
            Compression::Deflate => Some("deflate"),
            Compression::Snappy => Some("snappy"),
            Compression::SnappyFramed => Some("x-snappy-framed"),
            Compression::Lz4 => Some("lz4"),
        }
    }

    /// The level used when none is configured: 1 for zstd and gzip alike. See the measurements in
    /// docs/decisions.md: the higher ones cost several times the CPU for a few percent of size.
    pub fn default_level(self) -> i32 {
        1
    }

    /// The levels that exist, lowest and highest; equal when there is no choice.
    pub fn levels(self) -> (i32, i32) {
        match self {
            Compression::Gzip | Compression::Deflate => (1, 9),
            Compression::Zstd => (zstd_safe::min_c_level(), zstd_safe::max_c_level()),
            _ => (1, 1),
        }
    }
}

/// Compresses the chain `slices`, `total_len` bytes long, as one body. `level` is clamped to what
/// the encoding has; [`Compression::None`] copies.
///
/// # Errors
/// Only when an encoder fails, which none does on valid settings and enough memory.
///
/// ```
/// # use sluice_client::{Compression, compress};
/// let body = compress(Compression::Zstd, 1, [&b"one "[..], b"two"], 7).expect("zstd works");
/// ```
pub fn compress<'a>(
    compression: Compression,
    level: i32,
    slices: impl IntoIterator<Item = &'a [u8]>,
    total_len: usize,
) -> std::io::Result<Vec<u8>> {
    let (lowest, highest) = compression.levels();
    let level = level.clamp(lowest, highest);
    let slices = slices.into_iter();
    match compression {
        Compression::None => {
            let mut out = Vec::with_capacity(total_len);
            slices.for_each(|slice| out.extend_from_slice(slice));
            Ok(out)
        }
        Compression::Zstd => zstd(level, slices, total_len),
        Compression::Gzip => deflate(&GZIP, level, slices, total_len),
        Compression::Deflate => deflate(&DEFLATE, level, slices, total_len),
        Compression::Snappy => snappy_block(slices, total_len),
        Compression::SnappyFramed => written(&SNAPPY_RATIO, total_len, |out| {
            let mut encoder = snap::write::FrameEncoder::new(out);
            for slice in slices {
                std::io::Write::write_all(&mut encoder, slice)?;
            }
            encoder
                .into_inner()
                .map_err(|e| std::io::Error::other(e.to_string()))
        }),
        Compression::Lz4 => written(&LZ4_RATIO, total_len, |out| {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(out);
            for slice in slices {
                std::io::Write::write_all(&mut encoder, slice)?;
            }
            encoder.finish().map_err(std::io::Error::other)
        }),
    }
}

/// Bodies from this size on are compressed off the reactor where there is another core to do it:
/// zstd takes about 2 ms for 1 MiB, which is where waking another thread (some 20 us) is noise and
/// a stalled reactor is not.
const OFF_REACTOR_FROM_BYTES: usize = 1024 * 1024;

/// What [`compress`] is expected to take for the output of `input` bytes, from the bodies before.
pub fn expected_bytes(compression: Compression, input: usize) -> usize {
    match compression {
        Compression::None => input,
        Compression::Zstd => ZSTD_RATIO.expected(input),
        Compression::Gzip => GZIP.ratio.expected(input),
        Compression::Deflate => DEFLATE.ratio.expected(input),
        Compression::Snappy | Compression::SnappyFramed => SNAPPY_RATIO.expected(input),
        Compression::Lz4 => LZ4_RATIO.expected(input),
    }
}

/// [`compress`] over `slices` into the room of `permit`, large ones on a blocking thread if there is more than one core.
///
/// # Errors
/// As [`compress`].
pub async fn compress_slices(
    compression: Compression,
    level: i32,
    slices: &Slices,
    permit: &mut EgressPermit,
) -> std::io::Result<Bytes> {
    static CORES: OnceLock<(usize, Semaphore)> = OnceLock::new();
    let (cores, turns) = CORES.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        (cores, Semaphore::new(cores))
    });
    let out = if slices.len() < OFF_REACTOR_FROM_BYTES || *cores == 1 {
        compress(
            compression,
            level,
            slices.iter().map(|slice| &slice[..]),
            slices.len(),
        )?
    } else {
        // The blocking pool has hundreds of threads; more contexts than cores would only take memory.
        let _turn = turns.acquire().await.map_err(std::io::Error::other)?;
        let slices = slices.clone();
        let work = move || {
            compress(
                compression,
                level,
                slices.iter().map(|slice| &slice[..]),
                slices.len(),
            )
        };
        tokio::task::spawn_blocking(work)
            .await
            .map_err(std::io::Error::other)??
    };
    Ok(permit.keep(out))
}

/// Drops the contexts that are kept between bodies; the next bodies make new ones.
pub fn give_back_contexts() {
    ZSTD_CONTEXTS.give_back();
    SNAPPY_CONTEXTS.give_back();
    GZIP.contexts.give_back();
    DEFLATE.contexts.give_back();
}

/// How large the output of the last bodies was, in 1/1024 of the input: a moving average, and a
/// guess only; a wrong one costs a reallocation.
struct Ratio(AtomicU32);

impl Ratio {
    const ONE: usize = 1024;
    /// Bodies below this are too short to learn from.
    const SMALL: usize = 64 << 10;
    const fn new(first_guess: u32) -> Self {
        Self(AtomicU32::new(first_guess))
    }

    /// What the output of `input` bytes takes: the average and an eighth, and 512 bytes for headers.
    fn expected(&self, input: usize) -> usize {
        let average = (input / Self::ONE + 1) * self.0.load(Ordering::Relaxed) as usize;
        average + average / 8 + 512
    }

    fn record(&self, input: usize, output: usize) {
        // A few hundred bytes hardly compress, and say nothing about the next large batch.
        if input < Self::SMALL {
            return;
        }
        if let Some(now) = (output * Self::ONE).checked_div(input) {
            let before = self.0.load(Ordering::Relaxed) as usize;
            let now = now.min(2 * Self::ONE);
            self.0
                .store(((before * 7 + now) / 8).max(8) as u32, Ordering::Relaxed);
        }
    }
}

static ZSTD_CONTEXTS: Pool<CCtx<'static>> = Pool::new();
static ZSTD_RATIO: Ratio = Ratio::new(128);
static SNAPPY_CONTEXTS: Pool<SnappyContext> = Pool::new();
static SNAPPY_RATIO: Ratio = Ratio::new(384);
static LZ4_RATIO: Ratio = Ratio::new(384);

/// Output grows by this part of the input when the guess was short.
const GROWTH_PART: usize = 8;

fn grow(out: &mut Vec<u8>, total_len: usize) {
    out.reserve_exact((total_len / GROWTH_PART).max(4096));
}

/// At level 1 zstd looks matches up in 16,384 entries, 64 KiB. Telemetry repeats itself at short distances: a
/// quarter of them finds the same matches, stays in the first-level cache, and is 7 to 14% faster.
const LEVEL_1_HASH_LOG: u32 = 12;

/// zstd gathers a chain in a buffer as long as its window, and once that wraps it matches against two
/// segments at a lower speed. A window over the whole body never wraps.
fn window_log(total_len: usize) -> Option<u32> {
    /// zstd's own window at level 1 is 512 KiB; shorter bodies get a smaller one by their pledged size.
    const DEFAULT: u32 = 19;
    /// 4 MiB of buffer per context, at most.
    const LARGEST: u32 = 22;
    let needed = usize::BITS - total_len.saturating_sub(1).leading_zeros();
    (needed > DEFAULT).then(|| needed.min(LARGEST))
}

fn zstd_error(code: usize) -> std::io::Error {
    std::io::Error::other(format!("zstd: {}", zstd_safe::get_error_name(code)))
}

fn zstd<'a>(
    level: i32,
    slices: impl Iterator<Item = &'a [u8]>,
    total_len: usize,
) -> std::io::Result<Vec<u8>> {
    let mut context = ZSTD_CONTEXTS
        .take(|_| true)
        .or_else(CCtx::try_create)
        .ok_or_else(|| std::io::Error::other("zstd: no memory for a context"))?;
    // A kept context may carry the level of another exporter, or the remains of a failure.
    context
        .reset(ResetDirective::SessionAndParameters)
        .map_err(zstd_error)?;
    context
        .set_parameter(CParameter::CompressionLevel(level))
        .map_err(zstd_error)?;
    context
        .set_parameter(CParameter::ContentSizeFlag(true))
        .map_err(zstd_error)?;
    if level == 1 {
        context
            .set_parameter(CParameter::HashLog(LEVEL_1_HASH_LOG))
            .map_err(zstd_error)?;
    }
    if let Some(window_log) = window_log(total_len) {
        context
            .set_parameter(CParameter::WindowLog(window_log))
            .map_err(zstd_error)?;
    }
    context
        .set_pledged_src_size(Some(total_len as u64))
        .map_err(zstd_error)?;

    let mut out: Vec<u8> = Vec::with_capacity(ZSTD_RATIO.expected(total_len));
    let mut slices = slices.peekable();
    let mut slice = slices.next().unwrap_or_default();
    loop {
        // The last slice goes in together with the end: a body of one slice is then compressed in
        // one pass, without zstd's own input buffer.
        let last = slices.peek().is_none();
        let directive = if last {
            ZSTD_EndDirective::ZSTD_e_end
        } else {
            ZSTD_EndDirective::ZSTD_e_continue
        };
        let mut input = InBuffer::around(slice);
        loop {
            if out.len() == out.capacity() {
                grow(&mut out, total_len);
            }
            let written = out.len();
            let mut output = OutBuffer::around_pos(&mut out, written);
            let left = context
                .compress_stream2(&mut output, &mut input, directive)
                .map_err(zstd_error)?;
            let consumed = input.pos() == slice.len();
            if if last { left == 0 } else { consumed } {
                break;
            }
        }
        match slices.next() {
            Some(next) => slice = next,
            None => break,
        }
    }
    ZSTD_CONTEXTS.put(context);
    ZSTD_RATIO.record(total_len, out.len());
    Ok(out)
}

/// One flavour of zlib's encoder: the wrapper, its contexts by level, its ratio.
struct Deflate {
    contexts: Pool<(i32, Compress)>,
    ratio: Ratio,
    new: fn(flate2::Compression) -> Compress,
}

/// zlib's largest window, the only one every reader takes.
const WINDOW_BITS: u8 = 15;

static GZIP: Deflate = Deflate {
    contexts: Pool::new(),
    ratio: Ratio::new(160),
    new: |level| Compress::new_gzip(level, WINDOW_BITS),
};
static DEFLATE: Deflate = Deflate {
    contexts: Pool::new(),
    ratio: Ratio::new(160),
    new: |level| Compress::new(level, true),
};

fn deflate<'a>(
    flavour: &Deflate,
    level: i32,
    slices: impl Iterator<Item = &'a [u8]>,
    total_len: usize,
) -> std::io::Result<Vec<u8>> {
    let mut context = match flavour.contexts.take(|(kept, _)| *kept == level) {
        Some((_, mut kept)) => {
            kept.reset();
            kept
        }
        None => (flavour.new)(flate2::Compression::new(level as u32)),
    };
    let mut out: Vec<u8> = Vec::with_capacity(flavour.ratio.expected(total_len));
    let mut slices = slices.peekable();
    let mut slice = slices.next().unwrap_or_default();
    loop {
        let last = slices.peek().is_none();
        let flush = if last {
            FlushCompress::Finish
        } else {
            FlushCompress::None
        };
        loop {
            if out.len() == out.capacity() {
                grow(&mut out, total_len);
            }
            let before = context.total_in();
            let status = context
                .compress_vec(slice, &mut out, flush)
                .map_err(std::io::Error::other)?;
            slice = &slice[(context.total_in() - before) as usize..];
            match status {
                Status::StreamEnd => break,
                Status::Ok | Status::BufError if !last && slice.is_empty() => break,
                // Output is full: grow and go on.
                Status::Ok | Status::BufError => {}
            }
        }
        match slices.next() {
            Some(next) => slice = next,
            None => break,
        }
    }
    flavour.contexts.put((level, context));
    flavour.ratio.record(total_len, out.len());
    Ok(out)
}

/// The blocks snappy compresses one by one, whatever the length of the input (format description,
/// section 2: no copy reaches further back than the encoder's 64 KiB block).
const SNAPPY_BLOCK_BYTES: usize = 64 * 1024;

/// The longest varint of a block's length: 65,536 takes three bytes.
const SNAPPY_BLOCK_HEADER_BYTES: usize = 3;

struct SnappyContext {
    encoder: snap::raw::Encoder,
    /// A block that is spread over several slices is gathered here.
    gathered: Vec<u8>,
    compressed: Vec<u8>,
}

/// One snappy block stream over a chain: the length of the whole, then the blocks. snappy's
/// encoder works on 64 KiB at a time without looking back, so blocks compressed apart and
/// stripped of their own lengths are what it would have written for the whole.
fn snappy_block<'a>(slices: impl Iterator<Item = &'a [u8]>, total_len: usize) -> std::io::Result<Vec<u8>> {
    if total_len > u32::MAX as usize {
        return Err(std::io::Error::other(
            "snappy: a body of 4 GiB or more has no block format",
        ));
    }
    let mut context = SNAPPY_CONTEXTS.take(|_| true).unwrap_or_else(|| SnappyContext {
        encoder: snap::raw::Encoder::new(),
        gathered: Vec::with_capacity(SNAPPY_BLOCK_BYTES),
        compressed: vec![0; snap::raw::max_compress_len(SNAPPY_BLOCK_BYTES)],
    });
    context.gathered.clear();
    let mut out = Vec::with_capacity(SNAPPY_RATIO.expected(total_len));
    put_varint(&mut out, total_len);
    for mut slice in slices {
        while !slice.is_empty() {
            if context.gathered.is_empty() && slice.len() >= SNAPPY_BLOCK_BYTES {
                let (block, rest) = slice.split_at(SNAPPY_BLOCK_BYTES);
                slice = rest;
                one_block(
                    &mut context.encoder,
                    block,
                    &mut context.compressed,
                    &mut out,
                    total_len,
                )?;
                continue;
            }
            let take = slice.len().min(SNAPPY_BLOCK_BYTES - context.gathered.len());
            context.gathered.extend_from_slice(&slice[..take]);
            slice = &slice[take..];
            if context.gathered.len() == SNAPPY_BLOCK_BYTES {
                let gathered = &context.gathered;
                one_block(
                    &mut context.encoder,
                    gathered,
                    &mut context.compressed,
                    &mut out,
                    total_len,
                )?;
                context.gathered.clear();
            }
        }
    }
    if !context.gathered.is_empty() {
        let gathered = &context.gathered;
        one_block(
            &mut context.encoder,
            gathered,
            &mut context.compressed,
            &mut out,
            total_len,
        )?;
    }
    SNAPPY_CONTEXTS.put(context);
    SNAPPY_RATIO.record(total_len, out.len());
    Ok(out)
}

fn one_block(
    encoder: &mut snap::raw::Encoder,
    block: &[u8],
    compressed: &mut [u8],
    out: &mut Vec<u8>,
    total_len: usize,
) -> std::io::Result<()> {
    let written = encoder
        .compress(block, compressed)
        .map_err(std::io::Error::other)?;
    let header = compressed
        .iter()
        .take(SNAPPY_BLOCK_HEADER_BYTES)
        .take_while(|byte| **byte & 0x80 != 0)
        .count()
        + 1;
    let body = &compressed[header..written];
    if out.capacity() - out.len() < body.len() {
        out.reserve_exact(body.len().max(total_len / GROWTH_PART));
    }
    out.extend_from_slice(body);
    Ok(())
}

fn put_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn written(
    ratio: &Ratio,
    total_len: usize,
    write: impl FnOnce(Vec<u8>) -> std::io::Result<Vec<u8>>,
) -> std::io::Result<Vec<u8>> {
    let out = write(Vec::with_capacity(ratio.expected(total_len)))?;
    ratio.record(total_len, out.len());
    Ok(out)
}
