//! Files that are open, one a partition: rows go in, files that are full or old come out.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sluice_payload::{Payload, TenantId};
use sluice_pipeline::kind;
use sluice_wire::Request;

use super::partition::{Partition, PartitionBy};
use super::spool::{Cut, Finished, Spool};
use crate::encode::{EncodeError, FileSettings, Repairs, Rows, Sink, Table, TableFile, Walker};

/// Partitions that one request may have rows in; the rows of further ones go to the directory of 1970. It depends on
/// the request alone, so that it comes out the same when the request is read again.
pub(crate) const MAX_PARTITIONS_OF_REQUEST: usize = 32;

/// A file whose row groups have ended is full when less than this part of its target is left.
const FULL_PART: u64 = 10;

/// When files are cut.
#[derive(Debug, Clone)]
pub struct LayoutSettings {
    /// Whether each tenant has directories of its own.
    pub by_tenant: bool,
    /// How tables are divided into directories.
    pub partition_by: PartitionBy,
    /// A file is cut when it has about this many bytes.
    pub target_bytes: u64,
    /// A file is cut when its first row has waited this long.
    pub max_age: Duration,
    /// Files open at once; beyond, the oldest is cut.
    pub max_open_files: usize,
    /// Memory of open files; beyond, the row group of the largest ends, and where that frees little it is cut, and be it the only one.
    pub max_open_bytes: usize,
    /// How files are written.
    pub file: FileSettings,
}

impl Default for LayoutSettings {
    fn default() -> Self {
        Self {
            by_tenant: false,
            partition_by: PartitionBy::Hour,
            target_bytes: 64 << 20,
            max_age: Duration::from_secs(60),
            max_open_files: 64,
            max_open_bytes: 128 << 20,
            file: FileSettings::default(),
        }
    }
}

/// Rows of one payload in one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    pub number: u64,
    pub rows: u64,
}

struct OpenFile {
    partition: Partition,
    file: TableFile<BufWriter<File>>,
    path: PathBuf,
    opened_at: Instant,
    shares: Vec<Share>,
    /// Rows of the payload at hand.
    rows: u64,
    /// What was repaired in it: counted when it is cut, since all of it is done again if it is not.
    repairs: Repairs,
}

/// A file that is ready to be sent, and what it settles.
#[derive(Debug)]
pub(crate) struct ReadyFile {
    pub finished: Finished,
    pub shares: Vec<Share>,
    pub cut_at: Instant,
}

/// What came of a payload.
#[derive(Debug, Default)]
pub(crate) struct Laid {
    pub rows: u64,
    /// Rows that are in an earlier file already, by its partition.
    pub known: Vec<(Partition, u64)>,
}

/// The open files.
pub(crate) struct Layout {
    settings: LayoutSettings,
    pub spool: Spool,
    files: Vec<OpenFile>,
    walker: Walker,
    repairs: Repairs,
    /// The last payload whose own repairs were counted.
    walked: Option<u64>,
    /// A payload of so many items makes the thread panic.
    #[cfg(test)]
    pub panics_at_items: Option<u64>,
}

impl std::fmt::Debug for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Layout")
            .field("files", &self.files.len())
            .finish_non_exhaustive()
    }
}

/// A payload on its way into the files.
struct Filling<'a> {
    settings: &'a LayoutSettings,
    spool: &'a Spool,
    files: &'a mut Vec<OpenFile>,
    number: u64,
    /// Whose payload it is.
    owner: TenantId,
    now: Instant,
    /// Partitions the payload has had rows in so far.
    seen: Vec<Partition>,
    /// Where the last row went, as its partition and its place in `files`.
    last: Option<(Partition, usize)>,
    known: HashMap<Partition, u64>,
    /// Where rows go that are in an earlier file.
    void: HashMap<Table, Rows>,
}

impl Sink for Filling<'_> {
    #[inline]
    fn open(&mut self, table: Table, time_unix_nano: u64, bytes: usize) -> Result<&mut Rows, EncodeError> {
        let tenant = self.settings.by_tenant.then_some(self.owner);
        let partition = Partition::of(tenant, table, self.settings.partition_by, time_unix_nano);
        let index = match self.last {
            Some((last, index)) if last == partition => index,
            _ => {
                let place = self.place(partition);
                if let Some(partition) = self.spool.has(place, self.owner, time_unix_nano, self.number) {
                    *self.known.entry(partition).or_default() += 1;
                    let rows = self.void.entry(table);
                    return Ok(rows.or_insert_with(|| Rows::new(table, &FileSettings::default())));
                }
                let index = self.find(place)?;
                self.last = Some((partition, index));
                index
            }
        };
        let file = &mut self.files[index];
        file.rows += 1;
        file.file.room(bytes, &mut file.repairs)
    }
}

