#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(unsafe_code, reason = "an allocator is called")]

use std::sync::atomic::AtomicBool;

use super::*;
use crate::allocator::tests::ONE_AT_A_TIME;

const MIB: usize = 1 << 20;

/// A small generator of numbers (xorshift), which allocates nothing.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize
    }

    /// On either side of the threshold, and beyond a mebibyte.
    fn size(&mut self) -> usize {
        let scale = [SMALL_BYTES / 2, 2 * SMALL_BYTES, 16 * SMALL_BYTES, 3 * MIB][self.next() % 4];
        [
            SMALL_BYTES,
            SMALL_BYTES + 1,
            1 + self.next() % scale,
            1 + self.next() % scale,
        ][self.next() % 4]
    }
}

/// A block, written full of what follows from its seed.
struct Block {
    start: *mut u8,
    layout: Layout,
    seed: u64,
}

impl Block {
    fn fill(&self, from: usize) {
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.start, self.layout.size()) };
        for (at, byte) in bytes.iter_mut().enumerate().skip(from) {
            *byte = self.byte(at);
        }
    }

    fn byte(&self, at: usize) -> u8 {
        (self
            .seed
            .wrapping_add(at as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            >> 56) as u8
    }

    fn check(&self, up_to: usize) {
        let bytes = unsafe { std::slice::from_raw_parts(self.start, up_to) };
        let wrong = bytes
            .iter()
            .enumerate()
            .find(|(at, byte)| **byte != self.byte(*at));
        assert_eq!(wrong, None, "of {:?} at {:?}", self.layout, self.start);
        assert!(self.start.addr().is_multiple_of(self.layout.align()));
    }
}

fn live(seed: u64, steps: usize) {
    let mut numbers = Numbers(seed);
    let mut blocks: Vec<Block> = Vec::new();
    for _ in 0..steps {
        let index = numbers.next() % blocks.len().max(1);
        match numbers.next() % 5 {
            0 | 1 => {
                let align = 1 << (numbers.next() % 18);
                let layout = Layout::from_size_align(numbers.size(), align).unwrap();
                let is_zeroed = numbers.next().is_multiple_of(2);
                let start = match is_zeroed {
                    true => unsafe { Allocator.alloc_zeroed(layout) },
                    false => unsafe { Allocator.alloc(layout) },
                };
                assert!(!start.is_null());
                let seed = numbers.next() as u64;
                let block = Block { start, layout, seed };
                if is_zeroed {
                    let bytes = unsafe { std::slice::from_raw_parts(start, layout.size()) };
                    assert!(bytes.iter().all(|byte| *byte == 0), "{layout:?}");
                }
                block.fill(0);
                blocks.push(block);
            }
            2 | 3 if !blocks.is_empty() => {
                let block = &mut blocks[index];
                let (old, new) = (block.layout.size(), numbers.size());
                block.start = unsafe { Allocator.realloc(block.start, block.layout, new) };
                assert!(!block.start.is_null());
                block.layout = Layout::from_size_align(new, block.layout.align()).unwrap();
                block.check(old.min(new));
                block.fill(old.min(new));
            }
            _ if !blocks.is_empty() => {
                let block = blocks.swap_remove(index);
                block.check(block.layout.size());
                unsafe { Allocator.dealloc(block.start, block.layout) };
            }
            _ => {}
        }
        if blocks.len() > 24 {
            let block = blocks.swap_remove(0);
            block.check(block.layout.size());
            unsafe { Allocator.dealloc(block.start, block.layout) };
        }
    }
    for block in blocks {
        block.check(block.layout.size());
        unsafe { Allocator.dealloc(block.start, block.layout) };
    }
}

/// Scenario: four threads have, grow, shrink and give back blocks on both sides of the threshold, of any alignment, each written full, while a fifth
/// gives free memory back all the time, in every way there is.
/// Guarantees: each block keeps what was written into it, through every move, and is zeros where it was to be.
#[test]
fn blocks_keep_what_is_in_them() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let _alone = ONE_AT_A_TIME.lock();
    std::thread::scope(|scope| {
        let lives: Vec<_> = (1..5)
            .map(|seed| scope.spawn(move || live(seed * 0x1234_5678_9abc, 120)))
            .collect();
        scope.spawn(|| {
            while !IS_OVER.load(Ordering::Relaxed) {
                LARGE.decay();
                LARGE.keep(true);
                std::thread::yield_now();
                LARGE.keep(false);
                LARGE.purge_large();
                LARGE.purge();
            }
        });
        let ends: Vec<_> = lives.into_iter().map(|life| life.join()).collect();
        IS_OVER.store(true, Ordering::Relaxed);
        assert!(ends.iter().all(Result::is_ok));
    });
}

