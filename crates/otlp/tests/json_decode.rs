//! The rules of OTLP/JSON, one by one: what is taken, what is refused, and what a refusal says.

use opentelemetry_proto::tonic::collector::{
    logs::v1::ExportLogsServiceRequest, metrics::v1::ExportMetricsServiceRequest,
    profiles::v1development::ExportProfilesServiceRequest, trace::v1::ExportTraceServiceRequest,
};
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValueList};
use opentelemetry_proto::tonic::metrics::v1::{NumberDataPoint, metric, number_data_point};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use sluice_otlp::json::{self, JsonError, JsonOptions, MAX_MESSAGE_DEPTH, MAX_UNKNOWN_DEPTH};
use sluice_wire::{Kind, schema};

const LENIENT: JsonOptions = JsonOptions {
    strict: false,
    limit_bytes: usize::MAX,
};
const STRICT: JsonOptions = JsonOptions {
    strict: true,
    limit_bytes: usize::MAX,
};

fn traces(json: &str, options: JsonOptions) -> Result<ExportTraceServiceRequest, JsonError> {
    let wire = json::decode(json::request_schema(Kind::Traces), json.as_bytes(), options)?;
    Ok(ExportTraceServiceRequest::decode(&wire[..]).expect("prost reads what decode writes"))
}

/// Wraps the members of a span.
fn span_json(members: &str) -> String {
    format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{{members}}}]}}]}}]}}"#)
}

fn span(members: &str, options: JsonOptions) -> Result<Span, JsonError> {
    let mut request = traces(&span_json(members), options)?;
    Ok(request
        .resource_spans
        .remove(0)
        .scope_spans
        .remove(0)
        .spans
        .remove(0))
}

/// The one attribute of a span with this value.
fn any_value(value: &str, options: JsonOptions) -> Result<Option<any_value::Value>, JsonError> {
    let span = span(
        &format!(r#""attributes":[{{"key":"k","value":{value}}}]"#),
        options,
    )?;
    Ok(span
        .attributes
        .into_iter()
        .next()
        .and_then(|attribute| attribute.value)
        .and_then(|value| value.value))
}

/// The one data point of a gauge with these members.
fn point(members: &str, options: JsonOptions) -> Result<NumberDataPoint, JsonError> {
    let json = format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"gauge":{{"dataPoints":[{{{members}}}]}}}}]}}]}}]}}"#
    );
    let wire = json::decode(json::request_schema(Kind::Metrics), json.as_bytes(), options)?;
    let mut request = ExportMetricsServiceRequest::decode(&wire[..]).expect("prost reads what decode writes");
    match request
        .resource_metrics
        .remove(0)
        .scope_metrics
        .remove(0)
        .metrics
        .remove(0)
        .data
    {
        Some(metric::Data::Gauge(mut gauge)) => Ok(gauge.data_points.remove(0)),
        other => panic!("a gauge, not {other:?}"),
    }
}

fn problem<T: std::fmt::Debug>(result: Result<T, JsonError>) -> String {
    match result {
        Ok(value) => panic!("taken, but is an error: {value:?}"),
        Err(error) => error.problem().to_owned(),
    }
}

