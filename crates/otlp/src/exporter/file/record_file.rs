//! A file of whole records: appends, cut back after a failed write, put aside when full.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sluice_journal::{File, Filesystem, OpenMode};

use super::Rotation;
use crate::exporter::stamp::{file_stamp, parse_file_stamp};

const SECONDS_PER_DAY: u64 = 86_400;

/// How a reader finds the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// By newlines: a torn record costs its own line only.
    Lines,
    /// By lengths: behind a torn record nothing is found again.
    Lengths,
}

/// What a failed write left at the end of a file.
#[derive(Debug, Default)]
struct Tail {
    torn_bytes: u64,
}

impl Tail {
    /// Appends a whole record, or fails and leaves none of it: at once if the file can be cut, else before the next
    /// record. Returns the bytes the file grew by.
    fn append(&mut self, file: &dyn File, framing: Framing, record: &[u8]) -> io::Result<u64> {
        let mut grown = 0;
        if self.torn_bytes > 0
            && let Err(error) = self.cut_back(file)
        {
            if framing == Framing::Lengths {
                return Err(error);
            }
            write_whole(file, b"\n").map_err(|(_, error)| error)?;
            self.torn_bytes = 0;
            grown = 1;
        }
        match write_whole(file, record) {
            Ok(()) => Ok(grown + record.len() as u64),
            Err((written, error)) => {
                self.torn_bytes = written;
                if written > 0 {
                    // If this fails too it is tried again before the next record.
                    let _ = self.cut_back(file);
                }
                Err(error)
            }
        }
    }

    fn cut_back(&mut self, file: &dyn File) -> io::Result<()> {
        let length = file.size_bytes()?.saturating_sub(self.torn_bytes);
        file.truncate(length)?;
        self.torn_bytes = 0;
        Ok(())
    }
}

