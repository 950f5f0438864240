//! The spool: a directory where files are written, and kept until the destination has them.
//!
//! What makes every row arrive exactly once is a line in the file `cuts`, synced before a file is sent: these numbers of
//! the journal, of this partition, are in the file of this name. A number is one tenant's, so that names say nothing of tenants, and are
//! different all the same where partitions are. So after a crash
//!
//! - a file without a line was never sent: it is removed, and its rows come again from the journal;
//! - a file with a line may have been sent: the same bytes go out under the same name, and the destination keeps one;
//! - a line without a file: the destination has it. Rows that the journal hands out again are skipped.
//!
//! A crash of the machine may take the end of the journal, which need not be synced, and leave the lines, which are. Its numbers are
//! then given to other rows: what lines say of them is forgotten, and files are called otherwise from there on.
//!
//! In a journal in memory numbers begin anew with each process, and so does what is known of them: only files that are left
//! are sent.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sluice_payload::{MAX_TENANTS, TenantId, Tenants};

use super::partition::{Partition, PartitionBy, tenant_directory};
use crate::Table;

const CUTS: &str = "cuts";
const LOCK: &str = "LOCK";
const FINISHED: &str = "parquet";
const UNFINISHED: &str = "unfinished";

/// Processes with the same spool directory, at most: as many as anybody runs on one machine from one configuration.
const MAX_PROCESSES: usize = 64;

/// The file of cuts is written anew after so many lines, without those that nothing needs any more: some 1 MB.
const COMPACT_AFTER: usize = 4096;

/// One line of `cuts`: what is in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cut {
    /// The name of the tenant, where tenants are divided: ids are another process's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The table's name.
    pub table: String,
    pub by: PartitionBy,
    pub hour: u64,
    /// The first and the last number of the journal that has rows in it. All rows of these numbers in this partition, and
    /// not in an earlier file, are.
    pub first: u64,
    pub last: u64,
    pub rows: u64,
    pub bytes: u64,
    /// CRC-32C of the file.
    pub crc: u32,
    /// Its name, without the directory.
    pub name: String,
}

impl Cut {
    /// What comes into the journal gets this number next, so that nothing is known of those from it on. Whether something was said to be.
    fn forget_from(&mut self, next: u64) -> bool {
        let is_beyond = self.last >= next;
        if is_beyond {
            let is_mark = self.name.is_empty();
            // The numbers of a journal on disk begin with 1: of a file with 0 nothing is read again.
            self.last = if is_mark || self.first < next { next - 1 } else { 0 };
        }
        is_beyond
    }

    /// `None`: another version's table.
    fn partition(&self, tenants: &Tenants) -> Option<Partition> {
        let table = Table::ALL.into_iter().find(|table| table.name() == self.table)?;
        Some(Partition {
            tenant: self.tenant.as_ref().map(|name| tenants.intern(name)),
            table,
            by: self.by,
            hour: self.hour,
        })
    }
}

/// The first line of `cuts`.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    /// Which names are ours: the first part of all of them.
    epoch: u64,
    /// The lowest number that was not settled when the file was written.
    floor: u64,
}

/// An open spool.
#[derive(Debug)]
pub(crate) struct Spool {
    directory: PathBuf,
    /// The names of partitions' tenants.
    tenants: Tenants,
    cuts: File,
    head: Head,
    /// The last number that is in a file, by partition.
    marks: HashMap<Partition, u64>,
    /// Files that have a line of their own in `cuts`; those that were sent since are forgotten when it is written anew.
    known: Vec<Finished>,
    /// Lines added since it was.
    lines: usize,
    /// No mark that was there at the start is beyond this.
    replay_until: u64,
    /// The file that was being cut when something failed: it may have a line in `cuts` or a part of one, and is not sent.
    torn: Option<PathBuf>,
    /// Held until the process ends, however it does.
    _lock: File,
}

/// A file that waits to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Finished {
    pub cut: Cut,
    pub partition: Partition,
    /// Where it is in the spool.
    pub path: PathBuf,
}

