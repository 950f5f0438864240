//! jemalloc: its figures, and giving its free pages back.
//!
//! In a process whose allocator is another one (tests of our libraries), jemalloc is linked and idle: it has nothing
//! allocated, and its figures explain nothing.

use tikv_jemalloc_ctl::{Error, background_thread, epoch, epoch_mib, stats};

/// What C libraries (zstd) allocate with the system's allocator goes back to the kernel when it is freed from this size on. By itself glibc takes
/// the size of whatever large block was freed last for the least one that is worth that, up to 32 MiB: windows of 8 MiB then stay resident.
#[cfg(target_env = "gnu")]
const C_LARGE_BYTES: std::ffi::c_int = 1 << 20;

/// An allocation that jemalloc keeps in its arena of large ones (`oversize_threshold` in the executable).
const LARGE_BYTES: usize = 1 << 20;

/// Has large buffers given back to the kernel when they are freed, and everything else ten seconds later by jemalloc's
/// own thread.
///
/// Whether it gives large buffers back at once jemalloc decides when it makes their arena, and it does so only as long as
/// that thread is not running: so the arena is made first. Large bodies that come and go within a second would otherwise
/// stay resident several times over: 416 MiB for a limit of 256 (docs/decisions.md). While there is room for that, a
/// [`crate::Sampler`] lets them stay for a second.
///
/// With musl the bindings do not support that thread; there, and where it cannot be started, a [`crate::Sampler`] gives back what
/// is due at each reading.
///
/// # Errors
/// What the allocators say.
pub fn prepare_allocator() -> Result<(), String> {
    #[cfg(target_env = "gnu")]
    prepare_c_allocator()?;
    drop(std::hint::black_box(Vec::<u8>::with_capacity(LARGE_BYTES)));
    if cfg!(target_env = "musl") {
        return Ok(());
    }
    background_thread::write(true).map_err(|error| error.to_string())
}

#[cfg(target_env = "gnu")]
#[allow(unsafe_code, reason = "glibc is called through C")]
fn prepare_c_allocator() -> Result<(), String> {
    // SAFETY: `mallopt` takes two numbers and sets a limit of its own; it may be called at any time.
    match unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, C_LARGE_BYTES) } {
        0 => Err("glibc does not take M_MMAP_THRESHOLD".into()),
        _ => Ok(()),
    }
}

#[cfg(target_env = "gnu")]
#[allow(unsafe_code, reason = "glibc is called through C")]
fn trim_c_allocator() {
    // SAFETY: `malloc_trim` takes a number and may be called at any time by any thread.
    unsafe { libc::malloc_trim(0) };
}

/// How long freed large buffers stay while there is room for them: as long as one that is used every second needs.
const LARGE_DECAY_MS: isize = 1000;

/// `MALLCTL_ARENAS_ALL`: in the place of an arena's number it means all of them.
const ALL_ARENAS: usize = 4096;

/// What jemalloc holds, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Handed out.
    pub allocated: u64,
    /// Pages that have something handed out in them.
    pub active: u64,
    /// Its own bookkeeping.
    pub metadata: u64,
    /// Pages that are backed by memory: active, bookkeeping, and free ones not given back yet.
    pub resident: u64,
    /// Address space it keeps without memory behind it.
    pub retained: u64,
}

impl Figures {
    /// Free pages that the kernel has not got back: what a purge can give it.
    pub fn dirty(&self) -> u64 {
        self.resident.saturating_sub(self.active + self.metadata)
    }
}

/// The keys, looked up once.
pub(crate) struct Allocator {
    epoch: epoch_mib,
    allocated: stats::allocated_mib,
    active: stats::active_mib,
    metadata: stats::metadata_mib,
    resident: stats::resident_mib,
    retained: stats::retained_mib,
    purge: [usize; 3],
    decay: [usize; 3],
    /// `dirty_decay_ms` of the arena of large allocations.
    large_decay: [usize; 3],
    /// Whether free pages go back by themselves: not with musl, where jemalloc has no threads of its own.
    has_threads: bool,
}

