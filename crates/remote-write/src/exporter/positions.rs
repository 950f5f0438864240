//! Where each lane is, over a restart.
//!
//! The queue knows of a batch that it is settled, or not: one that was under way comes again after a start, with all its lanes. So what has been delivered is
//! noted in a file, by lane: which payloads, known by a hash of their bytes, have nothing left in it. When the same bytes are encoded again by the next process, the
//! series of those lanes are left out.
//!
//! What is noted is true of these bytes for ever, as long as all that decides what they become, in which lane it is and where that goes is the same: a hash of the settings says so.
//! So losing the file, or its end, costs requests that come again and no data, and nothing in it can be too old. Nothing is synced: it is there after a SIGKILL.
//!
//! **A lane goes on when its position is in the file**: no request is sent in it before that says what the ones before it delivered, and no batch is
//! settled before. So after a SIGKILL a lane sends nothing again that is older than what it has delivered since. Not noted, and sent again, is a lane
//! that has something refused as long as its batch is not settled, since dead letters are written then. Where the file cannot be written lanes go on without.

mod file;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use sluice_journal::Filesystem;
use sluice_payload::WireFormat;
use sluice_pipeline::Turn;
use tokio::sync::Notify;

use self::file::{Note, Notes};
use super::order::Order;
use crate::hash;
use crate::lane_set::LaneSet;

/// Batches that have ended are kept in the file while the queue may not have written down that they have: it takes some 10 ms, and a second where a disk is slow,
/// in which some hundred may end.
const KEPT_ENDED: usize = 1024;

/// Payloads of them all, each of which takes some 50 bytes of memory.
const MAX_KEPT_PAYLOADS: usize = 32_768;

/// What an earlier process has delivered comes among the first batches, as far as it comes at all. What has not come after so many will not.
const CARRIED_FOR: u32 = 256;

/// More than this is not kept for a disk that does not answer: everything is written anew when it does.
const MAX_QUEUE_BYTES: usize = 1 << 20;

/// After a file could not be written it is left alone for so many positions.
const PAUSE: u32 = 256;

/// Where the positions of lanes are kept over a restart.
#[derive(Debug, Clone)]
pub struct LanesFile {
    /// The file. Its directory is made when it is not there; one process has it at a time.
    pub path: PathBuf,
    /// The file system.
    pub filesystem: Arc<dyn Filesystem>,
}

/// A payload, known by its bytes, and by whose and what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    hash: u64,
    len: u32,
}

/// The positions of all lanes of an exporter.
#[derive(Debug)]
pub(super) struct Positions {
    state: Mutex<State>,
    /// Only the thread that writes has it.
    notes: Mutex<Notes>,
    seed: u64,
    written: Notify,
}

#[derive(Debug)]
struct State {
    /// What was delivered of payloads that have not been encoded since: by an earlier process, or before they are encoded again.
    carried: HashMap<Key, LaneSet>,
    carried_for: u32,
    under_way: BTreeMap<Turn, Noted>,
    ended: VecDeque<Noted>,
    ended_payloads: usize,
    numbers: u64,
    /// What is to be written, and the lanes that go on then.
    queue: Vec<Note>,
    queue_bytes: usize,
    waiting: Vec<(Turn, usize)>,
    is_writing: bool,
    /// The file has to be written anew, with all there is.
    is_lost: bool,
    pause: u32,
    has_failed: bool,
}

/// A batch in its encoded form.
#[derive(Debug)]
struct Noted {
    number: u64,
    payloads: Vec<(Key, LaneSet)>,
    done: LaneSet,
    is_queued: bool,
    /// Lanes of it that are not in the file yet.
    waiting: usize,
}

impl Noted {
    fn is_empty(&self) -> bool {
        self.done.is_empty() && self.payloads.iter().all(|(_, before)| before.is_empty())
    }

    fn note(&self) -> Note {
        Note::Batch {
            number: self.number,
            done: self.done.clone(),
            payloads: self.payloads.clone(),
        }
    }
}

/// Read when the first batch is encoded: by then the queue that the file is beside is locked, and the process before has written its last position.
pub(super) type Late = Arc<LazyLock<Arc<Positions>, Box<dyn FnOnce() -> Arc<Positions> + Send>>>;

