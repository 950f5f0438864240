//! A disk in memory that fills up, fails, tears writes and crashes when a test says so, and never otherwise.
//!
//! It is stricter than most real ones: what was not synced is lost in a crash, names included, and what a failed sync
//! should have written never reaches the disk, even if a later sync succeeds (it reads as zeros after the crash). What was
//! cut off comes back in a torn crash, unless the file was synced since.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::{File, Filesystem, OpenMode};

/// What a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

/// What can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// [`Filesystem::open`].
    Open,
    /// [`File::append`] and [`File::write_at`].
    Write,
    /// [`File::read_at`].
    Read,
    /// [`File::truncate`].
    Truncate,
    /// [`File::sync_data`].
    Sync,
    /// [`Filesystem::sync_directory`].
    SyncDirectory,
    /// [`Filesystem::rename`].
    Rename,
    /// [`Filesystem::link`].
    Link,
    /// [`Filesystem::remove`] and [`Filesystem::remove_directory`].
    Remove,
    /// [`Filesystem::list`].
    List,
}

/// How it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// `EIO`: the device gave up.
    Io,
    /// `ENOSPC`: the disk is full.
    NoSpace,
    /// `EROFS`: the file system is read-only.
    ReadOnly,
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Io => Errno::IO,
            Fault::NoSpace => Errno::NOSPC,
            Fault::ReadOnly => Errno::ROFS,
        }
        .into()
    }
}

/// The disk; `/` is there. Cloning shares it.
#[derive(Debug, Clone)]
pub struct SimulatedDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<PathBuf, u64>,
    /// The names as the disk has them.
    synced_names: BTreeMap<PathBuf, u64>,
    /// Directories are made to stay.
    directories: BTreeSet<PathBuf>,
    next_id: u64,
    /// Handles from before a crash are dead.
    crashes: u64,
    capacity_bytes: u64,
    longest_write_bytes: usize,
    read_only: bool,
    faults: Vec<(Operation, Fault, usize)>,
    /// Operations until the machine stops; nothing works from then on until the crash.
    until_stop: Option<u64>,
    read_bytes: u64,
}

#[derive(Debug, Default)]
struct Inode {
    content: Vec<u8>,
    /// The content as the disk has it.
    synced: Vec<u8>,
    /// What a failed sync should have written.
    forgotten: Vec<Range<usize>>,
    /// The content before it was cut, which was not synced: the disk may have written it already, and not the cut.
    before_cut: Option<Vec<u8>>,
    /// The handle that holds the lock.
    locked_by: Option<u64>,
    /// Handles: a file that is removed takes its space until the last one is closed.
    open: usize,
}

#[derive(Debug)]
struct SimulatedFile {
    disk: Arc<Mutex<State>>,
    inode: u64,
    handle: u64,
    crashes: u64,
    mode: OpenMode,
}

impl Default for SimulatedDisk {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State {
            inodes: BTreeMap::new(),
            names: BTreeMap::new(),
            synced_names: BTreeMap::new(),
            directories: BTreeSet::from([PathBuf::from("/")]),
            next_id: 0,
            crashes: 0,
            capacity_bytes: u64::MAX,
            longest_write_bytes: usize::MAX,
            read_only: false,
            faults: Vec::new(),
            until_stop: None,
            read_bytes: 0,
        })))
    }
}

impl SimulatedDisk {
    /// Room for so many bytes of files. A write that does not fit writes what does, the next one is `ENOSPC`.
    pub fn set_capacity_bytes(&self, bytes: u64) {
        self.0.lock().capacity_bytes = bytes;
    }

    /// No write takes more than so many bytes at once.
    pub fn set_longest_write_bytes(&self, bytes: usize) {
        self.0.lock().longest_write_bytes = bytes;
    }

    /// Everything that would change it is `EROFS`.
    pub fn set_read_only(&self, read_only: bool) {
        self.0.lock().read_only = read_only;
    }

    /// The next `times` operations of this kind fail.
    pub fn fail(&self, operation: Operation, fault: Fault, times: usize) {
        self.0.lock().faults.push((operation, fault, times));
    }

    /// After so many more operations nothing works any more, until the crash.
    pub fn stop_after(&self, operations: u64) {
        self.0.lock().until_stop = Some(operations);
    }

