//! zlib, and gzip members laid end to end.

use std::io::BufRead;

use flate2::{Decompress, FlushDecompress, Status};
use sluice_payload::Encoding;

use super::content::Content;
use super::steps::{Steps, error_of};
use super::{InflateError, corrupt};

/// The largest window of deflate, as a power of two.
const WINDOW_LOG: u8 = 15;

pub(super) fn inflate(
    mut steps: Steps<'_>,
    content: &mut Content<'_>,
    encoding: Encoding,
) -> Result<(), InflateError> {
    inflate_first(&mut steps, content, encoding)?;
    match (steps.rest().len(), encoding) {
        (0, _) => Ok(()),
        // One decoder for all that follow: it is set back between them, which that of the first cannot be.
        (_, Encoding::Gzip) => content.read(flate2::bufread::MultiGzDecoder::new(steps), encoding),
        (more, _) => Err(corrupt(encoding)(format!(
            "{more} bytes follow the end of the stream"
        ))),
    }
}

/// The only stream or member of most bodies: straight into the content.
fn inflate_first(
    steps: &mut Steps<'_>,
    content: &mut Content<'_>,
    encoding: Encoding,
) -> Result<(), InflateError> {
    let bad = corrupt(encoding);
    let mut decoder = match encoding {
        Encoding::Gzip => Decompress::new_gzip(WINDOW_LOG),
        _ => Decompress::new(true),
    };
    loop {
        content.make_room()?;
        let out = content.out().map_err(error_of(encoding))?;
        let compressed = steps.piece().map_err(error_of(encoding))?;
        let before = (decoder.total_in(), decoder.total_out());
        let status = decoder
            .decompress_vec(compressed, out, FlushDecompress::None)
            .map_err(|error| bad(error.to_string()))?;
        steps.consume((decoder.total_in() - before.0) as usize);
        if status == Status::StreamEnd {
            return Ok(());
        }
        if (decoder.total_in(), decoder.total_out()) == before {
            return Err(bad("the stream is cut short".into()));
        }
    }
}
