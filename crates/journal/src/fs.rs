//! The file system, as a seam: what keeps data on a disk is tested on one that fills up, fails and crashes on demand.
//!
//! [`Filesystem`] and [`File`] are the system calls that files of records need, one method each, without buffers or
//! retries of their own: a write may be short, as `write(2)` may. [`Disk`] is the real thing.

mod disk;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod simulated;

use std::ffi::OsString;
use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::path::Path;

pub use disk::Disk;

/// For what a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// To read a file that is there.
    Read,
    /// To write behind its end, wherever that is by then; made when it is not there.
    Append,
    /// To read and to write at any place; made when it is not there.
    Write,
    /// As [`OpenMode::Write`], and an error when it is there already.
    CreateNew,
}

impl OpenMode {
    /// `O_APPEND` and positions exclude each other: Linux ignores the position. Who mixes them is told.
    fn check(self, append: bool) -> io::Result<()> {
        let fits = match self {
            OpenMode::Read => false,
            OpenMode::Append => append,
            OpenMode::Write | OpenMode::CreateNew => !append,
        };
        if fits {
            Ok(())
        } else {
            let error = format!("a file opened for {self:?} is not written that way");
            Err(io::Error::new(io::ErrorKind::InvalidInput, error))
        }
    }
}

/// Names and directories. Every method fails as its system call does.
#[allow(clippy::missing_errors_doc, reason = "said once, above")]
pub trait Filesystem: Debug + Send + Sync {
    /// Opens a file, and waits for nobody: a pipe to append to that nobody reads is `NotConnected`.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn File>>;
    /// The size of what is there, in bytes; `NotFound` when nothing is.
    fn size_bytes(&self, path: &Path) -> io::Result<u64>;
    /// Gives a file another name on the same file system, in place of whatever had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file one more name on the same file system; `AlreadyExists` when something has it.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a directory that is empty.
    fn remove_directory(&self, directory: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// The names in a directory, in no order.
    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>>;
    /// Makes a directory and those above it, as far as they are not there.
    fn create_directories(&self, directory: &Path) -> io::Result<()>;
    /// Makes the names in a directory survive a crash of the machine: files made, renamed and removed. Syncing a file
    /// keeps its content, not its name.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;
    /// Bytes that this user may still write to the file system of `path`.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;
}

/// An open file. Every method fails as its system call does.
#[allow(clippy::missing_errors_doc, reason = "said once, above")]
pub trait File: Debug + Send + Sync {
    /// Writes some of the bytes behind the end and returns how many; for files opened to append.
    fn append(&self, bytes: &[u8]) -> io::Result<usize>;
    /// Writes some of the bytes at `offset` and returns how many; for files not opened to append.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// As [`write_at`](Self::write_at), from several slices.
    fn write_vectored_at(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let first = slices.iter().find(|slice| !slice.is_empty());
        first.map_or(Ok(0), |slice| self.write_at(slice, offset))
    }
    /// Reads some bytes from `offset` on and returns how many; 0 at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of the bytes from `offset` on; after an error some of them may be there.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut written = 0;
        while written < bytes.len() {
            match self.write_at(&bytes[written..], offset + written as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
    /// Fills the buffer from `offset` on; `UnexpectedEof` when there is less.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
    /// Its size.
    fn size_bytes(&self) -> io::Result<u64>;
    /// Whether it is a regular file; pipes and devices have no size and cannot be cut.
    fn is_regular(&self) -> io::Result<bool>;
    /// Cuts it to this size, or extends it with zeros.
    fn truncate(&self, size_bytes: u64) -> io::Result<()>;
    /// Makes its content and its size survive a crash of the machine. After an error nobody knows what is on the disk,
    /// and the kernel forgets what it could not write: a second call that succeeds proves nothing about the first.
    fn sync_data(&self) -> io::Result<()>;
    /// Locks it for this handle alone until the handle is dropped; `WouldBlock` when another one has it.
    fn try_lock(&self) -> io::Result<()>;
}

#[cfg(test)]
mod tests;