impl Allocator {
    /// Finds the keys.
    ///
    /// # Errors
    /// A jemalloc without statistics.
    pub fn new() -> Result<Self, Error> {
        let mut large_decay = of_all_arenas(b"arena.0.dirty_decay_ms\0")?;
        large_decay[1] = large_arena()?;
        Ok(Self {
            large_decay,
            epoch: epoch::mib()?,
            allocated: stats::allocated::mib()?,
            active: stats::active::mib()?,
            metadata: stats::metadata::mib()?,
            resident: stats::resident::mib()?,
            retained: stats::retained::mib()?,
            purge: of_all_arenas(b"arena.0.purge\0")?,
            decay: of_all_arenas(b"arena.0.decay\0")?,
            has_threads: background_thread::read().unwrap_or(false),
        })
    }

    /// The figures of now: what they are made of is added up again.
    pub fn figures(&self) -> Result<Figures, Error> {
        self.epoch.advance()?;
        Ok(Figures {
            allocated: self.allocated.read()? as u64,
            active: self.active.read()? as u64,
            metadata: self.metadata.read()? as u64,
            resident: self.resident.read()? as u64,
            retained: self.retained.read()? as u64,
        })
    }

    /// Lets freed large buffers stay for [`LARGE_DECAY_MS`], to be used again without the kernel's zeroing them, or gives
    /// them back when they are freed, beginning with those that are there.
    #[allow(unsafe_code, reason = "jemalloc is called through C")]
    pub fn keep_large(&self, keep: bool) -> Result<(), Error> {
        let decay: isize = if keep { LARGE_DECAY_MS } else { 0 };
        // SAFETY: `large_decay` came from `name_to_mib`, with the number of an arena that there is; its value is an
        // `ssize_t`.
        unsafe { tikv_jemalloc_ctl::raw::write_mib(&self.large_decay, decay) }
    }

    /// Gives back what is due by `dirty_decay_ms`, where nobody else does.
    pub fn tick(&self) {
        if !self.has_threads {
            call(&self.decay);
        }
    }

    /// The call that gives all free pages back, the C allocator's too. It takes as long as the kernel needs for them: not for a reactor.
    pub fn purging(&self) -> impl FnOnce() + Send + 'static {
        let purge = self.purge;
        move || {
            call(&purge);
            #[cfg(target_env = "gnu")]
            trim_c_allocator();
        }
    }
}

/// Empties this thread's cache of free blocks: what lies there keeps its pages from being free.
#[allow(unsafe_code, reason = "jemalloc is called through C")]
pub(crate) fn flush_thread_cache() {
    use std::ptr::null_mut;
    let name = c"thread.tcache.flush";
    // SAFETY: the name ends with a zero; null pointers and a length of zero are what this call demands.
    unsafe { tikv_jemalloc_sys::mallctl(name.as_ptr(), null_mut(), null_mut(), null_mut(), 0) };
}

/// The number of the arena of large allocations: it comes after those that threads share (`huge_arena_ind` in jemalloc's
/// arena.c).
#[allow(unsafe_code, reason = "jemalloc is called through C")]
fn large_arena() -> Result<usize, Error> {
    // SAFETY: `opt.narenas` is an `unsigned`.
    let threads_arenas: std::ffi::c_uint = unsafe { tikv_jemalloc_ctl::raw::read(b"opt.narenas\0")? };
    Ok(threads_arenas as usize)
}

fn of_all_arenas(name: &[u8]) -> Result<[usize; 3], Error> {
    let mut mib = [0; 3];
    tikv_jemalloc_ctl::raw::name_to_mib(name, &mut mib)?;
    mib[1] = ALL_ARENAS;
    Ok(mib)
}

