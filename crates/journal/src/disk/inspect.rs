//! Looking into a journal without changing it: what `sluice journal stat` and `verify` print.

use std::io;
use std::path::{Path, PathBuf};

use sluice_payload::Tenants;

use super::position;
use super::recovery::CURSOR_SUFFIX;
use super::scan::{Found, Scan};
use super::segment::{self, Contents, HEADER_BYTES, SegmentId, read_exact};
use crate::{Filesystem, OpenMode};

/// What is in a journal's directory.
#[derive(Debug, Clone, Default)]
pub struct Inspection {
    /// Its directory.
    pub directory: PathBuf,
    /// Its segments, the oldest first.
    pub segments: Vec<InspectedSegment>,
    /// Its cursors, by name.
    pub cursors: Vec<InspectedCursor>,
    /// What is wrong, one sentence each; only of a thorough inspection complete.
    pub problems: Vec<String>,
}

/// One segment.
#[derive(Debug, Clone)]
pub struct InspectedSegment {
    /// The file's name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Whether it ends with a footer.
    pub sealed: bool,
    /// Sound records.
    pub records: u64,
    /// Items in them.
    pub items: u64,
    /// Bytes of their bodies when inflated.
    pub inflated_bytes: u64,
    /// Their numbers, the first and the last.
    pub numbers: Option<(u64, u64)>,
}

/// One exporter's position.
#[derive(Debug, Clone)]
pub struct InspectedCursor {
    /// The exporter's id.
    pub exporter: String,
    /// Everything below this number is settled.
    pub floor: u64,
    /// Sound records that are not.
    pub waiting: u64,
    /// Items in them.
    pub waiting_items: u64,
}

/// The journals in a directory: itself, or those in it.
///
/// # Errors
/// The directory cannot be read.
pub fn journals(filesystem: &dyn Filesystem, directory: &Path) -> io::Result<Vec<PathBuf>> {
    let is_journal = |path: &Path| path.extension().is_some_and(|extension| extension == "journal");
    let mut names = filesystem.list(directory)?;
    names.sort();
    if is_journal(directory) || names.iter().any(|name| SegmentId::parse(name).is_some()) {
        return Ok(vec![directory.to_owned()]);
    }
    let inside = names.iter().map(|name| directory.join(name));
    Ok(inside.filter(|path| is_journal(path)).collect())
}

/// Looks into a journal; thoroughly, every byte is read and checked.
///
/// # Errors
/// The directory cannot be read. What is wrong inside is no error.
pub fn inspect(filesystem: &dyn Filesystem, directory: &Path, thorough: bool) -> io::Result<Inspection> {
    let mut names = filesystem.list(directory)?;
    names.sort();
    let mut found = Inspection {
        directory: directory.to_owned(),
        ..Inspection::default()
    };
    let ids: Vec<SegmentId> = names.iter().filter_map(|name| SegmentId::parse(name)).collect();
    let mut numbers: Vec<(u64, u64)> = Vec::new();
    for (index, id) in ids.iter().enumerate() {
        let is_newest = index + 1 == ids.len();
        found.segment(filesystem, *id, is_newest, thorough, &mut numbers)?;
        let last = found.segments.last().and_then(|segment| segment.numbers);
        if let Some(next) = ids.get(index + 1) {
            let last = last.map_or(id.first, |(_, last)| last);
            if last + 1 < next.first {
                found.problems.push(format!(
                    "{}: records {} to {} are missing behind it",
                    id.file_name(),
                    last + 1,
                    next.first - 1
                ));
            }
        }
    }
    for name in names.iter().filter_map(|name| name.to_str()) {
        if let Some(exporter) = name.strip_suffix(CURSOR_SUFFIX) {
            found.cursor(filesystem, name, &unescape(exporter), &numbers)?;
        }
    }
    Ok(found)
}

