//! What simulations draw from, and with which seeds they run.

use std::panic::AssertUnwindSafe;

/// Failing seeds that are named; a bug that fails them all need not fill the log.
const NAMED: usize = 20;

/// Numbers that look random (splitmix64).
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One from 0 to below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit.max(1)
    }

    /// True once in so many times.
    pub fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }
}

/// Runs `run` with each of `count` seeds, or with as many as `SLUICE_SEEDS` says, or with `SLUICE_SEED` alone.
///
/// # Panics
/// When some of them fail; the first are named, with what `describe` says of them.
pub fn for_seeds(count: u64, run: impl Fn(u64), describe: impl Fn(u64) -> String) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("SLUICE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SLUICE_SEEDS").unwrap_or(count),
    };
    let fails = |seed: &u64| std::panic::catch_unwind(AssertUnwindSafe(|| run(*seed))).is_err();
    let failed: Vec<u64> = seeds.filter(fails).collect();
    let named = &failed[..failed.len().min(NAMED)];
    for seed in named {
        eprintln!("SLUICE_SEED={seed} fails: {}", describe(*seed));
    }
    assert!(failed.is_empty(), "{} seeds fail: {named:?}", failed.len());
}