/// Writes all of the bytes, or says how many were written before the error.
fn write_whole(file: &dyn File, bytes: &[u8]) -> Result<(), (u64, io::Error)> {
    let mut written = 0;
    while written < bytes.len() {
        match file.append(&bytes[written..]) {
            Ok(0) => return Err((written as u64, io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((written as u64, error)),
        }
    }
    Ok(())
}

/// The file at a path, and the files put aside from it.
pub(super) struct RecordFile {
    filesystem: Arc<dyn Filesystem>,
    path: PathBuf,
    framing: Framing,
    rotation: Option<Rotation>,
    /// `None` after the file was put aside and the next one could not be opened.
    file: Option<Box<dyn File>>,
    size_bytes: u64,
    tail: Tail,
}

impl RecordFile {
    pub(super) fn open(
        filesystem: Arc<dyn Filesystem>,
        path: PathBuf,
        framing: Framing,
        rotation: Option<Rotation>,
        append: bool,
        now: SystemTime,
    ) -> io::Result<Self> {
        let mut opened = Self {
            filesystem,
            path,
            framing,
            rotation,
            file: None,
            size_bytes: 0,
            tail: Tail::default(),
        };
        let file = opened.opened()?;
        // Pipes and devices cannot be emptied and need not be; nor does one that is put aside become another.
        if !file.is_regular()? {
            opened.rotation = None;
        } else if !append && rotation.is_none() {
            file.truncate(0)?;
            opened.size_bytes = 0;
        }
        opened.prune(now);
        Ok(opened)
    }

    /// The file, opened if it is not.
    fn opened(&mut self) -> io::Result<&dyn File> {
        match &mut self.file {
            Some(file) => Ok(&**file),
            none => {
                let file = self.filesystem.open(&self.path, OpenMode::Append)?;
                self.size_bytes = file.size_bytes()?;
                self.tail = Tail::default();
                Ok(&**none.insert(file))
            }
        }
    }

    /// Appends a whole record, into a new file if this one is full.
    pub(super) fn append(&mut self, record: &[u8], now: SystemTime) -> io::Result<()> {
        self.opened()?;
        if let Some(rotation) = self.rotation
            && self.size_bytes > 0
            && self.size_bytes.saturating_add(record.len() as u64) > rotation.max_bytes
        {
            self.put_aside(now);
        }
        let framing = self.framing;
        self.opened()?;
        if let Some(file) = self.file.as_deref() {
            self.size_bytes += self.tail.append(file, framing, record)?;
        }
        Ok(())
    }

    /// Makes this file survive a crash of the machine, name included; those put aside were synced then,
    /// pipes and devices keep nothing.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if let Some(file) = &self.file
            && file.is_regular()?
        {
            file.sync_data()?;
            self.filesystem.sync_directory(self.directory())?;
        }
        Ok(())
    }

    fn directory(&self) -> &Path {
        self.path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."))
    }

    /// Syncs and renames the file, so that the next record opens a new one; what was put aside survives a crash of the
    /// machine, for nobody syncs it later. A file that cannot be renamed is gone on with: too large is better than
    /// lost. One that cannot be synced is put aside all the same: it would be no safer where it is, and a second
    /// sync that succeeds would prove nothing.
    fn put_aside(&mut self, now: SystemTime) {
        let mut stamp = now;
        let mut backup = self.backup_path(stamp);
        while self.filesystem.size_bytes(&backup).is_ok() {
            stamp += Duration::from_millis(1);
            backup = self.backup_path(stamp);
        }
        let warn = |error: io::Error| {
            let path = self.path.display();
            tracing::warn!(%path, %error, "file exporter: cannot sync at rotation; a crash may cost records");
        };
        if let Some(Err(error)) = self.file.as_ref().map(|file| file.sync_data()) {
            warn(error);
        }
        match self.filesystem.rename(&self.path, &backup) {
            Ok(()) => {
                if let Err(error) = self.filesystem.sync_directory(self.directory()) {
                    warn(error);
                }
                self.file = None;
                self.prune(now);
            }
            Err(error) => {
                let (from, to) = (self.path.display(), backup.display());
                tracing::warn!(%from, %to, %error, "file exporter: cannot rotate; going on with the full file");
            }
        }
    }

    fn backup_path(&self, time: SystemTime) -> PathBuf {
        let (prefix, suffix) = self.backup_affixes();
        self.path
            .with_file_name(format!("{prefix}{}{suffix}", file_stamp(time)))
    }

    /// What stands before and behind the stamp in the name of a file put aside.
    fn backup_affixes(&self) -> (String, String) {
        let text = |part: Option<&OsStr>| {
            part.map(|part| part.to_string_lossy().into_owned())
                .unwrap_or_default()
        };
        let extension = self
            .path
            .extension()
            .map(|extension| format!(".{}", extension.to_string_lossy()));
        (
            format!("{}-", text(self.path.file_stem())),
            extension.unwrap_or_default(),
        )
    }

    /// Removes files put aside that are too many or too old. Only names this exporter would write are touched.
    fn prune(&self, now: SystemTime) {
        let Some(rotation) = self
            .rotation
            .filter(|rotation| rotation.max_backups > 0 || rotation.max_days > 0)
        else {
            return;
        };
        let Ok(names) = self.filesystem.list(self.directory()) else {
            return;
        };
        let (prefix, suffix) = self.backup_affixes();
        let mut backups: Vec<(SystemTime, PathBuf)> = names
            .iter()
            .filter_map(|name| {
                let stamp = name.to_str()?.strip_prefix(&prefix)?.strip_suffix(&suffix)?;
                Some((parse_file_stamp(stamp)?, self.path.with_file_name(name)))
            })
            .collect();
        backups.sort_unstable_by(|one, other| other.cmp(one));
        let kept = if rotation.max_backups > 0 {
            rotation.max_backups as usize
        } else {
            usize::MAX
        };
        let oldest = match rotation.max_days {
            0 => None,
            days => now.checked_sub(Duration::from_secs(u64::from(days) * SECONDS_PER_DAY)),
        };
        for (position, (time, path)) in backups.iter().enumerate() {
            if (position >= kept || oldest.is_some_and(|oldest| *time < oldest))
                && let Err(error) = self.filesystem.remove(path)
            {
                tracing::warn!(path = %path.display(), %error, "file exporter: cannot remove an old file");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sluice_journal::testing::{Fault, Operation, SimulatedDisk};

    use super::*;

    /// A disk that takes three bytes at a time, with room for so many, which refuses so many times to cut a file.
    fn disk(room_bytes: u64, refused_cuts: usize) -> (SimulatedDisk, Box<dyn File>) {
        let disk = SimulatedDisk::default();
        disk.set_longest_write_bytes(3);
        disk.set_capacity_bytes(room_bytes);
        disk.fail(Operation::Truncate, Fault::Io, refused_cuts);
        let file = disk.open(Path::new("/file"), OpenMode::Append).expect("opened");
        (disk, file)
    }

    /// Scenario: the disk fills up in the middle of a line of a file that cannot be cut, then has room again.
    /// Guarantees: the failed record is an error; the next one starts on a fresh line and is whole.
    #[test]
    fn a_torn_line_costs_only_itself() {
        let (disk, file) = disk(8, usize::MAX);
        let mut tail = Tail::default();
        assert_eq!(tail.append(&*file, Framing::Lines, b"one\n").ok(), Some(4));
        let error = tail
            .append(&*file, Framing::Lines, b"two is torn\n")
            .expect_err("no room");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(
            tail.append(&*file, Framing::Lines, b"two\n").is_err(),
            "still no room"
        );
        disk.set_capacity_bytes(100);
        assert_eq!(tail.append(&*file, Framing::Lines, b"two\n").ok(), Some(5));
        let content = disk.content("/file").unwrap_or_default();
        assert_eq!(String::from_utf8_lossy(&content), "one\ntwo \ntwo\n");
    }

    /// Scenario: a length-delimited file is torn and refuses to be cut for a while.
    /// Guarantees: nothing is written behind the torn record until the cut succeeds.
    #[test]
    fn a_torn_length_delimited_file_waits_for_its_cut() {
        let (disk, file) = disk(5, 3);
        let mut tail = Tail::default();
        assert!(tail.append(&*file, Framing::Lengths, b"\0\0\0\x05hello").is_err());
        disk.set_capacity_bytes(100);
        for _ in 0..2 {
            tail.append(&*file, Framing::Lengths, b"\0\0\0\x02hi")
                .expect_err("not cut yet");
            assert_eq!(file.size_bytes().ok(), Some(5));
        }
        assert!(tail.append(&*file, Framing::Lengths, b"\0\0\0\x02hi").is_ok());
        assert_eq!(disk.content("/file").unwrap_or_default(), b"\0\0\0\x02hi");
    }
}
