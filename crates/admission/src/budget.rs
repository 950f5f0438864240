//! The byte budget: a lock-free fast path, and a line when it is full.
//!
//! **The scheme.** A request takes bytes as its body arrives, so that what is announced and not sent holds
//! nothing, and then again for what the body inflates to. So requests hold bytes while they wait for more, which can
//! end in all of them waiting for each other. It does not, because of three rules:
//!
//! 1. *Oldest first.* Who holds bytes and wants more ([`Visitor::reserve`]) is served in the order in which requests
//!    came in, and before anybody who holds nothing. Bytes that come free go to the oldest until it has enough.
//! 2. *The young give way.* When the oldest has waited for [`GIVE_WAY_AFTER`] without being served, the youngest
//!    of those who wait and hold bytes are refused, as many as hold what it lacks ([`Denied::GaveWay`]: retryable).
//! 3. *Nobody stalls.* Who holds bytes and does not wait in line is either complete, and its bytes come free
//!    when it is delivered, or is being sent. A sender that stalls is given up by its reader while others wait
//!    ([`Budget::is_contended`]).
//!
//! So of the requests that hold bytes the oldest gets whatever it needs, as long as that is less than the whole lane
//! and something is delivered; `budget/simulation.rs` shows it over thousands of seeds, and finds the deadlock when
//! rule 2 is left out.
//!
//! **Capacity.** It can be set anew at any time, up to what the budget was made with, its *ceiling*
//! ([`Budget::set_capacity`]). Less of it revokes nothing: nobody is granted anything until enough has come back. What
//! can never fit is judged by the ceiling; what only the moment's capacity cannot hold is refused, not rejected
//! ([`Denied::Shrunk`]), and at once, since waiting for it would hold up everybody behind.
//!
//! **Lanes.** A small *express* lane is for small requests only, so that huge bodies cannot starve everybody else.
//!
//! **Tenants.** While more than one tenant holds bytes, none may take more than [`TENANT_FACTOR`] times what is left
//! free: one that floods the gateway stops short of filling it, whatever it sends, and every other finds room
//! (dynamic thresholds, after Choudhury and Hahne, 1998). A tenant that is alone has the whole budget, unless room is
//! kept for those that come later ([`Budget::keep_room_for_tenants`]). Tenants that flood at the same time hold bytes in
//! proportion to their weights ([`Budget::set_weights`]). A request that is over its tenant's share while
//! others of that tenant hold bytes waits for those: nobody else waits behind it or gives way to it. Whose a request is
//! may show only when it has been read: then it is admitted under an index that stands for all of those, and its bytes
//! go over to its tenant ([`Permit::move_to`]) if that one would have been granted them.

mod line;
mod permit;

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU8;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering};
use line::{Line, Slot, Waiter, Waiting};
pub use permit::{OverShare, Permit};

/// The express lane is one part in this many of the capacity: enough to keep ordinary SDK
/// requests (a few hundred KiB) flowing while the general lane is full of huge bodies.
pub const EXPRESS_SHARE: u64 = 16;

/// No request above this size uses the express lane, however large the budget is.
pub const EXPRESS_MAX_BYTES: u64 = 1 << 20;

/// One request may take at most this part of the express lane, so that several fit side by side.
const EXPRESS_REQUEST_SHARE: u64 = 4;

/// How long the oldest waits before the youngest gives way: long enough for a batch that is being delivered to free
/// what is missing, a fraction of what any client waits.
pub const GIVE_WAY_AFTER: Duration = Duration::from_millis(250);

/// How long it waits from then on, with each further step of its body: it is known now that nothing else frees bytes.
pub const GIVE_WAY_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// With one tenant that floods and others that hardly send, the flood gets to hold 4/5 of the lane.
const TENANT_FACTOR: u64 = 4;

/// Whether the first so many tenants hold anything is read from their counts, which are in one cache line, by the few who ask. Of the
/// others the number of those that do is kept, at two atomic updates for each request that is alone with its tenant. 8 is a gateway
/// without tenants, and one more: each signal is a tenant here.
const TENANTS_LOOKED_AT: usize = 8;

