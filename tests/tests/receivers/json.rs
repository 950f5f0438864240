//! J1-J6: OTLP/JSON, which is the JSON form of proto3 with exceptions.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point;
use prost::Message;
use sluice_tests::{Arrived, Config, Gateway, Kind, Reply, Sink, every_value, items_of, post};

use crate::{JSON, assert_refused, pair};

/// Posts, and returns what arrives at the sink for it.
async fn through(sink: &Sink, gateway: &Gateway, kind: Kind, json: &str) -> Arrived {
    sink.clear();
    let reply = post(gateway.http(), kind.http_path(), &[JSON], json.to_owned()).await;
    assert_eq!(reply.status, 200, "{json}: {}", reply.text());
    sink.until(&format!("{json} arrives"), |sink| sink.taken().pop())
        .await
}

async fn refused(gateway: &Gateway, kind: Kind, json: &str) -> Reply {
    let reply = post(gateway.http(), kind.http_path(), &[JSON], json.to_owned()).await;
    assert_eq!(reply.status, 400, "{json}: {}", reply.text());
    assert_refused(&reply, 400, 3, JSON.1);
    reply
}

fn span(fields: &str) -> String {
    format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{"name":"s",{fields}}}]}}]}}]}}"#)
}

fn first_span(arrived: &Arrived) -> opentelemetry_proto::tonic::trace::v1::Span {
    let request = ExportTraceServiceRequest::decode(arrived.body.clone()).unwrap();
    request.resource_spans[0].scope_spans[0].spans[0].clone()
}

fn log(fields: &str) -> String {
    format!(r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{{{fields}}}]}}]}}]}}"#)
}

fn first_log(arrived: &Arrived) -> opentelemetry_proto::tonic::logs::v1::LogRecord {
    let request = ExportLogsServiceRequest::decode(arrived.body.clone()).unwrap();
    request.resource_logs[0].scope_logs[0].log_records[0].clone()
}

fn metric(fields: &str) -> String {
    format!(r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"m",{fields}}}]}}]}}]}}"#)
}

fn first_data(arrived: &Arrived) -> Data {
    let request = ExportMetricsServiceRequest::decode(arrived.body.clone()).unwrap();
    request.resource_metrics[0].scope_metrics[0].metrics[0]
        .data
        .clone()
        .unwrap()
}

const IDS: &str = r#""traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174""#;

