//! Whatever prost reads becomes JSON that means the same; on other bytes nothing panics.
#![no_main]

#[allow(
    dead_code,
    unused_imports,
    reason = "the module as it is; the target uses a part of it"
)]
#[path = "../../../crates/otlp/src/json/mod.rs"]
mod json;

#[path = "support/judge.rs"]
mod judge;

use json::JsonOptions;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&choice, wire)) = data.split_first() else {
        return;
    };
    let kind = judge::kind(choice);
    let schema = json::request_schema(kind);
    let mut text = Vec::new();
    let encoded = json::encode(schema, wire, &mut text);
    let Some(meaning) = judge::meaning(kind, wire) else {
        assert!(
            encoded.is_ok() || text.is_empty(),
            "a failed encode leaves nothing behind"
        );
        return;
    };
    assert_eq!(encoded, Ok(()));
    serde_json::from_slice::<serde::de::IgnoredAny>(&text).expect("encode writes JSON");
    let back = json::decode(
        schema,
        &text,
        JsonOptions {
            strict: true,
            ..JsonOptions::default()
        },
    );
    // prost does not look at the length of an id; 22 hexadecimal digits, eleven bytes, are also the
    // base64 of a profile id. Validation refuses such bodies before they get here.
    if sluice_wire::validate(kind, sluice_wire::Depth::Deep, wire).is_ok() {
        let again = back.unwrap_or_else(|error| panic!("strict decode reads what encode writes: {error}"));
        assert_eq!(judge::meaning(kind, &again).expect("prost reads it"), meaning);
    }
});
