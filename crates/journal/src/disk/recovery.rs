//! Opening a directory: what is in it, and where every exporter is.
//!
//! Nothing but footers is written, so doing it again finds the same. Segments with a footer are not read, but for those
//! of which an exporter has settled a part and not the rest: how long a start takes does not depend on how much waits, nor on how much
//! is settled behind what is tried for ever.

mod left;
mod place;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_payload::Tenants;

use super::lost::{Missing, between};
use super::position::{Position, PositionFile};
use super::reader::{Source, cost};
use super::record::{self, Header};
use super::scan::{Found, Scan};
use super::segment::{Beginning, Contents, HEADER_BYTES, SegmentId, tenant_id};
use super::spill::{Segment, Spill};
use super::unreadable::Unreadable;
use super::{OpenError, escape};
use crate::state::State;
use crate::{File, Filesystem, OpenMode};

/// Ends the names of positions.
pub(crate) const CURSOR_SUFFIX: &str = ".cursor";

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Records that some exporter has not settled.
    pub records: u64,
    /// Places in which something could not be read.
    pub damaged: u64,
    /// Records that are not there any more, once for each exporter that had not settled them.
    pub lost: u64,
    /// Exporters that are not in the configuration any more.
    pub left: Vec<Left>,
    /// Exporters that are back: what was set aside for them waits for them again.
    pub returned: Vec<String>,
    /// Exporters whose position could not be read, and which begin with the oldest record.
    pub lost_positions: Vec<String>,
    /// Exporters that are new, and begin with what comes next.
    pub added: Vec<String>,
}

/// An exporter that is not in the configuration any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// Its id.
    pub exporter: String,
    /// Requests that it had not settled; all that are there, where its position cannot be read.
    pub requests: u64,
    /// The journal of its own in which they are, if there are any.
    pub directory: PathBuf,
}

/// What a segment is found to hold.
struct Scanned {
    contents: Contents,
    /// Where its records end.
    end: u64,
    /// Places that could not be read, but for a torn end.
    damaged: Vec<u64>,
    /// Before the last record that was found.
    missing: Missing,
    /// Each record, if asked for.
    records: Vec<(Header, u64)>,
}

/// Where an opened journal goes on.
pub(crate) struct Numbers {
    /// The number of the next record.
    pub next: u64,
    /// The number of the last record that is there.
    pub last: u64,
}

/// What an exporter's file says; `None`: it is new.
struct Opened {
    file: Option<PositionFile>,
    position: Option<Position>,
}

/// The state of a journal in `source`'s directory, and the positions of its cursors.
pub(crate) fn recover(
    source: &Source,
    state: &mut State,
) -> Result<(Numbers, Vec<PositionFile>, Recovered), OpenError> {
    let failed = |error| OpenError::Io {
        path: source.directory.clone(),
        error,
    };
    let returned = left::bring_back(source, state)?;
    let mut found = look_through(source)?;
    let mut report = Recovered::default();
    let mut opened = open_positions(source, state, &mut report).map_err(failed)?;
    let mut end = 0;
    for position in opened.iter().filter_map(|opened| opened.position.as_ref()) {
        let behind = position.settled.last().map_or(position.floor, |range| range.end);
        found.highest = found.highest.max(behind.max(position.end).saturating_sub(1));
        end = end.max(position.end);
    }
    found
        .missing
        .add(between(found.last, found.is_whole, end.saturating_sub(1)));
    let numbers = Numbers {
        next: found.highest + 1,
        last: found.last,
    };
    left::settle_absence(state, &returned, &mut opened, numbers.next).map_err(failed)?;
    report.returned = returned;
    report.left = left::set_aside(source, state, &found.segments, &numbers)?;

    let at_end = Position {
        floor: numbers.next,
        settled: Vec::new(),
        end: numbers.last + 1,
    };
    let positions: Vec<_> = (opened.iter_mut())
        .map(|opened| opened.position.take().unwrap_or_else(|| at_end.clone()))
        .collect();
    state.end = numbers.next;
    let LookedThrough {
        mut segments,
        mut missing,
        ..
    } = found;
    let lags = place::place(source, state, &mut segments, &positions, &mut missing).map_err(failed)?;
    report.damaged = (segments.values())
        .map(|segment| segment.unreadable.count())
        .sum();
    // Of one that is not known, nobody knows what it had settled.
    let known = positions
        .iter()
        .filter(|position| **position != Position::default());
    report.lost = known.map(|position| missing.lost_to(position)).sum();
    report.records = (0..state.cursor_count())
        .map(|index| state.cursors[index].backlog.requests)
        .max()
        .unwrap_or(0);
    state.spill = Some(Box::new(Spill {
        segments,
        lags,
        damaged: report.damaged,
        lost: report.lost,
        stored_until: numbers.last + 1,
        ..Spill::default()
    }));
    let files = (opened.into_iter().enumerate()).map(|(index, opened)| match opened.file {
        Some(file) => Ok(file),
        None => {
            let exporter = state.exporter(index);
            let path = source.directory.join(cursor_name(exporter));
            PositionFile::create(&*source.filesystem, &path, exporter, &at_end)
        }
    });
    let files = files.collect::<io::Result<Vec<_>>>().map_err(failed)?;
    source
        .filesystem
        .sync_directory(&source.directory)
        .map_err(failed)?;
    Ok((numbers, files, report))
}

