//! Walking through a segment, from one sound record to the next.

use std::io;
use std::sync::Arc;

use super::record::{FIXED_BYTES, Header, Kind, MAGIC, NoRecord};
use crate::File;

/// Read at once: large enough for plain sequential speed, small beside any memory budget.
const CHUNK_BYTES: usize = 256 << 10;

/// What cannot be read is found out in pieces of this size, a sector of most devices.
const SECTOR_BYTES: usize = 4096;

/// A read that fails is tried so often: some faults (a path that fails over, a loose cable) pass.
const READ_ATTEMPTS: usize = 3;

/// One step of a scan.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A sound record, and where it begins.
    Record(Header, u64),
    /// Bytes that are no sound record.
    Damage {
        /// From where.
        at: u64,
        /// How many.
        bytes: u64,
        /// They are the end of the file, and look as a write does that a crash interrupted.
        torn: bool,
    },
    /// A record this binary does not know; the version.
    Newer(u8),
}

/// Reads records one after another.
#[derive(Debug)]
pub(crate) struct Scan {
    file: Arc<dyn File>,
    epoch: u64,
    /// Where the next record should begin.
    offset: u64,
    end: u64,
    buffer: Vec<u8>,
    buffer_at: u64,
    /// Where the body of the last record is, in the buffer.
    body: std::ops::Range<usize>,
}

impl Scan {
    /// A scan of `file` from `offset` to `end`.
    pub fn new(file: Arc<dyn File>, epoch: u64, offset: u64, end: u64) -> Self {
        Self {
            file,
            epoch,
            offset,
            end,
            buffer: Vec::new(),
            buffer_at: 0,
            body: 0..0,
        }
    }

    /// Where it is.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// There is more now than there was.
    pub fn extend(&mut self, end: u64) {
        self.end = self.end.max(end);
    }

    /// The body of the record just found, if bodies are read.
    pub fn body(&self) -> &[u8] {
        self.buffer.get(self.body.clone()).unwrap_or_default()
    }

    /// The bytes between a record just found and the next, if bodies are read.
    pub fn padding(&mut self, at: u64, header: &Header) -> &[u8] {
        self.load(at, header.record_bytes() as usize);
        let end = self.body.end.saturating_sub(self.body.start);
        let from = (at - self.buffer_at) as usize + usize::from(header.header_bytes) + end;
        let to = (at - self.buffer_at) as usize + header.record_bytes() as usize;
        self.buffer
            .get(from..to.min(self.buffer.len()))
            .unwrap_or_default()
    }

    /// The next record, or what is there instead. With `bodies`, they are read and checked; without, they are passed over.
    /// Footers are passed over too.
    pub fn next(&mut self, bodies: bool) -> Option<Found> {
        loop {
            if self.offset >= self.end {
                return None;
            }
            let start = self.offset;
            let header = match self.header_at(start) {
                Ok(header) => header,
                Err(NoRecord::Newer(version)) => return Some(Found::Newer(version)),
                Err(NoRecord::Short(_)) => return Some(self.skip_damage(start, start + 1, true)),
                Err(NoRecord::Damaged) => return Some(self.skip_damage(start, start + 1, false)),
            };
            let next = start + header.record_bytes();
            let behind_header = start + u64::from(header.header_bytes);
            if start + header.body().end as u64 > self.end {
                return Some(self.skip_damage(start, behind_header, true));
            }
            if bodies || header.kind == Kind::Footer {
                self.load(start, header.body().end);
                let at = (start - self.buffer_at) as usize;
                self.body = at + header.body().start..at + header.body().end;
                if crc32c::crc32c(self.body()) != header.body_crc {
                    // Its length may be true or not: bytes may be missing as well as changed.
                    return Some(self.skip_damage(start, behind_header, false));
                }
            }
            self.offset = next;
            if header.kind == Kind::Payload {
                return Some(Found::Record(header, start));
            }
        }
    }

