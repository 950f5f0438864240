//! Whatever remote write is taken becomes valid OTLP with as many points as were counted; on other bytes nothing panics.
#![no_main]

use sluice_remote_write::{Version, to_otlp};
use sluice_wire::{Depth, Kind, validate};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&choice, body)) = data.split_first() else {
        return;
    };
    let version = if choice & 1 == 0 { Version::V1 } else { Version::V2 };
    if let Ok((otlp, taken)) = to_otlp(version, body) {
        let scan = validate(Kind::Metrics, Depth::Deep, &otlp).expect("valid OTLP");
        assert_eq!(scan.items, taken.points());
    }
});