/// Pages of an instance that have memory, in bytes.
fn resident(large: &Large) -> usize {
    let page = rustix::param::page_size();
    let bytes = large.state().usable * UNIT;
    let mut pages = vec![0u8; bytes / page];
    // SAFETY: the addresses are mapped, and there is a byte for each page.
    let done = unsafe { libc::mincore(large.address(0).cast(), bytes, pages.as_mut_ptr()) };
    assert_eq!(done, 0);
    pages.iter().filter(|page| **page & 1 == 1).count() * page
}

/// `count` blocks of `bytes`, written full.
fn burst(large: &Large, count: usize, bytes: usize) -> Vec<*mut u8> {
    let blocks: Vec<_> = (0..count).map(|_| large.take(bytes).0).collect();
    for block in &blocks {
        unsafe { block.write_bytes(1, bytes) };
    }
    blocks
}

/// Scenario: a burst of 100 blocks of 100,000 bytes; they are freed; two times of decay pass.
/// Guarantees: what is held is told truly; freed, they keep their memory for one such time, and none of it after the second.
#[test]
fn a_burst_leaves_nothing() {
    static LARGE: Large = Large::new();
    const BYTES: usize = 100_000;
    let blocks = burst(&LARGE, 100, BYTES);
    let held = LARGE.held();
    assert_eq!((held.taken, held.dirty), (100 * BYTES as u64, 0));
    assert!(resident(&LARGE) >= 100 * BYTES);
    blocks.iter().for_each(|block| LARGE.free(*block, BYTES));
    LARGE.decay();
    let held = LARGE.held();
    assert!(held.taken == 0 && held.dirty >= 100 * BYTES as u64, "{held:?}");
    assert!(resident(&LARGE) >= 100 * BYTES);
    LARGE.decay();
    assert_eq!((LARGE.held().dirty, resident(&LARGE)), (0, 0));
    assert_eq!(LARGE.held().spare(), LARGE.held().usable);
}

/// Scenario: blocks of 1 MiB and of 100,000 bytes are freed while large ones may not stay; while they may; then they may not any more. A block of
/// 3 MiB is made 1 MiB.
/// Guarantees: large ones have no memory as soon as they may not, nor has what one was made smaller by; the others keep theirs until all is purged.
#[test]
fn large_ones_stay_while_they_may() {
    static LARGE: Large = Large::new();
    let small = burst(&LARGE, 10, 100_000);
    let before = resident(&LARGE);
    let free = |bytes| {
        burst(&LARGE, 4, bytes)
            .into_iter()
            .for_each(|block| LARGE.free(block, bytes))
    };
    free(MIB);
    assert_eq!(resident(&LARGE), before);
    LARGE.keep(true);
    free(MIB);
    assert!(resident(&LARGE) >= before + 4 * MIB);
    LARGE.keep(false);
    LARGE.purge_large();
    assert_eq!(resident(&LARGE), before);
    let block = burst(&LARGE, 1, 3 * MIB)[0];
    assert!(LARGE.resize(block, 3 * MIB, MIB));
    assert_eq!(resident(&LARGE), before + MIB);
    LARGE.free(block, MIB);
    small.iter().for_each(|block| LARGE.free(*block, 100_000));
    assert!(resident(&LARGE) >= 1_000_000);
    LARGE.purge();
    assert_eq!(resident(&LARGE), 0);
}

/// Scenario: a block above the threshold, and one at it; then more than can ever be reserved.
/// Guarantees: one is ours and one jemalloc's; what has no room here is jemalloc's to refuse.
#[test]
fn the_threshold_tells_whose_it_is() {
    let layout = |bytes| Layout::from_size_align(bytes, 8).unwrap();
    for (bytes, is_ours) in [(SMALL_BYTES, false), (SMALL_BYTES + 1, true)] {
        let block = unsafe { Allocator.alloc(layout(bytes)) };
        assert_eq!(LARGE.owns(block), is_ours, "{bytes}");
        unsafe { Allocator.dealloc(block, layout(bytes)) };
    }
    assert!(LARGE.take(RESERVED_BYTES + 1).0.is_null());
    let aligned = Layout::from_size_align(MIB, 2 * UNIT).unwrap();
    let block = unsafe { Allocator.alloc(aligned) };
    assert!(!LARGE.owns(block) && block.addr().is_multiple_of(2 * UNIT));
    unsafe { Allocator.dealloc(block, aligned) };
}
