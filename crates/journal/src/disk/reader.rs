//! Reading a backlog back, in order and a little ahead of the cursor.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_payload::{Encoding, Frame, Payload, Tenants};

use super::body::Inflater;
use super::record::Header;
use super::scan::{Found, Scan};
use super::segment::{Beginning, HEADER_BYTES, SegmentId, tenant_id, time};
use super::spill::{Passing, Place, ReadFrom};
use crate::{Clock, Cost, Filesystem, OpenMode};

/// Inflated bytes read ahead of a cursor; one record at least.
const AHEAD_BYTES: u64 = 1 << 20;

/// Records read ahead of a cursor.
const AHEAD_RECORDS: usize = 1024;

/// A record that was read, and its payload, if bodies are read.
#[derive(Debug)]
pub(crate) struct ReadRecord {
    pub passing: Passing,
    pub payload: Option<Arc<Payload>>,
}

/// What every reader of a journal needs.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub filesystem: Arc<dyn Filesystem>,
    pub directory: PathBuf,
    pub clock: Arc<dyn Clock>,
    pub tenants: Tenants,
    /// Frames of these encodings are of use to an exporter.
    pub frames: Vec<Encoding>,
}

/// A reader that its cursor shares with the writer, which never waits for it: a read may take as long as the disk likes, and everybody
/// who waits for the writer would wait too.
#[derive(Debug)]
pub(crate) struct CursorReader {
    /// Whoever had it locked calls [`let_go_of_removed`](Self::let_go_of_removed) after.
    pub reader: Mutex<Reader>,
    /// Somebody is reading; the cursor is told when it is done.
    pub filling: AtomicBool,
    /// Segments whose first number is below this were removed, and may still be open; 0: none.
    removed_below: AtomicU64,
}

impl CursorReader {
    pub fn new(reader: Reader) -> Self {
        Self {
            reader: Mutex::new(reader),
            filling: AtomicBool::new(false),
            removed_below: AtomicU64::new(0),
        }
    }

    /// Lets go of a segment that was removed: now, or when whoever reads is done.
    pub fn let_go(&self, first: u64) {
        self.removed_below
            .fetch_max(first.saturating_add(1), Ordering::SeqCst);
        self.let_go_of_removed();
    }

    /// Lets go of what was removed while the reader was locked.
    pub fn let_go_of_removed(&self) {
        loop {
            // Between a note and the look at the lock there, and between the unlocking and the look for a note here: so one of the two
            // sees what the other did.
            fence(Ordering::SeqCst);
            if self.removed_below.load(Ordering::SeqCst) == 0 {
                return;
            }
            let Some(mut reader) = self.reader.try_lock() else {
                return;
            };
            if let Some(first) = self.removed_below.swap(0, Ordering::SeqCst).checked_sub(1) {
                reader.let_go(first);
            }
        }
    }
}

/// One cursor's reader.
pub(crate) struct Reader {
    source: Source,
    bodies: bool,
    inflater: Inflater,
    scan: Option<(SegmentId, Scan)>,
    /// Read, and not handed out yet.
    pub ahead: VecDeque<ReadRecord>,
    /// Everything below this number has been read, or is not there.
    pub until: Option<u64>,
    /// Places that could not be read.
    pub damaged: Vec<Place>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reader({:?})", self.scan)
    }
}

impl Reader {
    /// A reader of records; without `bodies`, which are checked all the same, of what they are only.
    pub fn new(source: Source, bodies: bool) -> Self {
        Self {
            source,
            bodies,
            inflater: Inflater::new(),
            scan: None,
            ahead: VecDeque::new(),
            until: None,
            damaged: Vec::new(),
        }
    }

    /// Lets go of a segment that was removed, which no cursor needs: its space is free when nobody has it open.
    pub fn let_go(&mut self, first: u64) {
        if self.scan.as_ref().is_some_and(|(id, _)| id.first <= first) {
            self.scan = None;
        }
    }

