//! The totals of deltas in a file, so that a restart goes on with them.
//!
//! What must hold after a kill: a delta is in its total once, and a point that comes again from the queue gets the total it had. So **what a
//! request has changed is written before its bodies are sent**: the new total of each series and the time of the point that made it. A point
//! that comes again is known by series and time, and is given that total and not added. Whatever was delivered is in the file, then; what is
//! in the file and was not delivered comes again.
//!
//! The file has one process at a time: it is in the directory of the pipeline's queue, which is locked. It begins with a header:
//!
//! | size | what |
//! |---|---|
//! | 4 | magic `SLrT` |
//! | 2 | version, 2. It changes with what hashes of labels are made of, too |
//! | 2 | zeros |
//! | 8 | the seed of the second hash in keys |
//! | 4 | CRC32C of those |
//!
//! Records follow, each of 16 bytes (kind, 3 zeros, length of what follows them, CRC32C of it, CRC32C of these 12 bytes), the time of day when it
//! was written (8, in milliseconds) and changes as in `record.rs`:
//! first totals, as many records as they take, an empty one that ends them, then a record for each request. When it has doubled,
//! and grown by more than [`LOG_BYTES`], the file is written anew under another name, with the last requests again, synced and renamed.
//!
//! A record is written when the one before it is synced. So one that does not fit its checksum, and has no good one behind it, is of a request that was
//! not sent: the power went while it was written, and it is cut off. (So is a last one that was sent and rotted on the disk, which looks the same.) One that
//! has a good one behind it is damage: then nobody knows what is missing, and all totals begin anew, as they do where there is no file, when it could
//! not be written, or when it was last written longer ago than [`STALE_AFTER`]. A file that is begun after a fault of the disk has no requests before
//! that: their points are in the totals, and dropped as out of order if they come again after a kill.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sluice_journal::{File, Filesystem, OpenMode};

use super::record;
use super::total::{Change, Key, Total};
use crate::exporter::BATCHES_AHEAD;

const MAGIC: [u8; 4] = *b"SLrT";
const VERSION: u16 = 2;
const HEADER_BYTES: usize = 20;
const FRAME_BYTES: usize = 16;
const TIME_BYTES: usize = 8;

/// An older file may be one that was left aside for a while: by an older release, or by other settings. What was sent since then is not in it, and
/// counters would go back. A restart takes less.
const STALE_AFTER: Duration = Duration::from_secs(3600);

/// Kinds of records.
const TOTALS: u8 = 1;
const END_OF_TOTALS: u8 = 2;
const CHANGES: u8 = 3;

/// A file grows by so much at least before it is written anew: some 100,000 points.
const LOG_BYTES: u64 = 4 << 20;

/// Of the last requests so much goes into the new file, and at least so many: those that may come again. They are those under way, the one
/// encoded meanwhile, and those of which the queue had not written down yet that they are done, which takes it a second at most; of four pipelines
/// that share the exporter, or of one whose first batch was taken apart.
const KEPT_BYTES: u64 = 256 << 10;
const KEPT_REQUESTS: usize = 4 * LEAST_KEPT_REQUESTS;

/// Beyond so much there are less of them, down to all under way and one of each of the others.
const MAX_KEPT_BYTES: u64 = 8 << 20;
const LEAST_KEPT_REQUESTS: usize = BATCHES_AHEAD + 3;

/// Totals are written in records of about this size.
const TOTALS_BYTES: usize = 256 << 10;

/// A longer record is not written, which is as if it could not be: the changes of a request are bounded (`changes.rs`) by what all totals take.
const MAX_RECORD_BYTES: u64 = 1 << 30;

/// A file is searched in pieces of so much.
const SEARCH_BYTES: usize = 64 << 10;

/// After a file could not be written it is left alone for so many requests.
const PAUSE_REQUESTS: u32 = 32;

/// Where totals are kept over a restart, and how.
#[derive(Debug, Clone)]
pub struct TotalsFile {
    /// The file. Its directory is made when it is not there.
    pub path: PathBuf,
    /// Whether it survives a crash of the machine, too: each request waits for a sync then.
    pub synced: bool,
    /// The file system.
    pub filesystem: Arc<dyn Filesystem>,
}

