//! What a level means for a request.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Level;

/// How much a request matters beside others; of its tenant, usually.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Priority {
    /// Shed first.
    Low,
    /// As most.
    #[default]
    Normal,
    /// Shed last.
    High,
}

/// What happens to requests at a level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Action {
    /// They come in.
    Admit,
    /// They come in, and whoever sent them is asked to slow down.
    AdmitAndHint,
    /// Shares of them, 0 to 1, are refused: of low, normal and high priority.
    Shed([f32; 3]),
    /// All but a trickle are refused.
    Refuse,
}

impl Action {
    /// Whether requests are turned away at all.
    #[inline]
    pub(crate) fn turns_away(self) -> bool {
        matches!(self, Self::Shed(_) | Self::Refuse)
    }
}

/// An action for each level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Actions(pub [Action; 5]);

impl Default for Actions {
    /// Normal admits, warning admits and hints, moderate sheds half of low and a tenth of normal priority, critical
    /// sheds all of low, four fifths of normal and a quarter of high, emergency refuses.
    fn default() -> Self {
        Self([
            Action::Admit,
            Action::AdmitAndHint,
            Action::Shed([0.5, 0.1, 0.0]),
            Action::Shed([1.0, 0.8, 0.25]),
            Action::Refuse,
        ])
    }
}

impl Actions {
    /// The action of `level`.
    #[inline]
    pub fn of(&self, level: Level) -> Action {
        self.0[level as usize]
    }
}

/// Takes exactly a share of the requests, evenly spread: a low-discrepancy sequence and no dice.
#[derive(Debug, Default)]
pub(crate) struct Rotor(AtomicU64);

impl Rotor {
    pub(crate) fn takes(&self, share: f32) -> bool {
        // Steps of the golden ratio.
        let at = self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed) >> 40;
        (at as f32) < share * (1_u64 << 24) as f32
    }
}

/// Lets one request through in each interval, whatever the level: without samples nobody would see a recovery.
#[derive(Debug, Default)]
pub(crate) struct Trickle(AtomicU64);

impl Trickle {
    pub(crate) fn takes(&self, now: u64, interval: u64) -> bool {
        let next = self.0.load(Ordering::Relaxed);
        now >= next
            && self
                .0
                .compare_exchange(
                    next,
                    now.saturating_add(interval),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: shares from none to all, of 10,000 requests.
    /// Guarantees: the share taken is the share asked for, within one in a thousand, and none is none, all is all.
    #[test]
    fn a_rotor_takes_its_share() {
        for share in [0.0, 0.1, 0.25, 0.8, 1.0] {
            let rotor = Rotor::default();
            let taken = (0..10_000).filter(|_| rotor.takes(share)).count();
            assert!(
                (taken as f32 / 10_000.0 - share).abs() < 0.001,
                "{share}: {taken}"
            );
        }
    }

    /// Scenario: a request every millisecond for a second, with a trickle of one in 100 ms, from eight threads.
    /// Guarantees: ten pass.
    #[test]
    fn a_trickle_is_one_in_each_interval() {
        let trickle = Trickle::default();
        let passed: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| (0..10).filter(|_| trickle.takes(5, 100)).count()))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(passed, 1);
        assert_eq!((105..1_005).filter(|now| trickle.takes(*now, 100)).count(), 9);
    }
}
