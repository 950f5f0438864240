//! A directory of its own for every run.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Enough that a disk with a few free blocks left counts as full.
const PROBE_BYTES: usize = 256 * 1024;

/// More earlier runs than anybody keeps.
const MAX_RUNS: u32 = 100_000;

/// The directory of one run: `run-1`, `run-2`, ... below the given one, whichever is not there yet.
#[derive(Debug)]
pub(super) struct RunDirectory {
    parent: PathBuf,
    path: PathBuf,
}

impl RunDirectory {
    /// Makes the directory and sees that it can be written.
    ///
    /// # Errors
    /// What is wrong with it, and what to do.
    pub fn create(parent: &Path) -> Result<Self, String> {
        std::fs::create_dir_all(parent).map_err(|error| unwritable(parent, &error))?;
        for number in 1..=MAX_RUNS {
            let path = parent.join(format!("run-{number}"));
            match std::fs::create_dir(&path) {
                Ok(()) => {
                    let directory = Self {
                        parent: parent.to_owned(),
                        path,
                    };
                    if let Err(problem) = directory.probe() {
                        // Nothing was written: nothing needs to stay.
                        let _ = std::fs::remove_dir(&directory.path);
                        return Err(problem);
                    }
                    return Ok(directory);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(unwritable(&path, &error)),
            }
        }
        Err(format!("{} holds {MAX_RUNS} runs; remove some", parent.display()))
    }

    /// Where this run's files are.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The size of this run's files.
    pub fn bytes(&self) -> u64 {
        size(&self.path)
    }

    /// How many other runs are kept beside this one, and their size.
    pub fn earlier(&self) -> (usize, u64) {
        let runs = std::fs::read_dir(&self.parent)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        let others = runs.filter(|path| *path != self.path && path.is_dir());
        others.fold((0, 0), |(runs, bytes), path| (runs + 1, bytes + size(&path)))
    }

    /// Writes a little and removes it again.
    ///
    /// # Errors
    /// Why that did not work, and what to do.
    pub fn probe(&self) -> Result<(), String> {
        let path = self.path.join(".probe");
        let written = std::fs::File::create(&path).and_then(|mut file| {
            file.write_all(&vec![0x5a; PROBE_BYTES])
                .and_then(|()| file.sync_data())
        });
        // A probe that cannot be removed was not written either.
        let _ = std::fs::remove_file(&path);
        written.map_err(|error| unwritable(&self.path, &error))
    }
}

fn size(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .filter(std::fs::Metadata::is_file)
        .map(|file| file.len())
        .sum()
}

fn unwritable(path: &Path, error: &std::io::Error) -> String {
    let remedy = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "the disk is full: free some space, choose another directory with --dir, or lower --rate or --seconds"
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "choose a directory this user may write, with --dir"
        }
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            "there is a file in the way; choose another with --dir"
        }
        _ => "choose another directory with --dir",
    };
    format!("cannot write in {}: {error}; {remedy}", path.display())
}