    /// Nothing fails any more.
    pub fn mend(&self) {
        let state = &mut *self.0.lock();
        state.faults.clear();
        state.until_stop = None;
        state.read_only = false;
        state.capacity_bytes = u64::MAX;
    }

    /// The process goes, the machine stays: all that was written is there, open handles are dead.
    pub fn kill(&self) {
        let state = &mut *self.0.lock();
        state.crashes += 1;
        state.until_stop = None;
        for inode in state.inodes.values_mut() {
            inode.locked_by = None;
        }
        state.forget_unnamed();
    }

    /// The power goes while the disk writes what was not synced, in any order: each sector of it is there or is not. So are
    /// the names that were not synced, all or none.
    pub fn crash_torn(&self, seed: u64) {
        let state = &mut *self.0.lock();
        let mut random = seed | 1;
        let mut coin = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random & 1 == 1
        };
        state.crashes += 1;
        state.until_stop = None;
        if coin() {
            state.names = state.synced_names.clone();
        }
        state.synced_names = state.names.clone();
        for inode in state.inodes.values_mut() {
            if let Some(longer) = inode.before_cut.take()
                && coin()
            {
                // What was done to the file since the cut is lost with it.
                inode.content = longer;
            }
            for start in (0..inode.content.len()).step_by(SECTOR_BYTES) {
                let end = inode.content.len().min(start + SECTOR_BYTES);
                let old = inode
                    .synced
                    .get(start..end.min(inode.synced.len()))
                    .unwrap_or_default();
                if *old != inode.content[start..end] && coin() {
                    if inode.synced.len() < end {
                        inode.synced.resize(end, 0);
                    }
                    inode.synced[start..end].copy_from_slice(&inode.content[start..end]);
                }
            }
            inode.content = inode.synced.clone();
            inode.forgotten.clear();
            inode.locked_by = None;
        }
        state.forget_unnamed();
    }

    /// Changes what is on the disk behind everybody's back.
    ///
    /// # Panics
    /// When there is no such file.
    pub fn damage(&self, path: impl AsRef<Path>, change: impl FnOnce(&mut Vec<u8>)) {
        let state = &mut *self.0.lock();
        let inode = state
            .names
            .get(path.as_ref())
            .and_then(|id| state.inodes.get_mut(id));
        let inode = inode.expect("a test damages files that are there");
        change(&mut inode.content);
        inode.synced = inode.content.clone();
    }

    /// The power goes: what was not synced is lost, and open handles are dead.
    pub fn crash(&self) {
        self.crash_keeping_bytes(0);
    }

    /// As [`crash`](Self::crash), but the disk had already written so many bytes more of every file that grew: the
    /// end is torn.
    pub fn crash_keeping_bytes(&self, bytes: usize) {
        let state = &mut *self.0.lock();
        state.crashes += 1;
        state.names = state.synced_names.clone();
        for inode in state.inodes.values_mut() {
            let kept = inode.content.len().min(inode.synced.len().saturating_add(bytes));
            let torn = inode.content.get(inode.synced.len()..kept).unwrap_or_default();
            inode.synced.extend_from_slice(torn);
            inode.content = inode.synced.clone();
            inode.forgotten.clear();
            inode.before_cut = None;
            inode.locked_by = None;
        }
        state.until_stop = None;
        state.forget_unnamed();
    }

    /// Another disk with the same files, on which nothing fails and nothing is locked.
    pub fn copy(&self) -> Self {
        let state = self.0.lock();
        let copy = Self::default();
        let inodes = state.inodes.iter().map(|(id, inode)| {
            let content = inode.content.clone();
            let synced = content.clone();
            let inode = Inode {
                content,
                synced,
                ..Inode::default()
            };
            (*id, inode)
        });
        {
            let mut other = copy.0.lock();
            other.inodes = inodes.collect();
            other.names = state.names.clone();
            other.synced_names = state.names.clone();
            other.directories = state.directories.clone();
            other.next_id = state.next_id;
        }
        copy
    }

    /// Bytes that were read from its files.
    pub fn read_bytes(&self) -> u64 {
        self.0.lock().read_bytes
    }

    /// The content of a file as a reader sees it now.
    pub fn content(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let state = self.0.lock();
        let inode = state.names.get(path.as_ref())?;
        Some(state.inodes.get(inode)?.content.clone())
    }
}

