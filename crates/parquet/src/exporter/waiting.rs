//! Files that are cut and not at the destination, and how long they have waited.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use parking_lot::Mutex;

/// They are as many as the spool has: `max_spool_size` bounds them.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// When each was cut, by its place.
    cut_at: BTreeMap<u64, Instant>,
    places: u64,
}

impl Waiting {
    /// A file waits, which was cut then; its place.
    pub fn enter(&self, cut_at: Instant) -> u64 {
        let mut state = self.0.lock();
        state.places += 1;
        let place = state.places;
        state.cut_at.insert(place, cut_at);
        place
    }

    /// The file of this place is at the destination, or given up.
    pub fn leave(&self, place: u64) {
        self.0.lock().cut_at.remove(&place);
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.0.lock().cut_at.len()
    }

    /// When the oldest was cut.
    pub fn oldest(&self) -> Option<Instant> {
        self.0.lock().cut_at.values().min().copied()
    }
}

/// When a file of the spool was cut, as its file system says: now, where that does not say or a clock was set back since.
pub(crate) fn cut_at(path: &Path) -> Instant {
    let written_at = path.metadata().and_then(|metadata| metadata.modified());
    let age = written_at.ok().and_then(|at| at.elapsed().ok());
    let now = Instant::now();
    now.checked_sub(age.unwrap_or_default()).unwrap_or(now)
}