/// Tenants whose bytes are counted apart; those beyond are counted as one. 4096 of the gateway's and one for requests whose tenant is
/// not known before they are read, with four signals each: 128 KiB.
const TENANTS: usize = 4 * (4096 + 1);

/// The reservation is larger than the lane it would have to come from: waiting cannot help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeverFits {
    /// Bytes asked for.
    pub asked: u64,
    /// The largest reservation this budget can ever grant, in bytes.
    pub largest: u64,
}

impl std::fmt::Display for NeverFits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} bytes can never fit: the memory budget grants at most {} bytes to one request",
            self.asked, self.largest
        )
    }
}

impl std::error::Error for NeverFits {}

/// Why waiting ended without the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// No amount of waiting can help.
    NeverFits(NeverFits),
    /// An older request needed what this one held: let go of all of it, and come back later.
    GaveWay,
    /// It fits the ceiling and not the capacity of the moment, whatever others let go of: come back later.
    Shrunk,
}

/// What a budget holds right now, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Capacity of both lanes together, as it is now; less than `used` for a while after it was set so.
    pub capacity: u64,
    /// Bytes held by live permits.
    pub used: u64,
    /// Bytes asked for by requests that wait.
    pub waiting_bytes: u64,
    /// Requests that wait.
    pub waiting: usize,
    /// Bytes released since the start, whatever for.
    pub released: u64,
    /// Those of them that were let go of because the work on them was done ([`Permit::counts_as_drained`]): its rate is the drain rate.
    pub drained: u64,
    /// Requests that gave way to older ones since the start.
    pub gave_way: u64,
}

/// A budget of bytes. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

/// What is used is what was ever taken less what was ever given back: two sums that only grow, so that what has come back since the
/// start is known without a third. They would overflow after five centuries at a gigabyte a second.
#[derive(Debug)]
struct Lane {
    /// Set under the lock of the line, and read without it: a reservation that crosses with a change may see either.
    capacity: AtomicU64,
    taken: AtomicU64,
    given_back: AtomicU64,
}

impl Lane {
    fn new(capacity: u64) -> Self {
        Self {
            capacity: AtomicU64::new(capacity),
            taken: AtomicU64::new(0),
            given_back: AtomicU64::new(0),
        }
    }

    fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    #[inline]
    fn try_take(&self, bytes: u64) -> bool {
        // Also where more is used than there is, since the capacity was lowered.
        if bytes == 0 {
            return true;
        }
        let room = self.capacity();
        loop {
            let (taken, used) = self.taken_and_used();
            if used.checked_add(bytes).is_none_or(|used| used > room) {
                return false;
            }
            // If nobody has taken anything since, no more is used than that.
            let took =
                self.taken
                    .compare_exchange_weak(taken, taken + bytes, Ordering::AcqRel, Ordering::Relaxed);
            if took.is_ok() {
                return true;
            }
        }
    }

    /// Both as they were in one moment: nothing was given back between two readings.
    #[inline]
    fn taken_and_used(&self) -> (u64, u64) {
        // Acquire: what was given back had been taken before, and is seen as taken too.
        let mut given_back = self.given_back.load(Ordering::Acquire);
        loop {
            let taken = self.taken.load(Ordering::Acquire);
            let now = self.given_back.load(Ordering::Acquire);
            if now == given_back {
                return (taken, taken - given_back);
            }
            given_back = now;
        }
    }

    /// Takes what is used already, whether it is free or not.
    fn charge(&self, bytes: u64) {
        self.taken.fetch_add(bytes, Ordering::AcqRel);
    }

    #[inline]
    fn give_back(&self, bytes: u64) {
        if bytes > 0 {
            self.given_back.fetch_add(bytes, Ordering::AcqRel);
        }
    }

    #[inline]
    fn used(&self) -> u64 {
        self.taken_and_used().1
    }

    #[inline]
    fn free(&self) -> u64 {
        self.capacity().saturating_sub(self.used())
    }

    /// Reads what was given back by writing it: bytes given back before are seen from now on, and whoever gives some back
    /// later sees what this thread did before, that somebody got in line.
    fn look(&self) {
        self.given_back.fetch_add(0, Ordering::AcqRel);
    }
}