/// Why totals do not go on after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// There was no file.
    Absent,
    /// It could not be read.
    Damaged,
    /// It could not be written.
    Unwritten,
    /// It was not written for long.
    Stale,
}

impl Fault {
    pub const ALL: [Fault; 4] = [Fault::Absent, Fault::Damaged, Fault::Unwritten, Fault::Stale];

    pub fn as_str(self) -> &'static str {
        match self {
            Fault::Absent => "absent",
            Fault::Damaged => "damaged",
            Fault::Unwritten => "unwritten",
            Fault::Stale => "stale",
        }
    }
}

/// The file of one exporter.
#[derive(Debug)]
pub(super) struct Log {
    settings: TotalsFile,
    open: Option<Open>,
    pause: u32,
    /// [`LOG_BYTES`], but in tests.
    pub(super) log_bytes: u64,
}

#[derive(Debug)]
struct Open {
    file: Box<dyn File>,
    end: u64,
    /// Bytes that it had when it was made; of one that was found, those of its totals.
    made_bytes: u64,
    /// Bytes that it was allowed beside its due, since it could not be written anew.
    beyond: u64,
    /// Where the records of the last requests are.
    last: VecDeque<(u64, u64)>,
    last_bytes: u64,
    /// The newest time of day in its records.
    written_ms: i64,
}

/// What was read of a file.
enum Read {
    /// All of it up to here, and the seed in its header.
    Until(u64, u64),
    Damaged,
}

