//! Content encodings of a body.

/// How a body is compressed on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Not compressed.
    Identity,
    /// RFC 1952, any number of members.
    Gzip,
    /// RFC 8878, any number of frames.
    Zstd,
    /// RFC 1950; what HTTP calls `deflate`, and the Collector also calls `zlib`.
    Zlib,
    /// Snappy, block or framing format: the stream identifier tells which.
    Snappy,
    /// LZ4 frame format.
    Lz4,
}

/// A content encoding nobody here reads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown encoding {0:?}; use one of identity, gzip, zstd, zlib, deflate, snappy, lz4")]
pub struct UnknownEncoding(pub String);

impl Encoding {
    /// The name in `Content-Encoding` and `grpc-encoding`.
    pub fn as_str(self) -> &'static str {
        match self {
            Encoding::Identity => "identity",
            Encoding::Gzip => "gzip",
            Encoding::Zstd => "zstd",
            Encoding::Zlib => "deflate",
            Encoding::Snappy => "snappy",
            Encoding::Lz4 => "lz4",
        }
    }
}

impl std::str::FromStr for Encoding {
    type Err = UnknownEncoding;

    /// Reads a header value or a configuration value; case does not matter (RFC 9110, 8.4.1).
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Ok(match name.trim().to_ascii_lowercase().as_str() {
            "" | "identity" | "none" => Encoding::Identity,
            "gzip" | "x-gzip" => Encoding::Gzip,
            "zstd" => Encoding::Zstd,
            "deflate" | "zlib" => Encoding::Zlib,
            "snappy" | "x-snappy-framed" => Encoding::Snappy,
            "lz4" => Encoding::Lz4,
            _ => return Err(UnknownEncoding(name.to_owned())),
        })
    }
}

impl std::fmt::Display for Encoding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
