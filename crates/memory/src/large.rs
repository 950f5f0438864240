//! The global allocator: jemalloc, and beside it pages of our own for what is too large for the caches of its threads.
//!
//! jemalloc keeps a descriptor of 128 bytes for each run of pages, and 4 KiB of a tree for each 2 MiB of addresses that one began or ended in, and
//! gives neither back: after a siege that was a seventh of what a quiet gateway had resident (docs/decisions.md). Rust says how large a block is when it
//! gives it back, so that nothing of the kind is needed: three bits for each unit of one reservation of addresses ([`units`]). It stays one mapping,
//! or a few, however many buffers there are.
//!
//! Free units keep their memory for a while, as jemalloc's do: who fills buffers all the time is not to have the kernel zero them all the time.

use std::alloc::{GlobalAlloc, Layout};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect};
use tikv_jemallocator::Jemalloc;

use units::{Units, rounded};

mod units;

/// Up to here a block is jemalloc's, whose threads keep some of them (`tcache_max`).
pub(crate) const SMALL_BYTES: usize = 32 << 10;

/// What is handed out begins at a multiple of it. A multiple of every page there is: 4 KiB with x86-64, up to 64 KiB elsewhere.
const UNIT: usize = if cfg!(target_arch = "x86_64") {
    16 << 10
} else {
    64 << 10
};

/// Addresses, not memory. What does not fit, or where as much cannot be had (`ulimit -v`), is jemalloc's.
const RESERVED_BYTES: usize = 64 << 30;
const UNITS: usize = RESERVED_BYTES / UNIT;
const WORDS: usize = UNITS / u64::BITS as usize;

/// So much of the reservation becomes usable at a time: a system call for each.
const STEP_UNITS: usize = (32 << 20) / UNIT;

/// Blocks from this size on go back to the kernel when they are freed, unless they may stay: large bodies that come and go within a second would
/// otherwise be resident several times over, 416 MiB for a limit of 256 (docs/decisions.md). (jemalloc's `oversize_threshold` in the executable, too.)
pub(crate) const LARGE_BYTES: usize = 1 << 20;

/// The addresses of what this crate's allocator hands out beside jemalloc.
pub(crate) static LARGE: Large = Large::new();

/// What there is, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Handed out.
    pub taken: u64,
    /// Free, with memory.
    pub dirty: u64,
    /// Usable addresses: of these two, and of others without memory.
    pub usable: u64,
}

impl Held {
    /// Addresses without memory that were handed out before or may be next.
    pub fn spare(&self) -> u64 {
        self.usable.saturating_sub(self.taken + self.dirty)
    }
}

struct State {
    units: Units<WORDS>,
    /// Units that can be read and written.
    usable: usize,
    taken_bytes: usize,
    was_tried: bool,
}

/// Pages for large blocks.
pub(crate) struct Large {
    /// 0: none.
    start: AtomicUsize,
    keeps: AtomicBool,
    /// Not parking_lot's, which allocates for a thread that waits.
    state: Mutex<State>,
}