#[derive(Debug)]
struct Inner {
    /// The most the capacity can be.
    ceiling: u64,
    general: Lane,
    express: Lane,
    /// Waiters in all lines; read without the lock by the fast path. Whoever frees bytes sees a waiter, or the waiter
    /// sees the bytes ([`Lane::look`], `budget/loom_interleavings.rs`).
    waiting: AtomicUsize,
    waiting_bytes: AtomicU64,
    drained: AtomicU64,
    gave_way: AtomicU64,
    /// The age of the next visitor.
    visits: AtomicU64,
    /// Whether any visitor was of a tenant other than the first.
    has_tenants: AtomicBool,
    /// Whether a tenant that is alone leaves room for others.
    keeps_room: AtomicBool,
    tenants: Box<[AtomicU64]>,
    /// The weights of the first tenants, once they are known; all others weigh 1.
    weights: OnceLock<Box<[NonZeroU8]>>,
    /// Tenants that hold anything, of those from [`TENANTS_LOOKED_AT`] on.
    active_tenants: AtomicUsize,
    line: Mutex<Line>,
}

impl Budget {
    /// A budget of `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        Self::with_tenants(capacity, TENANTS)
    }

    /// [`Budget::new`], counting `tenants` apart at most.
    pub(crate) fn with_tenants(capacity: u64, tenants: usize) -> Self {
        let (general, express) = lanes(capacity);
        Self(Arc::new(Inner {
            ceiling: capacity,
            general: Lane::new(general),
            express: Lane::new(express),
            waiting: AtomicUsize::new(0),
            waiting_bytes: AtomicU64::new(0),
            drained: AtomicU64::new(0),
            gave_way: AtomicU64::new(0),
            visits: AtomicU64::new(0),
            has_tenants: AtomicBool::new(false),
            keeps_room: AtomicBool::new(false),
            tenants: (0..tenants.max(1)).map(|_| AtomicU64::new(0)).collect(),
            weights: OnceLock::new(),
            active_tenants: AtomicUsize::new(0),
            line: Mutex::new(Line::default()),
        }))
    }

    /// The largest reservation that can ever be granted, in bytes: that of the ceiling.
    pub fn largest(&self) -> u64 {
        lanes(self.0.ceiling).0
    }

    /// The most its capacity can be, in bytes: what it was made with.
    pub fn ceiling(&self) -> u64 {
        self.0.ceiling
    }

    /// Sets the capacity, to the ceiling at most. More of it serves those who wait; less of it takes nothing from
    /// anybody, and refuses of those who wait only who no longer fits at all.
    pub fn set_capacity(&self, bytes: u64) {
        let inner = &self.0;
        let (general, express) = lanes(bytes.min(inner.ceiling));
        // Who gets in line after this sees the new capacity, and who is in line already is served here.
        let mut line = inner.line.lock();
        inner.general.capacity.store(general, Ordering::Relaxed);
        inner.express.capacity.store(express, Ordering::Relaxed);
        self.serve(&mut line);
    }

    /// What the budget holds now. Not inlined: those who are refused ask, and copying the answer about cost more than the call.
    #[inline(never)]
    pub fn usage(&self) -> Usage {
        let inner = &self.0;
        let (general, express) = (inner.general.taken_and_used(), inner.express.taken_and_used());
        let (taken, used) = (general.0 + express.0, general.1 + express.1);
        Usage {
            capacity: inner.general.capacity() + inner.express.capacity(),
            used,
            waiting_bytes: inner.waiting_bytes.load(Ordering::Relaxed),
            waiting: inner.waiting.load(Ordering::Relaxed),
            released: taken - used,
            drained: inner.drained.load(Ordering::Relaxed),
            gave_way: inner.gave_way.load(Ordering::Relaxed),
        }
    }

    /// Bytes held by `tenant` (an index; see [`Budget::visit`]).
    pub fn used_by(&self, tenant: usize) -> u64 {
        self.0.held_by(self.0.tenant(tenant))
    }

    /// From now on a tenant that is alone stops at its share too: those that come after a flood, in front of a
    /// destination that takes nothing, find a fifth of the budget free.
    pub fn keep_room_for_tenants(&self) {
        self.0.keeps_room.store(true, Ordering::Relaxed);
    }

    /// From now on tenants that flood at the same time hold bytes in proportion to these weights, by tenant; those beyond them
    /// weigh 1. Only the first call counts.
    pub fn set_weights(&self, weights: impl IntoIterator<Item = NonZeroU8>) {
        self.0.weights.get_or_init(|| weights.into_iter().collect());
    }

    /// Whether somebody waits: who holds bytes without using them should let go.
    pub fn is_contended(&self) -> bool {
        self.0.waiting.load(Ordering::Relaxed) > 0
    }

    /// A request of `tenant` (a small index; 0 where there are no tenants). Its age counts from now.
    pub fn visit(&self, tenant: usize) -> Visitor {
        if tenant > 0 && !self.0.has_tenants.load(Ordering::Relaxed) {
            self.0.has_tenants.store(true, Ordering::Relaxed);
        }
        Visitor {
            budget: self.clone(),
            age: self.0.visits.fetch_add(1, Ordering::Relaxed),
            tenant: self.0.tenant(tenant),
            expected: 0,
        }
    }

    /// Reserves `bytes` now for a request without a tenant.
    #[inline]
    pub fn try_reserve(&self, bytes: u64) -> Option<Permit> {
        self.try_reserve_for(0, bytes, bytes)
    }

    /// Reserves `bytes` now for a request that needs `whole` bytes in all.
    #[inline]
    fn try_reserve_for(&self, tenant: usize, bytes: u64, whole: u64) -> Option<Permit> {
        let lane = self.0.try_grant(tenant, bytes, whole)?;
        Some(Permit::new(self.clone(), tenant, Share::of(lane, bytes)))
    }

    #[cold]
    fn serve_waiting(&self) {
        self.serve(&mut self.0.line.lock());
    }

    /// Grants what fits, in order. A waiter that does not fit holds back those behind it, or it would starve; the
    /// express line has its own lane.
    fn serve(&self, line: &mut Line) {
        let inner = &self.0;
        inner.general.look();
        inner.express.look();
        let (general, express) = (inner.general.capacity(), inner.express.capacity());
        if general < self.largest() {
            line.turn_away(general);
        }
        // Somebody waits for bytes of the general lane that any request may give back.
        let mut blocked = false;
        let held_in_line = line.held_in_line();
        line.growing.retain(|_, waiter| {
            if !waiter.slot.is_waiting() {
                return false;
            }
            if inner.waits_for_its_own(waiter, &held_in_line) {
                return true;
            }
            let lane = if !blocked && inner.take(&inner.general, waiter.tenant, waiter.bytes, false) {
                Granted::General
            } else if waiter.express && inner.take(&inner.express, waiter.tenant, waiter.bytes, false) {
                Granted::Express
            } else {
                blocked = true;
                return true;
            };
            self.grant(waiter, lane);
            false
        });
        line.new.retain(|waiter| waiter.slot.is_waiting());
        if inner.has_tenants.load(Ordering::Relaxed) {
            // A tenant that holds nothing comes before the tenth request of one that holds much.
            let (mut first, rest): (VecDeque<_>, VecDeque<_>) =
                (line.new.drain(..)).partition(|waiter| inner.held_by(waiter.tenant) == 0);
            first.extend(rest);
            line.new = first;
        }
        let mut next = 0;
        while !blocked && next < line.new.len() {
            let Waiter { bytes, tenant, .. } = &line.new[next];
            if inner.is_over_share(&inner.general, *tenant, *bytes) {
                // Others need not wait for a tenant that has its share.
                next += 1;
            } else if inner.take(&inner.general, *tenant, *bytes, false) {
                if let Some(waiter) = line.new.remove(next) {
                    self.grant(&waiter, Granted::General);
                }
            } else {
                blocked = true;
            }
        }
        line.express.retain(|waiter| waiter.slot.is_waiting());
        let mut next = 0;
        while next < line.express.len() {
            let Waiter { bytes, tenant, .. } = &line.express[next];
            let lane = if !blocked && inner.take(&inner.general, *tenant, *bytes, true) {
                Granted::General
            } else if *bytes > express || inner.is_over_share(&inner.express, *tenant, *bytes) {
                next += 1;
                continue;
            } else if inner.take(&inner.express, *tenant, *bytes, false) {
                Granted::Express
            } else {
                break;
            };
            if let Some(waiter) = line.express.remove(next) {
                self.grant(&waiter, lane);
            }
        }
    }

    /// Hands the bytes to their waiter; one that left gives them back. The line is locked, so its caller's loop
    /// goes on rather than this being another release.
    fn grant(&self, waiter: &Waiter, lane: Granted) {
        if let Err(unwanted) = waiter.slot.grant(Share::of(lane, waiter.bytes)) {
            self.0.untake(waiter.tenant, unwanted);
        }
    }

    /// If `age` is the oldest who waits and holds bytes: refuses the youngest of those, as many as hold what is missing.
    /// Who waits for its own tenant's bytes does not keep others from being the oldest, and takes from that tenant only.
    fn make_way(&self, age: u64) {
        let inner = &self.0;
        let mut victims = Vec::new();
        {
            let line = inner.line.lock();
            let held_in_line = line.held_in_line();
            let waits = |(_, waiter): &(&u64, &Waiter)| waiter.slot.is_waiting();
            let Some(oldest) = line.growing.get(&age).filter(|oldest| oldest.slot.is_waiting()) else {
                return;
            };
            let mut older = line.growing.range(..age).filter(waits);
            let is_first = older.all(|(_, waiter)| {
                waiter.tenant != oldest.tenant && inner.waits_for_its_own(waiter, &held_in_line)
            });
            if !is_first {
                return;
            }
            let own_only = inner.waits_for_its_own(oldest, &held_in_line);
            let used = inner.general.used();
            // More may be used than there is, since the capacity was lowered.
            let mut free = inner.general.capacity() as i64 - used as i64;
            let mut held = inner.held_by(oldest.tenant);
            let fits = |free: i64, held| {
                free >= oldest.bytes as i64
                    && !inner.exceeds_share(oldest.tenant, held, oldest.bytes, free as u64)
            };
            for (_, waiter) in line.growing.range(age + 1..).rev().filter(waits) {
                if fits(free, held) {
                    break;
                }
                if waiter.tenant == oldest.tenant {
                    held = held.saturating_sub(waiter.held);
                } else if own_only {
                    continue;
                }
                free += waiter.held as i64;
                victims.push(waiter.slot.clone());
            }
            if !fits(free, held) {
                // What is missing is not theirs to give: complete bodies hold it, and it comes free with them.
                return;
            }
        }
        let gone = victims.iter().filter(|slot| slot.refuse(Denied::GaveWay)).count();
        inner.gave_way.fetch_add(gone as u64, Ordering::Relaxed);
    }
}

