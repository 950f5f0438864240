//! When to give back what is kept for the next request: the rule. No clock.
//!
//! Contexts of codecs, the threads' caches of free blocks, free pages and code that has run make the next request cheap, and would stay as long
//! as the process after the last one. They go when nothing has moved for [`QUIET`], once, and again only after something has.

use std::time::Duration;

/// So long without a byte of the budget taken or given back is quiet. Longer than who sends regularly pauses: collectors batch for up to ten
/// seconds, Prometheus scrapes, and then sends, every fifteen. A client that sends once a minute pays for what it uses once more each time
/// (docs/performance.md has the price).
pub(crate) const QUIET: Duration = Duration::from_secs(20);

/// After a start as much is enough: nothing of what it left is kept for a request.
pub(crate) const STARTED: Duration = Duration::from_secs(1);

/// From asking the threads until the pages that they leave are given to the kernel: they need far less than a millisecond each, where they
/// have nothing else to do.
pub(crate) const HANDING_OVER: Duration = Duration::from_secs(1);

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Have threads give back what they keep.
    GiveBack,
    /// Have the allocators give their free pages to the kernel, and let the executable's go.
    Purge,
}

/// Decides, reading by reading.
#[derive(Debug)]
pub(crate) struct Quiet {
    since: Duration,
    /// How long it takes to be quiet.
    after: Duration,
    next: Option<Step>,
}

impl Quiet {
    /// At time zero; a start leaves free pages too.
    pub fn new() -> Self {
        Self {
            since: Duration::ZERO,
            after: STARTED,
            next: Some(Step::GiveBack),
        }
    }

    /// Takes a reading at `now`, counted from the start: whether anything `moved` since the one before.
    pub fn read(&mut self, now: Duration, moved: bool) -> Option<Step> {
        if moved {
            (self.since, self.after) = (now, QUIET);
            self.next = Some(Step::GiveBack);
            return None;
        }
        let (after, then) = match self.next? {
            Step::GiveBack => (self.after, Some(Step::Purge)),
            Step::Purge => (self.after + HANDING_OVER, None),
        };
        if now.saturating_sub(self.since) < after {
            return None;
        }
        std::mem::replace(&mut self.next, then)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads every `every` for `time` from `from` on; in which second what was to be done.
    fn read(quiet: &mut Quiet, from: u64, time: u64, moved: impl Fn(u64) -> bool) -> Vec<(u64, Step)> {
        (from..from + time)
            .filter_map(|second| Some((second, quiet.read(Duration::from_secs(second), moved(second))?)))
            .collect()
    }

    /// Scenario: a start; nothing for an hour; a request; nothing for an hour.
    /// Guarantees: everything is given back once a second after the start and once 20 s after the request, pages a second later.
    #[test]
    fn once_after_each_time_that_something_moved() {
        let mut quiet = Quiet::new();
        let steps = read(&mut quiet, 0, 3600, |_| false);
        assert_eq!(steps, [(1, Step::GiveBack), (2, Step::Purge)]);
        let steps = read(&mut quiet, 3600, 3600, |second| second == 3600);
        assert_eq!(steps, [(3620, Step::GiveBack), (3621, Step::Purge)]);
    }

    /// Scenario: a request every fifteen seconds, as Prometheus sends, for an hour; one that comes between the two steps.
    /// Guarantees: the first is never taken for quiet; after the second, both steps wait for quiet anew.
    #[test]
    fn who_sends_regularly_finds_all_as_it_was() {
        let mut quiet = Quiet::new();
        assert_eq!(read(&mut quiet, 0, 3600, |second| second % 15 == 0), []);
        let mut quiet = Quiet::new();
        let steps = read(&mut quiet, 0, 100, |second| second % 21 == 0 && second < 22);
        assert_eq!(
            steps,
            [(20, Step::GiveBack), (41, Step::GiveBack), (42, Step::Purge)]
        );
    }
}
