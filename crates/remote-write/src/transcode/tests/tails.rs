//! Points of which the attributes are known together.

use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{NumberDataPoint, number_data_point};
use prost::Message as _;

use super::*;
use crate::protobuf::put_delimited;

/// A request of points that are encoded already.
fn request_of(points: &[Vec<u8>]) -> Vec<u8> {
    let (mut gauge, mut metric) = (Vec::new(), Vec::new());
    for point in points {
        put_delimited(&mut gauge, 1, point);
    }
    put_delimited(&mut metric, 1, b"m");
    put_delimited(&mut metric, 5, &gauge);
    // A metric of a scope, of a resource, of a request.
    [2, 2, 1].iter().fold(metric, |inner, number| {
        let mut outer = Vec::new();
        put_delimited(&mut outer, *number, &inner);
        outer
    })
}

/// Scenario: points whose last attributes are mostly those of others, in ever other arrangements: with one of their own before, between, or behind them,
/// with time and value before or behind them, with flags at the end, with texts that are empty, long, or of two attributes of one name.
/// Guarantees: each has the labels that it has when nothing is known, also in what is sent; many are found together.
#[test]
fn attributes_that_are_known_together_make_the_same_labels() {
    let mut state = 11u64;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let attribute = |key: &str, value: any_value::Value| KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    };
    let text = |value: &str| any_value::Value::StringValue(value.to_owned());
    let mut known = Transcoder::new(Mapping::default());
    let mut encoder = Encoder::new(EncoderSettings {
        lanes: 1,
        ..EncoderSettings::default()
    });
    for round in 0..60 {
        let mut points = Vec::new();
        for n in 0..50 {
            let mut attributes = vec![
                attribute("region", text(["eu", "us"][draw(2) as usize])),
                attribute("status", any_value::Value::IntValue(200 + draw(3) as i64)),
            ];
            match draw(12) {
                0 => attributes.push(attribute("empty", text(""))),
                1 => attributes.push(attribute("long", text(&"l".repeat(130)))),
                2 => attributes.push(attribute("huge", text(&"h".repeat(600)))),
                3 => attributes.push(attribute("a.b", text("1"))),
                4 => attributes.extend([attribute("a.b", text("1")), attribute("a_b", text("2"))]),
                5 => attributes.push(attribute("status", text("twice"))),
                _ => {}
            }
            let own = attribute("id", text(&format!("{round}-{n}")));
            match draw(5) {
                0 => attributes.insert(1, own),
                1 => attributes.push(own),
                2 => {}
                _ => attributes.insert(0, own),
            }
            let attributes = NumberDataPoint {
                attributes,
                ..NumberDataPoint::default()
            };
            let number = NumberDataPoint {
                time_unix_nano: 1_790_000_000_000_000_000 + n,
                value: Some(number_data_point::Value::AsInt(draw(1000) as i64)),
                ..NumberDataPoint::default()
            };
            let flags = NumberDataPoint {
                flags: 1,
                ..NumberDataPoint::default()
            };
            let (attributes, number, flags) = (
                attributes.encode_to_vec(),
                number.encode_to_vec(),
                flags.encode_to_vec(),
            );
            points.push(match draw(8) {
                0 => [attributes, number].concat(),
                1 => [number, attributes, flags].concat(),
                _ => [number, attributes].concat(),
            });
        }
        let (mut together, mut apart) = (Kept::default(), Kept::default());
        let request = request_of(&points);
        let outcome = known.run(&[&request], &mut together);
        let (lanes, _) = encoder.encode(&[&request]);
        let mut written = Kept::default();
        for body in lanes.iter().flatten() {
            written.read(body);
        }
        let mut outcomes = Outcome::default();
        for point in &points {
            let mut anew = Transcoder::new(Mapping::default());
            let point = request_of(std::slice::from_ref(point));
            outcomes.add(&anew.run(&[&point], &mut apart));
        }
        assert_eq!(outcome, outcomes);
        assert!(together.0 == apart.0, "round {round}");
        assert!(written.0 == apart.0, "round {round}");
        assert_eq!(together.0.len(), points.len());
    }
    // Of 3000 points, of which a third are ever looked for so, and the first ones of each kind in vain.
    let found = known.reader.labels().tails_found;
    assert!(found > 500, "{found}");
}
