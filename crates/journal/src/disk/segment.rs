//! Segment files: their names, their first and last bytes (docs/journal-format.md).

use std::ffi::OsStr;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluice_payload::{TenantId, Tenants};

use super::record::{ALIGNMENT, Header, Kind, u32_at, u64_at};
use crate::{Cost, File};

/// Bytes before the first record.
pub(crate) const HEADER_BYTES: u64 = 64;

/// Bytes that end a sealed segment.
pub(crate) const TRAILER_BYTES: u64 = 16;

const MAGIC: [u8; 4] = *b"SLjS";
const TRAILER_MAGIC: [u8; 4] = *b"SLjE";
const VERSION: u16 = 1;
const SUFFIX: &str = ".segment";

/// A longer footer is none: there are at most 4096 tenants with names of at most 1 KiB.
const MAX_FOOTER_BYTES: u64 = 8 << 20;

/// Which segment: the first sequence number it may hold, and its epoch. Later segments compare greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SegmentId {
    pub first: u64,
    pub epoch: u64,
}

impl SegmentId {
    pub fn file_name(self) -> String {
        format!("{:020}-{:016x}{SUFFIX}", self.first, self.epoch)
    }

    pub fn parse(name: &OsStr) -> Option<Self> {
        let (first, epoch) = name.to_str()?.strip_suffix(SUFFIX)?.split_once('-')?;
        let id = Self {
            first: first.parse().ok()?,
            epoch: u64::from_str_radix(epoch, 16).ok()?,
        };
        (id.file_name().as_str() == name).then_some(id)
    }

    /// What the file begins with; `follows` is the number of the last record before it, in another segment.
    pub fn header(self, created: SystemTime, follows: u64) -> [u8; HEADER_BYTES as usize] {
        let mut header = [0; HEADER_BYTES as usize];
        header[..4].copy_from_slice(&MAGIC);
        header[4..6].copy_from_slice(&VERSION.to_le_bytes());
        header[16..24].copy_from_slice(&self.epoch.to_le_bytes());
        header[24..32].copy_from_slice(&self.first.to_le_bytes());
        header[32..40].copy_from_slice(&nanos(created).to_le_bytes());
        header[40..48].copy_from_slice(&follows.to_le_bytes());
        let crc = header_crc(&header).to_le_bytes();
        header[8..12].copy_from_slice(&crc);
        header
    }
}

/// Everything but the checksum itself.
fn header_crc(header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..8]), &header[12..])
}

/// What the header of a segment says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Beginning {
    /// One that is newer must not be scanned for damage.
    pub version: u16,
    /// The number of the last record before this segment.
    pub follows: u64,
}

impl Beginning {
    /// Reads the header of segment `id`; `None` when it is damaged.
    pub fn read(file: &dyn File, id: SegmentId) -> Option<Self> {
        let mut header = [0; HEADER_BYTES as usize];
        file.read_exact_at(&mut header, 0).ok()?;
        let sound = header[..4] == MAGIC
            && u32_at(&header, 8) == header_crc(&header)
            && (u64_at(&header, 16), u64_at(&header, 24)) == (id.epoch, id.first);
        sound.then(|| Self {
            version: u16::from_le_bytes([header[4], header[5]]),
            follows: u64_at(&header, 40),
        })
    }

    /// Where records may begin. Where the header is damaged, bytes may be missing from it, and the first record be where
    /// it was.
    pub fn records_at(beginning: Option<Self>) -> u64 {
        beginning.map_or(0, |_| HEADER_BYTES)
    }
}

pub(crate) fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn time(nanos: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(nanos)
}

/// Counts by tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally(Vec<(TenantId, Cost)>);

impl Tally {
    pub fn add(&mut self, tenant: TenantId, cost: Cost) {
        match self.0.iter_mut().find(|(of, _)| *of == tenant) {
            Some((_, sum)) => sum.add(cost),
            None => self.0.push((tenant, cost)),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (TenantId, Cost)> + '_ {
        self.0.iter().copied()
    }

    pub fn of(&self, tenant: TenantId) -> Cost {
        let found = self.0.iter().find(|(of, _)| *of == tenant);
        found.map(|(_, cost)| *cost).unwrap_or_default()
    }
}

/// What is in a segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// The last sequence number; of no meaning when there is no record.
    pub last: u64,
    /// When its first record was received.
    pub oldest_nanos: u64,
    pub tally: Tally,
}

impl Contents {
    pub fn add(&mut self, seq: u64, received_at_nanos: u64, tenant: TenantId, cost: Cost) {
        if self.is_empty() {
            self.oldest_nanos = received_at_nanos;
        }
        self.last = seq;
        self.tally.add(tenant, cost);
    }

    pub fn is_empty(&self) -> bool {
        self.tally.0.is_empty()
    }

