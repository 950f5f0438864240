//! Reading records out of a journal that nobody has open, or that somebody has: nothing is changed.

use std::io;
use std::path::Path;
use std::time::SystemTime;

use bytes::Bytes;
use sluice_payload::{Signal, WireFormat};

use super::body::Inflater;
use super::position::{self, Position};
use super::record::Refusal;
use super::recovery::{CURSOR_SUFFIX, cursor_name};
use super::scan::{Found, Scan};
use super::segment::{Beginning, SegmentId, time};
use crate::{Filesystem, OpenMode};

/// A payload as it is stored.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Its number.
    pub seq: u64,
    /// What it carries.
    pub signal: Signal,
    /// Whose it is; empty for the default tenant.
    pub tenant: String,
    /// When it came.
    pub received_at: SystemTime,
    /// Items in it.
    pub items: u64,
    /// The request, not compressed.
    pub body: Bytes,
    /// Which message `body` is.
    pub wire_format: WireFormat,
    /// Of a dead letter.
    pub refusal: Option<Box<Refusal>>,
}

/// Which records of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// Every one that is there.
    All,
    /// Those that some exporter has not settled; of dead letters, which nobody settles, all.
    Waiting,
    /// Those that this exporter has not settled.
    WaitingFor(String),
}

/// Hands the records of a journal to `take`, the oldest first; returns how many places could not be read.
///
/// # Errors
/// The directory or a file cannot be read, there is no such exporter, or `take` failed: it is not called again then.
pub fn export(
    filesystem: &dyn Filesystem,
    directory: &Path,
    which: &Which,
    take: &mut dyn FnMut(Stored) -> io::Result<()>,
) -> io::Result<u64> {
    let names = filesystem.list(directory)?;
    let mut ids: Vec<SegmentId> = names.iter().filter_map(|name| SegmentId::parse(name)).collect();
    ids.sort_unstable();
    let positions = positions(filesystem, directory, which)?;
    let waits = |seq| positions.is_empty() || positions.iter().any(|position| !position.is_settled(seq));
    let mut inflater = Inflater::new();
    let mut damaged = 0;
    for id in ids {
        let file = filesystem.open(&directory.join(id.file_name()), OpenMode::Read)?;
        let (end, begin) = (
            file.size_bytes()?,
            Beginning::records_at(Beginning::read(&*file, id)),
        );
        let mut scan = Scan::new(file.into(), id.epoch, begin, end);
        while let Some(found) = scan.next(true) {
            let header = match found {
                Found::Record(header, _) => header,
                // What follows a footer, or a write under way.
                Found::Damage { torn: true, .. } => continue,
                Found::Damage { .. } => {
                    damaged += 1;
                    continue;
                }
                Found::Newer(version) => return Err(super::newer(version)),
            };
            if !waits(header.seq) {
                continue;
            }
            let inflated = inflater.inflate(header.encoding, scan.body(), header.inflated_bytes as usize);
            let Ok(body) = inflated else {
                damaged += 1;
                continue;
            };
            take(Stored {
                seq: header.seq,
                signal: header.signal,
                tenant: header.tenant,
                received_at: time(header.received_at_nanos),
                items: u64::from(header.items),
                body,
                wire_format: header.wire_format,
                refusal: header.refusal,
            })?;
        }
    }
    Ok(damaged)
}

/// The positions that count; none: everything does.
fn positions(filesystem: &dyn Filesystem, directory: &Path, which: &Which) -> io::Result<Vec<Position>> {
    let mut names = filesystem.list(directory)?;
    match which {
        Which::All => return Ok(Vec::new()),
        Which::Waiting => {
            names.retain(|name| name.to_str().is_some_and(|name| name.ends_with(CURSOR_SUFFIX)))
        }
        Which::WaitingFor(exporter) => {
            let wanted = cursor_name(exporter);
            names.retain(|name| name == wanted.as_str());
            if names.is_empty() {
                let error = format!("there is no exporter {exporter} in {}", directory.display());
                return Err(io::Error::new(io::ErrorKind::NotFound, error));
            }
        }
    }
    let mut positions = Vec::new();
    for name in names.iter().filter_map(|name| name.to_str()) {
        let exporter = super::inspect::unescape(name.strip_suffix(CURSOR_SUFFIX).unwrap_or(name));
        let file = filesystem.open(&directory.join(name), OpenMode::Read)?;
        // One that cannot be read begins with the oldest.
        positions.push(position::read(&*file, &exporter).0.unwrap_or_default());
    }
    Ok(positions)
}