/// All segments of a directory.
pub(crate) struct LookedThrough {
    pub segments: BTreeMap<u64, Segment>,
    /// The highest number that may be in use.
    pub highest: u64,
    /// The number of the last record.
    pub last: u64,
    /// The segment it is in was sealed: nobody can have cut anything off.
    is_whole: bool,
    missing: Missing,
}

/// Looks into every segment of `source`'s directory; those without a footer get one.
pub(crate) fn look_through(source: &Source) -> Result<LookedThrough, OpenError> {
    let names = source.filesystem.list(&source.directory);
    let names = names.map_err(|error| OpenError::Io {
        path: source.directory.clone(),
        error,
    })?;
    let mut ids: Vec<_> = names.iter().filter_map(|name| SegmentId::parse(name)).collect();
    ids.sort_unstable();
    let mut all = LookedThrough {
        segments: BTreeMap::new(),
        highest: 0,
        last: 0,
        is_whole: false,
        missing: Missing::default(),
    };
    for id in ids {
        let Some(one) = look_into(source, id, &mut all)? else {
            continue;
        };
        if let Some(beginning) = one.beginning {
            all.missing
                .add(between(all.last, all.is_whole, beginning.follows));
        }
        let contents = &one.segment.contents;
        all.highest = all.highest.max(id.first).max(contents.last);
        if !contents.is_empty() {
            all.last = contents.last;
            all.is_whole = one.was_sealed;
        }
        all.segments.insert(id.first, one.segment);
    }
    Ok(all)
}

fn open_positions(source: &Source, state: &State, report: &mut Recovered) -> io::Result<Vec<Opened>> {
    let mut all = Vec::new();
    for index in 0..state.cursor_count() {
        let exporter = state.exporter(index);
        let path = source.directory.join(cursor_name(exporter));
        let (file, position) = PositionFile::open(&*source.filesystem, &path, exporter)?.unzip();
        let position = match position {
            None => {
                report.added.push(exporter.to_owned());
                None
            }
            Some(None) => {
                report.lost_positions.push(exporter.to_owned());
                Some(Position::default())
            }
            Some(sound) => sound,
        };
        all.push(Opened { file, position });
    }
    Ok(all)
}

pub(crate) fn cursor_name(exporter: &str) -> String {
    format!("{}{CURSOR_SUFFIX}", escape(exporter))
}

/// A segment that is there.
struct LookedInto {
    segment: Segment,
    beginning: Option<Beginning>,
    /// Nobody can have cut anything off it.
    was_sealed: bool,
}

