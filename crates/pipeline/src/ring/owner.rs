//! Whose a key is.

use sluice_wire::stable_hash;

/// An endpoint that may have keys.
#[derive(Debug, Clone)]
pub(crate) struct Candidate<T> {
    pub id: u64,
    /// Of its name.
    pub(super) hash: u64,
    pub sender: T,
    /// It is out, and this batch may show whether it is well again: see [`Ring::begin_trial`](super::Ring::begin_trial).
    pub trial: bool,
}

/// Whose the key of this hash is, of `candidates`; 0 when there are none.
pub(crate) fn owner<T>(candidates: &[Candidate<T>], key: u64) -> usize {
    let weight = |candidate: &Candidate<T>| {
        let mut both = [0; 16];
        both[..8].copy_from_slice(&candidate.hash.to_le_bytes());
        both[8..].copy_from_slice(&key.to_le_bytes());
        stable_hash(&both)
    };
    let highest = candidates
        .iter()
        .enumerate()
        .max_by_key(|(_, candidate)| weight(candidate));
    highest.map_or(0, |(index, _)| index)
}