impl Filling<'_> {
    /// The partition for rows of this one, which is another where the payload has rows in too many.
    fn place(&mut self, mut partition: Partition) -> Partition {
        if !self.seen.contains(&partition) {
            if self.seen.len() >= MAX_PARTITIONS_OF_REQUEST {
                partition.hour = 0;
            } else {
                self.seen.push(partition);
            }
        }
        partition
    }

    fn find(&mut self, partition: Partition) -> Result<usize, EncodeError> {
        if let Some(index) = self.files.iter().position(|file| file.partition == partition) {
            return Ok(index);
        }
        let (file, path) = self.spool.create(&partition, self.number)?;
        let mut file = TableFile::new(partition.table, &self.settings.file, BufWriter::new(file))?;
        file.encode_first_at(self.settings.target_bytes);
        self.files.push(OpenFile {
            partition,
            file,
            path,
            opened_at: self.now,
            shares: Vec::new(),
            rows: 0,
            repairs: Repairs::default(),
        });
        Ok(self.files.len() - 1)
    }
}

impl Layout {
    pub fn new(settings: LayoutSettings, spool: Spool) -> Self {
        Self {
            settings,
            spool,
            files: Vec::new(),
            walker: Walker::default(),
            repairs: Repairs::default(),
            walked: None,
            #[cfg(test)]
            panics_at_items: None,
        }
    }

    /// Lays the rows of a payload out. Payloads come in the order of their numbers; after each of them, [`Layout::cut_full`].
    pub fn lay(&mut self, number: u64, payload: &Payload, now: Instant) -> Result<Laid, EncodeError> {
        let mut filling = Filling {
            settings: &self.settings,
            spool: &self.spool,
            files: &mut self.files,
            number,
            owner: payload.tenant,
            now,
            seen: Vec::new(),
            last: None,
            known: HashMap::new(),
            void: HashMap::new(),
        };
        let request = Request::new(kind(payload.signal), &payload.body);
        #[cfg(test)]
        assert!(
            self.panics_at_items != Some(payload.items),
            "as the test wants it"
        );
        let rows = self.walker.walk(&request, &mut filling)?;
        let known = filling.known.into_iter().collect();
        let repairs = self.walker.take_repairs();
        if self.walked.is_none_or(|walked| number > walked) {
            self.repairs.add(repairs);
            self.walked = Some(number);
        }
        for file in self.files.iter_mut().filter(|file| file.rows > 0) {
            let rows = std::mem::take(&mut file.rows);
            file.shares.push(Share { number, rows });
        }
        Ok(Laid { rows, known })
    }

    /// Cuts files that are full by the payload that was laid out last; they are pushed to `ready`.
    pub fn cut_full(
        &mut self,
        number: u64,
        floor: u64,
        ready: &mut Vec<ReadyFile>,
    ) -> Result<(), EncodeError> {
        let mut index = 0;
        while index < self.files.len() {
            match self.is_full(index, number)? {
                true => self.cut(index, floor, ready)?,
                false => index += 1,
            }
        }
        self.make_room(floor, ready)
    }

    /// Whether a file that the payload has rows in is as large as it is to be. What a row group amounts to is known when it has
    /// ended; so one ends early where it turns out that there is room for more.
    fn is_full(&mut self, index: usize, number: u64) -> Result<bool, EncodeError> {
        let (file, target) = (&mut self.files[index], self.settings.target_bytes);
        let has_rows = file.shares.last().is_some_and(|share| share.number == number);
        if !has_rows || file.file.estimated_bytes() < target {
            return Ok(false);
        }
        file.file.end_row_group(&mut file.repairs)?;
        Ok(file.file.estimated_bytes() >= target - target / FULL_PART)
    }

