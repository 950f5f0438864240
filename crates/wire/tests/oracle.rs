//! Properties held against prost and the opentelemetry-proto types on arbitrary bodies.

#[path = "support/checks.rs"]
mod checks;
mod support;
#[path = "support/views.rs"]
mod views;

use proptest::prelude::*;
use sluice_wire::{Depth, Limit, validate};
use support::body_of;

fn data() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => proptest::collection::vec(any::<u8>(), 2..300),
        1 => proptest::collection::vec(any::<u8>(), 300..3000),
    ]
}

/// Scenario: the generators, fed with pseudo-random bytes.
/// Guarantees: enough of what they make is valid and holds items, or the properties below would say nothing.
#[test]
fn the_generators_make_valid_bodies() {
    let mut state = 11u64;
    let mut tally = [[0u32; 2]; 4];
    for round in 0..4000u32 {
        let mut data: Vec<u8> = (0..1000)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as u8
            })
            .collect();
        data[1] = (round % 4) as u8;
        let (kind, body) = body_of(&data).expect("long enough");
        if let Ok(scan) = validate(kind, Depth::Deep, &body) {
            tally[round as usize % 4][usize::from(scan.items > 1)] += 1;
        }
    }
    assert!(
        tally[1][1] > 500 && tally[2][1] > 60 && tally[3][1] > 50,
        "{tally:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    /// Scenario: arbitrary bodies: raw bytes, messages of the schema as SDKs write them, messages in any encoding
    /// protobuf allows, and all of these damaged.
    /// Guarantees: deep validation accepts exactly what prost decodes (wrong id lengths aside); counts agree.
    #[test]
    fn validation_is_prosts(data in data()) {
        if let Some((kind, body)) = body_of(&data) {
            checks::validate_as_prost(kind, &body);
        }
    }

    /// Scenario: the same bodies, split by items and by bytes.
    /// Guarantees: the pieces decode to the same items in the same order, each with its resource, scope and metric, and
    /// keep the limit.
    #[test]
    fn pieces_hold_the_same_items(data in data(), items in 1u64..20, bytes in 0usize..600) {
        if let Some((kind, body)) = body_of(&data) {
            checks::split_as_prost(kind, &body, Limit::Items(items));
            checks::split_as_prost(kind, &body, Limit::Bytes(bytes));
        }
    }

    /// Scenario: the same bodies, shared out among a few takers by each key.
    /// Guarantees: the shares hold the same items in the same order, each with its resource and scope, and each item is where it
    /// would be if it came alone.
    #[test]
    fn shares_hold_the_same_items(data in data(), takers in 1usize..6) {
        if let Some((kind, body)) = body_of(&data) {
            checks::shares_as_prost(kind, &body, takers);
        }
    }

    /// Scenario: the same bodies under arbitrary edits.
    /// Guarantees: an edit is refused, or leaves a body that validates; no edit gives the same bytes.
    #[test]
    fn edited_bodies_are_framed_well(data in data(), choices in proptest::collection::vec(any::<u8>(), 0..24)) {
        if let Some((kind, body)) = body_of(&data) {
            checks::edit_keeps_framing(kind, &body, &choices);
            checks::edit_drops_items(kind, &body, &choices);
        }
    }

    /// Scenario: the same bodies, read through the views.
    /// Guarantees: every view reads what prost decodes; on bodies that are not valid nothing panics.
    #[test]
    fn views_read_what_prost_decodes(data in data()) {
        if let Some((kind, body)) = body_of(&data) {
            views::views_as_prost(kind, &body);
        }
    }
}
