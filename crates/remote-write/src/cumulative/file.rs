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
//! | 2 | version, 1. It changes with what hashes of labels are made of, too |
//! | 2 | zeros |
//! | 8 | the seed of the second hash in keys |
//! | 4 | CRC32C of those |
//!
//! Records follow, each of 16 bytes (kind, 3 zeros, length of what follows them, CRC32C of it, CRC32C of these 12 bytes) and changes as in `record.rs`:
//! first totals, as many records as they take, an empty one that ends them, then a record for each request. When it has doubled,
//! and grown by more than [`LOG_BYTES`], the file is written anew under another name, with the last requests again, synced and renamed.
//!
//! A record that is cut off by the end of the file, or zeros, are of a request that was not sent. Anything else that does not fit its checksum is damage: then
//! nobody knows what is missing, and all totals begin anew, as they do where there is no file, or when it could not be written.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_journal::{File, Filesystem, OpenMode};

use super::record;
use super::total::{Change, Key, Total};

const MAGIC: [u8; 4] = *b"SLrT";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 20;
const FRAME_BYTES: usize = 16;

/// Kinds of records.
const TOTALS: u8 = 1;
const END_OF_TOTALS: u8 = 2;
const CHANGES: u8 = 3;

/// A file grows by so much at least before it is written anew: some 100,000 points.
const LOG_BYTES: u64 = 4 << 20;

/// Of the last requests so much goes into the new file, and at least so many: those that may come again. They are the one under way, the one
/// encoded meanwhile, and those of which the queue had not written down yet that they are done, which takes it a second at most.
const KEPT_BYTES: u64 = 256 << 10;
const KEPT_REQUESTS: usize = 16;

/// Totals are written in records of about this size.
const TOTALS_BYTES: usize = 256 << 10;

/// A longer record was never written: the changes of a request take a few times what the request does.
const MAX_RECORD_BYTES: u64 = 1 << 30;

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
}

impl Fault {
    pub const ALL: [Fault; 3] = [Fault::Absent, Fault::Damaged, Fault::Unwritten];

    pub fn as_str(self) -> &'static str {
        match self {
            Fault::Absent => "absent",
            Fault::Damaged => "damaged",
            Fault::Unwritten => "unwritten",
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

    /// Reads the file: each total first, then what the last requests changed, with true. Returns the seed of its keys.
    ///
    /// # Errors
    /// When totals begin anew; what was visited until then counts for nothing.
    pub fn read(&mut self, visit: &mut dyn FnMut(bool, Change)) -> Result<u64, Fault> {
        let path = self.settings.path.clone();
        let path = path.display();
        match self.try_read(visit) {
            Ok(Read::Until(end, seed)) => {
                let open = self.open.as_mut();
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
        };
        let read = open.read(size, visit)?;
        self.open = Some(open);
        Ok(read)
    }

    /// Writes what a request has changed, before it is sent. `totals` are those after it.
    ///
    /// # Errors
    /// When it could not be written, and there is nothing in the file any more.
    pub fn write(
        &mut self,
        changes: &[Change],
        seed: u64,
        totals: &HashMap<Key, Total>,
    ) -> Result<(), Fault> {
        let mut bytes = vec![0; FRAME_BYTES];
        changes.iter().for_each(|change| record::put(&mut bytes, change));
        frame(&mut bytes, CHANGES);
        let written = match &mut self.open {
            Some(open) => open.append(&bytes, self.settings.synced),
            None if self.pause > 0 => {
                self.pause -= 1;
                return Err(Fault::Unwritten);
            }
            None => self.write_anew(&bytes, seed, totals),
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
            && let Err(error) = self.write_anew(&[], seed, totals)
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
    fn write_anew(&mut self, more: &[u8], seed: u64, totals: &HashMap<Key, Total>) -> io::Result<()> {
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
        };
        let made = new.fill(self.open.as_ref(), more, seed, totals).and_then(|()| {
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

    fn fill(
        &mut self,
        old: Option<&Open>,
        more: &[u8],
        seed: u64,
        totals: &HashMap<Key, Total>,
    ) -> io::Result<()> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&[0; 2]);
        header.extend_from_slice(&seed.to_le_bytes());
        header.extend_from_slice(&crc32c::crc32c(&header).to_le_bytes());
        self.put(&header)?;
        let mut bytes = vec![0; FRAME_BYTES];
        for (key, total) in totals {
            record::put(&mut bytes, &Change::Added(*key, total.clone()));
            if bytes.len() >= TOTALS_BYTES {
                frame(&mut bytes, TOTALS);
                self.put(&bytes)?;
                bytes.truncate(FRAME_BYTES);
            }
        }
        frame(&mut bytes, TOTALS);
        self.put(&bytes)?;
        bytes.truncate(FRAME_BYTES);
        frame(&mut bytes, END_OF_TOTALS);
        self.put(&bytes)?;
        for (at, len) in old.iter().flat_map(|old| &old.last) {
            bytes.resize(*len as usize, 0);
            if let Some(old) = old {
                read_exact(&*old.file, &mut bytes, *at)?;
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
        while self.last.len() > KEPT_REQUESTS && self.last_bytes > KEPT_BYTES {
            self.last_bytes -= self.last.pop_front().map_or(0, |(_, len)| len);
        }
    }

    fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.file.write_at(bytes, self.end)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => {
                    self.end += written as u64;
                    bytes = &bytes[written..];
                }
            }
        }
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

    fn read(&mut self, size: u64, visit: &mut dyn FnMut(bool, Change)) -> io::Result<Read> {
        let mut header = [0; HEADER_BYTES];
        if size < HEADER_BYTES as u64 {
            return Ok(Read::Damaged);
        }
        read_exact(&*self.file, &mut header, 0)?;
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
            // Cut off by the end: it was being written when the process went.
            let cut = if is_log {
                Read::Until(at, seed)
            } else {
                Read::Damaged
            };
            let left = size - at;
            if left < FRAME_BYTES as u64 {
                return Ok(cut);
            }
            read_exact(&*self.file, &mut head, at)?;
            let (said, crc) = head.split_at(FRAME_BYTES - 4);
            if crc != crc32c::crc32c(said).to_le_bytes() {
                // A machine that went may leave zeros where the end was to be.
                let is_empty = is_zero(&*self.file, at, size)?;
                return Ok(if is_empty { cut } else { Read::Damaged });
            }
            let number = |at: usize| said[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
            let (kind, len, crc) = (said[0], u64::from(number(4)), number(8));
            let end = at + FRAME_BYTES as u64 + len;
            if end > size {
                return Ok(cut);
            }
            if len > MAX_RECORD_BYTES {
                return Ok(Read::Damaged);
            }
            bytes.resize(len as usize, 0);
            read_exact(&*self.file, &mut bytes, at + FRAME_BYTES as u64)?;
            if crc != crc32c::crc32c(&bytes) {
                return Ok(Read::Damaged);
            }
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

fn read_exact(file: &dyn File, mut buffer: &mut [u8], mut at: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match file.read_at(buffer, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                at += read as u64;
                buffer = &mut buffer[read..];
            }
        }
    }
    Ok(())
}

fn is_zero(file: &dyn File, mut at: u64, size: u64) -> io::Result<bool> {
    let mut buffer = [0; 4096];
    while at < size {
        let wanted = (size - at).min(buffer.len() as u64) as usize;
        read_exact(file, &mut buffer[..wanted], at)?;
        if buffer[..wanted].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += wanted as u64;
    }
    Ok(true)
}
