//! The directory of a journal: what it is called, who has it, and why it cannot be used.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::DiskSettings;
use crate::{File, OpenMode};

/// The file that is locked for as long as a process has the journal open.
pub(super) const LOCK_NAME: &str = "LOCK";

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
    configured.join(format!("{}.journal", escape(pipeline)))
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
