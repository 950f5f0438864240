//! Splitting, chaining and editing, case by case.

mod support;

use bytes::{Buf as _, Bytes};
use sluice_wire::{Chain, Depth, Edits, Fault, Kind, Limit, Request, count, range_of, split, validate};

fn len(number: u8, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    support::put_varint(&mut out, u64::from(number) << 3 | 2);
    support::put_varint(&mut out, value.len() as u64);
    out.extend_from_slice(value);
    out
}

/// One resource with a schema URL behind its only scope, and so many spans of 10 bytes.
fn resource(spans: usize) -> Vec<u8> {
    let span = len(2, &len(5, b"abcdef"));
    let scope = [len(1, &len(1, b"scope")), span.repeat(spans)].concat();
    len(1, &[len(1, &[]), len(2, &scope), len(3, b"url")].concat())
}

fn items(body: &[Vec<u8>], limit: Limit) -> Vec<u64> {
    let pieces = split(Kind::Traces, &Bytes::from(body.concat()), limit).expect("valid");
    pieces.iter().map(|piece| piece.items).collect()
}

/// Scenario: bodies within the limit, and empty ones.
/// Guarantees: the piece is the body itself, not a copy; nothing gives nothing.
#[test]
fn a_body_within_the_limit_is_not_touched() {
    let body = Bytes::from(resource(5));
    let pieces = split(Kind::Traces, &body, Limit::Items(5)).expect("valid");
    assert_eq!(pieces.len(), 1);
    assert_eq!(pieces[0].chain.to_bytes().as_ptr(), body.as_ptr());
    assert!(
        split(Kind::Traces, &Bytes::new(), Limit::Items(5))
            .expect("valid")
            .is_empty()
    );
}

/// Scenario: resources that fit a piece whole, and one that does not.
/// Guarantees: cuts lie between resources where that leaves a piece at least half full, else within.
#[test]
fn cuts_prefer_resource_boundaries() {
    assert_eq!(
        items(&[resource(6), resource(6), resource(6)], Limit::Items(10)),
        [6, 6, 6]
    );
    assert_eq!(items(&[resource(3), resource(8)], Limit::Items(10)), [10, 1]);
    assert_eq!(items(&[resource(25)], Limit::Items(10)), [10, 10, 5]);
    assert_eq!(items(&[resource(3)], Limit::Items(0)), [1, 1, 1]);
}

/// Scenario: a limit smaller than a single item with its headers.
/// Guarantees: every item comes out alone, with its resource, scope and schema URL.
#[test]
fn an_item_above_the_limit_comes_out_alone() {
    let pieces = split(Kind::Traces, &Bytes::from(resource(3)), Limit::Bytes(1)).expect("valid");
    assert_eq!(pieces.len(), 3);
    for piece in pieces {
        let body = piece.chain.to_bytes();
        let resource = Request::new(Kind::Traces, &body)
            .resources()
            .next()
            .expect("a resource");
        assert_eq!(resource.schema_url(), "url");
        assert_eq!(resource.scopes().next().expect("a scope").scope().name(), "scope");
    }
}

/// Scenario: a body broken on the way to its items.
/// Guarantees: the split fails and says where.
#[test]
fn a_broken_body_is_refused() {
    let mut body = resource(3);
    body.truncate(body.len() - 1);
    let error = split(Kind::Traces, &Bytes::from(body), Limit::Items(1)).expect_err("broken");
    assert_eq!(
        (error.fault, error.path.as_str()),
        (Fault::Truncated, "resource_spans[0]")
    );
}

/// Scenario: a chain of three slices, read in every way a `Buf` is.
/// Guarantees: the bytes come in order, and slices are handed on without a copy where they are whole.
#[test]
fn a_chain_reads_as_one_buffer() {
    let parts = [
        Bytes::from_static(b"ab"),
        Bytes::new(),
        Bytes::from_static(b"cde"),
        Bytes::from_static(b"f"),
    ];
    let chain = Chain::concat([
        Chain::from(parts[0].clone()),
        parts[1..].iter().cloned().collect(),
    ]);
    assert_eq!((chain.len(), chain.parts().len()), (6, 3));
    let mut slices = [std::io::IoSlice::new(&[]); 2];
    assert_eq!(chain.chunks_vectored(&mut slices), 2);
    assert_eq!(&*slices[1], b"cde");
    for at in 0..=6 {
        for take in 0..=6 - at {
            let mut chain = chain.clone();
            chain.advance(at);
            assert_eq!(chain.copy_to_bytes(take), b"abcdef"[at..at + take]);
            assert_eq!(chain.remaining(), 6 - at - take);
            assert_eq!(chain.to_bytes(), b"abcdef"[at + take..]);
        }
    }
    let mut copy = chain.clone();
    assert_eq!(copy.copy_to_bytes(2).as_ptr(), parts[0].as_ptr());
    let mut out = Vec::new();
    chain.write_to(&mut out);
    assert_eq!(out, b"abcdef");
}

