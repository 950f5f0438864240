//! Putting a damaged journal in order while nobody has it open: afterwards an inspection finds nothing.
//!
//! A gateway does not need it: it opens any journal and delivers what can be read. It is for who wants the damage out of
//! the way. A segment with damage is written anew from its sound records, and kept in `damaged/`; where numbers are missing,
//! a new segment begins, for within one they are contiguous. What is written anew is there before the old is moved, so that
//! an interruption costs nothing: a second repair ends it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_payload::Tenants;

use super::inspect::unescape;
use super::log::write_all;
use super::lost::{between, unsettled};
use super::position::{self, Position, PositionFile};
use super::reader::cost;
use super::recovery::{CURSOR_SUFFIX, seal};
use super::scan::{Found, Scan};
use super::segment::{Beginning, Contents, HEADER_BYTES, SegmentId, tenant_id, time};
use super::{LOCK_NAME, OpenError};
use crate::{File, Filesystem, OpenMode};

/// What was put in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Segments that were written anew; the old ones are in `damaged/`.
    pub segments: Vec<String>,
    /// Positions that were written anew.
    pub positions: Vec<String>,
    /// Records in the segments that were written anew.
    pub records: u64,
}

/// Puts the journal in `directory` in order.
///
/// # Errors
/// [`OpenError`]: somebody has it open, a newer version wrote it, or it cannot be read or written.
pub fn repair(filesystem: &dyn Filesystem, directory: &Path) -> Result<Repaired, OpenError> {
    let failed = |error| OpenError::Io {
        path: directory.to_owned(),
        error,
    };
    let path = directory.join(LOCK_NAME);
    let lock = filesystem.open(&path, OpenMode::Write).map_err(failed)?;
    lock.try_lock().map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => OpenError::Locked(directory.to_owned()),
        _ => failed(error),
    })?;
    let names = filesystem.list(directory).map_err(failed)?;
    let mut ids: Vec<SegmentId> = names.iter().filter_map(|name| SegmentId::parse(name)).collect();
    ids.sort_unstable();
    let cursors = names.iter().filter_map(|name| name.to_str());
    let cursors: Vec<_> = cursors.filter(|name| name.ends_with(CURSOR_SUFFIX)).collect();
    let first = ids.first().map_or(0, |id| id.first);
    let mut positions = Vec::new();
    for name in &cursors {
        let (_, position, _) = read_position(filesystem, directory, name).map_err(failed)?;
        positions.push(position.unwrap_or_else(|| at_first(first)));
    }
    let mut repair = Repair {
        filesystem,
        directory,
        positions,
        first,
        tenants: Tenants::default(),
        last: 0,
        is_whole: false,
        done: Repaired::default(),
    };
    for id in ids {
        repair.segment(id)?;
    }
    for name in cursors {
        repair.position(name).map_err(failed)?;
    }
    filesystem.sync_directory(directory).map_err(failed)?;
    Ok(repair.done)
}

struct Repair<'a> {
    filesystem: &'a dyn Filesystem,
    directory: &'a Path,
    tenants: Tenants,
    /// What exporters have settled: of that, segments may be gone.
    positions: Vec<Position>,
    /// Nothing is below this number.
    first: u64,
    /// The number of the last record so far.
    last: u64,
    /// Nobody can have cut anything off the segment it is in.
    is_whole: bool,
    done: Repaired,
}

/// A segment being written anew.
struct Anew {
    id: SegmentId,
    file: Box<dyn File>,
    path: PathBuf,
    offset: u64,
    contents: Contents,
}

