//! How fast an exporter works off what waits for it.

use std::time::{Duration, Instant};

use crate::EASED_BYTES;

/// Long enough for some answers of a destination that keeps up.
const WINDOW: Duration = Duration::from_millis(500);

/// What has not left after this long at today's pace does not get short by holding a few clients back.
const SHORT_WITHIN: Duration = Duration::from_secs(4);

/// The pace of a cursor while more than [`EASED_BYTES`] wait for it.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When this window began. Before it, nobody has asked since the backlog was short.
    since: Option<Instant>,
    bytes: u64,
    /// In the window before, if there was one.
    bytes_per_second: Option<f64>,
}

impl Pace {
    /// So many bytes left, and so many wait still.
    pub fn left(&mut self, bytes: u64, backlog_bytes: u64, now: Instant) {
        if backlog_bytes <= EASED_BYTES {
            *self = Self::default();
            return;
        }
        self.bytes += bytes;
        if let Some(bytes_per_second) = self.of_this_window(now) {
            *self = Self {
                since: Some(now),
                bytes: 0,
                bytes_per_second: Some(bytes_per_second),
            };
        }
    }

    /// Whether so many bytes would take too long to leave. Not before a window has shown it.
    pub fn is_too_slow_for(&mut self, backlog_bytes: u64, now: Instant) -> bool {
        let of_this_window = self.of_this_window(now);
        of_this_window
            .or(self.bytes_per_second)
            .is_some_and(|bytes_per_second| {
                let soon = bytes_per_second * SHORT_WITHIN.as_secs_f64();
                backlog_bytes as f64 > soon
            })
    }

    fn of_this_window(&mut self, now: Instant) -> Option<f64> {
        let passed = now.saturating_duration_since(*self.since.get_or_insert(now));
        (passed >= WINDOW).then(|| self.bytes as f64 / passed.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Scenario: an exporter works off 10 MiB a second, and 30, 50, and then 3 MiB wait; then it stands.
    /// Guarantees: 30 are worth a wait, 50 are not, and what it was before is forgotten when the backlog was short. Who stands is told within a window.
    #[test]
    fn a_backlog_is_held_against_what_leaves() {
        let mut pace = Pace::default();
        let mut now = Instant::now();
        assert!(!pace.is_too_slow_for(u64::MAX, now), "nothing is known yet");
        for _ in 0..20 {
            now += WINDOW / 5;
            pace.left(MIB, 30 * MIB, now);
        }
        assert!(!pace.is_too_slow_for(30 * MIB, now));
        assert!(pace.is_too_slow_for(50 * MIB, now));
        pace.left(MIB, 3 * MIB, now);
        assert!(!pace.is_too_slow_for(50 * MIB, now), "it was short");
        now += WINDOW;
        assert!(pace.is_too_slow_for(5 * MIB, now), "nothing has left since");
    }
}