/// One segment by its footer, or by a scan if it has none.
fn look_into(
    source: &Source,
    id: SegmentId,
    all: &mut LookedThrough,
) -> Result<Option<LookedInto>, OpenError> {
    let path = source.directory.join(id.file_name());
    let failed = |error| OpenError::Io {
        path: path.clone(),
        error,
    };
    let file = source.filesystem.open(&path, OpenMode::Read).map_err(failed)?;
    let size_bytes = file.size_bytes().map_err(failed)?;
    let beginning = Beginning::read(&*file, id);
    if let Some(newer) = beginning.filter(|of| of.version > u16::from(record::VERSION)) {
        let version = newer.version;
        return Err(OpenError::Newer { path, version });
    }
    // A footer that cannot be read is none.
    let sealed = Contents::read(&*file, size_bytes, id, &source.tenants).unwrap_or_default();
    if let Some((contents, end)) = sealed {
        let mut unreadable = Unreadable::default();
        if beginning.is_none() {
            unreadable.add(0);
        }
        let segment = Segment {
            id,
            contents,
            end,
            size_bytes,
            closed: true,
            damaged: beginning.is_none(),
            unreadable,
        };
        return Ok(Some(LookedInto {
            segment,
            beginning,
            was_sealed: true,
        }));
    }
    let scanned =
        scan(source, file.into(), id, size_bytes, true, false).map_err(|version| OpenError::Newer {
            path: path.clone(),
            version,
        })?;
    all.missing.extend(scanned.missing);
    let damaged = !scanned.damaged.is_empty();
    if scanned.contents.is_empty() && !damaged {
        source.filesystem.remove(&path).map_err(failed)?;
        return Ok(None);
    }
    let mut segment = Segment {
        id,
        contents: scanned.contents,
        end: scanned.end,
        size_bytes,
        closed: true,
        damaged,
        unreadable: Unreadable::default(),
    };
    segment.unreadable.extend(scanned.damaged);
    // The next start need not scan it again. Without space for it, or on a read-only disk, it will.
    let (filesystem, contents) = (&*source.filesystem, &segment.contents);
    if let Ok(size_bytes) = seal(filesystem, &path, id, contents, segment.end, &source.tenants) {
        segment.size_bytes = size_bytes;
    }
    Ok(Some(LookedInto {
        segment,
        beginning,
        was_sealed: false,
    }))
}

/// Gives a segment whose records end at `end` a footer; returns its size.
pub(crate) fn seal(
    filesystem: &dyn Filesystem,
    path: &Path,
    id: SegmentId,
    contents: &Contents,
    end: u64,
    tenants: &Tenants,
) -> io::Result<u64> {
    let file = filesystem.open(path, OpenMode::Write)?;
    // A torn end is cut off; damage that has records behind it stays where it is.
    file.truncate(end)?;
    let footer = contents.seal(id, end, tenants);
    let written = super::log::write_all(&*file, &mut [io::IoSlice::new(&footer)], end);
    if let Err(error) = written.and_then(|()| file.sync_data()) {
        let _ = file.truncate(end);
        return Err(error);
    }
    Ok(end + footer.len() as u64)
}

/// Walks through a segment.
fn scan(
    source: &Source,
    file: Arc<dyn File>,
    id: SegmentId,
    end: u64,
    bodies: bool,
    keep: bool,
) -> Result<Scanned, u16> {
    let begin = Beginning::records_at(Beginning::read(&*file, id));
    let mut scan = Scan::new(file, id.epoch, begin, end);
    let mut scanned = Scanned {
        contents: Contents::default(),
        end: HEADER_BYTES,
        damaged: Vec::new(),
        missing: Missing::default(),
        records: Vec::new(),
    };
    let mut next = id.first + 1;
    while let Some(found) = scan.next(bodies) {
        match found {
            Found::Record(header, _) if header.seq < next => {}
            Found::Record(header, offset) => {
                scanned.missing.add(next..header.seq);
                next = header.seq + 1;
                let tenant = tenant_id(&source.tenants, &header.tenant);
                let contents = &mut scanned.contents;
                contents.add(header.seq, header.received_at_nanos, tenant, cost(&header));
                scanned.end = scan.offset().min(end);
                if keep {
                    scanned.records.push((header, offset));
                }
            }
            // Nobody was told that it is there.
            Found::Damage { torn: true, .. } => {}
            Found::Damage { at, .. } => {
                scanned.damaged.push(at);
                scanned.end = scan.offset();
            }
            Found::Newer(version) => return Err(u16::from(version)),
        }
    }
    Ok(scanned)
}

#[cfg(test)]
mod tests;
