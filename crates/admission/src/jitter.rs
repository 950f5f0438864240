//! Random numbers that spread delays, so that those who wait do not come back as one.

use std::sync::atomic::{AtomicU64, Ordering};

/// A stream of numbers in [0, 1): splitmix64. Good enough to spread delays, and for nothing else.
#[derive(Debug)]
pub struct Jitter(AtomicU64);

impl Jitter {
    /// A stream of its own for every seed.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// The next number.
    pub fn draw(&self) -> f64 {
        let mut z = self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}
