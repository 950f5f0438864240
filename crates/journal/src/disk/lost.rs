//! Records that were stored and are not there any more, by their numbers.
//!
//! Within a segment numbers are contiguous, from the one behind its first on; the header of each segment says which
//! number came before it, and each position how far the journal went. So what is missing shows, whether it was damaged, cut
//! off, or in a file that is gone. Only what was cut off behind the last position cannot be told from what never was.

use std::ops::Range;

use super::position::Position;

/// Numbers that are missing, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Missing(Vec<Range<u64>>);

impl Missing {
    /// None of these numbers is there.
    pub fn add(&mut self, numbers: Range<u64>) {
        if !numbers.is_empty() {
            self.0.push(numbers);
        }
    }

    /// All of those too.
    pub fn extend(&mut self, other: Missing) {
        self.0.extend(other.0);
    }

    /// How many of them an exporter has not settled.
    pub fn lost_to(&self, position: &Position) -> u64 {
        self.0.iter().map(|range| unsettled(range, position)).sum()
    }
}

/// Numbers missing between the last record of a segment and the next segment, which `follows` a record. Where the first of
/// the two is `whole`, what is missing was a segment by itself, and each segment leaves one number out.
pub(crate) fn between(last: u64, whole: bool, follows: u64) -> Range<u64> {
    last + 1 + u64::from(whole)..follows + 1
}

/// How many of these numbers an exporter has not settled. Ranges of a position are in order; in files of earlier builds they may overlap.
pub(crate) fn unsettled(numbers: &Range<u64>, position: &Position) -> u64 {
    let mut from = numbers.start.max(position.floor);
    let mut unsettled = 0;
    for range in &position.settled {
        unsettled += range.start.min(numbers.end).saturating_sub(from);
        from = from.max(range.end);
    }
    unsettled + numbers.end.saturating_sub(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: numbers are missing below, within and above what an exporter has settled.
    /// Guarantees: those it has settled are not lost to it.
    #[test]
    fn what_was_settled_is_not_lost() {
        let position = Position {
            floor: 10,
            settled: vec![12..14, 20..25],
            end: 30,
        };
        let mut missing = Missing::default();
        for (range, lost) in [
            (1..10, 0),
            (8..12, 2),
            (11..15, 2),
            (19..26, 2),
            (40..40, 0),
            (26..30, 4),
        ] {
            let mut one = Missing::default();
            one.add(range.clone());
            assert_eq!(one.lost_to(&position), lost, "{range:?}");
            missing.extend(one);
        }
        assert_eq!(missing.lost_to(&position), 10);
        assert_eq!(missing.lost_to(&Position::default()), 9 + 4 + 4 + 7 + 4);
        assert_eq!((between(9, false, 12), between(9, true, 12)), (10..13, 11..13));
    }

    /// Scenario: ranges of a position that overlap, as those did that were written while a cursor read through what an earlier process had settled.
    /// Guarantees: what is in both counts once.
    #[test]
    fn ranges_that_overlap_count_once() {
        let position = Position {
            floor: 5,
            settled: vec![6..20, 15..30],
            end: 40,
        };
        assert_eq!(unsettled(&(10..20), &position), 0);
        assert_eq!(unsettled(&(5..40), &position), 1 + 10);
    }
}