    /// The footer and the trailer of a segment whose records end at `offset`.
    pub fn seal(&self, id: SegmentId, offset: u64, tenants: &Tenants) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend_from_slice(&self.last.to_le_bytes());
        body.extend_from_slice(&self.oldest_nanos.to_le_bytes());
        body.extend_from_slice(&(self.tally.0.len() as u32).to_le_bytes());
        for (tenant, cost) in self.tally.iter() {
            let name = tenant_name(tenants, tenant);
            let name = &name.as_bytes()[..name.len().min(usize::from(u16::MAX))];
            body.extend_from_slice(&(name.len() as u16).to_le_bytes());
            body.extend_from_slice(name);
            for number in [cost.requests, cost.items, cost.bytes] {
                body.extend_from_slice(&number.to_le_bytes());
            }
        }
        let mut sealed = vec![0; (offset.next_multiple_of(ALIGNMENT) - offset) as usize];
        let begins = offset + sealed.len() as u64;
        let mut header = Header {
            kind: Kind::Footer,
            epoch: id.epoch,
            seq: self.last,
            received_at_nanos: self.oldest_nanos,
            body_crc: crc32c::crc32c(&body),
            stored_bytes: body.len() as u32,
            inflated_bytes: body.len() as u32,
            items: 0,
            signal: sluice_payload::Signal::Metrics,
            wire_format: sluice_payload::WireFormat::Otlp,
            encoding: sluice_payload::Encoding::Identity,
            tenant: String::new(),
            refusal: None,
            header_bytes: 0,
        };
        header.encode(&mut sealed);
        sealed.extend_from_slice(&body);
        sealed.resize(sealed.len().next_multiple_of(ALIGNMENT as usize), 0);
        sealed.extend_from_slice(&begins.to_le_bytes());
        sealed.extend_from_slice(&crc32c::crc32c(&begins.to_le_bytes()).to_le_bytes());
        sealed.extend_from_slice(&TRAILER_MAGIC);
        sealed
    }

    /// What the footer of a sealed segment says, and where its records end; `None` when it is not sealed, or the footer is damaged.
    pub fn read(
        file: &dyn File,
        size_bytes: u64,
        id: SegmentId,
        tenants: &Tenants,
    ) -> io::Result<Option<(Contents, u64)>> {
        let Some(at) = size_bytes
            .checked_sub(TRAILER_BYTES)
            .filter(|at| *at >= HEADER_BYTES)
        else {
            return Ok(None);
        };
        let mut trailer = [0; TRAILER_BYTES as usize];
        file.read_exact_at(&mut trailer, at)?;
        let begins = u64_at(&trailer, 0);
        let sound = trailer[12..] == TRAILER_MAGIC && u32_at(&trailer, 8) == crc32c::crc32c(&trailer[..8]);
        if !sound || begins < HEADER_BYTES || begins >= at || at - begins > MAX_FOOTER_BYTES {
            return Ok(None);
        }
        let mut footer = vec![0; (at - begins) as usize];
        file.read_exact_at(&mut footer, begins)?;
        let Ok(header) = Header::parse(&footer, id.epoch) else {
            return Ok(None);
        };
        let body = footer.get(header.body()).unwrap_or_default();
        let padding = footer.get(header.body().end..).unwrap_or_default();
        let is_sound = crc32c::crc32c(body) == header.body_crc && padding.iter().all(|byte| *byte == 0);
        if header.kind != Kind::Footer || !is_sound {
            return Ok(None);
        }
        Ok(parse_footer(body, tenants).map(|contents| (contents, begins)))
    }
}

fn parse_footer(body: &[u8], tenants: &Tenants) -> Option<Contents> {
    let mut rest = body;
    let mut take = |length: usize| {
        let (head, tail) = rest.split_at_checked(length)?;
        rest = tail;
        Some(head)
    };
    let mut contents = Contents {
        last: u64_at(take(8)?, 0),
        oldest_nanos: u64_at(take(8)?, 0),
        tally: Tally::default(),
    };
    for _ in 0..u32_at(take(4)?, 0) {
        let length = take(2)?;
        let name = take(usize::from(u16::from_le_bytes([length[0], length[1]])))?;
        let tenant = tenant_id(tenants, &String::from_utf8_lossy(name));
        let numbers = take(24)?;
        let cost = Cost {
            requests: u64_at(numbers, 0),
            items: u64_at(numbers, 8),
            bytes: u64_at(numbers, 16),
        };
        contents.tally.add(tenant, cost);
    }
    Some(contents)
}

/// The name of a tenant as it is stored: none for the default one.
pub(crate) fn tenant_name(tenants: &Tenants, tenant: TenantId) -> String {
    match tenant {
        TenantId::DEFAULT => String::new(),
        named => tenants.name(named).to_string(),
    }
}

/// The tenant of a stored name.
pub(crate) fn tenant_id(tenants: &Tenants, name: &str) -> TenantId {
    match name {
        "" => TenantId::DEFAULT,
        named => tenants.intern(named),
    }
}
