//! Where protobuf allows several encodings: each case stated in the crate documentation, held against prost.

#[path = "support/checks.rs"]
mod checks;
mod support;

use sluice_wire::{Depth, Fault, Kind, count, validate};

/// A delimited field.
fn len(number: u8, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    support::put_varint(&mut out, u64::from(number) << 3 | 2);
    support::put_varint(&mut out, value.len() as u64);
    out.extend_from_slice(value);
    out
}

/// A traces body around the bytes of one `ScopeSpans`.
fn in_scope(scope: &[u8]) -> Vec<u8> {
    len(1, &len(2, scope))
}

/// A metrics body around the bytes of one `Metric`.
fn in_metric(metric: &[u8]) -> Vec<u8> {
    len(1, &len(2, &len(2, metric)))
}

fn points(count: usize) -> Vec<u8> {
    len(1, &[]).repeat(count)
}

fn items(kind: Kind, body: &[u8]) -> u64 {
    checks::validate_as_prost(kind, body);
    validate(kind, Depth::Deep, body).expect("valid").items
}

fn fault(kind: Kind, body: &[u8]) -> (Fault, String, usize) {
    checks::validate_as_prost(kind, body);
    let error = validate(kind, Depth::Deep, body).expect_err("invalid");
    (error.fault, error.path, error.offset)
}

/// Scenario: a metric with several arms of its `data` oneof.
/// Guarantees: the same arm twice merges, another arm replaces; counts say what prost holds.
#[test]
fn arms_of_a_oneof() {
    let (gauge, sum) = (len(5, &points(3)), len(7, &points(2)));
    assert_eq!(
        items(
            Kind::Metrics,
            &in_metric(&[gauge.clone(), gauge.clone()].concat())
        ),
        6
    );
    assert_eq!(
        items(Kind::Metrics, &in_metric(&[gauge.clone(), sum.clone()].concat())),
        2
    );
    assert_eq!(
        items(Kind::Metrics, &in_metric(&[gauge.clone(), sum, gauge].concat())),
        3
    );
}

/// Scenario: a resource and a scope that occur twice, split over the occurrences.
/// Guarantees: they merge; the items of all occurrences of the enclosing message count once each.
#[test]
fn singular_messages_that_repeat() {
    let attribute = len(1, &[len(1, b"k"), len(2, &len(1, b"v"))].concat());
    let container = [len(1, &attribute), len(2, &len(2, &[])), len(1, &attribute)].concat();
    assert_eq!(items(Kind::Traces, &len(1, &container)), 1);
}

/// Scenario: the deprecated `instrumentation_library_spans = 1000`.
/// Guarantees: it is unknown, as to prost, and holds no items.
#[test]
fn field_1000_is_unknown() {
    let spans = [vec![0xc2, 0x3e], vec![2], len(2, &[])].concat();
    assert_eq!(items(Kind::Traces, &len(1, &spans)), 0);
}

/// Scenario: unknown fields of every wire type and balanced groups, at every level.
/// Guarantees: they are skipped; an unbalanced group is not.
#[test]
fn unknown_fields_and_groups() {
    // Field 40: varint, fixed64, delimited, fixed32, a group holding another.
    let unknown: &[u8] = &[
        0xc0, 0x02, 0x01, 0xc1, 0x02, 1, 2, 3, 4, 5, 6, 7, 8, 0xc2, 0x02, 0x01, 0xff, 0xc5, 0x02, 1, 2, 3, 4,
        0xc3, 0x02, 0x0b, 0x0c, 0xc4, 0x02,
    ];
    let body = [
        unknown,
        &in_scope(&[unknown, &len(2, unknown), unknown].concat()),
        unknown,
    ]
    .concat();
    assert_eq!(items(Kind::Traces, &body), 1);
    assert_eq!(fault(Kind::Traces, &[0xc3, 0x02, 0x0b]).0, Fault::Truncated);
    assert_eq!(fault(Kind::Traces, &[0xc4, 0x02]).0, Fault::Group);
    assert_eq!(fault(Kind::Traces, &[0xc3, 0x02, 0x0c]).0, Fault::Group);
}

/// Scenario: keys and varints at the edges of what prost takes.
/// Guarantees: ten bytes with a tenth of at most 1; keys of 32 bits and numbers from 1; overlong ones are fine.
#[test]
fn varints_and_keys() {
    let kind = |varint: &[u8]| in_scope(&len(2, &[&[6 << 3][..], varint].concat()));
    assert_eq!(
        items(
            Kind::Traces,
            &kind(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1])
        ),
        1
    );
    let path = "resource_spans[0].scope_spans[0].spans[0].kind";
    assert_eq!(
        fault(
            Kind::Traces,
            &kind(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2])
        ),
        (Fault::Varint, path.to_owned(), 7)
    );
    assert_eq!(items(Kind::Traces, &kind(&[0x81, 0x80, 0x80, 0x00])), 1);
    assert_eq!(items(Kind::Traces, &[0x8a, 0x00, 0x00]), 0);
    assert_eq!(fault(Kind::Traces, &[0x00, 0x00]).0, Fault::Key);
    assert_eq!(
        fault(Kind::Traces, &[0x80, 0x80, 0x80, 0x80, 0x10, 0x00]).0,
        Fault::Key
    );
}

