//! The account of a series whose gateway is killed on the way.

/// What has come of a series, of which the rounds have to come in order; but a gateway that was killed and started again begins where it had written down that
/// it was, and sends again what came after.
#[derive(Debug, Clone, Default)]
pub struct Rounds {
    /// The round that has to come next.
    pub next: u64,
    /// How often an earlier one came: at most as often as there were starts.
    pub rewinds: u64,
    /// The round that came then the last time. What was written down before an earlier kill stays so.
    pub back_to: u64,
    /// Rounds that came once more, and how many of them after one start at most. Who writes down how far it is, and when, follows the clock and the disk: so
    /// there is no number that these are below.
    pub again: u64,
    pub most_again: u64,
    /// Rounds before which another one is missing, and those that go back behind an earlier start.
    pub wrong: u64,
}

impl Rounds {
    /// Takes the round that comes next.
    pub fn take(&mut self, round: u64) {
        if round < self.next {
            self.rewinds += 1;
            self.wrong += u64::from(round < self.back_to);
            self.back_to = round;
            self.most_again = self.most_again.max(self.next - round);
            self.again += self.next - round;
        } else {
            self.wrong += u64::from(round > self.next);
        }
        self.next = round + 1;
    }

    /// Whether all rounds up to `end` came, in order but for what so many starts sent again.
    pub fn are_whole(&self, end: u64, starts: u64) -> bool {
        self.next == end && self.wrong == 0 && self.rewinds <= starts
    }
}
