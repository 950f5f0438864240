//! Whose fault it is that payloads are refused. Sans-IO.

/// When more payloads than this are refused one after another, with none accepted in between, they are not bad
/// payloads: the destination is at fault, and the rest of the backlog is held, not dropped.
pub const MAX_PAYLOAD_FAULTS_IN_A_ROW: u32 = 8;

/// The same when more than this are refused of the last [`LATELY`]: three of four. A destination of which one part of many takes something
/// is no better than one that takes nothing; and as long as a half is bad by itself, what one of two clients sends say, it is no reason to
/// keep the other half.
pub const MAX_PAYLOAD_FAULTS_LATELY: u32 = LATELY / 4 * 3;

/// Enough that bad payloads, where they are a half, are not taken for a fault of the destination by chance: once in 82,000.
const LATELY: u32 = u64::BITS;

/// What a destination made of the last payloads.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Refusals {
    in_a_row: u32,
    /// A bit for each, the last one in the lowest: it was refused.
    lately: u64,
}

impl Refusals {
    /// The destination works, whatever it said.
    pub fn works(&mut self) {
        self.in_a_row = 0;
    }

    /// It took so many.
    pub fn took(&mut self, payloads: usize) {
        self.works();
        let payloads = u32::try_from(payloads).unwrap_or(u32::MAX);
        self.lately = self.lately.checked_shl(payloads).unwrap_or(0);
    }

    /// It refused one for good.
    pub fn refused(&mut self) {
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.lately = self.lately << 1 | 1;
    }

    /// Whether they are too many to be the payloads' fault.
    pub fn are_too_many(&self) -> bool {
        self.in_a_row > MAX_PAYLOAD_FAULTS_IN_A_ROW || self.lately.count_ones() > MAX_PAYLOAD_FAULTS_LATELY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many are refused before it is too many, at most so many; of each few the first are refused and the last ones taken.
    fn before_too_many(refused: u32, of: u32) -> Option<u32> {
        let mut refusals = Refusals::default();
        let mut all = 0;
        for number in 0..10_000 {
            if number % of < refused {
                refusals.refused();
                if refusals.are_too_many() {
                    return Some(all);
                }
                all += 1;
            } else {
                refusals.took(1);
            }
        }
        None
    }

    /// Scenario: payload after payload is refused; then a share of them, more or less evenly.
    /// Guarantees: a few are taken for bad payloads, then the destination is to blame, also where it takes one of eight or of five in between; where
    /// it takes one of four or more it is not.
    #[test]
    fn most_are_too_many() {
        assert_eq!(before_too_many(1, 1), Some(MAX_PAYLOAD_FAULTS_IN_A_ROW));
        for (refused, of) in [(7, 8), (4, 5)] {
            let before = before_too_many(refused, of);
            assert_eq!(before, Some(MAX_PAYLOAD_FAULTS_LATELY), "{refused} of {of}");
        }
        for (refused, of) in [(3, 4), (1, 2), (8, 16), (1, 10)] {
            assert_eq!(before_too_many(refused, of), None, "{refused} of {of}");
        }
    }

    /// Scenario: a destination refused most; then it takes a batch of many, or says something else that shows that it works.
    /// Guarantees: a large batch makes up for all of them, at once; the other ends a row, and makes up for none.
    #[test]
    fn what_is_taken_makes_up_for_what_was_refused() {
        let mut refusals = Refusals::default();
        (0..64).for_each(|_| refusals.refused());
        refusals.works();
        assert!(refusals.are_too_many());
        refusals.took(1000);
        assert!(!refusals.are_too_many());
        (0..MAX_PAYLOAD_FAULTS_IN_A_ROW).for_each(|_| refusals.refused());
        refusals.works();
        refusals.refused();
        assert!(!refusals.are_too_many());
    }
}
