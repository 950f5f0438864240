//! The body of one request.

use bytes::Bytes;
use sluice_client::{Compression, compress, inflate};

use crate::decode::Version;

/// What snappy can say, and more than any of our bodies has.
const MAX_PLAIN_BYTES: usize = u32::MAX as usize;

/// What a body is: the message, and what it is compressed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// `prometheus.WriteRequest` as a snappy block: remote write 1.0.
    #[default]
    V1,
    /// The same under zstd, which VictoriaMetrics takes.
    V1Zstd,
    /// `io.prometheus.write.v2.Request` as a snappy block: remote write 2.0.
    V2,
}

impl Format {
    /// The message.
    #[must_use]
    pub fn version(self) -> Version {
        match self {
            Format::V1 | Format::V1Zstd => Version::V1,
            Format::V2 => Version::V2,
        }
    }

    fn compression(self) -> Compression {
        match self {
            Format::V1 | Format::V2 => Compression::Snappy,
            Format::V1Zstd => Compression::Zstd,
        }
    }
}

/// The body of one request.
#[derive(Debug, Clone)]
pub struct Body {
    /// As they are sent.
    pub bytes: Bytes,
    /// What is in it.
    pub written: Written,
    /// What it is.
    pub format: Format,
}

/// How much a body holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// `TimeSeries` messages.
    pub series: u64,
    /// Float samples.
    pub samples: u64,
    /// Native histograms.
    pub histograms: u64,
    /// Exemplars.
    pub exemplars: u64,
}

impl Written {
    /// Samples of either kind.
    #[must_use]
    pub fn points(&self) -> u64 {
        self.samples + self.histograms
    }
}

/// The bodies of each lane, in the order they are to be sent in.
pub type Lanes = Vec<Vec<Body>>;

impl Body {
    pub(crate) fn compress(plain: &[u8], written: Written, format: Format) -> Self {
        let compression = format.compression();
        let bytes = compress(compression, compression.default_level(), [plain], plain.len());
        Self {
            bytes: bytes.expect("the encoders fail on no input").into(),
            written,
            format,
        }
    }

    /// The message itself.
    ///
    /// # Errors
    /// When the bytes have not been made by an encoder of ours.
    pub fn plain(&self) -> std::io::Result<Bytes> {
        inflate(self.format.compression(), &self.bytes, MAX_PLAIN_BYTES)
    }
}