/// Scenario: ids in lower, upper and mixed case, empty ids, ids in links and logs; bytes in base64, with
/// and without padding, in both alphabets.
/// Guarantees: they arrive as the bytes they are.
#[tokio::test(flavor = "multi_thread")]
async fn j1_ids_are_hex_and_other_bytes_base64() {
    let (sink, gateway) = pair().await;
    let trace = [
        0x5b, 0x8e, 0xff, 0xf7, 0x98, 0x03, 0x81, 0x03, 0xd2, 0x69, 0xb6, 0x33, 0x81, 0x3f, 0xc6, 0x0c,
    ];
    let id = [0xee, 0xe1, 0x9b, 0x7e, 0xc3, 0xc1, 0xb1, 0x74];
    for ids in [
        IDS.to_owned(),
        IDS.replace("5b8efff7", "5B8EFFF7")
            .replace("eee19b7ec3", "EeE19b7eC3"),
    ] {
        let link = ids.clone();
        let json = span(&format!(
            r#"{ids},"parentSpanId":"EEE19B7EC3C1B174","links":[{{{link}}}]"#
        ));
        let span = first_span(&through(&sink, &gateway, Kind::Traces, &json).await);
        assert_eq!(
            (&span.trace_id[..], &span.span_id[..], &span.parent_span_id[..]),
            (&trace[..], &id[..], &id[..])
        );
        assert_eq!(
            (&span.links[0].trace_id[..], &span.links[0].span_id[..]),
            (&trace[..], &id[..])
        );
    }
    let empty = span(&format!(r#"{IDS},"parentSpanId":"""#));
    assert!(
        first_span(&through(&sink, &gateway, Kind::Traces, &empty).await)
            .parent_span_id
            .is_empty()
    );
    let record = first_log(&through(&sink, &gateway, Kind::Logs, &log(IDS)).await);
    assert_eq!((&record.trace_id[..], &record.span_id[..]), (&trace[..], &id[..]));
    for (text, bytes) in [
        ("+/8=", &[0xfb, 0xff][..]),
        ("+/8", &[0xfb, 0xff]),
        ("-_8=", &[0xfb, 0xff]),
        ("-_8", &[0xfb, 0xff]),
        ("", &[]),
        ("AAEC", &[0, 1, 2]),
    ] {
        let json = log(&format!(r#""body":{{"bytesValue":"{text}"}}"#));
        let body = first_log(&through(&sink, &gateway, Kind::Logs, &json).await)
            .body
            .unwrap()
            .value;
        assert_eq!(body, Some(Value::BytesValue(bytes.to_vec())), "{text}");
    }
    gateway.stop().await;
}

/// Scenario: ids in base64, which the JSON form of proto3 would ask for and OTLP does not, and ids of the
/// wrong length.
/// Guarantees: 400 with a message that names the field and the likely mistake.
#[tokio::test(flavor = "multi_thread")]
async fn j1_a_base64_id_is_named_as_the_bug_it_is() {
    let (_sink, gateway) = pair().await;
    let base64 = span(r#""traceId":"W47/95gDgQPSabYzgT/GDA==","spanId":"7uGbfsPBsXQ=""#);
    let reply = refused(&gateway, Kind::Traces, &base64).await;
    let message = reply.rpc_status().message;
    assert!(
        message.contains("base64") && message.contains("hex") && message.contains("traceId"),
        "{message}"
    );
    for ids in [
        r#""traceId":"5b8efff798038103d269b633813fc6","spanId":"eee19b7ec3c1b174""#,
        r#""traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b1740""#,
        r#""traceId":"5b8efff798038103d269b633813fc60g","spanId":"eee19b7ec3c1b174""#,
        r#""traceId":12,"spanId":"eee19b7ec3c1b174""#,
    ] {
        let message = refused(&gateway, Kind::Traces, &span(ids))
            .await
            .rpc_status()
            .message;
        assert!(
            message.contains("traceId") || message.contains("spanId"),
            "{message}"
        );
    }
    gateway.stop().await;
}

/// Scenario: enums as integers, as names, as unknown integers; in a lenient and in a strict receiver.
/// Guarantees: integers always; names where lenient, which is the default; an unknown number survives.
#[tokio::test(flavor = "multi_thread")]
async fn j2_enums_are_integers() {
    let (sink, gateway) = pair().await;
    let strict_sink = Sink::start().await;
    let strict = Gateway::start(&Config::to(&strict_sink).receiver("json: strict")).await;
    for (sink, gateway) in [(&sink, &gateway), (&strict_sink, &strict)] {
        for (kind, code) in [(2, 1), (5, 2), (77, 99)] {
            let json = span(&format!(r#"{IDS},"kind":{kind},"status":{{"code":{code}}}"#));
            let span = first_span(&through(sink, gateway, Kind::Traces, &json).await);
            assert_eq!((span.kind, span.status.unwrap().code), (kind, code));
        }
    }
    let names = span(&format!(
        r#"{IDS},"kind":"SPAN_KIND_SERVER","status":{{"code":"STATUS_CODE_ERROR"}}"#
    ));
    let arrived = first_span(&through(&sink, &gateway, Kind::Traces, &names).await);
    assert_eq!((arrived.kind, arrived.status.unwrap().code), (2, 2));
    refused(&strict, Kind::Traces, &names).await;
    refused(
        &gateway,
        Kind::Traces,
        &span(&format!(r#"{IDS},"kind":"SPAN_KIND_NONSENSE""#)),
    )
    .await;
    gateway.stop().await;
    strict.stop().await;
}

/// Scenario: 64-bit integers as strings, as numbers, in exponent form, at both ends of their ranges, and
/// beyond them; 32-bit integers likewise.
/// Guarantees: exact values, or 400; never a rounded or wrapped number.
#[tokio::test(flavor = "multi_thread")]
async fn j3_integers_are_strings_or_numbers() {
    let (sink, gateway) = pair().await;
    for (text, value) in [
        ("\"9223372036854775807\"", i64::MAX),
        ("9223372036854775807", i64::MAX),
        ("\"-9223372036854775808\"", i64::MIN),
        ("-9223372036854775808", i64::MIN),
        ("\"0\"", 0),
        ("1e3", 1000),
        ("\"1e3\"", 1000),
        ("1.0", 1),
        ("-0", 0),
        ("9007199254740993", 9_007_199_254_740_993),
    ] {
        let json = metric(&format!(r#""gauge":{{"dataPoints":[{{"asInt":{text}}}]}}"#));
        match first_data(&through(&sink, &gateway, Kind::Metrics, &json).await) {
            Data::Gauge(gauge) => {
                assert_eq!(
                    gauge.data_points[0].value,
                    Some(number_data_point::Value::AsInt(value)),
                    "{text}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
    for (text, value) in [
        ("\"18446744073709551615\"", u64::MAX),
        ("18446744073709551615", u64::MAX),
        ("\"1\"", 1),
    ] {
        let json = log(&format!(r#""timeUnixNano":{text}"#));
        assert_eq!(
            first_log(&through(&sink, &gateway, Kind::Logs, &json).await).time_unix_nano,
            value,
            "{text}"
        );
    }
    for text in [
        "\"9223372036854775808\"",
        "9223372036854775808",
        "1.5",
        "\"1.5\"",
        "\"\"",
        "\"x\"",
        "\" 1\"",
        "true",
        "[]",
    ] {
        refused(
            &gateway,
            Kind::Metrics,
            &metric(&format!(r#""gauge":{{"dataPoints":[{{"asInt":{text}}}]}}"#)),
        )
        .await;
    }
    for text in ["-1", "\"-1\"", "18446744073709551616"] {
        refused(&gateway, Kind::Logs, &log(&format!(r#""timeUnixNano":{text}"#))).await;
    }
    for text in ["4294967296", "-1"] {
        refused(&gateway, Kind::Logs, &log(&format!(r#""flags":{text}"#))).await;
    }
    gateway.stop().await;
}

/// Scenario: keys in lowerCamelCase and in snake_case.
/// Guarantees: both are understood by default; strict receivers ignore the latter as unknown fields.
#[tokio::test(flavor = "multi_thread")]
async fn j4_keys_are_lower_camel_case() {
    let (sink, gateway) = pair().await;
    let camel = log(r#""timeUnixNano":"1","severityText":"WARN""#);
    let snake = camel
        .replace("resourceLogs", "resource_logs")
        .replace("scopeLogs", "scope_logs")
        .replace("logRecords", "log_records")
        .replace("timeUnixNano", "time_unix_nano")
        .replace("severityText", "severity_text");
    let expected = first_log(&through(&sink, &gateway, Kind::Logs, &camel).await);
    assert_eq!(expected.severity_text, "WARN");
    assert_eq!(
        first_log(&through(&sink, &gateway, Kind::Logs, &snake).await),
        expected
    );
    gateway.stop().await;
}

/// Scenario: unknown keys of every JSON type at every level.
/// Guarantees: they are ignored, and nothing else is.
#[tokio::test(flavor = "multi_thread")]
async fn j5_unknown_fields_are_ignored() {
    let (sink, gateway) = pair().await;
    for unknown in [
        "null",
        "true",
        "1.5e300",
        "\"text\"",
        "[1,[2,{}],\"x\"]",
        "{\"a\":{\"b\":[null]}}",
    ] {
        let json = format!(
            r#"{{"new":{unknown},"resourceLogs":[{{"new":{unknown},"resource":{{"new":{unknown}}},"scopeLogs":[{{
            "scope":{{"name":"scope","new":{unknown}}},"logRecords":[{{"new":{unknown},"severityText":"OK",
            "attributes":[{{"key":"k","new":{unknown},"value":{{"new":{unknown},"intValue":"5"}}}}]}}]}}]}}]}}"#
        );
        let record = first_log(&through(&sink, &gateway, Kind::Logs, &json).await);
        assert_eq!(
            (record.severity_text.as_str(), record.attributes.len()),
            ("OK", 1)
        );
        assert_eq!(
            record.attributes[0].value.as_ref().unwrap().value,
            Some(Value::IntValue(5))
        );
    }
    gateway.stop().await;
}

/// Scenario: NaN and both infinities as strings; doubles as numbers, as strings, at their limits.
/// Guarantees: they arrive as the same doubles; what is none is 400.
#[tokio::test(flavor = "multi_thread")]
async fn j6_nan_and_infinity_are_strings() {
    let (sink, gateway) = pair().await;
    for (text, value) in [
        ("\"NaN\"", f64::NAN),
        ("\"Infinity\"", f64::INFINITY),
        ("\"-Infinity\"", f64::NEG_INFINITY),
        ("1.7976931348623157e308", f64::MAX),
        ("5e-324", 5e-324),
        ("-0.0", -0.0),
        ("\"2.5\"", 2.5),
        ("7", 7.0),
        ("0.1", 0.1),
    ] {
        let json = metric(&format!(r#""gauge":{{"dataPoints":[{{"asDouble":{text}}}]}}"#));
        match first_data(&through(&sink, &gateway, Kind::Metrics, &json).await) {
            Data::Gauge(gauge) => match gauge.data_points[0].value {
                Some(number_data_point::Value::AsDouble(found)) => {
                    assert!(
                        found.to_bits() == value.to_bits() || found.is_nan() && value.is_nan(),
                        "{text}: {found}"
                    );
                }
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
    for text in ["NaN", "Infinity", "\"one\"", "1e400", "\"1e400\"", "true", "{}"] {
        let json = metric(&format!(r#""gauge":{{"dataPoints":[{{"asDouble":{text}}}]}}"#));
        refused(&gateway, Kind::Metrics, &json).await;
    }
    gateway.stop().await;
}

/// Scenario: documents that are no JSON, or not an object; trailing text; `null` for fields of every type;
/// nesting of 10,000 levels; duplicate keys; a byte order mark; bytes that are not UTF-8.
/// Guarantees: 400 with a reason, or the meaning proto3 gives it (null is absent); never a crash.
#[tokio::test(flavor = "multi_thread")]
async fn json_documents() {
    let (sink, gateway) = pair().await;
    let deep = format!("{}{}", r#"{"resourceLogs":"#.repeat(10_000), "1");
    let deep_list = log(&format!(
        r#""body":{}1{}"#,
        r#"{"arrayValue":{"values":["#.repeat(5000),
        "]}}".repeat(5000)
    ));
    for json in [
        "",
        "{",
        "[]",
        "1",
        "\"x\"",
        "{}{}",
        "{} x",
        "{\"resourceLogs\":{}}",
        "{\"resourceLogs\":[1]}",
        "{\"resourceLogs\":[}",
        "{'resourceLogs':[]}",
        "{resourceLogs:[]}",
        "{\"resourceLogs\":[],}",
        "nul",
        "{\"a\":\"\u{1}\"}",
        "{\"a\":\"\\x\"}",
        "{\"a\":01}",
        &deep,
        &deep_list,
    ] {
        let reply = post(gateway.http(), "/v1/logs", &[JSON], json.to_owned()).await;
        let shown = &json[..json.len().min(80)];
        assert_eq!(reply.status, 400, "{shown}: {reply:?}");
        assert_refused(&reply, 400, 3, JSON.1);
    }
    let reply = post(gateway.http(), "/v1/logs", &[JSON], &b"{\"a\":\"\xff\"}"[..]).await;
    assert_refused(&reply, 400, 3, JSON.1);
    let nulls = log(
        r#""timeUnixNano":null,"body":null,"attributes":null,"severityNumber":null,"traceId":null,"flags":null"#,
    );
    assert_eq!(
        first_log(&through(&sink, &gateway, Kind::Logs, &nulls).await),
        Default::default()
    );
    for json in ["{\"resourceLogs\":null}", " \t\r\n{ } \n"] {
        assert_eq!(
            post(gateway.http(), "/v1/logs", &[JSON], json).await.status,
            200,
            "{json}"
        );
    }
    let escapes = log(r#""severityText":"\u00e9\ud83e\udd80\n\"\\\/\b\f\r\t""#);
    let text = first_log(&through(&sink, &gateway, Kind::Logs, &escapes).await).severity_text;
    assert_eq!(text, "é\u{1F980}\n\"\\/\u{8}\u{c}\r\t");
    refused(&gateway, Kind::Logs, &log(r#""severityText":"\ud83e""#)).await;
    gateway.stop().await;
}

/// Scenario: every type of attribute value, in JSON as the reference implementation writes it.
/// Guarantees: the destination receives the same tree as from protobuf.
#[tokio::test(flavor = "multi_thread")]
async fn json_and_protobuf_mean_the_same() {
    let (sink, gateway) = pair().await;
    let mut request = every_value();
    // An AnyValue without a value: the reference writes a form of its own for it.
    for resource in &mut request.resource_logs {
        resource
            .resource
            .as_mut()
            .unwrap()
            .attributes
            .retain(|a| a.key != "unset" && a.key != "infinite");
        for scope in &mut resource.scope_logs {
            scope
                .scope
                .as_mut()
                .unwrap()
                .attributes
                .retain(|a| a.key != "unset" && a.key != "infinite");
            for record in &mut scope.log_records {
                record
                    .attributes
                    .retain(|a| a.key != "unset" && a.key != "infinite");
            }
        }
    }
    let json = serde_json::to_string(&request).unwrap();
    let arrived = through(&sink, &gateway, Kind::Logs, &json).await;
    arrived
        .items()
        .assert_same(&items_of(Kind::Logs, &request.encode_to_vec()));
    gateway.stop().await;
}

/// Scenario: the examples that come with opentelemetry-proto, posted as they are.
/// Guarantees: the sink receives the tree that the reference implementation reads from them.
#[tokio::test(flavor = "multi_thread")]
async fn opentelemetry_proto_examples_arrive() {
    let (sink, gateway) = pair().await;
    let fixture = |name: &str| {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("fixtures/otlp-examples")
            .join(name);
        std::fs::read_to_string(path).unwrap()
    };
    for (name, kind) in [
        ("trace.json", Kind::Traces),
        ("metrics.json", Kind::Metrics),
        ("logs.json", Kind::Logs),
        ("events.json", Kind::Logs),
    ] {
        let json = fixture(name);
        let expected = match kind {
            Kind::Traces => serde_json::from_str::<ExportTraceServiceRequest>(&json)
                .unwrap()
                .encode_to_vec(),
            Kind::Metrics => serde_json::from_str::<ExportMetricsServiceRequest>(&json)
                .unwrap()
                .encode_to_vec(),
            _ => serde_json::from_str::<ExportLogsServiceRequest>(&json)
                .unwrap()
                .encode_to_vec(),
        };
        let arrived = through(&sink, &gateway, kind, &json).await;
        let items = arrived.items();
        assert!(!items.is_empty(), "{name}");
        items.assert_same(&items_of(kind, &expected));
    }
    gateway.stop().await;
}
