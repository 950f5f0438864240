//! The machine's own file system.

use std::ffi::OsString;
use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::{File, Filesystem, OpenMode};

/// The machine's own file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk;

#[derive(Debug)]
struct DiskFile {
    file: fs::File,
    mode: OpenMode,
    is_locked: AtomicBool,
}

impl Filesystem for Disk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn File>> {
        let mut options = OpenOptions::new();
        match mode {
            OpenMode::Read => options.read(true),
            OpenMode::Append => options.append(true).create(true),
            OpenMode::Write => options.read(true).write(true).create(true).truncate(false),
            OpenMode::CreateNew => options.read(true).write(true).create_new(true),
        };
        let is_pipe = fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
        let file = match is_pipe {
            true => open_pipe(options, path)?,
            false => options.open(path)?,
        };
        Ok(Box::new(DiskFile {
            file,
            mode,
            is_locked: AtomicBool::new(false),
        }))
    }

    fn size_bytes(&self, path: &Path) -> io::Result<u64> {
        fs::metadata(path).map(|metadata| metadata.len())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove_directory(&self, directory: &Path) -> io::Result<()> {
        fs::remove_dir(directory)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(directory)?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect()
    }

    fn create_directories(&self, directory: &Path) -> io::Result<()> {
        fs::create_dir_all(directory)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        fs::File::open(directory)?.sync_all()
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let of = rustix::fs::statvfs(path)?;
        Ok(of.f_bavail.saturating_mul(of.f_frsize))
    }
}

/// Opens a named pipe without waiting for its other end, which may never come; what is read and written waits as ever.
fn open_pipe(mut options: OpenOptions, path: &Path) -> io::Result<fs::File> {
    options.custom_flags(OFlags::NONBLOCK.bits() as i32);
    let pipe = options.open(path).map_err(|error| match error.raw_os_error() {
        // open(2): only for writing, and no process has it open for reading.
        Some(code) if code == Errno::NXIO.raw_os_error() => {
            io::Error::new(io::ErrorKind::NotConnected, "it is a pipe that nobody reads")
        }
        _ => error,
    })?;
    // A record would be torn where the pipe is full, and a pipe cannot be cut back.
    fcntl_setfl(&pipe, fcntl_getfl(&pipe)? - OFlags::NONBLOCK)?;
    Ok(pipe)
}

impl File for DiskFile {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        self.mode.check(true)?;
        (&self.file).write(bytes)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.mode.check(false)?;
        self.file.write_at(bytes, offset)
    }

    fn write_vectored_at(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.mode.check(false)?;
        Ok(rustix::io::pwritev(&self.file, slices, offset)?)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn size_bytes(&self) -> io::Result<u64> {
        self.file.metadata().map(|metadata| metadata.len())
    }

    fn is_regular(&self) -> io::Result<bool> {
        self.file.metadata().map(|metadata| metadata.is_file())
    }

    fn truncate(&self, size_bytes: u64) -> io::Result<()> {
        self.file.set_len(size_bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn try_lock(&self) -> io::Result<()> {
        self.file.try_lock().map_err(|error| match error {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        })?;
        self.is_locked.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        // Closing is not enough: flock(2) belongs to the open file, which a child process shares between fork and exec.
        if self.is_locked.load(Ordering::Relaxed) {
            let _ = self.file.unlock();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a locked file is dropped while somebody shares the descriptor, as a child process does until it is
    /// replaced.
    /// Guarantees: the lock is free at once.
    #[test]
    fn a_lock_ends_with_its_handle() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        let open = || Disk.open(&path, OpenMode::Write).unwrap();
        let locked = DiskFile {
            file: fs::File::create(&path).unwrap(),
            mode: OpenMode::Write,
            is_locked: AtomicBool::new(false),
        };
        locked.try_lock().unwrap();
        let inherited = locked.file.try_clone().unwrap();
        assert_eq!(open().try_lock().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(locked);
        open().try_lock().unwrap();
        drop(inherited);
    }
}