impl Log {
    pub fn new(settings: TotalsFile) -> Self {
        Self {
            settings,
            open: None,
            pause: 0,
            log_bytes: LOG_BYTES,
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.settings.path
    }

    /// Reads the file: each total first, then what the last requests changed, with true. Returns the seed of its keys. `now_ms` is the time of day.
    ///
    /// # Errors
    /// When totals begin anew; what was visited until then counts for nothing.
    pub fn read(&mut self, now_ms: i64, visit: &mut dyn FnMut(bool, Change)) -> Result<u64, Fault> {
        let path = self.settings.path.clone();
        let path = path.display();
        match self.try_read(visit) {
            Ok(Read::Until(end, seed)) => {
                let open = self.open.as_mut();
                let written_ms = open.as_ref().map_or(now_ms, |open| open.written_ms);
                if now_ms.saturating_sub(written_ms) > STALE_AFTER.as_millis() as i64 {
                    tracing::warn!(file = %path, written_ms, "the totals of deltas were last written more than an hour ago; they begin anew, with a new start time");
                    self.give_up();
                    return Err(Fault::Stale);
                }
                let cut = open.map_or(Ok(()), |open| open.cut(end));
                if let Err(error) = cut {
                    tracing::error!(file = %path, %error, "cannot write the totals of deltas; after a restart they begin anew");
                    self.give_up();
                    return Err(Fault::Unwritten);
                }
                Ok(seed)
            }
            Ok(Read::Damaged) => {
                tracing::error!(file = %path, "the totals of deltas are damaged; they begin anew, with a new start time. Check the disk");
                self.give_up();
                Err(Fault::Damaged)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::info!(file = %path, "there are no totals of deltas; they begin anew");
                Err(Fault::Absent)
            }
            Err(error) => {
                tracing::error!(file = %path, %error, "cannot read the totals of deltas; they begin anew, with a new start time");
                self.give_up();
                Err(Fault::Damaged)
            }
        }
    }

    fn try_read(&mut self, visit: &mut dyn FnMut(bool, Change)) -> io::Result<Read> {
        let TotalsFile { path, filesystem, .. } = &self.settings;
        let size = filesystem.size_bytes(path)?;
        let file = filesystem.open(path, OpenMode::Write)?;
        let mut open = Open {
            file,
            end: 0,
            made_bytes: 0,
            beyond: 0,
            last: VecDeque::new(),
            last_bytes: 0,
            written_ms: i64::MIN,
        };
        let read = open.read(size, visit)?;
        self.open = Some(open);
        Ok(read)
    }

    /// Writes what a request has changed, before it is sent. `totals` are those after it, `now_ms` is the time of day.
    ///
    /// # Errors
    /// When it could not be written, and there is nothing in the file any more.
    pub fn write<'t>(
        &mut self,
        now_ms: i64,
        changes: &[Change],
        seed: u64,
        totals: impl IntoIterator<Item = (&'t Key, &'t Total)> + Clone,
    ) -> Result<(), Fault> {
        let mut bytes = record(now_ms);
        changes.iter().for_each(|change| record::put(&mut bytes, change));
        let is_too_long = bytes.len() as u64 > MAX_RECORD_BYTES;
        frame(&mut bytes, CHANGES);
        let written = match &mut self.open {
            _ if is_too_long => Err(io::ErrorKind::FileTooLarge.into()),
            Some(open) => open.append(&bytes, self.settings.synced),
            None if self.pause > 0 => {
                self.pause -= 1;
                return Err(Fault::Unwritten);
            }
            None => self.write_anew(now_ms, &bytes, seed, totals.clone()),
        };
        if let Err(error) = written {
            let path = self.settings.path.display();
            tracing::error!(file = %path, %error, "cannot write the totals of deltas; after a restart they begin anew until it can be written again");
            self.give_up();
            self.pause = PAUSE_REQUESTS;
            return Err(Fault::Unwritten);
        }
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.is_full(self.log_bytes))
            && let Err(error) = self.write_anew(now_ms, &[], seed, totals)
        {
            // All is in the old one, and it is tried again when there is as much again.
            tracing::warn!(file = %self.settings.path.display(), %error, "cannot write the file of totals anew; it grows meanwhile");
            if let Some(open) = &mut self.open {
                open.beyond += self.log_bytes;
            }
        }
        if self.open.is_some() {
            Ok(())
        } else {
            Err(Fault::Unwritten)
        }
    }

    /// Nothing of the file is to be found by the next process: what is in it would be less than what was sent.
    fn give_up(&mut self) {
        let TotalsFile { path, filesystem, .. } = &self.settings;
        let empty = |open: Open| open.file.truncate(0).and_then(|()| open.file.sync_data());
        let emptied = self.open.take().is_some_and(|open| empty(open).is_ok());
        let directory = path.parent().unwrap_or(path);
        let removed = filesystem.remove(path);
        if let Err(error) = removed.and_then(|()| filesystem.sync_directory(directory))
            && error.kind() != io::ErrorKind::NotFound
            && !emptied
        {
            tracing::error!(file = %path.display(), %error, "cannot remove the totals of deltas either; remove it before the next start, or counters go back");
        }
    }

    /// Writes a file of all totals, of the last requests that are in the old one, and of `more`.
    fn write_anew<'t>(
        &mut self,
        now_ms: i64,
        more: &[u8],
        seed: u64,
        totals: impl IntoIterator<Item = (&'t Key, &'t Total)>,
    ) -> io::Result<()> {
        let TotalsFile {
            path,
            synced,
            filesystem,
        } = &self.settings;
        let directory = path.parent().unwrap_or(path);
        filesystem.create_directories(directory)?;
        let unnamed = path.with_extension("new");
        let file = filesystem.open(&unnamed, OpenMode::Write)?;
        file.truncate(0)?;
        let mut new = Open {
            file,
            end: 0,
            made_bytes: 0,
            beyond: 0,
            last: VecDeque::new(),
            last_bytes: 0,
            written_ms: i64::MIN,
        };
        let made = new
            .fill(self.open.as_ref(), now_ms, more, seed, totals)
            .and_then(|()| {
                if *synced {
                    new.file.sync_data()?;
                }
                filesystem.rename(&unnamed, path)
            });
        if let Err(error) = made {
            let _ = filesystem.remove(&unnamed);
            return Err(error);
        }
        let named = if *synced {
            filesystem.sync_directory(directory)
        } else {
            Ok(())
        };
        self.open = Some(new);
        if named.is_err() {
            // After a crash of the machine the name may be that of the old one again.
            self.give_up();
        }
        named
    }
}