/// Scenario: attributes nested by key-value lists up to and beyond 100 levels.
/// Guarantees: the limit is where prost has it.
#[test]
fn a_hundred_levels() {
    let mut accepted = 0;
    for lists in 25..40 {
        let mut pair = [len(1, b"k"), len(2, &len(1, b"v"))].concat();
        for _ in 0..lists {
            pair = [len(1, b"k"), len(2, &len(6, &len(1, &pair)))].concat();
        }
        let body = [
            in_scope(&len(2, &len(9, &pair))),
            vec![0xc2, 0x3e, 0x7f],
            vec![0; 127],
        ]
        .concat();
        checks::validate_as_prost(Kind::Traces, &body);
        accepted += u32::from(validate(Kind::Traces, Depth::Deep, &body).is_ok());
        let mut group = vec![0x0b; lists * 2];
        group.extend(vec![0x0c; lists * 2]);
        checks::validate_as_prost(
            Kind::Traces,
            &in_scope(&len(2, &[&[0x8b, 0x02][..], &group, &[0x8c, 0x02]].concat())),
        );
    }
    // Resource, scope, span, pair and value are five levels, every list another three.
    assert_eq!(accepted, 7);
    for lists in 0..40 {
        let mut value = len(1, b"v");
        for _ in 0..lists {
            value = len(5, &len(1, &value));
        }
        let pair = [len(1, b"k"), len(2, &value)].concat();
        checks::validate_as_prost(Kind::Traces, &in_scope(&len(2, &len(9, &pair))));
    }
}

/// Scenario: repeated scalars packed and not, and packed ones cut short.
/// Guarantees: both encodings are read; a cut one is refused.
#[test]
fn packed_and_not() {
    let histogram = |point: &[u8]| in_metric(&len(9, &len(1, point)));
    assert_eq!(items(Kind::Metrics, &histogram(&len(6, &[0; 16]))), 1);
    assert_eq!(
        items(Kind::Metrics, &histogram(&[&[0x31][..], &[0; 8]].concat())),
        1
    );
    assert_eq!(
        fault(Kind::Metrics, &histogram(&len(6, &[0; 15]))).0,
        Fault::Truncated
    );
}

/// Scenario: ids of wrong lengths, which prost does not look at.
/// Guarantees: they are refused, naming field, offset and length.
#[test]
fn id_lengths() {
    let body = in_scope(&[len(2, &[]), len(2, &[len(1, &[7; 16]), len(2, &[7; 7])].concat())].concat());
    assert_eq!(
        fault(Kind::Traces, &body),
        (
            Fault::IdLength { found: 7, want: 8 },
            "resource_spans[0].scope_spans[0].spans[1].span_id".to_owned(),
            28
        )
    );
    let said = validate(Kind::Traces, Depth::Deep, &body)
        .expect_err("invalid")
        .to_string();
    assert_eq!(
        said,
        "id of 7 bytes, must be 8 or empty in resource_spans[0].scope_spans[0].spans[1].span_id (byte 28)"
    );
    assert_eq!(count(Kind::Traces, &body), Ok(2));
}

/// Scenario: many equal items, and among them one that differs in a byte that matters, its key and length included.
/// Guarantees: the prediction of shapes does not let it pass.
#[test]
fn a_remembered_shape_is_not_a_licence() {
    let span = [
        len(1, &[7; 16]),
        len(2, &[7; 8]),
        len(5, b"operation"),
        vec![6 << 3, 2],
        len(9, &[len(1, b"key"), len(2, &len(1, b"value"))].concat()),
    ]
    .concat();
    let span = len(2, &span);
    let good = span.repeat(100);
    for at in 0..span.len() {
        for flip in [0x01, 0x08, 0x80] {
            let mut other = span.clone();
            other[at] ^= flip;
            let body = in_scope(&[good.clone(), other, good.clone()].concat());
            assert!(body.len() > 4096, "large enough for shapes to be remembered");
            checks::validate_as_prost(Kind::Traces, &body);
        }
    }
}

/// Scenario: attributes of every length up to what the fast check takes, strings and numbers, with a byte that is not
/// UTF-8 at every place of key and text, and right behind them.
/// Guarantees: every byte of the text is looked at, and none behind it.
#[test]
fn every_byte_of_an_attribute_is_checked() {
    // The fast check looks at a window of the body, so there must be something behind the attribute.
    let behind = len(2, &[0xff; 8]).repeat(30);
    let values = |text: &[u8]| {
        [
            len(1, text),
            vec![2 << 3, 1],
            vec![3 << 3, 0xff, 0x7f],
            [&[4 << 3 | 1][..], &[0xff; 8]].concat(),
        ]
    };
    let check = |key: &[u8], value: &[u8]| {
        let pair = [len(1, key), len(2, value)].concat();
        let body = in_scope(&len(2, &[len(9, &pair), behind.clone()].concat()));
        checks::validate_as_prost(Kind::Traces, &body);
        validate(Kind::Traces, Depth::Deep, &body).is_ok()
    };
    for size in 0..128 {
        for text in [size, 0, size / 2] {
            let (key, text) = (vec![b'k'; size - text], vec![b't'; text]);
            for value in values(&text) {
                assert!(check(&key, &value), "{size}");
                for at in 0..key.len() {
                    let mut key = key.clone();
                    key[at] = 0xff;
                    assert!(!check(&key, &value), "{size}: byte {at} of the key");
                }
            }
            for at in 0..text.len() {
                let mut text = text.clone();
                text[at] = 0xff;
                assert!(!check(&key, &len(1, &text)), "{size}: byte {at} of the text");
            }
        }
    }
}
