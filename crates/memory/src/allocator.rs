//! What the allocators hold, and giving their free pages back: jemalloc, and the large blocks beside it ([`crate::large`]).
//!
//! In a process whose allocator is another one (tests of our libraries), both are linked and idle: they have nothing
//! allocated, and their figures explain nothing.

use tikv_jemalloc_ctl::{Error, background_thread, epoch, epoch_mib, stats};

use crate::large::{LARGE, LARGE_BYTES};

/// What C libraries (zstd) allocate with the system's allocator goes back to the kernel when it is freed from this size on. By itself glibc takes
/// the size of whatever large block was freed last for the least one that is worth that, up to 32 MiB: windows of 8 MiB then stay resident.
#[cfg(target_env = "gnu")]
const C_LARGE_BYTES: std::ffi::c_int = 1 << 20;

/// Has jemalloc give its free pages back by a thread of its own, and the C allocator large blocks when they are freed.
///
/// Where large blocks are jemalloc's (no addresses could be reserved for them), it is to give those from [`LARGE_BYTES`] on back when they are
/// freed. That it decides when it makes their arena, and does so only as long as that thread is not running: so the arena is made first.
///
/// With musl the bindings do not support that thread; there, and where it cannot be started, a [`crate::Sampler`] gives back what
/// is due at each reading. Large blocks a sampler has given back anywhere.
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

/// `MALLCTL_ARENAS_ALL`: in the place of an arena's number it means all of them.
const ALL_ARENAS: usize = 4096;

/// What they hold, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Handed out.
    pub allocated: u64,
    /// Pages that have something handed out in them.
    pub active: u64,
    /// jemalloc's own bookkeeping.
    pub metadata: u64,
    /// Pages that are backed by memory: active, bookkeeping, and free ones not given back yet.
    pub resident: u64,
    /// Address space they keep without memory behind it.
    pub retained: u64,
}

impl Figures {
    /// Free pages that the kernel has not got back: what a purge can give it.
    pub fn dirty(&self) -> u64 {
        self.resident.saturating_sub(self.active + self.metadata)
    }
}

/// The keys, looked up once.
pub(crate) struct Control {
    epoch: epoch_mib,
    allocated: stats::allocated_mib,
    active: stats::active_mib,
    metadata: stats::metadata_mib,
    resident: stats::resident_mib,
    retained: stats::retained_mib,
    purge: [usize; 3],
    decay: [usize; 3],
    /// Whether free pages go back by themselves: not with musl, where jemalloc has no threads of its own.
    has_threads: bool,
}

impl Control {
    /// Finds the keys.
    ///
    /// # Errors
    /// A jemalloc without statistics.
    pub fn new() -> Result<Self, Error> {
        Ok(Self {
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
        let large = LARGE.held();
        let with = |bytes: usize, large: u64| bytes as u64 + large;
        Ok(Figures {
            allocated: with(self.allocated.read()?, large.taken),
            active: with(self.active.read()?, large.taken),
            metadata: self.metadata.read()? as u64,
            resident: with(self.resident.read()?, large.taken + large.dirty),
            retained: with(self.retained.read()?, large.spare()),
        })
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
            LARGE.purge();
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
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[global_allocator]
    static ALLOCATOR: crate::Allocator = crate::Allocator;

    const BYTES: usize = 64 << 20;

    /// What other tests of this process allocate and free meanwhile is far less.
    const OTHERS: u64 = 8 << 20;

    /// What one test allocates, frees or purges is not to be seen by another.
    pub(crate) static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

    /// Scenario: 64 MiB are allocated, written, and freed; then free pages are purged.
    /// Guarantees: the figures follow: allocated and resident go up by it, allocated down at once, and after the purge
    /// there are no free pages of that size left.
    #[test]
    fn figures_follow_and_purging_gives_back() {
        let _alone = ONE_AT_A_TIME.lock();
        let allocator = Control::new().unwrap();
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

    /// What is allocated in one arena, with what lies in the caches of its threads.
    #[allow(unsafe_code, reason = "jemalloc's figures are read through C")]
    fn allocated_in(arena: u32) -> usize {
        epoch::advance().unwrap();
        let of = |kind: &str| {
            let name = format!("stats.arenas.{arena}.{kind}.allocated\0");
            // SAFETY: both figures are `size_t`, by jemalloc's manual.
            unsafe { tikv_jemalloc_ctl::raw::read::<usize>(name.as_bytes()) }.unwrap()
        };
        of("small") + of("large")
    }

    /// Scenario: a thread with an arena of its own allocates and frees blocks of many sizes, as many as its cache holds,
    /// and then empties the cache.
    /// Guarantees: what lay in the cache counts as allocated, and does not any more.
    #[test]
    #[allow(unsafe_code, reason = "jemalloc is called through C")]
    fn an_emptied_cache_holds_nothing() {
        const CACHED: usize = 512 << 10;
        let _alone = ONE_AT_A_TIME.lock();
        // SAFETY: arenas are numbered in `unsigned`, by jemalloc's manual; nobody else is given this one.
        let arena = unsafe { tikv_jemalloc_ctl::raw::read::<u32>(b"arenas.create\0") }.unwrap();
        flush_thread_cache();
        // SAFETY: as above.
        unsafe { tikv_jemalloc_ctl::raw::write(b"thread.arena\0", arena) }.unwrap();
        for bytes in [1 << 10, 2 << 10, 4 << 10, 8 << 10, 14 << 10, 28 << 10] {
            let blocks: Vec<_> = (0..200).map(|_| vec![1u8; bytes]).collect();
            drop(std::hint::black_box(blocks));
        }
        let cached = allocated_in(arena);
        flush_thread_cache();
        let flushed = allocated_in(arena);
        assert!(cached > CACHED, "{cached} {flushed}");
        assert!(flushed < CACHED / 10, "{cached} {flushed}");
    }
}
