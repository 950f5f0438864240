//! The rule: readings in, a capacity out. No clock, no files.
//!
//! **What is measured.** Of the process: the pages it cannot do without, which are its resident memory less the
//! allocator's free pages, or the allocator's pages in use where those are more (allocated and not yet touched). Of a
//! cgroup: what is charged to it less what the kernel can take back. What of this no permit explains is *untracked*:
//! connections, batches being compressed, fragmentation, sockets, the neighbours in the cgroup. The capacity that is
//! safe is the limit less that, and never more than the plan's ceiling nor less than its floor.
//!
//! **Down at once, up slowly.** Two readings in a row that find the capacity too high lower it, all the way. It is raised
//! after a time of watching, by a quarter of the least room that there was in all of that time. A quarter, because
//! what is untracked grows with what is tracked (a batch is compressed into memory beside the budget): with `k` bytes untracked for
//! each byte of permits the rise never overshoots, and so never causes the next fall, as long as `k` is 3 or less.
//! Whatever the readings do, a fall that follows a rise doubles the time of watching, up to [`LONGEST_WATCH`], so that the
//! capacity cannot swing faster than that; five quiet minutes take it back. `controller/tests.rs` shows both.
//!
//! **Free pages.** Above the soft mark the allocator is told to give its free pages back: once a second, and at every
//! reading in the last quarter before the limit.

use std::time::Duration;

use crate::limit::Plan;

/// After a change, and for as long as no raise is due, readings are watched this long before the capacity is raised.
const WATCH: Duration = Duration::from_secs(1);

/// The longest that a swinging load makes of it.
const LONGEST_WATCH: Duration = Duration::from_secs(32);

/// As long without a fall, and watching takes no longer than [`WATCH`] again.
const CALM: Duration = Duration::from_secs(300);

/// A raise takes this part of the room there is.
const RAISE_SHARE: u64 = 4;

/// Changes smaller than this part of the limit are not made, but for the last raise, to the ceiling: permits and pages are never read
/// in the same moment.
const BAND_SHARE: u64 = 128;

/// Free pages go back at most this often between the soft mark and the last quarter before the limit.
const PURGE_EVERY: Duration = Duration::from_secs(1);

/// Free pages are worth a purge from this part of the limit on.
const PURGE_SHARE: u64 = 64;

/// What was read in one moment, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readings {
    /// Held by permits.
    pub permits: u64,
    /// Resident memory of the process, as the kernel counts it.
    pub rss: u64,
    /// The allocator's pages in use.
    pub active: u64,
    /// The allocator's free pages that the kernel has not got back.
    pub dirty: u64,
    /// The cgroup that has the least room left.
    pub cgroup: Option<Charged>,
}

/// A cgroup's figures, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Charged {
    /// Its limit.
    pub limit: u64,
    /// What is charged to it and cannot be taken back by the kernel.
    pub bytes: u64,
}

/// What explains a capacity below the ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The process has more memory than permits explain.
    Process,
    /// A cgroup has: sockets and the kernel's own memory count there, and other processes.
    Cgroup,
}

impl Cause {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::Process => {
                "the process holds memory beside the budget (connections, compression, fragmentation)"
            }
            Cause::Cgroup => {
                "the cgroup is charged with more than this process's budget (sockets, kernel, neighbours)"
            }
        }
    }
}

/// A new capacity, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Until now.
    pub from: u64,
    /// From now on.
    pub to: u64,
    /// What binds it, where it is lowered.
    pub cause: Cause,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Set the capacity.
    pub change: Option<Change>,
    /// Make the allocator give its free pages back.
    pub purge: bool,
    /// Bytes of the process that permits do not explain.
    pub untracked: u64,
}

/// Decides, reading by reading.
#[derive(Debug)]
pub struct Controller {
    plan: Plan,
    capacity: u64,
    /// What the reading before found safe.
    before: u64,
    /// Since when readings are watched for a raise, and the least that permits might have held since.
    watched_since: Duration,
    least: u64,
    watch: Duration,
    /// Whether the last change was a raise.
    raised: bool,
    lowered_at: Duration,
    purged_at: Option<Duration>,
}

