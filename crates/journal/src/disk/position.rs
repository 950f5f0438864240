//! Where an exporter is, in two slots that are written in turn (docs/journal-format.md).

use std::io;
use std::ops::Range;
use std::path::Path;

use super::record::{u32_at, u64_at};
use crate::{File, Filesystem, OpenMode};

const MAGIC: [u8; 4] = *b"SLjC";
const VERSION: u16 = 1;
const SLOT_BYTES: usize = 4096;
const FIXED_BYTES: usize = 40;
const RANGE_BYTES: usize = 16;

/// So many ranges fit into a slot, however long the exporter's id is, and there is room for some more: one that a start finds is
/// two while the cursor reads through it.
const KEPT_RANGES: usize = 128;
const _: () = assert!(KEPT_RANGES < (SLOT_BYTES - FIXED_BYTES - SLOT_BYTES / 4) / RANGE_BYTES);

/// What has been settled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// Everything below it.
    pub floor: u64,
    /// And these above it, in order.
    pub settled: Vec<Range<u64>>,
    /// The number behind the last record that was there when this was written: those that are missing later were lost.
    pub end: u64,
}

impl Position {
    /// Whether a record is settled.
    pub fn is_settled(&self, seq: u64) -> bool {
        seq < self.floor || self.settled.iter().any(|range| range.contains(&seq))
    }

    /// Whether it says that all these numbers are settled, now and after a start: later ranges may not fit into a slot.
    pub fn keeps(&self, numbers: &Range<u64>) -> bool {
        let mut kept = self.settled.iter().take(KEPT_RANGES);
        numbers.end <= self.floor
            || kept.any(|range| range.start <= numbers.start && numbers.end <= range.end)
    }
}

/// One exporter's file.
#[derive(Debug)]
pub(crate) struct PositionFile {
    file: Box<dyn File>,
    exporter: String,
    generation: u64,
    synced: bool,
}

impl PositionFile {
    /// Makes the file of an exporter that is new here: whole and synced before it has its name, so that one that is
    /// damaged later is never taken for a new one. The directory is the caller's to sync.
    pub fn create(
        filesystem: &dyn Filesystem,
        path: &Path,
        exporter: &str,
        position: &Position,
    ) -> io::Result<Self> {
        let unnamed = path.with_extension("new");
        let file = filesystem.open(&unnamed, OpenMode::Write)?;
        file.truncate(0)?;
        let mut position_file = Self::with(file, exporter);
        // Both slots, so that an empty one is a damaged one.
        position_file.write(position)?;
        position_file.write(position)?;
        position_file.sync()?;
        filesystem.rename(&unnamed, path)?;
        Ok(position_file)
    }

    fn with(file: Box<dyn File>, exporter: &str) -> Self {
        Self {
            file,
            exporter: exporter.to_owned(),
            generation: 0,
            synced: false,
        }
    }

    /// Opens the file, if there is one, and says what is in it: `None` when neither slot can be read.
    pub fn open(
        filesystem: &dyn Filesystem,
        path: &Path,
        exporter: &str,
    ) -> io::Result<Option<(Self, Option<Position>)>> {
        match filesystem.size_bytes(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            size => size?,
        };
        let mut position_file = Self::with(filesystem.open(path, OpenMode::Write)?, exporter);
        let (newest, _) = read_slots(&*position_file.file, exporter);
        let position = newest.map(|(generation, position)| {
            position_file.generation = generation;
            position
        });
        if position.is_none() {
            // One that was cut short could be sound again once the file is longer, and count.
            position_file.file.truncate(0)?;
        }
        Ok(Some((position_file, position)))
    }

    /// Writes a position into the older slot. It survives the process from now on, the machine after [`sync`](Self::sync).
    pub fn write(&mut self, position: &Position) -> io::Result<()> {
        let generation = self.generation + 1;
        let bytes = encode(generation, &self.exporter, position);
        let at = (generation % 2) * SLOT_BYTES as u64;
        self.file.write_all_at(&bytes, at)?;
        self.generation = generation;
        self.synced = false;
        Ok(())
    }

    /// Makes the last position survive a crash of the machine.
    pub fn sync(&mut self) -> io::Result<()> {
        if !self.synced {
            self.file.sync_data()?;
            self.synced = true;
        }
        Ok(())
    }
}

/// The position in a file, if there is a sound one, and how many slots are damaged.
pub(crate) fn read(file: &dyn File, exporter: &str) -> (Option<Position>, usize) {
    let (newest, damaged) = read_slots(file, exporter);
    (newest.map(|(_, position)| position), damaged)
}

fn read_slots(file: &dyn File, exporter: &str) -> (Option<(u64, Position)>, usize) {
    let mut newest: Option<(u64, Position)> = None;
    let mut damaged = 0;
    for slot in 0..2 {
        let mut bytes = vec![0; SLOT_BYTES];
        let read = file.read_exact_at(&mut bytes, (slot * SLOT_BYTES) as u64);
        match read.ok().and_then(|()| parse(&bytes, exporter)) {
            Some(found) if newest.as_ref().is_none_or(|(newest, _)| found.0 > *newest) => {
                newest = Some(found)
            }
            Some(_) => {}
            None => damaged += 1,
        }
    }
    (newest, damaged)
}

