//! Exporters that are not in the pipeline any more, and those that are back.
//!
//! What waits for an exporter that has left was acknowledged, so a change of the configuration does not throw it away: it is set
//! aside as a journal of its own, beside that of the pipeline. Segments have a name in both, and are on the disk once. When the
//! exporter is back, it goes on where it was; what came meanwhile is not for it.

use super::super::directory::{JOURNAL_SUFFIX, LOCK_NAME};
use super::super::inspect::unescape;
use super::super::lost::unsettled;
use super::super::position;
use super::*;

/// Between the names of the pipeline and of the exporter; in neither, since they are escaped.
const SEPARATOR: char = '~';

/// Where what waits for an exporter is set aside, by the directory of the pipeline's journal; where it is when there is something already that
/// is not brought back.
fn directories_of(journal: &Path, exporter: &str) -> impl Iterator<Item = PathBuf> {
    let name = journal.file_name().unwrap_or_default().to_string_lossy();
    let pipeline = name.strip_suffix(JOURNAL_SUFFIX).unwrap_or(&name);
    let name = format!("{pipeline}{SEPARATOR}{}", escape(exporter));
    (1..).map(move |number: u32| match number {
        1 => journal.with_file_name(format!("{name}{JOURNAL_SUFFIX}")),
        _ => journal.with_file_name(format!("{name}{SEPARATOR}{number}{JOURNAL_SUFFIX}")),
    })
}

/// The one from which it is brought back.
fn directory_of(journal: &Path, exporter: &str) -> PathBuf {
    directories_of(journal, exporter).next().unwrap_or_default()
}

/// Sets aside what waits for exporters that are gone. It can be cut off anywhere, and is done again at the next start.
pub(super) fn set_aside(
    source: &Source,
    state: &State,
    segments: &BTreeMap<u64, Segment>,
    numbers: &Numbers,
) -> Result<Vec<Left>, OpenError> {
    let known: Vec<String> = (0..state.cursor_count())
        .map(|index| cursor_name(state.exporter(index)))
        .collect();
    let names = source.filesystem.list(&source.directory);
    let names = names.map_err(|error| OpenError::Io {
        path: source.directory.clone(),
        error,
    })?;
    let cursors = names.iter().filter_map(|name| name.to_str());
    let cursors =
        cursors.filter(|name| name.ends_with(CURSOR_SUFFIX) && !known.iter().any(|known| known == name));
    cursors
        .map(|name| {
            let exporter = unescape(name.strip_suffix(CURSOR_SUFFIX).unwrap_or(name));
            let cursor = source.directory.join(name);
            let left = set_aside_one(source, exporter, &cursor, segments, numbers);
            left.map_err(|error| OpenError::Left { path: cursor, error })
        })
        .collect()
}

fn set_aside_one(
    source: &Source,
    exporter: String,
    cursor: &Path,
    segments: &BTreeMap<u64, Segment>,
    numbers: &Numbers,
) -> io::Result<Left> {
    let filesystem = &*source.filesystem;
    let (mut file, position) =
        PositionFile::open(filesystem, cursor, &exporter)?.ok_or(io::ErrorKind::NotFound)?;
    let mut position = position.unwrap_or_default();
    // Behind the number of the segment itself.
    let waiting = |segment: &Segment| match segment.contents.is_empty() {
        true => 0,
        false => unsettled(&(segment.id.first + 1..segment.contents.last + 1), &position),
    };
    let waiting: Vec<(SegmentId, u64)> = (segments.values())
        .map(|segment| (segment.id, waiting(segment)))
        .filter(|(_, requests)| *requests > 0)
        .collect();
    let name = cursor_name(&exporter);
    let is_free = |directory: &PathBuf| !matches!(is_there(filesystem, &directory.join(&name)), Ok(true));
    let directory = directories_of(&source.directory, &exporter).find(is_free);
    let left = Left {
        requests: waiting.iter().map(|(_, requests)| requests).sum(),
        directory: directory.unwrap_or_default(),
        exporter,
    };
    if left.requests == 0 {
        filesystem.remove(cursor)?;
        return Ok(left);
    }
    // What comes from now on is not for it.
    position.end = position.end.max(numbers.last + 1);
    file.write(&position)?;
    file.sync()?;
    filesystem.create_directories(&left.directory)?;
    for (id, _) in &waiting {
        link(filesystem, id, &source.directory, &left.directory)?;
    }
    filesystem.sync_directory(&left.directory)?;
    rename(filesystem, cursor, &left.directory)?;
    if let Some(above) = left.directory.parent() {
        // As with the journal's own name.
        let _ = filesystem.sync_directory(above);
    }
    Ok(left)
}

