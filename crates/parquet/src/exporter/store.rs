//! Where finished files go: a directory, or an object store. Either way a name is written once: a file that is sent again
//! after a crash or a lost answer finds its own earlier copy, and that is as good as sent.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

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
}

/// A destination.
#[derive(Debug, Clone)]
pub(crate) enum Store {
    Directory(PathBuf),
    #[cfg(feature = "s3")]
    S3(super::s3::Bucket),
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
            #[cfg(feature = "s3")]
            Self::S3(bucket) => bucket.put(file).await,
        }
    }
}

/// Puts a file of the spool into its directory, whole or not at all.
fn link(root: &Path, file: &Finished) -> io::Result<()> {
    let directory = root.join(file.partition.path());
    let told = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", directory.display()));
    std::fs::create_dir_all(&directory).map_err(told)?;
    let to = directory.join(&file.cut.name);
    let done = match std::fs::hard_link(&file.path, &to) {
        // Another file system, or one without links: copied beside it first, under a name that no reader looks for.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            let beside = directory.join(format!(".{}.copying", file.cut.name));
            std::fs::copy(&file.path, &beside)
                .and_then(|_| File::open(&beside)?.sync_all())
                .and_then(|()| std::fs::rename(&beside, &to))
        }
        done => done,
    };
    match done {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let there = std::fs::metadata(&to)?.len();
            if there != file.cut.bytes {
                let problem = format!(
                    "{} is there already and is another file ({there} bytes, not {}); move it away",
                    to.display(),
                    file.cut.bytes
                );
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
            }
        }
        done => done.map_err(told)?,
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