impl Positions {
    /// As [`open`](Self::open), when they are first asked for.
    pub fn late(file: LanesFile, settings: String) -> Late {
        Arc::new(LazyLock::new(Box::new(move || {
            Arc::new(Self::open(file, &settings))
        })))
    }

    /// Reads what an earlier process has noted under the same settings, which `settings` describes.
    pub fn open(file: LanesFile, settings: &str) -> Self {
        let seed = RandomState::new().build_hasher().finish();
        let notes = Notes::read(file, seed, settings);
        let seed = notes.seed();
        let (notes, carried) = notes.into_parts();
        Self {
            state: Mutex::new(State {
                carried,
                carried_for: CARRIED_FOR,
                under_way: BTreeMap::new(),
                ended: VecDeque::new(),
                ended_payloads: 0,
                numbers: 0,
                queue: Vec::new(),
                queue_bytes: 0,
                waiting: Vec::new(),
                is_writing: false,
                is_lost: true,
                pause: 0,
                has_failed: false,
            }),
            notes: Mutex::new(notes),
            seed,
            written: Notify::new(),
        }
    }

    /// The key of a payload of this tenant.
    pub fn key(&self, tenant: &[u8], format: WireFormat, body: &[u8]) -> Key {
        let whose = hash::hash(tenant, self.seed ^ format as u64);
        Key {
            hash: hash::long(body, whose),
            len: u32::try_from(body.len()).unwrap_or(u32::MAX),
        }
    }

    /// The batch of this turn, or a piece of it, is encoded now, made of these payloads. Returns in which lanes each has been delivered.
    pub fn encoded(&self, turn: Turn, keys: impl Iterator<Item = Key>) -> Vec<LaneSet> {
        // Bodies are hashed before anybody waits for them.
        let keys: Vec<Key> = keys.collect();
        let mut state = self.state.lock();
        let state = &mut *state;
        state.come_again(turn);
        match state.carried_for.checked_sub(1) {
            Some(left) => state.carried_for = left,
            None => state.carried.clear(),
        }
        // What is noted of these bytes is true each time they come.
        let before = |key: &Key| state.carried.get(key).cloned().unwrap_or_default();
        let payloads: Vec<_> = keys.into_iter().map(|key| (key, before(&key))).collect();
        let delivered = payloads.iter().map(|(_, before)| before.clone()).collect();
        state.numbers += 1;
        let noted = Noted {
            number: state.numbers,
            payloads,
            done: LaneSet::default(),
            is_queued: false,
            waiting: 0,
        };
        state.under_way.insert(turn, noted);
        delivered
    }

    /// All that the batch has in this lane has been delivered. The lane goes on, in `order`, when that is in the file.
    pub fn done_in(self: &Arc<Self>, turn: Turn, lane: usize, order: &Arc<Order>) {
        let begins = {
            let mut state = self.state.lock();
            state.done_in(turn, lane)
        };
        if !begins {
            return;
        }
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                let (positions, order) = (self.clone(), order.clone());
                runtime.spawn_blocking(move || positions.write(&order));
            }
            Err(_) => self.write(order),
        }
    }

    /// Waits until all that this batch has delivered is in the file.
    pub async fn written(&self, turn: Turn) {
        loop {
            let written = self.written.notified();
            let is_waiting = |noted: &Noted| noted.waiting > 0;
            if !self.state.lock().under_way.get(&turn).is_some_and(is_waiting) {
                return;
            }
            written.await;
        }
    }

    /// The batch is settled.
    pub fn ends(&self, turn: Turn) {
        self.state.lock().end(turn);
    }

    /// Writes until there is nothing more.
    fn write(&self, order: &Order) {
        let mut file = self.notes.lock();
        loop {
            let (notes, anew, waiting) = {
                let mut state = self.state.lock();
                if state.waiting.is_empty() {
                    state.is_writing = false;
                    return;
                }
                let waiting = std::mem::take(&mut state.waiting);
                let anew = state.is_lost || file.is_full();
                let notes = state.take_notes(anew);
                (notes, anew, waiting)
            };
            let written = match &notes[..] {
                [] => None,
                notes if anew => Some(file.write_anew(notes)),
                notes => Some(file.append(notes)),
            };
            self.state.lock().wrote(written, &waiting, file.path());
            waiting
                .iter()
                .for_each(|(turn, lane)| order.done_in(*turn, *lane));
            self.written.notify_waiters();
        }
    }
}

