//! Deep validation accepts what prost decodes, less wrong id lengths; all counts agree.
#![no_main]

#[path = "../../../crates/wire/tests/support/mod.rs"]
mod support;

#[path = "../../../crates/wire/tests/support/checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some((kind, body)) = support::body_of(data) {
        checks::validate_as_prost(kind, &body);
    }
});
