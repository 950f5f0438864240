//! An edit is refused, or leaves a body that validates; edits of whole fields do what they say.
#![no_main]

#[path = "../../../crates/wire/tests/support/mod.rs"]
mod support;

#[path = "../../../crates/wire/tests/support/checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((choices, rest)) = data.split_at_checked(16) else {
        return;
    };
    if let Some((kind, body)) = support::body_of(rest) {
        checks::edit_keeps_framing(kind, &body, choices);
        checks::edit_drops_items(kind, &body, choices);
    }
});