fn encode(generation: u64, exporter: &str, position: &Position) -> Vec<u8> {
    let mut bytes = vec![0; SLOT_BYTES];
    // Ids are short; a longer one is cut here and compared cut when it is read.
    let name = name_bytes(exporter);
    let room = (SLOT_BYTES - FIXED_BYTES - name.len()) / RANGE_BYTES;
    let ranges = &position.settled[..position.settled.len().min(room)];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
    bytes[6..8].copy_from_slice(&(name.len() as u16).to_le_bytes());
    bytes[12..16].copy_from_slice(&(ranges.len() as u32).to_le_bytes());
    bytes[16..24].copy_from_slice(&generation.to_le_bytes());
    bytes[24..32].copy_from_slice(&position.floor.to_le_bytes());
    bytes[32..40].copy_from_slice(&position.end.to_le_bytes());
    let mut at = FIXED_BYTES;
    bytes[at..at + name.len()].copy_from_slice(name);
    at += name.len();
    for range in ranges {
        bytes[at..at + 8].copy_from_slice(&range.start.to_le_bytes());
        bytes[at + 8..at + 16].copy_from_slice(&range.end.to_le_bytes());
        at += RANGE_BYTES;
    }
    let crc = checksum(&bytes).to_le_bytes();
    bytes[8..12].copy_from_slice(&crc);
    bytes
}

fn parse(bytes: &[u8], exporter: &str) -> Option<(u64, Position)> {
    let version = u16::from_le_bytes([bytes[4], bytes[5]]);
    if bytes[..4] != MAGIC || version > VERSION || u32_at(bytes, 8) != checksum(bytes) {
        return None;
    }
    let length = usize::from(u16::from_le_bytes([bytes[6], bytes[7]]));
    let (name, ranges) = bytes[FIXED_BYTES..].split_at_checked(length)?;
    if name != name_bytes(exporter) {
        return None;
    }
    let count = u32_at(bytes, 12) as usize;
    let ranges = ranges.get(..count.checked_mul(RANGE_BYTES)?)?;
    let settled = ranges.chunks_exact(RANGE_BYTES);
    let position = Position {
        floor: u64_at(bytes, 24),
        settled: settled.map(|two| u64_at(two, 0)..u64_at(two, 8)).collect(),
        end: u64_at(bytes, 32),
    };
    Some((u64_at(bytes, 16), position))
}

fn name_bytes(exporter: &str) -> &[u8] {
    &exporter.as_bytes()[..exporter.len().min(SLOT_BYTES / 4)]
}

fn checksum(slot: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&slot[..8]), &slot[12..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SimulatedDisk;

    fn position(floor: u64) -> Position {
        Position {
            floor,
            settled: vec![floor + 2..floor + 5, floor + 9..floor + 10],
            end: floor + 20,
        }
    }

    fn flip(disk: &SimulatedDisk, path: &Path, at: u64) {
        let file = disk.open(path, OpenMode::Write).unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, at).unwrap();
        file.write_at(&[byte[0] ^ 1], at).unwrap();
    }

    /// Scenario: positions are written; the newer slot is damaged, then both.
    /// Guarantees: the newest sound one counts; a file without any says so, and is not taken for a new one.
    #[test]
    fn the_newest_sound_slot_counts() {
        let disk = SimulatedDisk::default();
        let path = Path::new("/a.cursor");
        assert!(PositionFile::open(&disk, path, "a").unwrap().is_none());
        let mut file = PositionFile::create(&disk, path, "a", &position(7)).unwrap();
        for floor in [70, 700] {
            file.write(&position(floor)).unwrap();
        }
        let read = |exporter| {
            let file = disk.open(path, OpenMode::Read).unwrap();
            super::read(&*file, exporter).0
        };
        assert_eq!(read("a"), Some(position(700)));
        assert_eq!(read("b"), None, "it is somebody else's");
        flip(&disk, path, 40);
        assert_eq!(read("a"), Some(position(70)));
        flip(&disk, path, SLOT_BYTES as u64 + 25);
        assert_eq!(read("a"), None);
    }

    /// Scenario: a file is cut short within the zeros of its first slot; the exporter begins anew and writes its position.
    /// Guarantees: the old slot does not come back when the file grows over it.
    #[test]
    fn a_slot_that_was_cut_stays_lost() {
        let disk = SimulatedDisk::default();
        let path = Path::new("/a.cursor");
        let mut file = PositionFile::create(&disk, path, "a", &position(7)).unwrap();
        file.write(&position(70)).unwrap();
        file.write(&position(700)).unwrap();
        disk.damage(path, |bytes| bytes.truncate(1000));
        let (mut file, position_before) = PositionFile::open(&disk, path, "a").unwrap().unwrap();
        assert_eq!(position_before, None);
        file.write(&position(3)).unwrap();
        assert_eq!(
            PositionFile::open(&disk, path, "a").unwrap().unwrap().1,
            Some(position(3))
        );
    }

    /// Scenario: more ranges than a slot holds.
    /// Guarantees: those that fit are kept; the rest counts as not settled.
    #[test]
    fn ranges_that_do_not_fit_are_not_settled() {
        let disk = SimulatedDisk::default();
        let path = Path::new("/a.cursor");
        let many = Position {
            floor: 1,
            settled: (1..1000).map(|n| n * 10..n * 10 + 5).collect(),
            end: 10_000,
        };
        PositionFile::create(&disk, path, "a", &many).unwrap();
        let (_, read) = PositionFile::open(&disk, path, "a").unwrap().unwrap();
        let read = read.unwrap();
        assert_eq!(read.floor, 1);
        assert!(read.settled.len() > 200, "{}", read.settled.len());
        assert_eq!(read.settled, many.settled[..read.settled.len()]);
    }
}
