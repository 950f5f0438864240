//! Log requests with many attributes of which a record has few, from a generator with a fixed seed: what the lakerunner
//! project's benchmark on real data looked like (60 columns, 80 to 90% of them empty, 18,136 rows).

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use prost::Message;

/// 2025-01-01T00:00:00Z; each record is a second after the one before.
const START: u64 = 1_735_689_600_000_000_000;

/// Records of a request.
const BATCH: usize = 1000;

/// Rows of the real data.
pub const ROWS: usize = 18_136;

/// The key of the attribute with this number. Even ones are texts, odd ones integers.
#[must_use]
pub fn key(number: usize) -> String {
    format!("attribute.number_{number}")
}

/// Requests of 1000 records that hold `rows` in all; a record has each of `columns` attributes with `percent` probability.
#[must_use]
pub fn logs(rows: usize, columns: usize, percent: u64) -> Vec<Vec<u8>> {
    let mut state = 42u64;
    let mut below = move |n: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let keys: Vec<String> = (0..columns).map(key).collect();
    let mut record = |index: usize| {
        let mut attributes = Vec::new();
        for (number, key) in keys.iter().enumerate() {
            if below(100) >= percent {
                continue;
            }
            // From a handful of different values to many.
            let value = below(4 << (number % 16));
            let value = match number % 2 {
                0 => Value::StringValue(format!("value {value}")),
                _ => Value::IntValue(value as i64),
            };
            attributes.push(KeyValue {
                key: key.clone(),
                value: Some(AnyValue { value: Some(value) }),
                ..Default::default()
            });
        }
        LogRecord {
            time_unix_nano: START + index as u64 * 1_000_000_000,
            attributes,
            ..Default::default()
        }
    };
    let mut requests = Vec::new();
    for start in (0..rows).step_by(BATCH) {
        let log_records = (start..rows.min(start + BATCH)).map(&mut record).collect();
        let resource_logs = vec![ResourceLogs {
            scope_logs: vec![ScopeLogs {
                log_records,
                ..Default::default()
            }],
            ..Default::default()
        }];
        requests.push(ExportLogsServiceRequest { resource_logs }.encode_to_vec());
    }
    requests
}
