//! The bodies that one sender sends.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use sluice_loadgen::{Generator, Signal};
use sluice_otlp::json;
use sluice_wire::Kind;

use super::outcome::Sent;
use super::plan::{Bodies, Encoding, Plan, Protocol};

/// SDKs compress with gzip's default.
const GZIP_LEVEL: u32 = 6;
const ZSTD_LEVEL: i32 = 1;

/// A request that is ready to go.
pub(crate) struct Outgoing<'a> {
    pub(crate) body: &'a [u8],
    pub(crate) sent: Sent,
}

/// Makes the requests of one sender.
pub(crate) struct Source {
    generator: Generator,
    json: bool,
    encoder: Encoder,
    repeated: Vec<(Bytes, Sent)>,
    used: usize,
    text: Vec<u8>,
    compressed: Vec<u8>,
}

impl Source {
    pub(crate) fn new(plan: &Plan, sender: u32) -> Result<Source, String> {
        let mut source = Source {
            generator: plan.generator(sender),
            json: plan.protocol == Protocol::Json,
            encoder: Encoder::new(plan.encoding)?,
            repeated: Vec::new(),
            used: 0,
            text: Vec::new(),
            compressed: Vec::new(),
        };
        if let Bodies::Repeated(number) = plan.bodies {
            for _ in 0..number.max(1) {
                let made = source.make()?;
                let repeated = (Bytes::copy_from_slice(made.body), made.sent);
                source.repeated.push(repeated);
            }
        }
        Ok(source)
    }

    /// The next request.
    pub(crate) fn next(&mut self) -> Result<Outgoing<'_>, String> {
        if self.repeated.is_empty() {
            return self.make();
        }
        let (body, sent) = &self.repeated[self.used % self.repeated.len()];
        self.used += 1;
        Ok(Outgoing {
            body,
            sent: sent.clone(),
        })
    }

    fn make(&mut self) -> Result<Outgoing<'_>, String> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_err(|error| format!("the clock is before 1970: {error}"))?;
        let signal = self.generator.spec().signal;
        let (message, first_id, items) = self.generator.next_in_place(now.as_nanos() as u64);
        let mut body = message;
        if self.json {
            self.text.clear();
            json::encode(json::request_schema(kind(signal)), message, &mut self.text)
                .map_err(|error| format!("cannot write the request as JSON: {error}"))?;
            body = &self.text;
        }
        let message_bytes = body.len() as u64;
        if self.encoder.compress(body, &mut self.compressed)? {
            body = &self.compressed;
        }
        Ok(Outgoing {
            body,
            sent: Sent {
                ids: first_id..first_id + u64::from(items),
                message_bytes,
                body_bytes: body.len() as u64,
            },
        })
    }
}

/// What the codec calls a signal.
pub(crate) fn kind(signal: Signal) -> Kind {
    match signal {
        Signal::Metrics => Kind::Metrics,
        Signal::Logs => Kind::Logs,
        Signal::Traces => Kind::Traces,
    }
}

enum Encoder {
    Identity,
    Gzip,
    Zstd(zstd::bulk::Compressor<'static>),
    // Boxed for the table of small blocks that it carries.
    Snappy(Box<snap::raw::Encoder>),
}

impl Encoder {
    fn new(encoding: Encoding) -> Result<Encoder, String> {
        Ok(match encoding {
            Encoding::Identity => Encoder::Identity,
            Encoding::Gzip => Encoder::Gzip,
            Encoding::Zstd => Encoder::Zstd(
                zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(|error| format!("zstd: {error}"))?,
            ),
            Encoding::Snappy => Encoder::Snappy(Box::new(snap::raw::Encoder::new())),
        })
    }

    /// Replaces `out` with the compressed body; false if there is nothing to do.
    fn compress(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<bool, String> {
        out.clear();
        match self {
            Encoder::Identity => return Ok(false),
            Encoder::Gzip => {
                let mut encoder =
                    flate2::write::GzEncoder::new(&mut *out, flate2::Compression::new(GZIP_LEVEL));
                encoder
                    .write_all(body)
                    .and_then(|()| encoder.finish().map(drop))
                    .map_err(|error| format!("gzip: {error}"))?;
            }
            Encoder::Zstd(encoder) => {
                *out = encoder.compress(body).map_err(|error| format!("zstd: {error}"))?;
            }
            Encoder::Snappy(encoder) => {
                out.resize(snap::raw::max_compress_len(body.len()), 0);
                let compressed = encoder.compress(body, out);
                out.truncate(compressed.map_err(|error| format!("snappy: {error}"))?);
            }
        }
        Ok(true)
    }
}