impl Finished {
    /// Its directory at the destination, with `/` between its parts and none at its ends.
    pub fn directory(&self) -> String {
        let partition = self.partition.path();
        match &self.cut.tenant {
            Some(name) => format!("{}/{partition}", tenant_directory(name)),
            None => partition,
        }
    }
}

/// The spool cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// Somebody else has it.
    #[error("{} is in use by another exporter or process; give each its own spool_directory", .0.display())]
    Locked(PathBuf),
    /// Its marks are of more tenants than are told apart: those of two would be taken for each other's.
    #[error(
        "{} knows of more tenants than are told apart at once ({most}), with those of the queues; move it away to begin without it, when no \
         file waits there: rows that were just sent may then come twice",
        directory.display()
    )]
    Tenants {
        /// The spool.
        directory: PathBuf,
        /// [`MAX_TENANTS`].
        most: usize,
    },
    /// It cannot be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// What.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl Spool {
    /// Opens or makes the spool in `directory`. `goes_on_at`: the journal is the one of the last process, nobody else has it, and the
    /// next payload has this number; where it is `None`, each process that is there has a directory of its own below. Returns what was
    /// cut and is not known to have arrived.
    pub fn open(
        directory: &Path,
        goes_on_at: Option<u64>,
        tenants: &Tenants,
    ) -> Result<(Self, Vec<Finished>), SpoolError> {
        if goes_on_at.is_some() {
            return Self::open_at(directory, goes_on_at, tenants);
        }
        for place in 0..MAX_PROCESSES {
            match Self::open_at(&directory.join(place.to_string()), None, tenants) {
                Err(SpoolError::Locked(_)) => {}
                done => return done,
            }
        }
        Err(SpoolError::Locked(directory.to_owned()))
    }

    fn open_at(
        directory: &Path,
        goes_on_at: Option<u64>,
        tenants: &Tenants,
    ) -> Result<(Self, Vec<Finished>), SpoolError> {
        let failed = |error| SpoolError::Io {
            path: directory.to_owned(),
            error,
        };
        std::fs::create_dir_all(directory).map_err(failed)?;
        let lock = File::create(directory.join(LOCK)).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(SpoolError::Locked(directory.to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let (head, cuts) = read_cuts(&directory.join(CUTS)).map_err(failed)?;
        let mut waiting = Vec::new();
        let mut known = HashMap::new();
        let mut marks: HashMap<Partition, u64> = HashMap::new();
        let mut is_short = false;
        for mut cut in cuts {
            if let Some(next) = goes_on_at {
                is_short |= cut.forget_from(next);
            }
            let Some(partition) = cut.partition(tenants) else {
                continue;
            };
            // The journal's own tenants are known by now, and all of these were told apart by the process before.
            if partition.tenant == Some(TenantId::OVERFLOW)
                && cut.tenant.as_deref() != Some(&*tenants.name(TenantId::OVERFLOW))
            {
                return Err(SpoolError::Tenants {
                    directory: directory.to_owned(),
                    most: MAX_TENANTS,
                });
            }
            let path = directory.join(spool_name(&partition, &cut.name));
            if goes_on_at.is_some() {
                let mark = marks.entry(partition).or_default();
                *mark = cut.last.max(*mark);
            }
            known.insert(path.clone(), Finished { cut, partition, path });
        }
        for entry in std::fs::read_dir(directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let of_kind = |kind| path.extension().is_some_and(|extension| extension == kind);
            match known.remove(&path) {
                Some(finished) => waiting.push(finished),
                None if of_kind(FINISHED) || of_kind(UNFINISHED) => {
                    std::fs::remove_file(&path).map_err(failed)?;
                }
                None => {}
            }
        }
        waiting.sort_by(|a, b| (a.cut.last, &a.path).cmp(&(b.cut.last, &b.path)));
        let head = match head {
            // Another epoch: a name with the same numbers may be that of a file with other rows.
            Some(head) if goes_on_at.is_some() && !is_short => head,
            _ => Head {
                epoch: random(),
                floor: 0,
            },
        };
        if is_short {
            tracing::warn!(
                directory = %directory.display(),
                "files have been written of requests that the queue has lost, as it may in a crash of the machine; its numbers are given anew, and \
                 files have names of a new epoch"
            );
        }
        let replay_until = marks.values().copied().max().unwrap_or_default();
        let mut spool = Self {
            directory: directory.to_owned(),
            tenants: tenants.clone(),
            // Replaced at once.
            cuts: File::open(directory).map_err(failed)?,
            head,
            marks,
            known: waiting.clone(),
            lines: 0,
            replay_until,
            torn: None,
            _lock: lock,
        };
        let floor = spool.head.floor;
        spool.rewrite(floor).map_err(failed)?;
        Ok((spool, waiting))
    }

    /// The partition whose earlier file has the rows of this number, a payload of `owner`, already, if one has: `partition` itself, or the
    /// one of another division that was configured when they were cut.
    pub fn has(
        &self,
        partition: Partition,
        owner: TenantId,
        time_unix_nano: u64,
        number: u64,
    ) -> Option<Partition> {
        if number > self.replay_until || self.marks.is_empty() {
            return None;
        }
        let Partition {
            tenant, table, by, ..
        } = partition;
        let divided = |tenant| {
            let divisions = [PartitionBy::Hour, PartitionBy::Day, PartitionBy::None];
            let others = divisions.into_iter().filter(move |other| *other != by);
            let others = others.map(move |by| Partition::of(tenant, table, by, time_unix_nano));
            std::iter::once(Partition { tenant, ..partition }).chain(others)
        };
        let other = match tenant {
            Some(_) => None,
            None => Some(owner),
        };
        divided(tenant)
            .chain(divided(other))
            .find(|partition| self.marks.get(partition).is_some_and(|mark| number <= *mark))
    }

    /// What a cut calls the tenant of a partition.
    pub fn tenant_name(&self, partition: &Partition) -> Option<String> {
        let name = partition.tenant.map(|tenant| self.tenants.name(tenant));
        name.map(|name| name.to_string())
    }

    /// A new file of a partition, to be written.
    pub fn create(&self, partition: &Partition, first: u64) -> io::Result<(File, PathBuf)> {
        let name = format!("{first}.{UNFINISHED}");
        let path = self.directory.join(spool_name(partition, &name));
        let file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(&path)?;
        Ok((file, path))
    }

    /// Makes a written file one that is going to be sent: from here on, its rows are in this file and no other. After an error
    /// nothing more is cut until [`Spool::recover`] has worked.
    pub fn cut(
        &mut self,
        partition: Partition,
        file: &File,
        from: &Path,
        mut cut: Cut,
        floor: u64,
    ) -> io::Result<Finished> {
        cut.name = format!(
            "{:016x}-{:012}-{:012}.{FINISHED}",
            self.head.epoch, cut.first, cut.last
        );
        let path = self.directory.join(spool_name(&partition, &cut.name));
        file.sync_all()?;
        self.torn = Some(path.clone());
        std::fs::rename(from, &path)?;
        File::open(&self.directory)?.sync_all()?;
        if self.lines >= COMPACT_AFTER {
            self.rewrite(floor)?;
        }
        write_line(&mut self.cuts, &cut)?;
        self.cuts.sync_data()?;
        self.lines += 1;
        // Not before the line is there: a mark alone says that the destination has the file.
        let mark = self.marks.entry(partition).or_default();
        *mark = cut.last.max(*mark);
        self.torn = None;
        let finished = Finished { cut, partition, path };
        self.known.push(finished.clone());
        Ok(finished)
    }

    /// After an error: of files that were being written, and of one that was being cut, nothing is left, and `cuts` is whole. What
    /// was cut before stays; its rows are known when they are read again.
    pub fn recover(&mut self) -> io::Result<()> {
        // First what no line speaks of: where the disk is full there is no space to write `cuts` before it is gone.
        for entry in std::fs::read_dir(&self.directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == UNFINISHED) {
                std::fs::remove_file(&path)?;
            }
        }
        // Then the line, and the file after it: a line without a file says that the destination has it.
        self.rewrite(self.head.floor)?;
        if let Some(torn) = &self.torn {
            match std::fs::remove_file(torn) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        File::open(&self.directory)?.sync_all()?;
        self.torn = None;
        self.replay_until = self.marks.values().copied().max().unwrap_or_default();
        Ok(())
    }

    /// From here on nothing can be added to `cuts`.
    #[cfg(test)]
    pub fn break_cuts(&mut self) {
        self.cuts = File::open(self.directory.join(CUTS)).expect("it is there");
    }

    /// The next cut writes `cuts` anew.
    #[cfg(test)]
    pub fn compact_at_next_cut(&mut self) {
        self.lines = COMPACT_AFTER;
    }

    /// Writes `cuts` anew. Marks below the floor of the last time are left out: everything up to there was settled long ago,
    /// and the journal has forgotten it.
    fn rewrite(&mut self, floor: u64) -> io::Result<()> {
        let head = Head {
            epoch: self.head.epoch,
            floor,
        };
        let forgotten = self.head.floor;
        self.marks.retain(|_, mark| *mark >= forgotten);
        let path = self.directory.join(CUTS);
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        write_line(&mut file, &head)?;
        for (partition, last) in &self.marks {
            let mark = Cut {
                tenant: self.tenant_name(partition),
                table: partition.table.name().to_owned(),
                by: partition.by,
                hour: partition.hour,
                first: *last,
                last: *last,
                rows: 0,
                bytes: 0,
                crc: 0,
                name: String::new(),
            };
            write_line(&mut file, &mark)?;
        }
        // Of files that wait, the whole line: they may have to be sent after another crash.
        let mut waiting = Vec::new();
        for finished in &self.known {
            // An error says nothing about the file: without its line it would be removed, and its mark would say that it was sent.
            if finished.path.try_exists()? {
                write_line(&mut file, &finished.cut)?;
                waiting.push(finished.clone());
            }
        }
        file.sync_all()?;
        std::fs::rename(&new, &path)?;
        File::open(&self.directory)?.sync_all()?;
        self.cuts = OpenOptions::new().append(true).open(&path)?;
        self.head = head;
        self.known = waiting;
        self.lines = 0;
        Ok(())
    }
}

/// A name in the spool, which has no directories of its own.
fn spool_name(partition: &Partition, name: &str) -> String {
    format!("{}~{name}", partition.path().replace('/', "~"))
}

fn write_line(file: &mut File, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    file.write_all(&line)
}

/// What is in `cuts`. The last line may not be written whole: nothing was sent for that.
///
/// # Errors
/// When it cannot be read, or another line than the last is none: files of lines behind it would be taken for such that were never
/// sent, and be removed.
fn read_cuts(path: &Path) -> io::Result<(Option<Head>, Vec<Cut>)> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((None, Vec::new())),
        Err(error) => return Err(error),
    };
    let mut lines = text.split_inclusive(|byte| *byte == b'\n').enumerate().peekable();
    let (mut head, mut cuts) = (None, Vec::new());
    while let Some((index, line)) = lines.next() {
        if !line.ends_with(b"\n") {
            break;
        }
        let parsed = match index {
            0 => serde_json::from_slice(line).map(|line| head = Some(line)),
            _ => serde_json::from_slice(line).map(|line| cuts.push(line)),
        };
        match parsed {
            Err(_) if lines.peek().is_none() => {}
            Err(error) => {
                let reason = format!(
                    "line {} of {CUTS} is damaged ({error}), and with it what is known of files that were sent; move the directory \
                     away to begin without it: rows whose files wait there or were just sent may then come twice",
                    index + 1
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
            }
            Ok(()) => {}
        }
    }
    Ok((head, cuts))
}

/// A number that no other spool has.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    if let Ok(now) = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
        hasher.write_u128(now.as_nanos());
    }
    hasher.finish()
}
