//! Arbitrary protobuf through JSON and back, with prost as the judge of what the bytes mean.

use opentelemetry_proto::tonic::collector::{
    logs::v1::ExportLogsServiceRequest, metrics::v1::ExportMetricsServiceRequest,
    profiles::v1development::ExportProfilesServiceRequest, trace::v1::ExportTraceServiceRequest,
};
use proptest::prelude::*;
use prost::Message;
use sluice_otlp::json::{self, JsonOptions};
use sluice_wire::Kind;
use sluice_wire::schema::{Cardinality, FieldDesc, FieldKind, MessageDesc};

/// Makes protobuf from a supply of bytes, so that proptest can shrink it.
struct Supply<'a>(&'a [u8]);

impl Supply<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn below(&mut self, bound: u8) -> u8 {
        self.byte() % bound
    }

    fn integer(&mut self) -> u64 {
        let wide = u64::from_le_bytes(std::array::from_fn(|_| self.byte()));
        match self.below(6) {
            0 => 0,
            1 => u64::MAX,
            2 => i64::MIN as u64,
            3 => wide & 0x7f,
            4 => wide >> 11,
            _ => wide,
        }
    }

    fn double(&mut self) -> f64 {
        match self.below(8) {
            0 => 0.0,
            1 => -0.0,
            2 => f64::NAN,
            3 => f64::INFINITY,
            4 => f64::NEG_INFINITY,
            5 => f64::from(self.byte()) / 7.0,
            // Every bit pattern but those of NaN, whose payload JSON cannot hold.
            _ => Some(f64::from_bits(self.integer()))
                .filter(|value| !value.is_nan())
                .unwrap_or(5e-324),
        }
    }

    fn text(&mut self) -> String {
        const PIECES: [&str; 12] = [
            "a",
            "service.name",
            "\"",
            "\\",
            "\n",
            "\u{0}",
            "\u{1f}",
            "é",
            "😀",
            "\u{2028}",
            "</script>",
            "12345678",
        ];
        (0..self.below(6))
            .map(|_| PIECES[usize::from(self.below(12))])
            .collect()
    }
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn record(field: u32, wire: u8, payload: &[u8], out: &mut Vec<u8>) {
    varint(u64::from(field) << 3 | u64::from(wire), out);
    if wire == 2 {
        varint(payload.len() as u64, out);
    }
    out.extend_from_slice(payload);
}

/// The bytes of one element, without tag and length.
fn payload(kind: FieldKind, supply: &mut Supply<'_>, depth: usize) -> Vec<u8> {
    let mut out = Vec::new();
    match kind {
        FieldKind::Double => out.extend(supply.double().to_le_bytes()),
        FieldKind::Fixed64 | FieldKind::Sfixed64 => out.extend(supply.integer().to_le_bytes()),
        FieldKind::Fixed32 | FieldKind::Sfixed32 => out.extend((supply.integer() as u32).to_le_bytes()),
        FieldKind::Float => out.extend((supply.byte() as f32 / 3.0).to_le_bytes()),
        FieldKind::Bool => varint(u64::from(supply.below(3)), &mut out),
        FieldKind::Int32 | FieldKind::Enum(_) => varint(i64::from(supply.integer() as i32) as u64, &mut out),
        FieldKind::Uint32 | FieldKind::Sint32 => varint(u64::from(supply.integer() as u32), &mut out),
        FieldKind::Int64 | FieldKind::Uint64 | FieldKind::Sint64 => varint(supply.integer(), &mut out),
        FieldKind::String => out.extend(supply.text().into_bytes()),
        FieldKind::Bytes => out.extend((0..supply.below(9)).map(|_| supply.byte())),
        FieldKind::Id(id) => {
            if supply.below(4) > 0 {
                out.extend((0..id.len_bytes()).map(|_| supply.byte()));
            }
        }
        FieldKind::Message(inner) => out = message(inner, supply, depth + 1),
    }
    out
}

/// A message as an odd encoder might write it: fields in any order and more than once, lists in several runs, packed
/// and unpacked, several arms of a oneof, unknown fields and groups.
fn message(desc: &MessageDesc, supply: &mut Supply<'_>, depth: usize) -> Vec<u8> {
    let mut out = Vec::new();
    if depth > 14 {
        return out;
    }
    let in_order = supply.below(2) == 0;
    let mut position = 0;
    for _ in 0..supply.below(8) {
        let step = supply.byte();
        if step % 16 == 15 {
            // An unknown group around an unknown field.
            record(990, 3, &[], &mut out);
            record(991, 2, &[0xff, 0xfe], &mut out);
            record(990, 4, &[], &mut out);
            continue;
        }
        position = if in_order {
            position + usize::from(step % 2)
        } else {
            usize::from(step)
        };
        let field: &FieldDesc = &desc.fields()[position % desc.fields().len()];
        let wire = field.kind.wire_kind() as u8;
        if field.cardinality == Cardinality::Packed && !step.is_multiple_of(4) {
            let elements: Vec<u8> = (0..supply.below(5))
                .flat_map(|_| payload(field.kind, supply, depth))
                .collect();
            record(field.number, 2, &elements, &mut out);
        } else {
            let element = payload(field.kind, supply, depth);
            record(field.number, wire, &element, &mut out);
        }
    }
    out
}