/// Capacity of the general and of the express lane, of both together.
fn lanes(capacity: u64) -> (u64, u64) {
    let express = capacity / EXPRESS_SHARE;
    (capacity - express, express)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Granted {
    General,
    Express,
}

/// Bytes of each lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Share {
    general: u64,
    express: u64,
}

impl Share {
    fn of(lane: Granted, bytes: u64) -> Self {
        match lane {
            Granted::General => Self {
                general: bytes,
                express: 0,
            },
            Granted::Express => Self {
                general: 0,
                express: bytes,
            },
        }
    }

    fn bytes(self) -> u64 {
        self.general + self.express
    }
}

impl Inner {
    /// Takes `bytes` now for a request that needs `whole` bytes in all. Not inlined, so that what makes the permit of it is: one that is
    /// handed from function to function costs as much again in copies.
    #[inline(never)]
    fn try_grant(&self, tenant: usize, bytes: u64, whole: u64) -> Option<Granted> {
        // Whoever waits was here first; only the express lane may be used past them.
        let overtakes_nobody = self.waiting.load(Ordering::Acquire) == 0;
        if overtakes_nobody && self.take(&self.general, tenant, bytes, true) {
            Some(Granted::General)
        } else if self.is_small(whole) && self.take(&self.express, tenant, bytes, true) {
            Some(Granted::Express)
        } else {
            None
        }
    }

