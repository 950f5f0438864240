//! One record: header, extensions, checksums (docs/journal-format.md).

use std::ops::Range;

use sluice_payload::{Encoding, Signal, WireFormat};

/// What every record begins with.
pub(crate) const MAGIC: [u8; 4] = *b"SLjR";

/// The newest version that is read.
pub(crate) const VERSION: u8 = 2;

/// Header bytes before the extensions.
pub(crate) const FIXED_BYTES: usize = 56;

/// Records begin at multiples of this.
pub(crate) const ALIGNMENT: u64 = 8;

/// A longer header is not one: every extension there is, and will be, is far below it.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// A longer tenant name is cut: it must fit into a header, and a client can send any.
const MAX_TENANT_BYTES: usize = 1024;

/// A longer reason is cut: what a destination says may be a page of HTML.
const MAX_REASON_BYTES: usize = 2048;

const EXTENSION_TENANT: u16 = 1;
const EXTENSION_EXPORTER: u16 = 4;
const EXTENSION_REASON: u16 = 5;

/// What a record holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Payload,
    Footer,
}

/// Why a payload is a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// The id of the exporter whose destination refused it.
    pub exporter: String,
    /// What the destination said.
    pub reason: String,
}

/// Everything about a record but its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: Kind,
    pub epoch: u64,
    pub seq: u64,
    pub received_at_nanos: u64,
    pub body_crc: u32,
    pub stored_bytes: u32,
    pub inflated_bytes: u32,
    pub items: u32,
    pub signal: Signal,
    pub wire_format: WireFormat,
    pub encoding: Encoding,
    /// Empty for the default tenant.
    pub tenant: String,
    /// Of a dead letter.
    pub refusal: Option<Box<Refusal>>,
    /// Bytes of the header itself; set by [`Header::encode`].
    pub header_bytes: u16,
}

/// Why bytes are no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRecord {
    /// The header is longer than what is there; it needs so many bytes.
    Short(usize),
    /// Not a header, or a damaged one, or one of another segment.
    Damaged,
    /// A sound header of a version this binary does not know.
    Newer(u8),
}

impl Header {
    /// Bytes of the record in the file: header, body, padding.
    pub fn record_bytes(&self) -> u64 {
        (u64::from(self.header_bytes) + u64::from(self.stored_bytes)).next_multiple_of(ALIGNMENT)
    }

    /// Where the body is, from the beginning of the record on.
    pub fn body(&self) -> Range<usize> {
        let start = usize::from(self.header_bytes);
        start..start + self.stored_bytes as usize
    }

