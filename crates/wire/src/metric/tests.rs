use super::*;

/// A delimited field.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2, content.len() as u8];
    field.extend_from_slice(content);
    field
}

fn metric(raw: &[u8]) -> Metric<'_> {
    Metric { raw, framed: raw }
}

/// Scenario: metrics that begin as one before, with data of other lengths; such with another name, another kind of data, something behind the data or a
/// length that is wrong; and metrics whose own head is asked for that hold something behind their data, none, or end within a field.
/// Guarantees: the data found by a head is what is found without it; where it cannot be, none is.
#[test]
fn data_is_found_by_what_comes_before_it() {
    let gauge = |points: &[&[u8]]| {
        field(
            5,
            &points
                .iter()
                .flat_map(|point| field(1, point))
                .collect::<Vec<_>>(),
        )
    };
    let begin = [field(1, b"name"), field(2, b"what it is"), field(3, b"s")].concat();
    let first = [&begin[..], &gauge(&[b"one"])].concat();
    let head = MetricHead::of(&metric(&first), &metric(&first).data().unwrap()).unwrap();
    assert_eq!(head.bytes(), begin.len() + 1);
    let lists: [&[&[u8]]; 3] = [&[], &[b"one"], &[b"another", b"", b"and one"]];
    for points in lists {
        let raw = [&begin[..], &gauge(points)].concat();
        let found = head.data_of(&metric(&raw)).unwrap();
        assert_eq!(found.kind(), MetricKind::Gauge);
        let found: Vec<_> = found.points().map(|point| point.raw().to_vec()).collect();
        let want: Vec<_> = metric(&raw).points().map(|point| point.raw().to_vec()).collect();
        assert_eq!(found, want);
        assert_eq!(found.len(), points.len());
    }
    let behind = [&first[..], &field(12, b"more")].concat();
    let others = [
        [&field(1, b"nome")[..], &gauge(&[b"one"])].concat(),
        [&begin[..], &field(7, b"")].concat(),
        behind.clone(),
        first[..first.len() - 1].to_vec(),
        begin.clone(),
        Vec::new(),
    ];
    for raw in others {
        assert!(head.data_of(&metric(&raw)).is_none(), "{raw:?}");
    }
    for raw in [behind, [&first[..], &[0x2a, 9]].concat()] {
        let data = metric(&raw).data().unwrap();
        assert!(MetricHead::of(&metric(&raw), &data).is_none(), "{raw:?}");
    }
}
