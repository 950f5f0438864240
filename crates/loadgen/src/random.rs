//! Reproducible randomness: a small generator, and the reversible mixing that turns item ids into span ids.

/// SplitMix64 (Steele, Lea, Flood 2014): tiny, fast, and good enough to spread payload values.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number in `0..bound`; 0 if the bound is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next_u64() % bound }
    }

    /// A number in `0.0..1.0`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`, or the default if there is none.
    pub(crate) fn pick<T: Copy + Default>(&mut self, choices: &[T]) -> T {
        let at = self.below(choices.len() as u64) as usize;
        choices.get(at).copied().unwrap_or_default()
    }
}

/// SplitMix64's finalizer: a bijection of u64 that maps only 0 to 0.
pub(crate) fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The inverse of [`mix`].
pub(crate) fn unmix(mut value: u64) -> u64 {
    value = (value ^ (value >> 31) ^ (value >> 62)).wrapping_mul(0x3196_42b2_d24d_8ec3);
    value = (value ^ (value >> 27) ^ (value >> 54)).wrapping_mul(0x96de_1b17_3f11_9089);
    value ^ (value >> 30) ^ (value >> 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: ids over the whole range of u64 are mixed and unmixed.
    /// Guarantees: the mixing is reversible, and never yields the invalid all-zero span id for an id above 0.
    #[test]
    fn mixing_is_reversible() {
        let mut random = Random::new(7);
        for step in 0..100_000 {
            let id = random.next_u64() >> (step % 64);
            assert_eq!(unmix(mix(id)), id);
            assert_eq!(mix(id) == 0, id == 0);
        }
    }
}
