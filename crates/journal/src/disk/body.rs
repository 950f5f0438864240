//! Bodies as they are stored: compressed once, inflated when they are read back.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use sluice_payload::{Encoding, Frame, Payload};

/// The fastest level worth having: what is stored is read back only by an exporter that lags.
const ZSTD_LEVEL: i32 = 1;

/// Bodies below this are stored as they are: a frame would save little more than it adds.
const MIN_COMPRESSED_BYTES: usize = 256;

/// Whether frames of this encoding can be stored as they came.
pub(crate) fn is_storable(encoding: Encoding) -> bool {
    matches!(encoding, Encoding::Gzip | Encoding::Zstd)
}

/// What is kept of the room that a body is compressed into, for the next one.
const KEPT_ROOM_BYTES: usize = 1 << 20;

/// Makes bodies shorter, one after the other.
pub(crate) struct Codec {
    zstd: Option<zstd::bulk::Compressor<'static>>,
    /// Room for a body that does not get shorter; a frame takes a tenth of it, and is all that waits to be written.
    room: Vec<u8>,
}

impl Codec {
    pub fn new() -> Self {
        Self {
            // It fails when memory is out; bodies are stored as they are then.
            zstd: zstd::bulk::Compressor::new(ZSTD_LEVEL).ok(),
            room: Vec::new(),
        }
    }

    /// The body of `payload` as it is stored.
    pub fn stored(&mut self, payload: &Payload) -> (Encoding, Bytes) {
        if let Some(Frame { encoding, bytes }) = &payload.frame
            && is_storable(*encoding)
        {
            return (*encoding, bytes.clone());
        }
        let whole = (Encoding::Identity, payload.body.clone());
        if payload.body.len() < MIN_COMPRESSED_BYTES {
            return whole;
        }
        let Some(zstd) = &mut self.zstd else {
            return whole;
        };
        self.room.clear();
        self.room
            .reserve_exact(zstd::zstd_safe::compress_bound(payload.body.len()));
        let stored = match zstd.compress_to_buffer(&payload.body, &mut self.room) {
            Ok(length) if length < payload.body.len() => {
                (Encoding::Zstd, Bytes::copy_from_slice(&self.room[..length]))
            }
            _ => whole,
        };
        if self.room.capacity() > KEPT_ROOM_BYTES {
            self.room = Vec::new();
        }
        stored
    }
}

/// Inflates bodies, one after the other.
pub(crate) struct Inflater(Option<zstd::bulk::Decompressor<'static>>);

impl Inflater {
    pub fn new() -> Self {
        Self(zstd::bulk::Decompressor::new().ok())
    }

    /// What was stored, inflated to exactly `length` bytes.
    pub fn inflate(&mut self, encoding: Encoding, stored: &[u8], length: usize) -> io::Result<Bytes> {
        let inflated = match encoding {
            Encoding::Gzip => {
                let mut inflated = Vec::with_capacity(length);
                // One byte more, so that what is too long does not look right.
                MultiGzDecoder::new(stored)
                    .take(length as u64 + 1)
                    .read_to_end(&mut inflated)?;
                inflated
            }
            Encoding::Zstd => {
                let zstd = match &mut self.0 {
                    Some(zstd) => zstd,
                    none => none.insert(zstd::bulk::Decompressor::new()?),
                };
                zstd.decompress(stored, length)?
            }
            _ => stored.to_vec(),
        };
        if inflated.len() != length {
            let error = format!("it inflates to {} bytes and not to {length}", inflated.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        Ok(inflated.into())
    }
}