    /// Appends the header to `out`.
    pub fn encode(&mut self, out: &mut Vec<u8>) {
        let start = out.len();
        let tenant = (EXTENSION_TENANT, cut(&self.tenant, MAX_TENANT_BYTES));
        let refusal = self.refusal.iter().flat_map(|refusal| {
            [
                (EXTENSION_EXPORTER, cut(&refusal.exporter, MAX_TENANT_BYTES)),
                (EXTENSION_REASON, cut(&refusal.reason, MAX_REASON_BYTES)),
            ]
        });
        let extensions = [tenant].into_iter().chain(refusal);
        let extensions = extensions.filter(|(_, text)| !text.is_empty());
        let length: usize = extensions.clone().map(|(_, text)| 4 + text.len()).sum();
        self.header_bytes = (FIXED_BYTES + length).next_multiple_of(ALIGNMENT as usize) as u16;
        out.extend_from_slice(&MAGIC);
        out.push(version_of(self.wire_format));
        out.push(match self.kind {
            Kind::Payload => 1,
            Kind::Footer => 2,
        });
        out.extend_from_slice(&self.header_bytes.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.body_crc.to_le_bytes());
        for number in [self.epoch, self.seq, self.received_at_nanos] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.stored_bytes, self.inflated_bytes, self.items] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&[
            self.signal as u8,
            format_code(self.wire_format),
            encoding_code(self.encoding),
            0,
        ]);
        for (kind, text) in extensions {
            out.extend_from_slice(&kind.to_le_bytes());
            out.extend_from_slice(&(text.len() as u16).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        out.resize(start + usize::from(self.header_bytes), 0);
        let crc = header_crc(&out[start..]);
        out[start + 8..start + 12].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads the header that `bytes` begin with, if it is a sound one of the segment with this `epoch`.
    pub fn parse(bytes: &[u8], epoch: u64) -> Result<Header, NoRecord> {
        if bytes.len() < FIXED_BYTES {
            return Err(NoRecord::Short(FIXED_BYTES));
        }
        if bytes[..4] != MAGIC || u64_at(bytes, 16) != epoch {
            return Err(NoRecord::Damaged);
        }
        let header_bytes = u16::from_le_bytes([bytes[6], bytes[7]]);
        let length = usize::from(header_bytes);
        if !(FIXED_BYTES..=MAX_HEADER_BYTES).contains(&length) {
            return Err(NoRecord::Damaged);
        }
        let Some(header) = bytes.get(..length) else {
            return Err(NoRecord::Short(length));
        };
        if u32_at(header, 8) != header_crc(header) {
            return Err(NoRecord::Damaged);
        }
        if header[4] > VERSION {
            return Err(NoRecord::Newer(header[4]));
        }
        let kind = match header[5] {
            1 => Kind::Payload,
            2 => Kind::Footer,
            _ => return Err(NoRecord::Damaged),
        };
        let signal = Signal::ALL.get(usize::from(header[52])).copied();
        let (Some(signal), Some(wire_format), Some(encoding)) =
            (signal, format_of(header[53]), encoding_of(header[54]))
        else {
            return Err(NoRecord::Damaged);
        };
        let (tenant, refusal) = extensions(&header[FIXED_BYTES..]);
        Ok(Header {
            kind,
            epoch,
            seq: u64_at(header, 24),
            received_at_nanos: u64_at(header, 32),
            body_crc: u32_at(header, 12),
            stored_bytes: u32_at(header, 40),
            inflated_bytes: u32_at(header, 44),
            items: u32_at(header, 48),
            signal,
            wire_format,
            encoding,
            tenant,
            refusal,
            header_bytes,
        })
    }
}

/// Everything but the checksum itself.
fn header_crc(header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..8]), &header[12..])
}

/// The tenant, and the refusal of a dead letter.
fn extensions(mut rest: &[u8]) -> (String, Option<Box<Refusal>>) {
    let [mut tenant, mut exporter, mut reason] = [const { String::new() }; 3];
    while let [a, b, c, d, after @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*c, *d])).min(after.len());
        let (text, next) = after.split_at(length);
        let text = || String::from_utf8_lossy(text).into_owned();
        match u16::from_le_bytes([*a, *b]) {
            0 => break,
            EXTENSION_TENANT => tenant = text(),
            EXTENSION_EXPORTER => exporter = text(),
            EXTENSION_REASON => reason = text(),
            _ => {}
        }
        rest = next;
    }
    let refusal = (!exporter.is_empty()).then(|| Box::new(Refusal { exporter, reason }));
    (tenant, refusal)
}

