//! Inflating an answer. Answers are small and rare to be compressed at all, so this is plain.

use std::io::Read;

use bytes::Bytes;

use crate::Compression;

/// Inflates `body`, and never past `limit_bytes`.
///
/// # Errors
/// When the body is not what `compression` says, or inflates to more than `limit_bytes`.
pub fn inflate(compression: Compression, body: &[u8], limit_bytes: usize) -> std::io::Result<Bytes> {
    match compression {
        Compression::None => Ok(Bytes::copy_from_slice(body)),
        Compression::Gzip => limited(flate2::read::MultiGzDecoder::new(body), limit_bytes),
        Compression::Zstd => limited(zstd::stream::read::Decoder::with_buffer(body)?, limit_bytes),
        Compression::Deflate => limited(flate2::read::ZlibDecoder::new(body), limit_bytes),
        Compression::SnappyFramed => limited(snap::read::FrameDecoder::new(body), limit_bytes),
        Compression::Snappy => {
            let len = snap::raw::decompress_len(body).map_err(std::io::Error::other)?;
            if len > limit_bytes {
                return Err(too_large(limit_bytes));
            }
            Ok(snap::raw::Decoder::new()
                .decompress_vec(body)
                .map_err(std::io::Error::other)?
                .into())
        }
        Compression::Lz4 => limited(lz4_flex::frame::FrameDecoder::new(body), limit_bytes),
    }
}

fn limited(reader: impl Read, limit_bytes: usize) -> std::io::Result<Bytes> {
    let mut out = Vec::new();
    reader.take(limit_bytes as u64 + 1).read_to_end(&mut out)?;
    if out.len() > limit_bytes {
        return Err(too_large(limit_bytes));
    }
    Ok(out.into())
}

fn too_large(limit_bytes: usize) -> std::io::Error {
    std::io::Error::other(format!("inflates to more than {limit_bytes} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress;

    const ALL: [Compression; 7] = [
        Compression::None,
        Compression::Gzip,
        Compression::Zstd,
        Compression::Deflate,
        Compression::Snappy,
        Compression::SnappyFramed,
        Compression::Lz4,
    ];

    /// Text that compresses about as telemetry does, with enough variety to fill blocks.
    fn text(len: usize) -> Vec<u8> {
        let mut state = 1u64;
        let mut out = Vec::with_capacity(len + 32);
        while out.len() < len {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            out.extend_from_slice(b"service.name=checkout pod=");
            out.extend_from_slice(format!("{:08x} ", state >> 40).as_bytes());
        }
        out.truncate(len);
        out
    }

    /// Scenario: bodies of lengths around the encoders' block sizes, cut into chains in several ways,
    /// twice each so that a reused context is used too.
    /// Guarantees: every encoding inflates to the same bytes, through its own independent decoder.
    #[test]
    fn every_encoding_round_trips_over_any_chain() {
        for compression in ALL {
            for len in [0, 1, 100, 65_535, 65_536, 65_537, 200_000, 1_500_000] {
                let body = text(len);
                for cut in [1_000_000, 70_000, 4_097, 613] {
                    let packed = compress(compression, 1, body.chunks(cut), len).unwrap();
                    let back = inflate(compression, &packed, len.max(1)).unwrap();
                    assert!(back == body, "{compression:?}, {len} bytes in slices of {cut}");
                }
            }
        }
    }

    /// Scenario: bytes that do not compress at all, so that the first guess of the output is short.
    /// Guarantees: the output grows and round-trips.
    #[test]
    fn incompressible_bodies_round_trip() {
        let mut state = 7u64;
        let body: Vec<u8> = (0..300_000)
            .map(|_| {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                (state >> 56) as u8
            })
            .collect();
        for compression in ALL {
            let packed = compress(compression, 1, body.chunks(10_000), body.len()).unwrap();
            assert_eq!(
                inflate(compression, &packed, body.len()).unwrap(),
                body,
                "{compression:?}"
            );
        }
    }

    /// Scenario: a zstd body made of several slices.
    /// Guarantees: its frame states the content size, so that a receiver can reserve it beforehand.
    #[test]
    fn zstd_frames_state_their_content_size() {
        let body = text(300_000);
        let packed = compress(Compression::Zstd, 1, body.chunks(5_000), body.len()).unwrap();
        assert_eq!(
            zstd::zstd_safe::get_frame_content_size(&packed).unwrap(),
            Some(300_000)
        );
    }

    /// Scenario: one level after another through the same pooled contexts.
    /// Guarantees: each body is compressed at its own level, whatever the context did before.
    #[test]
    fn levels_do_not_leak_through_the_pool() {
        let body = text(400_000);
        for compression in [Compression::Gzip, Compression::Zstd] {
            let fast = compress(compression, 1, [&body[..]], body.len()).unwrap();
            let small = compress(compression, 9, [&body[..]], body.len()).unwrap();
            let again = compress(compression, 1, [&body[..]], body.len()).unwrap();
            assert_ne!(small.len(), fast.len(), "{compression:?}");
            assert_eq!(fast, again, "{compression:?}");
        }
    }

    /// Scenario: an answer that inflates past the limit, in every encoding.
    /// Guarantees: it is refused, whether or not the header admits its length.
    #[test]
    fn inflation_stops_at_the_limit() {
        let body = vec![0u8; 1 << 20];
        for compression in ALL.into_iter().filter(|c| *c != Compression::None) {
            let packed = compress(compression, 1, [&body[..]], body.len()).unwrap();
            let error = inflate(compression, &packed, (1 << 20) - 1).unwrap_err();
            assert!(
                error.to_string().contains("more than"),
                "{compression:?}: {error}"
            );
        }
    }
}
