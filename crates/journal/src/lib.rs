//! A pipeline's queue: payloads in order, written once, read by N cursors, one per exporter.
//!
//! Promise: an appended payload is handed to every cursor once, in order; its memory is released
//! when the last cursor has settled it; and for every cursor and tenant
//! `accepted = delivered + dropped{reason} + queued` holds in items whenever [`Journal::accounts`]
//! looks, because the account changes under the same lock as the queue.
//!
//! A cursor that lags behind its own limits either holds the receivers back ([`OnFull::Refuse`])
//! or is cut loose ([`OnFull::DropOldest`], counted): it never takes the other cursors down.
//!
//! It also holds the seams of everything that keeps data on a disk: [`Filesystem`] and [`Clock`].
//!
//! [`Journal::memory`] keeps payloads in memory until they are settled. The lock is held for a few dozen nanoseconds per
//! request and per batch, never while waiting and never while a payload is freed.
//!
//! [`Journal::disk`] writes them to a directory first: what it acknowledged survives `kill -9`, and damage costs the damaged
//! records only. Memory holds what is near the end and what is being sent, whatever the backlog.

mod clock;
mod confirm;
mod cursor;
mod disk;
mod fs;
mod journal;
mod limits;
mod pace;
#[cfg(any(test, feature = "testing"))]
mod seeds;
mod state;

pub use clock::{Clock, SystemClock};
pub use confirm::{Confirm, Confirmed};
pub use cursor::{Cursor, Entry};
pub use disk::{
    Again, DEAD_LETTER_BYTES, DeadLetters, DiskReport, DiskSettings, Durability, InspectedCursor,
    InspectedSegment, Inspection, Left, NotInOrder, NotPersisted, OpenError, Recovered, Refusal, Repaired,
    SEGMENT_BYTES, Stored, SyncPolicy, Which, directory_of, escape, export, inspect, journals, repair,
    unread,
};
pub use fs::{Disk, File, Filesystem, OpenMode};
pub use journal::{Appended, CursorReport, EASED_BYTES, Journal, Space};
pub use limits::{Cost, CursorSpec, Depth, Full, Limits, OnFull, Strain};
pub use state::Settled;

/// Clocks and disks that do what a test says, and seeds for tests that try everything.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    pub use crate::clock::manual::ManualClock;
    pub use crate::fs::simulated::{Fault, Operation, SimulatedDisk};
    pub use crate::seeds::{Random, for_seeds};
}
