//! zstd frames laid end to end.

use std::cell::RefCell;
use std::io::BufRead;

use sluice_payload::Encoding;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use super::content::Content;
use super::declared::MAX_ZSTD_WINDOW_LOG;
use super::steps::{STEP_BYTES, Steps, error_of};
use super::{InflateError, corrupt};

/// A context that is larger than this has a body's window, up to 8 MiB for each thread, which no budget knows of: it is kept only after
/// [little content](KEPT_CONTENT_BYTES).
pub(super) const KEPT_CONTEXT_BYTES: usize = 1 << 20;

/// A window costs resident memory only as far as content was written into it. Collectors send windows of 4 to 8 MiB with far less content than this:
/// their requests must not map and unmap a window each.
const KEPT_CONTENT_BYTES: u64 = 4 << 20;

/// The largest window there is in zstd's 64-bit builds: of no account where the output is the window.
const ANY_WINDOW_LOG: u32 = 31;

thread_local! {
    /// One context a thread: setting one up costs more than inflating a small body.
    pub(super) static CONTEXT: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// Drops what this thread keeps for the next body.
pub fn give_back_contexts() {
    CONTEXT.take();
}

fn with_context<T>(work: impl FnOnce(&mut DCtx<'static>) -> T) -> T {
    CONTEXT.with_borrow_mut(|kept| work(kept.get_or_insert_with(DCtx::create)))
}

/// Content of a size that all frames declare. The output is the window, so no window is allocated, however large it claims to be.
pub(super) fn inflate_sized(
    compressed: &[u8],
    size: u64,
    may_go_on: &dyn Fn() -> bool,
) -> Result<Vec<u8>, InflateError> {
    let mut out: Vec<u8> = Vec::with_capacity(size as usize);
    with_context(|context| {
        if compressed.len() <= STEP_BYTES {
            return context.decompress(&mut out, compressed).map(drop).map_err(error);
        }
        let parameters = [
            DParameter::WindowLogMax(ANY_WINDOW_LOG),
            DParameter::StableOutBuffer(true),
        ];
        prepare(context, &parameters)?;
        let mut steps = Steps::through(compressed, may_go_on);
        // Room for the rest there is from the beginning.
        while !step(context, &mut steps, &mut out)? {}
        Ok(())
    })?;
    Ok(out)
}

/// Content of unknown size.
pub(super) fn inflate(steps: Steps<'_>, content: &mut Content<'_>) -> Result<(), InflateError> {
    with_context(|context| {
        let inflated = inflate_with(context, steps, content);
        let written = match &inflated {
            Ok(()) => content.len(),
            Err(InflateError::Larger(cap)) => *cap,
            // Nothing says how much came before: as if all.
            Err(_) => u64::MAX,
        };
        if context.sizeof() > KEPT_CONTEXT_BYTES && written > KEPT_CONTENT_BYTES {
            *context = DCtx::create();
        }
        inflated
    })
}

fn inflate_with(
    context: &mut DCtx<'static>,
    mut steps: Steps<'_>,
    content: &mut Content<'_>,
) -> Result<(), InflateError> {
    prepare(context, &[DParameter::WindowLogMax(MAX_ZSTD_WINDOW_LOG)])?;
    loop {
        content.make_room()?;
        let out = content.out().map_err(error_of(Encoding::Zstd))?;
        if step(context, &mut steps, out)? {
            return Ok(());
        }
    }
}

fn prepare(context: &mut DCtx<'static>, parameters: &[DParameter]) -> Result<(), InflateError> {
    context
        .reset(ResetDirective::SessionAndParameters)
        .map_err(error)?;
    for parameter in parameters {
        context.set_parameter(*parameter).map_err(error)?;
    }
    Ok(())
}

/// Inflates as much as is granted and `out` has room for; true when a frame ends with the body.
fn step(context: &mut DCtx<'static>, steps: &mut Steps<'_>, out: &mut Vec<u8>) -> Result<bool, InflateError> {
    let compressed = steps.piece().map_err(error_of(Encoding::Zstd))?;
    let (mut input, before) = (InBuffer::around(compressed), out.len());
    let hint = {
        let mut output = OutBuffer::around_pos(out, before);
        context
            .decompress_stream(&mut output, &mut input)
            .map_err(error)?
    };
    let read = input.pos();
    steps.consume(read);
    let is_full = out.len() == out.capacity();
    match (steps.rest().is_empty(), hint) {
        (true, 0) => Ok(true),
        (true, _) if !is_full => Err(cut_short()),
        _ if read == 0 && out.len() == before => Err(cut_short()),
        _ => Ok(false),
    }
}

fn cut_short() -> InflateError {
    corrupt(Encoding::Zstd)("a frame is cut short".into())
}

fn error(code: zstd_safe::ErrorCode) -> InflateError {
    corrupt(Encoding::Zstd)(zstd_safe::get_error_name(code).to_owned())
}
