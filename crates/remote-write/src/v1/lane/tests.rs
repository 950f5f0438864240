use super::*;
use crate::labels::{Block, BlockLabel, Extra, Label, LabelName, METRIC_NAME, Names};
use crate::point_labels::PointLabels;
use crate::protobuf::put_varint;
use crate::snappy;

/// Bytes that are kept beside the body.
fn kept_bytes<W>(lane: &Lane<W>) -> usize {
    let series = lane
        .alike
        .iter()
        .map(|series| size_of::<OwnLabel>() * series.labels.capacity());
    let last = lane.last.iter().map(|last| {
        let new = last.new.iter().map(|new| new.bytes.capacity());
        size_of::<New>() * last.new.capacity() + new.sum::<usize>()
    });
    series.sum::<usize>() + last.sum::<usize>() + lane.places.bytes.capacity()
}

/// The shape of a series without a sample.
fn shape(labels: &SeriesLabels<'_>) -> Shape {
    Shape {
        len: labels.encoded_len(),
        sample_len: 0,
    }
}

/// Writes a series of the point's labels with a plan of its own.
fn put(lane: &mut Lane<snappy::Block>, values: impl Iterator<Item = String>) {
    let mut point = PointLabels::default();
    let block = Block::new(Vec::new());
    let mut names = Names::verbatim();
    point.begin();
    let mut labels = Vec::new();
    for (index, value) in values.enumerate() {
        let id = names.of(&format!("n{index:05}")).unwrap();
        point.push(id, names.get(id), value.as_bytes());
        labels.push((index as u32, id));
    }
    // Each series is remembered at a place of its own.
    let plan = Plan::new(&block, &names, &[], &labels, Extra::None);
    point.repeated = plan.id;
    let labels = SeriesLabels {
        block: &block,
        plan: &plan,
        names: &names,
        name: &Label::new(&LabelName::new(METRIC_NAME), "m"),
        extra: None,
        point: &point,
    };
    lane.put_labels(&labels, shape(&labels));
}

/// Scenario: series of 10,000 labels, each of a plan of its own.
/// Guarantees: nothing of them is kept; of those with few labels it is.
#[test]
fn series_of_very_many_labels_are_not_kept() {
    let mut lane = Lane::<snappy::Block>::new(0);
    for _ in 0..2 * LAST {
        put(&mut lane, (0..10_000).map(|n| n.to_string()));
    }
    assert_eq!(kept_bytes(&lane), 0);
    put(&mut lane, (0..10).map(|n| n.to_string()));
    assert!(kept_bytes(&lane) > 0);
}

/// Scenario: series of plans of their own with labels of a megabyte, of points and of a block.
/// Guarantees: what is kept is a fraction of one of them.
#[test]
fn long_labels_are_not_kept() {
    const LONG: usize = 1 << 20;
    let mut lane = Lane::<snappy::Block>::new(0);
    for n in 0..4 {
        put(
            &mut lane,
            (0..3).map(|label| format!("{}{}", label * (n % 2), "v".repeat(LONG))),
        );
    }
    let long = vec![7; LONG];
    for position in 0..4 {
        assert_eq!(lane.places.note(9, &long, position), None);
    }
    assert!(kept_bytes(&lane) < LONG / 8, "{}", kept_bytes(&lane));
}

/// Scenario: series of two resources in turn, each of a plan of its own, with long labels of the resource around one of the point; one of these is
/// longer than a copy reaches back.
/// Guarantees: the body says every label of every series, in order; labels of a resource that stand near enough cost a copy each.
#[test]
fn labels_of_a_resource_are_repeated_as_they_are() {
    const ROUNDS: usize = 40;
    let label = |name: &str, value: String| BlockLabel {
        name: name.to_owned(),
        value,
        wins: false,
    };
    let blocks = [0, 1].map(|n| {
        Block::new(vec![
            label("a_cluster", "c".repeat(40)),
            label("m_pod", format!("{n}{}", "p".repeat(40))),
            label("z_zone", "z".repeat(40)),
        ])
    });
    let mut names = Names::verbatim();
    let mut lane = Lane::<snappy::Block>::new(0);
    let mut want = Vec::new();
    let mut of_points = 0;
    for round in 0..ROUNDS {
        let block = &blocks[round % 2];
        let mut point = PointLabels::default();
        point.begin();
        let id = names.of(&format!("n{round:02}")).unwrap();
        let len = if round == ROUNDS / 2 {
            MAX_OFFSET as usize
        } else {
            50
        };
        let value: Vec<u8> = (0..len).map(|n| b'a' + (n * (round + 7) % 23) as u8).collect();
        point.push(id, names.get(id), &value);
        of_points += point.bytes();
        let plan = Plan::new(block, &names, &[], &[(0, id)], Extra::None);
        let labels = SeriesLabels {
            block,
            plan: &plan,
            names: &names,
            name: &Label::new(&LabelName::new(METRIC_NAME), "m"),
            extra: None,
            point: &point,
        };
        assert_eq!(plan.slots.len(), 4, "name, run, point, run");
        lane.put_labels(&labels, shape(&labels));
        want.push(TIMESERIES_KEY);
        put_varint(&mut want, labels.encoded_len() as u64);
        plan.slots
            .iter()
            .for_each(|slot| want.extend_from_slice(labels.slot(*slot)));
    }
    lane.finish();
    let body = &lane.finished[0];
    assert!(body.plain().unwrap() == want);
    let of_resources = body.bytes.len() - of_points;
    // Each label is there in full twice for each resource: at first, and after the long one.
    assert!(of_resources < 4 * 3 * 60 + ROUNDS * 45, "{of_resources}");
}
