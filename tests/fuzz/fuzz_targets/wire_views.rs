//! Every view reads what prost decodes; on bodies that are not valid nothing panics.
#![no_main]

#[path = "../../../crates/wire/tests/support/mod.rs"]
mod support;

#[path = "../../../crates/wire/tests/support/views.rs"]
mod views;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some((kind, body)) = support::body_of(data) {
        views::views_as_prost(kind, &body);
    }
});