/// Scenario: trace, span and parent ids in upper, lower and mixed case, empty, and escaped.
/// Guarantees: hexadecimal digits in either case are the bytes they spell; an empty id is an absent one.
#[test]
fn ids_are_hexadecimal_in_either_case() {
    for options in [LENIENT, STRICT] {
        let members =
            r#""traceId":"5B8EFFF798038103d269b633813fc60c","spanId":"eee19B7EC3C1B174","parentSpanId":"""#;
        let read = span(members, options).expect("valid ids");
        assert_eq!(
            read.trace_id,
            [
                0x5b, 0x8e, 0xff, 0xf7, 0x98, 3, 0x81, 3, 0xd2, 0x69, 0xb6, 0x33, 0x81, 0x3f, 0xc6, 0x0c
            ]
        );
        assert_eq!(read.span_id, [0xee, 0xe1, 0x9b, 0x7e, 0xc3, 0xc1, 0xb1, 0x74]);
        assert!(read.parent_span_id.is_empty());
        let escaped = span(r#""spanId":"\u0065ee19b7ec3c1b174""#, options).expect("escapes are legal in ids");
        assert_eq!(escaped.span_id, read.span_id);
    }
}

/// Scenario: ids in base64, too short, too long, with dashes, and as a number.
/// Guarantees: each is refused; the error names the field, what it must be, and base64 as the SDK bug it is.
#[test]
fn other_ids_are_refused_by_name() {
    for base64 in [
        "W47/95gDgQPSabYzgT/GDA==",
        "W47/95gDgQPSabYzgT/GDA",
        "W47_95gDgQPSabYzgT_GDA==",
    ] {
        let said = problem(span(&format!(r#""traceId":"{base64}""#), LENIENT));
        assert!(said.contains("traceId must be 32 hex digits"), "{said}");
        assert!(
            said.contains("this looks like base64, a known bug of SDKs"),
            "{said}"
        );
    }
    let said = problem(span(r#""spanId":"7uGbfsPBsXQ=""#, LENIENT));
    assert!(
        said.contains("spanId must be 16 hex digits; this looks like base64"),
        "{said}"
    );
    let said = problem(span(r#""traceId":"eee19b7ec3c1b174""#, LENIENT));
    assert!(
        said.contains("traceId must be 32 hex digits; this has 16"),
        "{said}"
    );
    let said = problem(span(
        r#""parentSpanId":"5b8efff7-9803-8103-d269-b633813fc60c""#,
        LENIENT,
    ));
    assert!(
        said.contains("parentSpanId must be 16 hex digits; '-' is not one"),
        "{said}"
    );
    let said = problem(span(r#""traceId":12"#, LENIENT));
    assert!(said.contains("expected an id as a string"), "{said}");
    let links = span(r#""links":[{},{"traceId":"W47/95gDgQPSabYzgT/GDA=="}]"#, LENIENT).expect_err("base64");
    assert_eq!(
        links.path(),
        "resourceSpans[0].scopeSpans[0].spans[0].links[1].traceId"
    );
}

/// Scenario: a profile id in hexadecimal and in base64.
/// Guarantees: both are read, for the specification says one and the Collector writes the other.
#[test]
fn profile_ids_are_taken_in_both_forms() {
    for id in ["5b8efff798038103d269b633813fc60c", "W47/95gDgQPSabYzgT/GDA=="] {
        let json = format!(
            r#"{{"resourceProfiles":[{{"scopeProfiles":[{{"profiles":[{{"profileId":"{id}"}}]}}]}}]}}"#
        );
        let wire =
            json::decode(json::request_schema(Kind::Profiles), json.as_bytes(), LENIENT).expect("an id");
        let request =
            ExportProfilesServiceRequest::decode(&wire[..]).expect("prost reads what decode writes");
        let profile = &request.resource_profiles[0].scope_profiles[0].profiles[0];
        assert_eq!(profile.profile_id[..3], [0x5b, 0x8e, 0xff], "{id}");
    }
}

/// Scenario: bytes in standard and URL-safe base64, padded and not, and what is neither.
/// Guarantees: the four forms mean the same bytes; anything else is refused.
#[test]
fn bytes_are_base64_of_either_alphabet() {
    for text in ["+/+/AQ==", "+/+/AQ", "-_-_AQ==", "-_-_AQ", "\\u002b/+/AQ"] {
        let read = any_value(&format!(r#"{{"bytesValue":"{text}"}}"#), STRICT).expect(text);
        assert_eq!(
            read,
            Some(any_value::Value::BytesValue(vec![0xfb, 0xff, 0xbf, 1])),
            "{text}"
        );
    }
    let read = any_value(r#"{"bytesValue":""}"#, STRICT).expect("empty");
    assert_eq!(read, Some(any_value::Value::BytesValue(Vec::new())));
    for text in ["A", "AB=C", "A===", "====", "A B=", "****", "é"] {
        let said = problem(any_value(&format!(r#"{{"bytesValue":"{text}"}}"#), LENIENT));
        assert!(said.contains("base64"), "{text}: {said}");
    }
}

/// Scenario: enumerations as integers, unknown integers, names, numbers in strings, unknown names.
/// Guarantees: integers are taken, unknown ones too; names only leniently; an unknown name says which enumeration.
#[test]
fn enumerations_are_integers_and_leniently_names() {
    for options in [LENIENT, STRICT] {
        assert_eq!(span(r#""kind":2"#, options).map(|span| span.kind), Ok(2));
        assert_eq!(span(r#""kind":2.0"#, options).map(|span| span.kind), Ok(2));
        assert_eq!(span(r#""kind":-77"#, options).map(|span| span.kind), Ok(-77));
        assert_eq!(
            span(r#""kind":2147483647"#, options).map(|span| span.kind),
            Ok(i32::MAX)
        );
        assert!(problem(span(r#""kind":2147483648"#, options)).contains("out of the range"));
        assert!(problem(span(r#""kind":2.5"#, options)).contains("not a fraction"));
    }
    assert_eq!(
        span(r#""kind":"SPAN_KIND_SERVER""#, LENIENT).map(|span| span.kind),
        Ok(2)
    );
    assert_eq!(span(r#""kind":"2""#, LENIENT).map(|span| span.kind), Ok(2));
    let said = problem(span(r#""kind":"SPAN_KIND_SERVER""#, STRICT));
    assert!(
        said.contains("integers in OTLP/JSON: 2 for \"SPAN_KIND_SERVER\""),
        "{said}"
    );
    let said = problem(span(r#""kind":"SERVER""#, LENIENT));
    assert!(
        said.contains("\"SERVER\" is not a value of opentelemetry.proto.trace.v1.Span.SpanKind"),
        "{said}"
    );
}

/// Scenario: 64-bit integers as numbers and strings, at and beyond both ends of their ranges, integral and not.
/// Guarantees: the value is exact over the whole range, in every form proto3 JSON allows; the rest is refused.
#[test]
fn integers_come_as_numbers_and_as_strings() {
    for options in [LENIENT, STRICT] {
        for (text, value) in [
            ("\"18446744073709551615\"", u64::MAX),
            ("18446744073709551615", u64::MAX),
            ("1544712660300000000", 1_544_712_660_300_000_000),
            ("\"1.5447126603e18\"", 1_544_712_660_300_000_000),
            ("1.5447126603E+18", 1_544_712_660_300_000_000),
            ("\"1.0\"", 1),
            ("-0", 0),
        ] {
            let read = point(&format!(r#""timeUnixNano":{text}"#), options).expect(text);
            assert_eq!(read.time_unix_nano, value, "{text}");
        }
        for (text, wanted) in [
            ("18446744073709551616", "out of the range"),
            ("\"1e20\"", "out of the range"),
            ("-1", "unsigned"),
            ("\"-1\"", "unsigned"),
            ("1.5", "not a fraction"),
            ("\"0.1\"", "not a fraction"),
            ("\"\"", "not an integer"),
            ("\" 1\"", "not an integer"),
            ("\"1 \"", "not an integer"),
            ("\"0x10\"", "not an integer"),
            ("\"--1\"", "not an integer"),
            ("\"+-1\"", "not an integer"),
            ("\"NaN\"", "not an integer"),
            ("true", "expected an integer"),
            ("[]", "expected an integer"),
            ("{}", "expected an integer"),
            ("01", "expected"),
        ] {
            let said = problem(point(&format!(r#""timeUnixNano":{text}"#), options));
            assert!(said.contains(wanted), "{text}: {said}");
        }
        for (text, value) in [
            ("\"-9223372036854775808\"", i64::MIN),
            ("-9223372036854775808", i64::MIN),
            ("\"9223372036854775807\"", i64::MAX),
        ] {
            let read = point(&format!(r#""asInt":{text}"#), options).expect(text);
            assert_eq!(read.value, Some(number_data_point::Value::AsInt(value)), "{text}");
        }
        for text in ["\"9223372036854775808\"", "-9223372036854775809"] {
            assert!(
                problem(point(&format!(r#""asInt":{text}"#), options)).contains("out of the range"),
                "{text}"
            );
        }
        assert!(problem(point(r#""flags":4294967296"#, options)).contains("out of the range"));
    }
    for text in ["\"+7\"", "\"007\""] {
        assert_eq!(
            point(&format!(r#""timeUnixNano":{text}"#), LENIENT).map(|point| point.time_unix_nano),
            Ok(7)
        );
        assert!(
            point(&format!(r#""timeUnixNano":{text}"#), STRICT).is_err(),
            "{text}"
        );
    }
    assert_eq!(
        point(r#""timeUnixNano":"000""#, LENIENT).map(|point| point.time_unix_nano),
        Ok(0)
    );
}

/// Scenario: doubles as numbers, as strings, special values, what only the Collector takes, and what overflows.
/// Guarantees: each is read as the nearest double; infinity comes only from its name.
#[test]
fn doubles_come_as_numbers_and_as_strings() {
    let value = |text: &str, options| {
        let read = point(&format!(r#""asDouble":{text}"#), options)?.value;
        match read {
            Some(number_data_point::Value::AsDouble(value)) => Ok(value),
            other => panic!("a double, not {other:?}"),
        }
    };
    for options in [LENIENT, STRICT] {
        for (text, expected) in [
            ("0", 0.0),
            ("5", 5.0),
            ("-1.5e-3", -0.0015),
            ("\"2.5\"", 2.5),
            ("0.1", 0.1),
            ("4.9e-324", 5e-324),
            ("1e-999", 0.0),
            ("18446744073709551616", 18446744073709551616.0),
            ("1.7976931348623157e308", f64::MAX),
            ("\"Infinity\"", f64::INFINITY),
            ("\"-Infinity\"", f64::NEG_INFINITY),
        ] {
            assert_eq!(value(text, options).expect(text), expected, "{text}");
        }
        assert!(value("-0.0", options).expect("minus zero").is_sign_negative());
        assert!(value("\"NaN\"", options).expect("NaN").is_nan());
        for text in ["1e999", "\"-1e999\""] {
            assert!(
                problem(value(text, options)).contains("out of the range"),
                "{text}"
            );
        }
        for text in ["\"\"", "\"one\"", "true", "\" 1\""] {
            assert!(value(text, options).is_err(), "{text}");
        }
        for text in ["NaN", "Infinity", "-Infinity"] {
            let said = problem(value(text, options));
            assert!(said.contains("expected a number"), "{text}: {said}");
        }
    }
    assert!(problem(value("NaN", LENIENT)).contains("as strings"));
    for text in ["\"inf\"", "\"+Inf\"", "\".5\"", "\"nan\""] {
        assert!(value(text, LENIENT).is_ok(), "{text}");
        assert!(value(text, STRICT).is_err(), "{text}");
    }
}

/// Scenario: booleans, and what looks like one.
/// Guarantees: only true and false are booleans.
#[test]
fn booleans_are_true_and_false() {
    assert_eq!(
        any_value(r#"{"boolValue":true}"#, STRICT),
        Ok(Some(any_value::Value::BoolValue(true)))
    );
    for text in ["\"true\"", "1", "True", "truex"] {
        assert!(
            any_value(&format!(r#"{{"boolValue":{text}}}"#), LENIENT).is_err(),
            "{text}"
        );
    }
}

/// Scenario: strings with every escape, surrogate pairs, and half pairs.
/// Guarantees: escapes become their characters; half a pair and a raw control character are refused.
#[test]
fn strings_are_unescaped() {
    let text = |json: &str| any_value(&format!(r#"{{"stringValue":"{json}"}}"#), LENIENT);
    let read = text(r#"\"\\\/\b\f\n\r\té\u00e9\ud83d\ude00\u0000😀"#).expect("escapes");
    let expected = "\"\\/\u{8}\u{c}\n\r\téé😀\0😀".to_owned();
    assert_eq!(read, Some(any_value::Value::StringValue(expected)));
    for half in [r"\ud83d", r"\ud83dx", r"\ude00", r"\ud83d\ud83d", r"\ud83dA"] {
        let said = problem(text(half));
        assert!(said.contains("half of a surrogate pair"), "{half}: {said}");
    }
    assert!(problem(text("a\nb")).contains("escape it as \\u000a"));
    assert!(problem(text(r"\x41")).contains("not an escape"));
    let long = "x".repeat(20_000) + r"\n" + &"y".repeat(300);
    let read = text(&long).expect("long strings");
    assert_eq!(
        read,
        Some(any_value::Value::StringValue(long.replace(r"\n", "\n")))
    );
}

/// Scenario: names in snake case, with escapes, and unknown names with values of every kind.
/// Guarantees: snake case is taken leniently and refused strictly with the right name; unknown ones are ignored, their
/// values only checked to be JSON.
#[test]
fn names_are_camel_case_and_unknown_ones_ignored() {
    let read = span(r#""start_time_unix_nano":"5","trace_state":"a""#, LENIENT).expect("snake case");
    assert_eq!((read.start_time_unix_nano, read.trace_state.as_str()), (5, "a"));
    let said = problem(span(r#""start_time_unix_nano":"5""#, STRICT));
    assert!(said.contains("write \"startTimeUnixNano\""), "{said}");
    assert_eq!(
        span(r#""\u006eame":"x""#, STRICT).map(|span| span.name),
        Ok("x".to_owned())
    );
    for options in [LENIENT, STRICT] {
        let members = r#""new":{"a":[1,{"b":null}],"traceId":7},"x":"y","Name":"no","NAME":1e9,"":[],"name":"n","z":false"#;
        let read = span(members, options).expect("unknown names");
        assert_eq!(
            read,
            Span {
                name: "n".to_owned(),
                ..Span::default()
            }
        );
        assert!(span(r#""new":{"a":[1,{"b":nul}]}"#, options).is_err());
        assert!(traces(r#"{"resourceSpans":[],"resourceLogs":{"not":"mine"}}"#, options).is_ok());
    }
    let json = format!(
        "\"new\":{}{}",
        "[".repeat(MAX_UNKNOWN_DEPTH + 1),
        "]".repeat(MAX_UNKNOWN_DEPTH + 1)
    );
    assert!(problem(span(&json, LENIENT)).contains("nests deeper than 1024"));
}

/// Scenario: null for fields of every kind, for members of a oneof, and as an element of lists.
/// Guarantees: a null field is an absent one; a null element is an empty message leniently and an error otherwise.
#[test]
fn null_is_absent() {
    for options in [LENIENT, STRICT] {
        let nulls = r#""traceId":null,"name":null,"kind":null,"attributes":null,"status":null,"flags":null"#;
        assert_eq!(span(nulls, options), Ok(Span::default()));
        let value = any_value(r#"{"stringValue":null,"intValue":"1"}"#, options);
        assert_eq!(value, Ok(Some(any_value::Value::IntValue(1))));
        assert_eq!(any_value("null", options), Ok(None));
        let request = traces(r#"{"resourceSpans":null}"#, options);
        assert_eq!(request, Ok(ExportTraceServiceRequest::default()));
        assert!(any_value(r#"{"arrayValue":{"values":null}}"#, options).is_ok());
    }
    let array = r#"{"arrayValue":{"values":[null,{"intValue":1}]}}"#;
    let expected = ArrayValue {
        values: vec![
            AnyValue::default(),
            AnyValue {
                value: Some(any_value::Value::IntValue(1)),
            },
        ],
    };
    assert_eq!(
        any_value(array, LENIENT),
        Ok(Some(any_value::Value::ArrayValue(expected)))
    );
    assert!(problem(any_value(array, STRICT)).contains("null is no element"));
    let metrics = r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"histogram":{"dataPoints":[{"bucketCounts":[1,null]}]}}]}]}]}"#;
    let error =
        json::decode(json::request_schema(Kind::Metrics), metrics.as_bytes(), LENIENT).expect_err("null");
    assert!(error.path().ends_with("bucketCounts[1]"), "{error}");
}

/// Scenario: a name twice: scalars (the second with the default value), messages, lists.
/// Guarantees: leniently it means the field twice on the wire; strictly it is an error.
#[test]
fn a_name_twice_is_the_field_twice() {
    let json = r#""name":"a","kind":3,"kind":0,"name":"","status":{"code":2},"status":{"message":"m"},
        "events":[{"name":"1"}],"events":[{"name":"2"}]"#;
    let read = span(json, LENIENT).expect("lenient");
    assert_eq!((read.name.as_str(), read.kind, read.events.len()), ("", 0, 2));
    assert_eq!(
        read.status.map(|status| (status.code, status.message)),
        Some((2, "m".to_owned()))
    );
    for twice in [
        r#""name":"a","name":"a""#,
        r#""events":[],"events":[]"#,
        r#""status":{},"status":{}"#,
    ] {
        assert!(problem(span(twice, STRICT)).contains("twice"), "{twice}");
    }
    assert!(
        span(r#""name":null,"name":"a""#, STRICT).is_ok(),
        "null is absent"
    );
}

/// Scenario: two members of one oneof, and one member twice.
/// Guarantees: two are refused by their names, one twice follows the rule for names.
#[test]
fn members_of_a_oneof_exclude_each_other() {
    for options in [LENIENT, STRICT] {
        let said = problem(any_value(r#"{"stringValue":"a","intValue":"1"}"#, options));
        assert!(
            said.contains("\"stringValue\" and \"intValue\" exclude each other"),
            "{said}"
        );
        assert!(point(r#""asInt":"1","asDouble":1"#, options).is_err());
    }
    let value = any_value(r#"{"intValue":"1","intValue":"0"}"#, LENIENT);
    assert_eq!(value, Ok(Some(any_value::Value::IntValue(0))));
}

/// Scenario: zero and empty values where presence counts, and where it does not.
/// Guarantees: members of a oneof and `optional` fields are kept, plain scalars with a default value not written.
#[test]
fn presence_is_kept_and_defaults_are_not_written() {
    use any_value::Value;
    for (json, value) in [
        (r#"{"intValue":"0"}"#, Value::IntValue(0)),
        (r#"{"boolValue":false}"#, Value::BoolValue(false)),
        (r#"{"stringValue":""}"#, Value::StringValue(String::new())),
        (r#"{"doubleValue":0}"#, Value::DoubleValue(0.0)),
        (
            r#"{"kvlistValue":{}}"#,
            Value::KvlistValue(KeyValueList::default()),
        ),
        (
            r#"{"arrayValue":{"values":[]}}"#,
            Value::ArrayValue(ArrayValue::default()),
        ),
    ] {
        assert_eq!(any_value(json, STRICT), Ok(Some(value)), "{json}");
    }
    let read = point(r#""asInt":0"#, STRICT).expect("a point");
    assert_eq!(read.value, Some(number_data_point::Value::AsInt(0)));
    let histogram =
        r#"{"dataPoints":[{"sum":0,"min":0,"count":0,"flags":0,"bucketCounts":[],"explicitBounds":[0]}]}"#;
    let wire = json::decode(&schema::HISTOGRAM, histogram.as_bytes(), STRICT).expect("a histogram");
    // sum = 5, min = 11: tags 0x29 and 0x59; explicit_bounds = 7, packed: 0x3a.
    let expected = [
        &[0x0a, 28, 0x29][..],
        &[0; 8],
        &[0x59],
        &[0; 8],
        &[0x3a, 8],
        &[0; 8],
    ];
    assert_eq!(wire, expected.concat());
    assert_eq!(
        json::decode(
            &schema::SPAN,
            br#"{"name":"","kind":0,"links":[],"flags":0}"#,
            STRICT
        ),
        Ok(Vec::new())
    );
    assert_eq!(
        json::decode(&schema::SPAN, br#"{"status":{}}"#, STRICT),
        Ok(vec![0x7a, 0])
    );
}

/// Scenario: bodies that are no object, cut off, followed by more, not UTF-8, in UTF-16, and with a byte order mark.
/// Guarantees: only the byte order mark is overlooked; every other body is refused with a reason.
#[test]
fn a_body_is_one_object_in_utf8() {
    let whole = span_json(r#""name":"é","attributes":[{"key":"k","value":{"intValue":"1"}}]"#);
    for cut in (0..whole.len()).filter(|&cut| whole.is_char_boundary(cut)) {
        assert!(traces(&whole[..cut], LENIENT).is_err(), "cut at {cut}");
    }
    assert!(traces(&format!("\u{feff} {whole}\r\n\t "), STRICT).is_ok());
    for (body, wanted) in [
        ("", "holds no JSON"),
        (" \n", "holds no JSON"),
        ("[]", "expected an object"),
        ("null", "expected an object"),
        ("\"{}\"", "expected an object"),
        ("{} {}", "nothing after"),
        ("{}x", "nothing after"),
        ("{\"resourceSpans\":[],}", "an element after the comma"),
        ("{'resourceSpans':[]}", "field name in quotes"),
        ("{\"resourceSpans\":{}}", "expected an array"),
        ("{\"resourceSpans\":[[]]}", "expected an object"),
        ("{\"resourceSpans\":[],//\n}", "field name"),
    ] {
        let said = problem(traces(body, LENIENT));
        assert!(said.contains(wanted), "{body}: {said}");
    }
    let schema = json::request_schema(Kind::Traces);
    assert!(problem(json::decode(schema, b"{\"a\":\"\xff\"}", LENIENT)).contains("not UTF-8"));
    assert!(problem(json::decode(schema, b"\xff\xfe{\0}\0", LENIENT)).contains("UTF-16"));
}

/// Scenario: an error in the middle of a body of several lines with characters of several bytes.
/// Guarantees: line, column (in characters) and path point at the value.
#[test]
fn errors_say_where() {
    let json = "{\"resourceSpans\": [{},\n {\"scopeSpans\": [{\"spans\": [{\"name\": \"é\", \"traceId\": \"xyz\"}]}]}]}";
    let error = traces(json, LENIENT).expect_err("a bad id");
    assert_eq!((error.line(), error.column()), (2, 54));
    assert_eq!(error.path(), "resourceSpans[1].scopeSpans[0].spans[0].traceId");
    assert_eq!(
        error.to_string(),
        "JSON line 2, column 54, resourceSpans[1].scopeSpans[0].spans[0].traceId: \
         traceId must be 32 hex digits; 'x' is not one"
    );
}

/// A log record whose body nests lists so deep that the innermost `AnyValue` is at this message depth.
fn nested_body(depth: usize) -> String {
    // Resource logs, scope logs, record and body are levels 1 to 4; each list adds two.
    let lists = (depth - 4) / 2;
    let (open, close) = (r#"{"arrayValue":{"values":["#.repeat(lists), "]}}".repeat(lists));
    format!(r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{{"body":{open}{{}}{close}}}]}}]}}]}}"#)
}

/// Scenario: values nest as deep as protobuf decoders follow, deeper, and a million levels deep.
/// Guarantees: the limit is prost's own, and no depth overflows the stack.
#[test]
fn nesting_ends_where_prost_ends() {
    let schema = json::request_schema(Kind::Logs);
    let wire = json::decode(schema, nested_body(MAX_MESSAGE_DEPTH).as_bytes(), LENIENT).expect("deep enough");
    ExportLogsServiceRequest::decode(&wire[..]).expect("prost follows");
    let mut text = Vec::new();
    json::encode(schema, &wire, &mut text).expect("encode follows");
    assert_eq!(String::from_utf8_lossy(&text), nested_body(MAX_MESSAGE_DEPTH));
    let deeper = nested_body(MAX_MESSAGE_DEPTH + 2);
    assert!(problem(json::decode(schema, deeper.as_bytes(), LENIENT)).contains("deeper than 100"));
    let hostile = r#"{"arrayValue":{"values":["#.repeat(1_000_000);
    assert!(json::decode(&schema::ANY_VALUE, hostile.as_bytes(), LENIENT).is_err());
}

/// Scenario: numbers that grow fourfold in protobuf, under a limit.
/// Guarantees: decoding stops once the output outgrows the limit, with an error told apart from bad data.
#[test]
fn the_output_is_limited() {
    let json = format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"histogram":{{"dataPoints":[{{"bucketCounts":[{}1]}}]}}}}]}}]}}]}}"#,
        "0,".repeat(100_000)
    );
    let schema = json::request_schema(Kind::Metrics);
    let decode = |limit_bytes| {
        json::decode(
            schema,
            json.as_bytes(),
            JsonOptions {
                strict: false,
                limit_bytes,
            },
        )
    };
    let wire = decode(usize::MAX).expect("valid");
    assert!(wire.len() > 3 * json.len());
    assert_eq!(decode(wire.len()).as_deref(), Ok(&wire[..]));
    let error = decode(wire.len() / 2).expect_err("too large");
    assert!(
        error.is_too_large() && error.to_string().contains("larger than"),
        "{error}"
    );
    assert!(!traces("[]", LENIENT).expect_err("no object").is_too_large());
}

/// Scenario: a long resource attribute, then a short one at the same depth, under a limit of exactly their length.
/// Guarantees: the limit is exact: a length prefix first guessed too wide does not count against it (found by fuzzing).
#[test]
fn the_limit_is_exact() {
    let attribute = |length| {
        format!(
            r#"{{"key":"k","value":{{"stringValue":"{}"}}}}"#,
            "x".repeat(length)
        )
    };
    let json = format!(
        r#"{{"resourceLogs":[{{"resource":{{"attributes":[{},{}]}}}}]}}"#,
        attribute(200),
        attribute(3)
    );
    let decode = |limit_bytes| {
        let options = JsonOptions {
            strict: false,
            limit_bytes,
        };
        json::decode(json::request_schema(Kind::Logs), json.as_bytes(), options)
    };
    let wire = decode(usize::MAX).expect("valid");
    assert_eq!(decode(wire.len()).as_deref(), Ok(&wire[..]));
    assert!(
        decode(wire.len() - 1)
            .expect_err("one byte too much")
            .is_too_large()
    );
}

/// Scenario: a refusal's Status with RetryInfo, with a type this program does not know, and responses with and
/// without partial success, to JSON and back.
/// Guarantees: Any and Duration have their own JSON forms; an empty response is `{}`.
#[test]
fn responses_and_status_have_their_json_forms() {
    let encode = |schema, wire: &[u8]| {
        let mut out = Vec::new();
        json::encode(schema, wire, &mut out).expect("valid");
        String::from_utf8(out).expect("JSON is UTF-8")
    };
    let status = r#"{"code":14,"message":"busy","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1.500s"},{"@type":"x/y.Z","value":"AQI="}]}"#;
    let wire = json::decode(&schema::RPC_STATUS, status.as_bytes(), STRICT).expect("a status");
    let mut retry = vec![0x0a, 40];
    retry.extend(b"type.googleapis.com/google.rpc.RetryInfo");
    retry.extend([0x12, 10, 0x0a, 8, 8, 1, 0x10, 0x80, 0xca, 0xb5, 0xee, 1]);
    assert!(
        wire.windows(retry.len()).any(|window| window == retry),
        "{wire:?}"
    );
    assert_eq!(
        encode(&schema::RPC_STATUS, &wire),
        status.replace("1.500s", "1.5s")
    );
    for (duration, ok) in [
        ("3s", true),
        ("-0.000000001s", true),
        ("1.1234567890s", false),
        ("1", false),
        ("s", false),
    ] {
        let json = format!(r#"{{"retryDelay":"{duration}"}}"#);
        let decoded = json::decode(&schema::RETRY_INFO, json.as_bytes(), STRICT);
        assert_eq!(decoded.is_ok(), ok, "{duration}");
        if let Ok(wire) = decoded {
            assert_eq!(encode(&schema::RETRY_INFO, &wire), json);
        }
    }
    let response = json::response_schema(Kind::Traces);
    assert_eq!(encode(response, &[]), "{}");
    let partial = r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}"#;
    let wire = json::decode(response, partial.as_bytes(), STRICT).expect("a response");
    assert_eq!(encode(response, &wire), partial);
}
