//! Writing segments: one group of records with one write and one sync, whole or not at all.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::{self, IoSlice};
use std::path::Path;

use bytes::Bytes;
use sluice_payload::{Encoding, Payload};

use super::reader::Source;
use super::record::{ALIGNMENT, Header, Kind, Refusal};
use super::recovery::Numbers;
use super::segment::{Contents, HEADER_BYTES, SegmentId, nanos, tenant_name};
use super::spill::Place;
use crate::{File, OpenMode};

/// Slices in one call; the kernel takes 1024 (IOV_MAX).
const MAX_SLICES: usize = 1024;

static PADDING: [u8; ALIGNMENT as usize] = [0; ALIGNMENT as usize];

/// A payload as it will be stored.
pub(crate) struct Entry<'a> {
    pub payload: &'a Payload,
    pub encoding: Encoding,
    pub stored: Bytes,
    /// It is a dead letter.
    pub refusal: Option<&'a Refusal>,
}

/// Where a record went.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    pub seq: u64,
    pub place: Place,
    pub received_at_nanos: u64,
}

/// The segment being written.
#[derive(Debug)]
pub(crate) struct Active {
    pub id: SegmentId,
    file: Box<dyn File>,
    /// Where the next record goes.
    pub offset: u64,
    /// Its name survives a crash of the machine.
    named: bool,
    unsynced: bool,
}

/// The writing end of a journal's directory.
#[derive(Debug)]
pub(crate) struct Log {
    source: Source,
    next_seq: u64,
    behind_highest: u64,
    /// The number of the last record that cursors were given: what a new segment says it follows.
    pub last_seq: u64,
    pub active: Option<Active>,
    segment_bytes: u64,
    seed: Option<u64>,
    headers: Vec<u8>,
}

impl Log {
    pub fn new(source: Source, numbers: Numbers, segment_bytes: u64, seed: Option<u64>) -> Self {
        Self {
            source,
            next_seq: numbers.next,
            behind_highest: numbers.next,
            last_seq: numbers.last,
            active: None,
            segment_bytes,
            seed,
            headers: Vec::new(),
        }
    }

    /// Whether the segment being written takes no more.
    pub fn is_full(&self) -> bool {
        self.active
            .as_ref()
            .is_some_and(|active| active.offset >= self.segment_bytes)
    }

    /// Begins a segment, if none is being written.
    pub fn begin(&mut self) -> io::Result<SegmentId> {
        if let Some(active) = &self.active {
            return Ok(active.id);
        }
        // Numbers of a write that failed are used again only where that write was: a crash may bring it back.
        self.next_seq = self.next_seq.max(self.behind_highest);
        let id = SegmentId {
            first: self.next_seq,
            epoch: self.epoch(),
        };
        let path = self.source.directory.join(id.file_name());
        let file = self.source.filesystem.open(&path, OpenMode::CreateNew)?;
        let header = id.header(self.source.clock.wall(), self.last_seq);
        if let Err(error) = write_all(&*file, &mut [IoSlice::new(&header)], 0) {
            // An empty segment is no harm, and removed at the next start if it is not now.
            let _ = self.source.filesystem.remove(&path);
            return Err(error);
        }
        self.next_seq += 1;
        self.active = Some(Active {
            id,
            file,
            offset: HEADER_BYTES,
            named: false,
            unsynced: true,
        });
        Ok(id)
    }

    /// Random, so that nobody can make a payload that looks like a record.
    fn epoch(&self) -> u64 {
        match self.seed {
            Some(seed) => seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.next_seq,
            None => RandomState::new().hash_one(self.next_seq),
        }
    }