impl Inspection {
    fn segment(
        &mut self,
        filesystem: &dyn Filesystem,
        id: SegmentId,
        is_newest: bool,
        thorough: bool,
        numbers: &mut Vec<(u64, u64)>,
    ) -> io::Result<()> {
        let name = id.file_name();
        let file = filesystem.open(&self.directory.join(&name), OpenMode::Read)?;
        let bytes = file.size_bytes()?;
        let mut header = [0; HEADER_BYTES as usize];
        let sound = read_exact(&*file, &mut header, 0).is_ok()
            && segment::version(&header).is_some()
            && header[16..32] == [id.epoch.to_le_bytes(), id.first.to_le_bytes()].concat();
        if !sound {
            self.problems.push(format!(
                "{name}: its first {HEADER_BYTES} bytes are damaged; its records are not"
            ));
        }
        let tenants = Tenants::default();
        let sealed = Contents::read(&*file, bytes, id, &tenants).ok().flatten();
        if sealed.is_none() && !is_newest {
            self.problems.push(format!(
                "{name}: its footer cannot be read; it is scanned at the next start"
            ));
        }
        let end = sealed.as_ref().map_or(bytes, |(_, end)| *end);
        let mut scan = Scan::new(file.into(), id.epoch, HEADER_BYTES, end);
        let mut contents = Contents::default();
        let mut first = None;
        while let Some(step) = scan.next(thorough) {
            match step {
                Found::Record(header, at) => {
                    if thorough && scan.padding(at, &header).iter().any(|byte| *byte != 0) {
                        self.problems.push(format!("{name}: the bytes behind the record at {at} are not zero; it is sound"));
                    }
                    first.get_or_insert(header.seq);
                    let tenant = segment::tenant_id(&tenants, &header.tenant);
                    contents.add(header.seq, header.received_at_nanos, tenant, super::reader::cost(&header));
                    numbers.push((header.seq, u64::from(header.items)));
                }
                Found::Damage { at, bytes, torn } => self.problems.push(match torn && is_newest {
                    true => format!("{name}: {bytes} bytes at {at} are the beginning of a write that was not finished, or they are damaged"),
                    false => format!("{name}: {bytes} bytes at {at} are damaged"),
                }),
                Found::Newer(version) => {
                    self.problems.push(format!("{name}: it has records of version {version}, which a newer sluice reads"));
                    break;
                }
            }
        }
        let count = |contents: &Contents| {
            contents
                .tally
                .iter()
                .fold(crate::Cost::default(), |mut sum, (_, cost)| {
                    sum.add(cost);
                    sum
                })
        };
        let total = count(&contents);
        if let Some((footer, _)) = &sealed
            && count(footer) != total
        {
            let lost = count(footer).items.saturating_sub(total.items);
            self.problems.push(format!(
                "{name}: {lost} items that its footer counts cannot be read"
            ));
        }
        self.segments.push(InspectedSegment {
            name,
            bytes,
            sealed: sealed.is_some(),
            records: total.requests,
            items: total.items,
            inflated_bytes: total.bytes,
            numbers: first.map(|first| (first, contents.last)),
        });
        Ok(())
    }

    fn cursor(
        &mut self,
        filesystem: &dyn Filesystem,
        name: &str,
        exporter: &str,
        numbers: &[(u64, u64)],
    ) -> io::Result<()> {
        let file = filesystem.open(&self.directory.join(name), OpenMode::Read)?;
        let (position, damaged_slots) = position::read(&*file, exporter);
        if damaged_slots > 0 {
            let consequence = match position {
                Some(_) => "the other one counts",
                None => "at the next start it begins with the oldest record",
            };
            self.problems.push(format!(
                "{name}: {damaged_slots} of 2 slots are damaged; {consequence}"
            ));
        }
        let position = position.unwrap_or_default();
        let waits =
            |seq: u64| seq >= position.floor && !position.settled.iter().any(|range| range.contains(&seq));
        let waiting = numbers.iter().filter(|(seq, _)| waits(*seq));
        self.cursors.push(InspectedCursor {
            exporter: exporter.to_owned(),
            floor: position.floor,
            waiting: waiting.clone().count() as u64,
            waiting_items: waiting.map(|(_, items)| items).sum(),
        });
        Ok(())
    }
}

/// The id of a file's name.
fn unescape(name: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = name.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
