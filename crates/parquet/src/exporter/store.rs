//! Where finished files go: a directory, or an object store. Either way a name is written once: a file that is sent again
//! after a crash or a lost answer finds its own earlier copy, and that is as good as sent.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::layout::checksum;
use super::spool::Finished;

/// What came of sending a file.
#[derive(Debug)]
pub(crate) enum Sent {
    /// It is there, once.
    There,
    /// It may work later.
    Retry(String),
    /// Nothing will work until somebody mends something.
    Refused(String),
    /// Something of its name is there, and it could not be told yet whether it is the file. It most likely is: names are this spool's alone.
    #[cfg(feature = "object-stores")]
    Unknown(String),
}

/// A destination.
#[derive(Debug, Clone)]
pub(crate) enum Store {
    Directory(PathBuf),
    #[cfg(feature = "object-stores")]
    Bucket(super::bucket::Bucket),
}

impl Store {
    /// Sends a file once.
    pub async fn send(&self, file: &Finished) -> Sent {
        match self {
            Self::Directory(root) => {
                let (root, file) = (root.clone(), file.clone());
                let linked = tokio::task::spawn_blocking(move || link(&root, &file)).await;
                match linked {
                    Ok(Ok(())) => Sent::There,
                    Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                        Sent::Refused(error.to_string())
                    }
                    Ok(Err(error)) => Sent::Retry(error.to_string()),
                    Err(error) => Sent::Retry(error.to_string()),
                }
            }
            #[cfg(feature = "object-stores")]
            Self::Bucket(bucket) => bucket.put(file).await,
        }
    }
}

/// Puts a file of the spool into its directory, whole or not at all.
fn link(root: &Path, file: &Finished) -> io::Result<()> {
    let directory = root.join(file.directory());
    let told = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", directory.display()));
    std::fs::create_dir_all(&directory).map_err(told)?;
    let to = directory.join(&file.cut.name);
    // A name that no reader looks for.
    let beside = directory.join(format!(".{}.copying", file.cut.name));
    // A process that was killed may have left it, as another name of what is there now, even: it is not to be written into.
    remove(&beside).map_err(told)?;
    let linked = match std::fs::hard_link(&file.path, &to) {
        // Another file system, or one without links.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => copy(&file.path, &beside, &to),
        linked => linked,
    };
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if checksum(&mut File::open(&to).map_err(told)?)? != (file.cut.bytes, file.cut.crc) {
                let problem = format!(
                    "{} is there already and is another file; move it away",
                    to.display()
                );
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
            }
        }
        linked => linked.map_err(told)?,
    }
    // The names of the directories that were made survive a crash, too.
    for directory in directory.ancestors() {
        File::open(directory)?.sync_all()?;
        if directory == root {
            break;
        }
    }
    Ok(())
}

/// Copies a file to `beside`, and makes that `to`, which must not be there yet. Whatever comes of it, `beside` is gone.
fn copy(from: &Path, beside: &Path, to: &Path) -> io::Result<()> {
    let copied = std::fs::copy(from, beside)
        .and_then(|_| File::open(beside)?.sync_all())
        .and_then(|()| name(beside, to));
    remove(beside)?;
    copied
}

/// Gives a file the name `to`, if nothing has it.
fn name(beside: &Path, to: &Path) -> io::Result<()> {
    match std::fs::hard_link(beside, to) {
        // Without links a new name replaces an old one. Names are this spool's alone, so nobody writes it between the two.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => match to.try_exists()? {
            true => Err(io::ErrorKind::AlreadyExists.into()),
            false => std::fs::rename(beside, to),
        },
        linked => linked,
    }
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::Table;
    use crate::exporter::partition::{Partition, PartitionBy};
    use crate::exporter::spool::Cut;

    pub(in crate::exporter) fn file(directory: &Path, content: &[u8]) -> Finished {
        let path = directory.join("spooled");
        std::fs::write(&path, content).unwrap();
        Finished {
            cut: Cut {
                tenant: None,
                table: "logs".to_owned(),
                by: PartitionBy::None,
                hour: 0,
                first: 0,
                last: 0,
                rows: 1,
                bytes: content.len() as u64,
                crc: crc32c::crc32c(content),
                name: "name.parquet".to_owned(),
            },
            partition: Partition {
                tenant: None,
                table: Table::Logs,
                by: PartitionBy::None,
                hour: 0,
            },
            path,
        }
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Scenario: the destination has nothing of the file's name; the file; another one of the same size. Beside it is a part of a copy
    /// that an earlier process left.
    /// Guarantees: the file is there in the end, or the other one still, and told about; of the copy nothing is.
    #[test]
    fn what_is_there_is_compared() {
        for (there, fits) in [(None, true), (Some(b"rows"), true), (Some(b"else"), false)] {
            let (from, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let file = file(from.path(), b"rows");
            let directory = root.path().join("logs");
            std::fs::create_dir(&directory).unwrap();
            std::fs::write(directory.join(".name.parquet.copying"), "ro").unwrap();
            if let Some(there) = there {
                std::fs::write(directory.join("name.parquet"), there).unwrap();
            }
            let linked = link(root.path(), &file);
            assert_eq!(linked.is_ok(), fits, "{linked:?}");
            assert_eq!(names(&directory), ["name.parquet"]);
            let content = std::fs::read(directory.join("name.parquet")).unwrap();
            assert_eq!(content, there.unwrap_or(b"rows"));
        }
    }

    /// Scenario: a file is copied, as to another file system; the second time the name is taken.
    /// Guarantees: it is there once; what has the name is not replaced.
    #[test]
    fn copies_replace_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let [from, beside, to] = ["from", "beside", "to"].map(|name| directory.path().join(name));
        std::fs::write(&from, "first").unwrap();
        copy(&from, &beside, &to).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), b"first");
        std::fs::write(&from, "second").unwrap();
        let error = copy(&from, &beside, &to).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&to).unwrap(), b"first");
        assert!(!beside.exists());
    }
}