impl Open {
    /// Whether it has doubled, and has grown by more than `least`.
    fn is_full(&self, least: u64) -> bool {
        self.end - self.made_bytes > least.max(self.made_bytes) + self.beyond
    }

    fn fill<'t>(
        &mut self,
        old: Option<&Open>,
        now_ms: i64,
        more: &[u8],
        seed: u64,
        totals: impl IntoIterator<Item = (&'t Key, &'t Total)>,
    ) -> io::Result<()> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&[0; 2]);
        header.extend_from_slice(&seed.to_le_bytes());
        header.extend_from_slice(&crc32c::crc32c(&header).to_le_bytes());
        self.put(&header)?;
        let mut bytes = record(now_ms);
        for (key, total) in totals {
            record::put(&mut bytes, &Change::Added(*key, total.clone()));
            if bytes.len() >= TOTALS_BYTES {
                frame(&mut bytes, TOTALS);
                self.put(&bytes)?;
                bytes.truncate(FRAME_BYTES + TIME_BYTES);
            }
        }
        frame(&mut bytes, TOTALS);
        self.put(&bytes)?;
        bytes.truncate(FRAME_BYTES + TIME_BYTES);
        frame(&mut bytes, END_OF_TOTALS);
        self.put(&bytes)?;
        for (at, len) in old.iter().flat_map(|old| &old.last) {
            bytes.resize(*len as usize, 0);
            if let Some(old) = old {
                old.file.read_exact_at(&mut bytes, *at)?;
            }
            self.put_request(&bytes)?;
        }
        if !more.is_empty() {
            self.put_request(more)?;
        }
        self.made_bytes = self.end;
        Ok(())
    }

    fn append(&mut self, bytes: &[u8], synced: bool) -> io::Result<()> {
        self.put_request(bytes)?;
        if synced { self.file.sync_data() } else { Ok(()) }
    }

    fn put_request(&mut self, bytes: &[u8]) -> io::Result<()> {
        let at = self.end;
        self.put(bytes)?;
        self.remember(at, bytes.len() as u64);
        Ok(())
    }

    fn remember(&mut self, at: u64, len: u64) {
        self.last.push_back((at, len));
        self.last_bytes += len;
        let is_over = |open: &Self| {
            let (requests, bytes) = (open.last.len(), open.last_bytes);
            requests > KEPT_REQUESTS && bytes > KEPT_BYTES
                || requests > LEAST_KEPT_REQUESTS && bytes > MAX_KEPT_BYTES
        };
        while is_over(self) {
            self.last_bytes -= self.last.pop_front().map_or(0, |(_, len)| len);
        }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.end)?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Nothing is behind `end`.
    fn cut(&mut self, end: u64) -> io::Result<()> {
        self.end = end;
        if self.file.size_bytes()? > end {
            self.file.truncate(end)?;
        }
        Ok(())
    }

    /// Reads what follows the `head` of the record at `at`, if all of it is good; returns its kind and where it ends.
    fn record(
        &self,
        head: &[u8; FRAME_BYTES],
        at: u64,
        size: u64,
        bytes: &mut Vec<u8>,
    ) -> io::Result<Option<(u8, u64)>> {
        let Some((kind, len, crc)) = parse(head) else {
            return Ok(None);
        };
        let begin = at + FRAME_BYTES as u64;
        if len > MAX_RECORD_BYTES || begin + len > size {
            return Ok(None);
        }
        bytes.resize(len as usize, 0);
        self.file.read_exact_at(bytes, begin)?;
        Ok((crc == crc32c::crc32c(bytes)).then_some((kind, begin + len)))
    }

    /// Whether there is a good record anywhere behind `at`: then what is at `at` was synced once.
    fn has_record_after(&self, at: u64, size: u64) -> io::Result<bool> {
        let mut window = vec![0; SEARCH_BYTES];
        let mut bytes = Vec::new();
        let mut begin = at + 1;
        while begin + FRAME_BYTES as u64 <= size {
            let len = (size - begin).min(SEARCH_BYTES as u64) as usize;
            self.file.read_exact_at(&mut window[..len], begin)?;
            let heads = window[..len].windows(FRAME_BYTES).filter_map(<[u8]>::first_chunk);
            for (offset, head) in (begin..).zip(heads) {
                if head[0] == CHANGES && self.record(head, offset, size, &mut bytes)?.is_some() {
                    return Ok(true);
                }
            }
            begin += (len - FRAME_BYTES + 1) as u64;
        }
        Ok(false)
    }

    fn read(&mut self, size: u64, visit: &mut dyn FnMut(bool, Change)) -> io::Result<Read> {
        let mut header = [0; HEADER_BYTES];
        if size < HEADER_BYTES as u64 {
            return Ok(Read::Damaged);
        }
        self.file.read_exact_at(&mut header, 0)?;
        let (said, crc) = header.split_at(HEADER_BYTES - 4);
        if said[..4] != MAGIC
            || said[4..6] != VERSION.to_le_bytes()
            || crc != crc32c::crc32c(said).to_le_bytes()
        {
            return Ok(Read::Damaged);
        }
        let seed = said[8..].try_into().map_or(0, u64::from_le_bytes);
        let mut at = HEADER_BYTES as u64;
        let mut is_log = false;
        let mut bytes = Vec::new();
        while at < size {
            let mut head = [0; FRAME_BYTES];
            if size - at >= FRAME_BYTES as u64 {
                self.file.read_exact_at(&mut head, at)?;
            }
            let Some((kind, end)) = self.record(&head, at, size, &mut bytes)? else {
                let is_cut = is_log && !self.has_record_after(at, size)?;
                return Ok(if is_cut {
                    Read::Until(at, seed)
                } else {
                    Read::Damaged
                });
            };
            match (kind, is_log) {
                (END_OF_TOTALS, false) => {
                    is_log = true;
                    self.made_bytes = end;
                }
                (TOTALS, false) => {}
                (CHANGES, true) => self.remember(at, end - at),
                _ => return Ok(Read::Damaged),
            }
            let mut rest = &bytes[..];
            let Some((written_ms, changes)) = rest.split_first_chunk() else {
                return Ok(Read::Damaged);
            };
            self.written_ms = self.written_ms.max(i64::from_le_bytes(*written_ms));
            rest = changes;
            while !rest.is_empty() {
                match record::take(&mut rest) {
                    Some(change) => visit(is_log, change),
                    None => return Ok(Read::Damaged),
                }
            }
            at = end;
        }
        Ok(if is_log {
            Read::Until(at, seed)
        } else {
            Read::Damaged
        })
    }
}

/// What `head` says, unless it is not one: the kind, the length of what follows it, and its CRC.
fn parse(head: &[u8; FRAME_BYTES]) -> Option<(u8, u64, u32)> {
    let (said, crc) = head.split_at(FRAME_BYTES - 4);
    if said[1..4] != [0; 3] || said[0] == 0 || crc != crc32c::crc32c(said).to_le_bytes() {
        return None;
    }
    let number = |at: usize| said[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
    Some((said[0], u64::from(number(4)), number(8)))
}

/// A record without changes, to be [framed](frame) when they are behind it.
fn record(now_ms: i64) -> Vec<u8> {
    let mut bytes = vec![0; FRAME_BYTES];
    bytes.extend_from_slice(&now_ms.to_le_bytes());
    bytes
}

/// Fills in the frame that `bytes` begin with.
fn frame(bytes: &mut [u8], kind: u8) {
    let (head, body) = bytes.split_at_mut(FRAME_BYTES);
    head.fill(0);
    head[0] = kind;
    head[4..8].copy_from_slice(&(body.len() as u32).to_le_bytes());
    head[8..12].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
    let crc = crc32c::crc32c(&head[..12]).to_le_bytes();
    head[12..].copy_from_slice(&crc);
}