    /// Whether a request that needs `whole` bytes may use the express lane.
    fn is_small(&self, whole: u64) -> bool {
        whole <= (self.express.capacity() / EXPRESS_REQUEST_SHARE).min(EXPRESS_MAX_BYTES)
    }

    /// Bytes of both lanes.
    fn used(&self) -> u64 {
        self.general.used() + self.express.used()
    }

    fn tenant(&self, index: usize) -> usize {
        index.min(self.tenants.len() - 1)
    }

    fn held_by(&self, tenant: usize) -> u64 {
        self.tenants[tenant].load(Ordering::Relaxed)
    }

    /// Tenants that hold anything. What goes over from one to another while they are looked at may be seen with neither.
    #[cold]
    fn active_tenants(&self) -> usize {
        let looked_at = self.tenants.iter().take(TENANTS_LOOKED_AT);
        let active = looked_at.filter(|held| held.load(Ordering::Relaxed) > 0).count();
        active + self.active_tenants.load(Ordering::Relaxed)
    }

    /// Takes from a lane for a tenant; `fair` looks at the tenant's share first.
    #[inline]
    fn take(&self, lane: &Lane, tenant: usize, bytes: u64, fair: bool) -> bool {
        if fair && self.is_over_share(lane, tenant, bytes) || !lane.try_take(bytes) {
            return false;
        }
        self.count(tenant, bytes);
        true
    }