/// The beginning of `text`, at most so many bytes of it.
fn cut(text: &str, max_bytes: usize) -> &str {
    let mut end = text.len().min(max_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Records of remote write came with version 2: a binary that does not know them has to say so, or it would take them for damaged.
fn version_of(format: WireFormat) -> u8 {
    match format {
        WireFormat::Otlp => 1,
        WireFormat::RemoteWrite1 | WireFormat::RemoteWrite2 => 2,
    }
}

fn format_code(format: WireFormat) -> u8 {
    match format {
        WireFormat::Otlp => 1,
        WireFormat::RemoteWrite1 => 2,
        WireFormat::RemoteWrite2 => 3,
    }
}

fn format_of(code: u8) -> Option<WireFormat> {
    Some(match code {
        1 => WireFormat::Otlp,
        2 => WireFormat::RemoteWrite1,
        3 => WireFormat::RemoteWrite2,
        _ => return None,
    })
}

fn encoding_code(encoding: Encoding) -> u8 {
    match encoding {
        Encoding::Gzip => 1,
        Encoding::Zstd => 2,
        // Nothing else is stored: see `body::Codec`.
        _ => 0,
    }
}

fn encoding_of(code: u8) -> Option<Encoding> {
    [Encoding::Identity, Encoding::Gzip, Encoding::Zstd]
        .get(usize::from(code))
        .copied()
}

/// The number at a place that is there.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

/// The number at a place that is there.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn header(tenant: &str) -> Header {
        Header {
            kind: Kind::Payload,
            epoch: 0x0123_4567_89ab_cdef,
            seq: 42,
            received_at_nanos: 1_700_000_000_000_000_000,
            body_crc: 7,
            stored_bytes: 11,
            inflated_bytes: 99,
            items: 3,
            signal: Signal::Traces,
            wire_format: match tenant {
                "" => WireFormat::Otlp,
                "a" => WireFormat::RemoteWrite1,
                _ => WireFormat::RemoteWrite2,
            },
            encoding: Encoding::Zstd,
            tenant: tenant.to_owned(),
            refusal: (tenant == "refused").then(|| {
                Box::new(Refusal {
                    exporter: "otlphttp/x".to_owned(),
                    reason: "HTTP 400: no such metric".to_owned(),
                })
            }),
            header_bytes: 0,
        }
    }

    /// Scenario: headers with and without a tenant and a refusal, whole, cut anywhere, with any bit flipped, of another epoch.
    /// Guarantees: the whole one is read back; no other is.
    #[test]
    fn a_header_is_read_back_or_not_at_all() {
        for name in ["", "a", "refused", "a tenant with a long name"] {
            let mut written = header(name);
            let mut bytes = Vec::new();
            written.encode(&mut bytes);
            assert_eq!(bytes.len() % ALIGNMENT as usize, 0);
            assert_eq!(Header::parse(&bytes, written.epoch).as_ref(), Ok(&written));
            assert_eq!(Header::parse(&bytes, 1), Err(NoRecord::Damaged));
            for length in 0..bytes.len() {
                let cut = Header::parse(&bytes[..length], written.epoch);
                assert!(matches!(cut, Err(NoRecord::Short(_))), "{length}");
            }
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(Header::parse(&flipped, written.epoch).is_err(), "bit {bit}");
            }
        }
    }

    /// Scenario: headers of OTLP, and of both versions of remote write.
    /// Guarantees: a binary that knows version 1 alone reads those of OTLP, and is told of a newer one by the others.
    #[test]
    fn remote_write_is_of_version_2() {
        for (tenant, version) in [("", 1), ("a", 2), ("refused", 2)] {
            let mut bytes = Vec::new();
            header(tenant).encode(&mut bytes);
            assert_eq!(bytes[4], version);
        }
    }

    /// Scenario: a sound header of the next version; a tenant name longer than a header takes.
    /// Guarantees: the first is told apart from damage, the second is cut between characters.
    #[test]
    fn newer_versions_and_long_names() {
        let mut written = header("");
        let mut bytes = Vec::new();
        written.encode(&mut bytes);
        bytes[4] = VERSION + 1;
        let crc = header_crc(&bytes).to_le_bytes();
        bytes[8..12].copy_from_slice(&crc);
        assert_eq!(
            Header::parse(&bytes, written.epoch),
            Err(NoRecord::Newer(VERSION + 1))
        );
        let mut written = header(&"ä".repeat(2000));
        let mut bytes = Vec::new();
        written.encode(&mut bytes);
        let read = Header::parse(&bytes, written.epoch).unwrap();
        assert_eq!(read.tenant, "ä".repeat(MAX_TENANT_BYTES / 2));
    }
}