impl State {
    /// What was noted of the batch counts for what comes of it next.
    fn come_again(&mut self, turn: Turn) {
        let Some(noted) = self.under_way.remove(&turn) else {
            return;
        };
        if noted.is_empty() {
            return;
        }
        self.carried_for = CARRIED_FOR;
        for (key, mut before) in noted.payloads {
            before.add(&noted.done);
            self.carried.entry(key).or_default().add(&before);
        }
    }

    /// True when somebody has to write.
    fn done_in(&mut self, turn: Turn, lane: usize) -> bool {
        let Some(noted) = self.under_way.get_mut(&turn) else {
            return false;
        };
        noted.done.insert(lane);
        noted.waiting += 1;
        self.waiting.push((turn, lane));
        // Written anew, everything is written.
        if !self.is_lost {
            let note = match std::mem::replace(&mut noted.is_queued, true) {
                true => Note::Done(noted.number, lane),
                false => noted.note(),
            };
            self.put(note);
        }
        !std::mem::replace(&mut self.is_writing, true)
    }

    fn put(&mut self, note: Note) {
        self.queue_bytes += note.bytes();
        self.queue.push(note);
        if self.queue_bytes > MAX_QUEUE_BYTES {
            self.queue = Vec::new();
            self.queue_bytes = 0;
            self.is_lost = true;
        }
    }

    fn end(&mut self, turn: Turn) {
        let Some(noted) = self.under_way.remove(&turn) else {
            return;
        };
        if noted.is_empty() {
            return;
        }
        if !self.is_lost && noted.is_queued {
            // It goes with what is next: for whom it is missing, the batch is one more that may come again.
            self.put(Note::End(noted.number));
        }
        self.ended_payloads += noted.payloads.len();
        self.ended.push_back(noted);
        while self.ended.len() > KEPT_ENDED || self.ended_payloads > MAX_KEPT_PAYLOADS {
            let oldest = self.ended.pop_front();
            self.ended_payloads -= oldest.map_or(0, |noted| noted.payloads.len());
        }
    }

    /// What has been queued, or all there is.
    fn take_notes(&mut self, anew: bool) -> Vec<Note> {
        if self.pause > 0 {
            self.pause -= 1;
            return Vec::new();
        }
        self.queue_bytes = 0;
        let queue = std::mem::take(&mut self.queue);
        if !anew {
            return queue;
        }
        self.is_lost = false;
        let mut notes = vec![Note::Batch {
            number: 0,
            done: LaneSet::default(),
            payloads: self
                .carried
                .iter()
                .map(|(key, lanes)| (*key, lanes.clone()))
                .collect(),
        }];
        for noted in &self.ended {
            notes.extend([noted.note(), Note::End(noted.number)]);
        }
        for noted in self.under_way.values_mut().filter(|noted| !noted.is_empty()) {
            noted.is_queued = true;
            notes.push(noted.note());
        }
        notes
    }

    /// These lanes go on.
    fn wrote(&mut self, written: Option<io::Result<()>>, waiting: &[(Turn, usize)], path: &Path) {
        for (turn, _) in waiting {
            if let Some(noted) = self.under_way.get_mut(turn) {
                noted.waiting = noted.waiting.saturating_sub(1);
            }
        }
        match written {
            None => {}
            Some(Ok(())) => self.has_failed = false,
            Some(Err(error)) => {
                if !self.has_failed {
                    tracing::warn!(
                        file = %path.display(), %error,
                        "cannot write the positions of lanes; until it can be written again what is under way at a kill is sent again in all lanes"
                    );
                }
                self.has_failed = true;
                self.is_lost = true;
                self.pause = PAUSE;
            }
        }
    }
}

#[cfg(test)]
mod tests;
