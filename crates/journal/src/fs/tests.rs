use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use super::simulated::{Fault, Operation, SimulatedDisk};
use super::*;

fn write_whole(file: &dyn File, bytes: &[u8]) {
    let mut written = 0;
    while written < bytes.len() {
        written += file.append(&bytes[written..]).unwrap();
    }
}

fn read_whole(filesystem: &dyn Filesystem, path: &Path) -> Vec<u8> {
    let mut content = vec![0; filesystem.size_bytes(path).unwrap() as usize];
    let file = filesystem.open(path, OpenMode::Read).unwrap();
    assert_eq!(file.read_at(&mut content, 0).unwrap(), content.len());
    content
}

/// Scenario: the same sequence of every operation on the machine's disk and on the simulated one.
/// Guarantees: they agree, so that what is tested on the one holds on the other.
#[test]
fn the_simulated_disk_behaves_as_the_real_one() {
    let directory = tempfile::tempdir().unwrap();
    let simulated = SimulatedDisk::default();
    let cases: [(&dyn Filesystem, PathBuf); 2] =
        [(&Disk, directory.path().to_owned()), (&simulated, "/".into())];
    for (filesystem, root) in cases {
        let (folder, one, two) = (root.join("a/b"), root.join("a/b/one"), root.join("a/b/two"));
        let kind = |result: io::Result<Box<dyn File>>| result.map_err(|error| error.kind()).err();
        assert_eq!(
            kind(filesystem.open(&one, OpenMode::Append)),
            Some(io::ErrorKind::NotFound)
        );
        filesystem.create_directories(&folder).unwrap();
        filesystem.create_directories(&folder).unwrap();
        assert_eq!(
            kind(filesystem.open(&one, OpenMode::Read)),
            Some(io::ErrorKind::NotFound)
        );

        let appended = filesystem.open(&one, OpenMode::Append).unwrap();
        write_whole(&*appended, b"hello");
        assert_eq!(
            kind(filesystem.open(&one, OpenMode::CreateNew)),
            Some(io::ErrorKind::AlreadyExists)
        );
        assert!(appended.write_at(b"x", 0).is_err());
        let placed = filesystem.open(&two, OpenMode::CreateNew).unwrap();
        assert_eq!(placed.write_at(b"abc", 2).unwrap(), 3);
        assert!(placed.append(b"x").is_err());
        let reader = filesystem.open(&one, OpenMode::Read).unwrap();
        assert!(reader.append(b"x").is_err() && reader.write_at(b"x", 0).is_err());
        assert_eq!(reader.read_at(&mut [0; 9], 5).unwrap(), 0);
        assert_eq!(read_whole(filesystem, &two), b"\0\0abc");

        placed.truncate(3).unwrap();
        placed.truncate(4).unwrap();
        assert_eq!(read_whole(filesystem, &two), b"\0\0a\0");
        assert_eq!(
            (placed.size_bytes().unwrap(), placed.is_regular().unwrap()),
            (4, true)
        );
        placed.sync_data().unwrap();
        filesystem.sync_directory(&folder).unwrap();
        assert!(filesystem.free_bytes(&folder).unwrap() > 0);

        placed.try_lock().unwrap();
        let other = filesystem.open(&two, OpenMode::Write).unwrap();
        assert_eq!(other.try_lock().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(placed);
        other.try_lock().unwrap();

        let mut names = filesystem.list(&folder).unwrap();
        names.sort();
        assert_eq!(names, ["one", "two"]);
        let (aside, too) = (root.join("aside"), root.join("aside/one"));
        filesystem.create_directories(&aside).unwrap();
        filesystem.link(&one, &too).unwrap();
        assert_eq!(
            filesystem.link(&two, &too).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        assert_eq!(read_whole(filesystem, &too), b"hello");
        assert_eq!(
            filesystem.remove_directory(&aside).unwrap_err().kind(),
            io::ErrorKind::DirectoryNotEmpty
        );
        filesystem.remove(&too).unwrap();
        assert_eq!(read_whole(filesystem, &one), b"hello");
        filesystem.remove_directory(&aside).unwrap();
        assert_eq!(filesystem.list(&root).unwrap(), ["a"]);
        filesystem.rename(&one, &two).unwrap();
        write_whole(&*appended, b"!");
        assert_eq!(filesystem.list(&folder).unwrap(), ["two"]);
        assert_eq!(read_whole(filesystem, &two), b"hello!");
        filesystem.remove(&two).unwrap();
        for gone in [
            filesystem.remove(&two).unwrap_err(),
            filesystem.size_bytes(&two).unwrap_err(),
            filesystem.rename(&two, &one).unwrap_err(),
            filesystem.list(&root.join("none")).unwrap_err(),
        ] {
            assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        }
    }
}

/// Scenario: a device that has no space.
/// Guarantees: the real and the simulated disk answer with the same error, a full one after a short write; a file that is removed
/// gives its space back when it is closed.
#[test]
fn a_full_disk_writes_what_fits_and_then_says_so() {
    let full = Disk.open(Path::new("/dev/full"), OpenMode::Append).unwrap();
    let real = full.append(b"x").unwrap_err();
    let disk = SimulatedDisk::default();
    disk.set_capacity_bytes(8);
    let file = disk.open(Path::new("/one"), OpenMode::Append).unwrap();
    let other = disk.open(Path::new("/two"), OpenMode::Append).unwrap();
    assert_eq!(other.append(b"12345").unwrap(), 5);
    assert_eq!(disk.free_bytes(Path::new("/")).unwrap(), 3);
    assert_eq!(file.append(b"12345").unwrap(), 3);
    let error = file.append(b"45").unwrap_err();
    assert_eq!(
        (error.kind(), error.raw_os_error()),
        (real.kind(), real.raw_os_error())
    );
    disk.remove(Path::new("/two")).unwrap();
    assert_eq!(file.append(b"45").unwrap_err().kind(), real.kind());
    drop(other);
    assert_eq!(file.append(b"45").unwrap(), 2);
    assert_eq!(disk.content("/one").unwrap(), b"12345");
}

/// Scenario: short writes, faults that are asked for, a read-only disk.
/// Guarantees: exactly the operations asked for fail, as often as asked, with the errors of the kernel.
#[test]
fn faults_come_when_they_are_asked_for() {
    let disk = SimulatedDisk::default();
    let path = Path::new("/file");
    let file = disk.open(path, OpenMode::Append).unwrap();
    disk.set_longest_write_bytes(2);
    assert_eq!(file.append(b"12345").unwrap(), 2);
    disk.fail(Operation::Write, Fault::Io, 2);
    for _ in 0..2 {
        assert_eq!(file.append(b"345").unwrap_err().raw_os_error(), Some(5));
    }
    assert_eq!(file.append(b"345").unwrap(), 2);
    disk.set_read_only(true);
    let read_only = io::ErrorKind::ReadOnlyFilesystem;
    assert_eq!(file.append(b"5").unwrap_err().kind(), read_only);
    assert_eq!(disk.remove(path).unwrap_err().kind(), read_only);
    assert_eq!(read_whole(&disk, path), b"1234");
}

/// Scenario: writes, renames and removals, some of them synced; the machine crashes.
/// Guarantees: what was synced is there under the name that was synced; the rest is gone or, where the disk had
/// begun to write it, torn; handles from before are dead.
#[test]
fn a_crash_takes_what_was_not_synced() {
    let disk = SimulatedDisk::default();
    let (root, kept, renamed, lost) = (
        Path::new("/"),
        Path::new("/kept"),
        Path::new("/renamed"),
        Path::new("/lost"),
    );
    let file = disk.open(kept, OpenMode::Append).unwrap();
    write_whole(&*file, b"synced");
    file.sync_data().unwrap();
    disk.sync_directory(root).unwrap();
    write_whole(&*file, b" torn");
    let unsynced_name = disk.open(lost, OpenMode::Append).unwrap();
    unsynced_name.sync_data().unwrap();
    disk.rename(kept, renamed).unwrap();
    disk.crash_keeping_bytes(3);
    assert_eq!(disk.list(root).unwrap(), ["kept"]);
    assert_eq!(disk.content(kept).unwrap(), b"synced to");
    assert!(file.append(b"x").is_err());
    disk.remove(kept).unwrap();
    disk.crash();
    assert_eq!(
        disk.content(kept).unwrap(),
        b"synced to",
        "the removal was not synced"
    );
}

/// Scenario: a sync fails, the next one succeeds, the machine crashes.
/// Guarantees: what the failed sync should have written is not there, however the second one answered, unless it
/// was written again.
#[test]
fn a_failed_sync_is_not_made_good_by_the_next() {
    let disk = SimulatedDisk::default();
    let path = Path::new("/file");
    let file = disk.open(path, OpenMode::Write).unwrap();
    disk.sync_directory(Path::new("/")).unwrap();
    file.write_at(b"one", 0).unwrap();
    disk.fail(Operation::Sync, Fault::Io, 1);
    file.sync_data().unwrap_err();
    file.write_at(b"two", 3).unwrap();
    file.sync_data().unwrap();
    assert_eq!(disk.content(path).unwrap(), b"onetwo");
    file.write_at(b"one", 0).unwrap();
    disk.clone().crash();
    assert_eq!(disk.content(path).unwrap(), b"\0\0\0two");
    let file = disk.open(path, OpenMode::Write).unwrap();
    file.write_at(b"one", 0).unwrap();
    file.sync_data().unwrap();
    disk.crash();
    assert_eq!(disk.content(path).unwrap(), b"onetwo");
}

fn named_pipe(directory: &tempfile::TempDir) -> PathBuf {
    let path = directory.path().join("pipe");
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    path
}

/// Scenario: a named pipe that nobody reads is opened to append.
/// Guarantees: an error says so at once; nothing waits for a reader that may never come.
#[test]
fn a_pipe_without_a_reader_is_not_waited_for() {
    /// Far longer than any opening takes; a thread that waits in open(2) cannot be woken, only told from outside.
    const STUCK: Duration = Duration::from_secs(10);
    let directory = tempfile::tempdir().unwrap();
    let path = named_pipe(&directory);
    let (done, opened) = mpsc::channel();
    std::thread::spawn(move || done.send(Disk.open(&path, OpenMode::Append)));
    let error = opened.recv_timeout(STUCK).unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotConnected, "{error}");
    assert!(error.to_string().contains("nobody reads"), "{error}");
}

/// Scenario: a named pipe with a slow reader, and more bytes than a pipe holds.
/// Guarantees: the write waits for the reader and is whole, as it would be had the pipe been opened plainly.
#[test]
fn a_pipe_with_a_reader_takes_a_long_write_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = named_pipe(&directory);
    // For reading and writing: that waits for nobody on Linux, and counts as a reader.
    let both = std::fs::File::options().read(true).write(true).open(&path);
    let mut reader = both.unwrap();
    let writer = Disk.open(&path, OpenMode::Append).unwrap();
    assert!(!writer.is_regular().unwrap());
    // Linux gives a pipe at most 1 MiB unless it is privileged, 64 KiB at first.
    let record = vec![7; 2 << 20];
    let length = record.len();
    let reading = std::thread::spawn(move || {
        let mut read = vec![0; length];
        io::Read::read_exact(&mut reader, &mut read).map(|()| read)
    });
    assert_eq!(writer.append(&record).unwrap(), record.len());
    assert!(reading.join().unwrap().unwrap() == record);
}
