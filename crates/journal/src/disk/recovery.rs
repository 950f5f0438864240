//! Opening a directory: what is in it, and where every exporter is.
//!
//! Nothing but footers is written, so doing it again finds the same. Segments with a footer are not read, but for those
//! that an exporter stands in the middle of.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::position::{Position, PositionFile};
use super::reader::{Source, cost};
use super::record::{self, Header};
use super::scan::{Found, Scan};
use super::segment::{Contents, HEADER_BYTES, SegmentId, Tally, read_exact, tenant_id, version};
use super::spill::{Lag, Place, Segment, Spill};
use super::{OpenError, escape};
use crate::state::State;
use crate::{File, OpenMode};

/// Ends the names of positions.
pub(crate) const CURSOR_SUFFIX: &str = ".cursor";

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Records that some exporter has not settled.
    pub records: u64,
    /// Places in which something could not be read.
    pub damaged: u64,
    /// Exporters that are not in the configuration any more, whose backlog was given up.
    pub released: Vec<String>,
    /// Exporters whose position could not be read, and which begin with the oldest record.
    pub lost_positions: Vec<String>,
    /// Exporters that are new, and begin with what comes next.
    pub added: Vec<String>,
}

/// What a segment is found to hold.
struct Scanned {
    contents: Contents,
    /// Where its records end.
    end: u64,
    /// Places that could not be read, but for a torn end.
    damaged: u64,
    /// Each record, if asked for.
    records: Vec<(Header, u64)>,
}

