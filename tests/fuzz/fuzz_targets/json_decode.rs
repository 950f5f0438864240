//! Whatever JSON is taken becomes protobuf that prost reads, and that survives the way back and forth.
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
    let Some((&choice, text)) = data.split_first() else {
        return;
    };
    let kind = judge::kind(choice);
    let schema = json::request_schema(kind);
    let strict = json::decode(
        schema,
        text,
        JsonOptions {
            strict: true,
            ..JsonOptions::default()
        },
    );
    let Ok(wire) = json::decode(schema, text, JsonOptions::default()) else {
        assert!(
            strict.is_err(),
            "strict reading takes nothing that lenient reading refuses"
        );
        return;
    };
    if let Ok(strict) = strict {
        assert_eq!(strict, wire);
    }
    let meaning = judge::meaning(kind, &wire).expect("prost reads what decode writes");
    let mut back = Vec::new();
    json::encode(schema, &wire, &mut back).expect("encode reads what decode writes");
    let again = json::decode(
        schema,
        &back,
        JsonOptions {
            strict: true,
            ..JsonOptions::default()
        },
    )
    .unwrap_or_else(|error| panic!("strict decode reads what encode writes: {error}"));
    assert_eq!(judge::meaning(kind, &again).expect("prost reads it"), meaning);
    // A limit of exactly the length is none, one below it is an error of its own kind.
    let limit = |limit_bytes| {
        json::decode(
            schema,
            text,
            JsonOptions {
                strict: false,
                limit_bytes,
            },
        )
    };
    assert!(limit(wire.len()).is_ok());
    if let Some(below) = wire.len().checked_sub(1) {
        assert!(limit(below).is_err_and(|error| error.is_too_large()));
    }
});