    fn header_at(&mut self, at: u64) -> Result<Header, NoRecord> {
        let mut need = FIXED_BYTES;
        loop {
            self.load(at, need);
            let from = (at - self.buffer_at) as usize;
            let bytes = self.buffer.get(from..).unwrap_or_default();
            match Header::parse(bytes, self.epoch) {
                Err(NoRecord::Short(more)) if more > need && more as u64 <= self.end - at => need = more,
                other => return other,
            }
        }
    }

    /// Looks for the next sound header from `from` on; what lies before it, from `start` on, is damage. At the end of the file
    /// it is a torn write if it is `cut` off there, or nothing but zeros.
    fn skip_damage(&mut self, start: u64, from: u64, cut: bool) -> Found {
        let mut at = from;
        let mut zeros = from == start + 1 && self.is_zero(start..from);
        while at < self.end {
            self.load(at, FIXED_BYTES);
            let window = &self.buffer[((at - self.buffer_at) as usize).min(self.buffer.len())..];
            let found = window.windows(MAGIC.len()).position(|four| four == MAGIC);
            zeros = zeros && found.is_none() && window.iter().all(|byte| *byte == 0);
            match found {
                Some(ahead) => {
                    at += ahead as u64;
                    if !matches!(self.header_at(at), Err(NoRecord::Damaged | NoRecord::Short(_))) {
                        break;
                    }
                    at += 1;
                }
                // The last bytes may be the beginning of a magic.
                None if window.len() >= MAGIC.len() => at += (window.len() - MAGIC.len() + 1) as u64,
                None => at = self.end,
            }
        }
        self.offset = at.min(self.end);
        Found::Damage {
            at: start,
            bytes: self.offset - start,
            torn: self.offset == self.end && (cut || zeros),
        }
    }

    fn is_zero(&self, range: std::ops::Range<u64>) -> bool {
        let from = range.start.checked_sub(self.buffer_at).map(|from| from as usize);
        let bytes = from.and_then(|from| self.buffer.get(from..from + (range.end - range.start) as usize));
        bytes.is_none_or(|bytes| bytes.iter().all(|byte| *byte == 0))
    }

    /// Sees to it that `length` bytes from `at` on are in the buffer, as far as there are so many.
    fn load(&mut self, at: u64, length: usize) {
        let length = length.min((self.end.saturating_sub(at)) as usize);
        let have = self.buffer_at..self.buffer_at + self.buffer.len() as u64;
        if have.start <= at && at + length as u64 <= have.end {
            return;
        }
        let kept = match at.checked_sub(have.start) {
            Some(passed) if at < have.end => {
                self.buffer.drain(..passed as usize);
                self.buffer.len()
            }
            _ => {
                self.buffer.clear();
                0
            }
        };
        // A huge body came and went: its buffer need not stay.
        if self.buffer.capacity() > 4 * CHUNK_BYTES.max(length) {
            self.buffer.shrink_to(CHUNK_BYTES.max(length));
        }
        self.buffer_at = at;
        let size = length
            .max(CHUNK_BYTES)
            .min((self.end.saturating_sub(at)) as usize);
        self.buffer.resize(size, 0);
        read_what_can_be(&*self.file, &mut self.buffer[kept..], at + kept as u64);
    }
}

/// Fills `buffer`; what cannot be read is zeros, which no record is made of.
fn read_what_can_be(file: &dyn File, buffer: &mut [u8], at: u64) {
    if read_attempts(file, buffer, at).is_ok() {
        return;
    }
    for (index, sector) in buffer.chunks_mut(SECTOR_BYTES).enumerate() {
        if read_attempts(file, sector, at + (index * SECTOR_BYTES) as u64).is_err() {
            sector.fill(0);
        }
    }
}

fn read_attempts(file: &dyn File, buffer: &mut [u8], at: u64) -> io::Result<()> {
    let mut attempt = 1;
    loop {
        match file.read_exact_at(buffer, at) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof && attempt < READ_ATTEMPTS => {
                attempt += 1
            }
            done => return done,
        }
    }
}