impl Repair<'_> {
    fn segment(&mut self, id: SegmentId) -> Result<(), OpenError> {
        let path = self.directory.join(id.file_name());
        let failed = |error| OpenError::Io {
            path: path.clone(),
            error,
        };
        let file: Arc<dyn File> = self
            .filesystem
            .open(&path, OpenMode::Read)
            .map_err(failed)?
            .into();
        let beginning = Beginning::read(&*file, id);
        match self.look(&file, id, beginning).map_err(|error| match error {
            Unsound::Newer(version) => OpenError::Newer {
                path: path.clone(),
                version,
            },
            Unsound::Io(error) => failed(error),
        })? {
            State::Sound => {}
            State::Open(contents, end) => {
                seal(self.filesystem, &path, id, &contents, end, &self.tenants).map_err(failed)?;
                self.is_whole = true;
            }
            State::Damaged => {
                self.write_anew(&file, id, beginning).map_err(failed)?;
                let damaged = self.directory.join("damaged");
                self.filesystem.create_directories(&damaged).map_err(failed)?;
                self.filesystem
                    .rename(&path, &damaged.join(id.file_name()))
                    .map_err(failed)?;
                self.filesystem.sync_directory(&damaged).map_err(failed)?;
                self.filesystem.sync_directory(self.directory).map_err(failed)?;
                self.done.segments.push(id.file_name());
            }
        }
        Ok(())
    }

    /// What there is to do about a segment; a sound one is also taken into account.
    fn look(
        &mut self,
        file: &Arc<dyn File>,
        id: SegmentId,
        beginning: Option<Beginning>,
    ) -> Result<State, Unsound> {
        let size_bytes = file.size_bytes()?;
        let sealed = Contents::read(&**file, size_bytes, id, &self.tenants).unwrap_or_default();
        let Some(beginning) = beginning else {
            return Ok(State::Damaged);
        };
        let end = sealed.as_ref().map_or(size_bytes, |(_, end)| *end);
        let mut scan = Scan::new(file.clone(), id.epoch, HEADER_BYTES, end);
        let mut contents = Contents::default();
        let (mut next, mut sound_bytes) = (id.first + 1, HEADER_BYTES);
        while let Some(found) = scan.next(true) {
            match found {
                Found::Record(header, at) if header.seq == next => {
                    if scan.padding(at, &header).iter().any(|byte| *byte != 0) {
                        return Ok(State::Damaged);
                    }
                    next += 1;
                    sound_bytes = scan.offset();
                    let tenant = tenant_id(&self.tenants, &header.tenant);
                    contents.add(header.seq, header.received_at_nanos, tenant, cost(&header));
                }
                Found::Newer(version) => return Err(Unsound::Newer(u16::from(version))),
                Found::Damage { torn: true, .. } if sealed.is_none() => {}
                _ => return Ok(State::Damaged),
            }
        }
        if contents.is_empty() {
            let is_empty = sealed.is_some_and(|(footer, _)| footer.is_empty());
            return Ok(if is_empty { State::Sound } else { State::Damaged });
        }
        let missing = between(self.last, self.is_whole, beginning.follows);
        let nothing_before = (self.positions.iter()).all(|position| unsettled(&missing, position) == 0);
        let is_sealed = sealed.is_some();
        if !nothing_before || sealed.is_some_and(|(footer, _)| footer != contents) {
            return Ok(State::Damaged);
        }
        (self.last, self.is_whole) = (contents.last, is_sealed);
        Ok(match is_sealed {
            true => State::Sound,
            false => State::Open(contents, sound_bytes),
        })
    }

    fn write_anew(
        &mut self,
        file: &Arc<dyn File>,
        id: SegmentId,
        beginning: Option<Beginning>,
    ) -> io::Result<()> {
        let end = file.size_bytes()?;
        let mut scan = Scan::new(file.clone(), id.epoch, Beginning::records_at(beginning), end);
        let mut anew: Option<Anew> = None;
        while let Some(found) = scan.next(true) {
            let mut header = match found {
                Found::Record(header, _) => header,
                Found::Damage { .. } => continue,
                Found::Newer(version) => return Err(super::newer(version)),
            };
            if header.seq <= self.last {
                continue;
            }
            let contiguous = anew.as_ref().is_some_and(|_| header.seq == self.last + 1);
            if !contiguous {
                self.finish(anew.take())?;
            }
            let anew = match &mut anew {
                Some(anew) => anew,
                none => {
                    // Who interrupted an earlier repair may have left one of the same name: other epoch, other name.
                    let id = SegmentId {
                        first: header.seq - 1,
                        epoch: id.epoch.wrapping_add(1),
                    };
                    none.insert(self.begin(id, header.received_at_nanos)?)
                }
            };
            header.epoch = anew.id.epoch;
            let mut record = Vec::new();
            header.encode(&mut record);
            record.extend_from_slice(scan.body());
            record.resize(header.record_bytes() as usize, 0);
            write_all(&*anew.file, &mut [io::IoSlice::new(&record)], anew.offset)?;
            anew.offset += record.len() as u64;
            let tenant = tenant_id(&self.tenants, &header.tenant);
            anew.contents
                .add(header.seq, header.received_at_nanos, tenant, cost(&header));
            self.last = header.seq;
            self.done.records += 1;
        }
        self.finish(anew)
    }

    fn begin(&self, id: SegmentId, created_nanos: u64) -> io::Result<Anew> {
        let path = self.directory.join(id.file_name());
        let file = self
            .filesystem
            .open(&path.with_extension("new"), OpenMode::Write)?;
        file.truncate(0)?;
        let header = id.header(time(created_nanos), self.last);
        write_all(&*file, &mut [io::IoSlice::new(&header)], 0)?;
        Ok(Anew {
            id,
            file,
            path,
            offset: HEADER_BYTES,
            contents: Contents::default(),
        })
    }

    /// Gives a segment its footer and its name.
    fn finish(&mut self, anew: Option<Anew>) -> io::Result<()> {
        let Some(anew) = anew else { return Ok(()) };
        let footer = anew.contents.seal(anew.id, anew.offset, &self.tenants);
        write_all(&*anew.file, &mut [io::IoSlice::new(&footer)], anew.offset)?;
        anew.file.sync_data()?;
        self.filesystem
            .rename(&anew.path.with_extension("new"), &anew.path)?;
        self.filesystem.sync_directory(self.directory)?;
        self.is_whole = true;
        Ok(())
    }

    fn position(&mut self, name: &str) -> io::Result<()> {
        let (exporter, position, damaged_slots) = read_position(self.filesystem, self.directory, name)?;
        let is_sound = position.as_ref().is_some_and(|position| {
            let missing = between(self.last, self.is_whole, position.end.saturating_sub(1));
            damaged_slots == 0 && unsettled(&missing, position) == 0
        });
        if !is_sound {
            let mut position = position.unwrap_or_else(|| at_first(self.first));
            // What is missing is known to be.
            position.end = self.last + 1;
            PositionFile::create(self.filesystem, &self.directory.join(name), &exporter, &position)?;
            self.done.positions.push(exporter);
        }
        Ok(())
    }
}

/// Where an exporter begins whose position is lost.
fn at_first(first: u64) -> Position {
    Position {
        floor: first,
        ..Position::default()
    }
}

/// The exporter of a position's file, the position, and how many slots are damaged.
fn read_position(
    filesystem: &dyn Filesystem,
    directory: &Path,
    name: &str,
) -> io::Result<(String, Option<Position>, usize)> {
    let exporter = unescape(name.strip_suffix(CURSOR_SUFFIX).unwrap_or(name));
    let file = filesystem.open(&directory.join(name), OpenMode::Read)?;
    let (position, damaged_slots) = position::read(&*file, &exporter);
    Ok((exporter, position, damaged_slots))
}

enum State {
    Sound,
    /// It wants its footer: what is in it, and where that ends.
    Open(Contents, u64),
    Damaged,
}

enum Unsound {
    Newer(u16),
    Io(io::Error),
}

impl From<io::Error> for Unsound {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