/// Puts back what was set aside for exporters of this journal that are there again; their ids.
pub(super) fn bring_back(source: &Source, state: &State) -> Result<Vec<String>, OpenError> {
    let mut returned = Vec::new();
    for exporter in (0..state.cursor_count()).map(|index| state.exporter(index)) {
        let directory = directory_of(&source.directory, exporter);
        let came = bring_back_one(source, exporter, &directory).map_err(|error| OpenError::Io {
            path: directory,
            error,
        })?;
        if came {
            returned.push(exporter.to_owned());
        }
    }
    Ok(returned)
}

fn bring_back_one(source: &Source, exporter: &str, directory: &Path) -> io::Result<bool> {
    let filesystem = &*source.filesystem;
    let names = match filesystem.list(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        names => names?,
    };
    let (cursor, here) = (cursor_name(exporter), &source.directory);
    let comes = is_there(filesystem, &directory.join(&cursor))?;
    let ids: Vec<SegmentId> = names.iter().filter_map(|name| SegmentId::parse(name)).collect();
    if comes {
        // An older sluice took the exporter for a new one, or it left another journal that has been removed. What was set aside stays where it is.
        if is_there(filesystem, &here.join(&cursor))?
            || !is_of(source, &directory.join(&cursor), exporter, &ids)?
        {
            return Ok(false);
        }
        for id in &ids {
            link(filesystem, id, directory, here)?;
        }
        filesystem.sync_directory(here)?;
        rename(filesystem, &directory.join(&cursor), here)?;
    }
    // Nothing in there is needed any more: it has other names, or never left.
    for id in &ids {
        filesystem.remove(&directory.join(id.file_name()))?;
    }
    // Made by `sluice journal repair`, perhaps. What else somebody put there stays.
    let _ = filesystem.remove(&directory.join(LOCK_NAME));
    let _ = filesystem.remove_directory(directory);
    Ok(comes)
}

/// Whether these segments are of this journal: it has gone on from where the exporter left, still has all of them, or begins anew. In another
/// one their numbers are those of other records.
fn is_of(source: &Source, cursor: &Path, exporter: &str, ids: &[SegmentId]) -> io::Result<bool> {
    let (filesystem, here) = (&*source.filesystem, &source.directory);
    let position = |path: &Path, exporter: &str| -> io::Result<Position> {
        let file = filesystem.open(path, OpenMode::Read)?;
        Ok(position::read(&*file, exporter).0.unwrap_or_default())
    };
    let names = filesystem.list(here)?;
    if ids.iter().all(|id| names.contains(&id.file_name().into())) {
        return Ok(true);
    }
    let mut reached = None;
    for name in names.iter().filter_map(|name| name.to_str()) {
        if let Some(other) = name.strip_suffix(CURSOR_SUFFIX) {
            let other = position(&here.join(name), &unescape(other))?;
            reached = reached.max(Some(other.floor.max(other.end)));
        }
    }
    let left_at = position(cursor, exporter)?.end;
    Ok(reached.is_none_or(|reached| reached >= left_at))
}

/// What came while these exporters were not there is not for them.
pub(super) fn settle_absence(
    state: &State,
    returned: &[String],
    opened: &mut [Opened],
    next: u64,
) -> io::Result<()> {
    for (index, opened) in opened.iter_mut().enumerate() {
        if !returned.iter().any(|exporter| exporter == state.exporter(index)) {
            continue;
        }
        if let (Some(file), Some(position)) = (&mut opened.file, &mut opened.position)
            && position.end < next
        {
            position.settled.push(position.end..next);
            file.write(position)?;
            file.sync()?;
        }
    }
    Ok(())
}

fn is_there(filesystem: &dyn Filesystem, path: &Path) -> io::Result<bool> {
    match filesystem.size_bytes(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives a segment its name in another directory, too.
fn link(filesystem: &dyn Filesystem, id: &SegmentId, from: &Path, to: &Path) -> io::Result<()> {
    let name = id.file_name();
    match filesystem.link(&from.join(&name), &to.join(&name)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done,
    }
}

/// Moves a file into another directory, for good.
fn rename(filesystem: &dyn Filesystem, file: &Path, to: &Path) -> io::Result<()> {
    filesystem.rename(file, &to.join(file.file_name().unwrap_or_default()))?;
    filesystem.sync_directory(to)?;
    file.parent()
        .map_or(Ok(()), |from| filesystem.sync_directory(from))
}
