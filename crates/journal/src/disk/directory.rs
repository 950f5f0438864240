//! The directory of a journal: what it is called, who has it, and why it cannot be used.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::DiskSettings;
use super::segment::SegmentId;
use crate::{File, Filesystem, OpenMode};

/// The file that is locked for as long as a process has the journal open.
pub(super) const LOCK_NAME: &str = "LOCK";

/// Ends the names of journals.
pub(super) const JOURNAL_SUFFIX: &str = ".journal";

/// Between two attempts to get the lock of a directory.
const LOCK_RETRY: Duration = Duration::from_millis(50);

/// A journal's directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It is not there, and is not to be made.
    #[error("the directory {} is not there; make it, or set create_directory: true", .0.display())]
    NoDirectory(PathBuf),
    /// Somebody else has it.
    #[error("{} is in use by another process; stop it, or give each its own directory", .0.display())]
    Locked(PathBuf),
    /// A newer version wrote it.
    #[error("{} was written in version {version} of the format, which this version of sluice does not read; use the newer sluice", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u16,
    },
    /// An exporter is not there any more, and what waits for it cannot be set aside.
    #[error(
        "{} is of an exporter that is not in the pipeline any more, and what waits for it could not be set aside: {error}{}; or remove that file to \
         give it up", path.display(), advice(error)
    )]
    Left {
        /// The exporter's position.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It cannot be read or written.
    #[error("{}: {error}{}", path.display(), advice(error))]
    Io {
        /// What.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// What to do about a directory that cannot be used; empty where nobody knows.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space there, or name another directory; what is in it stays"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "; its volume is read-only: mount it for writing, or name another directory; if it became so by itself, check the disk"
        }
        io::ErrorKind::PermissionDenied => {
            "; let the user that sluice runs as write there, or name another directory"
        }
        _ => "",
    }
}

/// A directory for the journal of `pipeline`, locked.
pub(super) fn lock(settings: &DiskSettings, pipeline: &str) -> Result<(PathBuf, Box<dyn File>), OpenError> {
    let filesystem = &*settings.filesystem;
    let given = &settings.directory;
    let directory = directory_of(given, pipeline);
    let failed = |error| OpenError::Io {
        path: directory.clone(),
        error,
    };
    if filesystem.size_bytes(given).is_err() && !settings.create_directory {
        return Err(OpenError::NoDirectory(given.clone()));
    }
    filesystem.create_directories(&directory).map_err(failed)?;
    // Names of directories survive a crash like those of files; where this is not allowed, they are older anyway.
    let _ = filesystem.sync_directory(given);
    let path = directory.join(LOCK_NAME);
    let file = filesystem
        .open(&path, OpenMode::Write)
        .map_err(|error| OpenError::Io {
            path: path.clone(),
            error,
        })?;
    let asked = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok((directory, file)),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(failed(error)),
            Err(_) if asked.elapsed() >= settings.lock_timeout => return Err(OpenError::Locked(directory)),
            Err(_) => std::thread::sleep(LOCK_RETRY),
        }
    }
}

/// The directory of a pipeline's journal, below the one that is configured. Files of other names in it are left alone: what
/// belongs to this journal and no other may be kept there.
pub fn directory_of(configured: &Path, pipeline: &str) -> PathBuf {
    configured.join(format!("{}{JOURNAL_SUFFIX}", escape(pipeline)))
}

/// Journals below a configured directory that are none of `read`, each with the bytes of its segments: none of those that have nothing.
///
/// # Errors
/// A directory cannot be read.
pub fn unread(
    filesystem: &dyn Filesystem,
    configured: &Path,
    read: &[PathBuf],
) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut unread = Vec::new();
    let mut names = filesystem.list(configured)?;
    names.sort();
    for name in names {
        let journal = configured.join(&name);
        if !name.to_string_lossy().ends_with(JOURNAL_SUFFIX) || read.contains(&journal) {
            continue;
        }
        let mut bytes = 0;
        for name in filesystem.list(&journal)? {
            if SegmentId::parse(&name).is_some() {
                bytes += filesystem.size_bytes(&journal.join(name))?;
            }
        }
        if bytes > 0 {
            unread.push((journal, bytes));
        }
    }
    Ok(unread)
}

/// An id as the name of a file.
pub fn escape(id: &str) -> String {
    id.bytes().fold(String::new(), |mut name, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            // Writing to a string does not fail.
            _ => drop(write!(name, "%{byte:02X}")),
        }
        name
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sluice_payload::Tenants;

    use crate::testing::{Fault, Operation, SimulatedDisk};
    use crate::{DiskSettings, Journal};

    /// Scenario: a journal's first start on a disk that is full, read-only, or failing.
    /// Guarantees: the error names the file, what the disk said, and, where somebody can do something about it, what.
    #[test]
    fn an_error_says_what_to_do() {
        for (fault, words) in [
            (Fault::NoSpace, "free some space"),
            (Fault::ReadOnly, "mount it for writing"),
            (
                Fault::Io,
                "/spool/logs.journal/LOCK: Input/output error (os error 5)",
            ),
        ] {
            let disk = SimulatedDisk::default();
            disk.fail(Operation::Open, fault, 1);
            let settings = DiskSettings {
                filesystem: Arc::new(disk),
                seed: Some(1),
                ..DiskSettings::new("/spool", Tenants::default())
            };
            let error = Journal::disk("logs", Vec::new(), settings)
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with("/spool/logs.journal/LOCK: ") && error.contains(words),
                "{error}"
            );
        }
    }
}
