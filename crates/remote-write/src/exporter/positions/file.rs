//! The file of positions.
//!
//! A header:
//!
//! | size | what |
//! |---|---|
//! | 4 | magic `SLrL` |
//! | 2 | version, 1. It changes with what lanes follow from, too |
//! | 2 | zeros |
//! | 8 | a random number, from which hashes of payloads and the checksums of records begin |
//! | 8 | a hash of all that decides what payloads become, in which lane it is and where that goes |
//! | 4 | CRC32C of those |
//!
//! Records follow, each of a kind (1), zeros (3), the length of what follows (4), a CRC32C of the random number, these 8 bytes and what follows (4), and:
//!
//! | kind | what follows |
//! |---|---|
//! | 1, a batch | its number (8), the lanes it is done in, the number of its payloads (4); of each a hash (8), its length (4), and the lanes it was done in before |
//! | 2, a lane | the number of a batch (8), and a lane (4) that it is done in, too |
//! | 3, an end | the number of a batch (8) that is settled |
//!
//! Lanes are a number of bytes (2), and that many with a bit for each lane, from the lowest of the first on. A batch counts as it was written last. What is read ends at the first record that
//! does not fit its checksum. The file is written anew under another name when it has doubled, and grown by [`LOG_BYTES`] at least.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;

use sluice_journal::{File, OpenMode};

use super::{KEPT_ENDED, Key, LanesFile};
use crate::hash;
use crate::lane_set::LaneSet;

const MAGIC: [u8; 4] = *b"SLrL";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 28;
const FRAME_BYTES: usize = 12;

const BATCH: u8 = 1;
const LANE: u8 = 2;
const END: u8 = 3;

/// A file grows by so much at least before it is written anew: positions of some thousand batches.
const LOG_BYTES: u64 = 1 << 20;

/// A larger file is none of ours: it is not read into memory.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Note {
    /// A batch: its number, the lanes it is done in, and its payloads, each with the lanes that it was done in before.
    Batch {
        number: u64,
        done: LaneSet,
        payloads: Vec<(Key, LaneSet)>,
    },
    /// A lane that a batch is done in.
    Done(u64, usize),
    /// A batch that is settled.
    End(u64),
}

impl Note {
    /// About as many bytes as it takes.
    pub fn bytes(&self) -> usize {
        match self {
            Note::Batch { payloads, .. } => 64 + 32 * payloads.len(),
            Note::Done(..) | Note::End(_) => 32,
        }
    }

    fn put(&self, seed: u64, out: &mut Vec<u8>) {
        let at = out.len();
        let kind = match self {
            Note::Batch { .. } => BATCH,
            Note::Done(..) => LANE,
            Note::End(_) => END,
        };
        out.extend_from_slice(&[kind, 0, 0, 0]);
        out.extend_from_slice(&[0; 8]);
        match self {
            Note::Batch {
                number,
                done,
                payloads,
            } => {
                out.extend_from_slice(&number.to_le_bytes());
                put_lanes(out, done);
                out.extend_from_slice(&(payloads.len() as u32).to_le_bytes());
                for (key, before) in payloads {
                    out.extend_from_slice(&key.hash.to_le_bytes());
                    out.extend_from_slice(&key.len.to_le_bytes());
                    put_lanes(out, before);
                }
            }
            Note::Done(number, lane) => {
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(&(*lane as u32).to_le_bytes());
            }
            Note::End(number) => out.extend_from_slice(&number.to_le_bytes()),
        }
        let len = (out.len() - at - FRAME_BYTES) as u32;
        out[at + 4..at + 8].copy_from_slice(&len.to_le_bytes());
        let crc = checksum(seed, &out[at..]);
        out[at + 8..at + FRAME_BYTES].copy_from_slice(&crc.to_le_bytes());
    }

    /// The record that `rest` begins with, which is taken off; `None` when there is none that is whole.
    fn take(seed: u64, rest: &mut &[u8]) -> Option<Self> {
        let len = u32::from_le_bytes(rest.get(4..8)?.try_into().ok()?) as usize;
        let record = rest.get(..FRAME_BYTES.checked_add(len)?)?;
        let crc = u32::from_le_bytes(record[8..FRAME_BYTES].try_into().ok()?);
        if crc != checksum(seed, record) {
            return None;
        }
        *rest = &rest[record.len()..];
        let mut said = Said(&record[FRAME_BYTES..]);
        Some(match record[0] {
            BATCH => Note::Batch {
                number: said.u64()?,
                done: said.lanes()?,
                payloads: {
                    let payloads = said.u32()?;
                    let mut payload = || {
                        let (hash, len) = (said.u64()?, said.u32()?);
                        Some((Key { hash, len }, said.lanes()?))
                    };
                    (0..payloads).map(|_| payload()).collect::<Option<_>>()?
                },
            },
            LANE => Note::Done(said.u64()?, said.u32()? as usize),
            END => Note::End(said.u64()?),
            _ => return None,
        })
    }
}

fn put_lanes(out: &mut Vec<u8>, lanes: &LaneSet) {
    out.extend_from_slice(&(lanes.as_bits().len() as u16).to_le_bytes());
    out.extend_from_slice(lanes.as_bits());
}

fn checksum(seed: u64, record: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&seed.to_le_bytes()), &record[..8]);
    crc32c::crc32c_append(crc, &record[FRAME_BYTES..])
}

/// What is left of a record.
struct Said<'r>(&'r [u8]);

impl Said<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn lanes(&mut self) -> Option<LaneSet> {
        let len = u16::from_le_bytes(self.take()?);
        let (bits, rest) = self.0.split_at_checked(usize::from(len))?;
        self.0 = rest;
        Some(LaneSet::of_bits(bits))
    }
}