impl Controller {
    /// Starts with the plan's ceiling, at time zero.
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            capacity: plan.ceiling,
            before: plan.ceiling,
            watched_since: Duration::ZERO,
            least: u64::MAX,
            watch: WATCH,
            raised: false,
            lowered_at: Duration::ZERO,
            purged_at: None,
        }
    }

    /// The capacity it has decided on.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Takes a reading at `now`, counted from the start; later readings have later times.
    pub fn read(&mut self, now: Duration, readings: &Readings) -> Decision {
        let firm = readings.rss.saturating_sub(readings.dirty).max(readings.active);
        let untracked = firm.saturating_sub(readings.permits);
        Decision {
            change: self.adjust(now, untracked, readings),
            purge: self.purge(now, readings),
            untracked,
        }
    }

    fn adjust(&mut self, now: Duration, untracked: u64, readings: &Readings) -> Option<Change> {
        let (most, cause) = most(self.plan.limit, untracked, readings);
        let safe = most.clamp(self.plan.floor.min(self.plan.ceiling), self.plan.ceiling);
        // One reading may have caught a permit given back before its memory was; two do not.
        let confirmed = safe.max(self.before);
        self.before = safe;
        self.least = self.least.min(most);
        if now.saturating_sub(self.lowered_at) >= CALM {
            self.watch = WATCH;
        }
        let band = self.band();
        if confirmed.saturating_add(band) <= self.capacity {
            if std::mem::take(&mut self.raised) {
                self.watch = (self.watch * 2).min(LONGEST_WATCH);
            }
            self.lowered_at = now;
            return Some(self.set(now, confirmed, cause));
        }
        if now.saturating_sub(self.watched_since) < self.watch {
            return None;
        }
        let room = self.least.saturating_sub(self.capacity);
        let missing = self.plan.ceiling - self.capacity;
        let raise = (room / RAISE_SHARE).min(missing);
        if raise == 0 || raise < band.min(missing) {
            self.watch_anew(now);
            return None;
        }
        self.raised = true;
        Some(self.set(now, self.capacity + raise, cause))
    }

    fn set(&mut self, now: Duration, to: u64, cause: Cause) -> Change {
        let from = std::mem::replace(&mut self.capacity, to);
        self.watch_anew(now);
        Change { from, to, cause }
    }

    fn watch_anew(&mut self, now: Duration) {
        self.watched_since = now;
        self.least = u64::MAX;
    }

    fn band(&self) -> u64 {
        (self.plan.limit / BAND_SHARE).max(1)
    }

    fn purge(&mut self, now: Duration, readings: &Readings) -> bool {
        let Plan { limit, soft, .. } = self.plan;
        let spare = limit.saturating_sub(soft);
        // How far the process or its cgroup is above the soft mark.
        let above = |used: u64, limit: u64| used.saturating_sub(limit.saturating_sub(spare));
        let cgroup = readings
            .cgroup
            .map_or(0, |charged| above(charged.bytes, charged.limit));
        let above = above(readings.rss, limit).max(cgroup);
        let is_due = self
            .purged_at
            .is_none_or(|at| now.saturating_sub(at) >= PURGE_EVERY);
        let is_pressing = above >= spare - spare / 4;
        let purge = above > 0 && readings.dirty >= limit / PURGE_SHARE && (is_due || is_pressing);
        if purge {
            self.purged_at = Some(now);
        }
        purge
    }
}

/// The most that permits may hold with what is untracked now, not counting what the plan says, and what binds it.
fn most(limit: u64, untracked: u64, readings: &Readings) -> (u64, Cause) {
    let process = limit.saturating_sub(untracked);
    // The allocator's free pages are charged too, and go back when they have to.
    let cgroup = readings.cgroup.map_or(u64::MAX, |charged| {
        let other = charged
            .bytes
            .saturating_sub(readings.dirty)
            .saturating_sub(readings.permits);
        charged.limit.saturating_sub(other)
    });
    match cgroup < process {
        true => (cgroup, Cause::Cgroup),
        false => (process, Cause::Process),
    }
}

#[cfg(test)]
mod tests;
