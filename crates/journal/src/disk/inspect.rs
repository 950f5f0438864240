//! Looking into a journal without changing it: what `sluice journal stat` and `verify` print.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_payload::{Signal, Tenants};

use super::lost::{between, unsettled};
use super::position::{self, Position};
use super::record::Refusal;
use super::recovery::CURSOR_SUFFIX;
use super::scan::{Found, Scan};
use super::segment::{self, Beginning, Contents, SegmentId};
use crate::{Cost, File, Filesystem, OpenMode};

/// What is in a journal's directory.
#[derive(Debug, Clone, Default)]
pub struct Inspection {
    /// Its directory.
    pub directory: PathBuf,
    /// Its segments, the oldest first.
    pub segments: Vec<InspectedSegment>,
    /// Its cursors, by name.
    pub cursors: Vec<InspectedCursor>,
    /// Dead letters, by what they have in common.
    pub letters: BTreeMap<(Signal, Refusal), Cost>,
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

/// The journals in a directory, and the dead letters: itself, or those in it.
///
/// # Errors
/// The directory cannot be read.
pub fn journals(filesystem: &dyn Filesystem, directory: &Path) -> io::Result<Vec<PathBuf>> {
    let is_journal = |path: &Path| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| ["journal", "dead"].contains(&extension))
    };
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
    let mut ids: Vec<SegmentId> = names.iter().filter_map(|name| SegmentId::parse(name)).collect();
    ids.sort_unstable();
    let mut positions = Vec::new();
    for name in names.iter().filter_map(|name| name.to_str()) {
        if let Some(exporter) = name.strip_suffix(CURSOR_SUFFIX) {
            let exporter = unescape(exporter);
            let position = found.position(filesystem, name, &exporter)?;
            positions.push((exporter, position));
        }
    }
    let known: Vec<&Position> = (positions.iter())
        .filter_map(|(_, position)| position.as_ref())
        .collect();
    let end = known.iter().map(|position| position.end).max().unwrap_or(0);
    let mut inside = Inside {
        numbers: Vec::new(),
        last: 0,
        is_whole: false,
    };
    for (index, id) in ids.iter().enumerate() {
        let is_newest = index + 1 == ids.len();
        let file = filesystem.open(&directory.join(id.file_name()), OpenMode::Read)?;
        let beginning = Beginning::read(&*file, *id);
        if let Some(beginning) = beginning {
            let missing = between(inside.last, inside.is_whole, beginning.follows);
            found.missing_segments(missing, &known, &format!("before {}", id.file_name()));
        }
        found.segment(file.into(), *id, beginning, is_newest, thorough, &mut inside)?;
    }
    let missing = between(inside.last, inside.is_whole, end.saturating_sub(1));
    found.missing_segments(missing, &known, "at the end");
    for (exporter, position) in positions {
        let position = position.unwrap_or_default();
        let waiting = (inside.numbers.iter()).filter(|(seq, _)| !position.is_settled(*seq));
        found.cursors.push(InspectedCursor {
            exporter,
            floor: position.floor,
            waiting: waiting.clone().count() as u64,
            waiting_items: waiting.map(|(_, items)| items).sum(),
        });
    }
    Ok(found)
}

/// What was found so far.
struct Inside {
    /// Each record's number and items.
    numbers: Vec<(u64, u64)>,
    last: u64,
    /// Nobody can have cut anything off the segment it is in.
    is_whole: bool,
}

impl Inspection {
    /// What all exporters have settled is removed.
    fn missing_segments(&mut self, numbers: Range<u64>, positions: &[&Position], place: &str) {
        let floor = positions.iter().map(|position| position.floor).min();
        if !positions
            .iter()
            .all(|position| unsettled(&numbers, position) == 0)
        {
            self.missing(numbers, floor.unwrap_or(0), place);
        }
    }

    fn missing(&mut self, numbers: Range<u64>, floor: u64, place: &str) {
        let (first, last) = (numbers.start.max(floor), numbers.end.saturating_sub(1));
        if first <= last {
            self.problems.push(format!(
                "the requests numbered {first} to {last} are missing {place}"
            ));
        }
    }

    fn segment(
        &mut self,
        file: Arc<dyn File>,
        id: SegmentId,
        beginning: Option<Beginning>,
        is_newest: bool,
        thorough: bool,
        inside: &mut Inside,
    ) -> io::Result<()> {
        let name = id.file_name();
        let bytes = file.size_bytes()?;
        let tenants = Tenants::default();
        let sealed = Contents::read(&*file, bytes, id, &tenants).ok().flatten();
        if sealed.is_none() && !is_newest {
            self.problems.push(format!(
                "{name}: its footer cannot be read; it is scanned at the next start"
            ));
        }
        let end = sealed.as_ref().map_or(bytes, |(_, end)| *end);
        let mut scan = Scan::new(file, id.epoch, Beginning::records_at(beginning), end);
        let mut contents = Contents::default();
        let mut first = None;
        let mut next = id.first + 1;
        while let Some(step) = scan.next(thorough) {
            match step {
                Found::Record(header, at) => {
                    if thorough && scan.padding(at, &header).iter().any(|byte| *byte != 0) {
                        self.problems.push(format!("{name}: the bytes behind the record at {at} are not zero; it is sound"));
                    }
                    self.missing(next..header.seq, 0, &format!("in {name}"));
                    next = next.max(header.seq + 1);
                    if let Some(refusal) = &header.refusal {
                        let alike = (header.signal, (**refusal).clone());
                        self.letters.entry(alike).or_default().add(super::reader::cost(&header));
                    }
                    first.get_or_insert(header.seq);
                    let tenant = segment::tenant_id(&tenants, &header.tenant);
                    contents.add(header.seq, header.received_at_nanos, tenant, super::reader::cost(&header));
                    inside.numbers.push((header.seq, u64::from(header.items)));
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
            contents.tally.iter().fold(Cost::default(), |mut sum, (_, cost)| {
                sum.add(cost);
                sum
            })
        };
        let total = count(&contents);
        if let Some((footer, _)) = &sealed
            && count(footer) != total
        {
            self.missing(next..footer.last + 1, 0, &format!("in {name}"));
            let lost = count(footer).items.saturating_sub(total.items);
            self.problems.push(format!(
                "{name}: {lost} items that its footer counts cannot be read"
            ));
        }
        if !contents.is_empty() {
            (inside.last, inside.is_whole) = (contents.last, sealed.is_some());
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

    /// What an exporter's file says, if one of its slots is sound.
    fn position(
        &mut self,
        filesystem: &dyn Filesystem,
        name: &str,
        exporter: &str,
    ) -> io::Result<Option<Position>> {
        let file = filesystem.open(&self.directory.join(name), OpenMode::Read)?;
        let (position, damaged_slots) = position::read(&*file, exporter);
        if damaged_slots > 0 || position.is_none() {
            let consequence = match position {
                Some(_) => "the other one counts",
                None => "at the next start it begins with the oldest record",
            };
            self.problems.push(format!(
                "{name}: {damaged_slots} of 2 slots are damaged; {consequence}"
            ));
        }
        Ok(position)
    }
}

/// The id of a file's name.
pub(crate) fn unescape(name: &str) -> String {
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
