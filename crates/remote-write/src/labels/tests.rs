use super::*;

/// A plan of so many attributes, of which the first has this name.
fn plan(names: &mut Names, first: usize, attributes: usize) -> (Vec<NameId>, Plan) {
    let ids: Vec<_> = (first..first + attributes)
        .map(|n| names.of(&format!("n{n:06}")).unwrap())
        .collect();
    let plan = Plan::of_point(&ids);
    (ids, plan)
}

/// Scenario: plans of a block with ever more attributes, and plans of usual size for ever.
/// Guarantees: what is kept is bounded, by number and by size; a plan that is too large comes back, and one that is kept is found.
#[test]
fn plans_that_are_kept_are_bounded() {
    let mut names = Names::verbatim();
    let mut block = Block::new(Vec::new());
    for attributes in [1, 20, 128, 129, 10_000] {
        let (keys, plan) = plan(&mut names, 0, attributes);
        match block.keep_plan(plan) {
            Ok(at) => {
                assert!(attributes < 129);
                assert_eq!(block.find_plan(&keys, Extra::None), Some(at));
            }
            Err(plan) => assert!(attributes >= 129 && plan.slots.len() == attributes),
        }
    }
    for (first, attributes) in (0..1000).map(|n| (n, 1 + n % 100)) {
        let (keys, plan) = plan(&mut names, first, attributes);
        let at = block.keep_plan(plan).unwrap();
        assert_eq!(block.find_plan(&keys, Extra::None), Some(at));
        let size: usize = block.plans.iter().map(Plan::size).sum();
        assert!(size == block.plans_size && size <= MAX_PLANS_SIZE && block.plans.len() <= MAX_PLANS);
    }
}