    /// Reads on; call it when nothing is ahead.
    pub fn fill(&mut self, from: &ReadFrom) -> io::Result<()> {
        self.until = None;
        let mut next = from.next;
        let mut room = AHEAD_BYTES;
        if self
            .scan
            .as_ref()
            .is_some_and(|(id, scan)| (id.first, scan.offset()) < (from.place.segment, from.place.offset))
        {
            self.scan = None;
        }
        for (id, end) in &from.segments {
            let at = self.scan.as_ref().map(|(at, _)| *at);
            if at.is_some_and(|at| at > *id) {
                continue;
            }
            if at != Some(*id) {
                let path = self.source.directory.join(id.file_name());
                match self.source.filesystem.open(&path, OpenMode::Read) {
                    Ok(file) => {
                        let in_midst = id.first == from.place.segment && from.place.offset > HEADER_BYTES;
                        let offset = match in_midst {
                            true => from.place.offset,
                            false => Beginning::records_at(Beginning::read(&*file, *id)),
                        };
                        self.scan = Some((*id, Scan::new(file.into(), id.epoch, offset, *end)));
                    }
                    // Somebody removed it by hand: what was in it is missing, as if it were damaged.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        self.damaged.push(Place {
                            segment: id.first,
                            offset: 0,
                        });
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            let Some((_, scan)) = &mut self.scan else { continue };
            scan.extend(*end);
            let place_at = |offset| Place {
                segment: id.first,
                offset,
            };
            while let Some(found) = scan.next(true) {
                let (header, offset) = match found {
                    Found::Record(header, offset) => (header, offset),
                    Found::Damage { at, .. } => {
                        self.damaged.push(place_at(at));
                        continue;
                    }
                    // Nobody knows how long it is.
                    Found::Newer(_) => {
                        self.damaged.push(place_at(scan.offset()));
                        break;
                    }
                };
                if header.seq < next {
                    continue;
                }
                let place = place_at(offset);
                let Ok(record) = self
                    .source
                    .record(&mut self.inflater, &header, place, scan, self.bodies)
                else {
                    self.damaged.push(place);
                    continue;
                };
                next = header.seq + 1;
                room = room.saturating_sub(u64::from(header.inflated_bytes));
                self.ahead.push_back(record);
                if room == 0 || self.ahead.len() >= AHEAD_RECORDS {
                    return Ok(());
                }
            }
        }
        self.until = Some(from.until);
        Ok(())
    }
}

impl Source {
    fn record(
        &self,
        inflater: &mut Inflater,
        header: &Header,
        place: Place,
        scan: &Scan,
        bodies: bool,
    ) -> io::Result<ReadRecord> {
        let now = self.clock.now();
        let age = self.clock.wall().duration_since(time(header.received_at_nanos));
        let passing = Passing {
            seq: header.seq,
            place,
            tenant: tenant_id(&self.tenants, &header.tenant),
            cost: cost(header),
            // A time of day that was set back makes it look new: an age is for people, and nothing depends on it.
            received_at: now.checked_sub(age.unwrap_or_default()).unwrap_or(now),
        };
        let payload = match bodies {
            false => None,
            true => {
                let stored = scan.body();
                let body = inflater.inflate(header.encoding, stored, header.inflated_bytes as usize)?;
                let wanted = self.frames.contains(&header.encoding);
                let frame = wanted.then(|| Frame {
                    encoding: header.encoding,
                    bytes: Bytes::copy_from_slice(stored),
                });
                Some(Arc::new(Payload {
                    signal: header.signal,
                    wire_format: header.wire_format,
                    body,
                    frame,
                    items: u64::from(header.items),
                    tenant: passing.tenant,
                    received_at: passing.received_at,
                    permit: None,
                }))
            }
        };
        Ok(ReadRecord { passing, payload })
    }
}

/// What a record counts for.
pub(crate) fn cost(header: &Header) -> Cost {
    Cost {
        requests: 1,
        items: u64::from(header.items),
        bytes: u64::from(header.inflated_bytes),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::testing::SimulatedDisk;

    /// Scenario: a segment is removed while its reader reads it, and another one while nobody reads.
    /// Guarantees: who removes it does not wait; it is let go of when the reader is done, at the latest; a later one is kept.
    #[test]
    fn who_removes_a_segment_waits_for_no_reader() {
        let disk = SimulatedDisk::default();
        disk.create_directories(Path::new("d")).unwrap();
        let file: Arc<dyn crate::File> = disk.open(Path::new("d/s"), OpenMode::Append).unwrap().into();
        let source = Source {
            filesystem: Arc::new(disk),
            directory: "d".into(),
            clock: Arc::new(crate::SystemClock),
            tenants: Tenants::default(),
            frames: Vec::new(),
        };
        let mine = CursorReader::new(Reader::new(source, true));
        let open = |first| Some((SegmentId { first, epoch: 1 }, Scan::new(file.clone(), 1, 0, 0)));
        let is_open = || mine.reader.lock().scan.is_some();

        let mut reading = mine.reader.lock();
        reading.scan = open(7);
        mine.let_go(7);
        mine.let_go(3);
        assert!(reading.scan.is_some());
        drop(reading);
        mine.let_go_of_removed();
        assert!(!is_open());

        mine.reader.lock().scan = open(8);
        mine.let_go(7);
        assert!(is_open());
        mine.let_go(8);
        assert!(!is_open());
    }
}