/// The state of a journal in `source`'s directory, and the positions of its cursors.
pub(crate) fn recover(
    source: &Source,
    state: &mut State,
) -> Result<(u64, Vec<PositionFile>, Recovered), OpenError> {
    let failed = |error| OpenError::Io {
        path: source.directory.clone(),
        error,
    };
    let names = source.filesystem.list(&source.directory).map_err(failed)?;
    let mut report = Recovered::default();
    let mut segments = BTreeMap::new();
    let mut highest = 0;
    for id in names.iter().filter_map(|name| SegmentId::parse(name)) {
        if let Some(segment) = look_into(source, id, &mut report)? {
            highest = highest.max(id.first).max(segment.contents.last);
            segments.insert(id.first, segment);
        }
    }
    find_gaps(&mut segments, &mut report);
    let mut files = Vec::new();
    let mut positions = Vec::new();
    for index in 0..state.cursor_count() {
        let exporter = state.exporter(index);
        let path = source.directory.join(cursor_name(exporter));
        let opened = PositionFile::open(&*source.filesystem, &path, exporter).map_err(failed)?;
        let (file, position) = opened.unzip();
        files.push(file);
        positions.push(match position {
            None => {
                report.added.push(exporter.to_owned());
                None
            }
            Some(None) => {
                report.lost_positions.push(exporter.to_owned());
                Some(Position::default())
            }
            Some(Some(position)) => {
                let behind = position.settled.last().map_or(position.floor, |range| range.end);
                highest = highest.max(behind.saturating_sub(1));
                Some(position)
            }
        });
    }
    let next_seq = highest + 1;
    release(source, state, &names, &mut report).map_err(failed)?;

    let at_end = Position {
        floor: next_seq,
        settled: Vec::new(),
    };
    let positions: Vec<_> = (positions.into_iter())
        .map(|position| position.unwrap_or_else(|| at_end.clone()))
        .collect();
    state.end = next_seq;
    let lags = place(source, state, &mut segments, &positions, &mut report).map_err(failed)?;
    let mut spill = Spill {
        segments,
        lags,
        ..Spill::default()
    };
    spill.damaged = report.damaged;
    report.records = (0..state.cursor_count())
        .map(|index| state.cursors[index].backlog.requests)
        .max()
        .unwrap_or(0);
    state.spill = Some(Box::new(spill));
    let files = files.into_iter().enumerate().map(|(index, file)| match file {
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
    Ok((next_seq, files, report))
}

/// Numbers that are missing between two segments were cut off the first, or were in one that is gone.
fn find_gaps(segments: &mut BTreeMap<u64, Segment>, report: &mut Recovered) {
    let firsts: Vec<u64> = segments.keys().skip(1).copied().collect();
    for (segment, next) in segments.values_mut().zip(firsts) {
        let last = match segment.contents.is_empty() {
            true => segment.id.first,
            false => segment.contents.last,
        };
        if last + 1 < next && !segment.damaged {
            segment.damaged = true;
            report.damaged += 1;
        }
    }
}

pub(crate) fn cursor_name(exporter: &str) -> String {
    format!("{}{CURSOR_SUFFIX}", escape(exporter))
}

/// Gives up the claims of exporters that are gone.
fn release(source: &Source, state: &State, names: &[OsString], report: &mut Recovered) -> io::Result<()> {
    let known: Vec<String> = (0..state.cursor_count())
        .map(|index| cursor_name(state.exporter(index)))
        .collect();
    for name in names.iter().filter_map(|name| name.to_str()) {
        let Some(exporter) = name.strip_suffix(CURSOR_SUFFIX) else {
            continue;
        };
        if !known.iter().any(|known| known == name) {
            source.filesystem.remove(&source.directory.join(name))?;
            report.released.push(exporter.to_owned());
        }
    }
    Ok(())
}

/// One segment by its footer, or by a scan if it has none.
fn look_into(source: &Source, id: SegmentId, report: &mut Recovered) -> Result<Option<Segment>, OpenError> {
    let path = source.directory.join(id.file_name());
    let failed = |error| OpenError::Io {
        path: path.clone(),
        error,
    };
    let file = source.filesystem.open(&path, OpenMode::Read).map_err(failed)?;
    let size_bytes = file.size_bytes().map_err(failed)?;
    let mut header = [0; HEADER_BYTES as usize];
    if size_bytes >= HEADER_BYTES
        && read_exact(&*file, &mut header, 0).is_ok()
        && let Some(newer) = version(&header).filter(|version| *version > u16::from(record::VERSION))
    {
        return Err(OpenError::Newer { path, version: newer });
    }
    // A footer that cannot be read is none.
    let sealed = Contents::read(&*file, size_bytes, id, &source.tenants).unwrap_or_default();
    if let Some((contents, end)) = sealed {
        return Ok(Some(Segment {
            id,
            contents,
            end,
            size_bytes,
            closed: true,
            damaged: false,
        }));
    }
    let scanned =
        scan(source, file.into(), id, size_bytes, true, false).map_err(|version| OpenError::Newer {
            path: path.clone(),
            version,
        })?;
    report.damaged += scanned.damaged;
    let damaged = scanned.damaged > 0;
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
    };
    // The next start need not scan it again. Without space for it, or on a read-only disk, it will.
    if let Ok(size_bytes) = seal(source, &segment) {
        segment.size_bytes = size_bytes;
    }
    Ok(Some(segment))
}

fn seal(source: &Source, segment: &Segment) -> io::Result<u64> {
    let path = source.directory.join(segment.id.file_name());
    let file = source.filesystem.open(&path, OpenMode::Write)?;
    // A torn end is cut off; damage that has records behind it stays where it is.
    file.truncate(segment.end)?;
    let footer = segment.contents.seal(segment.id, segment.end, &source.tenants);
    let written = super::log::write_all(&*file, &mut [io::IoSlice::new(&footer)], segment.end);
    if let Err(error) = written.and_then(|()| file.sync_data()) {
        let _ = file.truncate(segment.end);
        return Err(error);
    }
    Ok(segment.end + footer.len() as u64)
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
    let mut scan = Scan::new(file, id.epoch, HEADER_BYTES, end);
    let mut scanned = Scanned {
        contents: Contents::default(),
        end: HEADER_BYTES,
        damaged: 0,
        records: Vec::new(),
    };
    let mut next = 0;
    while let Some(found) = scan.next(bodies) {
        match found {
            Found::Record(header, _) if header.seq < next => {}
            Found::Record(header, offset) => {
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
            Found::Damage { .. } => {
                scanned.damaged += 1;
                scanned.end = scan.offset();
            }
            Found::Newer(version) => return Err(u16::from(version)),
        }
    }
    Ok(scanned)
}

/// Takes what each cursor has not settled into its account, and finds its place.
fn place(
    source: &Source,
    state: &mut State,
    segments: &mut BTreeMap<u64, Segment>,
    positions: &[Position],
    report: &mut Recovered,
) -> io::Result<Vec<Lag>> {
    let mut lags: Vec<Lag> = (positions.iter())
        .map(|position| Lag {
            place: Place {
                segment: state.end,
                offset: HEADER_BYTES,
            },
            settled_before: position.settled.iter().cloned().collect(),
            moved: true,
            ..Lag::default()
        })
        .collect();
    for segment in segments.values_mut() {
        let first = segment.id.first;
        let records = match positions.iter().any(|position| stands_in(position, segment)) {
            true => read_through(source, segment, report)?,
            false => Vec::new(),
        };
        for (index, position) in positions.iter().enumerate() {
            if segment.contents.is_empty() || segment.contents.last < position.floor {
                continue;
            }
            let lag = &mut lags[index];
            let is_first = lag.place.segment == state.end;
            if is_first {
                lag.place.segment = first;
            }
            let mut waiting = Tally::default();
            if stands_in(position, segment) {
                for (header, offset) in &records {
                    let tenant = tenant_id(&source.tenants, &header.tenant);
                    if !is_settled(position, header.seq) {
                        waiting.add(tenant, cost(header));
                    }
                    if header.seq < position.floor && is_first {
                        lag.passed.add(tenant, cost(header));
                        lag.place.offset = *offset;
                    }
                }
            } else {
                waiting = segment.contents.tally.clone();
            }
            let cursor = &mut state.cursors[index];
            for (tenant, cost) in waiting.iter() {
                cursor.backlog.add(cost);
                let account = cursor.account(tenant);
                account.recovered += cost.items;
                account.queued += cost.items;
            }
        }
    }
    for (index, position) in positions.iter().enumerate() {
        state.cursors[index].next = position.floor.min(state.end);
    }
    Ok(lags)
}

/// Whether an exporter has settled a part of a segment.
fn stands_in(position: &Position, segment: &Segment) -> bool {
    let (first, last) = (segment.id.first, segment.contents.last);
    let floor = first < position.floor && position.floor <= last;
    floor || (position.settled.iter()).any(|range: &Range<u64>| range.start <= last && first < range.end)
}

fn is_settled(position: &Position, seq: u64) -> bool {
    seq < position.floor || position.settled.iter().any(|range| range.contains(&seq))
}

/// The records of a segment, which from now on holds no others.
fn read_through(
    source: &Source,
    segment: &mut Segment,
    report: &mut Recovered,
) -> io::Result<Vec<(Header, u64)>> {
    let path = source.directory.join(segment.id.file_name());
    let file = source.filesystem.open(&path, OpenMode::Read)?;
    let Ok(scanned) = scan(source, file.into(), segment.id, segment.end, true, true) else {
        return Ok(Vec::new());
    };
    if scanned.contents.tally != segment.contents.tally {
        // What is missing was settled by some, or it was not: nobody knows.
        segment.contents.tally = scanned.contents.tally;
        segment.damaged = true;
        report.damaged += scanned.damaged.max(1);
    }
    Ok(scanned.records)
}