/// Makes a call that takes and returns nothing. It can only fail for a key that is not there, and these were found.
#[allow(unsafe_code, reason = "jemalloc is called through C")]
fn call(mib: &[usize; 3]) {
    use std::ptr::null_mut;
    // SAFETY: `mib` has the length it is said to have and came from `name_to_mib`, with the arena's number replaced by
    // the one that jemalloc documents for all; null pointers and a length of zero are what these two calls demand.
    unsafe {
        tikv_jemalloc_sys::mallctlbymib(mib.as_ptr(), mib.len(), null_mut(), null_mut(), null_mut(), 0)
    };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[global_allocator]
    static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

    const BYTES: usize = 64 << 20;

    /// What other tests of this process allocate and free meanwhile is far less.
    const OTHERS: u64 = 1 << 20;

    /// What one test frees or purges is not to be seen by another.
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

    /// Scenario: 64 MiB are allocated, written, and freed; then free pages are purged.
    /// Guarantees: the figures follow: allocated and resident go up by it, allocated down at once, and after the purge
    /// there are no free pages of that size left.
    #[test]
    fn figures_follow_and_purging_gives_back() {
        let _alone = ONE_AT_A_TIME.lock();
        let allocator = Allocator::new().unwrap();
        let before = allocator.figures().unwrap();
        let block = std::hint::black_box(vec![1u8; BYTES]);
        let during = allocator.figures().unwrap();
        assert!(
            during.allocated + OTHERS >= before.allocated + BYTES as u64,
            "{before:?} {during:?}"
        );
        assert!(during.resident >= BYTES as u64 && during.active >= BYTES as u64);
        drop(block);
        let freed = allocator.figures().unwrap();
        assert!(freed.allocated < during.allocated - BYTES as u64 / 2);
        allocator.tick();
        allocator.purging()();
        let purged = allocator.figures().unwrap();
        assert!(purged.dirty() < BYTES as u64 / 2, "{purged:?}");
        assert!(
            purged.resident <= during.resident - BYTES as u64 / 2,
            "{purged:?}"
        );
    }

    /// Scenario: a thread allocates and frees blocks of many sizes, as many as its cache holds, and then empties the cache.
    /// Guarantees: what lay in the cache counts as allocated, and does not any more.
    #[test]
    fn an_emptied_cache_holds_nothing() {
        const CACHED: u64 = 512 << 10;
        let _alone = ONE_AT_A_TIME.lock();
        let allocator = Allocator::new().unwrap();
        flush_thread_cache();
        let before = allocator.figures().unwrap().allocated;
        for bytes in [1 << 10, 2 << 10, 4 << 10, 8 << 10, 14 << 10, 28 << 10] {
            let blocks: Vec<_> = (0..200).map(|_| vec![1u8; bytes]).collect();
            drop(std::hint::black_box(blocks));
        }
        let cached = allocator.figures().unwrap().allocated;
        flush_thread_cache();
        let flushed = allocator.figures().unwrap().allocated;
        assert!(cached > before + CACHED, "{before} {cached} {flushed}");
        assert!(flushed < before + CACHED / 2, "{before} {cached} {flushed}");
    }

    /// Scenario: 64 MiB are allocated, written and freed while large buffers may stay; then they may not.
    /// Guarantees: they stay, and are gone as soon as they may not.
    #[test]
    fn large_buffers_stay_while_they_may() {
        let _alone = ONE_AT_A_TIME.lock();
        let allocator = Allocator::new().unwrap();
        // jemalloc makes the arena with the first large allocation; the executable with `prepare_allocator`.
        drop(std::hint::black_box(vec![1u8; BYTES]));
        // What else this process has freed is not to count.
        allocator.purging()();
        let free = |allocator: &Allocator| allocator.figures().unwrap().dirty();
        allocator.keep_large(true).unwrap();
        drop(std::hint::black_box(vec![1u8; BYTES]));
        let kept = free(&allocator);
        allocator.keep_large(false).unwrap();
        let given = free(&allocator);
        assert!(
            kept >= BYTES as u64 / 2 && given < BYTES as u64 / 2,
            "{kept} {given}"
        );
    }
}