/// The file of one exporter.
#[derive(Debug)]
pub(super) struct Notes {
    settings: LanesFile,
    header: [u8; HEADER_BYTES],
    seed: u64,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: Box<dyn File>,
    end: u64,
    /// Bytes that it had when it was made.
    made_bytes: u64,
}

/// What was found, and what goes on with it.
pub(super) struct Found {
    notes: Notes,
    delivered: HashMap<Key, LaneSet>,
}

impl Found {
    /// From which hashes of payloads begin.
    pub fn seed(&self) -> u64 {
        self.notes.seed
    }

    /// What is written to, and in which lanes each payload has been delivered.
    pub fn into_parts(self) -> (Notes, HashMap<Key, LaneSet>) {
        (self.notes, self.delivered)
    }
}

impl Notes {
    /// Reads the file, if there is one under the same `settings`; a new one begins from `seed`.
    pub fn read(file: LanesFile, seed: u64, settings: &str) -> Found {
        let path = file.path.display();
        let (seed, delivered) = match content(&file) {
            Ok(bytes) => match parse(&bytes, settings) {
                Some((seed, delivered)) => (seed, delivered),
                None => {
                    tracing::info!(file = %path, "the positions of lanes are of other settings, or cannot be read: what was under way is sent again in all lanes");
                    (seed, HashMap::new())
                }
            },
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(file = %path, %error, "cannot read the positions of lanes: what was under way is sent again in all lanes");
                }
                (seed, HashMap::new())
            }
        };
        let notes = Notes {
            header: header(seed, settings),
            settings: file,
            seed,
            open: None,
        };
        Found { notes, delivered }
    }

    pub fn path(&self) -> &Path {
        &self.settings.path
    }

    /// Whether it has doubled, and grown by [`LOG_BYTES`].
    pub fn is_full(&self) -> bool {
        let grown = |open: &Open| open.end - open.made_bytes > LOG_BYTES.max(open.made_bytes);
        self.open.as_ref().is_some_and(grown)
    }

    /// Writes these behind what is there.
    ///
    /// # Errors
    /// Then nobody knows what is there, and it has to be written anew.
    pub fn append(&mut self, notes: &[Note]) -> io::Result<()> {
        let mut bytes = Vec::new();
        notes.iter().for_each(|note| note.put(self.seed, &mut bytes));
        match &mut self.open {
            Some(open) => open.put(&bytes),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Writes a file of these alone, and puts it in the place of what is there.
    ///
    /// # Errors
    /// Then the old one is there still.
    pub fn write_anew(&mut self, notes: &[Note]) -> io::Result<()> {
        let LanesFile { path, filesystem } = &self.settings;
        filesystem.create_directories(path.parent().unwrap_or(path))?;
        let unnamed = path.with_extension("lanes-new");
        let file = filesystem.open(&unnamed, OpenMode::Write)?;
        file.truncate(0)?;
        let mut open = Open {
            file,
            end: 0,
            made_bytes: 0,
        };
        let mut bytes = self.header.to_vec();
        notes.iter().for_each(|note| note.put(self.seed, &mut bytes));
        let made = open.put(&bytes).and_then(|()| filesystem.rename(&unnamed, path));
        if let Err(error) = made {
            let _ = filesystem.remove(&unnamed);
            return Err(error);
        }
        open.made_bytes = open.end;
        self.open = Some(open);
        Ok(())
    }
}

impl Open {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.end)?;
        self.end += bytes.len() as u64;
        Ok(())
    }
}

fn header(seed: u64, settings: &str) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC);
    header[4..6].copy_from_slice(&VERSION.to_le_bytes());
    header[8..16].copy_from_slice(&seed.to_le_bytes());
    header[16..24].copy_from_slice(&hash::hash(settings.as_bytes(), seed).to_le_bytes());
    let crc = crc32c::crc32c(&header[..HEADER_BYTES - 4]);
    header[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    header
}

fn content(file: &LanesFile) -> io::Result<Vec<u8>> {
    let LanesFile { path, filesystem } = file;
    let size = filesystem.size_bytes(path)?;
    if size > MAX_FILE_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let file = filesystem.open(path, OpenMode::Read)?;
    let mut bytes = vec![0; size as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The seed of a file of these settings, and in which lanes each payload has been delivered.
fn parse(bytes: &[u8], settings: &str) -> Option<(u64, HashMap<Key, LaneSet>)> {
    let (head, mut rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let seed = u64::from_le_bytes(head[8..16].try_into().ok()?);
    if *head != header(seed, settings) {
        return None;
    }
    let mut under_way = HashMap::new();
    let mut ended = VecDeque::new();
    while let Some(note) = Note::take(seed, &mut rest) {
        match note {
            Note::Batch {
                number,
                done,
                payloads,
            } => {
                under_way.insert(number, (done, payloads));
            }
            Note::Done(number, lane) => {
                if let Some((done, _)) = under_way.get_mut(&number) {
                    done.insert(lane);
                }
            }
            Note::End(number) => {
                ended.extend(under_way.remove(&number));
                if ended.len() > KEPT_ENDED {
                    ended.pop_front();
                }
            }
        }
    }
    let mut delivered: HashMap<Key, LaneSet> = HashMap::new();
    for (done, payloads) in under_way.into_values().chain(ended) {
        for (key, mut lanes) in payloads {
            lanes.add(&done);
            if !lanes.is_empty() {
                delivered.entry(key).or_default().add(&lanes);
            }
        }
    }
    Some((seed, delivered))
}