    /// Ends row groups where open files have too much memory, and cuts files where that does not help.
    fn make_room(&mut self, floor: u64, ready: &mut Vec<ReadyFile>) -> Result<(), EncodeError> {
        while self.files.len() > self.settings.max_open_files {
            let oldest = (0..self.files.len()).min_by_key(|index| self.files[*index].opened_at);
            self.cut(oldest.unwrap_or_default(), floor, ready)?;
        }
        while self.memory_bytes() > self.settings.max_open_bytes && !self.files.is_empty() {
            let largest = (0..self.files.len()).max_by_key(|index| self.files[*index].file.memory_bytes());
            let largest = largest.unwrap_or_default();
            let OpenFile {
                partition,
                file,
                repairs,
                ..
            } = &mut self.files[largest];
            match file.least_memory_bytes() * 2 <= file.memory_bytes() {
                true => file.give_back(partition.table, &self.settings.file, repairs)?,
                false => self.cut(largest, floor, ready)?,
            }
        }
        Ok(())
    }

    /// After an error: no file is open, and what was in them is to be laid out again.
    pub fn recover(&mut self) -> std::io::Result<()> {
        self.files.clear();
        self.walker = Walker::default();
        self.spool.recover()
    }

    /// Cuts files whose first row has waited long enough.
    pub fn cut_aged(
        &mut self,
        floor: u64,
        now: Instant,
        ready: &mut Vec<ReadyFile>,
    ) -> Result<(), EncodeError> {
        self.cut_where(floor, ready, |file, settings| {
            now.saturating_duration_since(file.opened_at) >= settings.max_age
        })
    }

    /// Cuts every file.
    pub fn cut_all(&mut self, floor: u64, ready: &mut Vec<ReadyFile>) -> Result<(), EncodeError> {
        self.cut_where(floor, ready, |_, _| true)
    }

    fn cut_where(
        &mut self,
        floor: u64,
        ready: &mut Vec<ReadyFile>,
        which: impl Fn(&OpenFile, &LayoutSettings) -> bool,
    ) -> Result<(), EncodeError> {
        let mut index = 0;
        while index < self.files.len() {
            match which(&self.files[index], &self.settings) {
                true => self.cut(index, floor, ready)?,
                false => index += 1,
            }
        }
        Ok(())
    }

    fn cut(&mut self, index: usize, floor: u64, ready: &mut Vec<ReadyFile>) -> Result<(), EncodeError> {
        let OpenFile {
            partition,
            file,
            path,
            shares,
            mut repairs,
            ..
        } = self.files.remove(index);
        let rows = file.rows();
        let out = file.finish(&mut repairs)?;
        let mut file = out.into_inner().map_err(|error| error.into_error())?;
        let (Some(first), Some(last)) = (shares.first(), shares.last()) else {
            return Err(EncodeError::Internal(
                "a file was cut that no payload has rows in",
            ));
        };
        let (bytes, crc) = checksum(&mut file)?;
        let cut = Cut {
            tenant: self.spool.tenant_name(&partition),
            table: partition.table.name().to_owned(),
            by: partition.by,
            hour: partition.hour,
            first: first.number,
            last: last.number,
            rows,
            bytes,
            crc,
            name: String::new(),
        };
        let finished = self.spool.cut(partition, &file, &path, cut, floor)?;
        self.repairs.add(repairs);
        ready.push(ReadyFile {
            finished,
            shares,
            cut_at: Instant::now(),
        });
        Ok(())
    }

    /// When the next file is old enough to be cut.
    pub fn deadline(&self) -> Option<Instant> {
        let oldest = self.files.iter().map(|file| file.opened_at).min()?;
        Some(oldest + self.settings.max_age)
    }

    /// Memory of the open files.
    pub fn memory_bytes(&self) -> usize {
        self.files.iter().map(|file| file.file.memory_bytes()).sum()
    }

    pub fn open_files(&self) -> usize {
        self.files.len()
    }

    /// What was repaired in files that were cut since the last time, and in what all rows of a request share.
    pub fn take_repairs(&mut self) -> Repairs {
        std::mem::take(&mut self.repairs)
    }
}

/// The size and the CRC-32C of a file.
pub(crate) fn checksum(file: &mut File) -> std::io::Result<(u64, u32)> {
    file.seek(SeekFrom::Start(0))?;
    let (mut bytes, mut crc) = (0, 0);
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((bytes, crc));
        }
        bytes += read as u64;
        crc = crc32c::crc32c_append(crc, &buffer[..read]);
    }
}