/// The canonical encoding of what prost reads; it is equal exactly when the messages are, NaN included.
fn judge(kind: Kind, wire: &[u8]) -> Result<Vec<u8>, prost::DecodeError> {
    Ok(match kind {
        Kind::Metrics => ExportMetricsServiceRequest::decode(wire)?.encode_to_vec(),
        Kind::Logs => ExportLogsServiceRequest::decode(wire)?.encode_to_vec(),
        Kind::Traces => ExportTraceServiceRequest::decode(wire)?.encode_to_vec(),
        Kind::Profiles => ExportProfilesServiceRequest::decode(wire)?.encode_to_vec(),
    })
}

fn through_json(kind: Kind, wire: &[u8]) -> Result<Vec<u8>, String> {
    let schema = json::request_schema(kind);
    let mut text = Vec::new();
    json::encode(schema, wire, &mut text).map_err(|error| error.to_string())?;
    let parsed: Result<serde_json::Value, _> = serde_json::from_slice(&text);
    parsed.map_err(|error| format!("not JSON: {error}"))?;
    // Strict reading refuses names that occur twice, so the output has none.
    json::decode(
        schema,
        &text,
        JsonOptions {
            strict: true,
            ..JsonOptions::default()
        },
    )
    .map_err(|error| format!("{error}\n{}", String::from_utf8_lossy(&text)))
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Metrics),
        Just(Kind::Logs),
        Just(Kind::Traces),
        Just(Kind::Profiles)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    /// Scenario: arbitrary messages of every kind, encoded in every way protobuf allows, go to JSON and back.
    /// Guarantees: prost reads the same message before and after; the JSON is valid and has no name twice.
    #[test]
    fn protobuf_survives_json(kind in kinds(), supply in proptest::collection::vec(any::<u8>(), 0..3000)) {
        let wire = message(json::request_schema(kind), &mut Supply(&supply), 0);
        let expected = judge(kind, &wire).expect("the generator writes what prost reads");
        let returned = through_json(kind, &wire).map_err(TestCaseError::fail)?;
        prop_assert_eq!(judge(kind, &returned).expect("prost reads what decode writes"), expected);
    }

    /// Scenario: prost's own encoding of arbitrary messages goes to JSON and back.
    /// Guarantees: what comes back has the length prost would give it, so prefixes are minimal and defaults left out.
    #[test]
    fn decoding_writes_as_tightly_as_prost(kind in kinds(), supply in proptest::collection::vec(any::<u8>(), 0..3000)) {
        let wire = message(json::request_schema(kind), &mut Supply(&supply), 0);
        let canonical = judge(kind, &wire).expect("the generator writes what prost reads");
        let returned = through_json(kind, &canonical).map_err(TestCaseError::fail)?;
        prop_assert_eq!(returned.len(), canonical.len());
    }

    /// Scenario: messages with some bytes changed, so that most are malformed somewhere.
    /// Guarantees: whatever prost still reads is encoded, and means the same unless an id lost its length; the rest is
    /// an error or at least no panic.
    #[test]
    fn damaged_protobuf_never_panics(
        kind in kinds(),
        supply in proptest::collection::vec(any::<u8>(), 0..600),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut wire = message(json::request_schema(kind), &mut Supply(&supply), 0);
        for (at, byte) in damage {
            if !wire.is_empty() {
                let at = at.index(wire.len());
                wire[at] = byte;
            }
        }
        let mut text = Vec::new();
        let encoded = json::encode(json::request_schema(kind), &wire, &mut text);
        if judge(kind, &wire).is_ok() {
            prop_assert_eq!(encoded, Ok(()));
            prop_assert!(serde_json::from_slice::<serde_json::Value>(&text).is_ok());
        } else if encoded.is_err() {
            prop_assert!(text.is_empty());
        }
    }

    /// Scenario: the JSON of arbitrary messages with some bytes changed.
    /// Guarantees: no panic; what is accepted is protobuf that prost reads.
    #[test]
    fn damaged_json_never_panics(
        kind in kinds(),
        supply in proptest::collection::vec(any::<u8>(), 0..600),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let schema = json::request_schema(kind);
        let mut text = Vec::new();
        json::encode(schema, &message(schema, &mut Supply(&supply), 0), &mut text).expect("valid");
        for (at, byte) in damage {
            let at = at.index(text.len());
            text[at] = byte;
        }
        if let Ok(wire) = json::decode(schema, &text, JsonOptions::default()) {
            prop_assert!(judge(kind, &wire).is_ok());
        }
    }
}
