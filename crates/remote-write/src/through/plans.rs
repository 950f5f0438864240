//! The plans of series, by the names of their labels in the order they come in.

use crate::labels::{Block, NameId, Names, Plan};

/// Plans that are kept: as many sets of names as the metrics of a few kinds of targets have. Each has one place; a set that is new
/// takes the place of another.
const PLACES: usize = 1024;

/// Series of more labels have a plan for as long as they are written: a plan takes 40 bytes a label, so that all are 10 MiB at
/// most; of labels that are the same for all series there are few, at 20 bytes each that stands between.
const MAX_LABELS: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Plans {
    places: Vec<Plan>,
    /// Of the last series with more labels than are kept plans of.
    large: Option<Plan>,
}

impl Plans {
    /// The plan of a series with these names, beside the labels of `block`, which is always the same.
    #[inline]
    pub fn of(&mut self, block: &Block, names: &Names, keys: &[NameId]) -> &Plan {
        if keys.len() > MAX_LABELS {
            return self.large.insert(Plan::of_series(block, names, keys));
        }
        if self.places.is_empty() {
            self.places.resize_with(PLACES, Plan::default);
        }
        let plan = &mut self.places[place_of(keys)];
        if plan.id == 0 || !plan.is_for(keys) {
            *plan = Plan::of_series(block, names, keys);
        }
        plan
    }

    /// Forgets all: names have got other ids.
    pub fn clear(&mut self) {
        self.places.clear();
        self.large = None;
    }
}

/// Which place a list of names has. Names that are told from each other by chance have ids that nobody can choose well: a list that
/// shares its place costs making the plan again.
#[inline]
fn place_of(keys: &[NameId]) -> usize {
    let mix = |state: u64, key: &NameId| {
        (state.rotate_left(5) ^ u64::from(key.number())).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    let hash = keys.iter().fold(keys.len() as u64, mix);
    (hash >> 32) as usize % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: more sets of names than there are places, asked for twice, one of more names than are kept, and names anew.
    /// Guarantees: every plan has the names it was asked for, sorted; what is kept stays within its places.
    #[test]
    fn each_set_has_its_plan() {
        let block = Block::new(Vec::new());
        let mut names = Names::verbatim();
        let mut ids = Vec::new();
        for n in 0..2 * PLACES {
            ids.extend(names.of(&format!("n{:05}", 99_999 - n)));
        }
        let mut plans = Plans::default();
        for _ in 0..2 {
            for pair in ids.windows(2) {
                let plan = plans.of(&block, &names, pair);
                assert!(plan.is_for(pair));
                // The later one comes first by name.
                let wanted = [1, 0].map(crate::labels::Slot::Point);
                assert_eq!(plan.slots, wanted);
            }
        }
        assert_eq!(plans.places.len(), PLACES);
        assert!(plans.of(&block, &names, &ids).is_for(&ids));
        assert!(plans.places.iter().all(|plan| plan.slots.len() <= MAX_LABELS));
        plans.clear();
        assert!(plans.places.is_empty() && plans.large.is_none());
    }
}