/// Scenario: one span dropped, an attribute put in the place of another, and something appended, lengths growing over
/// one byte.
/// Guarantees: exactly that is changed, and every enclosing length is right.
#[test]
fn edits_fix_the_enclosing_lengths() {
    let body = resource(12);
    let spans: Vec<_> = Request::new(Kind::Traces, &body)
        .resources()
        .flat_map(|resource| resource.scopes())
        .collect();
    let spans: Vec<_> = spans[0].spans().collect();
    let mut edits = Edits::new();
    edits.drop(range_of(&body, spans[0].framed()).expect("inside"));
    let second = range_of(&body, spans[1].raw()).expect("inside");
    edits.append(second.clone(), Bytes::from(len(9, &len(1, &[b'k'; 200]))));
    edits.drop(second.clone());
    edits.insert(second.start, Bytes::from(len(5, b"renamed")));
    let after = edits.apply(Kind::Traces, &body).expect("on boundaries");
    assert_eq!(
        validate(Kind::Traces, Depth::Deep, &after).expect("valid").items,
        11
    );
    let resource = Request::new(Kind::Traces, &after)
        .resources()
        .next()
        .expect("a resource");
    let span = resource
        .scopes()
        .next()
        .expect("a scope")
        .spans()
        .next()
        .expect("a span");
    assert_eq!(
        (span.name(), span.attributes().next().expect("one").key().len()),
        ("renamed", 200)
    );
    assert_eq!(resource.schema_url(), "url");
}

/// Scenario: all spans of the first of two resources dropped.
/// Guarantees: its envelope goes with them; edits off the boundaries, or overlapping, are refused.
#[test]
fn emptied_envelopes_go_and_crooked_edits_are_refused() {
    let body = [resource(2), resource(1)].concat();
    let first = Request::new(Kind::Traces, &body)
        .resources()
        .next()
        .expect("a resource");
    let mut edits = Edits::new();
    for span in first.scopes().next().expect("a scope").spans() {
        edits.drop(range_of(&body, span.framed()).expect("inside"));
    }
    assert_eq!(
        edits.apply(Kind::Traces, &body).expect("on boundaries"),
        resource(1)
    );

    for range in [1..3, 0..body.len() + 1, 3..4] {
        let mut edits = Edits::new();
        edits.drop(range);
        assert_eq!(
            edits.apply(Kind::Traces, &body).expect_err("crooked").fault,
            Fault::Edit
        );
    }
    let mut edits = Edits::new();
    let all = range_of(&body, first.framed()).expect("inside");
    edits.drop(all.clone());
    edits.insert(all.start + 2, Bytes::from_static(b"x"));
    assert_eq!(
        edits.apply(Kind::Traces, &body).expect_err("overlapping").fault,
        Fault::Edit
    );
}

/// Scenario: a metric with a gauge that a histogram replaces, whose points are all dropped.
/// Guarantees: the gauge does not come back to life (found by the property test).
#[test]
fn an_emptied_arm_stays_last() {
    let metric = [len(5, &len(1, &[])), len(9, &len(1, &[]))].concat();
    let body = len(1, &len(2, &len(2, &metric)));
    let request = Request::new(Kind::Metrics, &body);
    let scope = request
        .resources()
        .next()
        .expect("one")
        .scopes()
        .next()
        .expect("one");
    let point = scope.metrics().next().expect("one").points().next().expect("one");
    let mut edits = Edits::new();
    edits.drop(range_of(&body, point.framed()).expect("inside"));
    assert_eq!(
        count(
            Kind::Metrics,
            &edits.apply(Kind::Metrics, &body).expect("on boundaries")
        ),
        Ok(0)
    );
}