    /// A tenant holds so many bytes more.
    #[inline]
    fn count(&self, tenant: usize, bytes: u64) {
        if bytes > 0 && self.tenants[tenant].fetch_add(bytes, Ordering::Relaxed) == 0 {
            self.begins(tenant);
        }
    }

    /// A tenant holds so many bytes more if it may with what it holds already: looking and counting are one step.
    fn count_if(&self, tenant: usize, bytes: u64, may: impl Fn(u64) -> bool) -> bool {
        let count = &self.tenants[tenant];
        let held = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            may(held).then(|| held + bytes)
        });
        if held == Ok(0) && bytes > 0 {
            self.begins(tenant);
        }
        held.is_ok()
    }

    /// A tenant holds so many bytes less.
    #[inline]
    fn uncount(&self, tenant: usize, bytes: u64) {
        if bytes > 0
            && self.tenants[tenant].fetch_sub(bytes, Ordering::Relaxed) == bytes
            && tenant >= TENANTS_LOOKED_AT
        {
            self.active_tenants.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A tenant that held nothing holds something.
    #[inline]
    fn begins(&self, tenant: usize) {
        if tenant >= TENANTS_LOOKED_AT {
            self.active_tenants.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[inline]
    fn untake(&self, tenant: usize, share: Share) {
        self.uncount(tenant, share.bytes());
        self.general.give_back(share.general);
        self.express.give_back(share.express);
    }

    /// Whether `bytes` more are too many for a tenant while others hold something too, or room is kept for them.
    #[inline]
    fn is_over_share(&self, lane: &Lane, tenant: usize, bytes: u64) -> bool {
        let held = self.held_by(tenant);
        // Most often nothing, and then nothing else is looked at.
        held > 0 && self.exceeds_share(tenant, held, bytes, lane.free())
    }

    /// Whether a request of the growing line is over its tenant's share because of what others of that tenant hold that
    /// do not wait themselves.
    fn waits_for_its_own(&self, waiter: &Waiter, held_in_line: &BTreeMap<usize, u64>) -> bool {
        let in_line = held_in_line.get(&waiter.tenant).copied().unwrap_or_default();
        self.is_over_share(&self.general, waiter.tenant, waiter.bytes)
            && self.held_by(waiter.tenant) > in_line
    }

    /// Whether `bytes` more are too many for a tenant that holds `held`, with `free` bytes left.
    #[inline]
    fn exceeds_share(&self, tenant: usize, held: u64, bytes: u64, free: u64) -> bool {
        // In this order, since most hold little: tenants are counted for those who hold much.
        held > 0
            && self.is_beyond(tenant, held, bytes, free)
            && (self.keeps_room.load(Ordering::Relaxed) || self.active_tenants() > 1)
    }

    /// Whether `bytes` more are beyond the share of a tenant that holds `held` and is not alone, with `free` bytes left.
    fn is_beyond(&self, tenant: usize, held: u64, bytes: u64, free: u64) -> bool {
        let weights = self.weights.get();
        let weight = weights
            .and_then(|weights| weights.get(tenant))
            .map_or(1, |weight| weight.get());
        held.saturating_add(bytes) > free.saturating_mul(TENANT_FACTOR * u64::from(weight))
    }
}

/// One request at the budget. It waits in one line at a time.
#[derive(Debug)]
pub struct Visitor {
    budget: Budget,
    age: u64,
    tenant: usize,
    expected: u64,
}

impl Visitor {
    /// Announces how much the request will need in all, if that is known: a large one keeps out of the express lane
    /// from its first byte on.
    pub fn expect(&mut self, bytes: u64) {
        self.expected = self.expected.max(bytes);
    }

    /// Reserves `bytes` more than the `held` ones this request has already. `None` when they are not free, others wait
    /// for them, or the tenant has its share.
    #[inline]
    pub fn try_reserve(&self, bytes: u64, held: u64) -> Option<Permit> {
        self.budget
            .try_reserve_for(self.tenant, bytes, self.whole(bytes, held))
    }

    /// Waits in line for `bytes` more than the `held` ones this request has already; who holds any comes before all
    /// who hold none. Dropping the future leaves the line.
    ///
    /// # Errors
    /// [`Denied`]; then everything this request holds must be let go of.
    pub async fn reserve(&self, bytes: u64, held: u64) -> Result<Permit, Denied> {
        if let Some(permit) = self.try_reserve(bytes, held) {
            return Ok(permit);
        }
        if bytes > self.budget.largest() {
            let largest = self.budget.largest();
            return Err(Denied::NeverFits(NeverFits {
                asked: bytes,
                largest,
            }));
        }
        let share = self.enter(bytes, held).await?;
        Ok(Permit::new(self.budget.clone(), self.tenant, share))
    }

    /// To be called each time a request has waited in vain for [`GIVE_WAY_AFTER`]: if it is the oldest that waits and
    /// holds bytes, the youngest of them are refused, as many as hold what it lacks.
    pub fn make_way(&self) {
        self.budget.make_way(self.age);
    }

    /// Whether tenants have shares, and this one's has no room for `bytes` more.
    pub fn is_over_share(&self, bytes: u64) -> bool {
        let inner = &self.budget.0;
        inner.is_over_share(&inner.general, self.tenant, bytes)
    }

    /// Whether a request that has `held` bytes and wants `bytes` more may use the express lane.
    pub fn is_small(&self, bytes: u64, held: u64) -> bool {
        self.budget.0.is_small(self.whole(bytes, held))
    }

    fn whole(&self, bytes: u64, held: u64) -> u64 {
        self.expected.max(bytes.saturating_add(held))
    }

    fn enter(&self, bytes: u64, held: u64) -> Waiting<'_> {
        let inner = &self.budget.0;
        inner.waiting.fetch_add(1, Ordering::AcqRel);
        inner.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        let slot = Arc::new(Slot::default());
        let waiter = Waiter {
            bytes,
            tenant: self.tenant,
            held,
            express: self.is_small(bytes, held),
            slot: slot.clone(),
        };
        let mut line = inner.line.lock();
        if held > 0 {
            line.growing.insert(self.age, waiter);
        } else if waiter.express {
            line.express.push_back(waiter);
        } else {
            line.new.push_back(waiter);
        }
        // Bytes freed between the failed attempt and this lock would wake nobody: look again.
        self.budget.serve(&mut line);
        drop(line);
        Waiting::new(self, bytes, slot)
    }

    /// Whoever leaves the line, served or not, lets those behind it move up.
    fn leave(&self, bytes: u64, unclaimed: Option<Share>) {
        let inner = &self.budget.0;
        if let Some(share) = unclaimed {
            inner.untake(self.tenant, share);
        }
        inner.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if inner.waiting.fetch_sub(1, Ordering::AcqRel) > 1 {
            self.budget.serve(&mut inner.line.lock());
        }
    }
}

#[cfg(all(test, loom))]
mod loom_interleavings;
#[cfg(all(test, not(loom)))]
mod simulation;
#[cfg(all(test, not(loom)))]
mod tests;
