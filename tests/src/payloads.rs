//! Requests, and every way to compress them.

use std::io::Write;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList,
};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use sluice_loadgen::{Generator, Spec};

use crate::Kind;

/// A request of about fifty items of every sort, different for every `seed`.
pub fn sample(kind: Kind, seed: u64) -> Vec<u8> {
    let signal = match kind {
        Kind::Metrics => sluice_loadgen::Signal::Metrics,
        Kind::Logs => sluice_loadgen::Signal::Logs,
        Kind::Traces => sluice_loadgen::Signal::Traces,
        Kind::Profiles => return profile(seed),
    };
    let spec = Spec {
        variants: 1,
        ..Spec::mixed(signal).items(50).seed(seed).lane(seed as u32)
    };
    Generator::new(spec).next_request().body.to_vec()
}

/// A request with a profile in it: bytes that only the framing of the outermost messages is known of.
pub fn profile(seed: u64) -> Vec<u8> {
    use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
    use opentelemetry_proto::tonic::profiles::v1development::{
        Profile, ProfilesDictionary, ResourceProfiles, ScopeProfiles,
    };
    ExportProfilesServiceRequest {
        resource_profiles: vec![ResourceProfiles {
            scope_profiles: vec![ScopeProfiles {
                profiles: vec![Profile {
                    profile_id: seed.to_be_bytes().repeat(2),
                    ..Profile::default()
                }],
                ..ScopeProfiles::default()
            }],
            ..ResourceProfiles::default()
        }],
        dictionary: Some(ProfilesDictionary {
            string_table: vec![String::new(), format!("function-{seed}")],
            ..ProfilesDictionary::default()
        }),
    }
    .encode_to_vec()
}

/// A log record with attributes of every type, nested and at the limits of their ranges.
pub fn every_value() -> ExportLogsServiceRequest {
    let any = |value| Some(AnyValue { value: Some(value) });
    let attribute = |key: &str, value: Option<AnyValue>| KeyValue {
        key: key.into(),
        value,
        ..KeyValue::default()
    };
    let list = |values: Vec<Value>| {
        Value::ArrayValue(ArrayValue {
            values: values
                .into_iter()
                .map(|value| AnyValue { value: Some(value) })
                .collect(),
        })
    };
    let attributes = vec![
        attribute(
            "string",
            any(Value::StringValue("λ \u{1F980} \"quoted\" \\ \u{0}".into())),
        ),
        attribute("empty", any(Value::StringValue(String::new()))),
        attribute("bool", any(Value::BoolValue(false))),
        attribute("max", any(Value::IntValue(i64::MAX))),
        attribute("min", any(Value::IntValue(i64::MIN))),
        attribute("double", any(Value::DoubleValue(0.1 + 0.2))),
        attribute("tiny", any(Value::DoubleValue(f64::MIN_POSITIVE))),
        attribute("infinite", any(Value::DoubleValue(f64::NEG_INFINITY))),
        attribute("bytes", any(Value::BytesValue(vec![0, 255, 128, 10]))),
        attribute(
            "array",
            any(list(vec![
                Value::IntValue(1),
                Value::StringValue("two".into()),
                list(vec![]),
            ])),
        ),
        attribute(
            "map",
            any(Value::KvlistValue(KeyValueList {
                values: vec![attribute("inner", any(Value::BoolValue(true)))],
            })),
        ),
        attribute("nothing", None),
        attribute("unset", Some(AnyValue { value: None })),
    ];
    let record = LogRecord {
        time_unix_nano: u64::MAX,
        observed_time_unix_nano: 1,
        severity_number: 24,
        severity_text: "FATAL4".into(),
        body: any(list(vec![Value::DoubleValue(-0.0)])),
        attributes: attributes.clone(),
        dropped_attributes_count: u32::MAX,
        flags: 1,
        trace_id: (0..16).collect(),
        span_id: (240..248).collect(),
        event_name: "event".into(),
    };
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(Resource {
                attributes: attributes.clone(),
                dropped_attributes_count: 7,
                ..Resource::default()
            }),
            scope_logs: vec![ScopeLogs {
                scope: Some(InstrumentationScope {
                    name: "scope".into(),
                    version: "1.2.3".into(),
                    attributes,
                    dropped_attributes_count: 9,
                }),
                log_records: vec![record],
                schema_url: "https://example.com/scope".into(),
            }],
            schema_url: "https://example.com/resource".into(),
        }],
    }
}

/// gzip.
pub fn gzipped(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// zlib, which is what `deflate` means in HTTP (RFC 9110, 8.4.1.2).
pub fn zlib(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// Bare deflate without zlib's header, which some clients send as `deflate`.
pub fn deflated(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// One zstd frame that says how long its content is.
pub fn zstd(data: &[u8]) -> Vec<u8> {
    ::zstd::bulk::compress(data, 1).unwrap()
}

/// snappy's block format.
pub fn snappy_block(data: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(data).unwrap()
}

/// snappy's framing format.
pub fn snappy_framed(data: &[u8]) -> Vec<u8> {
    let mut encoder = snap::write::FrameEncoder::new(Vec::new());
    encoder.write_all(data).unwrap();
    encoder.into_inner().unwrap()
}

/// An LZ4 frame.
pub fn lz4(data: &[u8]) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}