impl Large {
    const fn new() -> Self {
        Self {
            start: AtomicUsize::new(0),
            keeps: AtomicBool::new(false),
            state: Mutex::new(State {
                units: Units::new(),
                usable: 0,
                taken_bytes: 0,
                was_tried: false,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) -> usize {
        // Who has an address of it has it from a thread that knew the start, by whatever made the address known.
        self.start.load(Ordering::Relaxed)
    }

    fn owns(&self, block: *mut u8) -> bool {
        let start = self.start();
        start != 0 && block.addr().wrapping_sub(start) < RESERVED_BYTES
    }

    fn address(&self, unit: usize) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.start() + unit * UNIT)
    }

    fn run(&self, block: *mut u8, bytes: usize) -> Range<usize> {
        let first = (block.addr() - self.start()) / UNIT;
        first..first + units_of(bytes)
    }

    /// Room for `bytes`, and whether it is zeros; null where there is none.
    fn take(&self, bytes: usize) -> (*mut u8, bool) {
        if bytes > RESERVED_BYTES {
            return (null_mut(), false);
        }
        let mut state = self.state();
        if !state.was_tried {
            state.was_tried = true;
            self.start.store(reserve(), Ordering::Relaxed);
        }
        if self.start() == 0 {
            return (null_mut(), false);
        }
        let units = units_of(bytes);
        let taken = loop {
            let limit = state.usable;
            if let Some(taken) = state.units.take(units, limit) {
                break taken;
            }
            if !self.make_usable(&mut state, units) {
                return (null_mut(), false);
            }
        };
        state.taken_bytes += bytes;
        (self.address(taken.start), taken.is_clean)
    }

    /// At least `units` more of the reservation.
    #[allow(unsafe_code, reason = "mprotect is called through rustix")]
    fn make_usable(&self, state: &mut State, units: usize) -> bool {
        let more = units.next_multiple_of(STEP_UNITS).min(UNITS - state.usable);
        // SAFETY: these addresses are reserved by us, behind those that were handed out, and nobody has any of them.
        let made = more > 0
            && unsafe {
                mprotect(
                    self.address(state.usable).cast(),
                    more * UNIT,
                    MprotectFlags::READ | MprotectFlags::WRITE,
                )
            }
            .is_ok();
        if made {
            state.usable += more;
        }
        made
    }

    fn free(&self, block: *mut u8, bytes: usize) {
        let run = self.run(block, bytes);
        let stays = self.stays(&run);
        let mut state = self.state();
        state.taken_bytes -= bytes;
        state.units.free(run, stays);
    }

    /// Whether units that are to be free keep their memory; if not, it is gone, before anybody else may have them.
    fn stays(&self, run: &Range<usize>) -> bool {
        let may_stay = run.len() * UNIT < LARGE_BYTES || self.keeps.load(Ordering::Relaxed);
        may_stay || !self.clear(run.clone())
    }

    /// Makes a block as long as `to` where it lies, if that can be.
    fn resize(&self, block: *mut u8, from: usize, to: usize) -> bool {
        let (old, new) = (self.run(block, from), self.run(block, to));
        let stays = new.end < old.end && self.stays(&(new.end..old.end));
        let mut state = self.state();
        let limit = state.usable;
        if new.end > old.end && !state.units.extend(old.end..new.end, limit) {
            return false;
        }
        if new.end < old.end {
            state.units.free(new.end..old.end, stays);
        }
        state.taken_bytes = state.taken_bytes - from + to;
        true
    }

    /// Takes the memory of units that nobody else can have.
    #[allow(unsafe_code, reason = "madvise is called through rustix")]
    fn clear(&self, run: Range<usize>) -> bool {
        // SAFETY: the units are usable, and taken by the caller, who has nothing in them any more.
        unsafe {
            madvise(
                self.address(run.start).cast(),
                run.len() * UNIT,
                Advice::LinuxDontNeed,
            )
        }
        .is_ok()
    }

    /// What there is.
    pub fn held(&self) -> Held {
        let state = self.state();
        Held {
            taken: state.taken_bytes as u64,
            dirty: (state.units.dirty() * UNIT) as u64,
            usable: (state.usable * UNIT) as u64,
        }
    }

    /// Lets freed buffers of 1 MiB and more keep their memory as others do, or takes it when they are freed.
    pub fn keep(&self, keep: bool) {
        self.keeps.store(keep, Ordering::Relaxed);
    }

    /// Gives the memory of free buffers of 1 MiB and more back to the kernel.
    pub fn purge_large(&self) {
        self.give_back(true, LARGE_BYTES / UNIT);
    }

    /// Gives the memory of all free units back to the kernel.
    pub fn purge(&self) {
        self.give_back(true, 1);
    }

    /// Gives back the memory of what was free at the last call already.
    pub fn decay(&self) {
        self.give_back(false, 1);
        self.state().units.age();
    }

    fn give_back(&self, all: bool, least: usize) {
        let mut from = 0;
        loop {
            let run = self.state().units.take_dirty(from, all, least);
            let Some(run) = run else { return };
            from = run.end;
            let has_memory = !self.clear(run.clone());
            self.state().units.free(run, has_memory);
        }
    }
}

fn units_of(bytes: usize) -> usize {
    rounded(bytes.div_ceil(UNIT))
}

/// The first address of a reservation, or 0.
#[allow(unsafe_code, reason = "mmap is called through rustix")]
fn reserve() -> usize {
    // SAFETY: a new mapping at an address of the kernel's choice takes nothing from anybody.
    let start = unsafe {
        mmap_anonymous(
            null_mut(),
            RESERVED_BYTES + UNIT,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    };
    start.map_or(0, |start| start.expose_provenance().next_multiple_of(UNIT))
}

/// The allocator of an executable: `#[global_allocator]`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allocator;

fn is_small(layout: &Layout) -> bool {
    layout.size() <= SMALL_BYTES
}

impl Allocator {
    /// Room beside jemalloc, and whether it is zeros; null for jemalloc's.
    fn take(layout: &Layout) -> (*mut u8, bool) {
        if is_small(layout) || layout.align() > UNIT {
            return (null_mut(), false);
        }
        LARGE.take(layout.size())
    }

    fn owns(block: *mut u8, layout: &Layout) -> bool {
        !is_small(layout) && LARGE.owns(block)
    }
}

// SAFETY: A block is `LARGE`'s, or jemalloc's, which keeps the contract; by its address anybody can tell whose. `LARGE` hands out units that nobody
// else has, as many as the size needs, at multiples of `UNIT`, and finds as many again by the size, with which each block comes back. Neither unwinds.
#[allow(unsafe_code, reason = "an allocator hands out memory")]
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match Self::take(&layout) {
            // SAFETY: the caller's layout.
            (block, _) if block.is_null() => unsafe { Jemalloc.alloc(layout) },
            (block, _) => block,
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (block, is_zero) = Self::take(&layout);
        if block.is_null() {
            // SAFETY: the caller's layout.
            return unsafe { Jemalloc.alloc_zeroed(layout) };
        }
        if !is_zero {
            // SAFETY: it has room for as much, and is nobody else's.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if Self::owns(block, &layout) {
            return LARGE.free(block, layout.size());
        }
        // SAFETY: it is not `LARGE`'s, so jemalloc handed it out for this layout.
        unsafe { Jemalloc.dealloc(block, layout) };
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let is_ours = Self::owns(block, &layout);
        if is_ours && size > SMALL_BYTES && LARGE.resize(block, layout.size(), size) {
            return block;
        }
        // SAFETY: the caller promises that `size`, rounded up to the alignment, does not overflow.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let (mut moved, _) = Self::take(&new);
        if moved.is_null() {
            if !is_ours {
                // SAFETY: it is not `LARGE`'s, so jemalloc handed it out for this layout.
                return unsafe { Jemalloc.realloc(block, layout, size) };
            }
            // SAFETY: as above, and a size of 0 is excluded by the caller.
            moved = unsafe { Jemalloc.alloc(new) };
        }
        if !moved.is_null() {
            // SAFETY: both have room for the smaller of the sizes, and the new block is nobody else's. The old one is given back as it was had.
            unsafe {
                block.copy_to_nonoverlapping(moved, layout.size().min(size));
                self.dealloc(block, layout);
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests;
