//! Which changes of the level are worth a line of the log: a gateway at its limit goes up and down several times a second.

use std::time::{Duration, Instant};

use sluice_admission::Level;

/// A rise is told again after so long; sooner only if it is higher than what was told.
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// What was told last.
#[derive(Debug, Default)]
pub(super) struct Telling {
    /// The level of the last warning, and when it was.
    warned: Option<(Level, Instant)>,
    /// Nobody has been told that it is over.
    is_open: bool,
}

impl Telling {
    /// Whether to tell this change: of a rise the first and each higher one of a minute, then one that it is over.
    pub fn is_news(&mut self, from: Level, to: Level, now: Instant) -> bool {
        if to > from {
            let is_known = self
                .warned
                .is_some_and(|(level, at)| to <= level && now.saturating_duration_since(at) < TELL_AGAIN);
            if !is_known {
                self.warned = Some((to, now));
                self.is_open = true;
            }
            return !is_known;
        }
        to == Level::Normal && std::mem::take(&mut self.is_open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a level that goes up to critical and back ten times a second for three minutes.
    /// Guarantees: each new height of the first rise is told, the first end, and then one rise and one end a minute.
    #[test]
    fn flapping_is_told_once_a_minute() {
        let began = Instant::now();
        let mut telling = Telling::default();
        let mut told = Vec::new();
        let ways = [
            (Level::Normal, Level::Warning),
            (Level::Warning, Level::Critical),
            (Level::Critical, Level::Warning),
            (Level::Warning, Level::Normal),
        ];
        for tenth in 0..1799 {
            let now = began + Duration::from_millis(100) * tenth;
            for (from, to) in ways {
                if telling.is_news(from, to, now) {
                    told.push((tenth / 600, to));
                }
            }
        }
        let (up, top, end) = (Level::Warning, Level::Critical, Level::Normal);
        assert_eq!(
            told,
            [
                (0, up),
                (0, top),
                (0, end),
                (1, up),
                (1, top),
                (1, end),
                (2, up),
                (2, top),
                (2, end)
            ]
        );
    }
}
