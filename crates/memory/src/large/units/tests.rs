#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;

/// Few enough that they run out.
const WORDS: usize = 5;
const UNITS: usize = WORDS * WORD;

/// A unit of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Clean,
    Recent,
    Old,
    Taken,
}

use Unit::{Clean, Old, Recent, Taken as Is};

/// What may be done.
#[derive(Debug, Clone)]
enum Step {
    Take { units: usize, limit: usize },
    Free { which: usize, has_memory: bool },
    Extend { which: usize, units: usize },
    GiveBack { all: bool, least: usize },
    Age,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1usize..40, 0..=UNITS).prop_map(|(units, limit)| Step::Take { units, limit: limit.max(UNITS / 2) }),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(which, has_memory)| Step::Free { which, has_memory }),
        1 => (any::<usize>(), 1usize..9).prop_map(|(which, units)| Step::Extend { which, units }),
        1 => (any::<bool>(), 1usize..6).prop_map(|(all, least)| Step::GiveBack { all, least }),
        1 => Just(Step::Age),
    ];
    prop::collection::vec(step, 1..200)
}

/// The lowest free run, by trying all.
fn lowest(model: &[Unit], units: usize, limit: usize) -> Option<usize> {
    (0..=limit.checked_sub(units)?).find(|start| model[*start..start + units].iter().all(|unit| *unit != Is))
}

/// The runs that are dirty, or old, and long enough.
fn dirty_runs(model: &[Unit], all: bool, least: usize) -> Vec<Range<usize>> {
    let is = |unit: &Unit| *unit == Old || all && *unit == Recent;
    let mut runs = Vec::new();
    let mut start = 0;
    for run in model.chunk_by(|left, right| is(left) == is(right)) {
        if is(&run[0]) && run.len() >= least {
            runs.push(start..start + run.len());
        }
        start += run.len();
    }
    runs
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Scenario: runs are taken, made longer, freed with and without memory, aged and given back, in any order, and the same is done with a list of
    /// units in which everything is looked for one by one.
    /// Guarantees: no unit is taken twice; the lowest run that fits is taken, also with the hints; what is clean and how much is dirty is as in the
    /// list, and what is given back are the runs there, whole.
    #[test]
    fn it_is_a_list_of_units(steps in steps()) {
        let mut units = Units::<WORDS>::new();
        let mut model = vec![Clean; UNITS];
        let mut taken: Vec<Range<usize>> = Vec::new();
        for step in steps {
            match step {
                Step::Take { units: wanted, limit } => {
                    let wanted = rounded(wanted);
                    let found = units.take(wanted, limit);
                    let expected = lowest(&model, wanted, limit).map(|start| Taken {
                        start,
                        is_clean: model[start..start + wanted].iter().all(|unit| *unit == Clean),
                    });
                    prop_assert_eq!(&found, &expected);
                    if let Some(Taken { start, .. }) = found {
                        model[start..start + wanted].fill(Is);
                        taken.push(start..start + wanted);
                    }
                }
                Step::Free { which, has_memory } if !taken.is_empty() => {
                    let run = taken.swap_remove(which % taken.len());
                    model[run.clone()].fill(if has_memory { Recent } else { Clean });
                    units.free(run, has_memory);
                }
                Step::Extend { which, units: more } if !taken.is_empty() => {
                    let which = which % taken.len();
                    let end = taken[which].end;
                    let is_free = end + more <= UNITS && model[end..end + more].iter().all(|unit| *unit != Is);
                    prop_assert_eq!(units.extend(end..end + more, UNITS), is_free);
                    if is_free {
                        model[end..end + more].fill(Is);
                        taken[which].end += more;
                    }
                }
                Step::GiveBack { all, least } => {
                    let mut from = 0;
                    for expected in dirty_runs(&model, all, least) {
                        let run = units.take_dirty(from, all, least).unwrap();
                        prop_assert_eq!(&run, &expected);
                        from = run.end;
                        model[run.clone()].fill(Clean);
                        units.free(run, false);
                    }
                    prop_assert_eq!(units.take_dirty(from, all, least), None);
                }
                Step::Age => {
                    units.age();
                    model.iter_mut().filter(|unit| **unit == Recent).for_each(|unit| *unit = Old);
                }
                _ => {}
            }
            let dirty = model.iter().filter(|unit| matches!(unit, Recent | Old)).count();
            prop_assert_eq!(units.dirty(), dirty);
        }
    }
}

/// Scenario: all numbers of units up to 2^22, and around each power of two.
/// Guarantees: a rounded number is as large, by a quarter more at most; numbers of sizes go up one by one without gaps, and lead back to them.
#[test]
fn sizes_are_close() {
    for units in (1..5000).chain((13..=22).flat_map(|power| (1 << power) - 1..=(1 << power) + 1)) {
        let rounded = rounded(units);
        assert!(
            rounded >= units && rounded - units <= units / 4,
            "{units} {rounded}"
        );
        assert_eq!(size(number(rounded)), rounded);
    }
    for number_of in 0..SIZES {
        assert_eq!(
            (number(size(number_of)), rounded(size(number_of))),
            (number_of, size(number_of))
        );
    }
}

/// Scenario: two long runs' worth of units in a row are free, with memory, and are given back.
/// Guarantees: that is done in parts; what is not under way can be taken meanwhile, and the last part is no shorter than what is asked for.
#[test]
fn a_long_run_is_given_back_in_parts() {
    let mut units = Units::<64>::new();
    assert!(units.take(2 * MOST_AT_ONCE, 64 * WORD).is_some());
    units.free(0..2 * MOST_AT_ONCE, true);
    assert_eq!(units.take_dirty(0, true, 64), Some(0..MOST_AT_ONCE));
    let taken = units.take(1, 64 * WORD).unwrap();
    assert_eq!((taken.start, taken.is_clean), (MOST_AT_ONCE, false));
    units.free(0..MOST_AT_ONCE, false);
    let rest = MOST_AT_ONCE + 1..2 * MOST_AT_ONCE;
    assert_eq!(units.take_dirty(MOST_AT_ONCE, true, 64), Some(rest));
    assert_eq!(units.dirty(), 0);
}
