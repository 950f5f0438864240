//! A file of whole records: appends, cut back after a failed write, put aside when full.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

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

/// What a record is written to. A seam for tests: a file that fails on purpose.
pub(super) trait Medium {
    /// Appends some of these bytes.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// The length.
    fn len(&self) -> io::Result<u64>;
    /// Cuts it to this length.
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl Medium for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(self, bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.metadata().map(|metadata| metadata.len())
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// What a failed write left at the end of a medium.
#[derive(Debug, Default)]
pub(super) struct Tail {
    torn_bytes: u64,
}

impl Tail {
    /// Appends a whole record, or fails and leaves none of it: at once if the medium can be cut, else before the next
    /// record. Returns the bytes the medium grew by.
    pub(super) fn append(
        &mut self,
        medium: &mut impl Medium,
        framing: Framing,
        record: &[u8],
    ) -> io::Result<u64> {
        let mut grown = 0;
        if self.torn_bytes > 0
            && let Err(error) = self.cut_back(medium)
        {
            if framing == Framing::Lengths {
                return Err(error);
            }
            write_whole(medium, b"\n").map_err(|(_, error)| error)?;
            self.torn_bytes = 0;
            grown = 1;
        }
        match write_whole(medium, record) {
            Ok(()) => Ok(grown + record.len() as u64),
            Err((written, error)) => {
                self.torn_bytes = written;
                if written > 0 {
                    // If this fails too it is tried again before the next record.
                    let _ = self.cut_back(medium);
                }
                Err(error)
            }
        }
    }

    fn cut_back(&mut self, medium: &mut impl Medium) -> io::Result<()> {
        let length = medium.len()?.saturating_sub(self.torn_bytes);
        medium.cut(length)?;
        self.torn_bytes = 0;
        Ok(())
    }
}

/// Writes all of the bytes, or says how many were written before the error.
fn write_whole(medium: &mut impl Medium, bytes: &[u8]) -> Result<(), (u64, io::Error)> {
    let mut written = 0;
    while written < bytes.len() {
        match medium.write(&bytes[written..]) {
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
    path: PathBuf,
    framing: Framing,
    rotation: Option<Rotation>,
    /// `None` after the file was put aside and the next one could not be opened.
    file: Option<File>,
    size_bytes: u64,
    tail: Tail,
}

impl RecordFile {
    pub(super) fn open(
        path: PathBuf,
        framing: Framing,
        rotation: Option<Rotation>,
        append: bool,
        now: SystemTime,
    ) -> io::Result<Self> {
        let mut opened = Self {
            path,
            framing,
            rotation,
            file: None,
            size_bytes: 0,
            tail: Tail::default(),
        };
        let file = opened.opened()?;
        // Pipes and devices cannot be emptied and need not be.
        if !append && rotation.is_none() && file.metadata()?.is_file() {
            file.set_len(0)?;
            opened.size_bytes = 0;
        }
        opened.prune(now);
        Ok(opened)
    }

    /// The file, opened if it is not.
    fn opened(&mut self) -> io::Result<&mut File> {
        match &mut self.file {
            Some(file) => Ok(file),
            none => {
                let file = OpenOptions::new().append(true).create(true).open(&self.path)?;
                self.size_bytes = file.metadata()?.len();
                self.tail = Tail::default();
                Ok(none.insert(file))
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
        if let Some(file) = &mut self.file {
            self.size_bytes += self.tail.append(file, framing, record)?;
        }
        Ok(())
    }

    /// Makes what was written survive a crash of the machine.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), File::sync_data)
    }

    /// Renames the file, so that the next record opens a new one. A file that cannot be renamed is gone on with: too
    /// large is better than lost.
    fn put_aside(&mut self, now: SystemTime) {
        let mut stamp = now;
        let mut backup = self.backup_path(stamp);
        while backup.exists() {
            stamp += Duration::from_millis(1);
            backup = self.backup_path(stamp);
        }
        match std::fs::rename(&self.path, &backup) {
            Ok(()) => {
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
        let directory = self
            .path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let Ok(entries) = std::fs::read_dir(directory) else {
            return;
        };
        let (prefix, suffix) = self.backup_affixes();
        let mut backups: Vec<(SystemTime, PathBuf)> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name();
                let stamp = name.to_str()?.strip_prefix(&prefix)?.strip_suffix(&suffix)?;
                Some((parse_file_stamp(stamp)?, entry.path()))
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
                && let Err(error) = std::fs::remove_file(path)
            {
                tracing::warn!(path = %path.display(), %error, "file exporter: cannot remove an old file");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A medium with room for so many bytes, which may refuse to be cut so many times.
    struct Flaky {
        bytes: Vec<u8>,
        room: usize,
        refused_cuts: usize,
        at_most: usize,
    }

    impl Medium for Flaky {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.room.saturating_sub(self.bytes.len());
            let count = bytes.len().min(room).min(self.at_most);
            if count == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.bytes.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn len(&self) -> io::Result<u64> {
            Ok(self.bytes.len() as u64)
        }

        fn cut(&mut self, length: u64) -> io::Result<()> {
            if self.refused_cuts > 0 {
                self.refused_cuts -= 1;
                return Err(io::ErrorKind::InvalidInput.into());
            }
            self.bytes.truncate(length as usize);
            Ok(())
        }
    }

    fn flaky(room: usize, refused_cuts: usize) -> Flaky {
        Flaky {
            bytes: Vec::new(),
            room,
            refused_cuts,
            at_most: 3,
        }
    }

    /// Scenario: the disk fills up in the middle of a line on a medium that cannot be cut, then has room again.
    /// Guarantees: the failed record is an error; the next one starts on a fresh line and is whole.
    #[test]
    fn a_torn_line_costs_only_itself() {
        let (mut medium, mut tail) = (flaky(8, usize::MAX), Tail::default());
        assert_eq!(tail.append(&mut medium, Framing::Lines, b"one\n").ok(), Some(4));
        let error = tail
            .append(&mut medium, Framing::Lines, b"two is torn\n")
            .expect_err("no room");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(
            tail.append(&mut medium, Framing::Lines, b"two\n").is_err(),
            "still no room"
        );
        medium.room = 100;
        assert_eq!(tail.append(&mut medium, Framing::Lines, b"two\n").ok(), Some(5));
        assert_eq!(String::from_utf8_lossy(&medium.bytes), "one\ntwo \ntwo\n");
    }

    /// Scenario: a length-delimited medium is torn and refuses to be cut for a while.
    /// Guarantees: nothing is written behind the torn record until the cut succeeds.
    #[test]
    fn a_torn_length_delimited_file_waits_for_its_cut() {
        let (mut medium, mut tail) = (flaky(5, 3), Tail::default());
        assert!(
            tail.append(&mut medium, Framing::Lengths, b"\0\0\0\x05hello")
                .is_err()
        );
        medium.room = 100;
        for _ in 0..2 {
            let error = tail
                .append(&mut medium, Framing::Lengths, b"\0\0\0\x02hi")
                .expect_err("not cut yet");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert_eq!(medium.bytes.len(), 5);
        }
        assert!(
            tail.append(&mut medium, Framing::Lengths, b"\0\0\0\x02hi")
                .is_ok()
        );
        assert_eq!(medium.bytes, b"\0\0\0\x02hi");
    }
}