impl State {
    /// Whether this operation may go on.
    fn admit(&mut self, operation: Operation, changes: bool) -> io::Result<()> {
        match &mut self.until_stop {
            Some(0) => return Err(Fault::Io.into()),
            Some(left) => *left -= 1,
            None => {}
        }
        if changes && self.read_only {
            return Err(Fault::ReadOnly.into());
        }
        let due = self
            .faults
            .iter_mut()
            .find(|(of, _, times)| *of == operation && *times > 0);
        match due {
            None => Ok(()),
            Some((_, fault, times)) => {
                *times -= 1;
                Err((*fault).into())
            }
        }
    }

    fn forget_unnamed(&mut self) {
        let named: BTreeSet<u64> = self.names.values().copied().collect();
        self.inodes.retain(|id, _| named.contains(id));
        self.inodes.values_mut().for_each(|inode| inode.open = 0);
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn free_bytes(&self) -> u64 {
        let named: BTreeSet<u64> = self.names.values().copied().collect();
        let files = self
            .inodes
            .iter()
            .filter(|(id, inode)| inode.open > 0 || named.contains(id));
        let used: usize = files.map(|(_, inode)| inode.content.len()).sum();
        self.capacity_bytes.saturating_sub(used as u64)
    }

    fn parent_exists(&self, path: &Path) -> io::Result<()> {
        match path.parent() {
            Some(parent) if self.directories.contains(parent) => Ok(()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl Filesystem for SimulatedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn File>> {
        let state = &mut *self.0.lock();
        state.admit(Operation::Open, mode != OpenMode::Read)?;
        state.parent_exists(path)?;
        let inode = match (state.names.get(path), mode) {
            (Some(_), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(inode), _) => *inode,
            (None, OpenMode::Read) => return Err(io::ErrorKind::NotFound.into()),
            (None, _) => {
                let inode = state.new_id();
                state.inodes.insert(inode, Inode::default());
                state.names.insert(path.to_owned(), inode);
                inode
            }
        };
        if let Some(inode) = state.inodes.get_mut(&inode) {
            inode.open += 1;
        }
        Ok(Box::new(SimulatedFile {
            disk: self.0.clone(),
            inode,
            handle: state.new_id(),
            crashes: state.crashes,
            mode,
        }))
    }

    fn size_bytes(&self, path: &Path) -> io::Result<u64> {
        let state = self.0.lock();
        let inode = state.names.get(path).and_then(|id| state.inodes.get(id));
        match inode {
            Some(inode) => Ok(inode.content.len() as u64),
            None if state.directories.contains(path) => Ok(0),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let state = &mut *self.0.lock();
        state.admit(Operation::Rename, true)?;
        state.parent_exists(to)?;
        let inode = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), inode);
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let state = &mut *self.0.lock();
        state.admit(Operation::Link, true)?;
        state.parent_exists(to)?;
        let inode = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        if state.names.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.names.insert(to.to_owned(), inode);
        Ok(())
    }

    fn remove_directory(&self, directory: &Path) -> io::Result<()> {
        let state = &mut *self.0.lock();
        state.admit(Operation::Remove, true)?;
        let all = state.names.keys().chain(&state.directories);
        if all.clone().any(|path| path.parent() == Some(directory)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        match state.directories.remove(directory) {
            true => Ok(()),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let state = &mut *self.0.lock();
        state.admit(Operation::Remove, true)?;
        state
            .names
            .remove(path)
            .map(drop)
            .ok_or(io::ErrorKind::NotFound.into())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        let state = &mut *self.0.lock();
        state.admit(Operation::List, false)?;
        if !state.directories.contains(directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let all = state.names.keys().chain(&state.directories);
        let inside = all.filter(|path| path.parent() == Some(directory));
        Ok(inside
            .filter_map(|path| path.file_name())
            .map(OsString::from)
            .collect())
    }

    fn create_directories(&self, directory: &Path) -> io::Result<()> {
        let state = &mut *self.0.lock();
        if !state.directories.contains(directory) && state.read_only {
            return Err(Fault::ReadOnly.into());
        }
        state
            .directories
            .extend(directory.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let state = &mut *self.0.lock();
        state.admit(Operation::SyncDirectory, false)?;
        let inside = |path: &Path| path.parent() == Some(directory);
        state.synced_names.retain(|path, _| !inside(path));
        let now = state.names.iter().filter(|(path, _)| inside(path));
        state
            .synced_names
            .extend(now.map(|(path, inode)| (path.clone(), *inode)));
        Ok(())
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(self.0.lock().free_bytes())
    }
}

impl SimulatedFile {
    fn with<T>(&self, work: impl FnOnce(&mut State, &mut Inode) -> io::Result<T>) -> io::Result<T> {
        let state = &mut *self.disk.lock();
        // A handle does not survive a crash; what a process would see is that it is gone itself.
        let mut inode = match state.inodes.remove(&self.inode) {
            Some(inode) if state.crashes == self.crashes => inode,
            other => {
                state.inodes.extend(other.map(|inode| (self.inode, inode)));
                return Err(io::Error::other("the machine crashed since this file was opened"));
            }
        };
        let result = work(state, &mut inode);
        state.inodes.insert(self.inode, inode);
        result
    }

    fn write(&self, bytes: &[u8], offset: Option<u64>) -> io::Result<usize> {
        self.mode.check(offset.is_none())?;
        self.with(|state, inode| {
            state.admit(Operation::Write, true)?;
            let size = inode.content.len();
            let start = offset.map_or(size, |offset| offset as usize);
            // This inode is out of the table: what the others leave is how large it may become.
            let room = usize::try_from(state.free_bytes())
                .unwrap_or(usize::MAX)
                .max(size);
            let count = bytes.len().min(state.longest_write_bytes);
            let count = count.min(room.saturating_sub(start));
            if count == 0 && !bytes.is_empty() {
                return Err(Fault::NoSpace.into());
            }
            let end = start + count;
            if end > size {
                inode.content.resize(end, 0);
            }
            inode.content[start..end].copy_from_slice(&bytes[..count]);
            // Written again, it is dirty again.
            inode
                .forgotten
                .retain(|lost| lost.start < start || lost.end > end);
            Ok(count)
        })
    }
}

impl File for SimulatedFile {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        self.write(bytes, None)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.write(bytes, Some(offset))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|state, inode| {
            state.admit(Operation::Read, false)?;
            let rest = inode.content.get(offset as usize..).unwrap_or_default();
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            state.read_bytes += count as u64;
            Ok(count)
        })
    }

    fn size_bytes(&self) -> io::Result<u64> {
        self.with(|_, inode| Ok(inode.content.len() as u64))
    }

    fn is_regular(&self) -> io::Result<bool> {
        Ok(true)
    }

    fn truncate(&self, size_bytes: u64) -> io::Result<()> {
        self.with(|state, inode| {
            state.admit(Operation::Truncate, true)?;
            let size = inode.content.len();
            if (size_bytes as usize) < size && inode.before_cut.as_ref().is_none_or(|cut| cut.len() < size) {
                inode.before_cut = Some(inode.content.clone());
            }
            inode.content.resize(size_bytes as usize, 0);
            for lost in &mut inode.forgotten {
                lost.end = lost.end.min(size_bytes as usize);
            }
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(|state, inode| {
            if let Err(error) = state.admit(Operation::Sync, true) {
                inode.forgotten.push(inode.synced.len()..inode.content.len());
                return Err(error);
            }
            inode.synced = inode.content.clone();
            inode.before_cut = None;
            for range in &inode.forgotten {
                let end = range.end.min(inode.synced.len());
                if let Some(lost) = inode.synced.get_mut(range.start.min(end)..end) {
                    lost.fill(0);
                }
            }
            Ok(())
        })
    }

    fn try_lock(&self) -> io::Result<()> {
        self.with(|_, inode| match inode.locked_by {
            Some(handle) if handle != self.handle => Err(io::ErrorKind::WouldBlock.into()),
            _ => {
                inode.locked_by = Some(self.handle);
                Ok(())
            }
        })
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        // An error means that the lock went with the crash.
        let _ = self.with(|_, inode| {
            inode.open -= 1;
            if inode.locked_by == Some(self.handle) {
                inode.locked_by = None;
            }
            Ok(())
        });
    }
}
