//! Pieces decode to the same items in the same order, and keep the limit.
#![no_main]

#[path = "../../../crates/wire/tests/support/mod.rs"]
mod support;

#[path = "../../../crates/wire/tests/support/checks.rs"]
mod checks;

use sluice_wire::Limit;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [first, second, rest @ ..] = data else { return };
    if let Some((kind, body)) = support::body_of(rest) {
        checks::split_as_prost(kind, &body, Limit::Items(u64::from(first % 40)));
        checks::split_as_prost(kind, &body, Limit::Bytes(usize::from(*second) * 8));
        checks::shares_as_prost(kind, &body, 1 + usize::from(first % 5));
    }
});
