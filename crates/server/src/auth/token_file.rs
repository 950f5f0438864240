//! Tokens that are kept in a file.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::Instant;

/// How often the file is looked at, at most: a stat, and rarely a read of a few hundred bytes, on the way of a request.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(1);

/// Tokens, one a line, that are read again when the file changes.
pub struct TokenFile {
    path: PathBuf,
    tokens: ArcSwap<Vec<String>>,
    looked: Mutex<Looked>,
}

struct Looked {
    at: Instant,
    /// `None`: it could not be read.
    stamp: Option<Stamp>,
}

/// When it was written, its size and its inode: one that takes another's place may be as large and as old.
type Stamp = (SystemTime, u64, u64);

/// Without the tokens.
impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenFile")
            .field("path", &self.path)
            .field("tokens", &self.tokens.load().len())
            .finish()
    }
}

impl TokenFile {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        // In this order, so that what is written in between is read the next time.
        let stamp = stamp(path)?;
        Ok(Self {
            path: path.to_owned(),
            tokens: ArcSwap::from_pointee(read(path)?),
            looked: Mutex::new(Looked {
                at: Instant::now(),
                stamp: Some(stamp),
            }),
        })
    }

    /// Whether there is no token in it.
    pub fn is_empty(&self) -> bool {
        self.tokens.load().is_empty()
    }

    /// Whether this is one of them.
    pub(super) fn has(&self, token: &str) -> bool {
        self.look();
        let tokens = self.tokens.load();
        tokens
            .iter()
            .any(|known| super::same(known.as_bytes(), token.as_bytes()))
    }

    /// Where the file cannot be read, or has no token, the last ones stay: it may be in the middle of a change, and who is let in no more does not try
    /// again.
    fn look(&self) {
        // Who does not get the lock has somebody looking for it.
        let Some(mut looked) = self.looked.try_lock() else {
            return;
        };
        if looked.at.elapsed() < LOOKED_AT_EVERY {
            return;
        }
        looked.at = Instant::now();
        let stamp = stamp(&self.path);
        let now = stamp.as_ref().ok().copied();
        if now == looked.stamp {
            return;
        }
        looked.stamp = now;
        let path = self.path.display();
        match stamp.and_then(|_| read(&self.path)) {
            Ok(tokens) if tokens.is_empty() => {
                tracing::error!(%path, "there is no token in the file; the last ones stay good");
            }
            Ok(tokens) => {
                tracing::info!(%path, tokens = tokens.len(), "tokens are read again");
                self.tokens.store(tokens.into());
            }
            Err(error) => {
                looked.stamp = None;
                tracing::error!(%path, %error, "tokens cannot be read; the last ones stay good");
            }
        }
    }
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    let metadata = std::fs::metadata(path)?;
    Ok((metadata.modified()?, metadata.len(), metadata.ino()))
}

/// An empty line is no token.
fn read(path: &Path) -> io::Result<Vec<String>> {
    let text = std::fs::read_to_string(path)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    Ok(lines.map(str::to_owned).collect())
}