    /// Writes records behind each other into the segment that was begun. After an error none of them is there.
    pub fn write(&mut self, entries: &[Entry<'_>]) -> io::Result<Vec<Written>> {
        let Some(active) = &mut self.active else {
            return Err(io::Error::other("no segment was begun"));
        };
        let (now, wall) = (self.source.clock.now(), self.source.clock.wall());
        let mut offset = active.offset;
        let mut written = Vec::with_capacity(entries.len());
        let mut heads = Vec::with_capacity(entries.len());
        self.headers.clear();
        for entry in entries {
            let payload = entry.payload;
            let received_at = wall.checked_sub(now.saturating_duration_since(payload.received_at));
            let mut header = Header {
                kind: Kind::Payload,
                epoch: active.id.epoch,
                seq: self.next_seq,
                received_at_nanos: nanos(received_at.unwrap_or(wall)),
                body_crc: crc32c::crc32c(&entry.stored),
                stored_bytes: length(entry.stored.len())?,
                inflated_bytes: length(payload.body.len())?,
                items: length(payload.items as usize)?,
                signal: payload.signal,
                wire_format: payload.wire_format,
                encoding: entry.encoding,
                tenant: tenant_name(&self.source.tenants, payload.tenant),
                refusal: entry.refusal.cloned().map(Box::new),
                header_bytes: 0,
            };
            let from = self.headers.len();
            header.encode(&mut self.headers);
            heads.push(from..self.headers.len());
            let place = Place {
                segment: active.id.first,
                offset,
            };
            written.push(Written {
                seq: self.next_seq,
                place,
                received_at_nanos: header.received_at_nanos,
            });
            self.next_seq += 1;
            offset += header.record_bytes();
        }
        self.behind_highest = self.behind_highest.max(self.next_seq);
        let mut slices = Vec::with_capacity(entries.len() * 3);
        for (entry, head) in entries.iter().zip(heads) {
            let stored = entry.stored.len();
            slices.push(IoSlice::new(&self.headers[head]));
            slices.push(IoSlice::new(&entry.stored));
            slices.push(IoSlice::new(
                &PADDING[..stored.next_multiple_of(ALIGNMENT as usize) - stored],
            ));
        }
        active.unsynced = true;
        if let Err(error) = write_all(&*active.file, &mut slices, active.offset) {
            // What was written behind the last whole record is cut off, and its numbers are free again; where that fails, nothing
            // more is written to the segment.
            match (active.file.truncate(active.offset), written.first()) {
                (Ok(()), Some(first)) => self.next_seq = first.seq,
                _ => self.active = None,
            }
            return Err(error);
        }
        active.offset = offset;
        Ok(written)
    }

    /// Makes everything written survive a crash of the machine. After an error the segment is given up, cut to
    /// `sound_bytes` if that is possible: the next sync might succeed and mean nothing.
    pub fn sync(&mut self, sound_bytes: u64) -> io::Result<()> {
        let Some(active) = &mut self.active else {
            return Ok(());
        };
        if !active.unsynced {
            return Ok(());
        }
        let synced = active.file.sync_data().and_then(|()| match active.named {
            true => Ok(()),
            false => self.source.filesystem.sync_directory(&self.source.directory),
        });
        match synced {
            Ok(()) => {
                active.named = true;
                active.unsynced = false;
                Ok(())
            }
            Err(error) => {
                // What it fails to cut off was never acknowledged: at worst it is delivered although it was refused.
                let _ = active.file.truncate(sound_bytes);
                self.active = None;
                Err(error)
            }
        }
    }

    /// Ends the segment being written with a footer; returns its size. Without a footer, for want of space, it is
    /// scanned at the next start: that is all.
    pub fn seal(&mut self, contents: &Contents, sync: bool) -> io::Result<u64> {
        let Some(active) = &mut self.active else {
            return Ok(0);
        };
        let footer = contents.seal(active.id, active.offset, &self.source.tenants);
        let written = write_all(&*active.file, &mut [IoSlice::new(&footer)], active.offset);
        active.unsynced = true;
        if let Err(error) = written {
            let _ = active.file.truncate(active.offset);
            self.active = None;
            return Err(error);
        }
        let size_bytes = active.offset + footer.len() as u64;
        let synced = match sync {
            true => active.file.sync_data(),
            false => Ok(()),
        };
        self.active = None;
        synced.map(|()| size_bytes)
    }

    /// The file of a segment.
    pub fn path(&self, id: SegmentId) -> std::path::PathBuf {
        self.source.directory.join(id.file_name())
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.source.directory
    }
}

fn length(bytes: usize) -> io::Result<u32> {
    u32::try_from(bytes).map_err(|_| {
        io::Error::new(
            io::ErrorKind::FileTooLarge,
            "a payload of 4 GiB or more cannot be stored",
        )
    })
}

/// Writes all of `slices` at `offset`.
pub(crate) fn write_all(file: &dyn File, mut slices: &mut [IoSlice<'_>], mut offset: u64) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        let some = slices.len().min(MAX_SLICES);
        match file.write_vectored_at(&slices[..some], offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                IoSlice::advance_slices(&mut slices, count);
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
