//! Reading once more what a cursor was handed and has not settled, for an exporter that lost what it had made of it.

use std::io;
use std::sync::Arc;

use sluice_payload::Payload;

use super::DiskSide;
use super::reader::Reader;
use super::spill::{Place, ReadFrom};
use crate::journal::Shared;

/// Payloads of one cursor, by number. In the order of their numbers they are read one after the other; any other order works, too.
pub struct Again {
    shared: Arc<Shared>,
    index: usize,
    reader: Option<Reader>,
}

impl std::fmt::Debug for Again {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Again({}, {})", self.shared.pipeline, self.index)
    }
}

/// Where a payload is.
enum Found {
    Memory(Arc<Payload>),
    Disk(ReadFrom),
}

impl Again {
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> Self {
        Self {
            shared,
            index,
            reader: None,
        }
    }

    /// The payload of this number; `None` if the cursor has settled it meanwhile, or was never handed it. Blocks while it reads.
    ///
    /// # Errors
    /// When it is there and cannot be read: it may work later, since a disk that fails looks as damage does. Whoever has tried
    /// often enough calls [`Again::give_up`].
    pub fn read(&mut self, seq: u64) -> io::Result<Option<Arc<Payload>>> {
        let from = match self.find(seq) {
            None => return Ok(None),
            Some(Found::Memory(payload)) => return Ok(Some(payload)),
            Some(Found::Disk(from)) => from,
        };
        let Some(disk) = &self.shared.disk else {
            return Ok(None);
        };
        if let Some(mut reader) = self.reader.take()
            && let Some(payload) = read(&mut reader, &from)?
        {
            self.reader = Some(reader);
            return Ok(Some(payload));
        }
        // From the record itself: what was read last is behind it, or far before it.
        let mut reader = disk.reader();
        if let Some(payload) = read(&mut reader, &from)? {
            self.reader = Some(reader);
            return Ok(Some(payload));
        }
        match self.find(seq) {
            None => Ok(None),
            Some(_) => {
                let Place { segment, offset } = from.place;
                let reason = format!(
                    "payload {seq} of the journal of {} cannot be read; it is in the segment that begins with {segment}, at byte {offset}",
                    self.shared.pipeline
                );
                Err(io::Error::new(io::ErrorKind::InvalidData, reason))
            }
        }
    }

    /// Notes that this payload cannot be read, as damage of the journal. It is still to be settled.
    pub fn give_up(&mut self, seq: u64) {
        if let Some(Found::Disk(from)) = self.find(seq) {
            self.shared.state.lock().found_damage(vec![from.place]);
        }
    }

    fn find(&self, seq: u64) -> Option<Found> {
        let mut state = self.shared.state.lock();
        let was_handed = seq < state.cursors[self.index].next;
        let slot = state.slots.get(&seq)?;
        if !was_handed || slot.remaining[self.index] == 0 && slot.cost.items > 0 {
            return None;
        }
        if let Some(payload) = &slot.payload {
            return Some(Found::Memory(payload.clone()));
        }
        let place = slot.place;
        // What is not settled keeps its segment.
        let segment = state.spilled().segments.get(&place.segment);
        Some(Found::Disk(ReadFrom {
            place,
            next: seq,
            segments: segment
                .map(|segment| (segment.id, segment.end))
                .into_iter()
                .collect(),
            until: seq + 1,
        }))
    }
}

fn read(reader: &mut Reader, from: &ReadFrom) -> io::Result<Option<Arc<Payload>>> {
    while reader
        .ahead
        .front()
        .is_some_and(|ahead| ahead.passing.seq < from.next)
    {
        reader.ahead.pop_front();
    }
    if reader.ahead.is_empty() {
        reader.fill(from)?;
    }
    let is_it = reader
        .ahead
        .front()
        .is_some_and(|ahead| ahead.passing.seq == from.next);
    let found = if is_it { reader.ahead.pop_front() } else { None };
    Ok(found.and_then(|record| record.payload))
}

impl DiskSide {
    /// Another reader of the journal's records.
    fn reader(&self) -> Reader {
        Reader::new(self.source.clone(), true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::corruption::{append, open_keeping, read as next, settle};
    use crate::testing::{Fault, Operation, SimulatedDisk};
    use crate::{Cursor, CursorSpec, Limits, OnFull};

    fn spec(exporter: &str) -> CursorSpec {
        CursorSpec {
            exporter: exporter.to_owned(),
            limits: Limits::default(),
            on_full: OnFull::Refuse,
        }
    }

    /// Scenario: thirty records in several segments are handed out, every third one is settled; more wait. Another exporter has read nothing
    /// yet. They are read again in order, then backwards, with and without the same reader; from the disk, and where all is in memory.
    /// Guarantees: what is not settled comes with its number, whatever the order; what is settled, or was not handed out, does not.
    #[test]
    fn what_was_handed_out_is_read_again() {
        for kept_bytes in [0, 1 << 20] {
            let disk = SimulatedDisk::default();
            let (journal, _) = open_keeping(&disk, vec![spec("a"), spec("b")], kept_bytes);
            (0..40).for_each(|id| append(&journal, id));
            let mut handed = Vec::new();
            for _ in 0..30 {
                let (seq, id) = next(&journal).unwrap();
                if id % 3 == 0 {
                    settle(&journal, seq);
                }
                handed.push((seq, id));
            }
            journal.turn();
            let cursor = Cursor::new(journal.0.clone(), 0);
            let mut kept = cursor.again();
            let (last, _) = handed[29];
            assert!(kept.read(last + 1).unwrap().is_none());
            for (seq, id) in handed.iter().chain(handed.iter().rev()) {
                for again in [&mut kept, &mut cursor.again()] {
                    let payload = again.read(*seq).unwrap();
                    assert_eq!(payload.is_some(), id % 3 != 0, "{id}");
                    if let Some(payload) = payload {
                        assert_eq!(payload.body[..8], id.to_le_bytes());
                    }
                }
            }
        }
    }

    /// Scenario: a record was handed out and is not settled, and reading it fails for a while, as often as the scan tries and more.
    /// Then it works, and then the cursor gives it up.
    /// Guarantees: while it fails that is an error and no damage; it comes when reading works; given up, it is counted once.
    #[test]
    fn what_cannot_be_read_now_is_not_gone() {
        let disk = SimulatedDisk::default();
        let (journal, _) = open_keeping(&disk, vec![spec("a")], 0);
        append(&journal, 7);
        let (seq, _) = next(&journal).unwrap();
        let damaged = || journal.0.state.lock().spilled().damaged;
        let mut again = Cursor::new(journal.0.clone(), 0).again();
        disk.fail(Operation::Read, Fault::Io, 1000);
        for _ in 0..3 {
            again.read(seq).unwrap_err();
        }
        disk.mend();
        assert_eq!(damaged(), 0);
        assert_eq!(again.read(seq).unwrap().unwrap().body[..8], 7_u64.to_le_bytes());
        again.give_up(seq);
        again.give_up(seq);
        assert_eq!(damaged(), 1);
        settle(&journal, seq);
        assert!(again.read(seq).unwrap().is_none());
    }
}
